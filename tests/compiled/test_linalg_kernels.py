"""NumPy's private kernels, which programs call, are there and do what NumPy's functions do."""

import numpy as np
import pytest

from daskgrad.compiled import linalg_kernels
from daskgrad.compiled.linalg_kernels import inverted, log_determinant

MATRICES = {
    "regular": np.random.default_rng(0).standard_normal((5, 5)),
    "in Fortran order": np.asfortranarray(np.random.default_rng(1).standard_normal((3, 3))),
    "a number": np.array([[-2.0]]),
    "empty": np.zeros((0, 0)),
    "infinite": np.array([[1.0, np.inf], [0.0, 1.0]]),
    "with a NaN": np.array([[1.0, np.nan], [0.0, 1.0]]),
}


def test_numpy_has_the_kernels():
    assert linalg_kernels.kernels is not None


@pytest.mark.filterwarnings("ignore:invalid value encountered in slogdet:RuntimeWarning")
@pytest.mark.parametrize("name", MATRICES)
@pytest.mark.parametrize("has_kernels", [True, False])
def test_values_have_numpys_bits(name, has_kernels, monkeypatch):
    matrix = MATRICES[name]
    if not has_kernels:
        monkeypatch.setattr(linalg_kernels, "kernels", None)
    found, expected = inverted(matrix), np.linalg.inv(matrix)
    assert found.tobytes() == expected.tobytes()
    assert found.strides == expected.strides
    for one, other in zip(log_determinant(matrix), np.linalg.slogdet(matrix), strict=True):
        assert np.asarray(one).tobytes() == np.asarray(other).tobytes()


def test_a_singular_matrix_is_the_error_of_numpy():
    with pytest.raises(np.linalg.LinAlgError, match="Singular matrix"):
        inverted(np.zeros((2, 2)))
    sign, logarithm = log_determinant(np.zeros((2, 2)))
    assert (sign, logarithm) == (0.0, -np.inf)
