"""Families: calls that differ in sizes alone, whose programs have sources in common.

A program of another size is made of a recording whose structure is known: nothing is written, and
the source is the one that would have been written. That takes twice as long as the tape takes for
that call. So it is done when a size comes again, and at its first call as long as all that is tried
takes a share of the tape's own time.
"""

import math
from typing import Any

from daskgrad.compiled.program import Source
from daskgrad.compiled.steps import Recording, Unrecordable
from daskgrad.compiled.watch import Watch

COMPILED_AT = 3  # calls of a family: what is called twice is traced in less time
UNASKED_AT = 4  # calls, where nobody asked for it and some more came before
ALONE_AT = 10  # calls of a size that has no source in common with others
MOST_SOURCES = 64
MOST_FAILURES = 2  # of sizes that get no program, before a family gets no more
SHARE_OF_CHECKS = 0.02  # of the time that they may take
SHARE_OF_TRIALS = 0.05  # of the time of forward passes on the tape
MOST_MISSES = 4  # more than hits, of trials to find a source
MOST_BYTES = 2**20  # of the arrays that all programs keep for themselves
SLOW = 0.02  # seconds: a call whose time goes to NumPy


class Family:
    """What the calls of one function that differ in sizes alone have in common."""

    def __init__(self, name: str, watch: Watch, is_vouched: bool):
        self.name = name
        self.watch = watch
        self.refusal: str | None = None
        self._is_vouched = is_vouched
        self.sizes = 0  # how many there are
        self.calls = 0
        self.checks = 0
        self.next_check = 0
        self.failures = 0
        self._nbytes = 0  # that programs keep
        self.seconds = 0.0  # of the tape
        self._fastest = math.inf
        self._spent = 0.0  # on trials and on programs of single sizes
        self._hits = MOST_MISSES  # more than misses
        self._sources: dict[int, tuple[Any, Source]] = {}
        self._unknown: dict[int, Any] = {}  # structures without a source: who met them first

    @property
    def is_due(self) -> bool:
        """Whether the next call is to be compared with the tape."""
        return self.calls + 1 >= self.next_check

    def schedule(self, own: float, tapes: float) -> None:
        """Decides when to compare again, by the times that a call took."""
        self.checks += 1
        seldom = tapes / (SHARE_OF_CHECKS * max(own, 1e-9))
        self.next_check = self.calls + min(self.calls, int(seldom)) + 1

    def is_hot(self, seconds: float) -> bool:
        """Whether programs are to be written, after a call that took so long on the tape."""
        if self._is_vouched:
            return self.calls >= COMPILED_AT
        self._fastest = min(self._fastest, seconds)
        return self.calls >= UNASKED_AT and self._fastest < SLOW

    def require_room(self, nbytes: int) -> None:
        """Takes down that a program keeps so many bytes; Unrecordable if that is too much."""
        if self._nbytes + nbytes > MOST_BYTES:
            raise Unrecordable(
                f"its programs would keep more than {MOST_BYTES:,} bytes of arrays that are no "
                f"arguments: pass them as arguments, or make them read-only"
            )
        self._nbytes += nbytes

    @property
    def has_sources(self) -> bool:
        return bool(self._sources)

    def may_spend(self) -> bool:
        """Whether a program may be tried now, whatever it is good for."""
        is_cheap = self._spent <= SHARE_OF_TRIALS * self.seconds
        return is_cheap and self.failures < MOST_FAILURES

    @property
    def is_promising(self) -> bool:
        """Whether a source is likely to be known for a size that comes again."""
        return self._hits >= 0 and self.failures < MOST_FAILURES

    def count_trial(self, seconds: float, is_hit: bool, comes_again: bool) -> None:
        """Takes down how long it took to look for a source, and whether there was one."""
        self._hits = min(self._hits + 1, MOST_MISSES) if is_hit else self._hits - 1
        if not (is_hit and comes_again):
            self._spent += seconds / 2 if is_hit else seconds  # the tape would have taken some

    def spend(self, seconds: float) -> None:
        self._spent += seconds

    def source(self, recording: Recording) -> Source | None:
        """The source for a recording, if it is known."""
        found = self._sources.get(hash(recording.structure))
        return found[1] if found and found[0] == recording.structure else None

    def knows(self, structure: int | None) -> bool:
        return structure in self._sources

    def learn(self, recording: Recording, source: Source) -> None:
        self.next_check = self.calls + 1
        if len(self._sources) < MOST_SOURCES:
            self._sources[hash(recording.structure)] = recording.structure, source

    def is_common(self, structure: int | None, size: Any) -> bool:
        """Whether another size has met this structure before."""
        if structure is None or len(self._unknown) > MOST_SOURCES:
            return False
        return self._unknown.setdefault(structure, size) is not size
