"""Batches: many cotangents pulled back along one captured forward pass, several in a task."""

from collections.abc import Callable
from typing import Any, NamedTuple

from daskgrad.values.cotangents import Cotangent
from daskgrad.values.fingerprints import Fingerprint
from daskgrad.values.trees import flatten
from daskgrad.values.vectors import unit


class Batch(NamedTuple):
    """The results of a task for a batch of cotangents, one entry each."""

    entries: tuple[Any, ...]


def for_each(fun: Callable, *args: Any) -> Any:
    """Calls a task's function for each entry of the batches among its arguments."""
    count = next((n for n in map(entries_in, args) if n is not None), None)
    if count is None:
        return fun(*args)
    return Batch(tuple([fun(*[entry(arg, n) for arg in args]) for n in range(count)]))


def entries_in(arg: Any) -> int | None:
    """The number of entries of the batches in an argument; None without batches."""
    if isinstance(arg, Batch):
        return len(arg.entries)
    if isinstance(arg, list):
        return next((n for n in map(entries_in, arg) if n is not None), None)
    return None


def entry(arg: Any, number: int) -> Any:
    if isinstance(arg, Batch):
        return arg.entries[number]
    if entries_in(arg) is None:
        return arg
    return [entry(item, number) for item in arg]


def unit_cotangents(value: Any, start: int, stop: int, seen: Fingerprint | None = None) -> Batch:
    """The unit cotangents of a value for its entries ``start`` to ``stop``.

    Entries are counted over the differentiable leaves, one after another, in C order. ``seen`` is
    the fingerprint of the caller's value.
    """
    leaves = flatten(value)[0]
    return Batch(tuple([Cotangent(unit(leaves, place), seen) for place in range(start, stop)]))
