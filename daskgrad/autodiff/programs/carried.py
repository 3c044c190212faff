"""Carried: arguments that a model passes on and does not read, which are no part of a signature.

While a call is recorded, an object that answers nothing stands for each of them. Python's operators
and methods end in it, and it takes down that they did. Code in C may ask for the type alone, and
then raises an exception that the model may catch: so any exception counts as a read, too. ``is``,
``id``, ``type``, ``callable`` and methods by their double underscores tell neither; ``purity``
refuses them, and then all arguments count as read (``store.Programs.known_entry``).
"""

import gc
import sys
import types
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any, TypeVar

import numpy as np

from daskgrad.autodiff.programs.boxes import Unrecordable
from daskgrad.autodiff.programs.purity import ONLY_ONE, is_of_library
from daskgrad.autodiff.tape.boxes import AnsweringType, package_of

Result = TypeVar("Result")

CARRIED = "carried"
TEXT = (str, bytes, np.str_, np.bytes_)
IN_PATTERNS = 0x60  # flags of classes that patterns of sequences and mappings match
PACKAGES = {"daskgrad", "autograd"}
# of exceptions that code in C raises after it has called a method of the object, if it is to blame
AFTER_METHODS = (Unrecordable, AttributeError, LookupError, StopIteration, GeneratorExit)
DEEPEST = 4  # lists in lists
OF_NUMBERS = (float, complex, np.number, np.bool_, np.dtype)
APART = {type(None), bool, int, str, bytes, type, np.ufunc, types.ModuleType}
METHODS = """
    eq ne lt le gt ge hash bool len length_hint iter next reversed contains getitem setitem delitem
    add sub mul matmul truediv floordiv mod divmod pow lshift rshift and or xor
    radd rsub rmul rmatmul rtruediv rfloordiv rmod rdivmod rpow rlshift rrshift rand ror rxor
    neg pos abs invert int float complex index round trunc floor ceil
    str repr format bytes fspath buffer dir sizeof reduce reduce_ex setattr delattr
    enter exit await aiter anext array array_ufunc array_function
"""


class Read(Unrecordable):
    """A model reads arguments, at these places."""

    def __init__(self, places: Sequence[int]):
        super().__init__("the model reads an argument that is neither number nor array")
        self.places = tuple(places)


@lru_cache(1024)
def may_carry(kind: Any) -> bool:
    """Whether no code can ask an object of a class anything but by its methods; calls count as
    reads, and functions and the package's own objects are no such arguments."""
    return kind in TEXT or not (
        kind in ONLY_ONE
        or kind.__flags__ & IN_PATTERNS
        or type(kind) is AnsweringType
        or kind.__module__.split(".")[0] in PACKAGES
        or any(["__call__" in vars(base) for base in kind.__mro__])
    )


class Carried(metaclass=AnsweringType):
    """Stands for an argument; ``note`` takes down that it is read, and returns an exception. The
    package may ask for the ``kind``, which is a part of the signature."""

    __slots__ = ("kind", "note")

    def __init__(self, kind: type, note: Callable[[], Exception]):
        KIND.__set__(self, kind)
        NOTE.__set__(self, note)

    def __getattribute__(self, name: str) -> Any:
        frame: Any = sys._getframe(1)
        if name == "__class__" and package_of(frame) == "abc":  # on behalf of others
            frame = frame.f_back
        if name == "__class__" and package_of(frame) == "daskgrad":
            return KIND.__get__(self)
        raise NOTE.__get__(self)()


KIND: Any = vars(Carried)["kind"]
NOTE: Any = vars(Carried)["note"]


def read(self: Carried, *_: Any, **__: Any) -> Any:
    raise NOTE.__get__(self)()


for name in METHODS.split():
    setattr(Carried, f"__{name}__", read)


class Reads:
    """Takes down which arguments, of some kinds at some places, a run reads; ``objects`` stand for
    them."""

    def __init__(self, kinds: dict[int, type]):
        self.places = list(kinds)
        self.objects = [
            Carried(kind, partial(self._note, [place])) for place, kind in kinds.items()
        ]
        self._read: Sequence[int] = ()  # the first time

    def _note(self, places: Sequence[int]) -> Read:
        self._read = self._read or places
        return Read(places)

    def of(self, run: Callable[[], Result]) -> Result:
        """The result of a run.

        Raises
        ------
        Read
            if it reads an argument, or something keeps one, which may read it later.
        """
        if not self.places:
            return run()
        if sys.gettrace() is not None:  # a debugger's, and exceptions are not seen
            raise Read(self.places)
        sys.settrace(self._trace)
        try:
            result = run()
        except Exception as error:
            if self._read:
                raise Read(self._read) from error
            raise
        finally:
            sys.settrace(None)
        if not self._read and self._kept():
            gc.collect(1)  # functions that call themselves hold what they refer to
        if self._read or self._kept():
            raise Read(self._read or self._kept())
        return result

    def _kept(self) -> list[int]:
        counts = map(sys.getrefcount, self.objects)
        return [place for place, count in zip(self.places, counts, strict=True) if count > ALONE]

    def _trace(self, frame: types.FrameType, event: str, argument: Any) -> Any:
        """Python calls this where functions are called and where exceptions pass."""
        if event == "exception" and not issubclass(argument[0], AFTER_METHODS):
            if not (is_of_library(frame.f_globals.get("__name__")) and is_apart(frame.f_locals)):
                self._note(self.places)
        frame.f_trace_lines = False
        return self._trace


def is_apart(thing: Any, depth: int = 0) -> bool:
    """Whether no carried object is within a thing, nor comes out of a call of it; libraries try
    arguments of their own, and catch the errors."""
    kind: Any = type(thing)
    if kind is Carried:
        return False
    if kind is np.ndarray:
        thing = thing.ravel().tolist() if thing.dtype.hasobject else None
    if type(thing) in (list, tuple, dict):
        parts = [*thing, *thing.values()] if kind is dict else thing
        return depth < DEEPEST and all([is_apart(part, depth + 1) for part in parts])
    if kind is types.FunctionType:
        return is_of_library(thing.__module__) and not thing.__closure__ and not thing.__defaults__
    is_box = type(kind) is AnsweringType
    return is_box or isinstance(thing, OF_NUMBERS) or type(thing) in APART


(ALONE,) = map(sys.getrefcount, [object()])
