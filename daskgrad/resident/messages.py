"""Messages: values as bytes between client and workers.

Dask's comms break if a message cannot be loaded. So a message holds only bytes, numbers and
strings, and the code that can explain a failure loads the values.
"""

import contextlib
import io
import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from distributed.protocol import to_serialize

from daskgrad.backends.autograd.pickling import ModelPickler
from daskgrad.tasks.sending import is_plain
from daskgrad.values.memory import canonical
from daskgrad.values.sealed import align

LARGE = 2**16  # bytes; a buffer of so many travels as a frame of its own, without a copy
SMALL = 2**12  # bytes; up to so many an array stays in the pickle: a frame takes longer

Frames = list[Any]


def pack(value: Any) -> Frames:
    """A value as a pickle and the buffers of its arrays; sends classes of scripts by value, and
    objects as models are sent."""
    if is_plain(value):
        with contextlib.suppress(Exception):  # models' pickles may succeed
            frames = frames_of(value, pickle.Pickler)
            if b"__main__" not in frames[0]:
                return frames
    return frames_of(value, ModelPickler)


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
