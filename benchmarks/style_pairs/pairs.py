"""Pairs, the derivatives that they ask for, and the plain model and sum of most of them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import optree

import daskgrad as dg

ROUNDING = 1e-10  # where the arithmetic differs

T = np.linspace(0.0, 3.0, 50)
Y = 2.0 * np.exp(-0.7 * T) + 0.01 * np.sin(40.0 * T)
X = np.array([1.5, 0.9])

random = np.random.default_rng(1)
TIMES = np.linspace(0.0, 2.0, 20)
SERIES = [(TIMES, values) for values in random.standard_normal((200, 20))]


def misfit(p, t, y):
    return np.sum((y - p[0] * np.exp(-p[1] * t)) ** 2)


def scaled(p, t, y, scale):
    return np.sum(((y - p[0] * np.exp(-p[1] * t)) / scale) ** 2)


def term(item, p):
    t, y = item
    return np.sum((y - p[0] * np.exp(-p[1] * t)) ** 2)


# ------------------------------------------------------------------------------------- derivatives


class Derivative(NamedTuple):
    """A derivative is a call, whose result differences of a function check."""

    call: Callable[[Any], Callable[[Any], Any]]
    fun: Callable[[Any], Callable[[Any], Any]]  # which is differenced
    rate: Callable[[Any], Any]  # of the call's result, along the direction of ones


def ones_like(point: Any) -> Any:
    return optree.tree_map(lambda leaf: np.ones_like(np.asarray(leaf)), point)


def total(tree: Any) -> Any:
    return sum([np.sum(leaf) for leaf in optree.tree_leaves(tree)])


def value_of(objective: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda x: objective(x).compute()


def terms_of(parts: tuple[Callable, Sequence]) -> Callable[[Any], Any]:
    model, items = parts
    return lambda x: np.array([model(item, x) for item in items])


VALUE_AND_GRAD = Derivative(dg.value_and_grad, value_of, lambda result: total(result[1]))
JVP = Derivative(
    lambda fun: lambda x: dg.jvp(fun, (x,), (ones_like(x),)), value_of, lambda result: result[1]
)
JACOBIAN = Derivative(dg.jacobian, value_of, lambda result: np.sum(result, axis=-1))
HVP = Derivative(
    lambda fun: lambda x: dg.hvp(fun, (x,), (ones_like(x),)), dg.grad, lambda result: result[1][0]
)
HESSIAN = Derivative(dg.hessian, dg.grad, lambda result: np.sum(result, axis=-1))
PER_ITEM = Derivative(
    lambda parts: dg.per_item(*parts, gradient="full"),
    terms_of,
    lambda result: np.sum(result[1], axis=-1),
)


# ------------------------------------------------------------------------------------------- pairs


@dataclass(frozen=True)
class Pair:
    """Two objectives have one value and one derivative, at a point."""

    name: str
    plain: Any
    styled: Any
    point: Any = None
    explained: tuple = ()  # a model and its arguments, for ``dg.explain``; else the objective
    derivative: Derivative = VALUE_AND_GRAD
    with_auxiliary: bool = False  # the styled one returns more than its value
    styled_point: Any = None  # if it has another form
    change: Callable[[int], None] = lambda call: None  # runs before each call, with its number
    rounding: float = 0.0  # by which results may differ; 0: they have the same bits


def of_model(name, model, *args, plain=(misfit, T, Y), point=X, **options):
    """Pairs two models, which are called with the point and constants."""
    plain_model, *rest = plain
    constants = tuple(rest)
    return Pair(
        name,
        lambda x: dg.delayed(plain_model)(x, *constants),
        lambda x: dg.delayed(model)(x, *args),
        point,
        explained=(model, options.get("styled_point", point), *args),
        **options,
    )


def of_sum(name, model, items, *args, plain=(term, SERIES), point=X, **options):
    """Pairs two sums over items."""
    plain_model, plain_items, *rest = plain
    constants = tuple(rest)
    return Pair(
        name,
        lambda x: dg.map_sum(plain_model, plain_items, x, *constants),
        lambda x: dg.map_sum(model, items, x, *args),
        point,
        explained=(model, items[0], options.get("styled_point", point), *args),
        **options,
    )
