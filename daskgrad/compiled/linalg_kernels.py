"""Linalg kernels: what functions of np.linalg call, without the checks that a program has made.

The kernels are private to NumPy: where they are not found, the functions themselves are called.
"""

from typing import Any

import numpy as np
from numpy.linalg import LinAlgError

# None in a later NumPy, perhaps: tests/compiled/test_linalg_kernels.py tells.
kernels: Any = getattr(np.linalg, "_umath_linalg", None)


def raise_singular(*_: Any) -> None:
    raise LinAlgError("Singular matrix")


@np.errstate(call=raise_singular, invalid="call", over="ignore", divide="ignore", under="ignore")
def inverted(matrix: np.ndarray) -> np.ndarray:
    """``np.linalg.inv`` of a matrix in double precision."""
    return np.linalg.inv(matrix) if kernels is None else kernels.inv(matrix)


def log_determinant(matrix: np.ndarray) -> tuple[Any, Any]:
    """``np.linalg.slogdet`` of a matrix in double precision."""
    return np.linalg.slogdet(matrix) if kernels is None else kernels.slogdet(matrix)
