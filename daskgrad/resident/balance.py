"""Balance: which worker holds which run of blocks, at costs in proportion to its threads.

Of cuts that are about as good, the one at the largest power of two is taken: the more of a subtree
a worker holds, the fewer partial sums it returns.
"""

from collections.abc import Sequence

import numpy as np

UNEVEN = 1.1  # how many times the mean load the largest may be before blocks are moved
DOUBT = 0.5  # by which it may be more after one measured call, half of that after two ...
WORTH = 5e-4  # seconds by which a call must become shorter: blocks take some time to move
TOLERANCE = 0.03  # of a worker's share, by which a cut may miss it to be better aligned


def assign(costs: np.ndarray, workers: dict[str, int], holders: Sequence[str] = ()) -> list[str]:
    """For each block the address of the worker that is to hold it.

    A block stays with its holder, unless that is gone or, until the loads are even, the one with
    the largest load: what one worker has too much of moves, and not the runs behind it.
    """
    addresses, threads = list(workers), np.array(list(workers.values()))
    wanted = [holder if holder in workers else "" for holder in holders or [""] * len(costs)]
    held = {
        address: [n for n, holder in enumerate(wanted) if holder == address] for address in workers
    }
    load = np.array([np.sum(costs[numbers]) for numbers in held.values()])
    free = [number for number, holder in enumerate(wanted) if not holder]
    gets = np.zeros(len(workers))

    def take(cost: float, least: int) -> None:
        load[least] += cost
        gets[least] += cost

    for number in free:
        take(costs[number], int(np.argmin((load + costs[number]) / threads)))
    while numbers := held[addresses[most := int(np.argmax(load / threads))]]:
        cost = costs[numbers[-1]]
        least = int(np.argmin((load + cost) / threads))
        if (load[least] + cost) / threads[least] > (1.0 - TOLERANCE) * load[most] / threads[most]:
            break
        free.append(numbers.pop())
        load[most] -= cost
        take(cost, least)
    if not free:
        return wanted
    free.sort()
    start = 0
    for address, stop in zip(workers, run_stops(costs, free, gets.tolist()), strict=True):
        for number in free[start:stop]:
            wanted[number] = address
        start = stop
    return wanted


def run_stops(costs: np.ndarray, blocks: Sequence[int], gets: Sequence[float]) -> list[int]:
    """For each worker the end of its run among these blocks, given the costs (> 0) of
    all, in proportion to what each gets."""
    done = np.concatenate([[0.0], np.cumsum(costs[list(blocks)])])
    ends = [*blocks, len(costs)]  # where a run ends that is cut at this place
    wanted = done[-1] * np.cumsum(gets) / np.sum(gets)
    slack = TOLERANCE * done[-1] / len(gets)
    stops = [0]
    for goal in wanted[:-1]:
        stops.append(max(stops[-1], aligned_cut(done, ends, float(goal), slack)))
    return [*stops[1:], len(blocks)]


def aligned_cut(done: np.ndarray, ends: Sequence[int], goal: float, slack: float) -> int:
    """The place nearest to ``goal``, or the best aligned one within ``slack``."""
    nearest = int(np.argmin(np.abs(done - goal)))
    near = np.flatnonzero(np.abs(done - goal) <= slack).tolist()
    return max([nearest, *near], key=lambda n: (alignment(ends[n]), -abs(done[n] - goal)))


def alignment(number: int) -> int:
    """The largest power of two that divides a number of blocks; zero is the best of all."""
    return number & -number if number else 1 << 62


def rebalancing(
    costs: np.ndarray, holders: Sequence[str], workers: dict[str, int], measured: int
) -> list[str] | None:
    """The new holder of each block if the loads are too uneven; None if no block should move.

    ``measured`` calls told the costs: in few of them a worker may have been slow by chance. No
    block moves unless that reduces the largest load: with a block or two on each worker no cut is
    fine enough, and one slow call would put two blocks where there was one.
    """
    now = loads(costs, holders, workers)
    mean = float(np.mean(now))
    if max(now) <= max((UNEVEN + DOUBT / measured) * mean, mean + WORTH):
        return None
    wanted = assign(costs, workers, holders)
    return wanted if max(loads(costs, wanted, workers)) < max(now) else None


def loads(costs: np.ndarray, holders: Sequence[str], workers: dict[str, int]) -> list[float]:
    """For each worker the cost of what it holds, per thread."""
    sums = dict.fromkeys(workers, 0.0)
    for cost, holder in zip(costs, holders, strict=True):
        sums[holder] = sums.get(holder, 0.0) + cost
    return [cost / workers.get(address, 1) for address, cost in sums.items()]


def unit_blocks(costs: np.ndarray, threads: int, seconds: float) -> int:
    """How many blocks one thread evaluates in one go.

    They take about ``seconds``, so that scheduling is cheap in proportion, but are few enough that
    the threads of a worker end together.
    """
    total = float(np.sum(costs))
    by_time = seconds * len(costs) / total if total else len(costs)
    by_threads = len(costs) / (8 * threads) if threads > 1 else len(costs)
    return max(1, int(min(by_time, by_threads, len(costs))))
