"""Kernels: the inner functions of NumPy's wrappers, without the checks that the recording made.

They are private to NumPy; programs call the public functions if one is missing.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.linalg import LinAlgError

# private to NumPy; if it lacks one, ``test_kernels.py`` fails
matrices: Any = getattr(np.linalg, "_umath_linalg", None)
transforms: Any = getattr(np.fft, "_pocketfft_umath", None)


def errors(message: str) -> np.errstate:
    """A context in which an invalid number is the ``LinAlgError`` that NumPy's wrapper raises."""

    def fail(*_: Any) -> None:
        raise LinAlgError(message)

    return np.errstate(call=fail, invalid="call", over="ignore", divide="ignore", under="ignore")


@errors("Singular matrix")
def inverted(matrix: np.ndarray) -> np.ndarray:
    """``np.linalg.inv`` of a matrix in double precision."""
    return matrices.inv(matrix)


@errors("Singular matrix")
def solved(matrix: np.ndarray, b: np.ndarray) -> np.ndarray:
    """``np.linalg.solve`` of a matrix and a vector or matrix in double precision."""
    return matrices.solve1(matrix, b) if b.ndim == 1 else matrices.solve(matrix, b)


@errors("Matrix is not positive definite")
def factor(matrix: np.ndarray) -> np.ndarray:
    """``np.linalg.cholesky`` of a matrix in double precision."""
    return matrices.cholesky_lo(matrix)


def transform(a: np.ndarray) -> np.ndarray:
    """``np.fft.fft`` along the last axis of an array in double precision."""
    return transforms.fft(a, 1.0, np.empty_like(a, np.complex128))


def inverse_transform(a: np.ndarray) -> np.ndarray:
    """``np.fft.ifft`` along the last axis of an array in double precision."""
    return transforms.ifft(a, 1.0 / a.shape[-1], np.empty_like(a, np.complex128))


KERNELS: dict[Any, Callable] = {}
if matrices is not None:
    KERNELS |= {np.linalg.inv: inverted, np.linalg.solve: solved, np.linalg.cholesky: factor}
if transforms is not None:
    KERNELS |= {np.fft.fft: transform, np.fft.ifft: inverse_transform}


@np.errstate(divide="raise", over="raise", invalid="raise")
def raise_errors(fun: Callable, args: Sequence[Any]) -> Any:
    """Calls a function, in which NumPy raises exceptions instead of warnings."""
    return fun(*args)
