"""The autograd backend: a tape of our own over autograd's tracer and rules."""

from collections.abc import Callable
from typing import Any

from daskgrad.backends.autograd import plain_calls, trace_numbers
from daskgrad.backends.autograd.dependence import Dependence as Dependence
from daskgrad.backends.autograd.forward import linearize as linearize
from daskgrad.backends.autograd.hints import hint as hint
from daskgrad.backends.autograd.pickling import dumps as dumps
from daskgrad.backends.autograd.pickling import loads as loads
from daskgrad.backends.autograd.reverse import trace as trace
from daskgrad.backends.autograd.unboxing import stop_gradient as stop_gradient
from daskgrad.backends.autograd.unboxing import value as value

plain_calls.install()  # plain NumPy's functions take autograd's boxes
trace_numbers.install()  # makes autograd's traces safe in threads

finds_writes = False
prepare = None  # defined, since a failed lookup in a module takes a microsecond per node


def run(fun: Callable[..., Any], args: tuple, kwargs: dict) -> Any:
    """The value of a call; its arrays are NumPy's."""
    return fun(*args, **kwargs)
