"""Sending: seals the arguments of tasks for other processes, and names the ones that cannot go.

Dask's scheduler loads a graph, and Dask's pickles lose the layout of arrays and the rules of a
script's functions. So the user's objects are sealed, and pickled as models are. Dask's errors of
failed pickles, and of workers that lack a module, name neither task nor model.
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
    """TypeError that names the first (name, value) among the parts that cannot be pickled.

    The parts are looked at after a failure alone. If all of them can be pickled, as where a model
    raised the error, it is raised as it is.
    """
    try:
        yield
    except (TypeError, pickle.PicklingError):
        for name, value in parts:
            pickled = pickled_or_error(value)
            if isinstance(pickled, Exception):
                message = f"{name} cannot be sent to another process: {pickled}; {ADVICE}"
                raise TypeError(message) from pickled
        raise


@contextlib.contextmanager
def named_if_unreadable(parts: Iterable[tuple[str, Any]]) -> Iterator[None]:
    """A ModuleNotFoundError names the first (name, value) whose class is in the module.

    A model's own error has notes. Dask keeps only the text of an error that is raised where items
    are placed.
    """
    try:
        yield
    except Exception as error:
        missing = None if hasattr(error, "__notes__") else MISSING.search(str(error))
        name = missing and next((n for n, value in parts if needs(value, missing[1])), None)
        if not missing or name is None:
            raise
        plain = ModuleNotFoundError(missing[0], name=missing[1])
        note = f"daskgrad: {name} cannot be read there: {note_of_module(plain)}"
        if isinstance(error, ModuleNotFoundError):
            error.add_note(note)
            raise
        plain.add_note(note)
        raise plain from error


def needs(value: Any, module: str) -> bool:
    pickled = pickled_or_error(value)
    return isinstance(pickled, bytes) and module.encode() in pickled


def pickled_or_error(value: Any) -> bytes | Exception:
    try:
        return cloudpickle.dumps(value)
    except Exception as error:
        return error


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
