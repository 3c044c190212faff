"""Paths: which instructions of the user's code run in a call.

Python tells each one before it runs (``sys.settrace``), in this thread alone. Nothing is known
beside a debugger or a measure of coverage, which are told in its place.
"""

import sys
import types
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from daskgrad.autodiff.programs.purity import Ran, is_lasting

MACHINERY = {*sys.stdlib_module_names, "dask", "distributed", "tlz", "toolz", "cloudpickle"}
MACHINERY |= {"optree", "threadpoolctl"}  # modules that this package calls, too
OURS, LIBRARY, SHARED, USERS = "this package", "a library", "machinery", "the user's"


class Path:
    """A context that notes the instructions of the user's code; nothing unless ``is_noted``.

    ``ran`` has their offsets, and None for all of a function's; it is None if they are unknown.
    ``called``: code that the user's code called, other than Python's own. ``impurity``: why calls
    on this path may differ, whatever its instructions are.
    """

    def __init__(self, is_noted: bool = True) -> None:
        self.ran: Ran | None = None
        self.called: set[types.CodeType] = set()
        self.impurity: str | None = None
        self.is_noted = is_noted
        self._offsets: dict[types.CodeType, set[int]] = {}
        self._notes: dict[types.CodeType, Callable] = {}
        self._unseen: set[types.CodeType] = set()

    def __enter__(self) -> "Path":
        self.is_noted = self.is_noted and sys.gettrace() is None
        if self.is_noted:
            sys._getframe().f_trace_opcodes = True  # Python 3.12 asks once whether anybody wants it
            sys.settrace(self._enter)
        return self

    def __exit__(self, *_: Any) -> None:
        if self.is_noted and sys.gettrace() == self._enter:  # else the call has set another one
            sys.settrace(None)
            self.ran = {code: offsets or None for code, offsets in self._offsets.items()}
            self.ran |= dict.fromkeys(self._unseen)

    def _enter(self, frame: types.FrameType, event: str, argument: Any) -> Callable | None:
        kind = kind_of_module(frame.f_globals.get("__name__"))
        if kind is OURS or kind is LIBRARY:
            return None
        code = frame.f_code
        if kind is SHARED:
            if not is_called_by_users(frame):
                self._unseen.add(code)
                return None
        elif frame.f_back is not None and frame.f_back.f_trace is not None:
            if not code.co_qualname.startswith("__create_fn__."):  # of a dataclass
                self.called.add(code)
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return self._notes.get(code) or self._note_for(code)

    def _note_for(self, code: types.CodeType) -> Callable:
        """A function that Python calls before each instruction of some code."""
        add = self._offsets.setdefault(code, set()).add

        def note(frame: types.FrameType, event: str, argument: Any) -> Any:
            if event == "opcode":
                add(frame.f_lasti)
            elif event == "exception" and issubclass(argument[0], AttributeError):
                self.impurity = "it raises AttributeError: nobody watches for missing attributes"
            return note

        self._notes[code] = note
        return note


@lru_cache(1024)
def kind_of_module(name: Any) -> str:
    if not isinstance(name, str):
        return USERS
    first = name.split(".")[0]
    if first == "daskgrad":
        return OURS
    if is_lasting(name) or first.startswith("namedtuple_"):
        return LIBRARY
    return SHARED if first in MACHINERY else USERS


def is_called_by_users(frame: types.FrameType) -> bool:
    """Whether a function of the user's calls this one, perhaps through libraries."""
    back = frame.f_back
    while back is not None and back.f_trace is None:
        if kind_of_module(back.f_globals.get("__name__")) is not LIBRARY:
            return False
        back = back.f_back
    return back is not None
