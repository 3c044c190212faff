"""The autograd backend: a tape of our own over autograd's tracer and rules."""

from collections.abc import Callable
from typing import Any

from daskgrad.autodiff.rules.declaration import unboxed
from daskgrad.autodiff.tape import numpy_calls
from daskgrad.autodiff.tape.boxes import hint as hint
from daskgrad.autodiff.tape.dependence import Dependence as Dependence
from daskgrad.autodiff.tape.forward import linearize as linearize
from daskgrad.autodiff.tape.pickling import dumps as dumps
from daskgrad.autodiff.tape.pickling import loads as loads
from daskgrad.autodiff.tape.questions import answer
from daskgrad.autodiff.tape.reverse import trace as trace

numpy_calls.install_plain_calls()  # plain NumPy's functions take autograd's boxes

stop_gradient = value = unboxed
finds_writes = False


def prepare(fun: Callable[..., Any]) -> Callable[..., Any]:
    """The function, whose questions about boxes are answered for their values."""
    answer(fun)
    return fun


def run(fun: Callable[..., Any], args: tuple, kwargs: dict) -> Any:
    """The value of a call; its arrays are NumPy's."""
    return fun(*args, **kwargs)
