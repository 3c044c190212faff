"""``daskgrad.scipy``: SciPy's values; derivatives in both modes and of second order."""

import autograd.scipy.linalg
import mpmath as mp
import numpy as np
import pytest
import scipy.linalg
import scipy.special
from functions_checked import check_against_scipy, checking

import daskgrad as dg
from daskgrad.scipy import linalg, special

random = np.random.default_rng(3)
M = random.normal(size=(4, 4))
SPD = M @ M.T + np.eye(4)
B, V, W = random.normal(size=(4, 2)), random.normal(size=4), random.normal(size=(4, 4))
HPD = SPD + 0.1j * (np.triu(np.ones((4, 4)), 1) - np.tril(np.ones((4, 4)), -1))


def positive(m):
    return m @ m.T + np.eye(4)


# Of the module, either ours or SciPy's, and a matrix.
LINALG = {
    "expm": lambda la, m: la.expm(m),
    "expm of a stack": lambda la, m: la.expm(np.stack([m, -m])),
    "sqrtm": lambda la, m: la.sqrtm(positive(m)),
    "solve": lambda la, m: la.solve(m, B),
    "solve in both": lambda la, m: la.solve(m, m[:, 0] ** 2),
    "solve transposed": lambda la, m: la.solve(m, V, transposed=True),
    "solve symmetric": lambda la, m: la.solve(m, B, assume_a="sym"),
    "solve symmetric, lower": lambda la, m: la.solve(m, B, lower=True, assume_a="sym"),
    "solve positive": lambda la, m: la.solve(positive(m), B, assume_a="pos"),
    "cho_solve": lambda la, m: la.cho_solve(la.cho_factor(positive(m)), B),
    "cho_solve, lower": lambda la, m: la.cho_solve(la.cho_factor(positive(m), lower=True), m),
    "lu_factor": lambda la, m: la.lu_factor(m)[0],
    "lu_solve": lambda la, m: la.lu_solve(la.lu_factor(m), B),
    "lu_solve transposed": lambda la, m: la.lu_solve(la.lu_factor(m), m[0], trans=1),
    "block_diag": lambda la, m: la.block_diag(m[:2, :3], m[2], m[0, 0], W),
    "toeplitz": lambda la, m: la.toeplitz(m[0], m[:3, 1]),
    "toeplitz of a column": lambda la, m: la.toeplitz(m[0]),
    "solve_sylvester": lambda la, m: la.solve_sylvester(m, W, m),
    "solve_triangular": lambda la, m: la.solve_triangular(m, B, lower=True),
    "solve_banded": lambda la, m: la.solve_banded((1, 1), m[:3] + 5.0, V),
}
SPECIAL = {
    "logsumexp": lambda sc, m: sc.logsumexp(m, axis=0),
    "logsumexp of all": lambda sc, m: sc.logsumexp(m, keepdims=True),
    "logsumexp with weights": lambda sc, m: sc.logsumexp(m, axis=1, b=np.abs(W)),
    "logsumexp with signs": lambda sc, m: sc.logsumexp(m, axis=(0, 1), b=W, return_sign=True)[0],
    "logsumexp of weights": lambda sc, m: sc.logsumexp(W, b=m, return_sign=True)[0],
    "softmax": lambda sc, m: sc.softmax(m, axis=1),
    "softmax of all": lambda sc, m: sc.softmax(100.0 * m),
    "log_softmax": lambda sc, m: sc.log_softmax(m, axis=(0, 1)),
    "multigammaln": lambda sc, m: sc.multigammaln(m[0] ** 2 + 5.0, 3),
    "multigammaln of a number": lambda sc, m: sc.multigammaln(m[0, 0] ** 2 + 5.0, 2),
}


@pytest.mark.parametrize("name", LINALG)
def test_linear_algebra(name):
    checking(linalg, scipy.linalg)(LINALG[name], M)


@pytest.mark.parametrize("dtype", [np.float32, np.complex64, int])
def test_a_matrix_of_blocks_has_their_precision(dtype):
    m = (10.0 * M).astype(dtype)
    ours, theirs = [la.block_diag(m[:2], m[2]) for la in (linalg, scipy.linalg)]
    assert ours.dtype == theirs.dtype


@pytest.mark.parametrize("name", SPECIAL)
def test_special_functions_of_arrays(name):
    checking(special, scipy.special)(SPECIAL[name], M)


TURNED = M + 1j * W
SQUARE = np.array([[1.1, 0.4], [0.7, 1.3]])
ENDS = np.array([1.0, 0.0, 2.0, 1.0])


def complex_sign(sc, m):
    sign = sc.logsumexp(m[0] + 1j * m[1], b=W[0] + 0.5j, return_sign=True)[1]
    return np.stack([np.real(sign), np.imag(sign)])


OTHERS = {  # of the module and an array, the array, and whether it is for special functions
    **{
        f"{name} of a complex matrix": (
            lambda la, m, fun=LINALG[name]: np.real(fun(la, m * TURNED) * (1.0 - 0.5j)),
            SPD,
        )
        for name in ("expm", "lu_factor", "lu_solve", "solve")
    },
    **{
        f"the diagonal, {kind}": (  # SciPy does not read the imaginary parts
            lambda la, m, kind=kind: np.real(la.solve(HPD + 1j * np.diag(m), B, assume_a=kind)),
            np.array([0.0, 0.3, -0.2, 0.1]),
        )
        for kind in ("her", "pos")
    },
    "a complex root of a real matrix": (
        lambda la, m: np.real(la.sqrtm(m * np.array([[1.0, 0.3], [0.5, -2.0]]))),
        SQUARE,
    ),
}
OTHER_SUMS = {
    "weights": (lambda sc, b: sc.logsumexp(W, axis=0, b=b), np.abs(M) + 0.5),
    "numbers that are the weights": (lambda sc, b: sc.logsumexp(b, axis=0, b=b), np.abs(M) + 0.5),
    "weights that are zero": (
        lambda sc, b: sc.logsumexp(V, b=b * ENDS + 1.0, axis=0),
        np.array([-1.0, 2, 1, -1]),
    ),
    **{
        f"what weighs nothing, {signed}": (
            lambda sc, a, signed=signed: np.sum(
                sc.logsumexp(a, b=np.arange(3.0), return_sign=signed)
            ),
            np.array([1000.0, 1.0, 2.0]),
        )
        for signed in (False, True)
    },
    "the sign of a complex sum": (complex_sign, M),
}


@pytest.mark.parametrize("name", [*OTHERS, *OTHER_SUMS])
def test_other_arguments(name):
    modules = (linalg, scipy.linalg) if name in OTHERS else (special, scipy.special)
    checking(*modules)(*{**OTHERS, **OTHER_SUMS}[name])


def test_signs_of_sums_and_sums_of_nothing_are_scipys():
    ours, theirs = (each.logsumexp(W, b=M, return_sign=True) for each in (special, scipy.special))
    np.testing.assert_allclose(ours, theirs)
    empty = np.full(3, -np.inf)
    assert special.logsumexp(empty) == special.logsumexp(empty, return_sign=True)[0] == -np.inf
    assert np.shape(special.softmax(0.3)) == np.shape(special.log_softmax(np.array(0.3))) == ()


@pytest.mark.parametrize("size", [1e-8, 1.0, 30.0, 700.0])
def test_softplus_has_its_digits_and_so_has_its_slope(size):
    x = size * np.linspace(-1.0, 1.0, 41)
    slopes = dg.grad(lambda x: dg.delayed(lambda x: np.sum(special.softplus(x)))(x))(x)
    with mp.workdps(400):
        exact = [(mp.log1p(mp.exp(y)), 1 / (1 + mp.exp(-y))) for y in map(mp.mpf, x)]
    values, derivatives = np.array(exact, dtype=float).T
    np.testing.assert_allclose(special.softplus(x), values, rtol=1e-15)
    np.testing.assert_allclose(slopes, derivatives, rtol=2e-15)
    limits = np.array([-np.inf, np.inf, np.nan])
    np.testing.assert_array_equal(special.softplus(limits), [0.0, np.inf, np.nan])


def test_what_is_refused():
    with pytest.raises(ValueError, match=r"assume_a='banded'.*leave it out"):
        dg.grad(dg.delayed(lambda m: np.sum(linalg.solve(m, B, assume_a="banded"))))(M)
    outside = np.array([0.5, 3.0])
    with pytest.raises(ValueError, match="a"):
        scipy.special.multigammaln(outside, 3)
    with pytest.raises(ValueError, match=r"multigammaln takes numbers a > \(d - 1\) / 2 = 1\.0"):
        special.multigammaln(outside, 3)


def test_rows_are_exchanged_once():
    """The factors are of the rows in the order of SciPy's pivots."""
    shuffled = M[[2, 0, 3, 1]]
    lu, pivots = linalg.lu_factor(shuffled)
    expected, theirs = scipy.linalg.lu_factor(shuffled)
    np.testing.assert_allclose(lu, expected, rtol=1e-12)
    np.testing.assert_array_equal(pivots, theirs)


TURN = np.array([[0.3, 2.0], [-2.0, 0.1]])  # its eigenvalues are complex
MIXED = {"a": (TURN, V[:2] + 1j, V), "b": (1j * TURN + 1.0, TURN, V), "q": (TURN, SPD, V + 1j)}


@pytest.mark.parametrize("name", MIXED)
def test_equations_of_sylvesters_with_real_and_complex_matrices(name):
    """SciPy solves others than these."""
    a, b, q = MIXED[name]
    b, q = (np.diag(b) if b.ndim == 1 else b[:2, :2]), np.outer(q[:2], V[2:])

    def solution(m):
        return linalg.solve_sylvester(a * m[0, 0], b, q * m[1])

    def solved(m):
        system = np.kron(a * m[0, 0], np.eye(2)) + np.kron(np.eye(2), b.T)
        return np.linalg.solve(system, np.ravel(q * m[1])).reshape(2, 2)

    def parts(fun):
        return lambda m: np.concatenate([np.real(fun(m)), np.imag(fun(m))])

    check_against_scipy(parts(solution), parts(solved), SQUARE)
    fun = dg.delayed(lambda q: np.sum(np.real(autograd.scipy.linalg.solve_sylvester(a, b, q))))
    if name != "q":
        with pytest.raises(NotImplementedError, match="wrong in SciPy for real and complex"):
            dg.grad(fun)(np.real(q))


STACK = np.stack([SPD] * 4)
OF_STACKS = {  # autograd's rules of one matrix are wrong where a stack is as long
    "sqrtm": lambda la, m: la.sqrtm(m),
    "solve_triangular": lambda la, m: la.solve_triangular(m, SPD),
    "solve_sylvester": lambda la, m: la.solve_sylvester(SPD, SPD, m),
    "solve_banded": lambda la, m: la.solve_banded((1, 2), SPD, m),
}


@pytest.mark.parametrize("name", OF_STACKS)
@pytest.mark.parametrize("la", [linalg, autograd.scipy.linalg], ids=["ours", "autograd's"])
def test_stacks_are_refused(la, name):
    fun = dg.delayed(lambda m: np.sum(OF_STACKS[name](la, m)))
    with pytest.raises(NotImplementedError, match=rf"{name} .*for stacks; write np\.stack"):
        dg.grad(fun)(STACK)
    with pytest.raises(NotImplementedError, match=rf"{name} .*for stacks; write np\.stack"):
        dg.jvp(fun, (STACK,), (STACK,))


def test_the_root_of_a_singular_matrix_has_no_derivative():
    model = dg.delayed(lambda m: np.sum(linalg.sqrtm(m @ m.T)))
    singular = M[:, :3] @ M[:3]
    for call in (lambda: dg.grad(model)(singular), lambda: dg.jvp(model, (singular,), (M,))):
        with pytest.raises(NotImplementedError, match=r"sqrtm has no derivative.*singular up to"):
            call()
