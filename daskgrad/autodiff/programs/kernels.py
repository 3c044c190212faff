"""Kernels: the inner functions of NumPy's wrappers, without checks that a program has made.

Most are private to NumPy; a program calls the public function if one is missing.
"""

from collections.abc import Callable, Sequence
from contextvars import Context
from typing import Any

import numpy as np
from numpy.linalg import LinAlgError


def private(*path: str) -> Any:
    """A private attribute of NumPy; None if a later version lacks it (test_kernels.py fails)."""
    place: Any = np
    for name in path:
        place = getattr(place, name, None)
    return place


matrices = private("linalg", "_umath_linalg")
transforms = private("fft", "_pocketfft_umath")


def errors(message: str) -> np.errstate:
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
LARGE = 2**24  # bytes of a matrix, of which no cache near a core holds much


def columns(matrix: np.ndarray, rows: slice, numbers: np.ndarray) -> np.ndarray:
    """``matrix[rows, numbers]``, in the same order of memory.

    NumPy goes column by column. In a large matrix in C order, row by row takes two thirds of the
    time, since the next entry is nearer.
    """
    if rows == EVERY and matrix.nbytes >= LARGE and matrix.flags.c_contiguous:
        return np.asfortranarray(matrix.take(numbers, axis=1))
    return matrix[rows, numbers]


# The context in which NumPy's floating-point errors are exceptions: to enter it by ``np.errstate``
# takes longer than some programs.
state: Any = private("_core", "umath", "_extobj_contextvar")
make_state: Any = private("_core", "umath", "_make_extobj")
RAISING: Any = {"divide": "raise", "over": "raise", "invalid": "raise"}
usual = None if state is None else Context().run(state.get)  # nobody has changed it
raising = None if make_state is None else Context().run(lambda: make_state(**RAISING))


def raise_errors(fun: Callable, args: Sequence[Any]) -> Any:
    """Calls a function, with exceptions in the place of NumPy's warnings."""
    if raising is None or state is None or state.get() is not usual:
        with np.errstate(**RAISING):
            return fun(*args)
    token = state.set(raising)
    try:
        return fun(*args)
    finally:
        state.reset(token)
