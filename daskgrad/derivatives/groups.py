"""Groups: how many directions share a task, and how many derivatives share an evaluation."""

from itertools import pairwise

import dask.system

from daskgrad.tasks.clients import active_client
from daskgrad.tasks.workers import present_workers

DERIVATIVES_A_THREAD = 8  # in one evaluation


def task_groups(count: int) -> list[tuple[int, int]]:
    """Directions that share a task, as (start, stop): two groups a thread, or one a direction."""
    return even_runs(count, 2 * threads())


def evaluation_groups(count: int) -> list[tuple[int, int]]:
    """Derivatives that share an evaluation, as (start, stop): at most eight a thread."""
    return even_runs(count, -(-count // (DERIVATIVES_A_THREAD * threads())))


def even_runs(count: int, number: int) -> list[tuple[int, int]]:
    """Splits ``count`` things into ``number`` runs, or into one a thing if there are fewer."""
    number = max(1, min(count, number))
    bounds = [count * n // number for n in range(number + 1)]
    return list(pairwise(bounds)) if count else []


def threads() -> int:
    client = active_client()
    return sum(present_workers(client).values()) if client else dask.system.CPU_COUNT
