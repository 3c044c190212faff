"""Kept values: a model that keeps a traced value for its next call gets an error.

A box of a trace that has ended has no place in another one: its derivative would be zero without a
word, or a result would hold the box.
"""

import sys
from typing import Any

TRACERS = ("daskgrad", "autograd")
LIBRARIES = ("numpy", "scipy", "pandas", "xarray")


live: set[int] = set()  # the numbers of traces that have not ended; a node has its trace's


class KeptValueError(TypeError):
    """A model used a traced value that an earlier call has kept."""


def kept_value_error(what: str) -> KeptValueError:
    return KeptValueError(
        f"{what}, {place_in_model()}, uses a traced value (an ArrayBox) that was kept from an "
        f"earlier call, in an object, a global or a dictionary; its derivative is lost. Compute "
        f"it in each call, keep plain arrays (dg.value(x)) that no derivative goes through, or "
        f"give what is kept a rule of its own (dg.custom_vjp)"
    )


def require_live(output: Any, what: str) -> None:
    """Raises if a box is one of a trace that has ended."""
    trace = getattr(output._node, "trace", None)
    if trace is not None and trace not in live:
        raise kept_value_error(what)


def place_in_model() -> str:
    """The file and line that a model has got to."""
    frame: Any = sys._getframe(1)
    while frame is not None:
        if package_of(frame) not in (*TRACERS, *LIBRARIES):
            return f"in {frame.f_code.co_filename}:{frame.f_lineno}"
        frame = frame.f_back
    return "in NumPy"


def package_of(frame: Any) -> str:
    return frame.f_globals.get("__name__", "").split(".")[0]
