"""Screens: show progress in a terminal, in a notebook, or as lines of a file; needs rich.

Bars are drawn by rich: it keeps several of them in place below what a script prints, and puts the
cursor back. Its own notebook output needs widgets; here it is what any notebook can show and keep.
"""

import sys
from typing import Any

from rich.console import Console, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from daskgrad.autodiff.values import clock
from daskgrad.dashboards.bars import Bar, Standing
from daskgrad.dashboards.palette import INK, shade

LINE_EVERY = 30.0  # seconds between two lines in a file
WIDTH = 40  # of a bar, in characters


def screen() -> "Screen":
    """The screen of this process."""
    console = Console(stderr=True)
    if console.is_jupyter:
        return Notebook()
    if sys.stderr.isatty() and not console.is_dumb_terminal:
        return Terminal(console)
    return Lines()


class Screen:
    """Shows how far an evaluation is, and a line on calls; a context manager.

    Nothing is shown before there is something to show. ``show_last`` is called once, at the end.
    """

    def __enter__(self) -> "Screen":
        return self

    def __exit__(self, *_: Any) -> None: ...

    def show(self, standing: Standing | None, calls: str) -> None:
        if standing is not None or calls:
            self.draw(standing, printable(calls))

    def show_last(self, standing: Standing | None, calls: str) -> None:
        self.show(standing, calls)

    def draw(self, standing: Standing | None, calls: str) -> None:
        raise NotImplementedError


class Terminal(Screen):
    """Bars that stay below what is printed meanwhile; where that goes to a file, it stays there."""

    def __init__(self, console: Console):
        self._console = console
        self._live: Live | None = None
        self._is_closed = False

    def draw(self, standing: Standing | None, calls: str) -> None:
        if self._is_closed:
            return
        if self._live is None:
            to = {"console": self._console, "redirect_stdout": sys.stdout.isatty()}
            self._live = Live(auto_refresh=False, **to)  # type: ignore[arg-type]
            self._live.start()
        self._live.update(picture(standing, calls), refresh=True)

    def __exit__(self, *_: Any) -> None:
        self._is_closed = True
        if self._live is not None:
            self._live.stop()


class Notebook(Screen):
    """One output of a cell, which is replaced."""

    def __init__(self) -> None:
        self._shown: Any = None

    def draw(self, standing: Standing | None, calls: str) -> None:
        from IPython.display import display  # here: it is there in notebooks alone

        if self._shown is None:
            self._shown = display(picture(standing, calls), display_id=True)
        else:
            self._shown.update(picture(standing, calls))


class Lines(Screen):
    """Lines of plain text: one every half a minute while something happens, and one at the end."""

    def __init__(self) -> None:
        self._next, self._last = clock.seconds() + LINE_EVERY, ""

    def draw(self, standing: Standing | None, calls: str) -> None:
        if clock.seconds() > self._next:
            self._write(standing, calls)

    def show_last(self, standing: Standing | None, calls: str) -> None:
        self._write(standing, printable(calls))

    def _write(self, standing: Standing | None, calls: str) -> None:
        parts = [] if standing is None else [about(standing)]
        text = " · ".join([*parts, *([calls] if calls else [])])
        if text and text != self._last:
            print(text, file=sys.stderr, flush=True)
        self._next, self._last = clock.seconds() + LINE_EVERY, text


def picture(standing: Standing | None, calls: str) -> RenderableType:
    """Bars and the line on calls, as rich draws them."""
    table = Table.grid(padding=(0, 2))
    for name, bar in {} if standing is None else standing.bars.items():
        assert standing is not None
        colour = shade(0, name)
        drawn = ProgressBar(
            max(bar.total, 1),
            bar.done,
            width=WIDTH,
            complete_style=colour,
            finished_style=colour,
            style=INK,
        )
        table.add_row(name, drawn, counted(bar), time_left(standing, name))
    whole = Table.grid()
    whole.add_row(table)
    if calls:
        whole.add_row(Text(calls))
    return whole


def about(standing: Standing) -> str:
    """The bars in words."""
    bars = [f"{name} {counted(bar)}" for name, bar in standing.bars.items()]
    left = time_left(standing, list(standing.bars)[-1])
    return " · ".join([*bars, left] if left else bars)


def counted(bar: Bar) -> str:
    failed = f", {bar.failed:,} failed" if bar.failed else ""
    return f"{bar.done:,}/{bar.total:,}{failed}"


def time_left(standing: Standing, name: str) -> str:
    """The time until the end of a pass; where all are over, after the last one what they took."""
    bar = standing.bars[name]
    if standing.is_done:
        took = ("given up after " if standing.dropped else "") + duration(standing.age)
        return took if name == list(standing.bars)[-1] else ""
    if bar.done + bar.failed >= bar.total:
        return ""
    left = standing.seconds_left(name)
    return "" if left is None else f"{duration(left)} left"


def duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}"


def printable(text: str) -> str:
    """A text whose names may hold anything, without characters that control a terminal."""
    return "".join([letter if letter.isprintable() else "?" for letter in text])
