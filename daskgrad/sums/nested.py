"""Nested: sums inside models, where nothing is recorded.

The terms may hold the boxes of a trace, so they are added with ``+``, in the order of every other
sum: derivatives flow through it as through the rest of the model.
"""

from collections.abc import Callable, Iterable
from typing import Any

from daskgrad.values.addition import add_anew
from daskgrad.values.protection import protect
from daskgrad.values.summation import pairwise


def nested_sum(fun: Callable, name: str, items: Iterable[Any], shared: tuple) -> Any:
    """The sum of ``fun(item, *shared)`` over at least one item."""
    return pairwise((term(fun, name, *pair, shared) for pair in enumerate(items)), add_anew)


def term(fun: Callable, name: str, number: int, item: Any, shared: tuple) -> Any:
    try:
        return fun(*protect([item, *shared]))
    except Exception as error:
        error.add_note(f"daskgrad: in item {number} of a sum of {name!r} inside a model")
        raise
