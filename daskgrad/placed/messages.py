"""Messages: their format on the wire to workers; ``request`` fills it, ``worker_sums`` replies.

Dask's comms break if a message cannot be loaded. So a message holds only bytes, numbers and
strings, and the code that can explain a failure loads the values.
"""

import contextlib
import hashlib
import io
import pickle
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import numpy as np
from distributed.protocol import to_serialize

from daskgrad.autodiff.tape.pickling import AutogradPickler
from daskgrad.autodiff.values.memory import align, canonical
from daskgrad.tasks.sending import is_plain

LARGE = 2**16  # bytes; a buffer of this size travels as a frame of its own, without a copy
SMALL = 2**12  # bytes; a smaller array stays in the pickle: a frame takes longer

# Endings of the names of a worker's handlers: one ends calls and attempts, one calls the store's
# methods.
ABANDON, ASK = "-abandon", "-ask"

Frames = list[Any]


def pack(value: Any) -> Frames:
    """A value as a pickle and the buffers of its arrays; classes of scripts go by value."""
    if is_plain(value):
        with contextlib.suppress(Exception):  # models' pickles may succeed
            frames = frames_of(value, pickle.Pickler)
            if b"__main__" not in frames[0]:
                return frames
    return frames_of(value, AutogradPickler)


def frames_of(value: Any, pickler: type[pickle.Pickler]) -> Frames:
    file, buffers = io.BytesIO(), []

    def is_in_pickle(buffer: pickle.PickleBuffer) -> bool:
        raw = buffer.raw()
        if raw.nbytes > SMALL:
            buffers.append(raw)
        return raw.nbytes <= SMALL

    pickler(file, protocol=5, buffer_callback=is_in_pickle).dump(value)
    return [file.getvalue(), *buffers]


def unpack(frames: Frames) -> Any:
    """The value; its arrays are writable, and aligned."""
    buffers = [bytearray(f) if isinstance(f, bytes) else align(f) for f in frames[1:]]
    return pickle.loads(frames[0], buffers=buffers)


def frame_message(frames: Frames) -> Frames:
    """Frames as a message holds them."""
    return [
        to_serialize(np.frombuffer(frame, np.uint8)) if len(frame) >= LARGE else bytes(frame)
        for frame in frames
    ]


# Entries by name, by the address of the worker that needs them; "" for all workers.
SentEntries = Mapping[str, Mapping[str, Frames]]
POINT, ROWS = "point", "rows"  # entries of one request; all others go into the workers' stores


def frame_entries(sent: SentEntries, addresses: Iterable[str]) -> dict[str, dict[str, Frames]]:
    """Entries for these workers, and for all, as a message holds them."""
    wanted = {"", *addresses}
    return {
        address: {name: frame_message(frames) for name, frames in entries.items()}
        for address, entries in sent.items()
        if address in wanted
    }


def copy_frames(frames: Frames) -> Frames:
    """Frames in new memory, which do not change when the sender's arrays do."""
    return [bytes(frame) if isinstance(frame, bytes) else bytearray(frame) for frame in frames]


@dataclass(frozen=True, slots=True)
class StandIn:
    """Stands in a message for a parcel or a replicated array that the worker's store has."""

    name: str


@dataclass(frozen=True, slots=True)
class AttachedRows:
    """Stands in a sum for an attached array that the workers have in blocks."""

    layout: str
    name: str


@dataclass(frozen=True, slots=True)
class OnePickle:
    """Items in one pickle, which arrive canonical; Dask sends a list item by item, 40 µs each."""

    items: Any

    def __reduce__(self) -> tuple:
        head, *buffers = pack(self.items)
        return load_items, ([head, *map(pickle.PickleBuffer, buffers)],)


def load_items(frames: Frames) -> Any:
    return canonical(unpack(frames))


def key_of(key: str, move: int, number: int) -> str:
    """The key of a block that a ``move`` brought to its worker."""
    return f"{key}-{move}-{number}"


class JobMessage(NamedTuple):
    """A sum as a request describes it to a worker; ``runs`` and ``unit``: as in ``Assignment``.

    ``needed`` names the entries that its worker's store must have, the summand first. ``inputs``
    are the places of the shared inputs in the point. ``key`` begins the keys of the placed items.
    ``drawn``: the sum is over a sample of items, or over slices of one.
    """

    needed: tuple[str, ...]
    inputs: tuple[int, ...]
    block_count: int
    block_items: int
    key: str
    summation: str
    drawn: Literal["", "items", "slices"] = ""
    runs: Sequence[tuple[int, ...]] = ()
    unit: int = 1


# -------------------------------------------------------------------------------------------------
# Parcels: values that a worker keeps under the digest of their bytes, and is sent once.

PARCELS = 256  # that a worker keeps
FIXED = -1  # the version of each parcel


class Parcel(NamedTuple):
    """A value as frames, and their digest."""

    digest: str
    frames: Frames

    @classmethod
    def of(cls, value: Any) -> "Parcel":
        frames = pack(value)
        return cls(digest_of(frames), frames)

    def is_intact(self) -> bool:
        """Whether nobody has written into the arrays behind the frames since."""
        return digest_of(self.frames) == self.digest


def digest_of(frames: Frames) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for frame in frames:
        digest.update(frame)
    return digest.hexdigest()


class Unopened:
    """A value as frames, which its first user unpacks."""

    def __init__(self, frames: Frames):
        self.nbytes = sum([len(frame) for frame in frames])
        self._frames = frames
        self._value: Any = None
        self._lock = threading.Lock()

    def value(self) -> Any:
        with self._lock:
            if self._frames:
                self._value, self._frames = canonical(unpack(self._frames)), []
            return self._value


# -------------------------------------------------------------------------------------------------
# Drawing: samples of placed items, as requests describe them to workers.


class DrawnRun(NamedTuple):
    """Consecutive drawn items that one ``move`` placed: their indices among all, ascending.

    ``rank`` is the number of the first one among all drawn items; ``slice_rank`` is the number of
    its slice among all slices that hold some.
    """

    rank: int
    slice_rank: int
    move: int
    indices: np.ndarray

    @property
    def stop(self) -> int:
        return self.rank + len(self.indices)


def slices_of(indices: np.ndarray, size: int) -> list[tuple[int, int]]:
    """For each slice of ``size`` items, where its indices begin and end among ascending ones."""
    starts = np.unique(indices // size, return_index=True)[1].tolist()
    return [*pairwise([*starts, len(indices)])]


# -------------------------------------------------------------------------------------------------
# Routes: the trees along which the point goes out to the workers and partial sums come back.
#
# The client calls few workers itself, which is quickest. Workers pass a large point on along a
# binomial tree, and add gradients on the way back: the client sends one point, gets one gradient.

FLAT = 16  # workers that the client calls itself, where the point is small
LARGE_POINT = 2**18  # bytes


class Work(NamedTuple):
    """The jobs of a worker, and the work that it passes on to workers below it."""

    address: str
    jobs: Sequence[JobMessage]
    children: Sequence["Work"] = ()


def routes(works: Sequence[Work], is_large: bool) -> list[Work]:
    """The trees of work; the client calls the first worker of each.

    ``works`` are in the order of their blocks, so that neighbours add up to subtrees.
    """
    if is_large:
        return [binomial(works)]
    size = -(-len(works) // FLAT)
    return [binomial(works[start : start + size]) for start in range(0, len(works), size)]


def binomial(works: Sequence[Work]) -> Work:
    """The first worker with, below it, trees over the next 1, 2, 4, 8 ... workers."""
    children, start, size = [], 1, 1
    while start < len(works):
        children.append(binomial(works[start : start + size]))
        start, size = start + size, 2 * size
    return works[0]._replace(children=children)


def addresses(tree: Work) -> list[str]:
    """All workers of a tree."""
    return [tree.address, *[address for child in tree.children for address in addresses(child)]]
