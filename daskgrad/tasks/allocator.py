"""The memory allocator of workers.

Dask's nanny starts workers with ``MALLOC_TRIM_THRESHOLD_=65536``, so that glibc gives every array
above 128 kB back to the system and faults it in again: models on small arrays took 1.2 times as
long in a worker as in a plain process, and stencils 2 to 9 times. The thresholds can be changed at
run time (mallopt(3)).
"""

import ctypes
import functools
import os
import sys
from collections.abc import Callable

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # malloc.h

ROOMY = {M_TRIM_THRESHOLD: 256 * 2**20, M_MMAP_THRESHOLD: 16 * 2**20}
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


def keep_freed_memory_of_nanny() -> None:
    """Keeps freed memory in a process of Dask's nanny; other processes may be the user's."""
    if VARIABLES[M_TRIM_THRESHOLD] in os.environ:
        keep_freed_memory()


def keep_freed_memory() -> bool:
    """Lets the process keep the memory that arrays free, for the next arrays."""
    return set_thresholds(ROOMY)


def restore() -> bool:
    """Restores the thresholds that the process was started with."""
    return set_thresholds(
        {name: int(os.environ.get(variable, DEFAULT)) for name, variable in VARIABLES.items()}
    )
