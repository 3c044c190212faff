"""Failures: which stage of which model an exception came from."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from daskgrad.backends import registry
from daskgrad.models.model import Call, Model, described_arguments
from daskgrad.models.portable_errors import make_portable, shorten
from daskgrad.models.writes import note_of_foreign, note_of_write
from daskgrad.values.trees import flatten


class Partition(NamedTuple):
    """A partition of a collection whose items are not counted before it is computed.

    ``item``: one of the items in it; ``None`` stands for the partition as a whole.
    """

    number: int
    item: int | None = None

    def __str__(self) -> str:
        whole = f"partition {self.number}"
        return whole if self.item is None else f"item {self.item} of {whole}"


class Mark:
    """Stands for an input of a call."""


def argument_label(call: Call, number: int) -> str:
    """What the argument of a model is called that an input is, or is a part of."""
    marks = [Mark() for _ in range(1 + max([number for _, number in call.holes]))]
    args, kwargs = call.arguments(marks)
    named = [*[(f"argument {n}", arg) for n, arg in enumerate(args)], *kwargs.items()]
    mark = marks[number]
    return next(name for name, arg in named if any(leaf is mark for leaf in flatten(arg)[0]))


def term_at(place: int | Partition | None) -> str:
    """Which term of a sum stands at a place; nothing for a call that is no term."""
    if place is None:
        return ""
    return f"item {place}" if isinstance(place, int) else str(place)


def at(place: int | Partition | None) -> str:
    """The same after a comma."""
    return "" if place is None else f", {term_at(place)}"


class Blame(NamedTuple):
    """Adds to an exception which stage of which model it came from, and on what arguments."""

    stage: str
    model: Model
    call: Call
    inputs: Sequence[Any]
    place: int | Partition | None = None

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        if isinstance(error, Exception):
            self.note(error)

    def note(self, error: Exception) -> None:
        """Adds the notes."""
        where = f"model {self.model.name!r}{at(self.place)}"
        shapes = ", ".join(described_arguments(self.call, self.inputs))
        error.add_note(f"daskgrad: in the {self.stage} pass of {where}, called with ({shapes})")
        args, kwargs = self.call.arguments(self.inputs)
        called = self.model.fun, self.model.name, args, kwargs, term_at(self.place)
        backend = self.model.backend
        said = [
            registry.hint(backend, error, self.stage),
            note_of_write(error, *called),
            note_of_foreign(self.model.fun, args, kwargs, backend),
        ]
        for each in said:
            if each is not None:
                error.add_note(f"daskgrad: {each}")
        shorten(error)
        make_portable(error)
