"""Sending: what tasks take, as it goes to other processes, and what cannot be sent, named.

Dask's scheduler loads a graph; Dask's pickles lose the layout of arrays, and the rules of
functions of a script. So objects of the user's are sealed, and pickled as models are. Dask's own
error, where something cannot be pickled, names neither task nor model; nor does that of a worker
which lacks a module.
"""

import contextlib
import pickle
import re
from collections.abc import Iterable, Iterator
from typing import Any

import cloudpickle
import numpy as np

from daskgrad.autodiff.models.failures import note_of_module
from daskgrad.autodiff.models.model import Model
from daskgrad.autodiff.models.travel import seal
from daskgrad.autodiff.tape.pickling import AutogradPickler
from daskgrad.autodiff.values.memory import Sealed, Sent
from daskgrad.autodiff.values.trees import LEAF_TYPES

PLAIN = {*LEAF_TYPES, bool, str, complex, slice, range, type(Ellipsis)} - {np.ndarray}
MISSING = re.compile(r"No module named '([\w.]+)'")
ADVICE = "open files, locks and connections where they are used, or pass what makes them"


@contextlib.contextmanager
def named_if_unsendable(parts: Iterable[tuple[str, Any]]) -> Iterator[None]:
    """TypeError that names the first part, of (name, value), that cannot be pickled.

    For what goes to other processes; only a failure looks at the parts. If all of them can be
    pickled, as where a model raised the error, it is raised as it is.
    """
    try:
        yield
    except (TypeError, pickle.PicklingError):
        for name, value in parts:
            if cause := reason_against_pickling(value):
                what = f"{name} cannot be sent to another process"
                raise TypeError(f"{what}: {cause}; {ADVICE}") from cause
        raise


@contextlib.contextmanager
def named_if_unreadable(parts: Iterable[tuple[str, Any]]) -> Iterator[None]:
    """A ModuleNotFoundError names the first part, of (name, value), whose class is in the module.

    One that a model raised has notes. Of one that is raised where items are placed, Dask keeps the
    text alone.
    """
    try:
        yield
    except Exception as error:
        missing = None if hasattr(error, "__notes__") else MISSING.search(str(error))
        named = missing and [name for name, value in parts if needs_module(value, missing[1])]
        if not missing or not named:
            raise
        plain = ModuleNotFoundError(missing[0], name=missing[1])
        note = f"daskgrad: {named[0]} cannot be read there: {note_of_module(plain)}"
        if isinstance(error, ModuleNotFoundError):
            error.add_note(note)
            raise
        plain.add_note(note)
        raise plain from error


def needs_module(value: Any, module: str) -> bool:
    try:
        return module.encode() in cloudpickle.dumps(value)
    except Exception:  # it is not sent either
        return False


def reason_against_pickling(value: Any) -> Exception | None:
    try:
        cloudpickle.dumps(value)
    except Exception as error:
        return error
    return None


def sealed_unless_plain(value: Any) -> Any:
    return value if is_plain(value) else Sent.of(value, seal_as_models)


def seal_as_models(value: Any) -> Sealed:
    return seal(value, AutogradPickler)


def is_plain(value: Any) -> bool:
    """Whether Dask's own pickles will do: arrays, numbers, lists of these, daskgrad's objects."""
    kind = type(value)
    if kind in PLAIN or kind is Model:
        return True
    if kind is np.ndarray:
        return not value.dtype.hasobject
    is_own = kind.__module__.startswith("daskgrad.")
    if kind in (list, tuple) or (is_own and isinstance(value, tuple)):
        return PLAIN.issuperset(map(type, value)) or all(map(is_plain, value))
    if kind is dict:
        return all(map(is_plain, value)) and all(map(is_plain, value.values()))
    return is_own or isinstance(value, np.generic)
