"""Duals: values with their tangents, and models that push both forward.

A model on duals is a model: it runs in a task, adds up in a sum, and is pulled back. The gradient
of a tangent is a Hessian-vector product (reverse over forward mode): the gradient of <∇f(x), v> is
H v with respect to x, and ∇f(x) with respect to v.
"""

import copy
from collections.abc import Callable, Sequence
from itertools import compress, islice
from typing import Any, NamedTuple

import numpy as np
import optree

from daskgrad.autodiff.libraries import registry
from daskgrad.autodiff.models.model import Model, SentFunction
from daskgrad.autodiff.models.tracing import require_no_objects, require_numbers
from daskgrad.autodiff.values.carriers import carrier
from daskgrad.autodiff.values.cotangents import is_differentiable, zeros
from daskgrad.autodiff.values.descriptions import describe
from daskgrad.autodiff.values.protection import protect
from daskgrad.autodiff.values.trees import NAMESPACE, flatten, map_leaves


class Dual(NamedTuple):
    """A value and its tangents, one for each direction, in the value's structure.

    The tangent of an integer is zero, so that duals can be added; a string's is ``None``.
    """

    value: Any
    tangents: tuple[Any, ...]


def is_dual(value: Any) -> bool:
    return type(value) is Dual


@carrier
class Pushforward:
    """The function of a model on duals; ``tangent_only``: it returns its only tangent."""

    model: Model
    tangent_only: bool

    @property
    def daskgrad_pushed(self) -> tuple[Callable, bool]:
        """The function and ``tangent_only``, for a backend that compiles this."""
        fun: Any = self.model.fun
        return fun.load() if isinstance(fun, SentFunction) else fun, self.tangent_only

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        arguments = DualArguments(args, kwargs)
        outputs, push, structure = linearized(self.model, arguments)
        tangents = [
            optree.tree_unflatten(structure, list(map(or_zeros, push(direction), outputs)))
            for direction in arguments.directions
        ]
        if self.tangent_only:
            require_tangent(tangents[0], outputs, self.model)
            return tangents[0]
        return Dual(optree.tree_unflatten(structure, outputs), tuple(tangents))


def linearized(model: Model, arguments: "DualArguments") -> tuple[list[Any], Callable, Any]:
    """The leaves of a model's value, the map of tangents, and the value's structure."""
    structures: list[Any] = []
    function = arguments.function_of(model, structures)
    outputs, push = registry.load(model.backend).linearize(function, arguments.values)
    require_numbers([leaf for leaf in outputs if not hasattr(leaf, "dtype")], (), model)
    return outputs, push, structures[0]


def require_tangent(tangent: Any, outputs: Sequence[Any], model: Model) -> None:
    if any(leaf is None for leaf in flatten(tangent)[0]):
        raise TypeError(
            f"{model.name!r} cannot be differentiated: its value must be one real number; found "
            f"{', '.join(map(describe, outputs))}"
        )


class DualArguments:
    """The arguments of a call; ``values``: leaves with tangents; ``directions``: the tangents."""

    def __init__(self, args: tuple, kwargs: dict):
        arguments: Any = (args, kwargs)
        self._leaves, self._structure = optree.tree_flatten(
            arguments, is_leaf=is_dual, none_is_leaf=True, namespace=NAMESPACE
        )
        self._trees = {
            place: flatten(leaf.value) for place, leaf in enumerate(self._leaves) if is_dual(leaf)
        }
        duals = [self._leaves[place] for place in self._trees]
        self._flat = [leaf for leaves, _ in self._trees.values() for leaf in leaves]
        directions = [
            [leaf for tangent in tangents for leaf in flatten(tangent)[0]]
            for tangents in zip(*[dual.tangents for dual in duals], strict=True)
        ]
        self._there = [
            tangent is not None and can_move(leaf)
            for tangent, leaf in zip(directions[0], self._flat, strict=True)
        ]
        self.values = list(compress(self._flat, self._there))
        self.directions = [list(compress(direction, self._there)) for direction in directions]

    def renewed(self) -> "DualArguments":
        """The arguments with copies of random generators, for one run of several."""
        other = copy.copy(self)
        other._leaves = protect([None if is_dual(leaf) else leaf for leaf in self._leaves])
        return other

    def function_of(self, model: Model, structures: list[Any]) -> Callable[..., list[Any]]:
        """The leaves of a model's value, as a function of ``values``, which appends the value's
        structure to ``structures``."""

        def function(*arrays: Any) -> list[Any]:
            args, kwargs = self.with_values(arrays)
            leaves, structure = flatten(model.fun(*args, **kwargs))
            require_no_objects(leaves, model)
            structures.append(structure)
            return leaves

        return function

    def with_values(self, arrays: Sequence[Any]) -> Any:
        """The arguments without duals, with ``arrays`` for ``values``."""
        values, mixed = iter(arrays), list(self._leaves)
        pairs = zip(self._flat, self._there, strict=True)
        flat = iter([next(values) if is_there else leaf for leaf, is_there in pairs])
        for place, (leaves, structure) in self._trees.items():
            mixed[place] = optree.tree_unflatten(structure, list(islice(flat, len(leaves))))
        return optree.tree_unflatten(self._structure, mixed)


def can_move(leaf: Any) -> bool:
    """Whether a leaf, or a box, tracer or tensor of one, is a float or complex number."""
    dtype = getattr(leaf, "dtype", None)
    if dtype is None:
        return isinstance(leaf, float | complex)
    kind = getattr(dtype, "kind", None)
    return dtype.is_floating_point or dtype.is_complex if kind is None else kind not in "biu"


def or_zeros(tangent: Any, output: Any) -> Any:
    """A tangent, or zeros if the backend has none for an output that is a number."""
    is_number = isinstance(output, bool | int | float | complex) or hasattr(output, "dtype")
    if tangent is not None or not is_number:
        return tangent
    return np.zeros(tuple(getattr(output, "shape", ())))[()]


def dual_of(value: Any, tangents: tuple[Any, ...]) -> Dual:
    """The dual of a value and a user's tangents, with zeros for ``None`` at integers."""
    return Dual(value, tuple([map_leaves(or_zeros, tangent, value) for tangent in tangents]))


def with_zero_tangents(value: Any, count: int) -> Dual:
    """The dual of a value that depends on no variable."""
    zero = map_leaves(lambda leaf: or_zeros(zeros(leaf), leaf), value)
    return Dual(value, (zero,) * count)


def tangent_in_place(value: Any, tangent: Any) -> Any:
    """A tangent for users: ``None`` for all leaves without derivative."""
    return map_leaves(lambda leaf, t: t if is_differentiable(leaf) else None, value, tangent)


def tangent_of(dual: Dual, number: int = 0) -> Any:
    return dual.tangents[number]


def push_forward(model: Model, tangent_only: bool = False) -> Model:
    """The model on duals. It keeps its tape unless its value is a single number."""
    fun: Callable = Pushforward(model, tangent_only)
    keep = model.keep if tangent_only or model.keep == "recompute" else "tape"
    return model._replace(fun=fun, keep=keep)
