"""Worker store: the replicated and attached arrays that one worker keeps."""

import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from daskgrad.autodiff.values.memory import canonical
from daskgrad.autodiff.values.protection import read_only
from daskgrad.autodiff.values.rows import Rows
from daskgrad.autodiff.values.trees import map_leaves
from daskgrad.placed.attached_steps import Arrays, Step, finder
from daskgrad.placed.messages import Frames, StandIn, copy_frames, frame_message, unpack

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


# -------------------------------------------------------------------------------------------------
# Worker attached: the blocks of attached arrays that one worker holds, and their cotangents.
#
# A worker's blocks are copies that may be lost: the client can make each of them again. So a block
# that is not of the version that a call wants is one that the worker does not have.


class HeldBlock(NamedTuple):
    version: int
    arrays: Arrays


class News(NamedTuple):
    """What a call tells of the arrays of one layout: the version that it uses, the latest steps,
    and the calls whose cotangents nobody needs any more."""

    version: int
    steps: Sequence[Step]
    dropped: Sequence[str]


class AttachedBlocks:
    """The attached arrays of a worker, by layout (one way of cutting some arrays) and block."""

    def __init__(self) -> None:
        self._blocks: dict[str, dict[int, HeldBlock]] = {}
        # By layout, call, ticket and block.
        self._cotangents: dict[str, dict[str, dict[str, dict[int, Any]]]] = {}
        self._lock = threading.Lock()

    def put(self, layout: str, version: int, blocks: Mapping[int, Arrays]) -> None:
        """Takes blocks in the place of those of these numbers."""
        held = {n: HeldBlock(version, own_arrays(arrays)) for n, arrays in blocks.items()}
        with self._lock:
            self._blocks.setdefault(layout, {}).update(held)

    def receive(self, layout: str, news: News) -> None:
        """Takes the steps that its blocks have not taken."""
        with self._lock:
            held, kept = self._blocks.get(layout, {}), self._cotangents.get(layout, {})
            known = {t: blocks for each in kept.values() for t, blocks in each.items()}
            for number in list(held):
                self._bring_up(held, number, news.steps, known)
            for call in news.dropped:
                kept.pop(call, None)

    def _bring_up(
        self,
        held: dict[int, HeldBlock],
        number: int,
        steps: Sequence[Step],
        known: Mapping[str, Mapping[int, Any]],
    ) -> None:
        """Takes the steps from its version on; a block that cannot take one is dropped."""
        for step in steps:
            version, arrays = held[number]
            if step.version != version + 1:
                continue
            del held[number]  # until the step is taken: never half of it
            try:
                step.take(arrays, finder(known, number))
            except KeyError:  # its cotangent, or an array, is not here
                return
            held[number] = HeldBlock(step.version, arrays)

    def has(self, layout: str, version: int, numbers: Iterable[int]) -> bool:
        """Whether all of these blocks are here in this version."""
        with self._lock:
            held = self._blocks.get(layout, {})
            return all([n in held and held[n].version == version for n in numbers])

    def rows(self, layout: str, name: str, number: int) -> np.ndarray:
        with self._lock:
            return self._blocks[layout][number].arrays[name]

    def blocks(self, layout: str, news: News) -> dict[int, Arrays]:
        """The arrays of all blocks that are here, or can be, in the version that is told."""
        self.receive(layout, news)
        with self._lock:
            held = self._blocks.get(layout, {})
            return {n: each.arrays for n, each in held.items() if each.version == news.version}

    def keep(self, layout: str, call: str, cotangents: Mapping[str, Mapping[int, Any]]) -> None:
        """Keeps cotangents of blocks, by ticket, until the call is dropped."""
        owned = {t: {n: own(c) for n, c in blocks.items()} for t, blocks in cotangents.items()}
        with self._lock:
            self._cotangents.setdefault(layout, {}).setdefault(call, {}).update(owned)

    def kept(self, layout: str, call: str, ticket: str) -> dict[int, Any]:
        """What was kept of blocks under a ticket."""
        with self._lock:
            return dict(self._cotangents.get(layout, {}).get(call, {}).get(ticket, {}))

    def drop(self, call: str) -> None:
        with self._lock:
            for calls in self._cotangents.values():
                calls.pop(call, None)

    def release(self, layout: str) -> None:
        """Drops the blocks, whose cotangents may still be asked for."""
        with self._lock:
            self._blocks.pop(layout, None)

    def forget(self, layout: str) -> None:
        with self._lock:
            self._blocks.pop(layout, None)
            self._cotangents.pop(layout, None)


def own(cotangent: Any) -> Any:
    """A cotangent in memory of its own: a model may return a view of what is changed in place."""
    is_owner = cotangent is None or (cotangent.base is None and cotangent.flags.writeable)
    return cotangent if is_owner else cotangent.copy()


def own_arrays(arrays: Mapping[str, np.ndarray]) -> Arrays:
    """The arrays in memory that may be written into, and that nobody else has."""
    return {name: np.array(canonical(array), order="C") for name, array in arrays.items()}
