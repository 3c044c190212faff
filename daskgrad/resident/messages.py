"""Messages: what client and workers say to each other, as bytes that load where they are used.

Dask's comms break when a message cannot be loaded, so a message holds nothing but bytes, numbers
and strings, and what it carries is unpacked by the code that can say what went wrong.
"""

import hashlib
import pickle
import threading
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import cloudpickle
import numpy as np
from distributed.protocol import to_serialize

from daskgrad.values.memory import canonical

PARCELS = 256  # that a worker keeps
LARGE = 2**16  # bytes from which on a buffer travels as a frame of its own, without a copy
SMALL = 2**12  # bytes up to which an array is a part of the pickle: a frame of its own takes longer

Frames = list[Any]


def pack(value: Any) -> Frames:
    """A value as a pickle and the buffers of its arrays; classes of scripts are sent by value."""
    buffers: list[memoryview] = []

    def is_in_pickle(buffer: pickle.PickleBuffer) -> bool:
        raw = buffer.raw()
        if raw.nbytes > SMALL:
            buffers.append(raw)
        return raw.nbytes <= SMALL

    try:
        head = pickle.dumps(value, protocol=5, buffer_callback=is_in_pickle)
    except Exception:  # cloudpickle may do what pickle cannot
        head = b"__main__"
    if b"__main__" in head:
        buffers.clear()
        head = cloudpickle.dumps(value, protocol=5, buffer_callback=is_in_pickle)
    return [head, *buffers]


def unpack(frames: Frames) -> Any:
    """The value; its arrays can be written into, as any array can."""
    return pickle.loads(
        frames[0], buffers=[bytearray(f) if isinstance(f, bytes) else f for f in frames[1:]]
    )


def framed(frames: Frames) -> Frames:
    """Frames as they go into a message."""
    return [
        to_serialize(np.frombuffer(frame, np.uint8)) if len(frame) >= LARGE else bytes(frame)
        for frame in frames
    ]


def all_framed(messages: Mapping[str, Frames]) -> dict[str, Frames]:
    return {name: framed(frames) for name, frames in messages.items()}


def copied(frames: Frames) -> Frames:
    """Frames of their own memory, which stay as they are when the sender's arrays change."""
    return [bytes(frame) if isinstance(frame, bytes) else bytearray(frame) for frame in frames]


class OnePickle:
    """Lists, and tuples of columns, that arrive as they are, in one pickle.

    Dask sends a list item after item, 40 µs each, and each array in it as a frame of its own.
    """

    def __init__(self, items: Any):
        self._items = items

    def __reduce__(self) -> tuple:
        head, *buffers = pack(self._items)
        return load_items, (head, *map(pickle.PickleBuffer, buffers))


def load_items(*frames: Any) -> Any:
    return unpack(list(frames))


def key_of(key: str, move: int, number: int) -> str:
    """The key of a block that is held under a ``key``, by which ``move`` it came to its worker."""
    return f"{key}-{move}-{number}"


class Parcel(NamedTuple):
    """A value that a worker keeps, under the digest of its bytes, so that it is sent only once."""

    digest: str
    frames: Frames

    @classmethod
    def of(cls, value: Any) -> "Parcel":
        frames = pack(value)
        digest = hashlib.blake2b(digest_size=16)
        for frame in frames:
            digest.update(frame)
        return cls(digest.hexdigest(), frames)


class Parcels:
    """The parcels that a worker keeps: those that were used last, up to so many and so many bytes.

    Those that one request needs are kept together, however large they are.
    """

    def __init__(self, limit: int = PARCELS, nbytes: int = 2**28):
        self._limit = limit
        self._nbytes = nbytes
        self._kept: dict[str, Unopened] = {}

    def receive(self, parcels: Mapping[str, Frames], needed: Iterable[str]) -> list[str]:
        """Keeps what came, drops what was not used for long; says which of ``needed`` lack."""
        self._kept.update({digest: Unopened(frames) for digest, frames in parcels.items()})
        needed = [digest for digest in dict.fromkeys(needed)]
        for digest in needed:
            if digest in self._kept:
                self._kept[digest] = self._kept.pop(digest)  # used last
        while self._is_full() and next(iter(self._kept)) not in needed:
            del self._kept[next(iter(self._kept))]
        return [digest for digest in needed if digest not in self._kept]

    def __getitem__(self, digest: str) -> "Unopened":
        return self._kept[digest]

    def _is_full(self) -> bool:
        total = sum([parcel.nbytes for parcel in self._kept.values()])
        return len(self._kept) > self._limit or total > self._nbytes


class Unopened:
    """A value that is unpacked at its first use, in the thread that uses it."""

    def __init__(self, frames: Frames):
        self.nbytes = sum([len(frame) for frame in frames])
        self._frames = frames
        self._values: list[Any] = []
        self._lock = threading.Lock()

    def value(self) -> Any:
        with self._lock:
            if not self._values:
                self._values.append(canonical(unpack(self._frames)))
                self._frames = []
            return self._values[0]
