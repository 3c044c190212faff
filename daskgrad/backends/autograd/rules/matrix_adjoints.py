"""Matrix adjoints: those of solutions, inverses, Cholesky factors and traces of one real matrix.

autograd's go through ``np.einsum``, which on small matrices takes several times as long as the
arithmetic, and is slow on large ones; that of ``solve`` solves once for each operand. Those here
call BLAS. They hold for one real matrix; for everything else autograd's hold.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from daskgrad.backends.autograd.rules.declaration import namespace_of


def pull_of_matrix(pulled: Any, ans: Any, dot: Callable = np.dot) -> Any:
    """The cotangent of a matrix from that of what was solved for, and the solution."""
    if pulled.ndim == 1:
        return dot(-pulled.reshape(-1, 1), ans.reshape(1, -1))
    return -dot(pulled, ans.T)


def pull_inverse(g: Any, ans: Any, dot: Callable = np.dot) -> Any:
    return -dot(dot(ans.T, g), ans.T)


def upper_solved(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    from scipy.linalg import solve_triangular  # where the first matrix is, as it takes a while

    return solve_triangular(a, b, check_finite=False)


def pull_cholesky(g: Any, ans: Any, solve: Callable = upper_solved, dot: Callable = np.dot) -> Any:
    """I. Murray, "Differentiation of the Cholesky decomposition", 2016."""
    inner = lower_triangle(len(ans)) * dot(ans.T, g)
    outer = solve(ans.T, solve(ans.T, inner.T).T)
    return (outer + outer.T) * 0.5


@lru_cache
def lower_triangle(size: int) -> np.ndarray:
    """Ones below the diagonal, halves on it."""
    halves = np.tri(size) - 0.5 * np.eye(size)
    halves.flags.writeable = False
    return halves


def pull_trace(g: Any, shape: tuple[int, int]) -> Any:
    namespace = namespace_of(g)
    if namespace is not np:
        return namespace.where(np.eye(*shape, dtype=bool), g, np.zeros((), g.dtype))
    rows, columns = shape
    out = np.zeros(shape, g.dtype)
    out.reshape(-1)[: min(rows, columns) * columns : columns + 1] = g
    return out
