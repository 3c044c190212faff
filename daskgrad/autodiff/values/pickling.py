"""Pickling: arrays, classes and functions as bytes; arrays keep their layout, results their bits.

NumPy pickles an array that is neither in C nor in Fortran order as a copy in C order, and sums and
products of the copy may differ in the last bits. Here a view is pickled as its place in the memory
of the array that it shows, which is pickled once for all its views. If that is much larger, the
view is pickled by its entries, which arrive in their order of memory, with their gaps.
"""

import functools
import hashlib
import io
import sys
import types
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import cloudpickle
import cloudpickle.cloudpickle as private
import numpy as np
from numpy.lib.stride_tricks import as_strided

from daskgrad.autodiff.values.carriers import drop_oldest
from daskgrad.autodiff.values.memory import OWN_DTYPES, own_dtype
from daskgrad.autodiff.values.trees import codes_in, held_by, is_named

LINE = 16  # bytes: gaps are as narrow as the alignment of entries allows


def reduce_array(array: np.ndarray, most: float, kept: dict[Any, np.ndarray]) -> Any:
    """The result of a pickler's ``reducer_override`` for an array.

    ``most``: a view goes by the memory that it shows if that is at most so many times its size.
    ``kept``: the other arrays of a pickle by which views go.
    """
    kind = type(array)
    if kind is not np.ndarray:
        if array.flags.forc or kind.__reduce__ is not np.ndarray.__reduce__:
            return NotImplemented  # a derived class's own pickling
        return np.ndarray.view, (array.view(np.ndarray), kind)
    if array.dtype.hasobject and (array.flags.forc or array.dtype != object):
        return NotImplemented
    owner, strides = owner_of(array), narrowed_strides(array)
    is_close = strides is None or owner.nbytes <= most * array.nbytes
    if owner is not array and is_close and keeps_strides(owner):
        return show(owner, array, address(array) - address(owner), array.strides)
    if strides is None:
        return NotImplemented if array.dtype.hasobject else overlapping(array)
    if owner is not array and not array.dtype.hasobject:
        first = in_order(array)
        place = (address(first), first.shape, first.strides, array.dtype, array.flags.writeable)
        first = kept.setdefault(place, first)
        if first is not array:
            return show(first, array, before_first(array.shape, strides), strides)
    return NotImplemented if array.flags.forc else with_gaps(array, strides)


def show(owner: np.ndarray, array: np.ndarray, start: int, strides: tuple) -> Any:
    """An array as a view of another one, from ``start`` bytes after that one's first entry."""
    return show_memory, (owner, start, array.shape, strides, array.dtype, array.flags.writeable)


def before_first(shape: Sequence[int], strides: Sequence[int]) -> int:
    """The bytes between the lowest entry of an array and its first."""
    return sum([-step * (n - 1) for n, step in zip(shape, strides, strict=True) if step < 0])


def in_order(array: np.ndarray) -> np.ndarray:
    """The array of the same entries with positive, descending strides: an array and its transpose
    share it."""
    steps = array.strides
    axes = sorted(range(array.ndim), key=lambda axis: -abs(steps[axis]))
    if min(steps, default=0) >= 0 and axes == list(range(array.ndim)):
        return array
    forward = array[tuple([slice(None, None, -1 if step < 0 else 1) for step in steps])]
    return forward.transpose(axes)


def keeps_strides(owner: np.ndarray) -> bool:
    """Whether an array arrives with the same strides, so that its views can be shown."""
    if owner.dtype.hasobject:
        return False
    return owner.flags.forc or (min(owner.strides) > 0 and narrowed_strides(owner) == owner.strides)


def overlapping(array: np.ndarray) -> Any:
    """An array by the memory between its first and its last entry."""
    forward = in_order(array)
    steps = zip(forward.shape, forward.strides, strict=True)
    nbytes = array.itemsize + sum([step * (length - 1) for length, step in steps])
    first = as_strided(forward, (1,), (array.itemsize,)).view(np.uint8)
    memory = as_strided(first, (nbytes,), (1,)).copy()
    return show(memory, array, before_first(array.shape, array.strides), array.strides)


def with_gaps(array: np.ndarray, strides: tuple[int, ...]) -> Any:
    """An array by its entries, each once, and its future strides."""
    lengths = [1 if not step else n for n, step in zip(array.shape, strides, strict=True)]
    entries = np.ascontiguousarray(array[tuple(map(slice, lengths))]).reshape(lengths)
    before = before_first(array.shape, strides)
    after = before_first(array.shape, [-step for step in strides])
    start = address(array) % LINE + -(-before // LINE) * LINE
    nbytes = start + after + array.itemsize
    return load_with_gaps, (entries, start, array.shape, strides, nbytes, array.flags.writeable)


def copy_of(array: np.ndarray) -> np.ndarray:
    """A copy with memory of its own, in the same order and with gaps where the array has some."""
    if array.flags.forc or array.dtype.hasobject:
        return array.copy(order="K")
    strides = narrowed_strides(array)
    make, parts = overlapping(array) if strides is None else with_gaps(array, strides)
    return make(*parts)


def narrowed_strides(array: np.ndarray) -> tuple[int, ...] | None:
    """Narrower strides of the same signs and order; axes that follow each other in memory still do,
    and others do not. Interleaved axes keep their strides. ``None`` if entries overlap."""
    strides = list(array.strides)
    end = narrowed_end = array.itemsize  # of the axes before, and where they end with new strides
    last = 0  # entry of these
    for axis in sorted(range(array.ndim), key=lambda axis: abs(array.strides[axis])):
        step, length = abs(array.strides[axis]), array.shape[axis]
        if not step or length == 1:
            continue
        if step < end:
            return None if step < last + array.itemsize else array.strides
        narrow = narrowed_end
        if step != end:
            narrow += 1 + (step - narrowed_end - 1) % LINE
        strides[axis] = narrow if array.strides[axis] > 0 else -narrow
        end, narrowed_end, last = step * length, narrow * length, last + step * (length - 1)
    return tuple(strides)


def load_with_gaps(
    entries: np.ndarray, start: int, shape: tuple, strides: tuple, nbytes: int, is_writeable: bool
) -> np.ndarray:
    if entries.dtype.hasobject:
        memory = np.empty(nbytes // entries.itemsize + 1, entries.dtype)[start // 8 :]
        array = as_strided(memory, shape, strides)
        as_strided(memory, entries.shape, strides)[...] = entries
    else:
        memory = np.zeros(nbytes, np.uint8)
        np.ndarray(entries.shape, entries.dtype, memory, start, strides)[...] = entries
        array = np.ndarray(shape, entries.dtype, memory, start, strides)
    array.flags.writeable = is_writeable
    return array


def show_memory(
    owner: np.ndarray, start: int, shape: tuple, strides: tuple, dtype: Any, is_writeable: bool
) -> np.ndarray:
    """An array on the memory of another one, from ``start`` bytes on."""
    memory = owner_of(owner).reshape(-1, order="A").view(np.uint8)
    start += address(owner) - address(memory)
    array = np.ndarray(shape, dtype, memory, start, strides)
    array.flags.writeable &= is_writeable
    return array


def reduce_dtype(dtype: np.dtype) -> Any:
    """As ``reduce_array``, for a dtype: one that equals NumPy's own arrives as NumPy's own."""
    numpys = own_dtype(dtype)
    is_numpys = numpys is OWN_DTYPES.get(numpys.char)
    return (np.dtype, (numpys.str,)) if is_numpys else NotImplemented


def owner_of(array: np.ndarray) -> np.ndarray:
    """The array that owns an array's memory; the array itself if none does."""
    while type(array.base) is np.ndarray:
        array = array.base
    return array


def address(array: np.ndarray) -> int:
    return array.__array_interface__["data"][0]


# -------------------------------------------------------------------------------------------------
# Classes: a pickle that comes back leaves the classes of this process as they are.
#
# cloudpickle sends a script's class by value, and if a process has it already, sets its attributes
# to the arriving ones. In the client's process the methods would become copies, with globals that
# are copies, too, and programs that watch them would be lost. Dask's scheduler, which loads graphs,
# is often in this process, and results come back to it.

_own: weakref.WeakSet = weakref.WeakSet()  # classes that this process was the first to send


def install() -> None:
    """Has cloudpickle leave these classes alone; works once, however often it is called."""
    if hasattr(private._class_setstate, "__wrapped__"):
        return
    track, set_state = private._get_or_create_tracker_id, private._class_setstate

    @functools.wraps(track)
    def track_own(kind: type) -> str:
        if kind not in private._DYNAMIC_CLASS_TRACKER_BY_CLASS:
            _own.add(kind)
        return track(kind)

    @functools.wraps(set_state)
    def set_state_of_others(kind: type, state: Any) -> type:
        return kind if kind in _own else set_state(kind, state)

    private._get_or_create_tracker_id = track_own
    private._class_setstate = set_state_of_others


# -------------------------------------------------------------------------------------------------
# The pickler: cloudpickle, which keeps the layout of arrays, and leaves the client's classes alone.

install()


class Pickler(cloudpickle.Pickler):
    """cloudpickle, for arrays with their layout and NumPy's own dtypes.

    ``most``: a view goes by the memory that it shows if that is at most so many times its size.
    """

    most = 2.0

    def __init__(self, *args: Any, **options: Any):
        super().__init__(*args, **options)
        self._kept: dict[Any, np.ndarray] = {}

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, np.ndarray):
            return reduce_array(obj, self.most, self._kept)
        if isinstance(obj, np.dtype):
            return reduce_dtype(obj)
        return super().reducer_override(obj)


# -------------------------------------------------------------------------------------------------
# Functions as bytes: pickles functions, and reuses a pickle if the function has not changed.
#
# A model's function is sent with every evaluation, since the objects that it refers to may have
# changed; pickling a script's function takes longer than a small gradient. But most functions refer
# only to objects that cannot change in place: modules, numbers, and functions like themselves.
# These references are compared by identity, which takes some microseconds.

PLAIN = (bool, int, float, complex, str, bytes, type(None))
FIXED = (types.ModuleType, types.BuiltinFunctionType, *PLAIN)

FunctionParts = list[Any]

MOST_KEPT = 128  # pickles of functions


class Pickles:
    """Pickles functions, again only if a function may have changed since."""

    def __init__(self, pickler: type[Pickler] = Pickler):
        self._pickler = pickler
        self._kept: dict[types.CodeType, tuple[FunctionParts, bytes]] = {}

    def __reduce__(self) -> tuple:  # a backend of a user's own may bring ``dumps`` along
        return Pickles, (self._pickler,)

    def dumps(self, fun: Callable) -> bytes:
        parts = parts_of(fun)
        if parts is None:
            return self._pickle(fun)
        code = fun.__code__
        kept = self._kept.get(code)
        if kept is None or not are_same(kept[0], parts):
            kept = self._kept[code] = parts, self._pickle(fun)
            drop_oldest(self._kept, MOST_KEPT)
        return kept[1]

    def _pickle(self, fun: Callable) -> bytes:
        buffer = io.BytesIO()
        self._pickler(buffer, protocol=5).dump(fun)
        return buffer.getvalue()


def digest(pickled: bytes) -> bytes:
    """A key of a function's pickle, different after each change of the function."""
    return hashlib.blake2b(pickled, digest_size=16).digest()


def parts_of(fun: Callable) -> FunctionParts | None:
    """All objects in a function's pickle, or None if one of them can change in place."""
    waiting, seen = [fun], {id(fun)}
    parts: FunctionParts = [len(sys.modules)]  # pickles name submodules that are imported
    while waiting:
        current = waiting.pop()
        if type(current) is not types.FunctionType or current.__dict__ or current.__kwdefaults__:
            return None
        names = [current.__name__, current.__qualname__, current.__module__, current.__doc__]
        annotations = current.__annotations__.values()
        parts += [current.__code__, current.__globals__, *names, *annotations]
        for value in references(current):
            parts.append(value)
            if isinstance(value, FIXED) or id(value) in seen:
                continue
            if isinstance(value, types.FunctionType | type) and is_named(value):
                continue  # it is sent as its name
            seen.add(id(value))
            waiting.append(value)
    return parts


def are_same(first: FunctionParts, second: FunctionParts) -> bool:
    return len(first) == len(second) and all(map(is_same, first, second))


def is_same(first: Any, second: Any) -> bool:
    return first is second or (type(first) is type(second) is int and first == second)


def references(fun: Any) -> Iterator[Any]:
    """The values of a function's defaults, its closure, and the globals that it may use."""
    yield from held_by(fun)
    for code in codes_in(fun.__code__):  # its names are of globals, and of attributes
        yield from [fun.__globals__[name] for name in code.co_names if name in fun.__globals__]
