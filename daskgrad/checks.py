"""Checks: is a derivative right? Directional derivatives against central differences."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import optree

from daskgrad import cotangents
from daskgrad.cotangents import describe
from daskgrad.demands import as_output, has_derivative
from daskgrad.gradient import vjp
from daskgrad.nodes import variable
from daskgrad.signatures import function_name
from daskgrad.structures import flatten

DIRECTIONS = 3


def check_grads(
    fun: Callable, order: int = 1, rtol: float = 1e-6, atol: float = 1e-8, seed: int = 0
) -> Callable[..., None]:
    """A function that checks the pullback of ``fun`` at the arguments that it is called with.

    In three random directions v of the float arguments, and with a random cotangent c of the value,
    ⟨c, f(x + εv) - f(x - εv)⟩ / 2ε, extrapolated to ε → 0 from two steps (Richardson), must equal
    ⟨pullback(c), v⟩. Checks values in double precision, and others to what their dtype allows.

    ``fun`` returns a node or a pytree of nodes, as for ``vjp``. Only order 1 is checked.

    Raises
    ------
    AssertionError
        where they differ; the message has both numbers, and the argument that is wrong.
    """
    if order != 1:
        raise ValueError(f"check_grads checks order 1, the pullback; order={order!r} was asked for")
    name = function_name(fun)

    def check(*args: Any) -> None:
        random = np.random.default_rng(seed)
        value, pullback = vjp(fun, *args)
        cotangent = like(value, random)
        gradients = pullback(cotangent)
        for number, argument in enumerate(args):
            if has_derivative(argument):
                for _ in range(DIRECTIONS):
                    direction = like(argument, random)
                    line = Line(fun, args, number, direction, value, cotangent)
                    line.require(inner(gradients[number], direction), name, rtol, atol)

    return check


class Line:
    """The function t ↦ ⟨cotangent, fun(..., argument + t direction, ...)⟩ near t = 0."""

    def __init__(
        self,
        fun: Callable,
        args: Sequence[Any],
        number: int,
        direction: Any,
        value: Any,
        cotangent: Any,
    ):
        self._fun = fun
        self._args = list(args)
        self._number = number
        self._direction = direction
        self._cotangent = cotangent
        self._epsilon = max(epsilon(value), epsilon(args[number]))
        self._step = self._epsilon**0.2
        self._noise = 20 * self._epsilon * size(cotangent, value) / self._step

    def at(self, t: float) -> float:
        args = list(self._args)
        args[self._number] = moved(args[self._number], t, self._direction)
        return inner(self._cotangent, evaluated(self._fun, args))

    def slope(self) -> float:
        """Central differences with two steps, extrapolated: the error is O(step**4)."""
        coarse, fine = [
            (self.at(step) - self.at(-step)) / (2 * step) for step in (self._step, self._step / 2)
        ]
        return (4 * fine - coarse) / 3

    def require(self, expected: float, name: str, rtol: float, atol: float) -> None:
        found = self.slope()
        rtol = max(rtol, 10 * self._epsilon**0.8)
        allowed = atol + rtol * max(abs(found), abs(expected)) + self._noise
        if not abs(found - expected) <= allowed:
            raise AssertionError(
                f"the pullback of {name!r} is wrong for argument {self._number} "
                f"({describe(self._args[self._number])}): it gives {expected:.12g} in a random "
                f"direction, and differences give {found:.12g} (allowed: {allowed:.2g})"
            )


def evaluated(fun: Callable, args: Sequence[Any]) -> Any:
    """The value of ``fun``, computed without any derivative."""
    variables = [variable(arg) if has_derivative(arg) else arg for arg in args]
    return as_output(fun(*variables), function_name(fun)).compute()


# ------------------------------------------------------------- vectors in the shape of a pytree


def like(value: Any, random: np.random.Generator) -> Any:
    """A random pytree in the shape of a value, of norm about one; None without derivative."""
    leaves, structure = flatten(value)
    total = sum([np.size(leaf) for leaf in leaves if cotangents.is_differentiable(leaf)])
    drawn = [draw(leaf, random, total) for leaf in leaves]
    return optree.tree_unflatten(structure, drawn)


def draw(leaf: Any, random: np.random.Generator, total: int) -> Any:
    if not cotangents.is_differentiable(leaf):
        return None
    leaf = np.asarray(leaf)
    entries = random.standard_normal(leaf.shape)
    if leaf.dtype.kind == "c":
        entries = entries + 1j * random.standard_normal(leaf.shape)
    return np.asarray(entries / np.sqrt(total), dtype=leaf.dtype)[()]


def moved(value: Any, t: float, direction: Any) -> Any:
    leaves, structure = flatten(value)
    steps, _ = flatten(direction)
    ends = [
        leaf if step is None else cotangents.cast(np.asarray(leaf + t * step), leaf)[()]
        for leaf, step in zip(leaves, steps, strict=True)
    ]
    return optree.tree_unflatten(structure, ends)


def products(first: Any, second: Any) -> list[np.ndarray]:
    pairs = zip(flatten(first)[0], flatten(second)[0], strict=True)
    return [
        np.real(a * np.asarray(b, dtype=np.result_type(b, float)))
        for a, b in pairs
        if a is not None
    ]


def inner(first: Any, second: Any) -> float:
    """The inner product of two pytrees, in autograd's convention for complex numbers."""
    return float(sum([np.sum(product) for product in products(first, second)]))


def size(first: Any, second: Any) -> float:
    """What the rounding error of the inner product is relative to."""
    return float(sum([np.sum(np.abs(product)) for product in products(first, second)]))


def epsilon(value: Any) -> float:
    """The largest epsilon of the dtypes of a value's floating-point leaves."""
    leaves = [np.asarray(leaf) for leaf in flatten(value)[0] if cotangents.is_differentiable(leaf)]
    return max([float(np.finfo(leaf.dtype).eps) for leaf in leaves], default=0.0)
