"""Worker replicas: the copies of replicated arrays that one worker keeps."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from daskgrad.resident.messages import Frames, StandIn, copy_frames, frame_message, unpack
from daskgrad.values.memory import canonical
from daskgrad.values.protection import read_only
from daskgrad.values.rows import Rows
from daskgrad.values.trees import map_leaves

# The version of an array that a call uses, and (since, to, frames) of each update.
Version = tuple[int, Sequence[tuple[int | None, int, Frames]]]


class Replica(NamedTuple):
    """A copy, and the version of the array that it is."""

    array: np.ndarray
    version: int


class Replicas:
    """The copies of a worker. They are changed in its event loop alone: one is never half new."""

    def __init__(self) -> None:
        self._kept: dict[str, Replica] = {}

    def receive(self, versions: Mapping[str, Version], is_shared: bool) -> bool:
        """Brings copies up to date; whether all are of the versions that are wanted.

        Updates that a copy has had, and those of which an earlier one is missing, are left out.
        ``is_shared``: messages share memory with the arrays of the client.
        """
        for name, (version, updates) in versions.items():
            for since, to, frames in updates:
                self._update(name, since, to, copy_frames(frames) if is_shared else frames)
            if name not in self._kept or self._kept[name].version != version:
                return False
        return True

    def _update(self, name: str, since: int | None, to: int, frames: Frames) -> None:
        kept = self._kept.get(name)
        if since is None and (kept is None or kept.version < to):
            self._kept[name] = Replica(own_array(frames), to)
        elif kept is not None and kept.version == since:
            del self._kept[name]  # unless it is brought up to date
            axes, indices, values = canonical(unpack(frames))
            Rows(kept.array.shape, axes, indices, values).scatter(kept.array, values)
            self._kept[name] = Replica(kept.array, to)

    def forget(self, name: str) -> None:
        self._kept.pop(name, None)

    def fill(self, values: Iterable[Any]) -> list[Any]:
        """The values as models get them, with the copies in their places, read-only."""
        return [map_leaves(self._stood_for, value) for value in values] if self._kept else [*values]

    def _stood_for(self, leaf: Any) -> Any:
        return read_only(self._kept[leaf.name].array) if type(leaf) is StandIn else leaf


def own_array(frames: Frames) -> np.ndarray:
    """A whole array, in memory that may be written into."""
    array = canonical(unpack(frames))
    return array if array.flags.writeable else array.copy()


def frame_versions(versions: Mapping[str, Version]) -> dict[str, Version]:
    """Versions as a message to a further worker holds them."""
    return {
        name: (version, [(since, to, frame_message(frames)) for since, to, frames in updates])
        for name, (version, updates) in versions.items()
    }
