"""Failures: which stage of which model an exception came from."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from daskgrad.backends import registry
from daskgrad.models.model import Call, Model, described_arguments, plain_function
from daskgrad.models.portable_errors import make_portable, shorten
from daskgrad.values.descriptions import argument_name
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
        said = [
            registry.hint(self.model.backend, error, self.stage),
            f"{where} {WRITE}" if is_write(error) else None,
            note_of_foreign(self.model, *self.call.arguments(self.inputs)),
        ]
        for each in said:
            if each is not None:
                error.add_note(f"daskgrad: {each}")
        shorten(error)
        make_portable(error)


# ------------------------------------------------------------------------------- what it may mean

SIGNS = (  # of a write into a read-only array: what NumPy, Python and Cython say
    *("destination is read-only", "array is read-only", "COPY base is read-only"),
    *("flag set is read-only", "swapped is read-only", "read-only memory", "readonly arrays"),
    *("buffer is not writable", "contiguous, writable", "must be read-write"),
    *("output array is not acceptable", "does not own its data"),
)

WRITE = (
    "may have written into what it was given, or handed it to compiled code that may; arguments, "
    "and what the rules of dg.custom_vjp are given, are read-only while a model runs, since others "
    "use the same arrays: copy it first"
)


def is_write(error: Exception) -> bool:
    """Whether an error may come from writing into a read-only array."""
    is_kind = isinstance(error, ValueError | TypeError | BufferError)
    return is_kind and any(sign in str(error) for sign in SIGNS)


def note_of_foreign(model: Model, args: tuple, kwargs: dict) -> str | None:
    """Which arguments of a model that has failed are arrays of another library than NumPy."""
    fun = plain_function(model.fun)
    named = [(argument_name(fun, number), arg) for number, arg in enumerate(args)]
    foreign = [
        name if name.startswith("argument ") else f"argument {name!r}"
        for name, arg in [*named, *kwargs.items()]
        if any(map(is_foreign, flatten(arg)[0]))
    ]
    if not foreign:
        return None
    backend = getattr(model.backend, "name", model.backend)
    return (
        f"{', '.join(foreign)}: arrays of other libraries are handed over as they are; pass NumPy "
        f"arrays, which backend {backend!r} has use for"
    )


def is_foreign(leaf: Any) -> bool:
    return hasattr(type(leaf), "__dlpack__") and not isinstance(leaf, np.ndarray | np.generic)
