"""Collections: nodes and results as Dask collections, and Dask's own."""

import copy
import itertools
import sys
import uuid
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import dask
import dask.local
import dask.threaded
from dask.base import (
    DaskMethodsMixin,
    collections_to_expr,
    is_dask_collection,
    replace_name_in_key,
)
from dask.core import flatten
from dask.delayed import single_key
from dask.highlevelgraph import HighLevelGraph, MaterializedLayer
from dask.task_spec import Alias, DataNode, GraphNode, TaskRef
from dask.typing import Key

from daskgrad.autodiff.models.finite import is_debugging
from daskgrad.tasks.keys import watched_key


def task_of(single: Any) -> TaskRef:
    """The key of a collection's task; the collection's own key may be an alias, as in dataframes.

    Dask's process scheduler loses an alias when it fuses tasks.
    """
    held = single.__dask_graph__()[single.key]
    return TaskRef(held.key if isinstance(held, TaskRef) else single.key)


def is_collection(value: Any) -> bool:
    """Whether a value is a Dask collection or a future."""
    may_be = hasattr(type(value), "__dask_graph__")  # Dask asks the object
    return (may_be and is_dask_collection(value)) or isinstance(value, TaskRef)


def is_dask_array(value: Any) -> bool:
    """Whether a value is a dask Array, without an import of ``dask.array``."""
    module = sys.modules.get("dask.array")
    return module is not None and isinstance(value, module.Array)


def require_known_chunks(array: Any) -> None:
    if any([size != size for sizes in array.chunks for size in sizes]):  # NaN is unknown
        raise ValueError(
            "the chunks of a dask Array must be known: call its compute_chunk_sizes() first"
        )


def as_dask_array(graph: HighLevelGraph, keys: Sequence[Key], chunks: Any, dtype: Any) -> Any:
    """The dask Array with the results of these keys, in C order, as chunks."""
    from dask.array import Array  # here: it imports SciPy

    name = f"daskgrad-{uuid.uuid4().hex}"
    places = itertools.product(*[range(len(sizes)) for sizes in chunks])
    pairs = [((name, *place), key) for place, key in zip(places, keys, strict=True)]
    layer = MaterializedLayer({chunk: Alias(chunk, key) for chunk, key in pairs})
    layers = {**graph.layers, name: layer}
    dependencies = {**graph.dependencies, name: set(graph.layers)}
    return Array(HighLevelGraph(layers, dependencies), name, chunks, dtype=dtype)


def cull(graph: HighLevelGraph, keys: Any) -> HighLevelGraph:
    """The tasks that the keys need; the keys are in lists of any depth."""
    return graph.cull(set(flatten([keys])))


def is_there(future: Any) -> bool:
    """Whether the cluster has a placed result, as far as the client has heard."""
    return future.status == "finished"


class HoldingLayer(MaterializedLayer):
    """Tasks, and the futures that they refer to: a cluster drops futures that nobody holds.

    Only the process that made the layer holds them. Futures of ``placed`` items are not held.
    """

    def __init__(
        self,
        tasks: dict[Key, Any],
        annotations: dict[str, Any],
        futures: Sequence[Any],
        placed: Sequence[weakref.ref],
    ):
        super().__init__(tasks, annotations=annotations)
        self._futures = futures
        self._placed = placed

    @property
    def is_current(self) -> bool:
        """Whether the placed items are still where they were."""
        futures = [reference() for reference in self._placed]
        return all([future is not None and is_there(future) for future in futures])

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_futures": (), "_placed": ()}


class Collection(DaskMethodsMixin):
    """A Dask collection with one key; ``is_settled``: its graph is fixed, as after ``persist``."""

    key: Key
    is_settled = False
    _graph: HighLevelGraph | None = None

    def build_graph(self) -> HighLevelGraph:
        raise NotImplementedError

    def __dask_graph__(self) -> HighLevelGraph:
        """The fixed graph, or a built one: a new one within ``debug_nans``, and after placed items
        have moved."""
        if self._graph is not None:
            return self._graph
        built, is_watched = self.__dict__.setdefault("_built", {}), is_debugging()
        if is_watched not in built or not is_current(built[is_watched]):
            built[is_watched] = self.build_graph()
        return built[is_watched]

    @property
    def held(self) -> Any:
        """A settled collection's value in a ``DataNode``, or its future; None for others."""
        task = None if self._graph is None else self._graph.to_dict().get(self.key)
        return task if isinstance(task, DataNode | TaskRef) else None

    def __dask_keys__(self) -> list[Key]:
        return [self._key_in_graph()]

    def _key_in_graph(self) -> Key:
        is_watched = self._graph is None and is_debugging()
        return watched_key(self.key) if is_watched else self.key

    def __dask_layers__(self) -> Sequence[str]:
        return tuple(self.__dask_graph__().layers)

    def __dask_tokenize__(self) -> Key:
        return self._key_in_graph()

    __dask_optimize__ = staticmethod(cull)
    __dask_scheduler__ = staticmethod(dask.threaded.get)

    def __dask_postcompute__(self) -> tuple[Callable, tuple]:
        return single_key, ()

    def __dask_postpersist__(self) -> tuple[Callable, tuple]:
        return self._with_graph, ()

    def _with_graph(self, graph: Any, *, rename: dict | None = None) -> "Collection":
        """The collection on another graph: persisted, or cloned under other keys."""
        other = copy.copy(self)
        other.key = replace_name_in_key(self._key_in_graph(), rename or {})
        if not isinstance(graph, HighLevelGraph):
            graph = {  # a persisted value is data, unless it is a future
                key: value if isinstance(value, TaskRef | GraphNode) else DataNode(key, value)
                for key, value in graph.items()
            }
            graph = HighLevelGraph.from_collections(f"daskgrad-{uuid.uuid4().hex}", graph)
        other._graph = graph
        other.is_settled = True
        return other


def is_current(graph: HighLevelGraph) -> bool:
    """Whether placed items that a graph refers to are still where they were."""
    layers = [layer for layer in graph.layers.values() if isinstance(layer, HoldingLayer)]
    return all([layer.is_current for layer in layers])


class LazyResult(Collection):
    """One key of a graph."""

    def __init__(self, key: Key, graph: HighLevelGraph):
        self.key = key
        self._graph = graph


class Results:
    """Some keys of a graph, as one collection: of many, Dask would go through all for each key."""

    def __init__(self, keys: Sequence[Key], graph: HighLevelGraph):
        self._keys = keys
        self._graph = graph

    def compute_by(self, scheduler: Callable, **options: Any) -> Sequence[Any]:
        """The results of the keys, computed by a scheduler of Dask's or of the user's."""
        return scheduler(collections_to_expr(self, optimize_graph=False), self._keys, **options)

    def __dask_graph__(self) -> HighLevelGraph:
        return self._graph

    def __dask_keys__(self) -> Sequence[Key]:
        return self._keys

    def __dask_postcompute__(self) -> tuple[Callable, tuple]:
        return list, ()
