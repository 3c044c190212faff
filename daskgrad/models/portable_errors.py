"""Portable errors: exceptions that arrive in other processes with types, notes and causes."""

import copyreg
import pickle
import types
from collections.abc import Callable
from typing import Any

import cloudpickle

LONG = 200  # frames in a traceback: pickle can take about 300
ENDS = 30  # frames to keep at each end of a longer traceback


def shorten(error: BaseException) -> None:
    """Removes frames from the middle of a traceback that is too long to be pickled.

    Dask would send its text instead, which the client cannot load: it would wait for ever.
    """
    for each in linked(error):
        frames = traceback_of(each)
        if len(frames) > LONG:
            frames[ENDS - 1].tb_next = frames[-ENDS]
            left_out = len(frames) - 2 * ENDS
            each.add_note(f"daskgrad: {left_out} frames were removed from this long traceback")


def linked(error: BaseException) -> list[BaseException]:
    """An exception, and all others that its traceback shows."""
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
    """Makes sure that an exception arrives in another process with its type and notes.

    One whose ``__init__`` does not take ``args`` cannot be loaded, and one that holds a lock cannot
    be sent: Dask would raise another, or lose the process. Its workers need ``make_plain``, too.
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
    """An exception's arguments; those that cannot be sent as text."""
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
    """Replaces attributes that cannot be sent by their text, or a worker would send only text."""
    for each in linked(error):
        each.args = portable_args(each)
        for name, value in vars(each).items():
            if not is_portable(value):
                setattr(each, name, repr(value))
