"""Kernels: the inner functions of NumPy's wrappers, without the checks that the recording made.

Most are private to NumPy; a program calls the public function if one is missing.
"""

from collections.abc import Callable, Sequence
from contextvars import Context
from typing import Any

import numpy as np
from numpy.linalg import LinAlgError


def private(*path: str) -> Any:
    """A private attribute of NumPy; None if NumPy lacks it (then ``test_kernels.py`` fails)."""
    attribute: Any = np
    for name in path:
        attribute = getattr(attribute, name, None)
    return attribute


matrices = private("linalg", "_umath_linalg")
transforms = private("fft", "_pocketfft_umath")


def errors(message: str) -> np.errstate:
    """A context in which an invalid number is the ``LinAlgError`` that NumPy's wrapper raises."""

    def fail(*_: Any) -> None:
        raise LinAlgError(message)

    return np.errstate(call=fail, invalid="call", over="ignore", divide="ignore", under="ignore")


@errors("Singular matrix")
def inverted(matrix: np.ndarray) -> np.ndarray:
    """``np.linalg.inv`` of a matrix in double precision."""
    return np.linalg.inv(matrix) if matrices is None else matrices.inv(matrix)


@errors("Singular matrix")
def solved(matrix: np.ndarray, b: np.ndarray) -> np.ndarray:
    """``np.linalg.solve`` of a matrix and a vector or matrix in double precision."""
    if matrices is None:
        return np.linalg.solve(matrix, b)
    return matrices.solve1(matrix, b) if b.ndim == 1 else matrices.solve(matrix, b)


@errors("Matrix is not positive definite")
def factor(matrix: np.ndarray) -> np.ndarray:
    """``np.linalg.cholesky`` of a matrix in double precision."""
    return np.linalg.cholesky(matrix) if matrices is None else matrices.cholesky_lo(matrix)


def transform(a: np.ndarray) -> np.ndarray:
    """``np.fft.fft`` along the last axis of an array in double precision."""
    return transformed(np.fft.fft, "fft", a, 1.0)


def inverse_transform(a: np.ndarray) -> np.ndarray:
    """``np.fft.ifft`` along the last axis of an array in double precision."""
    return transformed(np.fft.ifft, "ifft", a, 1.0 / a.shape[-1])


def transformed(fun: Callable, name: str, a: np.ndarray, factor: float) -> np.ndarray:
    if transforms is None:
        return fun(a)
    return getattr(transforms, name)(a, factor, np.empty_like(a, np.complex128))


EVERY = slice(None)
LARGE = 2**24  # bytes of a matrix; a core's own caches hold little of it


def columns(matrix: np.ndarray, rows: slice, numbers: np.ndarray) -> np.ndarray:
    """``matrix[rows, numbers]``, with the same order in memory.

    NumPy copies column by column. From a large matrix in C order, copying row by row takes two
    thirds of the time, since the next entry is nearer.
    """
    if rows == EVERY and matrix.nbytes >= LARGE and matrix.flags.c_contiguous:
        return np.asfortranarray(matrix.take(numbers, axis=1))
    return matrix[rows, numbers]


# NumPy keeps its treatment of floating-point errors in a context variable. ``np.errstate`` takes
# longer to set it than some programs take to run.
state: Any = private("_core", "umath", "_extobj_contextvar")
make_state: Any = private("_core", "umath", "_make_extobj")
RAISING: Any = {"divide": "raise", "over": "raise", "invalid": "raise"}
default = None if state is None else Context().run(state.get)  # before anybody changes it
raising = None if make_state is None else Context().run(lambda: make_state(**RAISING))


def raise_errors(fun: Callable, args: Sequence[Any]) -> Any:
    """Calls a function, in which NumPy raises exceptions instead of warnings."""
    if raising is None or state is None or state.get() is not default:
        with np.errstate(**RAISING):
            return fun(*args)
    token = state.set(raising)
    try:
        return fun(*args)
    finally:
        state.reset(token)
