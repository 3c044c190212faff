"""Recording: runs a model once, and writes down each call that it makes of its arrays.

All arrays of a call are in boxes: those that are differentiated, and all others, so that none of
the data is taken for a constant.
"""

import collections
import itertools
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from daskgrad.autodiff.compiled import rule_calls as rule_calls
from daskgrad.autodiff.compiled.boxes import RecordingBox, install, is_box
from daskgrad.autodiff.compiled.steps import Recording, Step, Unrecordable


def record(
    fun: Callable[..., Sequence[Any]],
    leaves: Sequence[Any],
    are_traced: Sequence[bool],
    are_asked: Sequence[bool] = (),
) -> Recording:
    """Runs ``fun``, which returns a list of leaves, on boxes of all leaves.

    ``are_asked``: whether their cotangents should be rows.

    Raises
    ------
    Unrecordable
        if the model looks at a traced number or does not run on boxes; the message names the line.
    """
    install()
    recording = Recording()
    for leaf, *how in itertools.zip_longest(leaves, are_traced, are_asked, fillvalue=False):
        recording.inputs.append(Step.of_input(recording, leaf, *how))
    boxes = [RecordingBox(step.value, recording.number, step) for step in recording.inputs]
    try:
        with np.errstate(all="ignore"):
            outputs = fun(*boxes)
    except Exception as error:
        reason = recording.refusal or Unrecordable(f"{type(error).__name__}: {error}")
        raise reason from error
    finally:
        failed = [frame.f_locals["f_wrapped"].__name__ for frame in recording.open_calls]
        recording.open_calls.clear()
    if failed and not recording.refusal:
        recording.refuse(f"{failed[0]} raises an exception, which the model catches")
    if not recording.refusal and are_kept(recording.taken_out, outputs):
        recording.refuse("the model keeps a plain number that it took out of a traced value")
    recording.taken_out.clear()
    if recording.refusal:
        raise recording.refusal
    recording.outputs = list(map(output_of, outputs))
    return recording


def are_kept(boxes: list[Any], outputs: Sequence[Any]) -> bool:
    """Whether somebody else holds a box when the model has run: a program does not run what
    appends it to a list."""
    if not boxes:
        return False
    (alone,) = references([object()])
    of_outputs = collections.Counter(map(id, outputs))
    pairs = zip(boxes, references(boxes), strict=True)
    return any([count > alone + of_outputs[id(box)] for box, count in pairs])


def references(things: list[Any]) -> list[int]:
    return [sys.getrefcount(thing) for thing in things]


def output_of(output: Any) -> Any:
    if is_box(output):
        return output._node
    if isinstance(output, np.ndarray) and output.dtype.kind == "O":
        raise Unrecordable("the value is an array of objects")
    return output
