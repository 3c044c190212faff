"""Shipping: what is sent to a cluster with every evaluation, and could stay there."""

import weakref
import zlib
from collections.abc import Callable, Hashable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from dask.sizeof import sizeof
from dask.utils import format_bytes

from daskgrad.graph.activity import Graph
from daskgrad.graph.nodes import Constant, Node, models
from daskgrad.models.finite import is_debugging
from daskgrad.models.model import Model, SentFunction
from daskgrad.sums.item_sum import ReductionNode
from daskgrad.sums.sources import Column
from daskgrad.values.descriptions import describe
from daskgrad.values.trees import flatten

TIMES = 3  # how often the same is sent before it is worth a word
HEAVY = 2**20  # bytes in all

PLACE = (
    "put them there once, with shards = dg.place(items), and sum over shards in the place of items"
)
PLACE_BESIDE = (
    "put them there once, together with what they are zipped with, with "
    "shards = dg.place(dg.zip(a, b)), and sum over shards in the place of dg.zip(a, b)"
)
SCATTER = (
    "put what is large there once, with future = client.scatter(array, broadcast=True), and pass "
    "the future as an argument"
)

PLAIN = (int, float, complex, str, bytes, type(None), np.generic)


class Load(NamedTuple):
    """How much is sent, and what tells it from what was sent before."""

    nbytes: int
    checksum: int


class Shipment(NamedTuple):
    """Something that goes with the tasks of an evaluation, and how to leave it there."""

    what: str
    load: Load
    remedy: str


Look = Callable[[], Shipment]  # which costs something: not for what has been looked at
_sent: weakref.WeakKeyDictionary[Any, dict[Hashable, list[Load]]] = weakref.WeakKeyDictionary()


def complaints(graph: Graph, client: Any) -> list[str]:
    """What to say about what is sent to the client's cluster once more.

    Something is said once of each: they are known by their models' names, and by how many items or
    of which shape they are. Nothing is said of what was another one in one of the first calls (a
    batch, a direction), which would not be of use there, nor while ``debug_nans`` watches.
    """
    if client is None or is_debugging():
        return []
    sent = _sent.setdefault(client, {})
    said = []
    for which, look in dict(shipments(graph)).items():
        loads = sent.setdefault(which, [])
        if len(loads) < TIMES:
            shipment = look()
            loads.append(shipment.load)
            said.extend(complaint(shipment, loads))
    return said


def complaint(shipment: Shipment, loads: Sequence[Load]) -> list[str]:
    size = sum([load.nbytes for load in loads])
    if len(loads) < TIMES or len(set(loads)) > 1 or size < HEAVY:
        return []
    sent = f"sent to the cluster {TIMES} times, {format_bytes(size)} in all"
    return [f"{shipment.what} {sent}; {shipment.remedy}"]


def shipments(graph: Graph) -> Iterator[tuple[Hashable, Look]]:
    for node in graph.order:
        if isinstance(node, ReductionNode):
            yield from items_of(node)
        yield from arrays_of(node)
    for model in models(graph.order):
        yield model.name, partial(shipped_model, model)


def items_of(node: ReductionNode) -> Iterator[tuple[Hashable, Look]]:
    """Those that go with the tasks; a variable's change from call to call anyway."""
    columns = [each for each in node.items.columns if is_sent(each)]
    if columns:
        # beside one placed collection another one would make a task graph of every evaluation
        remedy = PLACE_BESIDE if len(node.items.placed) == 1 else PLACE
        yield (node.name, columns[0].count), partial(shipped_items, node.name, columns, remedy)


def is_sent(column: Column) -> bool:
    return type(column) is Column and column.variable is None


def arrays_of(node: Node) -> Iterator[tuple[Hashable, Look]]:
    """The large arrays among the arguments."""
    for source in node.inputs:
        if isinstance(source, Constant) and isinstance(source.value, np.ndarray):
            array = source.value
            yield (node.name, array.dtype, array.shape), partial(shipped_array, node.name, array)


def shipped_items(name: str, columns: Sequence[Column], remedy: str) -> Shipment:
    """The first and the last item tell a list from another one."""
    ends = [each.items[place] for each in columns for place in (0, -1)]
    load = Load(sum([sizeof(column.items) for column in columns]), checksum(ends))
    return Shipment(f"the {columns[0].count} items of the sum over {name!r} were", load, remedy)


def shipped_model(model: Model) -> Shipment:
    data = SentFunction.of(model).data
    what = f"model {model.name!r}, with all that it refers to, was"
    return Shipment(what, Load(len(data), zlib.crc32(data)), SCATTER)


def shipped_array(name: str, array: np.ndarray) -> Shipment:
    what = f"an argument of model {name!r}, {describe(array)}, was"
    return Shipment(what, Load(array.nbytes, checksum(array)), SCATTER)


def checksum(value: Any) -> int:
    total = 0
    for leaf in flatten(value)[0]:
        total = zlib.crc32(bytes_of(leaf), total)
    return total


def bytes_of(leaf: Any) -> bytes:
    """Of anything but numbers, text and arrays of such its class."""
    if isinstance(leaf, np.ndarray) and not leaf.dtype.hasobject:
        return leaf.tobytes()
    return (repr(leaf) if isinstance(leaf, PLAIN) else type(leaf).__name__).encode()
