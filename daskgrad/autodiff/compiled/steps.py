"""Steps: the calls of one run of a model, in order.

In the arguments of a step other steps stand for their values.
"""

import sys
import warnings
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
from autograd.tracer import Node

from daskgrad.autodiff.rules.declaration import without_derivative
from daskgrad.autodiff.tape.boxes import (
    INTEGERS,
    advice_here,
    kind_of,
    place_in_model,
    trace_numbers,
)

PYTHONS = (bool, int, float, complex)


HANDLED = frozenset(["raise", "call", "log", "print"])  # floating-point errors


class Unrecordable(Exception):
    """A model did what no list of calls can repeat; the message tells what, and where."""


class Step(Node):
    """One call that a model made, or one of its inputs (then ``fun`` is None).

    ``is_traced``: the tape records it, too; ``parents`` are the arguments at ``argnums``, those
    that the tape records. ``is_asked``: the cotangent of this input should be rows. ``number``: its
    place in the recording.
    """

    __slots__ = (
        "argnums",
        "args",
        "fun",
        "is_asked",
        "is_traced",
        "kwargs",
        "number",
        "parents",
        "recording",
        "value",
    )

    record_rule_call: ClassVar[Callable]  # of a function with rules of its own

    def __init__(
        self,
        value: Any,
        fun: Any,
        args: Sequence[Any],
        kwargs: dict,
        argnums: Sequence[int],
        steps: Sequence["Step"],
    ):
        """As the tracer calls it: ``steps`` are those of the boxes at ``argnums``."""
        recording = steps[0].recording
        before = recording.open_calls.pop(sys._getframe(1), None)
        mixed = list(args)
        if before is not None:  # the call has changed this argument in place
            mixed[1] = before
        are_traced = False
        for argnum, step in zip(argnums, steps, strict=True):
            mixed[argnum] = step
            are_traced = are_traced or step.is_traced
        if not are_traced or fun in recording.without_derivative:
            argnums, steps = (), ()
        elif not all([step.is_traced for step in steps]):
            traced = [pair for pair in zip(argnums, steps, strict=True) if pair[1].is_traced]
            argnums, steps = zip(*traced, strict=True)
        self._set(recording, value, fun, mixed, kwargs, tuple(argnums), tuple(steps))

    def _set(
        self,
        recording: "Recording",
        value: Any,
        fun: Any,
        args: Sequence[Any],
        kwargs: dict,
        argnums: tuple[int, ...] = (),
        parents: tuple["Step", ...] = (),
    ) -> None:
        self.recording, self.value, self.fun = recording, value, fun
        self.args, self.kwargs = tuple(args), kwargs
        self.argnums, self.parents = argnums, parents
        self.is_traced, self.is_asked = bool(parents), False
        if fun is not None:
            recording.steps.append(self)

    @classmethod
    def of_call(cls, *given: Any) -> "Step":
        """A call that the tracer did not see."""
        step = cls.__new__(cls)
        step._set(*given)
        return step

    @classmethod
    def of_input(
        cls, recording: "Recording", value: Any, is_traced: bool, is_asked: bool = False
    ) -> "Step":
        step = cls.__new__(cls)
        step._set(recording, value, None, (), {})
        step.is_traced, step.is_asked = is_traced, is_asked
        return step

    @property
    def name(self) -> str:
        return getattr(self.fun, "__name__", str(self.fun))

    @property
    def kind(self) -> str:
        return kind_of(self.value)

    @property
    def ends_tape(self) -> bool:
        """Whether nothing is passed on, since the value has no derivative."""
        return self.kind in INTEGERS


class Guard(NamedTuple):
    """The model asked whether a value is true."""

    step: Step
    answer: bool


class Recording:
    """The calls of one run: ``inputs``, ``steps`` (guards among them), and ``outputs``, which are
    steps or constants.

    ``structure`` tells it from those with other programs; ``parameters`` are its constants that do
    not; ``numbered`` are inputs and steps by their numbers (see ``structures``)."""

    def __init__(self) -> None:
        self.number = trace_numbers.next_number()
        self.inputs: list[Step] = []
        self.steps: list[Step | Guard] = []
        self.outputs: list[Any] = []
        self.structure: tuple = ()
        self.parameters: list[Any] = []
        self.numbered: list[Step] = []
        self.refusal: Unrecordable | None = None
        self.without_derivative = without_derivative()
        self.taken_out: list[Any] = []  # boxes of what the model takes for plain numbers
        self.open_calls: dict[Any, Any] = {}  # frames of calls that have not returned
        self._filters = warnings.filters

    def release(self) -> None:
        """Lets go of the steps, each of which knows its recording: the garbage collector would have
        to find them."""
        for each in (self.inputs, self.steps, self.outputs, self.numbered):
            each.clear()

    def refuse(self, what: str, method: str = "") -> Unrecordable:
        """The error that ends the recording; it is kept, since the model may catch it.

        ``method``: of a box, that was called."""
        if self.refusal is None:
            advice = advice_here(method)
            said = f"{what}, {place_in_model()}"
            self.refusal = Unrecordable(f"{said}; {advice}" if advice else said)
        return self.refusal

    def require_no_handlers(self) -> None:
        """Raises if the model does something about floating-point errors, which are silent while
        it is recorded."""
        if not HANDLED.isdisjoint(np.geterr().values()):
            raise self.refuse("the model handles floating-point errors")
        if warnings.filters is not self._filters and warnings.filters[0][:2] != ("ignore", None):
            raise self.refuse("the model handles warnings")
