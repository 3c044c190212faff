"""Worker replicas: the copies of replicated arrays that one worker keeps."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from daskgrad.resident.messages import Frames, StandIn, copy_frames, frame_message, unpack
from daskgrad.values.memory import canonical
from daskgrad.values.protection import read_only
from daskgrad.values.rows import Rows
from daskgrad.values.trees import map_leaves

# The version of an array that a call uses, and an update to it (``replicas.Update``), whose frames
# may be left out. A list, since Dask looks for frames in lists and dicts alone.
Version = list[Any]


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

        An update that a copy has had, or that is for a later one than it is, is left out.
        ``is_shared``: messages share memory with the arrays of the client.
        """
        for name, (version, since, frames) in versions.items():
            if frames:
                self._update(name, version, since, copy_frames(frames) if is_shared else frames)
        return all(
            [
                name in self._kept and self._kept[name].version == versions[name][0]
                for name in versions
            ]
        )

    def _update(self, name: str, to: int, since: int | None, frames: Frames) -> None:
        kept = self._kept.get(name)
        if since is None and (kept is None or kept.version < to):
            self._kept[name] = Replica(own_array(frames), to)
        elif since is not None and kept is not None and since <= kept.version < to:
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
    """Versions as a message holds them."""
    return {
        name: [version, since, frame_message(frames)]
        for name, (version, since, frames) in versions.items()
    }
