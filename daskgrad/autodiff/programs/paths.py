"""Paths: which instructions of the user's code run in a call.

Python tells each one before it runs (``sys.settrace``), in this thread alone. Nothing is known
beside a debugger or a measure of coverage, which are told in its place.
"""

import sys
import types
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from daskgrad.autodiff.programs.purity import Ran, handlers_in, is_lasting, is_of_dataclass

MACHINERY = {*sys.stdlib_module_names, "dask", "distributed", "tlz", "toolz", "cloudpickle"}
MACHINERY |= {"optree", "threadpoolctl"}  # modules that this package calls, too
OTHERS, SHARED, USERS = "a library's", "the machinery's", "the user's"


class Path:
    """A context that notes the instructions of the user's code; nothing unless ``is_noted``.

    ``ran`` has their offsets, and None for all of a function's; it is None if they are unknown.
    ``called``: code that the user's code called, other than Python's own. ``impurity``: why calls
    on this path may differ, whatever its instructions are; ``watch``: over the function, if the
    programs' own is over an equal one.
    """

    def __init__(self, is_noted: bool = True) -> None:
        self.ran: Ran | None = None
        self.called: set[types.CodeType] = set()
        self.impurity: str | None = None
        self.watch: Any = None
        self.is_noted = is_noted
        self._offsets: dict[types.CodeType, set[int]] = {}
        self._notes: dict[types.CodeType, Callable] = {}
        self._unseen: set[types.CodeType] = set()
        self._users: set[types.CodeType] = set()

    def __enter__(self) -> "Path":
        self.is_noted = self.is_noted and sys.gettrace() is None
        if self.is_noted:
            sys._getframe().f_trace_opcodes = True  # Python 3.12 asks once whether anybody wants it
            sys.settrace(self._enter)
        return self

    def __exit__(self, *_: Any) -> None:
        if self.is_noted and sys.gettrace() == self._enter:  # else the call has set another one
            sys.settrace(None)
            for code in self._users & self._offsets.keys():  # a recorded call may raise an error
                offsets = self._offsets[code]
                offsets |= handlers_in(code, offsets)
            self.ran = {code: offsets or None for code, offsets in self._offsets.items()}
            self.ran |= dict.fromkeys([code for code in self.ran if code.co_name == "__exit__"])
            self.ran |= dict.fromkeys(self._unseen)

    def _enter(self, frame: types.FrameType, event: str, argument: Any) -> Callable | None:
        kind = kind_of_module(frame.f_globals.get("__name__"))
        if kind is OTHERS:
            return None
        code, caller = frame.f_code, frame.f_back
        is_called_by_noted = caller is not None and caller.f_trace is not None
        if kind is SHARED and not is_called_by_noted:
            self._unseen.add(code)
            return None
        if kind is USERS and is_called_by_noted and not is_of_dataclass(code):
            self.called.add(code)
        if kind is USERS:
            self._users.add(code)
        note = self._notes.get(code) or self._note_for(code)
        frame.f_trace = note  # Python 3.13 tells of opcodes only if it has this one before
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return note

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
    if is_lasting(name) or first.startswith("namedtuple_"):
        return OTHERS
    return SHARED if first in MACHINERY else USERS
