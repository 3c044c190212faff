"""Thread-safe trace numbers for autograd.

autograd tells the traces of nested derivatives apart by numbers, and takes them from one counter
that it raises when a trace starts and lowers when it ends. With two threads a number is handed out
twice, and a nested derivative is wrong without an error; an exception inside a trace leaves the
counter raised. Numbers that only grow cannot meet: a later trace always has the higher one, also
where a closure carries a box into another thread.

Here and in ``plain_calls`` daskgrad replaces something of another library: ``install`` is called
when it is imported, in every process.
"""

import itertools
from collections.abc import Iterator
from contextlib import contextmanager

from autograd import tracer


class TraceNumbers:
    """Hands out every number once; stands where autograd keeps its ``TraceStack``."""

    def __init__(self, first: int):
        self._numbers = itertools.count(first)

    def next_number(self) -> int:
        return next(self._numbers)  # one C call: atomic under the interpreter lock

    @contextmanager
    def new_trace(self) -> Iterator[int]:
        yield self.next_number()


trace_numbers = TraceNumbers(tracer.trace_stack.top + 1)


def install() -> None:
    """Puts ``trace_numbers`` in place of autograd's counter."""
    tracer.trace_stack = trace_numbers
