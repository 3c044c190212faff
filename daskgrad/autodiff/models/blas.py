"""BLAS: one thread where models may run beside each other.

Each model that calls BLAS starts a thread for each core. Several models at a time then have more
threads than cores, which wait by spinning: two models on two cores took up to fifty times the
processor time. And the bits of a product depend on the number of threads. So it is one wherever
models may run beside each other, also if they run in turn in the calling thread.
"""

import contextlib
import functools
import sys
import threading
from typing import Any

import threadpoolctl


class OfThread(threading.local):
    """How often a thread is in the context, and its libraries that had more threads."""

    def __init__(self) -> None:
        self.inside = 0
        self.before: dict[Any, int] = {}


class OneThread(contextlib.AbstractContextManager):
    """A context in which the process's BLAS libraries have one thread; any number at once.

    OpenBLAS has one number for the process, which the last one to leave puts back; MKL and OpenMP
    have a number for each thread.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._before: dict[Any, int] = {}  # libraries that had more threads, and how many
        self._inside = 0
        self._of_thread = OfThread()

    def __enter__(self) -> None:
        with self._lock:
            self._inside += 1
            self._of_thread.inside += 1
            for library in libraries(len(sys.modules)):
                count = library.get_num_threads()
                if count != 1:
                    is_of_thread = library.internal_api == "mkl"
                    is_of_thread |= getattr(library, "threading_layer", "") == "openmp"
                    before = self._of_thread.before if is_of_thread else self._before
                    before[library] = count
                    set_threads(library, 1)

    def __exit__(self, *_: Any) -> None:
        with self._lock:
            self._inside -= 1
            self._of_thread.inside -= 1
            if not self._inside:
                put_back(self._before)
            if not self._of_thread.inside:
                put_back(self._of_thread.before)


@functools.lru_cache(1)
def libraries(count: int) -> list[Any]:
    """The BLAS libraries that are loaded, once for each number of imported modules."""
    return threadpoolctl.ThreadpoolController().select(user_api="blas").lib_controllers


def put_back(before: dict[Any, int]) -> None:
    while before:
        set_threads(*before.popitem())


def set_threads(library: Any, count: int) -> None:
    """Sets a number that another thread may have set: threadpoolctl allows one thread alone."""
    allow_all = getattr(library, "clear_controlling_thread", lambda force: None)
    allow_all(force=True)
    library.set_num_threads(count)
    allow_all(force=True)


ONE_THREAD, AS_IT_IS = OneThread(), contextlib.nullcontext()


def threads(are_its_own: bool) -> contextlib.AbstractContextManager:
    """The context of a model: BLAS has all threads if no other model runs beside it."""
    return AS_IT_IS if are_its_own else ONE_THREAD
