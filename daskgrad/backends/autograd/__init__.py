"""The autograd backend: a tape of our own over autograd's tracer and rules."""

from collections.abc import Callable
from typing import Any

from daskgrad.backends.autograd.forward import linearize as linearize
from daskgrad.backends.autograd.hints import hint as hint
from daskgrad.backends.autograd.pickling import dumps as dumps
from daskgrad.backends.autograd.pickling import loads as loads
from daskgrad.backends.autograd.reverse import trace as trace
from daskgrad.backends.autograd.unboxing import stop_gradient as stop_gradient
from daskgrad.backends.autograd.unboxing import value as value

finds_writes = False
prepare = None  # to find that a module has it not takes a microsecond, for each node


def run(fun: Callable[..., Any], args: tuple, kwargs: dict) -> Any:
    """The value of a call, whose arrays are NumPy's anyway."""
    return fun(*args, **kwargs)
