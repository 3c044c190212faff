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


def run_stops(costs: np.ndarray, capacities: Sequence[int]) -> list[int]:
    """For each worker the end of its run, given the blocks' costs (> 0) and its threads."""
    done = np.concatenate([[0.0], np.cumsum(costs)])
    wanted = done[-1] * np.cumsum(capacities) / np.sum(capacities)
    slack = TOLERANCE * done[-1] / len(capacities)
    stops = [0]
    for goal in wanted[:-1]:
        stops.append(max(stops[-1], aligned_cut(done, float(goal), slack)))
    return [*stops[1:], len(costs)]


def aligned_cut(done: np.ndarray, goal: float, slack: float) -> int:
    """The number of blocks nearest to ``goal``, or the best aligned one within ``slack``."""
    nearest = int(np.argmin(np.abs(done - goal)))
    near = np.flatnonzero(np.abs(done - goal) <= slack)
    candidates = [nearest, *[int(n) for n in near]]
    return max(candidates, key=lambda n: (alignment(n), -abs(done[n] - goal)))


def alignment(number: int) -> int:
    """The largest power of two that divides a number of blocks; zero is the best of all."""
    return number & -number if number else 1 << 62


def assign(costs: np.ndarray, workers: dict[str, int]) -> list[str]:
    """For each block the address of the worker that is to hold it."""
    stops = run_stops(costs, list(workers.values()))
    holders: list[str] = []
    for address, stop in zip(workers, stops, strict=True):
        holders.extend([address] * (stop - len(holders)))
    return holders


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
    wanted = assign(costs, workers)
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
