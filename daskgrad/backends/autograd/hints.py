"""Hints: advice for errors of models that are not written for autograd.

An error of plain NumPy, SciPy, pandas or xarray about a box says what none of their users has
written. So the frames between the model and the error tell which function got a traced value.
"""

import importlib.util
import sys
from collections.abc import Iterable
from itertools import dropwhile, takewhile
from types import FrameType

import numpy as np
from autograd.tracer import isbox

from daskgrad.backends.autograd.kept_values import LIBRARIES, TRACERS, package_of

HINT = (
    "while it is differentiated, a model sees autograd's boxes instead of arrays. Functions of "
    "numpy and scipy.special take them; use these instead of math, and daskgrad.scipy instead of "
    "the rest of scipy (for example daskgrad.scipy.linalg; give other functions a rule with "
    "dg.custom_vjp). Make new arrays (np.concatenate, np.where) instead of assigning into one; "
    "inside a model, take derivatives of plain functions with autograd.grad, not dg.grad"
)

ARRAY = (
    "no plain array holds traced numbers; write np.stack([...]) of a list for np.array([...]), "
    "np.fromiter and result[i] = ..., and np.dot(a, x) for a.dot(x)"
)
NUMBER = (
    "a plain number has no derivative; leave out float(), since x[0] is a number, write np.exp "
    "for math.exp and np.stack([...]) for np.fromiter, or dg.value(x) for a number without "
    "derivative"
)
TEXT = "text has no derivative; for a line to print write dg.value(x)"
ASSIGNMENT = (
    "a traced array stays as it is; choose with np.where or join with np.concatenate instead of "
    "x[i] = ..."
)

BOX_SIGNS = {  # in messages of plain NumPy and SciPy about a box, or an array of boxes: advice
    "array element with a sequence": ARRAY,
    "loop of ufunc does not support": ARRAY,
    "__format__": TEXT,
    "item assignment": ASSIGNMENT,
    "float() argument": NUMBER,
    "must be real number": NUMBER,
    "ArrayBox": "",
    "dtype('O')": "",
    "dtype object": "",
    "object arrays": "",
    "proper array of floats": "",
    "holds references": "",
    "found object": "",
    "not supported for the input types": "",
    "unsupported data types in input": "",
    "Can't differentiate w.r.t. type": "",
}

METHODS = {  # that look into a box: advice
    "__array__": ARRAY,
    "__float__": NUMBER,
    "__int__": NUMBER,
    "__complex__": NUMBER,
    "__index__": NUMBER,
    "__str__": TEXT,
    "__repr__": TEXT,
    "__format__": TEXT,
    "__setitem__": ASSIGNMENT,
}

ADVICE = {  # by a package, module or class that takes no traced values
    "pandas": (
        "pandas takes no traced values; take arrays out of Series and DataFrames first, with "
        ".to_numpy(), and compute with these"
    ),
    "xarray": (
        "xarray takes no traced values; take arrays out of DataArrays first, with .values or "
        ".data, and compute with these"
    ),
    "ma": (
        "masked arrays (np.ma) hold no traced values; choose with np.where(mask, x, ...), of "
        "plain arrays"
    ),
    "vectorize": (
        "np.vectorize takes no traced values; call NumPy's functions of the whole array, or write "
        "np.stack([fun(u) for u in x])"
    ),
}


def hint(error: Exception, stage: str) -> str | None:
    """The hint for an error of plain NumPy on a box; boxes exist only while tracing."""
    if stage != "forward":
        return None
    signs = [sign for sign in BOX_SIGNS if sign in str(error)]
    frames = frames_of(error)
    if not signs and not any(map(has_box, library_frames(frames))):
        return None
    advice = advice_of(frames) or next((BOX_SIGNS[sign] for sign in signs if BOX_SIGNS[sign]), "")
    return f"{advice}. {HINT[0].upper()}{HINT[1:]}" if advice else HINT


def advice_here(method: str = "") -> str:
    """Advice for code that looks into a box now, by a method of the box."""
    frames, frame = [], sys._getframe(1)
    while frame is not None:
        frames.append(frame)
        frame = frame.f_back  # type: ignore[assignment]
    return advice_of(frames) or METHODS.get(method, "")


def frames_of(error: Exception) -> list[FrameType]:
    """The frames of a traceback, the innermost first."""
    frames, entry = [], error.__traceback__
    while entry is not None:
        frames.append(entry.tb_frame)
        entry = entry.tb_next
    return frames[::-1]


def library_frames(frames: Iterable[FrameType]) -> list[FrameType]:
    """The frames of the library that met a box, the outermost first."""
    outside = dropwhile(lambda frame: package_of(frame) in TRACERS, frames)
    return list(takewhile(lambda frame: package_of(frame) in LIBRARIES, outside))[::-1]


def has_box(frame: FrameType) -> bool:
    """Whether a function got, or has made, a box or an array of boxes."""
    return any(
        isbox(local) or (isinstance(local, np.ndarray) and local.dtype.kind == "O")
        for local in frame.f_locals.values()
    )


def advice_of(frames: Iterable[FrameType]) -> str:
    """The advice to a call of a library, or nothing."""
    called = [
        (*frame.f_globals["__name__"].split("."), frame.f_code.co_qualname.split(".")[0])
        for frame in library_frames(frames)
    ]
    for package, *rest in called:
        for name in (package, *rest):
            if name in ADVICE:
                return ADVICE[name]
    functions = [(path[1], path[-1]) for path in called if is_in("scipy", path[1], path[-1])]
    for module, name in functions:
        if is_in("daskgrad.scipy", module, name):
            path = f"scipy.{module}.{name}"
            return f"{path} takes no traced values; write daskgrad.{path}"
    for module, name in functions:
        return (
            f"scipy.{module}.{name} takes no traced values, and is not in daskgrad.scipy; give it "
            f"a rule with dg.custom_vjp, or take differences with dg.finite_difference"
        )
    return ""


def is_in(package: str, module: str, name: str) -> bool:
    """Whether a package has a function of this name in this public module."""
    if importlib.util.find_spec(f"{package}.{module}") is None:
        return False
    return hasattr(importlib.import_module(f"{package}.{module}"), name)
