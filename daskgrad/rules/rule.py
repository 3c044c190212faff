"""Rules: functions that bring their derivative along, in the place of one that a trace finds."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

from daskgrad.backends.autograd.custom import Call, call_rule
from daskgrad.models.model import Model
from daskgrad.values.closures import is_named
from daskgrad.values.descriptions import argument_name, describe, function_name
from daskgrad.values.trees import flatten


class Rule:
    """A function with rules of its own: plain on plain arrays, one node of a trace on boxes.

    ``is_first_order``: it has no second derivatives, and below its trace its arguments are never
    boxes; ``kind`` is what an error says of such functions.
    """

    is_first_order = False
    kind = "functions with rules of their own"

    def __init__(self, fun: Callable, asked: str):
        if not callable(fun):
            raise TypeError(f"{asked} takes a function; found {describe(fun)}")
        if isinstance(getattr(fun, "model", None), Model):
            raise TypeError(
                f"{asked} takes a plain function; found {fun!r}: apply dg.delayed to the result"
            )
        functools.update_wrapper(self, fun)
        self.fun = fun
        self.name = self.__name__ = function_name(fun)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        for leaf in flatten((args, kwargs))[0]:
            if hasattr(leaf, "__dask_graph__"):
                raise TypeError(
                    f"{self.name!r} was called on {describe(leaf)}, which has no value yet; make a "
                    f"model of it with dg.delayed, and call that"
                )
        return call_rule(self, args, kwargs)

    def __reduce_ex__(self, protocol: Any) -> Any:
        """By name where its module has it and its rules, as functions are."""
        modules = {getattr(rule, "__module__", "") for rule in self.rules()}
        if is_named(self) and modules <= {self.__module__}:
            return self.__qualname__  # type: ignore[attr-defined]
        return super().__reduce_ex__(protocol)

    def rules(self) -> list[Callable]:
        """The functions that were given beside the function itself."""
        return []

    def argument(self, number: int) -> str:
        """A positional argument, for an error."""
        return f"{argument_name(self.fun, number)!r} of {self.name!r}"

    # ---- what a trace asks for

    def run(self, args: tuple, kwargs: dict) -> tuple[Any, Any]:
        """The value, and what the pullback needs besides it; arguments may be boxes."""
        raise NotImplementedError

    def pullback(self, call: Call, active: Sequence[int]) -> Callable[[Any], Any]:
        """From a cotangent of the value to one of each positional argument, or ``None``.

        ``active`` are the places of those leaves of the arguments that are differentiated.
        """
        raise NotImplementedError

    def push(self, call: Call, tangents: tuple) -> Any:
        """The tangent of the value, from those of the positional arguments."""
        raise NotImplementedError
