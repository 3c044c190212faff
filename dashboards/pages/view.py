"""View: what all pages have in common: a recorder, figures that are updated, and an empty state."""

from itertools import islice
from typing import Any

from bokeh.layouts import column
from bokeh.models import ColumnDataSource

from daskgrad.dashboards.pages.style import empty
from daskgrad.dashboards.palette import shade
from daskgrad.dashboards.recorder import Evaluation, Recorder

MODELS = 12  # with a row of their own; the others are added up
DRAWN = 4_000  # tasks at most in a time line


class View:
    """One page of a recorder's records. ``layout`` is shown; ``update`` draws what is new.

    ``is_report``: it is drawn once, when everything has ended.
    """

    nothing = ("Nothing has been evaluated yet. Call, for example:", "dg.value_and_grad(fun)(x)")

    def __init__(self, recorder: Recorder, is_report: bool = False):
        self.recorder, self.is_report = recorder, is_report
        self._version = -1
        self._empty = empty(*self.nothing)
        self._drawn = column(*self.build(), sizing_mode="stretch_width", visible=False)
        self.layout = column(self._empty, self._drawn, sizing_mode="stretch_width")
        self.update()

    def build(self) -> list[Any]:
        """The figures and texts, from top to bottom."""
        raise NotImplementedError

    def draw(self) -> None:
        """Puts the records into what ``build`` made."""
        raise NotImplementedError

    @property
    def has_something(self) -> bool:
        return not self.recorder.is_empty

    def update(self) -> None:
        if self.recorder.version == self._version:
            return
        self._version = self.recorder.version
        shown = self.has_something
        if self._drawn.visible != shown:
            self._drawn.visible, self._empty.visible = shown, not shown
        if shown:
            self.draw()

    @property
    def current(self) -> Evaluation | None:
        """The evaluation that runs or was the latest; in a report the largest."""
        found = list(self.recorder.evaluations.values())
        if self.is_report:
            return max(found, key=lambda each: each.total, default=None)
        running = [each for each in found if not each.is_done]
        return (running or found or [None])[-1]

    def number(self, model: str) -> int:
        """The number of a model, which decides its hue: by when it was first seen."""
        models = self.recorder.models
        return list(models).index(model) if model in models else 0

    def colour(self, model: str, stage: str) -> str:
        return shade(self.number(model), stage)


def latest(records: Any, count: int) -> list[Any]:
    """The latest of a deque, oldest first."""
    return list(islice(reversed(records), max(count, 0)))[::-1]


def source_of(*names: str) -> ColumnDataSource:
    return ColumnDataSource({name: [] for name in names})


def replace(source: ColumnDataSource, rows: list[tuple], names: tuple[str, ...]) -> None:
    """Replaces the rows of a source, unless they are the same."""
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(names)
    data = {name: list(each) for name, each in zip(names, columns, strict=True)}
    if data != source.data:
        source.data = data
