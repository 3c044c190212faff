"""Counters: numbers that code counts up and does not read, as ``self.calls += 1``.

A program counts them up, too, by as much as the call that was recorded.
"""

import inspect
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from daskgrad.autodiff.programs.boxes import NotYet, Unrecordable
from daskgrad.autodiff.programs.purity import is_plain_class


class Counter(NamedTuple):
    """An attribute of an object, which is not kept alive, or an entry of a module's globals."""

    owner: Callable[[], Any]
    name: str

    @property
    def namespace(self) -> dict[str, Any]:
        owner = self.owner()
        return owner if type(owner) is dict else getattr(owner, "__dict__", {})

    @property
    def is_plain(self) -> bool:
        """Whether it is a plain whole number, and nothing of the user's sees that it is set."""
        owner = self.owner()
        kind: Any = type(owner)
        if type(self.namespace.get(self.name)) is not int:
            return False
        is_usual = kind is dict or (is_plain_class(kind) and kind.__setattr__ is object.__setattr__)
        return is_usual and type(inspect.getattr_static(kind, self.name, 0)) is int


class Counted(NamedTuple):
    """A counter, and the number that a call adds to it."""

    counter: Counter
    number: int


def count_up(counted: Sequence[Counted], times: int = 1) -> None:
    """Adds to counters what so many calls do."""
    for counter, number in counted:
        namespace = counter.namespace
        if counter.name in namespace:
            namespace[counter.name] += times * number


class NotedInt(int):
    """A whole number that notes what one thread adds to it."""

    notes: list[int]
    thread: int

    @classmethod
    def of(cls, value: int, notes: list[int], thread: int) -> "NotedInt":
        number = cls(value)
        number.notes, number.thread = notes, thread
        return number

    def __add__(self, number: Any) -> Any:
        if threading.get_ident() == self.thread:
            self.notes.append(number)
        return NotedInt.of(int(self) + number, self.notes, self.thread)

    def __sub__(self, number: Any) -> Any:
        return self + -number


@contextmanager
def counting(counters: Sequence[Counter]) -> Iterator[list[Counted]]:
    """A context that lists what this thread adds to counters, and takes that back.

    Raises
    ------
    Unrecordable
        if one is no plain whole number; ``NotYet`` while another thread records.
    """
    counted: list[Counted] = []
    for counter in counters:
        if type(counter.namespace.get(counter.name)) is NotedInt:
            raise NotYet("another thread records a call")
        if not counter.is_plain:
            raise Unrecordable(f"it counts in {counter.name!r}, which is no plain whole number")
    noted = []
    for counter in counters:
        notes: list[int] = []
        number = counter.namespace[counter.name]
        noted.append((counter, notes))
        counter.namespace[counter.name] = NotedInt.of(number, notes, threading.get_ident())
    try:
        yield counted
    finally:
        for counter, notes in noted:
            counter.namespace[counter.name] = int(counter.namespace[counter.name]) - sum(notes)
            if sum(notes):
                counted.append(Counted(counter, sum(notes)))
