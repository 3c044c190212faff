"""NumPy's private kernels, which programs call, are there and do what NumPy's functions do."""

import itertools
import pickle

import autograd.numpy as anp
import numpy as np
import pytest

import daskgrad as dg
from daskgrad.autodiff.programs import kernels
from daskgrad.autodiff.programs.ways import program_of

MATRICES = {
    "regular": np.random.default_rng(0).standard_normal((5, 5)),
    "positive": np.array([[4.0, 1.0], [1.0, 3.0]]),
    "in Fortran order": np.asfortranarray(np.random.default_rng(1).standard_normal((3, 3))),
    "a number": np.array([[-2.0]]),
    "empty": np.zeros((0, 0)),
    "infinite": np.array([[1.0, np.inf], [0.0, 1.0]]),
    "with a NaN": np.array([[1.0, np.nan], [0.0, 1.0]]),
    "singular": np.zeros((2, 2)),
}
PAIRS = {  # of matrices: what programs call, and NumPy's function
    "inv": (kernels.inverted, np.linalg.inv),
    "cholesky": (kernels.factor, np.linalg.cholesky),
    "solve of a vector": (
        lambda a: kernels.solved(a, np.arange(1.0, 1.0 + len(a))),
        lambda a: np.linalg.solve(a, np.arange(1.0, 1.0 + len(a))),
    ),
    "solve of a matrix": (
        lambda a: kernels.solved(a.T, a),
        lambda a: np.linalg.solve(a.T, a),
    ),
}


def test_numpy_has_the_kernels():
    assert kernels.matrices is not None
    assert kernels.transforms is not None
    assert kernels.einsum is not np.einsum
    assert kernels.clip is not np.clip


def outcome(fun, array):
    """The arrays that a function returns, with bits and strides, or its error."""
    try:
        found = fun(array)
    except np.linalg.LinAlgError as error:
        return str(error)
    parts = found if isinstance(found, tuple) else [found]
    return [(np.asarray(x).tobytes(), np.shape(x), np.asarray(x).strides) for x in parts]


@pytest.fixture(params=["with kernels", "without"])
def _kernels(request, monkeypatch):
    if request.param == "without":
        monkeypatch.setattr(kernels, "matrices", None)
        monkeypatch.setattr(kernels, "transforms", None)


@pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning")
@pytest.mark.parametrize("matrix", MATRICES.values(), ids=MATRICES)
@pytest.mark.parametrize("pair", PAIRS.values(), ids=PAIRS)
@pytest.mark.usefixtures("_kernels")
def test_values_have_numpys_bits(pair, matrix):
    kernel, numpys = pair
    assert outcome(kernel, matrix) == outcome(numpys, matrix)


@pytest.mark.parametrize("shape", [(8,), (7,), (1,), (3, 4), (2, 3, 5)], ids=str)
@pytest.mark.parametrize("is_complex", [False, True], ids=["real", "complex"])
@pytest.mark.usefixtures("_kernels")
def test_transforms_have_numpys_bits(shape, is_complex, random):
    array = random.standard_normal(shape) + 1j * random.standard_normal(shape)
    array = array if is_complex else array.real.copy()
    assert outcome(kernels.transform, array) == outcome(np.fft.fft, array)
    assert outcome(kernels.inverse_transform, array) == outcome(np.fft.ifft, array)


def test_bounds_and_contractions_have_numpys_bits(random):
    x = np.array([-2.0, -0.0, 0.0, 0.3, 7.0, np.nan, np.inf, -np.inf])
    for low, high in ((-0.5, 0.5), (0.0, 1.0), (-0.0, 0.0), (1.0, -1.0)):
        assert kernels.clip(x, low, high).tobytes() == np.clip(x, low, high).tobytes()
    a, b = random.standard_normal((2, 3, 4)), random.standard_normal((2, 5, 4))
    for subscripts in ("ijk,ilk->ijl", "ijk,ilk", "ijk,ilk->"):
        found, expected = (fun(subscripts, a, b) for fun in (kernels.einsum, np.einsum))
        assert np.asarray(found).tobytes() == np.asarray(expected).tobytes()


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
