"""Ways: programs for the ways of calls through a model's branches, of one item or of many."""

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from daskgrad.autodiff.programs.batches import EXAMPLES, batched
from daskgrad.autodiff.programs.boxes import Unrecordable
from daskgrad.autodiff.programs.calls import (
    STATEMENTS,
    CallList,
    NumpyCall,
    all_calls,
    calls_in,
    value_of,
)
from daskgrad.autodiff.programs.carried import Reads
from daskgrad.autodiff.programs.counters import Counted
from daskgrad.autodiff.programs.program import Program, written, written_as_one
from daskgrad.autodiff.programs.recording import record
from daskgrad.autodiff.programs.references import recorded_on, require_used
from daskgrad.autodiff.programs.rewrites import rewritten
from daskgrad.autodiff.programs.rolling import rolled
from daskgrad.autodiff.programs.signatures import (
    Signature,
    carried_places,
    has_changed,
    inputs_of,
)
from daskgrad.autodiff.programs.watch import References
from daskgrad.autodiff.tape.traced_call import FlatArguments
from daskgrad.autodiff.values.addition import power_of_two
from daskgrad.autodiff.values.trees import LEAF, flatten, substitute, unflatten

BATCH_BYTES = 2**17  # of the largest array in a batch: all of them stay in the caches of a core
LEAST, MOST = 8, 1024  # items of a batch
MOST_LOOPS = 0.2  # of its calls: to loop over one takes longer than the item's own


class Way(NamedTuple):
    """A program for one way through the model's branches, and the structure of its value.

    ``asked``: the numbers of the arrays with rows as cotangents; ``tape_nbytes``: of arrays that
    the tape holds for such a call; ``context``: a whole evaluation runs in it; ``name`` and
    ``calls``: its name and the numbers of its models' calls, for observers; ``counted``: what a
    call adds to counters.
    """

    program: Program
    structure: Any
    asked: Sequence[int]
    tape_nbytes: int = 0
    context: Any = None
    name: str = ""
    calls: Any = None
    counted: Sequence[Counted] = ()


class BatchProgram(NamedTuple):
    """``run`` takes the inputs of a way, some of them stacked, and the cotangents of its outputs;
    it returns outputs, and cotangents of the traced arrays, as rows, for at most ``size`` items.
    ``loops``: functions that are called for each item; ``tally``: the counts of runs and rows."""

    run: Callable[..., list]
    size: int
    loops: Sequence[str]
    tally: list[int]


def make_way(
    fun: Callable,
    layout: FlatArguments,
    signature: Signature,
    name: str,
    watch: References | None = None,
) -> Way:
    """Records a call, and writes its program; Unrecordable, or the model's own error."""
    calls, examples, structure, _ = recorded_way(fun, layout, signature, watch)
    structure = LEAF if structure == LEAF else structure
    return Way(written(calls, name, examples), structure, layout.asked)


def make_batch(
    fun: Callable,
    layout: FlatArguments,
    signature: Signature,
    own: Sequence[int],
    watch: References,
) -> BatchProgram | None:
    """The program of many calls of one way that differ in the inputs ``own``; None if they take
    less time one by one, or return anything but a number and gradients of it."""
    item, _, structure, active = recorded_way(fun, layout, signature, watch)
    value, *gradients = item.outputs
    pairs = [(item.inputs[place].value, g) for place, g in zip(active, gradients, strict=True)]
    is_usual = structure == LEAF and isinstance(value_of(value), float)
    if not (is_usual and all([g is None or are_like(x, value_of(g)) for x, g in pairs])):
        return None
    calls, loops = batched(item, own)
    held = [getattr(call.value, "nbytes", 0) for call in all_calls(calls.calls)]
    largest = max(held) // EXAMPLES
    size = min(MOST, BATCH_BYTES // max(largest, 1))
    slow = [loop for loop in loops if not loop.is_quick]
    if size < LEAST or len(slow) > MOST_LOOPS * len(list(all_calls(item.calls))):
        return None
    names = [getattr(loop.fun, "__name__", "c") for loop in loops]
    return BatchProgram(written_as_one(calls), power_of_two(size), names, [0, 0])


def are_like(leaf: Any, gradient: Any) -> bool:
    kinds = [(np.shape(each), np.result_type(each)) for each in (leaf, gradient)]
    return kinds[0] == kinds[1]


def recorded_way(
    fun: Callable, layout: FlatArguments, signature: Signature, watch: References | None
) -> tuple[CallList, list[Any], Any, list[int]]:
    """The calls of a call of the model, examples of its cotangents, its value's structure, and
    which inputs are differentiated; the ``watch`` knows which leaves are references."""
    numbers = [layout.places[place] for place in signature.places]
    structures, count = [], layout.structure.num_leaves
    reads = Reads({place: type(layout.leaves[place]) for place in carried_places(signature)})

    def leaves_of_value(*boxes: Any) -> list[Any]:
        leaves = substitute(layout.leaves, signature.places, boxes)
        leaves = substitute(leaves, reads.places, reads.objects)
        traced = dict(zip(numbers, boxes, strict=True))
        for place, number in enumerate(layout.places):
            if number is not None:  # an array may be passed twice
                leaves[place] = traced[number]
        arguments, references = leaves[:count], leaves[count:]
        args, kwargs = unflatten(layout.structure, arguments)
        function, remade = fun, None
        if watch is not None and references:
            function, remade = recorded_on(fun, watch, references)
        try:
            outputs, structure = flatten(function(*args, **kwargs))
        finally:
            if remade is not None:
                remade.hand_back()
        if remade is not None:
            remade.require_unchanged()
        if has_changed(layout.structure, arguments, (args, kwargs)):
            raise Unrecordable("the model changes an object that is an argument")
        structures.append(structure)
        return outputs

    order = {number: place for place, number in enumerate(numbers) if number is not None}
    active = [order[number] for number in sorted(order)]
    inputs = inputs_of(layout, signature)
    pull = getattr(fun, "pull", None)
    with uncollected():
        calls, examples = reads.of(
            lambda: record(leaves_of_value, inputs, active, layout.asked, pull)
        )
        if watch is not None and watch.inputs:
            require_used(calls, watch, len(inputs) - len(watch.inputs))
        if not getattr(fun, "has_value", True):  # and no pullback
            others = unused(calls)
            outputs, examples = [*calls.outputs, *others], examples + [None] * len(others)
            calls = calls._replace(outputs=outputs, value_count=len(outputs))
        return rewritten(rolled(calls)), examples, structures[0], active


@contextmanager
def uncollected() -> Iterator[None]:
    """A context without Python's garbage collector: it would look at all calls of a recording again
    and again, which all stay, for half of the time."""
    is_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if is_enabled:
            gc.enable()


def unused(program: CallList) -> list[NumpyCall]:
    """The calls whose numbers nobody takes."""
    used = {*calls_in(program.outputs)}
    for call in program.calls:
        used.update(calls_in((call.args, call.kwargs)))
    calls = [call for call in program.calls if call not in used and call.fun not in STATEMENTS]
    return [call for call in calls if getattr(call.value, "dtype", np.dtype(bool)).kind in "fc"]
