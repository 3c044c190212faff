"""Functions that return value and gradient, as a model calls them, and as they travel."""

import pickle
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import numpy as np

from daskgrad.backends.pickling.functions import Pickles
from daskgrad.values.descriptions import describe


class WithGradient:
    """A function that returns value and gradient; called, it returns the value.

    ``name`` is that of its model.
    """

    __slots__ = ("__weakref__", "fun", "name")

    def __init__(self, fun: Callable, name: str):
        self.fun = fun
        self.name = name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        watching = WATCHING.get()
        if watching is not None:
            return watching(self, args, kwargs)
        return self.pair(self.fun(*args, **kwargs))[0]

    def pair(self, given: Any) -> tuple[Any, Any]:
        """The pair that the function returned: one real number, and whatever the gradient is."""
        if type(given) is not tuple or len(given) != 2:
            raise TypeError(
                f"model {self.name!r} brings its own gradient (gradient=True), and must return a "
                f"pair (value, gradient); found {describe(given)}"
            )
        value = given[0]
        if type(value) is np.float64:
            return given
        return self._number(value), given[1]

    def _number(self, value: Any) -> Any:
        if isinstance(value, float):
            return np.float64(value)
        is_real = isinstance(value, np.floating | np.ndarray) and value.dtype.kind == "f"
        if not is_real or value.shape:
            raise TypeError(
                f"model {self.name!r} brings its own gradient (gradient=True), so its value must "
                f"be one real number; found {describe(value)}"
            )
        return value[()]


# what gets the calls of such functions in the place of the function, while one is linearized
WATCHING: ContextVar[Callable | None] = ContextVar("calls are watched", default=None)


def prepare(fun: Any) -> Callable:
    """A model's function, loaded if it was sent."""
    return fun.load() if hasattr(fun, "daskgrad_digest") else fun


def run(fun: Callable, args: tuple, kwargs: dict) -> Any:
    """The value of a call."""
    return fun(*args, **kwargs)


# -------------------------------------------------------------------------------------- as bytes

_pickles = Pickles()


def dumps(fun: Any) -> bytes:
    """Pickles a function; that of the user's by itself, which is kept if it has not changed."""
    if type(fun) is not WithGradient:
        return b"f" + _pickles.dumps(fun)
    name = fun.name.encode()
    return b"g%d:" % len(name) + name + _pickles.dumps(fun.fun)


def loads(data: Any) -> Callable:
    view = memoryview(data)
    if bytes(view[:1]) == b"f":
        return pickle.loads(view[1:])
    digits = bytes(view[1:32]).split(b":")[0]
    start = 2 + len(digits)
    stop = start + int(digits)
    return WithGradient(pickle.loads(view[stop:]), str(view[start:stop], "utf-8"))
