"""flat: a function of a pytree as one of a vector, for SciPy's minimisers."""

from collections.abc import Callable
from typing import Any

import numpy as np

from daskgrad.autodiff.values.descriptions import imported
from daskgrad.autodiff.values.trees import flatten
from daskgrad.autodiff.values.vectors import Raveling
from daskgrad.derivatives.evaluation import compute_value
from daskgrad.derivatives.gradient import value_and_grad
from daskgrad.derivatives.hessian import hessian, hvp
from daskgrad.derivatives.inputs import as_output, require_differentiable
from daskgrad.derivatives.jacobian import jacobian
from daskgrad.derivatives.jvp import jvp
from daskgrad.derivatives.vjp import vjp
from daskgrad.graph.delayed import delayed
from daskgrad.graph.nodes import Node

APART = 1e-10  # of the terms of an entry of a Hessian's product: less is taken for rounding


class Flat:
    """A function of a vector, with its derivatives."""

    def __init__(self, fun: Callable, raveling: Raveling):
        self._fun = fun
        self._raveling = raveling
        self._both = value_and_grad(fun)

    def __call__(self, x: np.ndarray) -> tuple[float, np.ndarray]:
        """The value and the gradient."""
        value, gradient = self._both(self._raveling.unravel(x))
        return float(value), self._raveling.scale * self._raveling.ravel(gradient)

    def hessp(self, x: np.ndarray, p: np.ndarray) -> np.ndarray:
        """The Hessian times a vector, for ``minimize(..., hessp=flat.hessp)``."""
        point, direction = self._raveling.unravel(x), self._raveling.direction(p)
        _, (product,) = hvp(self._fun, (point,), (direction,))
        return self._raveling.scale * self._raveling.ravel(product)

    @property
    def names(self) -> list[str]:
        """The name of each entry of the vector: ``slope``, ``offsets[3]``, ``layers.0.w[1, 2]``."""
        return self._raveling.names

    def hessian(self, x: np.ndarray) -> np.ndarray:
        """The matrix of second derivatives by the entries of the vector: by parameters, times the
        ``scale`` of both.

        A dense array, also if most of it is zero. Costs a product with the Hessian for each entry;
        for ``q`` parameters of each of ``n`` items beside ``s`` shared ones only ``s + q + 1``, if
        that is less than half. So it is if most entries stand in leaves of ``n`` rows, and entries
        in different rows do not meet, which the last product tests; whether the function has one
        sum over them or several, zipped or not, does not matter. A prior that couples items (a
        random walk, a sum that must be zero) costs all products besides.
        """
        rows, columns = self._raveling.rows()
        shared = np.flatnonzero(rows < 0)
        if 2 * (len(shared) + columns.max() + 2) < self._raveling.size:
            matrix = self._arrow(x, rows, columns, shared)
            direction = np.random.default_rng(0).standard_normal(self._raveling.size)
            error = np.abs(matrix @ direction - self.hessp(x, direction))
            if np.all(error <= APART * (np.abs(matrix) @ np.abs(direction))):  # entry by entry
                return matrix
        matrix = self._raveling.ravel_matrix(hessian(self._fun)(self._raveling.unravel(x)))
        return matrix * np.outer(self._raveling.scale, self._raveling.scale)

    def _arrow(
        self, x: np.ndarray, rows: np.ndarray, columns: np.ndarray, shared: np.ndarray
    ) -> np.ndarray:
        """The Hessian if entries in different rows do not meet: an arrow of blocks."""
        matrix = np.zeros((len(rows), len(rows)))
        for place in shared:
            matrix[:, place] = matrix[place] = self.hessp(x, np.eye(1, len(rows), place)[0])
        for column in range(columns.max() + 1):
            product = self.hessp(x, (columns == column).astype(float))
            for place in np.flatnonzero(columns == column):
                block = rows == rows[place]
                matrix[block, place] = product[block]
        return matrix

    def covariance(self, x: np.ndarray) -> np.ndarray:
        """The inverse of the Hessian: Laplace's approximation of the parameters' covariance, if the
        function is minus a log density and ``x`` its minimum. The roots of its diagonal are
        standard errors, in the order of ``names``.

        A dense array, of the parameters themselves, whatever their ``scale``. Costs the products of
        ``hessian``, and an eigendecomposition: O(N³) for N entries.

        LinAlgError, which names the flattest direction, unless the Hessian is positive definite.
        """
        matrix = self.hessian(x)
        matrix = 0.5 * (matrix + matrix.T)
        values, vectors = np.linalg.eigh(matrix)
        if not values[0] > matrix.shape[0] * np.finfo(float).eps * abs(values[-1]):
            largest = np.argsort(-np.abs(vectors[:, 0]))[:3]
            direction = ", ".join([f"{vectors[n, 0]:+.2f} {self.names[n]}" for n in largest])
            raise np.linalg.LinAlgError(
                f"the Hessian has no inverse that is a covariance: its least eigenvalue is "
                f"{values[0]:.3g} (the largest {values[-1]:.3g}), along {direction}; this point is "
                f"no minimum, or the data say nothing of this direction: minimise further, fix "
                f"parameters that stand at a bound, or add a prior"
            )
        vectors = self._raveling.scale[:, None] * vectors
        return (vectors / values) @ vectors.T

    def bounds(self, lower: Any = None, upper: Any = None) -> Any:
        """SciPy's ``Bounds`` of pytrees, in which a number stands for all entries of a leaf.

        ``None``, for a leaf or for all of them, is no bound.
        """
        scipy = imported("scipy.optimize", "scipy", "bounds are SciPy's")
        low, high = self._raveling.spread(lower, -np.inf), self._raveling.spread(upper, np.inf)
        return scipy.Bounds(low / self._raveling.scale, high / self._raveling.scale)


def flat(
    fun: Callable, tree: Any, scale: Any = None
) -> tuple[Flat, np.ndarray, Callable[[np.ndarray], Any]]:
    """A function of a pytree as one of a vector, for optimisers that know of vectors alone.

    ::

        flat, x0, unravel = dg.adapters.flat(loss, {"slope": 0.0, "offsets": np.zeros(9)})
        result = scipy.optimize.minimize(flat, x0, jac=True, hessp=flat.hessp, method="trust-ncg")
        parameters = unravel(result.x)

    Parameters
    ----------
    fun:
        as for ``value_and_grad``, of one argument.
    tree:
        a point: a pytree of float arrays and numbers. Integers, booleans and strings in it are
        constants.
    scale:
        typical sizes of the parameters, for optimisers that take all entries for equally large: the
        entries of the vector are parameters divided by it. A pytree of positive numbers, in which a
        number stands for all entries of a leaf, and ``None`` for one.

    Returns
    -------
    tuple
        The function, which returns value and gradient, and has ``hessp``, ``hessian`` and
        ``covariance`` (dense arrays, from a product with the Hessian for each entry, or for each
        parameter of one item and each shared one), ``names`` and ``bounds``; the point as a vector
        of double precision; and the function that turns a vector into a pytree.

    Raises
    ------
    TypeError
        if ``fun`` is not a function, or the tree has complex numbers, or no float ones.
    ValueError
        if a scale is not positive, or has another structure.

    See Also
    --------
    daskgrad.value_and_grad, daskgrad.hvp, flat_residuals

    Examples
    --------
    >>> from scipy.optimize import minimize
    >>> def loss(p):
    ...     return dg.delayed(lambda p: np.sum((p["a"] - 1.0) ** 2) + (p["b"] + 2.0) ** 2)(p)
    >>> flat, x0, unravel = dg.adapters.flat(loss, {"a": np.zeros(2), "b": 0.0})
    >>> minimum = unravel(minimize(flat, x0, jac=True).x)
    >>> minimum["a"].round(4), round(float(minimum["b"]), 4)
    (array([1., 1.]), -2.0)
    """
    name = require_differentiable(fun, 0, "adapters.flat")
    raveling = Raveling(tree, name, scale)
    return Flat(fun, raveling), raveling.ravel(tree) / raveling.scale, raveling.unravel


# -------------------------------------------------------------------------------------------------
# flat_residuals: a function with many values, of a vector, for SciPy's least squares and roots.


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
        """The matrix as a sparse array of SciPy's, with the entries that the graph has."""
        return self._raveling.ravel_sparse_rows(self._sparse_jacobian(self._raveling.unravel(x)))

    def operator(self, x: np.ndarray) -> Any:
        """The matrix as SciPy's ``LinearOperator``, which pushes and pulls vectors, one at a time.

        It runs the models forward, and holds the residuals of their pullbacks while it is used.
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
        result = scipy.optimize.least_squares(residuals, x0, jac=residuals.jacobian)
        result = scipy.optimize.root(residuals, x0, jac=residuals.jacobian)
        result = scipy.optimize.least_squares(residuals, x0, jac=residuals.sparse_jacobian)
        result = scipy.optimize.least_squares(residuals, x0, jac=residuals.operator)  # large ones

    Parameters
    ----------
    fun:
        ordinary Python that calls models on its argument and returns a node or a pytree of nodes.
        Their values are real arrays and numbers, which are joined in C order.
    tree:
        a point, as for ``flat``.

    Returns
    -------
    tuple
        The function of vectors, with the methods ``jacobian``, ``sparse_jacobian`` (for many
        residuals that depend on few parameters each: SciPy then solves by ``tr_solver="lsmr"``;
        ``method="lm"`` takes dense matrices alone) and ``operator``; the point as a vector; and the
        function that turns a vector into a pytree. Raises as ``flat``.

    See Also
    --------
    flat, daskgrad.jacobian

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
