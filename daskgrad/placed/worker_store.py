"""Worker store: the values that one worker keeps between its client's requests."""

import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from daskgrad.placed.messages import FIXED, PARCELS, Frames, Unopened, unpack
from daskgrad.placed.updates import Arrays, Copy, CopyUpdate, LatestSteps


class Store:
    """Values by name, each in one version.

    Parcels never change; the store keeps the last used ones, up to a number and a number of bytes,
    and all parcels that one request needs. Replicated arrays, and the attached arrays of a layout,
    are copies that may be lost, since the client can make them again: a copy of another version
    than a request needs is missing. Beside these are cotangents of attached arrays, by ticket.
    """

    def __init__(self, limit: int = PARCELS, nbytes: int = 2**28):
        self._limit = limit
        self._nbytes = nbytes
        self._entries: dict[str, Copy] = {}  # the oldest parcel first
        self._cotangents: dict[str, dict[int, Any]] = {}
        self._lock = threading.Lock()

    def update(self, versions: Mapping[str, int], updates: Iterable[tuple[str, Frames]]) -> None:
        """Brings arrays to these versions, as far as the updates, by their names, lead there."""
        with self._lock:
            for name, frames in updates:
                self._update(name, versions[name], unpack(frames))

    def _update(self, name: str, version: int, update: CopyUpdate) -> None:
        copy = self._entries.pop(name, None)  # gone if the update fails half-way
        copy = update.apply(copy, version, self._cotangents)
        if copy is not None:
            self._entries[name] = copy

    def missing(self, needed: Mapping[str, int], parcels: Mapping[str, Frames]) -> list[str]:
        """Takes new parcels, and drops the oldest ones; the names that are not here in the needed
        version."""
        entries = self._entries
        with self._lock:
            entries |= {name: Copy(FIXED, Unopened(frames)) for name, frames in parcels.items()}
            for name in needed:
                if name in entries:
                    entries[name] = entries.pop(name)  # used last
            kept = {n: entry.value for n, entry in entries.items() if entry.version == FIXED}
            count, nbytes = len(kept), sum([parcel.nbytes for parcel in kept.values()])
            for name, parcel in kept.items():
                if name in needed or (count <= self._limit and nbytes <= self._nbytes):
                    break
                count, nbytes = count - 1, nbytes - parcel.nbytes
                del entries[name]
            return [n for n, v in needed.items() if n not in entries or entries[n].version != v]

    def entries(self, names: Iterable[str]) -> dict[str, Any]:
        """The values under some names; arrays are not read-only."""
        with self._lock:
            return {name: self._entries[name].value for name in names}

    def forget(self, name: str) -> None:
        """Drops an array that is gone, or a layout with the cotangents of its blocks."""
        self.release(name)
        self._drop([ticket for ticket in list(self._cotangents) if ticket.startswith(f"{name}/")])

    def release(self, name: str) -> None:
        """Drops an array, or the blocks of a layout, but no cotangents."""
        with self._lock:
            self._entries.pop(name, None)

    # ---- attached arrays

    def rows(self, layout: str, name: str, number: int) -> np.ndarray:
        """The rows of an array in a block; KeyError if they are not here."""
        with self._lock:
            return self._entries[layout].value[number][name]

    def blocks(self, layout: str, version: int, steps: LatestSteps) -> dict[int, Arrays]:
        """The arrays of all blocks that are here, or can be, in a version."""
        with self._lock:
            self._update(layout, version, steps)
            copy = self._entries.get(layout)
            return dict(copy.value) if copy is not None and copy.version == version else {}

    def keep(self, ticket: str, cotangents: Mapping[int, Any]) -> None:
        """Keeps cotangents of blocks, in memory of their own: a model may return a view of an array
        that steps change in place."""
        kept = {number: owned(cotangent) for number, cotangent in cotangents.items()}
        with self._lock:
            self._cotangents.setdefault(ticket, {}).update(kept)

    def kept(self, ticket: str) -> dict[int, Any]:
        """The cotangents that were kept under a ticket, block by block."""
        with self._lock:
            return dict(self._cotangents.get(ticket, {}))

    def drop(self, call: str) -> None:
        """Drops the cotangents of a call."""
        self._drop([ticket for ticket in list(self._cotangents) if f"/{call}/" in ticket])

    def _drop(self, tickets: Sequence[str]) -> None:
        with self._lock:
            for ticket in tickets:
                self._cotangents.pop(ticket, None)


def owned(cotangent: Any) -> Any:
    is_owner = cotangent is None or (cotangent.base is None and cotangent.flags.writeable)
    return cotangent if is_owner else cotangent.copy()


def ticket_of(layout: str, call: str, number: int, field: int) -> str:
    """The ticket of the cotangents of a sum's n-th differentiated field."""
    return f"{layout}/{call}/{number}/{field}"
