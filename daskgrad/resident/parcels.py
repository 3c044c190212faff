"""Parcels: values that a worker keeps under the digest of their bytes, and is sent once."""

import hashlib
import threading
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from daskgrad.resident.messages import Frames, pack, unpack
from daskgrad.values.memory import canonical

PARCELS = 256  # that a worker keeps


class Parcel(NamedTuple):
    """A value as frames, and the digest of these."""

    digest: str
    frames: Frames

    @classmethod
    def of(cls, value: Any) -> "Parcel":
        frames = pack(value)
        return cls(digest_of(frames), frames)

    def is_intact(self) -> bool:
        """Whether the arrays that the frames show have not been written into since."""
        return digest_of(self.frames) == self.digest


def digest_of(frames: Frames) -> str:
    digest = hashlib.blake2b(digest_size=16)
    for frame in frames:
        digest.update(frame)
    return digest.hexdigest()


class Parcels:
    """The parcels that a worker keeps: the last used, up to a number and a number of bytes.

    It keeps all that one request needs, however large they are.
    """

    def __init__(self, limit: int = PARCELS, nbytes: int = 2**28):
        self._limit = limit
        self._nbytes = nbytes
        self._kept: dict[str, Unopened] = {}

    def receive(self, parcels: Mapping[str, Frames], needed: Iterable[str]) -> list[str]:
        """Keeps new parcels, drops the oldest ones; returns which of ``needed`` are missing."""
        self._kept.update({digest: Unopened(frames) for digest, frames in parcels.items()})
        needed = list(dict.fromkeys(needed))
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
