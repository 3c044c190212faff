"""flat_residuals: a function with many values, of a vector, for SciPy's least squares and roots."""

from collections.abc import Callable
from typing import Any

import numpy as np

from daskgrad.adapters.raveling import Raveling
from daskgrad.derivatives.evaluation import compute_value
from daskgrad.derivatives.inputs import require_differentiable
from daskgrad.derivatives.jacobian import jacobian
from daskgrad.derivatives.jvp import jvp
from daskgrad.derivatives.outputs import as_output
from daskgrad.derivatives.vjp import vjp
from daskgrad.graph.delayed import delayed
from daskgrad.graph.nodes import Node
from daskgrad.values.extras import imported
from daskgrad.values.trees import flatten


def joined(tree: Any) -> Any:
    """The entries of all leaves, one after another."""
    return np.concatenate([np.ravel(leaf) for leaf in flatten(tree)[0]])


JOINED = delayed(joined)


class FlatResiduals:
    """A function of a vector that returns one, with its derivatives."""

    def __init__(self, fun: Callable, name: str, raveling: Raveling):
        self._raveling = raveling

        def values(tree: Any) -> Node:
            return JOINED(as_output(fun(tree), name))

        self._fun = values
        self._jacobian = jacobian(values)
        self._sparse_jacobian = jacobian(values, sparse=True)

    def __call__(self, x: np.ndarray) -> np.ndarray:
        """The values."""
        return compute_value(self._fun(self._raveling.unravel(x)))

    def jacobian(self, x: np.ndarray) -> np.ndarray:
        """The matrix of their derivatives, a row a value."""
        return self._raveling.ravel_rows(self._jacobian(self._raveling.unravel(x)))

    def sparse_jacobian(self, x: np.ndarray) -> Any:
        """The same as a sparse array of SciPy's, with the entries that the graph has."""
        return self._raveling.ravel_sparse_rows(self._sparse_jacobian(self._raveling.unravel(x)))

    def operator(self, x: np.ndarray) -> Any:
        """The same as SciPy's ``LinearOperator``, which pushes and pulls vectors, one at a time.

        It runs the models forward, and holds what their pullbacks need as long as it is used.
        """
        linalg = imported("scipy.sparse.linalg", "scipy", "a LinearOperator is SciPy's")
        point = self._raveling.unravel(x)
        value, pullback = vjp(self._fun, point)

        def push(vector: np.ndarray) -> np.ndarray:
            direction = self._raveling.direction(np.ravel(vector))
            return jvp(self._fun, (point,), (direction,))[1]

        def pull(vector: np.ndarray) -> np.ndarray:
            (pulled,) = pullback(np.ravel(vector).astype(value.dtype))
            return self._raveling.ravel(pulled)

        shape = (value.size, self._raveling.size)
        return linalg.LinearOperator(shape, matvec=push, rmatvec=pull, dtype=float)


def flat_residuals(
    fun: Callable, tree: Any
) -> tuple[FlatResiduals, np.ndarray, Callable[[np.ndarray], Any]]:
    """A function of a pytree with many values, as one between vectors.

    ::

        residuals, x0, unravel = dg.adapters.flat_residuals(fun, {"rate": 1.0, "sizes": np.ones(3)})
        found = scipy.optimize.least_squares(residuals, x0, jac=residuals.jacobian)
        found = scipy.optimize.root(residuals, x0, jac=residuals.jacobian)
        found = scipy.optimize.least_squares(residuals, x0, jac=residuals.sparse_jacobian)
    found = scipy.optimize.least_squares(residuals, x0, jac=residuals.operator)    # large ones

    Parameters
    ----------
    fun:
        ordinary Python that calls models on its argument and returns a node or a pytree of nodes,
        whose values are real arrays and numbers. They are joined in C order.
    tree:
        a point, as for ``flat``.

    Returns
    -------
    tuple
        The function of vectors, with the methods ``jacobian``, ``sparse_jacobian`` (many residuals
        that depend on few parameters each: SciPy then solves by ``tr_solver="lsmr"``, and
        ``method="lm"`` takes dense ones alone) and ``operator``; the point as a vector; and the
        function that makes a pytree of a vector. Errors are those of ``flat``.

    Examples
    --------
    >>> from scipy.optimize import least_squares
    >>> residuals = dg.delayed(lambda p: np.hstack([p["a"] - 1.0, 3.0 * (p["b"] - p["a"])]))
    >>> flat, x0, unravel = dg.adapters.flat_residuals(residuals, {"a": 0.0, "b": 0.0})
    >>> least_squares(flat, x0, jac=flat.jacobian).x.round(6)
    array([1., 1.])
    """
    name = require_differentiable(fun, 0, "adapters.flat_residuals")
    raveling = Raveling(tree, name)
    return FlatResiduals(fun, name, raveling), raveling.ravel(tree), raveling.unravel
