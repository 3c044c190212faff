"""NumPy's private kernels, which programs call, are there and do what NumPy's functions do."""

import numpy as np
import pytest

from daskgrad.compiled import kernels

MATRICES = {
    "regular": np.random.default_rng(0).standard_normal((5, 5)),
    "positive": np.array([[4.0, 1.0], [1.0, 3.0]]),
    "in Fortran order": np.asfortranarray(np.random.default_rng(1).standard_normal((3, 3))),
    "a number": np.array([[-2.0]]),
    "empty": np.zeros((0, 0)),
    "infinite": np.array([[1.0, np.inf], [0.0, 1.0]]),
    "with a NaN": np.array([[1.0, np.nan], [0.0, 1.0]]),
}
PAIRS = {  # what programs call, and NumPy's function
    "inv": (kernels.inverted, np.linalg.inv),
    "det": (kernels.determinant, np.linalg.det),
    "slogdet": (kernels.log_determinant, np.linalg.slogdet),
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


@pytest.mark.parametrize("name", ["inv", "solve of a vector", "cholesky"])
@pytest.mark.usefixtures("_kernels")
def test_a_singular_matrix_is_the_error_of_numpy(name):
    kernel, numpys = PAIRS[name]
    found = outcome(kernel, np.zeros((2, 2)))
    assert isinstance(found, str)
    assert found == outcome(numpys, np.zeros((2, 2)))


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
