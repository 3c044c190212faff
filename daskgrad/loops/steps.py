"""Steps: runs, traces and pulls back single steps of a loop with their arguments, on a worker."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from daskgrad.autodiff.models import finite
from daskgrad.autodiff.models.duals import Dual, is_dual
from daskgrad.autodiff.models.failures import Blame
from daskgrad.autodiff.models.model import Call, Model
from daskgrad.autodiff.models.pullbacks import plain_value
from daskgrad.autodiff.models.tracing import Active, Tracer
from daskgrad.autodiff.values import cotangents
from daskgrad.autodiff.values.cotangents import Leaves
from daskgrad.autodiff.values.descriptions import describe, require_pair
from daskgrad.autodiff.values.trees import flatten, unflatten


class Loop(NamedTuple):
    """A loop, without its model.

    The inputs of a step are the state, its row of ``xs`` if the loop ``has_xs``, and the shared
    inputs. ``outputs``: "stack" or "sum" if a step returns (state, output). ``active``: the
    differentiated inputs, the state always among them.
    """

    call: Call
    steps: int
    has_xs: bool = False
    outputs: str | None = None
    active: tuple[Active, ...] = ()

    @property
    def has_active_xs(self) -> bool:
        return self.has_xs and any(source.number == 1 for source in self.active)

    def differentiated(self, active: Iterable[Active]) -> "Loop":
        """This loop with the state and some other inputs active."""
        others = [source for source in active if source.number]
        first = next((source for source in active if not source.number), Active(0, watched=False))
        return self._replace(active=(first, *others))


class Steps:
    """The steps of a loop, with their inputs beside the state."""

    def __init__(self, stage: str, model: Model, loop: Loop, inputs: Sequence[Any]):
        self.loop = loop
        self.model = model._replace(keep="tape")  # a step keeps that, if anything
        self._stage = stage
        self._xs, *shared = inputs if loop.has_xs else (None, *inputs)
        self._shared = shared
        if loop.has_xs:
            require_rows(self._xs, loop.steps, model.name)
        self._rows, self._structure = flatten(self._xs)

    def advance(self, number: int, state: Any) -> tuple[Any, Any]:
        """The state after a step, and the step's output; traces nothing."""
        inputs = self._inputs(number, state)
        with self._blame(number, inputs):
            value = plain_value(self.model, self.loop.call, inputs)
            if finite.is_required():
                finite.require(self._blame(number, inputs), "the value", value)
            after, output = parts_of(value, self.loop.outputs, self.model.name)
            require_alike(after, state, self.model.name)
            return after, output

    def trace(self, number: int, state: Any) -> tuple[Any, Any, Callable[[Leaves], Leaves]]:
        """Runs a step: the state and the output that it returned, and the pullback from the leaves
        of both to the active inputs' leaves."""
        inputs = self._inputs(number, state)
        with self._blame(number, inputs):
            tracer = Tracer(self.model, self.loop.call, self.loop.active, inputs)
            value, pullback = tracer.run(inputs)
            after, output = parts_of(value, self.loop.outputs, self.model.name)
        places = places_of(value, self.loop.outputs)
        leaves = flatten(value)[0]

        def pull(arrived: Leaves) -> Leaves:
            seeds = [arrived[place] for place in places]
            with self._blame(number, inputs):
                pulled = pullback(tuple(map(cotangents.seed, seeds, leaves)))
                if finite.is_required():
                    where = self._blame(number, inputs)
                    finite.require_pulled(where, self.loop.active, pulled)
            return pulled

        return after, output, pull

    def widths(self, state: Any) -> list[int]:
        """The number of leaves of each active input."""
        inputs = [state, *([self._xs] if self.loop.has_xs else []), *self._shared]
        return [len(flatten(inputs[source.number])[0]) for source in self.loop.active]

    def _inputs(self, number: int, state: Any) -> list[Any]:
        if not self.loop.has_xs:
            return [state, *self._shared]
        row = [None if leaf is None else leaf[number] for leaf in self._rows]
        return [state, unflatten(self._structure, row), *self._shared]

    def _blame(self, number: int, inputs: Sequence[Any]) -> Blame:
        return Blame(self._stage, self.model, self.loop.call, inputs, f"step {number}")


# ------------------------------------------------------------------------- the value of a step


def parts_of(value: Any, outputs: str | None, name: str) -> tuple[Any, Any]:
    """The state and the output in a step's value; of a dual, the duals of both."""
    if outputs is None:
        return value, ()
    if not is_dual(value):
        demand = f"with outputs={outputs!r}, the step {name!r} must return a pair (state, output)"
        return require_pair(value, demand)
    pair = require_pair(value.value, f"the step {name!r} must return a pair (state, output)")
    return tuple(  # type: ignore[return-value]
        [Dual(pair[n], tuple([tangent[n] for tangent in value.tangents])) for n in (0, 1)]
    )


def places_of(value: Any, outputs: str | None) -> Sequence[int]:
    """For each leaf of a step's value, its place among the leaves of the state and the output."""
    leaves, structure = flatten(value)
    if outputs is None:
        return range(len(leaves))
    numbered = unflatten(structure, list(range(len(leaves))))
    order = flatten(parts_of(numbered, outputs, ""))[0]
    places = [0] * len(leaves)
    for place, leaf in enumerate(order):
        places[leaf] = place
    return places


def require_alike(after: Any, before: Any, name: str) -> None:
    """Raises unless a step returned a state of the structure, shapes and dtypes that it got."""
    (leaves, structure), (others, other) = flatten(after), flatten(before)
    if structure == other and all(map(are_alike, leaves, others)):
        return
    raise TypeError(
        f"the step {name!r} must return a state with the structure, shapes and dtypes of the one "
        f"that it got; it got {describe(before)} and returned {describe(after)}"
    )


def are_alike(after: Any, before: Any) -> bool:
    if type(after) is type(before) is np.ndarray:
        return after.shape == before.shape and after.dtype == before.dtype
    if before is None or isinstance(before, str):
        return after == before
    return np.shape(after) == np.shape(before) and kind(after) == kind(before)


def kind(leaf: Any) -> Any:
    """The dtype of a leaf, also of other libraries' arrays."""
    return getattr(leaf, "dtype", None) or np.asarray(leaf).dtype


def require_rows(xs: Any, steps: int, name: str) -> None:
    """Raises unless each leaf of ``xs`` is an array with a row for each step."""
    for leaf in flatten(xs)[0]:
        if leaf is None:  # the tangent of integers
            continue
        rows = np.shape(leaf)[:1]
        if rows != (steps,):
            raise ValueError(
                f"the xs of the loop {name!r} must be arrays with a row for each of {steps} steps; "
                f"found {describe(leaf)}"
            )


# -------------------------------------------------------------------------------------------------
# Stacking: many steps' rows of values and cotangents, side by side.


def stack(values: Sequence[Any]) -> Any:
    """Values of one structure, with their leaves side by side along a new first axis."""
    return leaf_by_leaf(np.stack, values)


def concatenate(stacks: Sequence[Any]) -> Any:
    """Stacks, one after the other."""
    return stacks[0] if len(stacks) == 1 else leaf_by_leaf(np.concatenate, stacks)


def leaf_by_leaf(join: Callable[[Sequence[Any]], Any], values: Sequence[Any]) -> Any:
    leaves = zip(*[flatten(value)[0] for value in values], strict=True)
    joined = [None if group[0] is None else join(group) for group in leaves]
    return unflatten(flatten(values[0])[1], joined)


def stack_cotangents(rows: Sequence[Leaves]) -> Leaves:
    """The cotangents of consecutive rows side by side; ``None`` where all rows have none."""
    return tuple(
        [join_there(np.stack, group, [()] * len(group)) for group in zip(*rows, strict=True)]
    )


def concatenate_cotangents(stacks: Sequence[Leaves], counts: Sequence[int]) -> Leaves:
    """The cotangents of stacks with so many rows, one after the other."""
    shapes = [(count,) for count in counts]
    groups = zip(*stacks, strict=True)
    return tuple([join_there(np.concatenate, group, shapes) for group in groups])


def join_there(join: Callable, group: Sequence[Any], shapes: Sequence[tuple]) -> Any:
    """Cotangents joined, with zeros for symbolic zeros unless all are.

    ``shapes``: each cotangent's lengths along the first axes, which may differ.
    """
    first = next((cotangent for cotangent in group if cotangent is not None), None)
    if first is None:
        return None
    common = np.shape(first)[len(shapes[0]) :]
    return join(
        [
            np.zeros((*shape, *common), first.dtype) if cotangent is None else cotangent
            for cotangent, shape in zip(group, shapes, strict=True)
        ]
    )
