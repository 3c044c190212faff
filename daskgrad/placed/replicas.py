"""Replicas: arrays that each worker keeps a copy of, and the updates of these copies.

The array in this process is the one that counts. An optimiser changes it here, and the next request
brings workers the new values of the entries that changed, or the whole array. So no worker computes
an update, and a copy that was lost, or is late, is made good from here.
"""

import contextlib
import threading
import uuid
import weakref
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from daskgrad.autodiff.values.descriptions import describe
from daskgrad.autodiff.values.elsewhere import replicated, replicated_among, replicated_of
from daskgrad.autodiff.values.memory import canonical_leaf, require_room
from daskgrad.autodiff.values.rows import Rows, loose_rows
from daskgrad.autodiff.values.trees import flatten, unflatten
from daskgrad.placed.messages import Frames, StandIn, pack
from daskgrad.placed.updates import ChangedEntries, WholeArray

# -------------------------------------------------------------------------------------------------
# Readers: arrays that evaluations use do not change before these have ended.


class Readable:
    """Something that optimisers change, and that evaluations read; errors call it ``subject``."""

    def __init__(self, subject: str) -> None:
        self._subject = subject
        self._readers = 0
        self._lock = threading.RLock()  # it may stand at several places of a pytree

    @contextlib.contextmanager
    def reading(self) -> Iterator[None]:
        """Nobody changes it meanwhile."""
        with self._lock:
            self._readers += 1
        try:
            yield
        finally:
            with self._lock:
                self._readers -= 1

    @contextlib.contextmanager
    def without_readers(self) -> Iterator[None]:
        """No evaluation begins meanwhile; RuntimeError if one is under way."""
        with self._lock:
            if self._readers:
                raise RuntimeError(
                    f"a sum that uses {self._subject} is being evaluated; update it when that "
                    f"evaluation has ended"
                )
            yield


# ---------------------------------------------------------------------------------------- replicas

LOGGED = 256  # bytes that a change in the log takes beside its indices

# The version that a copy must have at least, and an update of it (``updates``); None for any copy,
# or none.
FramesSince = tuple[int | None, Frames]


class ChangedPlaces(NamedTuple):
    """Entries along some axes of an array, as in ``Rows``; to send them takes ``cost`` bytes."""

    axes: tuple[int, ...]
    indices: np.ndarray
    cost: int


class Replicated(Readable):
    """A replicated array's version, and the entries that changed lately.

    The user's array shows the memory of ``owner``, which is writeable. So whoever asks whether an
    array may change (purity, values that are views of arguments) finds that this one may.
    """

    def __init__(self, owner: np.ndarray):
        super().__init__(f"a replicated array, {describe(owner)},")
        self.name = uuid.uuid4().hex
        self.version = 0
        self._owner = owner
        self._log: deque[ChangedPlaces] = deque()  # of the latest versions
        self._cost = 0
        self._is_sent = False

    @contextlib.contextmanager
    def changing(self, array: np.ndarray, entries: Rows | None) -> Iterator[None]:
        """The array is writeable; a new version afterwards, in which these entries are new."""
        array.setflags(write=True)
        try:
            yield
        except BaseException:
            entries = None  # any entry may have changed
            raise
        finally:
            array.setflags(write=False)
            self._note(entries)

    def _note(self, entries: Rows | None) -> None:
        if entries is not None and not len(entries.indices):
            return
        self.version += 1
        if entries is None or not self._is_sent:
            self._log.clear()
            self._cost = 0
            return
        self._log.append(
            ChangedPlaces(entries.axes, entries.indices.copy(), entries.nbytes + LOGGED)
        )
        self._cost += self._log[-1].cost
        while self._cost > self._owner.nbytes:  # then the array is the shorter message
            self._cost -= self._log.popleft().cost

    def update(self, since: int | None) -> FramesSince:
        """An update that brings copies of this version, and of later ones, up to date."""
        self._is_sent = True
        missed = len(self._log) + 1 if since is None else self.version - since
        log = list(self._log)[-missed:]
        axes = log[0].axes if log else ()
        if since is None or missed > len(log) or any([places.axes != axes for places in log]):
            return None, pack(WholeArray(self._owner))
        indices = np.unique(np.concatenate([places.indices for places in log]))
        values = loose_rows(self._owner.shape, axes, indices, indices).gather(self._owner)
        return since, pack(ChangedEntries(since, axes, indices, values))


def replicate(array: Any) -> np.ndarray:
    """An array for models' shared arguments; each worker keeps a copy of it.

    For parameters that are too large to be sent with each call::

        W = dg.replicate(np.zeros((1_000_000, 64)))
        step = dg.value_and_grad(lambda W: dg.map_sum(model, shards, W), sparse=True)
        state = optimiser.init(W)
        value, rows = step(W)                # the first call sends W, the others do not
        optimiser.update(W, rows, state)     # the next call sends the new values of these rows

    It is an ordinary array, but read-only: ``dg.optim`` changes it, and nobody else. Sums over
    placed items (``place``), as they are evaluated by ``value_and_grad`` and ``grad`` on a cluster,
    use the workers' copies. Everything else uses the array itself, and sends it where it is needed,
    as it does with any array.

    Copies have the array's bits, on every worker: a version number tells a copy that is late, and a
    worker that is new, or has lost its copy, gets the array again. An update by a dense gradient,
    or by more rows than the array has, is the whole array. The copies are released with the array.

    To go on with saved numbers, replicate these: ``W = dg.replicate(np.load(file))``. A node that
    has the array among its arguments, and is computed after an update, has the new numbers, as with
    any array that is changed in place.

    Parameters
    ----------
    array:
        an array of numbers; it is copied.

    Raises
    ------
    TypeError
        if it is anything else.
    RuntimeError
        by ``update``, while another thread calls a function of ``value_and_grad``, ``grad`` or
        ``per_item`` with it, over placed items.

    See Also
    --------
    place, Rows

    Examples
    --------
    >>> table = dg.replicate(np.ones((1000, 2)))  # on a cluster each worker keeps a copy
    >>> table.shape
    (1000, 2)
    """
    if type(array) not in (np.ndarray, np.memmap) or array.dtype.kind not in "biufc":
        raise TypeError(
            f"dg.replicate takes a plain array of numbers; found {describe(array)}, of type "
            f"{type(array).__name__}; replicate the large arrays of a pytree, one by one"
        )
    require_room(array)
    owner = canonical_leaf(np.array(array, order="C", subok=False))
    view = owner.view()
    view.setflags(write=False)
    key, forget = id(view), replicated.pop  # Python clears a module's names before all arrays go
    replicated[key] = weakref.ref(view, lambda _: forget(key, None)), Replicated(owner)
    return view


def replicated_in(values: Iterable[Any]) -> list[Replicated]:
    """The replicated arrays in these pytrees."""
    return replicated_among(leaf for value in values for leaf in flatten(value)[0])


def with_stand_ins(value: Any) -> Any:
    """A pytree as it is sent: its replicated arrays stay behind."""
    if not replicated:
        return value
    leaves, structure = flatten(value)
    arrays = [replicated_of(leaf) for leaf in leaves]
    if not any(arrays):
        return value
    pairs = zip(leaves, arrays, strict=True)
    return unflatten(structure, [leaf if a is None else StandIn(a.name) for leaf, a in pairs])
