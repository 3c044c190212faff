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
import threading
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
from daskgrad.autodiff.values.pickling import address, copy_of

FIXED = {float64, float, int, bool, str, complex, type(None), type(...), type, np.dtype, np.ufunc}
WITHOUT = {anp.add, anp.subtract, anp.negative}  # their rules look at shapes alone


class Operands:
    """The operands of one trace; ``fun`` is the function that is traced."""

    __slots__ = ("_arguments", "_fun", "_kept", "_locked")

    small = 2**10  # bytes: such an array is copied sooner than compared with its latest copy
    large = 2**16  # bytes: a larger array may be locked

    def __init__(self, fun: Any = None):
        self._fun = fun
        self._arguments: Collection[int] | None = None
        self._kept: dict[Any, tuple[ndarray, Any, ndarray]] = {}  # arrays, entries, copies
        self._locked: list[tuple[ndarray, Any]] = []

    @property
    def are_locked(self) -> bool:
        return bool(self._locked)

    def taken(self, args: tuple, traced: Collection[int] = ()) -> tuple:
        """The arguments of a call as they are now; those at the places ``traced`` are in boxes."""
        return tuple(
            [
                arg if type(arg) in FIXED or place in traced else self.of(arg)
                for place, arg in enumerate(args)
            ]
        )

    def of(self, thing: Any) -> Any:
        """An array, or all arrays in a container or a sparse matrix, as they are now."""
        kind = type(thing)
        if kind is ndarray:
            return self._array(thing)
        if kind in FIXED or kind is slice or isbox(thing):
            return thing
        if kind is list or kind is tuple:
            return kind([self.of(part) for part in thing])
        if kind is dict:
            return {name: self.of(part) for name, part in thing.items()}
        if isinstance(thing, ndarray | bytearray):
            return thing.copy()
        return self._matrix(thing) if hasattr(kind, "tocsr") else thing

    def _array(self, array: ndarray) -> ndarray:
        base = array.base
        key: Any = id(array)
        known = self._kept.get(key)
        if known is not None and known[0] is array:
            if known[2] is array or is_same(known, array):
                return known[2]
        elif not array.flags.writeable:
            if base is None:
                if key in _locks:  # by a trace that may end before this one
                    self._lock(array)
                return array
            owner = owner_of(array)
            if not is_open(owner) or id(owner) in self._owners():
                self._kept[key] = array, None, array
                return array
        nbytes = array.nbytes
        if nbytes < self.small or array.dtype.hasobject:
            return copy_of(array)
        if base is not None:
            key = address(array), array.shape, array.strides, array.dtype
            known = self._kept.get(key)
            if known is not None and is_same(known, array):
                return known[2]
        elif nbytes > self.large:
            holders = self._holders(array)
            if holders == 1:
                self._lock(array)
            if holders in (0, 1):
                return array
        self._kept[key] = known = kept_copy(array)
        return known[2]

    def _holders(self, array: ndarray) -> int | None:
        """How many names, containers and views hold an array beside the call that is made; None if
        that is not known, or if the code may write in ways that no lock stops."""
        if not _references:
            learn()
        expected = _references.get(path_of_call(1))
        return None if expected is None else sys.getrefcount(array) - expected

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

    # ---------------------------------------------------------------------------------- locks

    def _lock(self, array: ndarray) -> None:
        with _locking:
            count = _locks[id(array)][1] if id(array) in _locks else 0
            _locks[id(array)] = array, count + 1
            self._locked.append((array, place_here()))
            array.flags.writeable = False

    def release(self) -> None:
        """Unlocks the arrays that no other trace needs."""
        while self._locked:
            array, _ = self._locked.pop()
            with _locking:
                _, count = _locks.pop(id(array))
                if count > 1:
                    _locks[id(array)] = array, count - 1
                else:
                    array.flags.writeable = True

    __del__ = release

    def explain(self, error: BaseException) -> None:
        """Adds a note to the error of a write into an array that is locked."""
        if self._locked and is_write(error):
            lines = [f"{place[0]}:{place[1]}" for _, place in self._locked if place is not None]
            error.add_note(
                f"daskgrad: large arrays with which a traced value was computed are read-only "
                f"until the pullback has run, since it needs their entries: the model may have "
                f"written into one that it used in {', '.join(dict.fromkeys(lines))}; write into a "
                f"new array: buffer = buffer.copy(), or np.full(...) in place of buffer[:] = ..."
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


_locks: dict[int, tuple[ndarray, int]] = {}  # arrays, and the number of their locks
_locking = threading.RLock()  # Python may free a trace anywhere


def owner_of(array: Any) -> Any:
    """The object with the memory of an array, behind its views and those of ``as_strided``."""
    while getattr(array, "base", None) is not None:
        array = array.base
    return array


def is_open(owner: Any) -> bool:
    """Whether somebody can write into memory, or could before it was locked."""
    if isinstance(owner, ndarray):
        return owner.flags.writeable or id(owner) in _locks
    return isinstance(owner, bytearray)


def kept_copy(array: ndarray) -> tuple[ndarray, Any, ndarray]:
    """An array, its entries if they lie side by side, and a copy that nobody changes."""
    if array.flags.forc:
        entries = array.tobytes("A")
        return array, entries, np.ndarray(array.shape, array.dtype, entries, 0, array.strides)
    taken = copy_of(array)
    taken.flags.writeable = False
    return array, None, taken


def is_same(known: tuple[ndarray, Any, ndarray], array: ndarray) -> bool:
    """Whether an array is still as it was copied."""
    _, entries, taken = known
    if entries is None:
        entries = taken.tobytes("A")
    is_alike = array.shape == taken.shape and array.strides == taken.strides
    return is_alike and array.dtype is taken.dtype and array.tobytes("A") == entries


class Copies(Operands):
    """The operands of a trace of autograd's, or of a recording: no array is locked."""

    __slots__ = ()

    small, large = 0, float("inf")  # type: ignore[assignment]


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
MAKERS: list[Callable[[int], Any]] = []  # which make a box of a trace, for each mode


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


class Probe(Operands):
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
        live[number] = Probe()
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
