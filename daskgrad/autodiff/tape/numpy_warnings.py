"""NumPy's warnings while a model is on the tape: they name the model's line, not the tracer's.

NumPy warns at the frame that called it, which is autograd's. Unless the user has changed its
handling of floating-point errors, it calls ``warn`` here instead. ``np.errstate`` takes a
microsecond; the variable behind it, which is private to NumPy, a tenth.
"""

import sys
import warnings
from collections.abc import Mapping
from typing import Any

from numpy._core import umath

from daskgrad.autodiff.tape.boxes import CALL, place_of

STATE = umath._extobj_contextvar  # if this is gone, tests/autodiff/tape/test_warnings.py tells
DEFAULT = STATE.get()
_said: dict[Any, Any] = {}  # by which Python says a warning once for each line


def warn(kind: str, flag: int) -> None:
    """Says that a floating-point error has occurred, in a line of the model or its pullback."""
    frame: Any = sys._getframe(1)
    function, place, model, is_pullback = "", None, None, False
    while frame is not None and place is None and model is None:
        if frame.f_code is CALL:
            function = function or f" in {frame.f_locals['f_raw'].__name__}"
        is_pullback = is_pullback or frame.f_code.co_name == "_pull_nodes"
        if not is_pullback:
            place = place_of(frame)
        else:
            model = model_in(frame.f_locals)
        frame = frame.f_back
    message = f"{kind} encountered{function}"
    if place is None:
        code = getattr(getattr(model, "fun", None), "__code__", warn.__code__)
        place = code.co_filename, code.co_firstlineno
        message += f", in the pullback of {getattr(model, 'name', 'a model')!r}"
    warnings.warn_explicit(message, RuntimeWarning, *place, registry=_said)


def model_in(names: Mapping[str, Any]) -> Any:
    """The model that a function of this package is at work on, or None."""
    owner = names.get("self")
    things = names.get("model"), getattr(owner, "model", None), getattr(owner, "_model", None)
    return next((thing for thing in things if hasattr(thing, "fun")), None)


NAMING = umath._make_extobj(divide="call", over="call", invalid="call", call=warn)
