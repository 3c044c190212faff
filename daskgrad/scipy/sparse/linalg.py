"""Solutions of sparse systems, as in ``scipy.sparse.linalg``, by factors L and U.

The matrix is SciPy's, which is constant, or one of ``daskgrad.scipy.sparse`` with traced entries.
It is factorized once; derivatives use the same factors, and no dense matrix. A singular matrix is
NumPy's LinAlgError; SciPy's ``spsolve`` warns and returns NaN.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse

from daskgrad.autodiff.rules import scipy_sparse as rules
from daskgrad.autodiff.rules.scipy_sparse import SparseArray, from_sparse
from daskgrad.autodiff.rules.twins import operand
from daskgrad.autodiff.tape import value
from daskgrad.scipy.dispatch import Recordable, dispatched, within_models


@dispatched
def spsolve(A: Any, b: Any, permc_spec: str | None = None) -> Any:
    """The solution x of ``A @ x = b``, for a dense vector or matrix ``b``.

    For a matrix of one column it is a vector, as SciPy's.
    """
    x = splu(A, permc_spec).solve(b)
    return np.reshape(x, (-1,)) if np.shape(x)[1:] == (1,) else x


@within_models
def factorized(A: Any) -> Callable[[Any], Any]:
    """The function of b that solves ``A @ x = b``."""
    return splu(A).solve


class splu(Recordable):
    """The factors of a square matrix, which ``solve`` uses."""

    def __init__(self, A: Any, permc_spec: str | None = None):
        matrix = from_sparse(A, "splu")
        if matrix.shape[0] != matrix.shape[1]:
            raise ValueError(f"the matrix has the shape {matrix.shape}; it must be square")
        self.shape = matrix.shape
        self._matrix = matrix
        self._factor = rules.Factor(value(matrix.data), matrix.pattern, permc_spec)

    @dispatched
    def solve(self, rhs: Any, trans: str = "N") -> Any:
        """The solution x of ``A @ x = rhs``; for ``trans`` "T" of A.T, for "H" of its conjugate."""
        if isinstance(rhs, SparseArray) or scipy.sparse.issparse(rhs):
            raise TypeError("sparse.linalg: the right-hand side is sparse; pass rhs.toarray()")
        if trans not in ("N", "T", "H"):
            raise ValueError(f"trans is {trans!r}; it must be 'N', 'T' or 'H'")
        b = operand(rhs)
        if np.ndim(b) not in (1, 2) or np.shape(b)[0] != self.shape[0]:
            raise ValueError(
                f"the right-hand side has the shape {np.shape(b)}, the matrix {self.shape}"
            )
        data, pattern = self._matrix.data, self._matrix.pattern
        if trans == "H":
            return np.conj(rules.solution(data, np.conj(b), pattern, self._factor, True))
        return rules.solution(data, b, pattern, self._factor, trans == "T")

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(
            f"splu has no {name!r} that is differentiated, only solve(b); write "
            f"np.linalg.slogdet(A.toarray())[1] for the logarithm of the determinant"
        )
