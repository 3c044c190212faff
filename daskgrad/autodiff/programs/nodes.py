"""Nodes of the tape while a program is recorded: their rules run on boxes.

A rule that looks at numbers cannot: then its pullback becomes one call of the program.
"""

from collections.abc import Callable, Sequence
from typing import Any

import autograd.numpy as anp
import numpy as np
from autograd.numpy.numpy_vjps import untake

from daskgrad.autodiff.programs.boxes import GETITEM, boxes_within, call_of_data, is_box
from daskgrad.autodiff.programs.steps import Recording
from daskgrad.autodiff.rules.declaration import KNOWN
from daskgrad.autodiff.rules.indexing import Selection, Transposition
from daskgrad.autodiff.tape.boxes import KeptValueError, kind_of
from daskgrad.autodiff.tape.reverse import TapeNode, pullback_of
from daskgrad.autodiff.tape.rule_calls import call_rule

OF_ARRAYS = {GETITEM, untake, anp.dot, anp.matmul, anp.where, call_rule}  # of integers, too


class RecordedNode(TapeNode):
    """A node whose pullback is recorded, and belongs to the line of the model that made it."""

    __slots__ = ("recording",)

    recording: Recording

    def __init__(self, value, fun, args, kwargs, parent_argnums, parents):
        self.recording = parents[0].recording
        opaque = OpaquePullback(fun, parent_argnums, value, args, kwargs)
        place = value._node.place if is_box(value) else None

        def make_rule() -> None:
            TapeNode.__init__(self, value, fun, args, kwargs, parent_argnums, parents)

        def without_rule() -> None:
            self.parents, self.is_real = parents, kind_of(value) == "f"
            self.trace, self.pullback = parents[0].trace, opaque

        recording = self.recording
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
    """Whether an axis or a shape may be data, so that a rule on boxes would take this call's."""
    if fun in OF_ARRAYS or isinstance(getattr(fun, "fun", None), np.ufunc):
        return False
    others = [arg for number, arg in enumerate(args) if number not in argnums]
    boxes = boxes_within(others)
    return any([box.dtype.kind in "iu" and box.ndim < 2 for box in boxes]) or bool(
        boxes_within(kwargs)
    )


def attempt(
    recording: Recording, fun: Callable, place: Any, run: Callable, otherwise: Callable
) -> Any:
    """Runs a rule on boxes; if it fails, all that it did is forgotten."""
    before = recording.is_trusted, recording.place, recording.refusal
    count = len(recording.steps)
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
