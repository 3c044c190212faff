"""Groups: how many evaluations run at once, and how many directions share one."""

from itertools import pairwise

import dask.system

from daskgrad.tasks.clients import active_client
from daskgrad.tasks.workers import present_workers

DERIVATIVES_A_THREAD = 8  # that are evaluated at once


def groups(count: int) -> list[tuple[int, int]]:
    """Runs of directions that share a task: two for each thread there is, if there are so many."""
    return runs(count, 2 * threads())


def at_once(count: int) -> list[tuple[int, int]]:
    """Runs of derivatives that share an evaluation: some for each thread, and no more to keep."""
    return runs(count, -(-count // (DERIVATIVES_A_THREAD * threads())))


def runs(count: int, number: int) -> list[tuple[int, int]]:
    """So many runs of ``count`` things, or one a thing."""
    number = max(1, min(count, number))
    bounds = [count * n // number for n in range(number + 1)]
    return list(pairwise(bounds)) if count else []


def threads() -> int:
    client = active_client()
    return sum(present_workers(client).values()) if client else dask.system.CPU_COUNT
