"""Shipping: what is sent to a cluster with every evaluation, and could stay there."""

import weakref
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from dask.sizeof import sizeof
from dask.utils import format_bytes

from daskgrad.columns import Column
from daskgrad.cotangents import describe
from daskgrad.graph import Graph
from daskgrad.models import Model, SentFunction
from daskgrad.nodes import Constant, Node, models
from daskgrad.reduction import ReductionNode

TIMES = 3  # how often the same is sent before it is worth a word
HEAVY = 2**20  # bytes in all

PLACE = (
    "put them there once, with shards = dg.place(items), and sum over shards in the place of items"
)
SCATTER = (
    "put what is large there once, with future = client.scatter(array, broadcast=True), and pass "
    "the future as an argument"
)

_sent: weakref.WeakKeyDictionary[Any, Counter] = weakref.WeakKeyDictionary()


class Shipment(NamedTuple):
    """Something that goes with the tasks of an evaluation, and how to leave it there."""

    what: str
    nbytes: Callable[[], int]
    remedy: str


def complaints(graph: Graph, client: Any) -> list[str]:
    """What to say about what is sent to the client's cluster once more.

    Something is said once of each: they are known by their models' names, and by how many items or
    of which shape they are.
    """
    if client is None:
        return []
    counts = _sent.setdefault(client, Counter())
    said = []
    for which, shipment in dict(shipments(graph)).items():
        counts[which] += 1
        if counts[which] == TIMES:
            said.extend(complaint(shipment))
    return said


def complaint(shipment: Shipment) -> list[str]:
    size = TIMES * shipment.nbytes()
    if size < HEAVY:
        return []
    sent = f"sent to the cluster {TIMES} times, {format_bytes(size)} in all"
    return [f"{shipment.what} {sent}; {shipment.remedy}"]


def shipments(graph: Graph) -> Iterator[tuple[Hashable, Shipment]]:
    for node in graph.order:
        if isinstance(node, ReductionNode):
            yield from items_of(node)
        yield from arrays_of(node)
    for model in models(graph.order):
        what = f"model {model.name!r}, with all that it refers to, was"
        yield model.name, Shipment(what, partial(nbytes_of_model, model), SCATTER)


def items_of(node: ReductionNode) -> Iterator[tuple[Hashable, Shipment]]:
    """Those that go with the tasks; a variable's change from call to call anyway."""
    columns = [each for each in node.items.columns if is_sent(each)]
    if columns:
        count = columns[0].count
        what = f"the {count} items of the sum over {node.name!r} were"
        yield (node.name, count), Shipment(what, partial(nbytes_of_items, columns), PLACE)


def is_sent(column: Column) -> bool:
    return type(column) is Column and column.variable is None


def arrays_of(node: Node) -> Iterator[tuple[Hashable, Shipment]]:
    """The large arrays among the arguments."""
    for source in node.inputs:
        if isinstance(source, Constant) and isinstance(source.value, np.ndarray):
            found = describe(source.value)
            what = f"an argument of model {node.name!r}, {found}, was"
            yield (node.name, found), Shipment(what, partial(nbytes_of, source.value), SCATTER)


def nbytes_of_items(columns: Sequence[Column]) -> int:
    return sum([sizeof(column.items) for column in columns])


def nbytes_of_model(model: Model) -> int:
    return len(SentFunction.of(model).data)


def nbytes_of(array: np.ndarray) -> int:
    return array.nbytes
