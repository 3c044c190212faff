"""``daskgrad.scipy``: SciPy's values; derivatives in both modes and of second order."""

import autograd.scipy.linalg
import numpy as np
import pytest
import scipy.linalg
import scipy.special
from functions_checked import check_against_scipy

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
    fun = LINALG[name]
    check_against_scipy(lambda m: fun(linalg, m), lambda m: fun(scipy.linalg, m), M)


@pytest.mark.parametrize("dtype", [np.float32, np.complex64, int])
def test_a_matrix_of_blocks_has_their_precision(dtype):
    m = (10.0 * M).astype(dtype)
    ours, theirs = [la.block_diag(m[:2], m[2]) for la in (linalg, scipy.linalg)]
    assert ours.dtype == theirs.dtype


@pytest.mark.parametrize("name", SPECIAL)
def test_special_functions_of_arrays(name):
    fun = SPECIAL[name]
    check_against_scipy(lambda m: fun(special, m), lambda m: fun(scipy.special, m), M)


@pytest.mark.parametrize("name", ["expm", "lu_factor", "lu_solve", "solve"])
def test_complex_matrices(name):
    fun, turned = LINALG[name], M + 1j * W

    def part(la):
        return lambda m: np.real(fun(la, m * turned) * (1.0 - 0.5j))

    check_against_scipy(part(linalg), part(scipy.linalg), SPD)


def test_the_sign_of_a_sum_is_scipys():
    ours, theirs = (each.logsumexp(W, b=M, return_sign=True) for each in (special, scipy.special))
    np.testing.assert_allclose(ours, theirs)


def test_a_sum_of_nothing_has_its_logarithm():
    empty = np.full(3, -np.inf)
    assert special.logsumexp(empty) == -np.inf
    assert special.logsumexp(empty, return_sign=True)[0] == -np.inf


def test_structures_without_a_derivative_are_refused():
    with pytest.raises(ValueError, match=r"assume_a='banded'.*leave it out"):
        dg.grad(dg.delayed(lambda m: np.sum(linalg.solve(m, B, assume_a="banded"))))(M)


def test_rows_are_exchanged_once():
    """The factors are of the rows in the order of SciPy's pivots."""
    shuffled = M[[2, 0, 3, 1]]
    lu, pivots = linalg.lu_factor(shuffled)
    expected, theirs = scipy.linalg.lu_factor(shuffled)
    np.testing.assert_allclose(lu, expected, rtol=1e-12)
    np.testing.assert_array_equal(pivots, theirs)


@pytest.mark.parametrize("is_both", [False, True])
def test_weights_of_a_sum_are_differentiated(is_both):
    def given(module):
        return lambda b: module.logsumexp(b if is_both else W, axis=0, b=b)

    check_against_scipy(given(special), given(scipy.special), np.abs(M) + 0.5)


@pytest.mark.parametrize("is_signed", [False, True])
def test_what_weighs_nothing_does_not_overflow(is_signed):
    def given(module):
        b = np.array([0.0, 1.0, 2.0])
        return lambda a: np.sum(module.logsumexp(a, b=b, return_sign=is_signed))

    check_against_scipy(given(special), given(scipy.special), np.array([1000.0, 1.0, 2.0]))


@pytest.mark.parametrize("assume_a", ["her", "pos"])
def test_the_diagonal_of_a_hermitian_matrix_is_real(assume_a):
    """SciPy does not read the imaginary parts."""

    def part(la):
        return lambda m: np.real(la.solve(HPD + 1j * np.diag(m), B, assume_a=assume_a))

    check_against_scipy(part(linalg), part(scipy.linalg), np.array([0.0, 0.3, -0.2, 0.1]))


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

    check_against_scipy(parts(solution), parts(solved), np.array([[1.1, 0.4], [0.7, 1.3]]))
    fun = dg.delayed(lambda q: np.sum(np.real(autograd.scipy.linalg.solve_sylvester(a, b, q))))
    if name != "q":
        with pytest.raises(NotImplementedError, match="wrong in SciPy for real and complex"):
            dg.grad(fun)(np.real(q))


def test_complex_roots_of_real_matrices_have_second_derivatives():
    def root(la):
        return lambda m: np.real(la.sqrtm(m * np.array([[1.0, 0.3], [0.5, -2.0]])))

    check_against_scipy(root(linalg), root(scipy.linalg), np.array([[1.1, 0.4], [0.7, 1.3]]))


def test_weights_of_a_sum_have_derivatives_where_they_are_zero():
    def of_weights(sc):
        return lambda b: sc.logsumexp(V, b=b * np.array([1.0, 0.0, 2.0, 1.0]) + 1.0, axis=0)

    check_against_scipy(of_weights(special), of_weights(scipy.special), np.array([-1.0, 2, 1, -1]))


def test_the_sign_of_a_complex_sum_has_a_derivative():
    def parts(sc):
        def sign(m):
            found = sc.logsumexp(m[0] + 1j * m[1], b=W[0] + 0.5j, return_sign=True)[1]
            return np.stack([np.real(found), np.imag(found)])

        return sign

    check_against_scipy(parts(special), parts(scipy.special), M)


def test_numbers_outside_of_the_domain_are_errors_as_in_scipy():
    for sc in (special, scipy.special):
        with pytest.raises(ValueError, match="a"):
            sc.multigammaln(np.array([0.5, 3.0]), 3)
    with pytest.raises(ValueError, match=r"multigammaln takes numbers a > \(d - 1\) / 2 = 1\.0"):
        special.multigammaln(np.array([0.5, 3.0]), 3)


def test_softmax_of_a_number_is_a_number():
    assert np.shape(special.softmax(0.3)) == np.shape(special.log_softmax(np.array(0.3))) == ()


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
