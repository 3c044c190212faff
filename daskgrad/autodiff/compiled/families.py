"""Families: calls that differ in sizes alone, whose programs have sources in common.

A program of another size is made of a recording whose structure is known: nothing is written, and
the source is the one that would have been written. That takes twice as long as the tape takes for
that call, and pays at the third. So it is done when a size comes again; and all that is tried, less
what the programs have saved, may take a share of the time that the tape alone would have taken
until then, so that no sweep over many sizes is much slower than the tape's.
"""

import math
from typing import Any

from daskgrad.autodiff.compiled.program import Source
from daskgrad.autodiff.compiled.steps import Recording, Unrecordable
from daskgrad.autodiff.compiled.watch import Watch

COMPILED_AT = 3  # calls of a family: what is called twice is traced in less time
UNASKED_AT = 4  # calls, where nobody asked for it and some more came before
ALONE_AT = 10  # calls of a size that has no source in common with others
MOST_SOURCES = 64
MOST_FAILURES = 2  # of sizes that get no program, before a family gets no more
SHARE_OF_CHECKS = 0.02  # of the time that they may take
SHARE_OF_TRIALS = 0.15  # of the time that the tape would have taken, beside what programs save
SHARE_OF_FIRST = 0.05  # the same, for sizes that may never come again
IN_A_ROW = 10  # trials: one alone takes longer, and so do the calls on the tape after it;
SIZES_A_TRIAL = 20  # there are fewer in a row of families of few sizes
MOST_MISSES = 4  # structures, which are no longer few if they are more than half of the trials
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
        self._taped = 0  # calls
        self._seconds = 0.0  # that these took, without their pullbacks
        self._fastest = math.inf
        self._compared = 0  # calls, by a program and on the tape
        self._pulled = 0.0  # seconds that pullbacks took on the tape in these
        self._own = 0.0  # that programs took in these
        self._written = 0.0  # seconds that the first source took
        self._spent = 0.0  # on trials and on programs, beyond what the tape would have taken
        self._spend_at = 0.0  # the call at which they may take more
        self._first_at = 0.0  # the same for sizes that may never come again
        self._trials = 0
        self._hits = 0  # of these, which found a source
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

    def count_taped(self, seconds: float) -> None:
        """Takes down how long a forward pass took on the tape."""
        self._taped += 1
        self._seconds += seconds
        self._fastest = min(self._fastest, seconds)

    def count_compared(self, own: float, pulled: float) -> None:
        """Takes down how long a program took for a call, and the pullback on the tape."""
        self._compared += 1
        self._own += own
        self._pulled += pulled

    @property
    def _on_tape(self) -> float:
        """Seconds that a call takes on the tape, with its pullback."""
        return self._seconds / max(self._taped, 1) + self._pulled / max(self._compared, 1)

    @property
    def _saving(self) -> float:
        """Seconds that a program saves in a call."""
        if not self._compared:
            return 0.0
        return max(self._on_tape - self._own / self._compared, 0.0)

    @property
    def is_hot(self) -> bool:
        """Whether programs are to be written."""
        if self._is_vouched:
            return self.calls >= COMPILED_AT
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
        """Whether programs may take more time now."""
        if self.calls < self._spend_at:
            return False
        each, programs = self._saving, self.calls - self._taped - self._hits - self.checks
        net = self._spent + self._written - each * programs
        self._spend_at = self._call_at(net, SHARE_OF_TRIALS, each)
        if self._spend_at:
            net += self._in_a_row * self._spent / max(self._trials, 1)
            self._spend_at = self._call_at(net, SHARE_OF_TRIALS, each)
        return self.calls >= self._spend_at and self.failures < MOST_FAILURES

    @property
    def _in_a_row(self) -> int:
        """For how many trials time is saved up, where there is none for the next one."""
        return min(IN_A_ROW, self.sizes // SIZES_A_TRIAL)

    def _call_at(self, seconds: float, share: float, saving: float = 0.0) -> float:
        """From which call on this is at most a share of what the tape would have taken for all of
        them, if each call saves so much."""
        gain = share * self._on_tape
        owed = seconds - gain * self.calls
        return self.calls + owed / max(gain + saving, 1e-9) if owed > 0.0 else 0.0

    def may_try(self, comes_again: bool) -> bool:
        """Whether to look for a source for a size, which may be known."""
        if len(self._unknown) > MOST_MISSES + self._trials // 2:  # each size has its own
            return False
        if not comes_again:
            if self.calls < self._first_at:
                return False
            self._first_at = self._call_at(self._spent, SHARE_OF_FIRST)
            if self.calls < self._first_at:
                return False
        return self.may_spend()

    def rests(self, met: int) -> bool:
        """Whether there is nothing to be done for a size without program that was met so often."""
        if self.failures >= MOST_FAILURES:
            return True
        if not self._sources or met >= ALONE_AT:
            return False
        return self.calls < self._spend_at or not self.may_try(met > 0)

    def count_trial(self, seconds: float, is_hit: bool) -> None:
        """Takes down how long it took to look for a source; if there was one, the tape was not
        asked."""
        self._trials += 1
        self._hits += is_hit
        self.spend(max(seconds - self._on_tape, 0.0) if is_hit else seconds)

    def count_written(self, seconds: float) -> None:
        """Takes down how long it took to write a source, without which there are no trials, or a
        further one."""
        if self.has_sources:
            self.spend(seconds)
        else:
            self._written += seconds

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
            structure = hash(recording.structure)
            self._sources[structure] = recording.structure, source
            self._unknown.pop(structure, None)

    def is_common(self, structure: int | None, size: Any) -> bool:
        """Whether another size has met this structure before."""
        if structure is None:
            return False
        return self._unknown.setdefault(structure, size) is not size
