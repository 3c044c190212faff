"""Directional: derivatives along random lines, against differences of values."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from daskgrad.autodiff.models.tracing import is_real_scalar
from daskgrad.autodiff.values.descriptions import describe, function_name, is_integer
from daskgrad.autodiff.values.trees import flatten, substitute
from daskgrad.autodiff.values.vectors import (
    epsilon,
    inner,
    is_double,
    move_along,
    random_like,
    size,
    still,
)
from daskgrad.derivatives.evaluation import compute_value
from daskgrad.derivatives.hessian import hvp
from daskgrad.derivatives.inputs import as_output, has_derivative
from daskgrad.derivatives.jvp import jvp
from daskgrad.derivatives.vjp import vjp
from daskgrad.graph.delayed import delayed
from daskgrad.graph.nodes import Node
from daskgrad.graph.variables import copy_variable, for_user

DIRECTIONS = 3

REVERSE, FORWARD, SECOND = "pullback", "tangent", "Hessian-vector product"


def require_order(order: Any) -> None:
    if not is_integer(order) or order not in (1, 2):
        raise ValueError(
            f"order must be 1 (gradients) or 2 (Hessian-vector products, too); found "
            f"{describe(order)}; arguments go in a second call, as in dg.check_grads(fun)(x)"
        )


class Checked(NamedTuple):
    """A function that is checked at some arguments."""

    fun: Callable[..., Any]  # returns a node or a pytree of nodes
    evaluate: Callable[..., Any]  # returns the value
    pull: Callable[[Any], Sequence[Any]]  # from a cotangent of the value at ``args``
    args: tuple
    name: str
    labels: Sequence[str]  # of the arguments, in messages

    @classmethod
    def of(cls, fun: Callable, args: tuple) -> "Checked":
        """A function that calls models."""
        if not any(map(has_derivative, args)):
            raise TypeError(
                f"no argument of {function_name(fun)!r} has a derivative to check; pass float or "
                f"complex numbers or arrays"
            )

        def evaluate(*args: Any) -> Any:
            variables = [
                copy_variable(arg, "variable") if has_derivative(arg) else arg for arg in args
            ]
            return compute_value(as_output(fun(*map(for_user, variables)), function_name(fun)))

        def pull(cotangent: Any) -> tuple:
            return vjp(fun, *args)[1](cotangent)

        labels = [f"argument {number}" for number in range(len(args))]
        return cls(fun, evaluate, pull, args, function_name(fun), labels)

    @property
    def numbers(self) -> list[int]:
        """The arguments that have a derivative."""
        return [number for number, arg in enumerate(self.args) if has_derivative(arg)]

    def moved(self, t: float, along: dict[int, Any]) -> list[Any]:
        """The arguments, some of them moved along their directions."""
        moved = [move_along(self.args[number], t, v) for number, v in along.items()]
        return substitute(self.args, along, moved)

    def tangents(self, along: dict[int, Any]) -> tuple:
        """The tangents of all arguments; zero for an argument without a direction."""
        args = enumerate(self.args)
        return tuple([along.get(n, still(x)) if has_derivative(x) else None for n, x in args])


class Fault(NamedTuple):
    """A derivative along a random line that differs from the slope by differences."""

    kind: str
    checked: Checked
    number: int
    derivative: float
    slope: float
    allowed: float

    def __str__(self) -> str:
        label = self.checked.labels[self.number]
        return (
            f"the {self.kind} of {self.checked.name!r} is wrong for {label} "
            f"({describe(self.checked.args[self.number])}): {self.numbers}"
        )

    @property
    def numbers(self) -> str:
        return (
            f"it gives {self.derivative:.12g} in a random direction, and differences give "
            f"{self.slope:.12g} (allowed: {self.allowed:.2g})"
        )


class Settings(NamedTuple):
    """Which derivatives are checked, and how exactly."""

    order: int
    modes: Sequence[str]
    rtol: float
    atol: float
    seed: int


class LineFunction(NamedTuple):
    """A real function of t near t = 0, known to ``epsilon`` relative to ``size``."""

    at: Callable[[float], float]
    epsilon: float
    size: float

    @property
    def step(self) -> float:
        return self.epsilon**0.2

    def slope(self) -> float:
        """Central differences with two steps, extrapolated: the error is O(step**4)."""
        coarse, fine = [
            (self.at(step) - self.at(-step)) / (2 * step) for step in (self.step, self.step / 2)
        ]
        return (4 * fine - coarse) / 3

    def allowed(self, derivative: float, slope: float, settings: Settings) -> float:
        noise = 20 * self.epsilon * self.size / self.step
        rtol = max(settings.rtol, 10 * self.epsilon**0.8)
        return settings.atol + rtol * max(abs(derivative), abs(slope)) + noise


def first_fault(checked: Checked, settings: Settings) -> Fault | None:
    """The first derivative that differs from differences by more than is allowed."""
    for kind, number, derivative, slope, line in comparisons(checked, settings):
        allowed = line.allowed(derivative, slope, settings)
        if not abs(slope - derivative) <= allowed:
            return Fault(kind, checked, number, derivative, slope, allowed)
    return None


Comparison = tuple[str, int, float, float, LineFunction]  # with the slope by differences


def comparisons(checked: Checked, settings: Settings) -> Iterator[Comparison]:
    """Derivatives along random lines: ⟨pullback(c), v⟩ and ⟨c, jvp(v)⟩ for each argument."""
    random = np.random.default_rng(settings.seed)
    value = checked.evaluate(*checked.args)
    cotangent = random_like(value, random)
    gradients = checked.pull(cotangent) if "reverse" in settings.modes else ()
    for number, direction in directions(checked, random):
        line = value_line(checked, value, cotangent, {number: direction})
        slope = line.slope()
        if gradients:
            yield REVERSE, number, inner(gradients[number], direction), slope, line
        if "forward" in settings.modes:
            tangent = tangent_of(checked, {number: direction})
            yield FORWARD, number, inner(cotangent, tangent), slope, line
    if settings.order == 2:
        yield from second(checked, value, cotangent, random)


def directions(checked: Checked, random: Any) -> Iterator[tuple[int, Any]]:
    """The numbers of arguments, with random directions of each."""
    for number in checked.numbers:
        for _ in range(DIRECTIONS):
            yield number, random_like(checked.args[number], random)


def value_line(checked: Checked, value: Any, cotangent: Any, along: dict[int, Any]) -> LineFunction:
    """t ↦ ⟨cotangent, f(x + t v)⟩."""

    def at(t: float) -> float:
        return inner(cotangent, checked.evaluate(*checked.moved(t, along)))

    moving = [epsilon(checked.args[number]) for number in along]
    return LineFunction(at, max(epsilon(value), *moving), size(cotangent, value))


def tangent_of(checked: Checked, along: dict[int, Any]) -> Any:
    try:
        return jvp(checked.fun, checked.args, checked.tangents(along))[1]
    except NotImplementedError as error:
        error.add_note(
            "daskgrad: check_grads checks forward mode, too; if you need only gradients, "
            "leave it out with modes=('reverse',)"
        )
        raise


def second(checked: Checked, value: Any, cotangent: Any, random: Any) -> Iterator[Comparison]:
    """⟨H v, w⟩ for a direction w of each argument, and a direction v of all arguments together."""
    require_double(checked, value, "checks of second derivatives")
    if not has_derivative(value):
        return
    scalar = scalar_of(checked.fun, value, cotangent)
    for _ in range(DIRECTIONS):
        along = {number: random_like(checked.args[number], random) for number in checked.numbers}
        gradients, products = hvp(scalar, checked.args, checked.tangents(along))
        for number in checked.numbers:
            other = random_like(checked.args[number], random)

            def at(t: float, number: int = number, other: Any = other, along: Any = along) -> float:
                """⟨gradient at x + t v, w⟩."""
                return inner(other, vjp(scalar, *checked.moved(t, along))[1](1.0)[number])

            line = LineFunction(at, epsilon(checked.args), size(other, gradients[number]))
            yield SECOND, number, inner(other, products[number]), line.slope(), line


def scalar_of(fun: Callable, value: Any, cotangent: Any) -> Callable[..., Node]:
    """``fun`` if its value is one real number, else its product with a cotangent."""
    if is_real_scalar([value]):
        return fun
    name = function_name(fun)
    return lambda *args: WEIGHTED(as_output(fun(*args), name), cotangent)


def weighted(value: Any, cotangent: Any) -> Any:
    pairs = zip(flatten(value)[0], flatten(cotangent)[0], strict=True)
    products = [(leaf * weight).sum() for leaf, weight in pairs if weight is not None]
    return sum(products[1:], products[0])


WEIGHTED = delayed(weighted, name="weighted")


def require_double(checked: Checked, value: Any, subject: str) -> None:
    if not is_double((checked.args, value)):
        raise TypeError(
            f"{subject} need real numbers in double precision; {checked.name!r} was called with "
            f"({', '.join(map(describe, checked.args))}) and returned {describe(value)}"
        )
