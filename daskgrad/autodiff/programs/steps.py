"""Steps: the calls of one run of a model and its pullback, in order.

In the arguments of a step other steps stand for their values.
"""

import sys
import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from autograd.tracer import Node

from daskgrad.autodiff.tape.boxes import advice_here, place_here, place_in_model, trace_numbers

PYTHONS = (bool, int, float, complex)


HANDLED = frozenset(["raise", "call", "log", "print"])  # floating-point errors


class Unrecordable(Exception):
    """A model did what no list of calls can repeat; the message tells what, and where."""


class Step(Node):
    """One call, or an input (then ``fun`` is None)."""

    __slots__ = ("args", "fun", "kwargs", "place", "recording", "value")

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
        for argnum, step in zip(argnums, steps, strict=True):
            mixed[argnum] = step
        self._set(recording, value, fun, mixed, kwargs)

    def _set(
        self, recording: "Recording", value: Any, fun: Any, args: Sequence[Any], kwargs: dict
    ) -> None:
        self.recording, self.value, self.fun = recording, value, fun
        self.args, self.kwargs = tuple(args), kwargs
        self.place = recording.place if recording.is_trusted else place_here()
        if fun is not None:
            recording.steps.append(self)

    @classmethod
    def of_call(cls, *given: Any) -> "Step":
        """A call that the tracer did not see."""
        step = cls.__new__(cls)
        step._set(*given)
        return step

    @property
    def name(self) -> str:
        return getattr(self.fun, "__name__", str(self.fun))


class Guard(NamedTuple):
    """The model asked whether a value is true."""

    step: Step
    answer: bool


class Recording:
    """The calls of one run: ``inputs``, ``steps`` (guards among them), and ``outputs``, which are
    steps or constants. ``is_trusted``: rules of ours run, which look at no number."""

    def __init__(self) -> None:
        self.number = trace_numbers.next_number()
        self.inputs: list[Step] = []
        self.steps: list[Step | Guard] = []
        self.outputs: list[Any] = []
        self.refusal: Unrecordable | None = None
        self.is_trusted = False
        self.place: Any = None  # file and line of the model while rules of ours run
        self.taken_out: list[Any] = []  # boxes of what the model takes for plain numbers
        self.open_calls: dict[Any, Any] = {}  # frames of calls that have not returned
        self._filters = warnings.filters

    def release(self) -> None:
        """Lets go of the steps, each of which knows its recording: the garbage collector would have
        to find them."""
        for steps in (self.inputs, self.steps, self.outputs):
            steps.clear()

    def forget(self, count: int) -> None:
        """Takes back what was recorded after so many steps."""
        del self.steps[count:]
        self.open_calls.clear()
        self.refusal = None

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
