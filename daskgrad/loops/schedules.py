"""Schedules: which states of a loop are kept, and which steps run again in the backward pass.

If s states are kept at a time, pulling n steps back takes t(n, s) = r n - β(s + 1, r - 1) runs of
steps beside the traced ones, where β(s, t) = (s + t)! / (s! t!) and β(s, r - 1) < n <= β(s, r); no
schedule takes fewer. Source: A. Griewank and A. Walther, "Algorithm 799: Revolve", ACM
Transactions on Mathematical Software 26, 2000.
"""

from collections.abc import Iterator, Sequence
from math import comb
from typing import NamedTuple


class Rerun(NamedTuple):
    """Runs the steps from ``start``, whose state is kept, to ``stop - 1``; then the state before
    ``stop`` is kept, or ``stop`` is traced and pulled back. The state of a step that is pulled
    back is dropped."""

    start: int
    stop: int
    is_kept: bool


class Schedule(NamedTuple):
    """The steps ``start`` to ``stop - 1``, both ways, with at most ``slots`` kept states.

    ``firsts``: the steps before which the forward pass keeps the state. The first is ``start``; its
    state is an input, and counts.
    """

    start: int
    stop: int
    firsts: tuple[int, ...]
    slots: int

    def __repr__(self) -> str:
        shown = [*map(str, self.firsts[:8]), *["…"] * (len(self.firsts) > 8)]
        again = sum([rerun.stop - rerun.start for rerun in self.backward()])
        return (
            f"<Schedule of steps {self.start} to {self.stop - 1}: at most {self.slots} states "
            f"kept, at first those before {', '.join(shown)}; {again} steps run again>"
        )

    def backward(self) -> Iterator[Rerun]:
        """The backward pass, which finds the kept states, and drops all states."""
        kept, stop = list(self.firsts), self.stop
        while kept:
            start = kept[-1]
            if stop - start > 1 and len(kept) < self.slots:
                middle = start + first_part(stop - start, self.slots - len(kept) + 1)
                yield Rerun(start, middle, True)
                kept.append(middle)
                continue
            for step in reversed(range(start, stop)):
                yield Rerun(start, step, False)
            stop = kept.pop()

    def cut(self, count: int) -> list["Schedule"]:
        """The schedule as at most ``count`` consecutive ones, of about as many steps each."""
        least = (self.stop - self.start) / count
        cuts, starts = [0], self.firsts
        for number, start in enumerate(starts):
            if start - starts[cuts[-1]] >= least:
                cuts.append(number)
        ends = [*cuts[1:], len(starts)]
        return [
            Schedule(
                starts[begin],
                starts[end] if end < len(starts) else self.stop,
                starts[begin:end],
                self.slots - begin,
            )
            for begin, end in zip(cuts, ends, strict=True)
        ]


def revolve(steps: int, slots: int) -> Schedule:
    """The schedule of a loop that keeps at most ``slots`` states, with the fewest runs of steps."""
    firsts = [0]
    while len(firsts) < slots:
        left = steps + 1 - firsts[-1]  # one more stands for the consumer of the loop's value
        start = firsts[-1] + first_part(left, slots - len(firsts) + 1) if left > 1 else steps
        if start >= steps:
            break
        firsts.append(start)
    return Schedule(0, steps, tuple(firsts), slots)


def first_part(steps: int, slots: int) -> int:
    """The number of steps before the second state is kept; for two steps and slots or more."""
    repeats = 1
    while comb(slots + repeats, slots) < steps:
        repeats += 1
    fewest = comb(slots + repeats - 2, slots) if repeats > 1 else 1
    return max(fewest, steps - comb(slots - 1 + repeats, slots - 1))


def slots_of_two_runs(steps: int) -> int:
    """The fewest states to keep so that no step runs more than twice before it is traced."""
    slots = 1
    while comb(slots + 2, 2) < steps + 1:
        slots += 1
    return slots


class Limit(NamedTuple):
    """The states that may be kept: their number, or their bytes; both None: "auto"."""

    checkpoints: int | None = None
    memory: int | None = None

    def slots(self, steps: int, nbytes: int | None) -> int | None:
        """The number of kept states of ``nbytes``; None if the bytes must be known first."""
        if self.memory is not None:
            return None if nbytes is None else max(1, min(steps, self.memory // max(1, nbytes)))
        if self.checkpoints is not None:
            return min(steps, self.checkpoints)
        is_small = nbytes is not None and steps * nbytes <= SMALL
        return steps if is_small else slots_of_two_runs(steps)


AUTO = Limit()

SMALL = 2**23  # bytes that all states may take together, to be kept
MOST_PIECES = 16  # tasks of a loop in one pass
STEPS_OF_PIECE = 8  # at the least, about


def as_schedules(steps: int, limit: Limit, nbytes: int | None) -> Sequence[Schedule | None]:
    """The schedules of the tasks of a loop; a single None if the bytes of a state must be known."""
    slots = limit.slots(steps, nbytes)
    if slots is None:
        return [None]
    return revolve(steps, slots).cut(max(1, min(MOST_PIECES, steps // STEPS_OF_PIECE)))


def fewest_steps(steps: int, slots: int) -> int:
    """The number of runs of steps, beside traced ones, to pull back a chain of ``steps``."""
    repeats = 0
    while comb(slots + repeats, slots) < steps:
        repeats += 1
    return repeats * steps - comb(slots + repeats, slots + 1) if repeats else 0
