"""Implicit: derivatives of roots by the implicit function theorem.

Where F(x, θ) = 0 and ∂F/∂x is regular, dx = -(∂F/∂x)⁻¹ (∂F/∂θ) dθ; so a cotangent g of x pulls back
to -(∂F/∂θ)ᵀ w with (∂F/∂x)ᵀ w = g. Source: A. Griewank and A. Walther, Evaluating Derivatives,
2008, chapter 15. All of it is written in autograd's primitives, and can be differentiated itself.
"""

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import autograd.numpy as anp
import numpy as np

from daskgrad.backends.autograd.custom import Call, with_derivative
from daskgrad.backends.autograd.forward import linearize
from daskgrad.backends.autograd.kinds import kind_of
from daskgrad.backends.autograd.reverse import trace
from daskgrad.backends.autograd.rules.declaration import plain
from daskgrad.values.descriptions import describe, function_name
from daskgrad.values.trees import flatten, substitute, unflatten

Solve = Callable[[Any], Any]  # of a linear system with ∂F/∂x, or with its transpose


class Root:
    """The value x of a call, at which ``residual(x, *args, **kwargs)`` is zero; both as vectors."""

    def __init__(self, call: Call, residual: Callable):
        self._call = call
        self._residual = residual
        self._names = f"the residual {function_name(residual)!r} of {call.function.name!r}"
        self._leaves, self._structure = flatten(call.value)
        self._places = with_derivative(self._leaves)
        arrays = [self._leaves[place] for place in self._places]
        self._shapes = [np.shape(plain(array)) for array in arrays]
        self._vector = concatenate(arrays, f"the value of {call.function.name!r}")

    def pullback(self, active: Sequence[int], solve: Solve) -> Callable[[Any], tuple]:
        """Maps a cotangent of x to those of the arguments; ``solve`` takes the transpose."""
        call = self._call
        _, tape = trace(self._residual_of(active), [call.leaves[place] for place in active])

        def root_pullback(cotangent: Any) -> tuple:
            arrived = flatten(cotangent)[0]
            g = concatenate([arrived[place] for place in self._places], "a cotangent")
            pulled = tape.pull([-solve(g)])
            return call.with_leaves(substitute([None] * len(call.leaves), active, pulled))

        return root_pullback

    def push(self, tangents: tuple, solve: Solve) -> Any:
        """The tangent of x, from those of the arguments."""
        places, leaves = with_derivative(self._call.leaves), flatten(tangents)[0]
        arrays = [self._call.leaves[place] for place in places]
        _, push = linearize(self._residual_of(places), arrays)
        (pushed,) = push([leaves[place] for place in places])
        return self._in_structure(-solve(pushed))

    # ---- linear systems with the Jacobian

    def dense(self, transposed: bool) -> Solve:
        """Solves with ∂F/∂x as a dense matrix, a pullback of the residual for each of its rows."""
        unit = np.eye(len(self._vector), dtype=plain(self._vector).dtype)
        product = self.product(transposed=True)
        if not len(unit):
            return lambda vector: vector
        jacobian = anp.reshape(anp.concatenate([product(row) for row in unit]), unit.shape)
        self._require_regular(plain(jacobian))
        return functools.partial(anp.linalg.solve, jacobian.T if transposed else jacobian)

    def product(self, transposed: bool) -> Callable[[Any], Any]:
        """The product of the Jacobian, or of its transpose, and a vector; without the matrix."""
        record: Any = trace if transposed else linearize
        (residual,), linear = record(self._residual_at, [self._vector])
        if len(residual) != len(self._vector):
            raise ValueError(
                f"{self._names} must return as many numbers as its first argument x has; found "
                f"{len(residual)} for {len(self._vector)}"
            )

        def times(v: Any) -> Any:
            (image,) = linear.pull([v]) if transposed else linear([v])
            return np.zeros_like(plain(v)) if image is None else image

        return times

    # ---- the residual

    def _residual_of(self, places: Sequence[int]) -> Callable[..., list[Any]]:
        """F as a function of some of the arguments' leaves."""

        def residual(*boxes: Any) -> list[Any]:
            leaves = substitute(self._call.leaves, places, boxes)
            return self._evaluate(self._call.value, self._call.with_leaves(leaves))

        return residual

    def _in_structure(self, vector: Any, others: Sequence[Any] = ()) -> Any:
        """A vector in the structure of x, with ``others`` for leaves without derivative."""
        sizes = list(map(math.prod, self._shapes))
        ends = itertools.accumulate(sizes)
        parts = [vector[end - size : end] for size, end in zip(sizes, ends, strict=True)]
        arrays = map(anp.reshape, parts, self._shapes)
        leaves = substitute(others or [None] * len(self._leaves), self._places, arrays)
        return unflatten(self._structure, leaves)

    def _residual_at(self, vector: Any) -> list[Any]:
        return self._evaluate(self._in_structure(vector, self._leaves), self._call.args)

    def _evaluate(self, x: Any, args: tuple) -> list[Any]:
        leaves = flatten(self._residual(x, *args, **self._call.kwargs))[0]
        return [concatenate(leaves, self._names)]

    def _require_regular(self, jacobian: np.ndarray) -> None:
        condition = np.linalg.cond(jacobian, 1)
        if not condition < 1 / np.finfo(jacobian.dtype).eps:
            raise np.linalg.LinAlgError(
                f"the derivative of {self._call.function.name!r} does not exist: the Jacobian of "
                f"{self._names} with respect to x is singular or not finite (condition number "
                f"{condition:.1e}, shape {jacobian.shape})"
            )


def concatenate(leaves: Sequence[Any], what: str) -> Any:
    """The real numbers in some leaves, as one vector."""
    for leaf in leaves:
        if kind_of(plain(leaf)) != "f":
            raise TypeError(
                f"{what} must be of real floating-point numbers; found {describe(plain(leaf))}"
            )
    return anp.concatenate([anp.reshape(leaf, (-1,)) for leaf in leaves])
