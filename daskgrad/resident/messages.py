"""Messages: what client and workers say to each other, as bytes that load where they are used.

Dask's comms break when a message cannot be loaded, so a message holds nothing but bytes, numbers
and strings, and what it carries is unpacked by the code that can say what went wrong.
"""

import pickle
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import cloudpickle
import numpy as np
from distributed.protocol import to_serialize

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


@dataclass(frozen=True, slots=True)
class OnePickle:
    """Lists, and tuples of columns, that arrive as they are, in one pickle.

    Dask sends a list item after item, 40 µs each, and each array in it as a frame of its own.
    """

    items: Any

    def __reduce__(self) -> tuple:
        head, *buffers = pack(self.items)
        return load_items, (head, *map(pickle.PickleBuffer, buffers))


def load_items(*frames: Any) -> Any:
    return unpack(list(frames))


def key_of(key: str, move: int, number: int) -> str:
    """The key of a block that is held under a ``key``, by which ``move`` it came to its worker."""
    return f"{key}-{move}-{number}"
