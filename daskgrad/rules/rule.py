"""Rule: the base of functions that define their own derivative instead of being traced."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

from daskgrad.backends.autograd.custom import Call, call_rule
from daskgrad.models.model import Model
from daskgrad.values.closures import is_named
from daskgrad.values.descriptions import argument_name, describe, function_name
from daskgrad.values.trees import flatten


class Rule:
    """A function with its own rules: called on plain arrays it just runs, on boxes it is one node.

    ``is_first_order``: it has no second derivatives, and below its trace its arguments are never
    boxes; ``kind`` names these functions in errors.
    """

    is_first_order = False
    kind = "functions with rules of their own"

    def __init__(self, fun: Callable, asked: str):
        if not callable(fun):
            raise TypeError(f"the argument of {asked} must be a function; found {describe(fun)}")
        if isinstance(getattr(fun, "model", None), Model):
            raise TypeError(
                f"the argument of {asked} must be a plain function; found {fun!r}; apply "
                f"dg.delayed to the result instead"
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
        """By name if its module has it and its rules, as for plain functions."""
        modules = {getattr(rule, "__module__", "") for rule in self.rules()}
        if is_named(self) and modules <= {self.__module__}:
            return self.__qualname__  # type: ignore[attr-defined]
        return super().__reduce_ex__(protocol)

    def rules(self) -> list[Callable]:
        """The user's functions that define the derivative."""
        return []

    def argument(self, number: int) -> str:
        """A positional argument, for an error."""
        return f"{argument_name(self.fun, number)!r} of {self.name!r}"

    # ---- called by a trace

    def run(self, args: tuple, kwargs: dict) -> tuple[Any, Any]:
        """The value, and the residuals for the pullback; arguments may be boxes."""
        raise NotImplementedError

    def pullback(self, call: Call, active: Sequence[int]) -> Callable[[Any], Any]:
        """Maps a cotangent of the value to one for each positional argument, or ``None``.

        ``active`` are the places of the arguments' leaves that are differentiated.
        """
        raise NotImplementedError

    def push(self, call: Call, tangents: tuple) -> Any:
        """The tangent of the value, from those of the positional arguments."""
        raise NotImplementedError
