"""Grains: what a call over placed items would take with more or fewer blocks in one go."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from daskgrad.dashboards.recorder import BlockCost

HOP = 1e-4  # seconds into a worker's thread and back, for each unit


class Grain(NamedTuple):
    """``unit`` blocks in one go, and the seconds of a call on the slowest worker."""

    unit: int
    seconds: float


def grains(blocks: Iterable[BlockCost], threads: Mapping[str, int]) -> list[Grain]:
    """What a call takes for units of 1, 2, 4 ... blocks, as many as a worker has at most."""
    by_worker: dict[str, list[BlockCost]] = {}
    for block in sorted(blocks):
        by_worker.setdefault(block.worker, []).append(block)
    most = max(map(len, by_worker.values()), default=0)
    units = [1 << power for power in range(most.bit_length())]
    return [Grain(unit, slowest(by_worker, threads, unit)) for unit in units]


def slowest(
    by_worker: Mapping[str, Sequence[BlockCost]], threads: Mapping[str, int], unit: int
) -> float:
    return max([lane(held, threads.get(worker, 1), unit) for worker, held in by_worker.items()])


def lane(held: Sequence[BlockCost], threads: int, unit: int) -> float:
    """The seconds of the busiest thread: each takes the next unit when it is done with one."""
    busy = [0.0] * threads
    for start in range(0, len(held), unit):
        spent = HOP + sum([block.seconds for block in held[start : start + unit]])
        first = busy.index(min(busy))
        busy[first] += spent
    return max(busy)
