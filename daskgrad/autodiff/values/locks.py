"""Locks: arrays into which nobody can write for a time, since somebody reads them later."""

import threading
from collections.abc import Iterable
from typing import Any

from numpy import ndarray


class Held:
    """An array that locks hold; ``waiting``: views that open after it."""

    __slots__ = ("array", "holders", "waiting")

    def __init__(self, array: ndarray):
        self.array, self.holders = array, 0
        self.waiting: list[ndarray] = []


_held: dict[int, Held] = {}
_locking = threading.RLock()  # Python may free a lock anywhere


class Lock:
    """Makes arrays read-only, and their bases, while it lives or until ``release``.

    ``place``: file and line of who needs them.
    """

    __slots__ = ("_arrays", "place")

    def __init__(self, arrays: Iterable[Any], place: tuple[str, int] | None = None):
        self.place = place
        self._arrays: list[ndarray] = []
        with _locking:
            for array in arrays:
                while isinstance(array, ndarray):
                    if array.flags.writeable or is_locked(array):
                        _held.setdefault(id(array), Held(array)).holders += 1
                        array.flags.writeable = False
                        self._arrays.append(array)
                    array = array.base

    def release(self) -> None:
        """Makes the arrays writeable that no other lock holds."""
        with _locking:
            arrays, self._arrays = self._arrays, []
            for array in reversed(arrays):
                let_go(array)

    __del__ = release


def let_go(array: ndarray) -> None:
    """Opens an array that no lock holds any more, once its base is open."""
    held = _held[id(array)]
    held.holders -= 1
    if held.holders:
        return
    base = _held.get(id(array.base))
    if base is not None:
        held.holders += 1
        base.waiting.append(array)
        return
    del _held[id(array)]
    array.flags.writeable = True
    for view in held.waiting:
        let_go(view)


def is_locked(array: ndarray) -> bool:
    return id(array) in _held
