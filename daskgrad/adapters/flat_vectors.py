"""flat: a function of a pytree as one of a vector, for SciPy's minimisers."""

from collections.abc import Callable
from typing import Any

import numpy as np

from daskgrad.adapters.raveling import Raveling
from daskgrad.derivatives.gradient import value_and_grad
from daskgrad.derivatives.hessian import hvp
from daskgrad.derivatives.inputs import require_differentiable
from daskgrad.values.extras import imported


class Flat:
    """A function of a vector, with its derivatives."""

    def __init__(self, fun: Callable, raveling: Raveling):
        self._fun = fun
        self._raveling = raveling
        self._both = value_and_grad(fun)

    def __call__(self, x: np.ndarray) -> tuple[float, np.ndarray]:
        """The value and the gradient."""
        value, gradient = self._both(self._raveling.unravel(x))
        return float(value), self._raveling.ravel(gradient)

    def hessp(self, x: np.ndarray, p: np.ndarray) -> np.ndarray:
        """The Hessian times a vector, for ``minimize(..., hessp=flat.hessp)``."""
        point, direction = self._raveling.unravel(x), self._raveling.direction(p)
        _, (product,) = hvp(self._fun, (point,), (direction,))
        return self._raveling.ravel(product)

    def bounds(self, lower: Any = None, upper: Any = None) -> Any:
        """SciPy's ``Bounds`` of pytrees, in which a number stands for all entries of a leaf.

        ``None``, for a leaf or for all of them, is no bound.
        """
        scipy = imported("scipy.optimize", "scipy", "bounds are SciPy's")
        low, high = self._raveling.spread(lower, -np.inf), self._raveling.spread(upper, np.inf)
        return scipy.Bounds(low, high)


def flat(fun: Callable, tree: Any) -> tuple[Flat, np.ndarray, Callable[[np.ndarray], Any]]:
    """A function of a pytree as one of a vector, for optimisers that know of vectors alone.

    ::

        flat, x0, unravel = dg.adapters.flat(loss, {"slope": 0.0, "offsets": np.zeros(9)})
        found = scipy.optimize.minimize(flat, x0, jac=True, hessp=flat.hessp, method="trust-ncg")
        parameters = unravel(found.x)

    Parameters
    ----------
    fun:
        as for ``value_and_grad``, of one argument.
    tree:
        a point: a pytree of float arrays and numbers. Integers, booleans and strings in it are
        constants.

    Returns
    -------
    tuple
        The function, which returns value and gradient, and has ``hessp`` and ``bounds``; the point
        as a vector of double precision; and the function that makes a pytree of a vector.

    Raises
    ------
    TypeError
        if ``fun`` is not a function, or the tree has complex numbers, or no float ones.

    Examples
    --------
    >>> from scipy.optimize import minimize
    >>> def loss(p):
    ...     return dg.delayed(lambda p: np.sum((p["a"] - 1.0) ** 2) + (p["b"] + 2.0) ** 2)(p)
    >>> flat, x0, unravel = dg.adapters.flat(loss, {"a": np.zeros(2), "b": 0.0})
    >>> found = unravel(minimize(flat, x0, jac=True).x)
    >>> found["a"].round(4), round(float(found["b"]), 4)
    (array([1., 1.]), -2.0)
    """
    name = require_differentiable(fun, 0, "adapters.flat")
    raveling = Raveling(tree, name)
    return Flat(fun, raveling), raveling.ravel(tree), raveling.unravel
