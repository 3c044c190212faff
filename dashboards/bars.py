"""Bars: how far the latest evaluation of a recorder is, and how long the rest will take.

They can be added: a cluster runs one part of an evaluation, and the client another.
"""

import operator
import time
from collections.abc import Iterable
from typing import Any, NamedTuple

from daskgrad.dashboards.recorder import Recorder, Run

PASSES = ("forward", "tangent", "backward")  # as they run
PASS_OF = {"forward": "forward", "value": "forward", "tangent": "tangent"}
PASS_OF |= {"backward": "backward", "cotangent": "backward"}
OF_MODELS = ("forward", "tangent", "backward")  # stages in which models run


class Bar(NamedTuple):
    """Tasks of one pass; and the seconds that those done took, and that the rest will take."""

    done: int = 0
    total: int = 0
    failed: int = 0
    spent: float = 0.0
    left: float = 0.0

    def plus(self, other: "Bar") -> "Bar":
        return Bar(*map(operator.add, self, other))


class Standing(NamedTuple):
    """How far an evaluation is, by pass, so many seconds after it began.

    Tasks that are ``dropped`` never ran, since another one failed or nobody wants them any more.
    """

    evaluation: str
    age: float
    bars: dict[str, Bar]
    dropped: int = 0

    @property
    def is_done(self) -> bool:
        rest = sum([bar.total - bar.done - bar.failed for bar in self.bars.values()])
        return rest <= self.dropped

    def seconds_left(self, until: str) -> float | None:
        """Until the end of a pass, at the speed of the tasks done so far; None: nobody knows."""
        spent = sum([bar.spent for bar in self.bars.values()])
        before = PASSES[: PASSES.index(until) + 1]
        left = sum([self.bars[each].left for each in before if each in self.bars])
        return self.age * left / spent if spent > 0.0 else None


def standing(recorder: Recorder, process: str) -> Standing | None:
    """The latest evaluation whose name, which is its token, begins with that of a process."""
    names = [name for name in recorder.evaluations if name.startswith(process)]
    if not names:
        return None
    found = recorder.evaluations[names[-1]]
    bars: dict[str, Bar] = {}
    for (stage, model), count in found.counts.items():
        done = min(count.done, count.total)
        rest = max(count.total - done - count.failed, 0)
        mean = mean_seconds(recorder, stage, model)
        each = Bar(done, count.total, count.failed, mean * done, mean * rest)
        bars[PASS_OF[stage]] = bars.get(PASS_OF[stage], Bar()).plus(each)
    stop = found.stop if found.is_done else time.time()
    in_order = {name: bars[name] for name in PASSES if name in bars}
    return Standing(names[-1], stop - found.start, in_order, found.dropped)


def mean_seconds(recorder: Recorder, stage: str, model: str) -> float:
    """What a task takes; before the first one, as long as other passes of the model, or others."""
    costs = recorder.models.get(model)
    stages = {} if costs is None else costs.stages
    if stage in stages or stage not in OF_MODELS:
        return mean([stages[stage]] if stage in stages else [])
    own = [stages[other] for other in OF_MODELS if other in stages]
    everything = (each.stages.items() for each in recorder.models.values())
    return mean(own or [total for each in everything for s, total in each if s in OF_MODELS])


def mean(totals: Iterable[Any]) -> float:
    """Of [tasks, seconds, ...] of several kinds."""
    counts, seconds = [0], [0.0]
    for count, took, *_ in totals:
        counts.append(count)
        seconds.append(took)
    return sum(seconds) / max(sum(counts), 1)


def together(one: Standing | None, other: Standing | None) -> Standing | None:
    """Both parts of an evaluation, or the later one of two."""
    if one is None or other is None:
        return one or other
    if one.evaluation != other.evaluation:
        return max(one, other, key=lambda each: each.evaluation)
    passes = [name for name in PASSES if name in one.bars or name in other.bars]
    bars = {name: one.bars.get(name, Bar()).plus(other.bars.get(name, Bar())) for name in passes}
    dropped = one.dropped + other.dropped
    return Standing(one.evaluation, max(one.age, other.age), bars, dropped)


def latest_run(recorder: Recorder) -> Run | None:
    """The run of evaluations that has the latest row."""
    runs = [run for run in recorder.runs.values() if run.latest is not None]
    return max(runs, key=lambda run: run.start + run.latest.seconds, default=None)
