"""The memory allocator of workers.

Dask's nanny starts workers with ``MALLOC_TRIM_THRESHOLD_=65536``, so that glibc gives every array
above 128 kB back to the system and faults it in again: models on small arrays took 1.2 times as
long in a worker as in a plain process, and stencils 2 to 9 times. The thresholds can be changed at
run time (mallopt(3)).

Dask counts freed memory that a worker keeps against its limit, above which the nanny kills it: so a
worker keeps a sixteenth of its limit at most.
"""

import ctypes
import functools
import os
import sys
from collections.abc import Callable

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # malloc.h

MOST_FREED = 256 * 2**20  # bytes that a process keeps
PART = 16  # of a worker's limit, which may be freed memory; of that, which an array may take
VARIABLES = {
    M_TRIM_THRESHOLD: "MALLOC_TRIM_THRESHOLD_",
    M_MMAP_THRESHOLD: "MALLOC_MMAP_THRESHOLD_",
}
DEFAULT = 128 * 2**10  # glibc's own value of both


def set_thresholds(values: dict[int, int]) -> bool:
    """Returns whether glibc is there and took the values."""
    mallopt = glibcs()
    return mallopt is not None and all([mallopt(name, value) for name, value in values.items()])


@functools.cache
def glibcs() -> Callable[[int, int], int] | None:
    is_linux = sys.platform.startswith("linux")
    return getattr(ctypes.CDLL(None), "mallopt", None) if is_linux else None


def keep_freed_memory_of_nanny(memory_limit: int | None) -> None:
    """Keeps freed memory in a process of Dask's nanny; other processes may be the user's."""
    if VARIABLES[M_TRIM_THRESHOLD] in os.environ:
        keep_freed_memory(memory_limit)


def keep_freed_memory(memory_limit: int | None) -> bool:
    """Lets the process of a worker keep the memory that arrays free, for the next arrays."""
    freed = min(MOST_FREED, memory_limit // PART) if memory_limit else MOST_FREED
    return set_thresholds({M_TRIM_THRESHOLD: freed, M_MMAP_THRESHOLD: freed // PART})


def restore() -> bool:
    """Restores the thresholds that the process was started with."""
    return set_thresholds(
        {name: int(os.environ.get(variable, DEFAULT)) for name, variable in VARIABLES.items()}
    )
