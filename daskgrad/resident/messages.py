"""Messages: values as bytes between client and workers.

Dask's comms break if a message cannot be loaded. So a message holds only bytes, numbers and
strings, and the code that can explain a failure loads the values.
"""

import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import cloudpickle
import numpy as np
from distributed.protocol import to_serialize

from daskgrad.values.memory import canonical

LARGE = 2**16  # bytes; a buffer of so many travels as a frame of its own, without a copy
SMALL = 2**12  # bytes; up to so many an array stays in the pickle: a frame takes longer

Frames = list[Any]


def pack(value: Any) -> Frames:
    """A value as a pickle and the buffers of its arrays; sends classes of scripts by value."""
    buffers: list[memoryview] = []

    def is_in_pickle(buffer: pickle.PickleBuffer) -> bool:
        raw = buffer.raw()
        if raw.nbytes > SMALL:
            buffers.append(raw)
        return raw.nbytes <= SMALL

    try:
        head = pickle.dumps(value, protocol=5, buffer_callback=is_in_pickle)
    except Exception:  # cloudpickle may succeed
        head = b"__main__"
    if b"__main__" in head:
        buffers.clear()
        head = cloudpickle.dumps(value, protocol=5, buffer_callback=is_in_pickle)
    return [head, *buffers]


def unpack(frames: Frames) -> Any:
    """The value; its arrays are writable."""
    return pickle.loads(
        frames[0], buffers=[bytearray(f) if isinstance(f, bytes) else f for f in frames[1:]]
    )


def frame_message(frames: Frames) -> Frames:
    """Frames as a message holds them."""
    return [
        to_serialize(np.frombuffer(frame, np.uint8)) if len(frame) >= LARGE else bytes(frame)
        for frame in frames
    ]


def frame_messages(messages: Mapping[str, Frames]) -> dict[str, Frames]:
    return {name: frame_message(frames) for name, frames in messages.items()}


def copy_frames(frames: Frames) -> Frames:
    """Frames in new memory, which do not change when the sender's arrays do."""
    return [bytes(frame) if isinstance(frame, bytes) else bytearray(frame) for frame in frames]


@dataclass(frozen=True, slots=True)
class StandIn:
    """Stands in a message for a replicated array, of which the worker has a copy."""

    name: str


@dataclass(frozen=True, slots=True)
class AttachedRows:
    """Stands among the rows of a request for those of an attached array, which the worker has."""

    layout: str
    name: str
    version: int


@dataclass(frozen=True, slots=True)
class OnePickle:
    """Items that travel in one pickle, and arrive canonical; Dask sends a list item by item, 40 µs
    each."""

    items: Any

    def __reduce__(self) -> tuple:
        head, *buffers = pack(self.items)
        return load_items, ([head, *map(pickle.PickleBuffer, buffers)],)


def load_items(frames: Frames) -> Any:
    return canonical(unpack(frames))


def key_of(key: str, move: int, number: int) -> str:
    """The key of a block of those under ``key``, which a ``move`` brought to its worker."""
    return f"{key}-{move}-{number}"


InParcels = tuple[tuple[int, str], ...]  # values that are parcels: (place among the others, digest)


class JobMessage(NamedTuple):
    """A sum as a request describes it to a worker; ``runs`` and ``unit``: as in ``Asked``.

    ``summand`` is the digest of a parcel. ``inputs`` are the places of the shared inputs in the
    point, which has ``None`` for those in ``parcels``. ``kept_rows`` are the fields of the items
    that are parcels. ``key`` begins the keys of the items that the workers hold. ``drawn``: the sum
    is over a sample of these, or over slices of one.
    """

    summand: str
    inputs: tuple[int, ...]
    parcels: InParcels
    block_count: int
    block_items: int
    key: str
    summation: str
    drawn: Literal["", "items", "slices"] = ""
    kept_rows: InParcels = ()
    runs: Sequence[tuple[int, ...]] = ()
    unit: int = 1

    @property
    def digests(self) -> list[str]:
        """The parcels that its worker needs."""
        return [self.summand, *[digest for _, digest in (*self.parcels, *self.kept_rows)]]
