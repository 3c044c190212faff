"""Sealed: an object as bytes, which are unpickled when the object is first asked for.

So Dask's scheduler, which loads all graphs and sends the tasks on, need not import the modules that
the object needs. Loading a task or result that holds it runs none of the user's code and cannot
fail: a task result that cannot be loaded would hang Dask's cluster.
"""

import pickle
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

ALIGNMENT = 16  # of the memory of arrays, in bytes, as where it is allocated


class Sealed:
    """A pickle, and the memory of its arrays beside it, which is not copied."""

    __slots__ = ("buffers", "data", "loaded")

    def __init__(self, data: bytes, buffers: Sequence[Any] = ()):
        self.data = data
        self.buffers = buffers
        self.loaded: Any = None  # the object, once it has been asked for

    def __reduce_ex__(self, protocol: Any) -> tuple:
        buffers = [out_of_band(buffer, protocol) for buffer in self.buffers]
        return Sealed, (out_of_band(self.data, protocol), buffers)

    @property
    def nbytes(self) -> int:
        return len(self.data) + sum([memoryview(buffer).nbytes for buffer in self.buffers])

    def load(self) -> Any:
        """The object."""
        if self.loaded is None:
            self.loaded = self._unpickle()
        return self.loaded

    def _unpickle(self) -> Any:
        return pickle.loads(self.data, buffers=list(map(align, self.buffers)))


class Sent(Sealed):
    """What a task takes, sealed when it goes to another process; ``seal`` does so."""

    __slots__ = ("seal",)
    seal: Callable[[Any], Sealed]

    @classmethod
    def of(cls, value: Any, seal: Callable[[Any], Sealed]) -> "Sent":
        sent = cls(b"")
        sent.loaded, sent.seal = value, seal
        return sent

    def __reduce_ex__(self, protocol: Any) -> tuple:
        sealed = self if self.data else self.seal(self.loaded)
        return Sent, Sealed.__reduce_ex__(sealed, protocol)[1]

    def __sizeof__(self) -> int:
        return object.__sizeof__(self) + self.nbytes


def out_of_band(buffer: Any, protocol: int) -> Any:
    """Bytes for a pickle that are not copied, nor read when a pickle is searched for names."""
    if protocol >= 5:
        return pickle.PickleBuffer(buffer)
    view = memoryview(buffer)
    return view.tobytes() if view.readonly else bytearray(view)


def align(buffer: Any) -> Any:
    """A buffer that is aligned for an array; a buffer in a message may start at any byte."""
    here = np.frombuffer(buffer, np.uint8)
    if here.ctypes.data % ALIGNMENT == 0:
        return buffer
    copy = here.copy()
    copy.flags.writeable = not memoryview(buffer).readonly
    return copy
