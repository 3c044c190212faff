"""NumPy's private kernels, which programs call, are there and do what NumPy's functions do."""

import itertools
import pickle

import autograd.numpy as anp
import numpy as np
import pytest
import scipy.special
import test_odd_numbers
from recorded import program_of

import daskgrad as dg
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
    assert kernels.matrices is not None
    assert kernels.transforms is not None


def outcome(fun, array):
    """What a function returns, with bits and strides, or its error."""
    try:
        found = fun(array)
    except np.linalg.LinAlgError as error:
        return str(error)
    return found.tobytes(), found.shape, found.strides


@pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning")
@pytest.mark.parametrize("private", [kernels.matrices, None])
def test_values_and_errors_are_numpys(private, monkeypatch):
    monkeypatch.setattr(kernels, "matrices", private)
    for pair, matrix in itertools.product(PAIRS, MATRICES):
        assert outcome(pair[0], matrix) == outcome(pair[1], matrix)


def test_without_numpys_kernels_its_transforms_are_called(monkeypatch):
    monkeypatch.setattr(kernels, "transforms", None)
    test_odd_numbers.test_the_bits_are_those_of_the_tape("a filter", "d")


ROWS = np.random.default_rng(2).standard_normal((4, 9))
LAYOUTS = {
    "C order": ROWS,
    "Fortran order": np.asfortranarray(ROWS),
    "every second column": ROWS[:, ::2],
    "reversed": ROWS[::-1],
    "one row": ROWS[:1],
    "integers": np.arange(12).reshape(3, 4),
    "float32": ROWS.astype(np.float32),
}
NUMBERS = [np.array(n, np.intp) for n in ([2, 0, -1, 0], [2], [])] + [np.array([1, -2], np.int8)]


@pytest.mark.parametrize("large", [0, np.inf])
def test_columns_are_in_the_order_of_memory_of_numpys(monkeypatch, large):
    monkeypatch.setattr(kernels, "LARGE", large)
    parts = (slice(None), slice(1, None), slice(None, None, -1))
    for matrix, rows, numbers in itertools.product(LAYOUTS.values(), parts, NUMBERS):
        found, expected = kernels.columns(matrix, rows, numbers), matrix[rows, numbers]
        assert found.tobytes("A") == expected.tobytes("A")
        assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
        assert found.flags.f_contiguous == expected.flags.f_contiguous
        assert found.flags.c_contiguous == expected.flags.c_contiguous
        assert not np.shares_memory(found, matrix)
    with pytest.raises(IndexError, match="index 9 is out of bounds for axis 1 with size 9"):
        kernels.columns(ROWS, slice(None), np.array([9]))


@pytest.mark.parametrize("asked", [True, False])
def test_a_program_selects_columns_so_with_the_bits_of_the_tape(monkeypatch, asked):
    monkeypatch.setattr(kernels, "LARGE", 0)

    def model(W, S, x):
        return [anp.sum(x * W[:, S] ** 2)]

    leaves = [ROWS, np.array([3, 0, 3]), ROWS[:, :1]]
    program = program_of(model, leaves, [0, 2], [0] if asked else [])
    assert "columns" in program.source.text
    by_program, by_tape = (
        dg.value_and_grad(dg.delayed(lambda *xs: model(*xs)[0], compile=how), (0, 2), sparse=asked)
        for how in (True, False)
    )
    for _ in range(5):
        assert pickle.dumps(by_program(*leaves)) == pickle.dumps(by_tape(*leaves))


def test_floating_point_errors_are_raised_and_other_settings_stay():
    assert kernels.state is not None
    assert kernels.raising is not None
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
