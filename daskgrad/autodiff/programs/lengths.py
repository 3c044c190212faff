"""Lengths: calls that differ in lengths alone share a text, whose constants follow from these.

The axes of arrays and Python's integers among the arguments are a call's lengths. Where the
programs of some lengths have one text, their constants are a line through each number, or a part of
the longest sequence; a program of lengths between these needs no recording. The tape of its first
call has run the same instructions of the model, and has the program's bits.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from daskgrad.autodiff.programs.paths import Path
from daskgrad.autodiff.programs.program import Program, snapshot
from daskgrad.autodiff.programs.purity import Ran
from daskgrad.autodiff.programs.signatures import CONSTANT, Signature, are_same

Lengths = tuple[int, ...]

LEAST_KNOWN = 3  # programs of one text: two give a line, and the third one shows that it is one
MOST_KNOWN = 16  # with a path each
MOST_IN_VAIN = 5  # recordings, while no program serves other lengths
MOST_BYTES = 2**20  # of arrays that a known program copied


class Unlike(Exception):
    """A constant that does not follow from the lengths."""


def lengths_of(signature: Signature) -> tuple[Any, Lengths]:
    """The signature's key without the lengths, and these."""
    *parts, kinds = signature.key
    sorts, lengths = [], list[int]()
    for kind in kinds:
        if kind[0] is CONSTANT and kind[1] is int:
            lengths.append(kind[2])
            sorts.append(kind[:2])
        elif type(kind[0]) is tuple:  # an array's shape
            shape, dtype, memory = kind
            lengths += shape
            if len(shape) > 1:
                memory = order_of(shape, memory)
            sorts.append((len(shape), dtype, memory))
        else:
            sorts.append(kind)
    return (*parts, tuple(sorts)), tuple(lengths)


def order_of(shape: Sequence[int], strides: Sequence[int]) -> Any:
    """The order of the axes of an array without gaps; else the strides."""
    order = sorted(range(len(shape)), key=lambda axis: -strides[axis])
    pairs = pairwise(order)
    is_dense = all([strides[one] == strides[two] * shape[two] for one, two in pairs])
    return tuple(order) if is_dense and 1 not in shape and 0 not in shape else strides


class RecordedLengths(NamedTuple):
    """A recorded program of some lengths, and the instructions that ran."""

    lengths: Lengths
    way: Any  # see ``ways``, which are above
    ran: Ran


@dataclass(slots=True, eq=False)
class Family:
    """Calls that differ in lengths alone, of which some were ``seen``: ``calls`` on the tape since
    the latest recording, the numbers of ``recorded`` and of ``expected`` programs, and ``known``
    ones by their text, with the instructions that ran."""

    seen: set[Lengths] = field(default_factory=set)
    calls: int = 0
    recorded: int = 0
    expected: int = 0
    known: dict[str, list[RecordedLengths]] = field(default_factory=lambda: defaultdict(list))

    @property
    def is_open(self) -> bool:
        """Whether one more recording may serve other lengths."""
        return len(self.seen) > 1 and self.recorded < MOST_IN_VAIN + self.expected

    def serves(self, lengths: Lengths) -> bool:
        """Whether these lengths are between known ones."""
        return any([is_between(lengths, some) for some in self.known.values()])

    def add(self, lengths: Lengths, way: Any, path: Path) -> None:
        self.calls, self.recorded = 0, self.recorded + 1
        if path.ran and not way.counted and way.program.nbytes <= MOST_BYTES:
            some = self.known[way.program.source.text]
            if len(some) < MOST_KNOWN:
                some.append(RecordedLengths(lengths, way, path.ran))

    def ways_for(self, lengths: Lengths, path: Path) -> list[Any]:
        """Programs that may serve a call of other lengths that went this path."""
        ways = []
        for some in self.known.values():
            is_alike = path.ran is not None and any([covers(x.ran, path.ran) for x in some])
            if is_alike and is_between(lengths, some):
                try:
                    ways.append(way_between(some, lengths))
                except Unlike:
                    continue
        return ways


def is_between(lengths: Lengths, known: Sequence[RecordedLengths]) -> bool:
    columns = zip(lengths, zip(*[x.lengths for x in known], strict=True), strict=True)
    return len(known) >= LEAST_KNOWN and all([min(c) <= n <= max(c) for n, c in columns])


def covers(known: Ran, ran: Ran) -> bool:
    """Whether all these instructions have run in a known call: a branch that did not may look at
    data, and has no guard in its program. Code of Python's own that no model calls may be any."""
    for code, offsets in ran.items():
        if offsets is None and code.co_name != "__exit__":
            continue
        before = known.get(code, set())
        if before is not None and not (offsets is not None and offsets <= before):
            return False
    return True


def way_between(known: Sequence[RecordedLengths], lengths: Lengths) -> Any:
    """The way of some lengths, made of programs of one text."""
    points, ways, _ = zip(*known, strict=True)
    way, line = ways[0], Line(points, lengths)
    programs = [other.program for other in ways]
    for other in ways:
        if other.structure != way.structure or other.asked != way.asked:
            raise Unlike
    program = programs[0]
    examples = [line.of(x) for x in zip(*[p.examples for p in programs], strict=True)]
    constants = {name: line.of([p.constants[name] for p in programs]) for name in program.constants}
    steps = line.of([p.steps for p in programs])
    nbytes = max([p.nbytes for p in programs])
    made = Program.of_source(program.name, program.source, examples, constants, steps, nbytes)
    return way._replace(program=made)


class Line:
    """Constants at some lengths, of which it knows others."""

    def __init__(self, known: Sequence[Lengths], lengths: Lengths):
        axes = zip(zip(*known, strict=True), lengths, strict=True)
        self._axes = [(xs, x) for xs, x in axes if len(set(xs)) >= LEAST_KNOWN]

    def of(self, values: Sequence[Any]) -> Any:
        """The constant that is these values at the known lengths."""
        first, kind = values[0], type(values[0])
        if all([value is first for value in values]):
            return first
        if any([type(value) is not kind for value in values]):
            raise Unlike
        if kind is int:
            return self._number(values)
        if kind is float or kind is np.float64:
            return first if are_alike(values) else kind(self._number(whole(values)))
        if kind is slice:
            return slice(
                *map(self.of, zip(*[(x.start, x.stop, x.step) for x in values], strict=True))
            )
        if kind is tuple or kind is list:
            if len(set(map(len, values))) == 1:
                return kind(map(self.of, zip(*values, strict=True)))
            return self._sequence(values)
        if kind is np.ndarray and len({x.shape for x in values}) > 1:
            return self._array(values)
        if not are_alike(values):
            raise Unlike
        return first

    def _number(self, values: Sequence[int]) -> int:
        """A whole number on the line through these."""
        if len(set(values)) == 1:
            return values[0]
        for xs, x in self._axes:
            end = next(n for n, other in enumerate(xs) if other != xs[0])
            slope, rest = divmod(values[end] - values[0], xs[end] - xs[0])
            line = [values[0] + slope * (other - xs[0]) for other in xs]
            if not rest and line == [*values]:
                return values[0] + slope * (x - xs[0])
        raise Unlike

    def _sequence(self, values: Sequence[Any]) -> Any:
        """Numbers in even steps; or the beginning or end of the longest sequence."""
        count = self._number(list(map(len, values)))
        if count < 0:
            raise Unlike
        if all([len(value) > 1 and set(map(type, value)) == {int} for value in values]):
            steps = [value[1] - value[0] for value in values]
            if all([are_even(*pair) for pair in zip(values, steps, strict=True)]):
                start, step = self._number([value[0] for value in values]), self._number(steps)
                return type(values[0])([start + step * n for n in range(count)])
        longest = max(values, key=len)
        for part in (lambda n: slice(n), lambda n: slice(len(longest) - n, None)):
            if all([are_same_things(value, longest[part(len(value))]) for value in values]):
                return longest[part(count)]
        raise Unlike

    def _array(self, values: Sequence[np.ndarray]) -> np.ndarray:
        """The beginning of the longest array, along each axis."""
        if len({x.ndim for x in values}) > 1 or not all([x.flags.c_contiguous for x in values]):
            raise Unlike
        shape = [self._number(sizes) for sizes in zip(*[x.shape for x in values], strict=True)]
        longest = max(values, key=np.size)
        parts = [longest[tuple(map(slice, x.shape))] for x in values]
        if min(shape) < 0 or not are_same(parts, values):
            raise Unlike
        return snapshot(longest[tuple(map(slice, shape))].copy())


def are_alike(values: Sequence[Any]) -> bool:
    """Whether constants are the same in all bits."""
    first = values[0]
    if isinstance(first, np.ndarray | np.generic | float | complex):
        return all([are_same([value], [first]) for value in values]) and (
            not isinstance(first, np.ndarray) or len({x.strides for x in values}) == 1
        )
    return all([value == first for value in values])


def are_same_things(one: Sequence[Any], other: Sequence[Any]) -> bool:
    pairs = zip(one, other, strict=True)
    return len(one) == len(other) and all(
        [a is b or (type(a) is type(b) and are_alike([a, b])) for a, b in pairs]
    )


def are_even(value: Sequence[int], step: int) -> bool:
    return all([after - before == step for before, after in pairwise(value)])


def whole(values: Sequence[float]) -> list[int]:
    if not all([float(value).is_integer() for value in values]):
        raise Unlike
    return list(map(int, values))
