"""Dispatch: calls with values that record what is called with them go to these, as NumPy's calls do
(NEP 18).

So between models a function of ``daskgrad.scipy`` is one call of a model; a method of an object
that is made of such values is one, too, which makes the object.
"""

import functools
from collections.abc import Callable
from typing import Any

NESTED = (list, tuple)


def recorder_in(values: Any) -> Any:
    """A value that records calls, among values and in lists and tuples of them; or None."""
    for value in values:
        if type(value) in NESTED:
            value = recorder_in(value)
        if hasattr(type(value), "record"):
            return value
    return None


def dispatched(fun: Callable) -> Any:
    """A function whose calls with values that record are recorded."""

    @functools.wraps(fun)
    def call(*args: Any, **kwargs: Any) -> Any:
        recorder = recorder_in((*args, *kwargs.values()))
        if recorder is None:
            return fun(*args, **kwargs)
        return recorder.__array_function__(call, (), args, kwargs)

    return call


def with_fields(fun: Callable) -> Any:
    """A solver, which returns a result with fields; a recorded one has the numbers and arrays."""

    @functools.wraps(fun)
    def call(*args: Any, **kwargs: Any) -> Any:
        recorder = recorder_in((*args, *kwargs.values()))
        if recorder is None:
            return fun(*args, **kwargs)
        solver = Solver(fun.__name__, call)
        return Fields(recorder.__array_function__(solver, (), args, kwargs))

    return call


class Solver:
    """The function that returns the fields of a solver's result in a dict."""

    def __init__(self, name: str, fun: Callable):
        self.__name__ = name
        self._fun = fun

    def __call__(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        result = self._fun(*args, **kwargs)
        names = [name for name in dir(result) if not callable(getattr(result, name))]
        return {name: getattr(result, name) for name in names if not name.startswith("_")}


class Fields:
    """The fields of a recorded result: nodes."""

    def __init__(self, node: Any):
        self._node = node

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return self._node[name]


class Recordable:
    """A class that returns a ``Recorded`` object if it is called with values that record.

    ``makers`` are the methods that return an object of the class.
    """

    makers: tuple[str, ...] = ()

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        recorder = recorder_in((*args, *kwargs.values()))
        if recorder is None:
            return super().__new__(cls)
        return Recorded(recorder, cls, cls.__name__, cls, (args, kwargs))


class Recorded:
    """An object of a class, made of values that record calls: a call of a method makes it."""

    def __init__(self, recorder: Any, kind: Any, name: str, make: Callable, inputs: tuple):
        self._recorder, self._kind, self._name = recorder, kind, name
        self._make, self._inputs = make, inputs

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._call("__call__", *args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        if not callable(getattr(self._kind, name, None)):
            raise AttributeError(
                f"{self._name} of {self._recorder!r} has no value yet, and no {name!r}; wrap a "
                f"function that makes it and uses .{name} in dg.delayed, and call that"
            )
        return functools.partial(self._call, name)

    def _call(self, name: str, *args: Any, **kwargs: Any) -> Any:
        method = Method(f"{self._name}.{name}".removesuffix(".__call__"), self._make, name)
        inputs = (self._inputs, (args, kwargs))
        if name in self._kind.makers:
            return Recorded(self._recorder, self._kind, self._name, method, (inputs, {}))
        return self._recorder.__array_function__(method, (), inputs, {})


class Method:
    """The function that makes an object, and calls a method."""

    def __init__(self, name: str, make: Callable, method: str):
        self.__name__ = name
        self._make, self._method = make, method

    def __call__(self, made_of: tuple[tuple, dict], called_with: tuple[tuple, dict]) -> Any:
        args, kwargs = made_of
        more, options = called_with
        return getattr(self._make(*args, **kwargs), self._method)(*more, **options)


def within_models(fun: Callable) -> Any:
    """A function whose result is for models alone; TypeError if it is called between them."""

    @functools.wraps(fun)
    def call(*args: Any, **kwargs: Any) -> Any:
        recorder = recorder_in((*args, *kwargs.values()))
        if recorder is not None:
            raise TypeError(
                f"{fun.__name__} of {recorder!r} has no value yet, and no array holds it; write a "
                f"function of arrays that calls {fun.__name__} and what uses it, wrap that in "
                f"dg.delayed, and call it with {recorder!r}"
            )
        return fun(*args, **kwargs)

    return call
