"""``daskgrad.scipy.sparse``: SciPy's values; derivatives, their cost, and what is refused."""

import io
import pickle

import numpy as np
import pytest
import scipy.sparse
import scipy.sparse.linalg
from functions_checked import check_against_scipy, checking
from lengths import in_short
from numpy.testing import assert_allclose, assert_array_equal

import daskgrad as dg
from daskgrad.autodiff.rules.scipy_sparse import Pattern, sampled
from daskgrad.autodiff.tape.pickling import TapePickler
from daskgrad.autodiff.tape.reverse import trace
from daskgrad.scipy import sparse

check = checking(sparse, scipy.sparse)
random = np.random.default_rng(9)
DENSE = random.normal(size=(4, 5)) * (random.random((4, 5)) < 0.6)
X, V = random.normal(size=(5, 3)), random.normal(size=5)
FORMATS = [
    f"{name}_{kind}"
    for name in ("csr", "csc", "coo", "bsr", "dia", "lil", "dok")
    for kind in ("array", "matrix")
]
PRODUCTS = {
    "A @ x": lambda a, x: a @ x,
    "x @ A": lambda a, x: x.T @ a.T,
    "A.T @ x": lambda a, x: a.T @ (a @ x),
    "A.dot(x)": lambda a, x: a.dot(x),
}


@in_short("name", FORMATS, "csr_array", "dia_matrix", "lil_array")
@pytest.mark.parametrize("product", PRODUCTS)
def test_constant_matrices(name, product):
    """As they stand; the same bits as SciPy's."""
    if product == "A.dot(x)" and name.startswith("coo"):
        pytest.skip("see test_where_scipy_asks_nobody_the_error_says_what_to_write")
    matrix = getattr(scipy.sparse, name)(DENSE)
    for x in (V, X, X[:, :1]):
        fun = lambda x: PRODUCTS[product](matrix, x)  # noqa: E731
        check_against_scipy(fun, fun, x)
        value, _ = dg.vjp(dg.delayed(fun), x)
        assert_array_equal(value, fun(x))


DIAGONALS = {
    "one": lambda s, x: s.diags_array(x),
    "above": lambda s, x: s.diags_array(x, offsets=2),
    "several": lambda s, x: s.diags_array([x, x[1:] ** 2, x[:3]], offsets=[0, -1, 2]),
    "of a shape": lambda s, x: s.diags_array([x[:4], x[:3]], offsets=[1, -1], shape=(4, 7)),
    "of numbers": lambda s, x: s.diags_array([x[:1], x[1:2]], offsets=[0, -1], shape=(4, 3)),
}


@in_short("name", DIAGONALS, "several", "of numbers")
def test_diagonals(name):
    check(lambda s, x: DIAGONALS[name](s, x).toarray(), V)


@pytest.mark.parametrize(
    "ambiguous",
    [
        lambda a, x: (a * x[0]) * x,
        lambda a, x: x[:4] * (a + x[0] * a),
        lambda a, x: (a.T * x[0]).sum(axis=0),
    ],
)
def test_what_differs_between_matrices_and_arrays_is_refused(ambiguous):
    matrix = scipy.sparse.csr_matrix(DENSE)
    with pytest.raises(TypeError, match=r"^(\*|sum.*) is not the same for SciPy's.*csr_array"):
        dg.grad(dg.delayed(lambda x: np.sum(ambiguous(matrix, x))))(V)
    made = sparse.csr_array(matrix) * 2.0
    assert_allclose((made * V).toarray(), 2.0 * DENSE * V)


@pytest.mark.parametrize("name", ["csr_matrix", "csr_array"])
def test_stars(name):
    """A product of matrices with SciPy's matrices, and entry by entry with arrays."""
    matrix = getattr(scipy.sparse, name)(DENSE)
    check_against_scipy(lambda x: (matrix * x).sum(), lambda x: np.sum(matrix * x), V)
    check_against_scipy(
        lambda x: (2.0 * (x[0] * matrix)) @ x + (matrix * x[1]) @ X[:, 0],
        lambda x: 2.0 * x[0] * (DENSE @ x) + x[1] * (DENSE @ X[:, 0]),
        V,
    )


def test_complex_matrices_and_operators():
    matrix = scipy.sparse.csr_array(DENSE * (1.0 + 0.5j))
    fun = lambda x: np.abs(matrix @ x) ** 2  # noqa: E731
    check_against_scipy(fun, fun, V)
    operator = scipy.sparse.linalg.aslinearoperator(scipy.sparse.csr_array(DENSE))
    check_against_scipy(lambda x: sparse.matmul(operator, x), lambda x: operator @ x, X)
    check_against_scipy(lambda x: sparse.matmul(operator.T, x), lambda x: operator.T @ x, V[:4])


# ----------------------------------------------------------------------------- traced entries

ROWS, COLUMNS = np.nonzero(DENSE)
ENTRIES = DENSE[ROWS, COLUMNS]
INDPTR = scipy.sparse.csr_array(DENSE).indptr
TURNED = scipy.sparse.csc_array(DENSE)
MADE = {
    "coo": lambda s, d: s.coo_array((d, (ROWS, COLUMNS)), shape=(4, 5)),
    "csr": lambda s, d: s.csr_array((d, COLUMNS, INDPTR), shape=(4, 5)),
    "csr of places": lambda s, d: s.csr_array((d, (ROWS, COLUMNS)), shape=(4, 5)),
    "csc": lambda s, d: s.csc_array((d, TURNED.indices, TURNED.indptr), shape=(4, 5)),
    "twice": lambda s, d: s.coo_array(
        (np.concatenate([d, d**2]), (np.tile(ROWS, 2), np.tile(COLUMNS, 2))), (4, 5)
    ),
    "no shape": lambda s, d: s.csr_array((d, COLUMNS, INDPTR)),
}
USES = {
    "A @ x": lambda s, a, d: a @ (V * d[0]),
    "A @ X": lambda s, a, d: a @ (X * d[0]),
    "x @ A": lambda s, a, d: d[:4] @ a,
    "X @ A": lambda s, a, d: np.outer(V, d[:4]) @ a,
    "array @ A": lambda s, a, d: V[:4] @ a,
    "A.T.dot(x)": lambda s, a, d: a.T.dot(d[:4]),
    "A.toarray()": lambda s, a, d: a.toarray(),
    "A.tocsc()": lambda s, a, d: a.tocsc().tocsr().tocoo() @ d[:5],
    "A.diagonal()": lambda s, a, d: a.diagonal(),
    "above the diagonal": lambda s, a, d: a.diagonal(1),
    "below the diagonal": lambda s, a, d: a.diagonal(-2),
    "A * number": lambda s, a, d: (3.0 * a * d[1] / d[2]).toarray(),
    "A * row": lambda s, a, d: (a * d[:5]).toarray(),
    "A * column": lambda s, a, d: (a * d[:4].reshape(4, 1)).toarray(),
    "A.multiply": lambda s, a, d: a.multiply(np.outer(d[:4], V)).toarray(),
    "A + B": lambda s, a, d: (a + s.csr_array(TURNED) - a * 0.5).toarray(),
    "B - A": lambda s, a, d: (TURNED - a).toarray() + (TURNED + -a).toarray(),
    "sums": lambda s, a, d: a.sum(axis=0) + a.sum(axis=1)[0] + a.sum() + np.sum(a),
}
PAIRS = [(made, use) for made in MADE for use in USES]


@in_short(("made", "use"), PAIRS, *[("csr", use) for use in USES], ("csc", "A @ x"))
def test_arrays_of_traced_entries(made, use):
    check(lambda s, d: USES[use](s, MADE[made](s, d), d), ENTRIES)


@pytest.mark.parametrize("x", [X, V])
def test_the_products_at_places(x):
    """They are the gradients of entries, which only third orders differentiate."""
    places = Pattern(np.array([0, 4, 2, 2]), np.array([1, 0, 3, 3]), (5, 4))
    fun = lambda x: sampled(x, x[1:] ** 2, places)  # noqa: E731
    check_against_scipy(fun, lambda x: (x @ x[1:].T ** 2)[places[:2]] if x.ndim > 1 else fun(x), x)


def test_entries_have_no_derivative_where_they_are_plain_numbers():
    model = dg.delayed(lambda d: np.sum(dg.value(MADE["csr"](sparse, d)) @ V) + d[0])
    assert_array_equal(dg.grad(model)(ENTRIES), np.arange(len(ENTRIES)) == 0)
    with pytest.raises(TypeError, match="SparseArray"):
        dg.grad(dg.delayed(lambda d: MADE["csr"](sparse, d)))(ENTRIES)


def test_the_cost_is_that_of_the_entries():
    size = 200_000
    places = np.arange(size)

    def model(d, x):
        a = sparse.csr_array((d, places, np.arange(size + 1)), (size, size))
        return np.sum((sparse.linalg.spsolve(a, a @ x + a.T @ x)) ** 2)

    d, x = 1.0 + random.random(size), random.random(size)
    for_d, for_x = dg.grad(dg.delayed(model), (0, 1))(d, x)
    assert_allclose(for_d, 0.0, atol=1e-12)
    assert_allclose(for_x, 8.0 * x)


# --------------------------------------------------------------------------------- solutions

PLACES = [(0, 0), (1, 1), (2, 2), (3, 3), (0, 1), (2, 0), (3, 1), (1, 3)]
AT = tuple(np.transpose(PLACES))
SQUARE = np.array([3.0, -2.5, 4.0, 3.5, 1.0, -0.7, 0.4, 0.9])
B = random.normal(size=(4, 2))


def matrix_of(s, d):
    return s.csc_array((d, AT), shape=(4, 4))


scipys = scipy.sparse.linalg.spsolve
RHS = B[:, 0]
SOLUTIONS = {
    "of entries": lambda d: (d, RHS),
    "of a matrix on the right": lambda d: (d, B),
    "of one column": lambda d: (d, B[:, :1]),
    "of both": lambda d: (d, B * d[:4, None] ** 2),
    "of complex entries": lambda d: (d * (1.0 + 0.3j), RHS),
    "of a complex right side": lambda d: (d, RHS * (1.0 + 0.3j)),
}


@in_short("name", SOLUTIONS, "of both", "of complex entries", "of a complex right side")
def test_solutions(name):
    def fun(s, solve):
        def real_part(d):
            data, b = SOLUTIONS[name](d)
            return np.real(solve(matrix_of(s, data), b) * (1.0 - 0.5j * ("complex" in name)))

        return real_part

    check_against_scipy(fun(sparse, sparse.linalg.spsolve), fun(scipy.sparse, scipys), SQUARE)


@in_short("trans", "NTH", "H")
def test_factors(trans):
    def fun(s, linalg, turned):
        return lambda d: np.real(
            turned * linalg.splu(matrix_of(s, d * turned)).solve(d[:4] * turned, trans)
        )

    check_against_scipy(
        fun(sparse, sparse.linalg, 1.0 + 0.3j),
        fun(scipy.sparse, scipy.sparse.linalg, 1.0 + 0.3j),
        SQUARE,
    )


def test_constant_matrices_are_solved_with():
    constant = scipy.sparse.csr_matrix(matrix_of(scipy.sparse, SQUARE))
    solve = sparse.linalg.factorized(constant)
    check_against_scipy(solve, lambda b: scipys(constant.tocsc(), b), B)
    combined = lambda b: sparse.linalg.spsolve(b[0] * constant + b[1] * constant.T, B[:, 0])  # noqa: E731
    expected = lambda b: scipys((b[0] * constant + b[1] * constant.T).tocsc(), B[:, 0])  # noqa: E731
    check_against_scipy(combined, expected, np.array([1.3, 0.4]))


def test_a_matrix_is_factorized_once(monkeypatch):
    calls, splu = [], scipy.sparse.linalg.splu

    def counted(*args, **kwargs):
        calls.append(args)
        return splu(*args, **kwargs)

    monkeypatch.setattr(scipy.sparse.linalg, "splu", counted)
    model = dg.delayed(lambda d: sparse.linalg.spsolve(matrix_of(sparse, d), B), keep="tape")
    _, pullback = dg.vjp(model, SQUARE)
    pullback(B), pullback(2.0 * B)
    assert len(calls) == 1
    dg.jvp(model, (SQUARE,), (SQUARE,))
    assert len(calls) == 2
    outputs, tape = trace(lambda d: [sparse.linalg.spsolve(matrix_of(sparse, d), B)], [SQUARE])
    TapePickler(stream := io.BytesIO()).dump(tape)
    again = pickle.loads(stream.getvalue())  # a pullback that moves has no factors
    assert_array_equal(again.pull(outputs)[0], tape.pull(outputs)[0])
    assert len(calls) == 4


REFUSED = {
    "SparseArray.*no array": lambda a: np.asarray(a),
    "no @ of two sparse": lambda a: a @ a.T,
    "do not fit": lambda a: a @ np.ones(3),
    r"cannot be broadcast to \(4, 5\)": lambda a: a * np.ones(4),
    r"takes a sparse matrix, not ndarray": lambda a: a + np.ones((4, 5)),
    "are added": lambda a: a + a.T,
    "must be None, 0 or 1": lambda a: a.sum(axis=2),
    "no dtype=": lambda a: np.sum(a, dtype=float),
    r"takes \(data, \(rows": lambda a: sparse.coo_array(DENSE),
    r"takes \(data, indices": lambda a: sparse.csr_array(DENSE),
    "that of the matrix": lambda a: sparse.csr_array(a, (5, 5)),
    "vectors of one length": lambda a: sparse.coo_array((V, ([0], [1]))),
    "from 0 to 7.*within": lambda a: sparse.coo_array((V[:2], ([0, 7], [1, 1])), (4, 5)),
    "places are integers, not float64": lambda a: sparse.coo_array((V, (V, V))),
    "indptr must grow from 0 to 5": lambda a: sparse.csr_array((V, np.arange(5), [0, 3])),
    "tells of 1 lines": lambda a: sparse.csc_array((V, np.arange(5), [0, 5]), (5, 5)),
    "1 diagonals have 2 offsets": lambda a: sparse.diags_array([V], offsets=[0, 1]),
    "it must have 4": lambda a: sparse.diags_array([V, V], offsets=[0, 1]),
    r"\(4, 5\); it must be square": lambda a: sparse.linalg.spsolve(a, V),
    "cannot be solved with": lambda a: sparse.linalg.splu(scipy.sparse.csc_array((4, 4))),
    r"shape \(5,\), the matrix \(4, 4\)": lambda a: sparse.linalg.spsolve(square(), V),
    "trans is 'C'": lambda a: sparse.linalg.splu(square()).solve(V[:4], "C"),
    "sparse matrix or a LinearOperator, not ndarray": lambda a: sparse.matmul(DENSE, V),
    r"no 'power'.*A\.toarray\(\)": lambda a: a.power(2),
    r"splu has no 'U'.*slogdet\(A\.toarray\(\)\)": lambda a: sparse.linalg.splu(square()).U,
    "right-hand side is sparse": lambda a: sparse.linalg.spsolve(square(), a),
}


def square():
    return matrix_of(sparse, SQUARE)


@pytest.mark.parametrize("message", REFUSED)
def test_errors(message):
    kinds = (ValueError, TypeError, NotImplementedError, AttributeError, np.linalg.LinAlgError)
    with pytest.raises(kinds, match=message):
        REFUSED[message](MADE["csr"](sparse, ENTRIES))


MATRIX = scipy.sparse.csr_array(DENSE)
OPERATOR = scipy.sparse.linalg.aslinearoperator(MATRIX)
ASKED = {
    "multiply": lambda x: MATRIX.multiply(x).sum(),
    "dot of a coo_array": lambda x: MATRIX.tocoo().dot(x),
    "quotient": lambda x: MATRIX / x,
    "comparison": lambda x: (MATRIX < x).sum(),
    "operator": lambda x: OPERATOR @ x,
    "operator's other side": lambda x: x[:4] @ OPERATOR,
    "solution": lambda x: scipy.sparse.linalg.spsolve(MATRIX[:, :4].tocsc(), x[:4]),
    "a diagonal": lambda x: scipy.sparse.dia_array((x[None], [0]), shape=(5, 5)) @ V,
    "entries": lambda x: scipy.sparse.coo_array((x, (np.arange(5), np.arange(5)))) @ V,
}


ADVICE = r"no traced array.*A @ x or A \* x.*matmul\(A, x\)"


@pytest.mark.parametrize("name", ASKED)
def test_where_scipy_asks_nobody_the_error_says_what_to_write(name):
    with pytest.raises(TypeError, match=ADVICE):
        dg.grad(dg.delayed(lambda x: np.sum(ASKED[name](x))))(V)


def test_an_operator_of_traced_values_is_differentiated_or_refused():
    """By what SciPy does with what ``matvec`` returns: since 1.18 it passes it on."""

    def product(x):
        scale = scipy.sparse.linalg.LinearOperator((5, 5), matvec=lambda v: v * x)
        return np.sum(sparse.matmul(scale, V))

    gradient = dg.grad(dg.delayed(product))
    if tuple(map(int, scipy.__version__.split(".")[:2])) >= (1, 18):
        assert_array_equal(gradient(X[:, 0]), V)
    else:
        with pytest.raises(TypeError, match=ADVICE):
            gradient(X[:, 0])


def test_arrays_of_boxes_are_as_ever():
    """NumPy finds a box's method that makes an array for SciPy's sparse matrices alone."""

    def model(x):
        with pytest.raises(AttributeError):
            x.__array__  # noqa: B018
        assert np.array([x, x]).shape == (2, 5)
        return np.sum(np.array([x[0], x[1]]) ** 2)

    assert_allclose(dg.grad(dg.delayed(model))(V), np.where(np.arange(5) < 2, 2.0 * V, 0.0))


def test_a_tape_counts_what_its_matrices_hold():
    matrix = scipy.sparse.csr_array(random.normal(size=(30, 30)))
    _, tape = trace(lambda x: [matrix @ x], [np.ones(30)])
    held = sum([array.nbytes for array in tape.held_arrays()])
    assert held >= matrix.data.nbytes + matrix.indices.nbytes + matrix.indptr.nbytes


@pytest.mark.parametrize("shape", [(1, 1), (1, 3), (3, 1)])
def test_matrices_of_one_row_have_products_with_an_axis(shape):
    """SciPy's of a coo_array is a number."""
    data = np.arange(1.0, 1.0 + np.size(np.ones(shape)))
    expected = np.reshape(data, shape) @ np.ones(shape[1])
    for make in (sparse.csr_array, sparse.csc_array, sparse.coo_array):
        fun = lambda d, make=make: make((d, np.nonzero(np.ones(shape))), shape) @ np.ones(shape[1])  # noqa: E731
        check_against_scipy(fun, lambda d: np.reshape(d, shape) @ np.ones(shape[1]), data)
        assert fun(data).shape == expected.shape
    constant = scipy.sparse.coo_array(np.reshape(data, shape))
    fun = lambda x: np.sum((constant @ x) ** 2)  # noqa: E731
    check_against_scipy(fun, fun, np.ones(shape[1]))
