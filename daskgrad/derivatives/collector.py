"""The garbage collector: full collections are rare while a derivative is evaluated.

A full collection goes through all objects of the process, and CPython makes one whenever there are
a quarter more of them. What an evaluation adds, a graph and tapes, is not garbage yet: for 10,000
nodes that took up to a fifth of the time. Younger objects are collected as ever, with nearly all
cycles that models leave behind.
"""

import functools
import gc
import threading
from collections.abc import Callable
from typing import Any

RARE = 100  # collections of the middle generation before a full one; CPython's own number is 10


class Thresholds:
    """The collector's, while any number of evaluations run: the last one puts back what was there,
    unless somebody has set another one meanwhile."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # a collection may run finalizers anywhere
        self._running = 0
        self._own: int | None = None  # what there was; None: it stays as it is

    def begin(self) -> None:
        with self._lock:
            self._running += 1
            if self._running == 1:
                young, middle, full = gc.get_threshold()
                if 0 < full < RARE:
                    self._own = full
                    gc.set_threshold(young, middle, RARE)

    def end(self) -> None:
        with self._lock:
            self._running -= 1
            if self._running == 0 and self._own is not None:
                young, middle, full = gc.get_threshold()
                if full == RARE:
                    gc.set_threshold(young, middle, self._own)
                self._own = None


thresholds = Thresholds()


def rare_full_collections(evaluate: Callable) -> Callable:
    """A decorator of functions that evaluate derivatives, which may call each other."""

    @functools.wraps(evaluate)
    def evaluated(*args: Any, **kwargs: Any) -> Any:
        thresholds.begin()
        try:
            return evaluate(*args, **kwargs)
        finally:
            thresholds.end()

    return evaluated
