"""Shipping: items that are sent to a cluster with every evaluation, and could stay there."""

import weakref
from collections import Counter
from typing import Any

from dask.sizeof import sizeof
from dask.utils import format_bytes

from daskgrad.columns import Column
from daskgrad.graph import Graph
from daskgrad.reduction import ReductionNode

TIMES = 3  # how often the same items are sent before it is worth a word
HEAVY = 2**20  # bytes in all

_sent: weakref.WeakKeyDictionary[Any, Counter] = weakref.WeakKeyDictionary()


def complaints(graph: Graph, client: Any) -> list[str]:
    """What to say about the sums whose items are sent to the client's cluster once more.

    Something is said once of each sum, which is known by its model's name and the number of items.
    """
    if client is None:
        return []
    counts = _sent.setdefault(client, Counter())
    said = []
    for node in graph.order:
        if isinstance(node, ReductionNode) and (columns := sent_columns(node)):
            which = (node.model.name, columns[0].count)
            counts[which] += 1
            if counts[which] == TIMES:
                said.extend(complaint(node, columns))
    return said


def sent_columns(node: ReductionNode) -> list[Column]:
    """The columns whose items go with the tasks; a variable's change from call to call anyway."""
    return [each for each in node.items.columns if type(each) is Column and each.variable is None]


def complaint(node: ReductionNode, columns: list[Column]) -> list[str]:
    size = sum([sizeof(column.items) for column in columns])
    if TIMES * size < HEAVY:
        return []
    return [
        f"the {columns[0].count} items of the sum over {node.model.name!r} were sent to the "
        f"cluster {TIMES} times, {format_bytes(TIMES * size)} in all; put them there once, with "
        f"shards = dg.place(items), and sum over shards in the place of items"
    ]
