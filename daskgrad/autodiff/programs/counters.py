"""Counters: numbers that code counts up and does not read, as ``self.calls += 1``.

A program counts them up, too, by as much as the call that was recorded.
"""

import inspect
import threading
import types
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from daskgrad.autodiff.programs.boxes import Unrecordable


class Counter(NamedTuple):
    """An attribute of an object, which is not kept alive, or an entry of a module's globals."""

    owner: Callable[[], Any]
    name: str

    @property
    def is_there(self) -> bool:
        owner = self.owner()
        return self.name in owner if type(owner) is dict else hasattr(owner, self.name)

    def get(self) -> Any:
        owner = self.owner()
        return owner[self.name] if type(owner) is dict else getattr(owner, self.name)

    def set(self, value: int) -> None:
        owner = self.owner()
        if type(owner) is dict:
            owner[self.name] = value
        elif owner is not None:
            setattr(owner, self.name, value)

    @property
    def is_plain(self) -> bool:
        """Whether it is a plain whole number, which nothing but counting sets."""
        owner = self.owner()
        kind = owner if isinstance(owner, type | dict) else type(owner)
        static = 0 if kind is dict else inspect.getattr_static(kind, self.name, 0)
        is_member = isinstance(static, types.MemberDescriptorType)
        return type(self.get()) is int and (type(static) is int or is_member)


class Counted(NamedTuple):
    """A counter, and the number that a call adds to it."""

    counter: Counter
    number: int


def count_up(counted: Sequence[Counted], times: int = 1) -> None:
    """Adds to counters what so many calls do."""
    for counter, number in counted:
        if counter.owner() is not None:
            counter.set(counter.get() + times * number)


class StandIn(int):
    """A whole number that notes what one thread adds to it."""

    notes: list[int]
    thread: int

    @classmethod
    def of(cls, value: int, notes: list[int], thread: int) -> "StandIn":
        number = cls(value)
        number.notes, number.thread = notes, thread
        return number

    def __add__(self, number: Any) -> Any:
        if threading.get_ident() == self.thread:
            self.notes.append(number)
        return StandIn.of(int(self) + number, self.notes, self.thread)

    def __sub__(self, number: Any) -> Any:
        return self + -number


@contextmanager
def counting(counters: Sequence[Counter]) -> Iterator[list[Counted]]:
    """A context that lists what this thread adds to counters, and takes that back.

    Raises
    ------
    Unrecordable
        if one is no plain whole number.
    """
    present = [counter for counter in counters if counter.is_there]
    for counter in present:
        if not counter.is_plain:
            raise Unrecordable(f"it counts in {counter.name!r}, which is no plain whole number")
    counted: list[Counted] = []
    notes: list[list[int]] = [[] for _ in present]
    for counter, numbers in zip(present, notes, strict=True):
        counter.set(StandIn.of(counter.get(), numbers, threading.get_ident()))
    try:
        yield counted
    finally:
        for counter, numbers in zip(present, notes, strict=True):
            counter.set(int(counter.get()) - sum(numbers))
            if sum(numbers):
                counted.append(Counted(counter, sum(numbers)))
