"""NumPy's warnings while a model is on the tape: they name the model's line, not the tracer's.

NumPy warns at the frame that called it, which is autograd's. Unless the user has changed its
handling of floating-point errors, it calls ``warn`` here instead. ``np.errstate`` takes a
microsecond; the variable behind it, which is private to NumPy, a tenth.
"""

import sys
import warnings
from collections.abc import Callable, Mapping
from typing import Any

from numpy._core import umath

from daskgrad.autodiff.tape.boxes import CALL, place_of

MODELS = "daskgrad.autodiff.models."  # where one call of one model is made
PULL = "AutogradTape.pull"  # methods of the tape of one call
STATE = umath._extobj_contextvar  # if this is gone, tests/autodiff/tape/test_warnings.py tells
DEFAULT = STATE.get()
_said: dict[Any, Any] = {}  # by which Python says a warning once for each line


def warn(kind: str, flag: int) -> None:
    """Says that a floating-point error has occurred, in a line of the model or its pullback."""
    frame: Any = sys._getframe(1)
    place: Any = None
    function, model, is_pullback = "", None, False
    while frame is not None and place is None and model is None:
        names = frame.f_locals
        if frame.f_code is CALL:
            function = function or f" in {names['f_raw'].__name__}"
        is_pullback = is_pullback or frame.f_code.co_qualname.startswith(PULL)
        if is_pullback or frame.f_globals.get("__name__", "").startswith(MODELS):
            model = model_in(names)
        else:
            place = place_of(frame) or names.get("place_in_program")
        frame = frame.f_back if model is None else frame
    message = f"{kind} encountered{function}"
    if place is None:
        place = place_of_call(frame) or place_of_model(model)
        of = "the pullback of " if is_pullback else ""
        message += f", in {of}{getattr(model, 'name', 'a model')!r}"
    file, line = place
    warnings.warn_explicit(message, RuntimeWarning, file, line, registry=_said)


def place_of_call(frame: Any) -> tuple[str, int] | None:
    """The line of NumPy between models that is at work in these frames of the package."""
    while frame is not None and place_of(frame) is None:
        place = getattr(frame.f_locals.get("call"), "place", None)
        if place is not None:
            return place
        frame = frame.f_back
    return None


def place_of_model(model: Any) -> tuple[str, int]:
    """The first line of a model's function, out of its wrappers."""
    fun = getattr(model, "fun", None)
    fun = getattr(fun, "loaded", None) or fun
    (fun, *_) = getattr(fun, "daskgrad_pushed", (fun,))
    code = getattr(getattr(fun, "func", fun), "__code__", warn.__code__)
    return code.co_filename, code.co_firstlineno


def model_in(names: Mapping[str, Any]) -> Any:
    """The model that a function of this package is at work on, or None."""
    owner = names.get("self")
    things = names.get("model"), getattr(owner, "model", None), getattr(owner, "_model", None)
    return next((thing for thing in things if hasattr(thing, "fun")), None)


def naming(fun: Callable, *args: Any) -> Any:
    """The result of a call whose floating-point errors ``warn`` tells of."""
    state = STATE.set(NAMING) if STATE.get() is DEFAULT else None
    try:
        return fun(*args)
    finally:
        if state is not None:
            STATE.reset(state)


NAMING = umath._make_extobj(divide="call", over="call", invalid="call", call=warn)
