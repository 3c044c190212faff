"""Tracing: runs a model on inputs, some of them traced, and checks its value."""

import itertools
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from daskgrad.autodiff.libraries import registry
from daskgrad.autodiff.models.captured import (
    Gradient,
    Pullback,
    Seen,
    held_nbytes,
    pull_tape,
    put_in_places,
)
from daskgrad.autodiff.models.model import Call, Model, load, run, run_as_model
from daskgrad.autodiff.tape import reverse
from daskgrad.autodiff.tape.boxes import NESTED, TAPE_BOXES
from daskgrad.autodiff.tape.questions import PLAIN, answer_arguments
from daskgrad.autodiff.tape.traced_call import FlatArguments, TracedBlock, TracedCall, recorder
from daskgrad.autodiff.values import clock, cotangents
from daskgrad.autodiff.values.cotangents import Leaves, Seed
from daskgrad.autodiff.values.descriptions import describe
from daskgrad.autodiff.values.fingerprints import fingerprint
from daskgrad.autodiff.values.memory import row_major
from daskgrad.autodiff.values.protection import protect, read_only_leaf, release_view
from daskgrad.autodiff.values.trees import LEAF_TYPES, flatten, substitute, unflatten


class Active(NamedTuple):
    """An input that is differentiated; ``watched`` if it may differ when computed again.

    ``asked``: the numbers of its leaves that should have rows as cotangents.
    """

    number: int
    watched: bool
    asked: tuple[int, ...] = ()


def as_moved(value: Any) -> Any:
    """A value with its arrays in C order, as after a move."""
    if isinstance(value, float | np.generic):
        return value
    leaves, structure = flatten(value)
    return unflatten(structure, list(map(release_leaf, leaves)))


def release_leaf(leaf: Any) -> Any:
    """A leaf of a model's value in C order; a copy of a read-only view of an argument."""
    return release_view(row_major(leaf)) if isinstance(leaf, np.ndarray) else leaf


def places_of_arrays(leaves: Leaves) -> tuple[int, ...]:
    """The places of the leaves that are traced."""
    return tuple([n for n, leaf in enumerate(leaves) if cotangents.is_differentiable(leaf)])


class Tracer:
    """Runs one model on inputs, some of them traced, which are flattened once.

    ``in_sum``: the call is a term of a sum: gradients add up, and tapes do not.
    """

    def __init__(
        self,
        model: Model,
        call: Call,
        active: Sequence[Active],
        inputs: Sequence[Any],
        in_sum: bool = False,
    ):
        self._in_sum = in_sum
        self._model = model
        self._call = call
        self._backend: Any = registry.load(model.backend)
        self._are_writeable = registry.finds_writes(self._backend)
        self._trees = [(each.number, *flatten(inputs[each.number])) for each in active]
        self._primals = self._leaves_of(self._trees)
        self._places = places_of_arrays(self._primals)
        self._arrays = tuple([self._primals[place] for place in self._places])
        self._asked: Sequence[int] = ()
        if [each for each in active if each.asked]:
            self._asked = self._arrays_asked(active)
        self._numbers: dict[Any, tuple[int | None, ...]] = {}  # by the structure of arguments
        load(model)
        if not PLAIN.issuperset(map(type, call.leaves)):
            answer_arguments(call.leaves)
        self.fun = registry.prepare(self._backend, model.fun)

    def with_item(self, trees: Sequence[tuple[int, list[Any], Any]]) -> "Tracer":
        """This tracer with further active inputs before its own: number, leaves, structure."""
        leaves = self._leaves_of(trees)
        places = places_of_arrays(leaves)
        other = object.__new__(Tracer)
        vars(other).update(vars(self))  # copy.copy takes a third of a small item's time
        other._trees = [*trees, *self._trees]
        other._primals = (*leaves, *self._primals)
        other._places = (*places, *[place + len(leaves) for place in self._places])
        other._arrays = tuple([other._primals[place] for place in other._places])
        other._asked = [n + len(places) for n in self._asked]
        other._numbers = {}
        return other

    def _arrays_asked(self, active: Sequence[Active]) -> list[int]:
        """The numbers of the traced arrays that should have rows as cotangents."""
        widths = [len(leaves) for _, leaves, _ in self._trees]
        starts = itertools.accumulate(widths, initial=0)
        asked = {start + n for start, each in zip(starts, active, strict=False) for n in each.asked}
        return [number for number, place in enumerate(self._places) if place in asked]

    def _leaves_of(self, trees: Sequence[tuple[int, list[Any], Any]]) -> Leaves:
        """The leaves of active inputs, read-only for the model."""
        leaves = []
        for _, tree, _ in trees:
            leaves += tree
        return tuple(leaves if self._are_writeable else map(read_only_leaf, leaves))

    def seen(self, active: Sequence[Active]) -> tuple[Seen, ...]:
        """Fingerprints and widths of the constructor's active inputs."""
        return seen_of(active, [leaves for _, leaves, _ in self._trees])

    def run(self, inputs: Sequence[Any], known: Any = None) -> tuple[Any, Any]:
        """The value on ``inputs``, with the constructor's active ones, and its pullback.

        ``known``: see ``TracedCall``."""
        if not self._arrays:
            value = as_moved(run(self._model, self._call, inputs))
            require_numbers(flatten(value)[0], value, self._model)
            return value, self._zero()
        value, leaves, tape = self._trace(inputs, known)
        if self._model.keep == "recompute":  # traced all the same, so that no model keeps a value
            require_numbers(leaves, value, self._model)
            return value, Pullback()
        if is_real_scalar(leaves):
            return value, self._pullback_of_scalar(leaves[0], tape)
        is_array = type(value) is np.ndarray and value.dtype.kind in "fc"
        if is_array and self._model.keep != "gradient":  # as most are
            return value, self._of_tape(tape)
        require_numbers(leaves, value, self._model)
        return value, self._pullback(leaves, tape)

    @property
    def is_at_once(self) -> bool:
        """Whether the backend may evaluate many terms of a sum at once, and keep gradients."""
        return (
            self._in_sum
            and not self._asked
            and self._model.keep in ("auto", "gradient")
            and hasattr(self._backend, "trace_block")
            and recorder.get() is None
        )

    @property
    def arrays(self) -> Sequence[Any]:
        """The traced leaves of the constructor's active inputs."""
        return self._arrays

    def call(self, inputs: Sequence[Any]) -> tuple[TracedCall, Sequence[Any]]:
        """The call on ``inputs`` as a backend traces it, a function of the arrays."""
        return TracedCall(self, inputs), self._arrays

    def block(self, block: TracedBlock) -> Iterator[Any]:
        """The backend's results for the items of a block, in runs (``libraries.registry``)."""
        runs = self._backend.trace_block(block)
        return iter(lambda: run_as_model(next, runs, None), None)

    def is_batched(self, block: TracedBlock) -> bool:
        """Whether the backend evaluates items like a block's first together."""
        has_batches = self.is_at_once and hasattr(self._backend, "is_batched")
        return has_batches and run_as_model(self._backend.is_batched, block)

    def captured(self, value: Any, gradient: Sequence[Any]) -> tuple[Any, Gradient]:
        """Value and gradient of an item, as ``run`` returns them."""
        return value, Gradient(put_in_places(gradient, self._primals, self._places))

    def rows_in_places(self, gradients: Sequence[Any]) -> Leaves:
        """Rows for many terms, in the places of the active leaves."""
        return tuple(substitute([None] * len(self._primals), self._places, gradients))

    def _trace(self, inputs: Sequence[Any], known: Any) -> tuple[Any, list[Any], Any]:
        call, start = TracedCall(self, inputs, known), clock.seconds()
        trace, backend = recorder.get(), self._model.backend
        # another backend than autograd's traces its own calls; machine code is not on tapes
        is_recorded = backend == "autograd" or registry.is_compiled(backend)
        is_recorded &= not (backend == registry.NATIVE and trace is reverse.trace)
        if trace is None or not is_recorded:
            trace = self._backend.trace
        leaves, tape = run_as_model(trace, call, self._arrays)
        self._seconds = clock.seconds() - start
        leaves = list(map(release_leaf, leaves))
        return unflatten(call.structure, leaves), leaves, tape

    def boxed_arguments(self, inputs: Sequence[Any], boxes: Sequence[Any]) -> tuple[tuple, dict]:
        """The arguments of the call on ``inputs``, with boxes for the leaves that are traced."""
        if not PLAIN.issuperset(map(type, inputs)):
            answer_arguments(inputs)
        return self._call.arguments_of_run(self._box(inputs, boxes), self._are_writeable)

    def arguments(self, inputs: Sequence[Any]) -> list[Any]:
        """The leaves of the arguments of the call on ``inputs``, where each input is one leaf."""
        return self._call.filled(inputs)

    def layout(self, inputs: Sequence[Any]) -> FlatArguments:
        """The arguments of the call on ``inputs``, flattened."""
        if not PLAIN.issuperset(map(type, inputs)):
            answer_arguments(inputs)
        leaves = self._call.filled(inputs)
        if LEAF_TYPES.issuperset(map(type, leaves)):  # as most are: nothing is to be flattened
            structure, numbers = self._call.structure.spec, self._put_arrays(leaves)
        else:
            leaves, structure = flatten(self._call.structure.unflatten(leaves))
            numbers_known = self._numbers.get(structure)
            numbers = self._numbers_of_arrays(inputs) if numbers_known is None else numbers_known
            if self._in_sum:  # equal structures have the same leaves in the same arguments
                self._numbers[structure] = numbers
        return FlatArguments(protect(leaves, self._are_writeable), structure, numbers, self._asked)

    def _put_arrays(self, leaves: list[Any]) -> tuple[int | None, ...]:
        """Puts the traced arrays, which are protected, in their places among leaves that are the
        inputs; returns the number of the array for each leaf, or None."""
        owners = [number for number, leaves, _ in self._trees for _ in leaves]
        traced = {owners[place]: n for n, place in enumerate(self._places)}
        numbers: list[int | None] = [None] * len(leaves)
        for position, number in self._call.holes:
            n = numbers[position] = traced.get(number)
            if n is not None:
                leaves[position] = self._arrays[n]
        return tuple(numbers)

    def _numbers_of_arrays(self, inputs: Sequence[Any]) -> tuple[int | None, ...]:
        """For each leaf of the arguments, the number of the traced array, or None."""
        primals = [(number, n) for number, leaves, _ in self._trees for n in range(len(leaves))]
        numbers: dict[Any, int] = {primals[place]: n for n, place in enumerate(self._places)}
        return tuple([numbers.get(origin) for origin in self.origins(inputs)])

    def origins(self, inputs: Sequence[Any]) -> list[tuple[int, int] | None]:
        """For each leaf of the arguments its input's number and its place in it, or None."""
        holes = dict(self._call.holes)
        origins: list[tuple[int, int] | None] = []
        for position in range(len(self._call.leaves)):
            hole = holes.get(position)
            width = 0 if hole is None else len(flatten(inputs[hole])[0])
            origins.extend([None] if hole is None else [(hole, n) for n in range(width)])
        return origins

    def _box(self, inputs: Sequence[Any], boxes: Sequence[Any]) -> list[Any]:
        mixed, boxed = substitute(self._primals, self._places, boxes), list(inputs)
        start = 0
        for number, leaves, structure in self._trees:
            stop = start + len(leaves)
            boxed[number] = unflatten(structure, mixed[start:stop])
            start = stop
        return boxed

    def _pullback(self, leaves: Sequence[Any], tape: Any) -> Pullback | Gradient:
        """The pullback to keep if the value is not one real number."""
        if not any(map(cotangents.is_differentiable, leaves)):
            return self._zero()
        if self._model.keep == "gradient":
            raise ValueError(
                f"keep='gradient' needs a model that returns one real number; "
                f"{self._model.name!r} returned {', '.join(map(describe, leaves))}"
            )
        return self._of_tape(tape)

    def _of_tape(self, tape: Any) -> Pullback:
        return Pullback(tape, self._primals, self._places, self._seconds, self._asked)

    def _pullback_of_scalar(self, value: Any, tape: Any) -> Pullback | Gradient:
        """The pullback to keep, which ``keep`` and shapes decide alone, for the bits' sake."""
        if not self._keeps_gradient(tape):
            return self._of_tape(tape)
        try:
            seed = (SEED.as_like(value),)
            where = (self._primals, self._places, self._asked)
            return Gradient(pull_tape(tape, seed, *where, self._in_sum))
        except Exception as error:
            error.add_note(
                f"daskgrad: in the backward pass of model {self._model.name!r}, which runs in the "
                f"forward task, because the model returned one real number"
            )
            raise

    def _keeps_gradient(self, tape: Any) -> bool:
        if self._model.keep != "auto":
            return self._model.keep == "gradient"
        if self._in_sum:
            return True
        dense = [array for n, array in enumerate(self._arrays) if n not in self._asked]
        size = cotangents.nbytes(dense)
        if size <= cotangents.SMALL:
            return True
        held = getattr(tape, "tape_nbytes", None)  # a program counts as the tape that it replaces
        return size <= (held_nbytes(tape) if held is None else held)

    def _zero(self) -> Gradient:
        return Gradient((None,) * len(self._primals))


SEED = Seed()


def is_real_scalar(leaves: Sequence[Any]) -> bool:
    """Whether a value is one real floating-point number."""
    if len(leaves) != 1:
        return False
    (leaf,) = leaves
    if type(leaf) is np.float64:
        return True
    if isinstance(leaf, np.ndarray):
        return leaf.shape == () and leaf.dtype.kind == "f"
    return isinstance(leaf, float | np.floating)


def require_numbers(leaves: Sequence[Any], value: Any, model: Model) -> None:
    """Checks that a differentiated model returned numbers, or containers of numbers."""
    require_no_objects(leaves, model)
    for leaf in leaves:
        if type(leaf) is np.ndarray:
            continue
        if isinstance(leaf, np.ma.MaskedArray):  # its cotangent would be a plain array
            raise TypeError(
                f"model {model.name!r} returned a masked array, {describe(leaf)}, whose mask a "
                f"derivative would lose; fill it, or return the entries that are not masked"
            )
        is_label = leaf is not value and isinstance(leaf, str | None)
        if not (is_label or isinstance(leaf, NUMBERS)):
            if type(leaf) in TAPE_BOXES:
                raise TypeError(
                    f"model {model.name!r} returned a traced value of another model, within which "
                    f"it was differentiated; {NESTED}"
                )
            raise TypeError(
                f"model {model.name!r} returned {describe(leaf)}; expected numbers or arrays, or "
                f"dicts, lists, tuples and registered dataclasses of them"
                + (f"; {CALL_THE_FUNCTION}" if hasattr(leaf, "__dask_graph__") else "")
            )


NUMBERS = (np.ndarray, np.generic, int, float, complex)


def require_no_objects(leaves: Sequence[Any], model: Model) -> None:
    """Raises for arrays of objects and for tables of pandas and xarray: they hide traced values."""
    for leaf in leaves:
        if isinstance(leaf, np.ndarray):
            if leaf.dtype.kind == "O":
                raise TypeError(
                    f"model {model.name!r} returned an array of Python objects, such as np.array "
                    f"makes of traced numbers; write np.stack([...]) for np.array([...])"
                )
        elif hasattr(type(leaf), "to_numpy"):
            raise TypeError(
                f"model {model.name!r} returned {describe(leaf)}; expected numbers or arrays: "
                f"return .data of xarray's objects, and .to_numpy() of pandas'"
            )


def seen_by(active: Sequence[Active], inputs: Sequence[Any]) -> tuple[Seen, ...]:
    return seen_of(active, [flatten(inputs[active_input.number])[0] for active_input in active])


def seen_of(active: Sequence[Active], leaves: Sequence[Sequence[Any]]) -> tuple[Seen, ...]:
    pairs = [(a.watched, primals) for a, primals in zip(active, leaves, strict=True)]
    return tuple([(fingerprint(x) if is_watched else None, len(x)) for is_watched, x in pairs])


CALL_THE_FUNCTION = "inside a model, call the plain function, not the one from dg.delayed"
