"""NumPy's private kernels, which programs call, are there and do what NumPy's functions do."""

import itertools

import numpy as np
import pytest
import scipy.special

from daskgrad.autodiff.programs import kernels, special_calls
from daskgrad.autodiff.programs.signatures import are_same

RANDOM = np.random.default_rng(0)
MATRICES = [RANDOM.normal(size=(5, 5)), np.asfortranarray(RANDOM.normal(size=(3, 3)))]
MATRICES += [np.array([[4.0, 1.0], [entry, 3.0]]) for entry in (1.0, np.inf, np.nan)]
MATRICES += [np.array([[-2.0]]), np.zeros((0, 0)), np.zeros((2, 2))]
PAIRS = [  # what programs call, and NumPy's function
    (kernels.inverted, np.linalg.inv),
    (kernels.factor, np.linalg.cholesky),
    (lambda a: kernels.solved(a, np.ones(len(a))), lambda a: np.linalg.solve(a, np.ones(len(a)))),
    (lambda a: kernels.solved(a.T, a), lambda a: np.linalg.solve(a.T, a)),
]


def test_numpy_has_the_kernels():
    assert len(kernels.KERNELS) == 5


def outcome(fun, array):
    """What a function returns, with bits and strides, or its error."""
    try:
        found = fun(array)
    except np.linalg.LinAlgError as error:
        return str(error)
    return found.tobytes(), found.shape, found.strides


@pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning")
def test_values_and_errors_are_numpys():
    for pair, matrix in itertools.product(PAIRS, MATRICES):
        assert outcome(pair[0], matrix) == outcome(pair[1], matrix)


def test_floating_point_errors_are_raised_and_other_settings_stay():
    tiny = np.array([1e-300])
    assert kernels.raise_errors(lambda: tiny * tiny, ()) == 0.0
    for wrong in (lambda: tiny / 0.0, lambda: np.log(-tiny), lambda: 1.0 / tiny / tiny):
        with pytest.raises(FloatingPointError):
            kernels.raise_errors(wrong, ())
    assert np.geterr()["divide"] == "warn"
    with np.errstate(under="raise"), pytest.raises(FloatingPointError, match="underflow"):
        kernels.raise_errors(lambda: tiny * tiny, ())


@pytest.mark.parametrize("axis", [None, 0, -1])
@pytest.mark.parametrize("keepdims", [False, True])
def test_the_logarithm_of_a_sum_has_scipys_bits(axis, keepdims):
    """Also of equal entries, and of numbers that are not finite."""
    random = np.random.default_rng(3)
    for number in range(200):
        a = random.normal(size=tuple(random.integers(1, 5, number % 3 + 1)))
        a = np.round(a, number % 2)
        if number % 5 == 0:
            a[random.random(a.shape) < 0.3] = [np.inf, -np.inf, np.nan][number % 3]
        with np.errstate(all="ignore"):
            result = special_calls.logsumexp(a, axis, keepdims)
            expected = scipy.special.logsumexp(a, axis=axis, keepdims=keepdims)
        assert type(result) is type(expected)
        assert are_same([result], [expected])
