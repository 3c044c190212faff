"""Packing: tapes as bytes, which are tapes again where they are first used.

Loading a pullback must run no code of the user's and cannot fail: a task result that cannot be
loaded would hang Dask's cluster. So what arrives is bytes.
"""

import io
import logging
import pickle
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from daskgrad.models.travel.policy import Measured, SentPolicy, sends

logger = logging.getLogger("daskgrad")

ALIGNMENT = 16  # of the memory of arrays, in bytes, as where it is allocated


class Packed:
    """Tapes as bytes: a pickle, and the arrays' memory beside it, which is not copied."""

    __slots__ = ("buffers", "data")

    def __init__(self, data: bytes, buffers: Sequence[Any]):
        self.data = data
        self.buffers = buffers

    def __reduce_ex__(self, protocol: Any) -> tuple:
        make: Callable = pickle.PickleBuffer if protocol >= 5 else copied
        return Packed, (self.data, list(map(make, self.buffers)))

    @property
    def nbytes(self) -> int:
        return len(self.data) + sum([memoryview(buffer).nbytes for buffer in self.buffers])

    def unpacked(self) -> Any:
        return pickle.loads(self.data, buffers=list(map(aligned, self.buffers)))


def copied(buffer: Any) -> bytes | bytearray:
    view = memoryview(buffer)
    return view.tobytes() if view.readonly else bytearray(view)


def aligned(buffer: Any) -> Any:
    """A buffer where an array may begin; those in a message begin wherever they stood in it."""
    here = np.frombuffer(buffer, np.uint8)
    if here.ctypes.data % ALIGNMENT == 0:
        return buffer
    copy = here.copy()
    copy.flags.writeable = not memoryview(buffer).readonly
    return copy


def packed(
    tapes: Sequence[Any],
    contents: Callable[[], Any],
    measured: Callable[[], Measured],
    policy: SentPolicy | None,
) -> Packed | None:
    """Contents with tapes in them as bytes; ``None`` where their models are to run again.

    Raises nothing: Dask's cluster would hang.
    """
    picklers = {getattr(tape, "pickler", None) for tape in tapes}
    if len(picklers) != 1 or None in picklers:
        return None
    try:
        return dumped(contents(), *picklers) if sends(policy, measured()) else None
    except Exception as error:
        logger.info("a tape stays behind, and its model is traced again: %s", described(error))
        return None


def dumped(contents: Any, pickler: Any) -> Packed:
    file = io.BytesIO()
    buffers: list[Any] = []
    pickler(file, protocol=5, buffer_callback=buffers.append).dump(contents)
    return Packed(file.getvalue(), buffers)


def unpacked(packed: Packed) -> Any:
    """The contents; ``None`` where they cannot be loaded here."""
    try:
        return packed.unpacked()
    except Exception as error:
        logger.info("a tape that arrived cannot be loaded: %s", described(error))
        return None


def described(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
