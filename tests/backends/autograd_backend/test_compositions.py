"""Functions of plain NumPy that are composed, or take traced values by keyword."""

import numpy as np
import pytest
import sweep
from functions_linalg import RIGHT, TALL, WIDE, M
from functions_numpy import A, B, C, V, W
from sweep import Call, check, check_second, require_near

import daskgrad as dg

TALL3 = np.vstack([M, RIGHT.T])
CALLS = {
    "lstsq": (lambda a, b: np.linalg.lstsq(a, b)[0], TALL, V),
    "lstsq of columns": (lambda a, b: np.linalg.lstsq(a, b, rcond=None)[0], TALL, B.T),
    "lstsq, underdetermined": (lambda a, b: np.linalg.lstsq(a, b)[0], WIDE, V[:2].copy()),
    "lstsq, residuals": (lambda a, b: np.linalg.lstsq(a, b)[1], TALL, B.T),
    "lstsq, complex": (lambda a, b: list(np.linalg.lstsq(a, b)[:2]), TALL, C.T),
    "lstsq, singular values": (lambda a, b: np.linalg.lstsq(a, b)[3], TALL3, np.append(V, 0.3)),
    "lstsq, unpacked": (lambda a, b: unpacked(*np.linalg.lstsq(a, b)), TALL, V),
    "multi_dot of two": (lambda a, b: np.linalg.multi_dot([a, b]), A, B.T),
    "multi_dot": (lambda a, b: np.linalg.multi_dot([a, b, M, a]), A, B.T),
    "multi_dot of vectors": (lambda a, b: np.linalg.multi_dot([b, a.T, a, b]), A, V),
    "multi_dot of constants": (lambda a, b: np.linalg.multi_dot((A, a, M, b)), B.T, RIGHT),
    "matrix_rank": (lambda a, b: np.linalg.matrix_rank(a) * a + b, A, B),
    "average": (lambda a, b: np.average(a, weights=b), V, W),
    "average along an axis": (lambda a, b: np.average(a, axis=-1, weights=b), A, V),
    "average, returned": (lambda a, b: np.average(a, weights=b, returned=True), A, B),
    "cov": (lambda a, b: np.cov(a, y=b, ddof=0), V, W),
    "weights of cov": (lambda a, b: np.cov(a, aweights=b), A, W),
    "corrcoef": (lambda a, b: np.corrcoef(a, y=b), V, W),
    "quantile": (lambda a, b: np.quantile(a, q=b), V, np.float64(0.44)),
    "percentile": (lambda a, b: np.nanpercentile(a, q=b, axis=0), A, np.float64(41.0)),
}


def unpacked(x, residuals, rank, singular):
    return rank * x


@pytest.mark.parametrize("name", CALLS)
def test_both_modes_and_second_derivatives_are_right(name, monkeypatch):
    def within_rounding(found, expected, tolerance, what):
        require_near(found, expected, max(tolerance, 1e-14), what)

    monkeypatch.setattr(sweep, "require_near", within_rounding)  # NumPy's values have other bits
    fun, *arrays = CALLS[name]
    call = Call(name, fun, arrays, {})
    check(call, "d", np.random.default_rng(0))
    check_second(call, np.random.default_rng(0))


@pytest.mark.parametrize(
    "fun",
    [
        lambda x: np.sum(np.linalg.lstsq(x[:, None] * [1.0, 2.0], V)[0]),
        lambda x: np.sum(np.linalg.qr(x[:, None] * [1.0, 2.0])[0]),
    ],
    ids=["lstsq", "qr"],
)
def test_matrices_without_full_rank_are_refused(fun):
    with pytest.raises(NotImplementedError, match="no derivative rule for a matrix a"):
        dg.grad(dg.delayed(fun))(W)


def test_multi_dot_takes_the_order_with_the_fewest_multiplications():
    wide, tall = np.ones((2, 500)), np.ones((500, 2))
    product = dg.grad(dg.delayed(lambda x: np.sum(np.linalg.multi_dot([x, wide, tall]))))
    np.testing.assert_allclose(product(np.ones((500, 2))), 1000.0)


DEGENERATE = {
    "slogdet.*singular matrix a.*np.linalg.det": lambda x: np.linalg.slogdet(x * np.ones((3, 3)))[
        1
    ],
    "eigh.*eigenvectors.*equal eigenvalues": lambda x: np.sum(np.linalg.eigh(x * np.eye(3))[1]),
    "svd.*equal singular values": lambda x: np.linalg.svd(x * np.eye(3))[0][0, 0],
    "svd.*full_matrices=True": lambda x: np.sum(np.linalg.svd(x * TALL)[1]),
}


@pytest.mark.parametrize("told", DEGENERATE)
def test_what_has_no_derivative_at_a_matrix_is_refused(told):
    with pytest.raises(NotImplementedError, match=told):
        dg.grad(dg.delayed(DEGENERATE[told]))(2.0)


@pytest.mark.parametrize("name", ["eigh", "svd"])
def test_equal_values_have_a_derivative_where_their_vectors_are_not_used(name):
    def values(x):
        return getattr(np.linalg, name)(x)[1 if name == "svd" else 0]

    model = dg.delayed(lambda x: np.sum(values(x) ** 2))
    np.testing.assert_allclose(dg.grad(model)(np.eye(3)), 2.0 * np.eye(3), atol=1e-15)
    if name == "eigh":  # forward mode has the vectors of svd, too, which it refuses
        with pytest.warns(RuntimeWarning, match=r"eigenvectors have few right digits.*eigvalsh"):
            tangent = dg.jvp(model, (np.eye(3),), (np.eye(3),))[1]
        assert tangent == pytest.approx(6.0)
