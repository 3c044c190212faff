"""Recording: runs a model and its pullback once, and writes down each call that they make.

All arrays of a call are in boxes, the differentiated ones and all data, so that no data is taken
for a constant. Rules of the tape run on boxes, too. A rule that looks at numbers cannot: its
pullback becomes one call of the program.
"""

import math
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import autograd.numpy as anp
import numpy as np
from autograd.numpy.numpy_vjps import untake

from daskgrad.autodiff.programs.boxes import (
    GETITEM,
    HIDDEN,
    RecordedCall,
    Recording,
    RecordingBox,
    Unrecordable,
    boxes_within,
    call_of_data,
    install,
    is_box,
)
from daskgrad.autodiff.programs.calls import CallList, calls_of
from daskgrad.autodiff.programs.reasons import MOST_STEPS
from daskgrad.autodiff.rules.declaration import KNOWN
from daskgrad.autodiff.rules.indexing import Selection, Transposition
from daskgrad.autodiff.tape.boxes import KeptValueError, advice_about, frames_of, kind_of, place_of
from daskgrad.autodiff.tape.reverse import AutogradTape, TapeNode, pullback_of, trace_with
from daskgrad.autodiff.tape.rule_calls import call_rule
from daskgrad.autodiff.tape.traced_call import recorder
from daskgrad.autodiff.values.rows import is_small

MOST_CALLS = 2**16  # of an evaluation
MOST_HELD = 2**28  # bytes of their values


def record(
    fun: Callable[..., Sequence[Any]],
    leaves: Sequence[Any],
    active: Sequence[int],
    asked: Sequence[int] = (),
    pull: Callable[[Sequence[Any]], Sequence[Any]] | None = None,
) -> tuple[CallList, list[Any]]:
    """The calls of ``fun``, which returns a list of leaves, and of its pullback; and a cotangent
    for each output, or None if it has none.

    ``active``: the places of the differentiated leaves, in the order of the cotangents; ``asked``:
    the numbers of cotangents that are rows. ``pull``: the pullback, if it is not the tape's.

    Raises
    ------
    Unrecordable
        if the model looks at a traced number or does not run on boxes; the message names the line.
    """
    install()
    recording = Recording()
    try:
        try:
            with np.errstate(all="ignore"):
                outputs, examples, end = run_on_boxes(recording, fun, leaves, active, asked, pull)
        except Unrecordable:
            raise
        except Exception as error:
            raise recording.refusal or unrecordable(error) from error
        recording.open_calls.clear()
        if any([count > ALONE for count in map(sys.getrefcount, recording.taken_out)]):
            # a program does not run what appends a number to a list
            raise recording.refuse("the model keeps a number that it took out of a traced value")
        recording.outputs = outputs
        count = sum([example is not None for example in examples])
        return calls_of(recording, end, len(examples), count), examples
    finally:
        recording.release()


def unrecordable(error: Exception) -> Unrecordable:
    """The error that ends a recording, for an error of the model on boxes."""
    place = next(filter(None, map(place_of, frames_of(error))), None)
    advice = advice_about(error)
    where = "" if place is None else f", in {place[0]}:{place[1]}"
    message = f"the model raises {type(error).__name__}: {error}{where}"
    return Unrecordable(f"{message}; {advice}" if advice else message)


def run_on_boxes(
    recording: Recording,
    fun: Callable[..., Sequence[Any]],
    leaves: Sequence[Any],
    active: Sequence[int],
    asked: Sequence[int],
    pull: Callable[[Sequence[Any]], Sequence[Any]] | None,
) -> tuple[list[Any], list[Any], int]:
    """Outputs and cotangents as calls or constants; examples of the outputs' cotangents; and the
    number of the model's calls."""

    def box_of(value: Any) -> RecordingBox:
        call = RecordedCall.of_call(recording, value, None, (), {})
        recording.inputs.append(call)
        return RecordingBox(value, recording.number, call)

    boxes = list(map(box_of, leaves))

    def fun_of_active(*traced: Any) -> Sequence[Any]:
        mixed = list(boxes)
        for place, box in zip(active, traced, strict=True):
            mixed[place] = box
        return fun(*mixed)

    arrays = [boxes[place] for place in active]
    outputs, tape = trace_with(recording.operands, fun_of_active, arrays, RecordedNode)
    failed = [frame.f_locals["f_wrapped"].__name__ for frame in recording.open_calls]
    if failed and not recording.refusal:
        recording.refuse(f"{failed[0]} raises an exception, which the model catches")
    if recording.refusal:
        raise recording.refusal
    require_no_slices(tape, [leaves[place] for place in active], asked)
    end, recording.is_trusted = len(recording.calls), pull is None
    ends = tape.ends if pull is None else outputs
    examples = [example_of(*pair) for pair in zip(outputs, ends, strict=True)]
    seeds = [None if example is None else box_of(example) for example in examples]
    if pull is not None:
        pulled = list(pull(seeds))
    else:
        pulled = tape.pull_rows(seeds, asked) if asked else tape.pull(seeds)
    if recording.refusal:
        raise recording.refusal
    return list(map(output_of, [*outputs, *pulled])), examples, end


@contextmanager
def recording_models(most: float = MOST_STEPS) -> Iterator[None]:
    """A context in which models with boxes as arguments are recorded, whatever their backends, with
    at most so many calls."""
    token = recorder.set(partial(trace_recorded, most))
    try:
        yield
    finally:
        recorder.reset(token)


class RecordedTape(AutogradTape):
    """The tape of a model within an evaluation that is recorded; its pulls are recorded, too."""

    __slots__ = ("arrays", "has_programs", "most")

    def __init__(self, tape: AutogradTape, arrays: Sequence[Any], most: float, has_programs: bool):
        super().__init__(tape.roots, tape.ends)
        self.most, self.has_programs = most, has_programs
        self.arrays = list(map(HIDDEN.__get__, arrays))

    @property
    def tape_nbytes(self) -> int:
        """The bytes that a tape of plain arrays would hold."""
        held = [HIDDEN.__get__(x) if is_box(x) else x for x in self.held_arrays()]
        return sum({id(array): array.nbytes for array in held}.values())

    def pull_rows(
        self, cotangents: Sequence[Any], asked: Collection[int] = (), is_term: bool = False
    ) -> list[Any]:
        recording = self.roots[0].recording
        if is_term:
            require_no_slices(self, self.arrays, asked)
        before, recording.is_trusted = recording.is_trusted, True
        start = len(recording.calls)
        try:
            return super().pull_rows(cotangents, asked) if asked else super().pull(cotangents)
        finally:
            recording.is_trusted = before
            if self.has_programs:
                recording.in_models += len(recording.calls) - start
            require_few(recording, self.most)

    pull = pull_rows


def trace_recorded(
    most: float, fun: Callable, arrays: Sequence[Any]
) -> tuple[list[Any], AutogradTape]:
    """The results of a backend's ``trace``, of boxes of a recording."""
    if not all(map(is_box, arrays)):
        raise Unrecordable("a model takes in a value that does not depend on the arguments")
    recording = arrays[0]._node.recording
    start, has_programs = len(recording.calls), hasattr(getattr(fun, "fun", None), "programs")
    outputs, tape = trace_with(recording.operands, fun, arrays, RecordedNode)
    if has_programs:
        recording.in_models += len(recording.calls) - start
    require_few(recording, most)
    return outputs, RecordedTape(tape, arrays, most, has_programs)


def require_few(recording: Recording, most: float) -> None:
    if most == math.inf:  # whoever says so counts them
        return
    count, nbytes = recording.size()
    if recording.in_models > most or count > MOST_CALLS or nbytes > MOST_HELD:
        raise Unrecordable(f"it takes {count:,} calls and more, which hold {nbytes:,} bytes")


def require_no_slices(tape: AutogradTape, arrays: Sequence[Any], asked: Collection[int]) -> None:
    """Raises if a cotangent would stay a slice in a sum of terms."""
    large = {
        root
        for number, (root, array) in enumerate(zip(tape.roots, arrays, strict=True))
        if isinstance(array, np.ndarray) and number not in asked and not is_small(array)
    }
    if any([isinstance(n.pullback, Selection) and n.parents[0] in large for n in tape.order]):
        raise Unrecordable(
            "a slice of a large array is used, whose cotangent stays a slice: it is compiled "
            "where the gradient is asked for as rows (sparse=)"
        )


def example_of(output: Any, end: Any) -> Any:
    """A cotangent of an output's type and shape, or None if the tape takes none; its entries are
    irrational, so that no sum of them vanishes."""
    value = HIDDEN.__get__(output) if is_box(output) else output
    if end is None or kind_of(value) not in ("f", "c"):
        return None
    if isinstance(value, float):
        return np.float64(1.0)
    numbers = 1.0 + np.sqrt(np.arange(2.0, 2.0 + value.size)) % 1.0
    typed = numbers.reshape(value.shape).astype(value.dtype)
    return typed if isinstance(value, np.ndarray) else typed[()]


(ALONE,) = map(sys.getrefcount, [object()])


def output_of(output: Any) -> Any:
    if is_box(output):
        return output._node
    if isinstance(output, np.ndarray) and output.dtype.kind == "O":
        raise Unrecordable("the value is an array of objects")
    return output


# ---------------------------------------------------------------- nodes, whose rules run on boxes


OF_ARRAYS = {GETITEM, untake, anp.dot, anp.matmul, anp.where, call_rule}  # of integers, too


class RecordedNode(TapeNode):
    """A node with a recorded pullback, in the line of the model that made the node."""

    __slots__ = ("recording",)

    recording: Recording

    def __init__(self, value, fun, args, kwargs, parent_argnums, parents):
        recording = self.recording = parents[0].recording
        if not recording.is_trusted:
            args = recording.operands.taken(fun, args, parent_argnums)
            kwargs = recording.operands.of(kwargs)
        opaque = OpaquePullback(fun, parent_argnums, value, args, kwargs)
        place = value._node.place if is_box(value) else None

        def make_rule() -> None:
            TapeNode.__init__(self, value, fun, args, kwargs, parent_argnums, parents)

        def without_rule() -> None:
            self.parents, self.is_real = parents, kind_of(value) == "f"
            self.trace, self.pullback = parents[0].trace, opaque

        if decides_on_shapes(fun, parent_argnums, args, kwargs):
            without_rule()
        else:
            attempt(recording, fun, place, make_rule, without_rule)
        pullback = self.pullback
        if self.parents and not isinstance(pullback, Selection | Transposition | OpaquePullback):
            self.pullback = lambda g: attempt(
                recording, fun, place, lambda: tuple(pullback(g)), lambda: opaque(g)
            )

    def initialize_root(self, value, trace):
        TapeNode.initialize_root(self, value, trace)
        self.recording = value._node.recording


def decides_on_shapes(fun: Any, argnums: Sequence[int], args: tuple, kwargs: dict) -> bool:
    """Whether an axis or a shape may be data, which a rule on boxes would take for a constant."""
    if fun in OF_ARRAYS or isinstance(getattr(fun, "fun", None), np.ufunc):
        return False
    boxes = boxes_within([arg for number, arg in enumerate(args) if number not in argnums])
    boxes = list(filter(is_box, boxes))  # no containers, or sparse cotangents
    return any([box.dtype.kind in "iu" and box.ndim < 2 for box in boxes]) or bool(
        boxes_within(kwargs)
    )


def attempt(
    recording: Recording, fun: Callable, place: Any, run: Callable, otherwise: Callable
) -> Any:
    """Runs a rule on boxes; if it fails, its calls are forgotten, and ``otherwise`` runs."""
    before = recording.is_trusted, recording.place, recording.refusal
    count = len(recording.calls)
    recording.is_trusted, recording.place = fun in KNOWN, place
    try:
        result = run()
        if recording.refusal is before[2]:
            return result
    except KeptValueError:
        raise
    except Exception:
        if fun is call_rule or before[2] is not None:
            raise
    finally:
        recording.is_trusted, recording.place = before[:2]
    recording.forget(count)
    return otherwise()


class OpaquePullback:
    """The pullback of a primitive as one call, of plain arrays."""

    def __init__(self, *parts: Any):
        self._parts = parts

    def __call__(self, g: Any) -> tuple:
        return tuple(call_of_data(pull_plainly, (*self._parts, g), {}))


def pull_plainly(
    fun: Callable, argnums: Sequence[int], value: Any, args: tuple, kwargs: dict, g: Any
) -> list[Any]:
    return list(pullback_of(fun, tuple(argnums), value, args, kwargs)(g))
