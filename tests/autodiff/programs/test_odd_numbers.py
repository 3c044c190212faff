"""Programs that were written at ordinary numbers, at zeros, equal entries, infinities and NaNs."""

import autograd.numpy as anp
import autograd.scipy.special as special
import autograd.scipy.stats as stats
import numpy as np
import pytest
from numpy.testing import assert_array_equal
from recorded import program_of

import daskgrad as dg
from daskgrad.autodiff.programs.signatures import are_same
from daskgrad.autodiff.rules.declaration import Diverged
from daskgrad.autodiff.tape.reverse import trace

ORDINARY = np.array([[0.3, -1.2, 0.9], [1.7, 0.4, -0.6], [-0.2, 1.1, 2.3], [0.8, -0.7, 0.1]])
ERRORS = (NotImplementedError, TypeError, np.linalg.LinAlgError)  # of singular matrices
PLACES = [(0, 0), (1, 2), (3, 1)]
NUMBERS = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 1e300]

COUNTS = np.arange(12).reshape(4, 3) % 5
WAVES = np.exp(1j * np.linspace(0.0, 5.0, 12)).reshape(4, 3)

MODELS = {
    "max": lambda x: np.max(x, axis=0) * np.max(x),
    "min": lambda x: np.min(x, axis=1, keepdims=True) * x,
    "var": lambda x: np.var(x, axis=1) + np.var(x, ddof=1),
    "std": lambda x: np.std(x, axis=0) * np.std(x[0]),
    "std of one": lambda x: 1.0 - np.std(x[:1], axis=0) * x - np.std(x[:1], axis=0),
    "prod": lambda x: np.prod(x, axis=1) * np.prod(x[:2]),
    "mean": lambda x: np.mean(x, axis=0) / np.mean(x),
    "norm": lambda x: np.linalg.norm(x) * np.linalg.norm(x[1]),
    "logsumexp": lambda x: special.logsumexp(x, axis=1) + special.logsumexp(x),
    "logpdf": lambda x: stats.norm.logpdf(x[0], x[1], x[2]) + stats.norm.logpdf(x[3], x[0, 0], 2.0),
    "clip": lambda x: np.clip(x, -1.0, 1.0) + np.clip(x, 0, 1) + np.clip(x, 1.0, -1.0),
    "where": lambda x: np.where(x > 0.0, x, x**2) / x,
    "maximum": lambda x: np.maximum(x, 0.0) * np.minimum(x, x[::-1]),
    "abs": lambda x: np.abs(x) ** 3 + x**2 + x**0.5 + x**-1,
    "sort": lambda x: np.sort(x[:, 0]) * x[:, 1],
    "cumsum": lambda x: np.cumsum(x[0]) * np.cumsum(x[:, 1])[:3],
    "diff": lambda x: np.diff(x[:, 0]) * x[0],
    "roll": lambda x: np.roll(x[0], 1) * np.roll(x[1], -5),
    "roll along axes": lambda x: (
        np.roll(x, 1, 0) * np.roll(x, -1, 1) + np.roll(x, 2, axis=-1) * np.roll(x, 7, axis=0)
    ),
    "roll by nothing": lambda x: np.roll(x, 0, 1) * np.roll(x, x.shape[0], 0),
    "diag": lambda x: np.diag(x) * np.diag(x[:2]).sum(),
    "outer": lambda x: np.outer(x[0], x[:, 1]),
    "trace": lambda x: np.trace(x) * x,
    "einsum": lambda x: np.einsum("ij,kj->ik", x, x) @ x,
    "solve": lambda x: np.linalg.solve(x[:3] + 5.0 * np.eye(3), x[3]),
    "inv": lambda x: np.linalg.inv(x[:3] + 5.0 * np.eye(3)),
    "det": lambda x: np.linalg.det(x[:3]) + np.linalg.slogdet(x[1:])[1],
    "slogdet": lambda x: np.linalg.slogdet(x[:3] * x[1])[1] * x[0],
    "both of slogdet": lambda x: (
        np.multiply(*np.linalg.slogdet(x[:3])) * np.linalg.slogdet(x[1:])[-1]
    ),
    "sums over two axes": lambda x: (
        np.sum(x * x, axis=(0, 1)) * np.mean(np.sin(x)[:, None] * x[0], axis=(0, -1))
    ),
    "sums over no axis": lambda x: np.sum(x, axis=()) * np.mean(x, axis=(-2, 1), keepdims=True),
    "products with counts": lambda x: np.dot(COUNTS, x[0]) * (COUNTS @ x.T)[:, 0] @ COUNTS,
    "vectors and counts": lambda x: (
        x[0] @ COUNTS[:3] * np.dot(COUNTS[0], x[1]) + np.sum(np.dot(x, COUNTS[1]))
    ),
    "logaddexp": lambda x: (
        np.logaddexp(0.0, x) + np.logaddexp(x[0], x[:, :1]) / np.logaddexp2(x, 1)
    ),
    "arctan2": lambda x: np.arctan2(x, x[0]) * np.arctan2(1.0, x) + np.arctan2(x[:, :1], 2),
    "cholesky": lambda x: np.linalg.cholesky(anp.dot(x.T, x) + np.eye(3)),
    "atleast": lambda x: np.atleast_2d(x[0]) * np.atleast_1d(x[1]),
    "a transform": lambda x: np.abs(np.fft.fft(x)) ** 2,
    "an inverse transform": lambda x: np.real(np.fft.ifft(x * WAVES)),
    "a filter": lambda x: np.real(np.fft.ifft(np.fft.fft(x) * WAVES)),
    "other transforms": lambda x: (
        np.abs(np.fft.fft(x, 6))[:, :3] * np.real(np.fft.fft(x, axis=0, norm="ortho"))
        + np.real(np.fft.fft2(x))
    ),
    "real and imaginary parts": lambda x: np.real(x * WAVES) * np.imag(WAVES * x),
    "complex arithmetic": lambda x: np.abs((x + WAVES) * (x * WAVES - x) + WAVES),
    "complex quotients and rows": lambda x: np.real(x[:1] * WAVES) + np.real(WAVES / x),
    "a complex exponential": lambda x: np.imag(np.exp(x * WAVES)),
    "a conjugate": lambda x: np.real(np.conj(x * WAVES) * (x + WAVES)),
    "sizes at zero": lambda x: np.abs((x - x) * WAVES) + np.abs(x * WAVES),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dtype", ["d", "f", ">f8"])
@pytest.mark.parametrize("name", MODELS)
def test_the_bits_are_those_of_the_tape(name, dtype):
    def fun(x):
        return [MODELS[name](x)]

    ordinary = ORDINARY.astype(dtype)
    program = program_of(fun, [ordinary], [0])
    found = [outcome_of_program, outcome_of_tape]
    with np.errstate(all="ignore"):
        for number in NUMBERS:
            for count in range(len(PLACES) + 1):
                x = ordinary.copy()
                x[tuple(zip(*PLACES[:count], strict=True))] = number
                mine, right = [outcome(fun, program, x) for outcome in found]
                assert are_same(mine, right), (number, count)


def outcome_of_program(fun, program, x):
    """The value and the cotangent; those of the tape where a program is not used."""
    try:
        outputs, residuals = program.forward(x)
        return [*outputs, *program.pull_examples(residuals)]
    except (Diverged, *ERRORS):
        return outcome_of_tape(fun, program, x)


def outcome_of_tape(fun, program, x):
    try:
        outputs, tape = trace(fun, [x])
        return [*outputs, *tape.pull(program.examples)]
    except ERRORS:
        return []


def test_a_determinant_that_becomes_zero_is_the_tapes_error():
    gradient = dg.grad(dg.delayed(lambda x: np.linalg.slogdet(x)[1], compile=True))
    for _ in range(12):
        assert_array_equal(gradient(np.diag([2.0, 4.0])), np.diag([0.5, 0.25]))
    with pytest.raises(NotImplementedError, match=r"np\.linalg\.slogdet has no derivative rule"):
        gradient(np.ones((2, 2)))
