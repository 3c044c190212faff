"""Notices: warnings for users."""

import sys
import warnings
import weakref
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from dask.utils import format_bytes

from daskgrad.graph.activity import Graph
from daskgrad.graph.variables import Variable
from daskgrad.models.finite import is_debugging
from daskgrad.sums.item_sum import ReductionNode
from daskgrad.sums.sources import Source
from daskgrad.values.cotangents import nbytes
from daskgrad.values.elsewhere import Elsewhere
from daskgrad.values.trees import flatten

TIMES = 3  # how often the same items are sent before the user is warned
HEAVY = 2**20  # bytes in all

_sent: weakref.WeakKeyDictionary[Any, dict] = weakref.WeakKeyDictionary()  # by clients


def warn_of_independent(variables: Sequence[Variable], name: str) -> None:
    for independent in variables:
        warnings.warn(
            f"the output of {name!r} does not depend on {independent.name!r}; its gradient is zero",
            stacklevel=outside(),
        )


def warn_of_shipping(graph: Graph, client: Any) -> None:
    """Warns when the items of a sum are sent to a cluster for the third time.

    The sum's name and the first array among the items identify them. While ``debug_nans`` watches,
    items are always sent, and nothing is said.
    """
    if client is None or is_debugging():
        return
    sent = _sent.setdefault(client, {})
    for name, items in items_sent(graph):
        leaves = [items] if isinstance(items, np.ndarray) else flatten(items[0])[0]
        first = next((leaf for leaf in leaves if isinstance(leaf, np.ndarray)), None)
        known, times = sent.get((name, len(items)), (None, 0))
        if first is None or times == TIMES:
            continue
        times = times + 1 if known is not None and known() is first else 1
        sent[name, len(items)] = weakref.ref(first), times
        size = TIMES * nbytes(flatten(items)[0]) if times == TIMES else 0
        if size >= HEAVY:
            warnings.warn(
                f"the {len(items)} items of the sum over {name!r} were sent to the cluster {TIMES} "
                f"times, {format_bytes(size)} in all; put them there once, with shards = "
                f"dg.place(items), or dg.place(dg.zip(a, b)), and sum over shards",
                stacklevel=outside(),
            )


def items_sent(graph: Graph) -> Iterator[tuple[str, Any]]:
    """The items that travel with the tasks of sums, except those of variables, which change."""
    for node in graph.order:
        for source in node.items.sources if isinstance(node, ReductionNode) else ():
            is_here = type(source) is Source and not isinstance(source.items, Elsewhere)
            if is_here and source.variable is None:
                yield node.name, source.items


def outside() -> int:
    """The stacklevel, for the caller's warning, of the first frame that is not of this package."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back and frame.f_globals.get("__name__", "").startswith("daskgrad."):
        level, frame = level + 1, frame.f_back
    return level
