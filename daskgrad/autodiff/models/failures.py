"""Failures: notes on exceptions that name stage, model and arguments; exceptions that travel."""

import copyreg
import inspect
import pickle
import types
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import cloudpickle
import numpy as np

from daskgrad.autodiff.libraries import registry
from daskgrad.autodiff.models.model import (
    Call,
    Model,
    SentFunction,
    described_arguments,
    plain_function,
)
from daskgrad.autodiff.tape.operands import is_write
from daskgrad.autodiff.values.descriptions import argument_name
from daskgrad.autodiff.values.trees import flatten

# -------------------------------------------------------------------------------------------------
# Portable errors: exceptions that arrive in other processes with types, notes and causes.

LONG = 200  # frames in a traceback: pickle takes about 300
ENDS = 30  # frames that a longer traceback keeps at each end


def shorten(error: BaseException) -> None:
    """Removes frames from the middle of a traceback that is too long for pickle: Dask would send
    its text, which the client cannot load, and would wait for ever."""
    for link in linked(error):
        frames = traceback_of(link)
        if len(frames) > LONG:
            frames[ENDS - 1].tb_next = frames[-ENDS]
            left_out = len(frames) - 2 * ENDS
            link.add_note(f"daskgrad: {left_out} frames were removed from this long traceback")


def linked(error: BaseException) -> list[BaseException]:
    """An exception, and all others in its traceback."""
    links: list[BaseException] = [error]
    for link in links:
        parts = link.exceptions if isinstance(link, BaseExceptionGroup) else ()
        for other in (link.__cause__, link.__context__, *parts):
            if other is not None and not any(other is known for known in links):
                links.append(other)
    return links


def traceback_of(error: BaseException) -> list[types.TracebackType]:
    frames, frame = [], error.__traceback__
    while frame is not None:
        frames.append(frame)
        frame = frame.tb_next
    return frames


def make_portable(error: Exception) -> None:
    """Makes an exception arrive in another process with its type and notes.

    If its ``__init__`` does not take ``args``, or it holds a lock, Dask would raise another
    exception, or lose the process. Dask's workers need ``make_plain``, too.
    """
    if not is_portable(error):
        copyreg.pickle(type(error), reduce_exception)


def is_portable(value: Any) -> bool:
    try:
        pickle.loads(cloudpickle.dumps(value))
    except Exception:
        return False
    return True


def portable_args(error: BaseException) -> tuple:
    """An exception's arguments; the text of arguments that cannot be sent."""
    return tuple([arg if is_portable(arg) else repr(arg) for arg in error.args])


def reduce_exception(error: Exception) -> tuple[Callable, tuple]:
    state = {name: value for name, value in error.__dict__.items() if is_portable(value)}
    return load_exception, (type(error), portable_args(error), state)


def load_exception(cls: type[Exception], args: tuple, state: dict) -> Exception:
    error = cls.__new__(cls)
    error.args = args
    error.__dict__.update(state)
    return error


def make_plain(error: Exception) -> None:
    """Replaces attributes that cannot be sent by their text; else a worker sends only text."""
    for link in linked(error):
        link.args = portable_args(link)
        for name, value in vars(link).items():
            if not is_portable(value):
                setattr(link, name, repr(value))


class Partition(NamedTuple):
    """A partition of a collection that is not counted before it is computed, or its ``item``."""

    number: int
    item: int | None = None

    def __str__(self) -> str:
        whole = f"partition {self.number}"
        return whole if self.item is None else f"item {self.item} of {whole}"


Place = int | str | Partition | None  # of a call; an int counts items


def argument_label(call: Call, number: int) -> str:
    """The name of the model's argument that has an input in it."""
    marks = [object() for _ in range(1 + max([number for _, number in call.holes]))]
    mark, named = marks[number], named_arguments(call, marks)
    return next(name for name, arg in named if any(leaf is mark for leaf in flatten(arg)[0]))


def named_arguments(call: Call, inputs: Sequence[Any]) -> list[tuple[str, Any]]:
    """The arguments with their names, or their numbers."""
    args, kwargs = call.arguments(inputs)
    return [*[(f"argument {n}", arg) for n, arg in enumerate(args)], *kwargs.items()]


def term_at(place: Place) -> str:
    """The place of a call in words: the item of a sum or the step of a loop."""
    if place is None:
        return ""
    return f"item {place}" if isinstance(place, int) else str(place)


def at(place: Place) -> str:
    """The place in words, after a comma."""
    return "" if place is None else f", {term_at(place)}"


class Blame(NamedTuple):
    """Adds notes to an exception: its stage and model, and the arguments' shapes."""

    stage: str
    model: Model
    call: Call
    inputs: Sequence[Any]
    place: Place = None

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        if isinstance(error, Exception):
            self.note(error)

    def note(self, error: Exception) -> None:
        where = f"model {self.model.name!r}{at(self.place)}"
        shapes = ", ".join(described_arguments(self.call, self.inputs))
        error.add_note(f"daskgrad: in the {self.stage} pass of {where}, called with ({shapes})")
        stage = "forward" if is_pushed(self.model) else self.stage
        hints = [
            registry.hint(self.model.backend, error, stage),
            f"{where} {WRITE}" if is_write(error) else None,
            note_of_module(error),
            note_of_arguments(error, self) if isinstance(error, TypeError) else None,
            note_of_foreign(self.model, *self.call.arguments(self.inputs)),
        ]
        for text in filter(None, hints):
            error.add_note(f"daskgrad: {text}")
        shorten(error)
        make_portable(error)


def is_pushed(model: Model) -> bool:
    """Whether a model runs in forward mode, which traces it in both passes."""
    fun: Any = model.fun.loaded if isinstance(model.fun, SentFunction) else model.fun
    return hasattr(fun, "daskgrad_pushed")


WRITE = (
    "may have written into an argument, or passed it to compiled code that may; the arguments of "
    "models, and of the rules of dg.custom_vjp, are read-only while a model runs, since others use "
    "the same arrays: copy the array first"
)


def note_of_module(error: Exception) -> str | None:
    """A note on a module that is missing on a worker."""
    if not (isinstance(error, ModuleNotFoundError) and error.name):
        return None
    package = error.name.partition(".")[0]
    return (
        f"the process that runs the model has no module {error.name!r}; install {package!r} there, "
        f"or send its file with client.upload_file({package + '.py'!r})"
    )


def note_of_arguments(error: TypeError, where: Blame) -> str | None:
    """A note on a model that does not take as many arguments as it is called with."""
    fun = plain_function(where.model.fun)
    args, kwargs = where.call.arguments(where.inputs)
    try:
        signature = inspect.signature(fun)
    except (TypeError, ValueError):  # a function in C tells nothing
        return None
    try:
        signature.bind(*args, **kwargs)
    except TypeError:
        is_term = isinstance(where.place, int | Partition)
        caller = "a sum calls its model with an item and what is shared: model(item, x)"
        return f"the model takes {signature}" + (f"; {caller}" if is_term else "")
    return None


def note_of_foreign(model: Model, args: tuple, kwargs: dict) -> str | None:
    """A note on arguments of a failed model that are arrays of other libraries than NumPy."""
    fun = plain_function(model.fun)
    named = [(argument_name(fun, number), arg) for number, arg in enumerate(args)]
    foreign = [
        name if name.startswith("argument ") else f"argument {name!r}"
        for name, arg in [*named, *kwargs.items()]
        for leaf in flatten(arg)[0]
        if hasattr(type(leaf), "__dlpack__") and not isinstance(leaf, np.ndarray | np.generic)
    ]
    if not foreign:
        return None
    backend = getattr(model.backend, "name", model.backend)
    names = ", ".join(dict.fromkeys(foreign))
    return (
        f"{names}: arrays of other libraries are passed on unchanged; pass NumPy arrays, which "
        f"backend {backend!r} can use"
    )
