"""Operands: the plain arrays that a trace keeps, as they were when a call used them.

A pullback may read an operand long after the call, and the model may have filled the array again.
So a trace keeps copies of plain arrays into which somebody can write; the uses of an array that has
not changed share one. Arguments of the model are read-only for it, and are not copied.

To copy a large array may take longer than to multiply by it. If one name holds it and no view shows
it, as Python's reference counts tell, it is locked instead: it is read-only until its last trace
ends, and NumPy refuses the write.
"""

import copy
import sys
import types
from collections.abc import Callable, Collection
from typing import Any

import autograd.numpy as anp
import numpy as np
from autograd.core import VJPNode
from autograd.tracer import isbox
from numpy import float64, ndarray

from daskgrad.autodiff.tape.boxes import (
    LIBRARIES,
    TRACERS,
    live,
    package_of,
    place_here,
    trace_numbers,
)
from daskgrad.autodiff.tape.traced_call import TracedCall
from daskgrad.autodiff.values.locks import Lock, is_locked
from daskgrad.autodiff.values.pickling import address, copy_of

FIXED = {float64, float, int, bool, str, complex, type(None), type(...), type, np.dtype, np.ufunc}
WITHOUT = {anp.add, anp.subtract, anp.negative}  # their rules look at shapes alone
BY_ENTRIES = {anp.multiply, anp.true_divide, anp.where, anp.maximum, anp.minimum}


class Operands:
    """The operands of one trace; ``fun`` is the function that is traced."""

    __slots__ = ("_arguments", "_fun", "_kept", "_room", "locks")

    small = 2**10  # bytes of an array that always is copied: to find a copy would take longer
    large = 2**16  # bytes: a larger array may be locked
    room = 2**20  # bytes of copies before a use looks for the copy of an earlier one

    def __init__(self, fun: Any = None):
        self._fun = fun
        self._arguments: Collection[int] | None = None
        self._kept: dict[Any, tuple[ndarray, Any, ndarray]] = {}  # arrays, entries, copies
        self._room = self.room
        self.locks: list[Lock] = []

    def taken(self, fun: Any, args: tuple, traced: Collection[int] = ()) -> tuple:
        """The arguments of a call as they are now; those at the places ``traced`` are in boxes."""
        has_gaps = fun not in BY_ENTRIES
        return tuple(
            [
                arg if type(arg) in FIXED or place in traced else self.of(arg, has_gaps)
                for place, arg in enumerate(args)
            ]
        )

    def of(self, thing: Any, has_gaps: bool = True) -> Any:
        """An array, or all arrays in a container or a sparse matrix, as they are now.

        ``has_gaps``: also between entries in memory, at which BLAS and sums look."""
        kind = type(thing)
        if kind is ndarray:
            return self._array(thing, has_gaps)
        if kind in FIXED or kind is slice or isbox(thing):
            return thing
        if kind is list or kind is tuple:
            return kind([self.of(part) for part in thing])
        if kind is dict:
            return {name: self.of(part) for name, part in thing.items()}
        if isinstance(thing, ndarray | bytearray):
            return thing.copy()
        return self._matrix(thing) if hasattr(kind, "tocsr") else thing

    def _array(self, array: ndarray, has_gaps: bool) -> ndarray:
        if not array.flags.writeable and self._is_fixed(array):
            return array
        nbytes = array.nbytes
        if nbytes > self.large and array.base is None:
            holders = self._holders(array)
            if holders == 1:
                self.locks.append(Lock([array], place_here()))
            if holders in (0, 1):
                return array
        if nbytes < self.small or nbytes <= self._room or array.dtype.hasobject:
            self._room -= nbytes
            return copy_of(array) if has_gaps else array.copy(order="K")
        key = address(array), array.shape, array.strides, array.dtype
        known = self._kept.get(key)
        if known is None or known[1] != array.tobytes("A"):
            known = self._kept[key] = kept_copy(array)
        return known[2]

    def _is_fixed(self, array: ndarray) -> bool:
        """Whether nobody can write into a read-only array: it is the model's argument, or all that
        it shows is read-only."""
        known = self._kept.get(id(array))
        if known is not None and known[0] is array:
            return True
        if array.base is None:
            if is_locked(array):  # by somebody who may end before this trace
                self.locks.append(Lock([array], place_here()))
            return True
        owner = owner_of(array)
        if is_open(owner) and id(owner) not in self._owners():
            return False
        self._kept[id(array)] = array, None, array  # which nobody else gets the place of
        return True

    def _holders(self, array: ndarray) -> int | None:
        """How many names, containers and views hold an array beside the call that is made; None if
        that is not known, or if the code may write in ways that no lock stops."""
        if not _references:
            learn()
        expected = _references.get(path_of_call(1))
        if expected is None:
            return None
        return sys.getrefcount(array) - expected - len(_noted.get(id(array), ()))

    def _matrix(self, matrix: Any) -> Any:
        """A sparse matrix of SciPy's."""
        data = getattr(matrix, "data", None)
        if not isinstance(data, ndarray) or data.dtype.hasobject:
            return matrix.copy()
        other = copy.copy(matrix)
        for name, part in vars(matrix).items():
            if type(part) in (ndarray, tuple):
                setattr(other, name, self.of(part))
        return other

    def _owners(self) -> Collection[int]:
        """The identities of the arrays that the model's arguments show."""
        if self._arguments is None:
            arrays = self._fun.arrays() if isinstance(self._fun, TracedCall) else []
            self._arguments = {id(owner_of(array)) for array in arrays}
        return self._arguments

    def explain(self, error: BaseException) -> None:
        """Adds a note to the error of a write into an array that is locked."""
        if self.locks and is_write(error):
            places = [lock.place for lock in self.locks if lock.place is not None]
            lines = dict.fromkeys([f"{file}:{line}" for file, line in places])
            error.add_note(
                f"daskgrad: large arrays with which a traced value was computed are read-only "
                f"until the pullback has run, since it needs their entries: the model may have "
                f"written into one that it used in {', '.join(lines)}; write into a new array: "
                f"buffer = buffer.copy(), or np.full(...) in place of buffer[:] = ..."
            )


SIGNS = (  # of a write into a read-only array, in messages of NumPy, Python and Cython
    *("destination is read-only", "array is read-only", "COPY base is read-only"),
    *("flag set is read-only", "swapped is read-only", "read-only memory", "readonly arrays"),
    *("buffer is not writable", "contiguous, writable", "must be read-write"),
    *("output array is not acceptable", "does not own its data"),
)


def is_write(error: BaseException) -> bool:
    """Whether an error may come from writing into a read-only array."""
    is_kind = isinstance(error, ValueError | TypeError | BufferError)
    return is_kind and any([sign in str(error) for sign in SIGNS])


def owner_of(array: Any) -> Any:
    """The object with the memory of an array, behind its views and those of ``as_strided``."""
    while getattr(array, "base", None) is not None:
        array = array.base
    return array


def is_open(owner: Any) -> bool:
    """Whether somebody can write into memory, or could before it was locked."""
    if isinstance(owner, ndarray):
        return owner.flags.writeable or is_locked(owner)
    return isinstance(owner, bytearray)


def kept_copy(array: ndarray) -> tuple[ndarray, bytes, ndarray]:
    """An array, its entries, and a copy that nobody changes."""
    entries = array.tobytes("A")
    if array.flags.forc:
        return array, entries, np.ndarray(array.shape, array.dtype, entries, 0, array.strides)
    taken = copy_of(array)
    taken.flags.writeable = False
    return array, entries, taken


class Copies(Operands):
    """The operands of a trace of autograd's, or of a recording: no array is locked."""

    __slots__ = ()

    small, large, room = 0, float("inf"), -1  # type: ignore[assignment]


def take_copies(
    node: Any, value: Any, fun: Any, args: tuple, kwargs: dict, argnums: tuple, parents: tuple
) -> None:
    """The constructor of autograd's own nodes, of a derivative that a model takes."""
    operands = Copies()
    args = tuple(
        [
            arg if n in argnums or is_read_only(arg) else operands.of(arg)
            for n, arg in enumerate(args)
        ]
    )
    enter_node(node, value, fun, args, operands.of(kwargs), argnums, parents)


def is_read_only(arg: Any) -> bool:
    return type(arg) in FIXED or (type(arg) is ndarray and not arg.flags.writeable)


enter_node = VJPNode.__init__
VJPNode.__init__ = take_copies


# -------------------------------------------------------------------------------------------------
# References: how many of them a call holds to its operand, by the way from the model to the node.

UNSTOPPED = {"at", "ctypes", "overwrite_a", "overwrite_b"}  # writes that no lock stops
_references: dict[Any, int] = {}
_noted: dict[int, list[None]] = {}  # a token for each reference to an array, by its id
MAKERS: list[Callable[[int], Any]] = []  # which make a box of a trace, for each mode


def note_references(key: int, count: int) -> list[None]:
    """Notes that nobody writes by so many of the references to the array with this id.

    Lists of tokens need no lock, which a finalizer could meet; a token too few makes a copy."""
    tokens = _noted.setdefault(key, [])
    tokens.extend([None] * count)
    return tokens


def forget_references(key: int, count: int, tokens: list[None]) -> None:
    """Takes back a note, before the references end."""
    del tokens[:count]
    if not tokens:
        _noted.pop(key, None)


def path_of_call(depth: int) -> Any:
    """The functions of libraries between a model and the function so far up; None if the model's
    code has names of writes that no lock stops."""
    codes = []
    frame: Any = sys._getframe(depth + 1)
    while frame is not None and package_of(frame) in (*TRACERS, *LIBRARIES):
        codes.append(frame.f_code)
        frame = frame.f_back
    while frame is not None and package_of(frame) not in TRACERS:
        code = frame.f_code
        if not UNSTOPPED.isdisjoint((*code.co_names, *names_in(code.co_consts))):
            return None
        frame = frame.f_back
    return tuple(codes)


def names_in(constants: tuple) -> list[Any]:
    """The names of keywords in calls."""
    return [name for names in constants if type(names) is tuple for name in names]


class Counting(Operands):
    """The operands of a call whose operand one local name holds."""

    __slots__ = ()

    large = 0

    def _holders(self, array: ndarray) -> int | None:
        path, count = path_of_call(1), sys.getrefcount(array) - 1
        _references[path] = min(count, _references.get(path, count))
        return 0


def learn() -> None:
    """Counts the references of usual calls."""
    names = {"__name__": "calls", "np": np, "anp": anp}
    calls = [types.FunctionType(call.__code__, names) for call in CALLS]
    for make_box in MAKERS:
        number = trace_numbers.next_number()
        live[number] = Counting()
        try:
            for call in calls:
                call(make_box(number), np.ones(Operands.small))
        finally:
            del live[number]


CALLS: list[Callable] = [
    lambda box, array: array * box,
    lambda box, array: box * array,
    lambda box, array: box / array,
    lambda box, array: array @ box,
    lambda box, array: box @ array,
    lambda box, array: np.multiply(array, box),
    lambda box, array: np.multiply(box, array),
    lambda box, array: np.dot(array, box),
    lambda box, array: np.dot(box, array),
    lambda box, array: anp.dot(array, box),
    lambda box, array: anp.multiply(box, array),
]
