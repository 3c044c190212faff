"""Derivatives of roots by the implicit function theorem.

Where F(x, θ) = 0 and ∂F/∂x is regular, dx = -(∂F/∂x)⁻¹ (∂F/∂θ) dθ; so a cotangent g of x pulls back
to -(∂F/∂θ)ᵀ w with (∂F/∂x)ᵀ w = g. Source: A. Griewank and A. Walther, Evaluating Derivatives,
2008, chapter 15. All of it is written in autograd's primitives, and can be differentiated itself.
"""

from collections.abc import Callable, Sequence
from typing import Any

import autograd.numpy as anp
import numpy as np
import optree
from autograd.tracer import getval

from daskgrad.backends.autograd.linearize import linearize
from daskgrad.backends.autograd.ruled import Call, with_derivative
from daskgrad.backends.autograd.tape import trace
from daskgrad.cotangents import describe
from daskgrad.signatures import function_name
from daskgrad.structures import flatten


def pull_root(call: Call, residual: Callable, active: Sequence[int]) -> Callable[[Any], tuple]:
    """From a cotangent of x to those of the arguments, of which some leaves are active."""
    root = Root(call, residual)
    jacobian = root.jacobian()
    _, tape = trace(root.residual_of(active), [call.leaves[place] for place in active])

    def root_pullback(cotangent: Any) -> tuple:
        w = anp.linalg.solve(jacobian.T, root.vector_of(cotangent))
        leaves: list[Any] = [None] * len(call.leaves)
        for place, pulled in zip(active, tape.pull([-w]), strict=True):
            leaves[place] = pulled
        return call.with_leaves(leaves)

    return root_pullback


def push_root(call: Call, residual: Callable, tangents: tuple) -> Any:
    """The tangent of x, from those of the arguments."""
    root = Root(call, residual)
    places = with_derivative(call.leaves)
    arrived = [flatten(tangents)[0][place] for place in places]
    _, push = linearize(root.residual_of(places), [call.leaves[place] for place in places])
    (pushed,) = push(arrived)
    return root.in_structure(-anp.linalg.solve(root.jacobian(), pushed))


class Root:
    """The value x of a call, at which ``residual(x, *args, **kwargs)`` is zero; both as vectors."""

    def __init__(self, call: Call, residual: Callable):
        self._call = call
        self._residual = residual
        self._names = f"the residual {function_name(residual)!r} of {call.function.name!r}"
        self._leaves, self._structure = flatten(call.value)
        self._places = with_derivative(self._leaves)
        arrays = [self._leaves[place] for place in self._places]
        self._shapes = [np.shape(getval(array)) for array in arrays]
        self.vector = joined(arrays, f"the value of {call.function.name!r}")

    def jacobian(self) -> Any:
        """∂F/∂x, dense: the residual runs once, and is pulled back for each of its entries."""
        (residual,), tape = trace(self._residual_at, [self.vector])
        self._require_square(residual)
        unit = np.eye(len(residual), dtype=getval(self.vector).dtype)
        pulled = [tape.pull([row])[0] for row in unit]
        rows = [np.zeros_like(unit[0]) if row is None else row for row in pulled]
        jacobian = anp.reshape(anp.concatenate(rows), unit.shape)
        self._require_regular(getval(jacobian))
        return jacobian

    def residual_of(self, places: Sequence[int]) -> Callable[..., list[Any]]:
        """F as a function of some of the arguments' leaves."""

        def residual(*boxes: Any) -> list[Any]:
            leaves = list(self._call.leaves)
            for place, box in zip(places, boxes, strict=True):
                leaves[place] = box
            return self._evaluated(self._call.value, self._call.with_leaves(leaves))

        return residual

    def vector_of(self, cotangent: Any) -> Any:
        leaves = flatten(cotangent)[0]
        return joined([leaves[place] for place in self._places], "a cotangent")

    def in_structure(self, vector: Any, others: Sequence[Any] = ()) -> Any:
        """A vector in the structure of x; its leaves without derivative are the ``others``."""
        leaves = list(others) or [None] * len(self._leaves)
        start = 0
        for place, shape in zip(self._places, self._shapes, strict=True):
            stop = start + int(np.prod(shape))
            leaves[place] = anp.reshape(vector[start:stop], shape)
            start = stop
        return optree.tree_unflatten(self._structure, leaves)

    def _residual_at(self, vector: Any) -> list[Any]:
        return self._evaluated(self.in_structure(vector, self._leaves), self._call.args)

    def _evaluated(self, x: Any, args: tuple) -> list[Any]:
        leaves = flatten(self._residual(x, *args, **self._call.kwargs))[0]
        return [joined(leaves, self._names)]

    def _require_square(self, residual: Any) -> None:
        if len(residual) != len(self.vector):
            raise ValueError(
                f"{self._names} must return as many numbers as its first argument x has; found "
                f"{len(residual)} for {len(self.vector)}"
            )

    def _require_regular(self, jacobian: np.ndarray) -> None:
        condition = np.linalg.cond(jacobian, 1)
        if not condition < 1 / np.finfo(jacobian.dtype).eps:
            raise np.linalg.LinAlgError(
                f"the derivative of {self._call.function.name!r} does not exist: the Jacobian of "
                f"{self._names} with respect to x is singular or not finite (condition number "
                f"{condition:.1e}, shape {jacobian.shape})"
            )


def joined(leaves: Sequence[Any], what: str) -> Any:
    """The real numbers in some leaves, as one vector."""
    for leaf in leaves:
        if np.asarray(getval(leaf)).dtype.kind != "f":
            raise TypeError(
                f"{what} must be of real floating-point numbers; found {describe(getval(leaf))}"
            )
    return anp.concatenate([anp.reshape(leaf, (-1,)) for leaf in leaves])
