"""Blame: which stage of which model an exception came from, and that it arrives with its type."""

import copyreg
import pickle
import types
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import cloudpickle

from daskgrad import backends
from daskgrad.models import Call, Model, described_arguments
from daskgrad.structures import flatten
from daskgrad.writes import note_of_foreign, note_of_write


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
            backends.hint(backend, error, self.stage),
            note_of_write(error, *called),
            note_of_foreign(self.model.fun, args, kwargs, backend),
        ]
        for each in said:
            if each is not None:
                error.add_note(f"daskgrad: {each}")
        shorten(error)
        make_portable(error)


LONG = 200  # frames in a traceback: pickle can do some 300
ENDS = 30  # frames that are left at each end of a longer one


def shorten(error: BaseException) -> None:
    """Takes frames out of the middle of a traceback that is too long to be pickled.

    Such are those of endless recursions. Dask sends the text of one in its place, which its client
    cannot load: it would wait for the result for ever.
    """
    for each in linked(error):
        frames = traceback_of(each)
        if len(frames) > LONG:
            frames[ENDS - 1].tb_next = frames[-ENDS]
            left_out = len(frames) - 2 * ENDS
            each.add_note(f"daskgrad: {left_out} frames are left out of a traceback this long")


def linked(error: BaseException) -> list[BaseException]:
    """An exception and those that its traceback shows."""
    found: list[BaseException] = [error]
    for each in found:
        parts = each.exceptions if isinstance(each, BaseExceptionGroup) else ()
        for other in (each.__cause__, each.__context__, *parts):
            if other is not None and not any(other is known for known in found):
                found.append(other)
    return found


def traceback_of(error: BaseException) -> list[types.TracebackType]:
    frames, frame = [], error.__traceback__
    while frame is not None:
        frames.append(frame)
        frame = frame.tb_next
    return frames


def make_portable(error: Exception) -> None:
    """Sees to it that an exception arrives in another process, with its type and its notes.

    One whose ``__init__`` takes something else than ``args`` cannot be loaded, and one that holds a
    lock or a file cannot be sent: Dask would raise another one in its place, or lose the process.
    """
    if not is_portable(error):
        copyreg.pickle(type(error), reduced_exception)


def is_portable(value: Any) -> bool:
    try:
        pickle.loads(cloudpickle.dumps(value))
    except Exception:
        return False
    return True


def reduced_exception(error: Exception) -> tuple[Callable, tuple]:
    args = tuple([arg if is_portable(arg) else repr(arg) for arg in error.args])
    state = {name: value for name, value in error.__dict__.items() if is_portable(value)}
    return loaded_exception, (type(error), args, state)


def loaded_exception(cls: type[Exception], args: tuple, state: dict) -> Exception:
    error = cls.__new__(cls)
    error.args = args
    error.__dict__.update(state)
    return error
