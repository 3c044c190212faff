"""Twins: stand-ins for plain NumPy's functions in calls with traced values.

autograd finds traced values among the positional arguments of its primitives alone. So a function
that takes traced values in lists or by keyword has a twin: for ``recorded`` functions it puts the
arguments of a primitive in their positions; ``composed`` ones are a few lines of other functions,
and are not recorded themselves.
"""

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import autograd.numpy as anp
import numpy as np
from autograd.core import JVPNode, VJPNode
from autograd.extend import register_notrace
from autograd.numpy import linalg
from autograd.tracer import isbox

from daskgrad.autodiff.rules.declaration import Refusal, declare, plain

TWINS: dict[Callable, Callable] = {}  # a function of plain NumPy's -> its twin
signature_of = functools.cache(inspect.signature)


def composed(*funs: Callable) -> Callable:
    """Enters the decorated function, which has the same value, as the twin of NumPy's."""

    def enter(twin: Callable) -> Callable:
        TWINS.update(dict.fromkeys(funs, twin))
        return twin

    return enter


def recorded(fun: Callable, arrays: int, **rules: Any) -> Callable:
    """Declares the decorated program of a primitive; its first ``arrays`` arguments may be traced,
    by keyword and in lists, too."""
    primitive = getattr(anp, fun.__name__)

    def enter(program: Callable) -> Callable:
        declare(primitive, program=program, arrays=arrays, **rules)
        TWINS[fun] = by_position(fun, primitive, arrays)
        return program

    return enter


def by_position(fun: Callable, primitive: Callable, arrays: int) -> Callable:
    """A primitive that takes its arrays by keyword and as lists, too."""

    def call(*args: Any, **kwargs: Any) -> Any:
        args, kwargs = in_positions(fun, args, kwargs)
        return primitive(*map(as_array, args[:arrays]), *args[arrays:], **kwargs)

    return call


def in_positions(fun: Callable, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
    """The arguments of a call, by position where NumPy's function takes them so; a Refusal of
    traced ones that it takes by name alone."""
    if not kwargs:
        return args, kwargs
    signature = signature_of(fun)
    kinds = {name: parameter.kind for name, parameter in signature.parameters.items()}
    places = [name for name, kind in kinds.items() if kind is not inspect.Parameter.KEYWORD_ONLY]
    placed = [places.index(name) for name in kwargs if name in places]
    if placed:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        args = bound.args[: max(len(args), *[place + 1 for place in placed])]
        kwargs = {name: parameter for name, parameter in kwargs.items() if name not in places}
    if any(map(isbox, kwargs.values())):
        names = ", ".join([f"{name}=" for name, value in kwargs.items() if isbox(value)])
        raise Refusal(
            f"np.{fun.__name__} has no derivative rule for {names}; pass the plain number, "
            f"dg.value(...), if you do not need this derivative"
        )
    return args, kwargs


def as_array(value: Any) -> Any:
    """A list as the array that it stands for; all else as it is."""
    return anp.array(value) if isinstance(value, list | tuple) else value


def operand(value: Any) -> Any:
    """A list, or an array of traced numbers, as the array that it stands for; a box as it is."""
    if isinstance(value, np.ndarray) and value.dtype == object:
        value = value.tolist()
    return as_array(value) if isinstance(value, list | tuple) or isbox(value) else np.asarray(value)


def within(value: Any) -> bool:
    """Whether a value, or a list of values, is traced."""
    if isinstance(value, list | tuple):
        return any(map(within, value))
    return isbox(value)


def joined(arrays: Any) -> Any:
    """All entries of arrays, in a vector."""
    return anp.concatenate([anp.ravel(array) for array in arrays])


# -------------------------------------------------------------------------------------------------
# Constants: functions that are constant between their jumps, and that autograd does not know.


for fun in (
    *(anp.signbit, anp.spacing, anp.digitize, anp.isin, anp.nanargmax, anp.nanargmin),
    *(anp.lexsort, linalg.matrix_rank),
):
    for node in (VJPNode, JVPNode):
        register_notrace(node, fun)


@composed(np.lexsort)
def lexsort(keys: Sequence[Any], axis: int = -1) -> Any:
    return np.lexsort([plain(key) for key in keys], axis)


# -------------------------------------------------------------------------------------------------
# In place: functions of plain NumPy that write into an array, which a trace cannot record.


def refuse(fun: Callable, instead: str) -> None:
    @composed(fun)
    def twin(*args: Any, **kwargs: Any) -> Any:
        raise TypeError(
            f"np.{fun.__name__} writes into an array, which has no derivative where a value or "
            f"the array is traced (an ArrayBox); {instead}"
        )


for fun in (np.put, np.place, np.putmask, np.copyto, np.put_along_axis):
    refuse(fun, "make a new array: np.where(mask, values, array)")
refuse(np.fill_diagonal, "make a new array: np.where(np.eye(n, dtype=bool), values, array)")
