"""Replicas: arrays of which each worker keeps a copy, and the changes that bring it up to date.

The array in this process is the one that counts. An optimiser changes it here, and the next call
sends each worker what it lacks: the new values of the entries that changed, or the whole array.
So no worker computes an update, and a copy that was lost, or is late, is made good from here.
"""

import contextlib
import threading
import uuid
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from daskgrad.resident.messages import Frames, StandIn, pack
from daskgrad.values.descriptions import describe
from daskgrad.values.memory import canonical_leaf, require_room
from daskgrad.values.rows import Rows
from daskgrad.values.trees import flatten, unflatten


class Update(NamedTuple):
    """What brings a copy from one version to another: the values of rows, or the whole array."""

    since: int | None  # None: from whatever there is
    to: int
    frames: Frames


class Replicated:
    """What is known here of a replicated array: its version, and its latest changes.

    ``readers`` are the calls that are being evaluated with it.
    """

    def __init__(self, array: np.ndarray):
        self.name = uuid.uuid4().hex
        self.version = 0
        self._array = weakref.ref(array)
        self._room = array.nbytes
        self._changes: deque[tuple[int, Rows]] = deque()  # by the version that each one made
        self._readers = 0
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def changing(self, entries: Rows | None) -> Iterator[None]:
        """The array is writeable; a new version afterwards, in which these entries are new."""
        array = self._array()
        assert array is not None
        with self._lock:
            self.require_no_reader()
            array.setflags(write=True)
            try:
                yield
            except BaseException:
                entries = None  # what has changed is not known
                raise
            finally:
                array.setflags(write=False)
                self._note(array, entries)

    def _note(self, array: np.ndarray, entries: Rows | None) -> None:
        self.version += 1
        if entries is None:
            self._changes.clear()
            return
        changed = Rows(array.shape, entries.axes, entries.indices.copy(), entries.gather(array))
        self._changes.append((self.version, changed))
        while sum([rows.nbytes for _, rows in self._changes]) > self._room:
            self._changes.popleft()

    def require_no_reader(self) -> None:
        """Raises while an evaluation uses the array."""
        if self._readers:
            raise RuntimeError(
                f"a sum that uses a replicated array, {describe(self._array())}, is being "
                f"evaluated; update the array when that evaluation has ended"
            )

    @contextlib.contextmanager
    def reading(self) -> Iterator[None]:
        """Nobody changes the array meanwhile."""
        with self._lock:
            self._readers += 1
        try:
            yield
        finally:
            with self._lock:
                self._readers -= 1

    def updates(self, since: int | None) -> list[Update]:
        """What brings copies of this version, and later ones, up to date."""
        if since == self.version:
            return []
        oldest = self.version - len(self._changes)
        if since is None or since < oldest:
            return [Update(None, self.version, pack(self._array()))]
        changes = [(to, rows) for to, rows in self._changes if to > since]
        return [Update(to - 1, to, pack((rows.axes, *rows.arrays))) for to, rows in changes]


_known: dict[int, tuple[weakref.ref, Replicated]] = {}  # by the array's id
_forgetters: list[Callable[[str], None]] = []  # who wants to hear of arrays that are gone


def replicate(array: Any) -> np.ndarray:
    """An array for models' shared arguments of which each worker keeps a copy.

    For parameters that are too large to be sent with each call::

        W = dg.replicate(np.zeros((1_000_000, 64)))
        step = dg.value_and_grad(lambda W: dg.map_sum(model, shards, W), sparse=True)
        state = optimiser.init(W)
        value, rows = step(W)                # the first call sends W, the others do not
        optimiser.update(W, rows, state)     # the next call sends the new values of these rows

    It is an ordinary array, but read-only: ``dg.optim`` changes it, and nobody else. Sums over
    placed items (``place``), as they are evaluated by ``value_and_grad``, ``grad`` and ``per_item``
    on a cluster, use the workers' copies. Everything else uses the array itself, and sends it where
    it is needed, as it does with any array.

    Copies have the array's bits, on every worker: a version number tells a copy that is late, and a
    worker that is new, or has lost its copy, gets the array again. An update by a dense gradient,
    or by more rows than the array has, is the whole array. The copies are released with the array.

    Parameters
    ----------
    array:
        an array of numbers; it is copied.

    Raises
    ------
    TypeError
        if it is anything else.
    RuntimeError
        by ``update``, while another thread evaluates a sum with it.
    """
    if type(array) not in (np.ndarray, np.memmap) or array.dtype.kind not in "biufc":
        raise TypeError(
            f"dg.replicate takes an array of numbers; found {describe(array)}; replicate the "
            f"large arrays of a pytree, one by one"
        )
    require_room(array)
    own = canonical_leaf(np.array(array, order="C", subok=False))
    own.setflags(write=False)
    key, replicated = id(own), Replicated(own)

    def forget(_: weakref.ref) -> None:
        _known.pop(key, None)
        for each in _forgetters:
            each(replicated.name)

    _known[key] = weakref.ref(own, forget), replicated
    return own


def tell_when_gone(forget: Callable[[str], None]) -> None:
    """Calls a function with the name of each array that is released from now on."""
    _forgetters.append(forget)


def replicated_of(array: Any) -> Replicated | None:
    """What is known of an array; None if it is not replicated."""
    found = _known.get(id(array))
    return None if found is None else found[1]


def require_no_reader(array: Any) -> None:
    """Raises if an array is replicated, and used in an evaluation."""
    replicated = replicated_of(array)
    if replicated is not None:
        replicated.require_no_reader()


def replicated_in(values: Iterable[Any]) -> list[Replicated]:
    """Those of the arrays in these pytrees that are replicated."""
    if not _known:
        return []
    leaves = [leaf for value in values for leaf in flatten(value)[0]]
    return [each for each in map(replicated_of, leaves) if each is not None]


def with_stand_ins(value: Any) -> Any:
    """A pytree as it is sent: its replicated arrays stay behind."""
    if not _known:
        return value
    leaves, structure = flatten(value)
    found = [replicated_of(leaf) for leaf in leaves]
    if not any(found):
        return value
    pairs = zip(leaves, found, strict=True)
    sent = [leaf if each is None else StandIn(each.name) for leaf, each in pairs]
    return unflatten(structure, sent)
