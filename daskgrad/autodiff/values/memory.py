"""Memory: arrays as NumPy makes them, in C order, aligned, with NumPy's own dtypes."""

import pickle
from collections.abc import Callable, Sequence
from sys import getrefcount
from typing import Any

import numpy as np

from daskgrad.autodiff.values.descriptions import describe
from daskgrad.autodiff.values.trees import flatten, map_leaves, unflatten

# -------------------------------------------------------------------------------------------------
# Sealed: an object as bytes, which are unpickled when the object is first used.
#
# So Dask's scheduler, which loads all graphs and sends the tasks on, need not import the object's
# modules. Loading a task or result with sealed objects runs none of the user's code and cannot
# fail: a task result that cannot be loaded would hang Dask's cluster.

ALIGNMENT = 16  # bytes: of the memory of arrays, as NumPy allocates it


class Sealed:
    """A pickle, and the memory of its arrays beside it, which is not copied."""

    __slots__ = ("buffers", "data", "loaded")

    def __init__(self, data: bytes, buffers: Sequence[Any] = ()):
        self.data = data
        self.buffers = buffers
        self.loaded: Any = None  # the object, once it was used

    def __reduce_ex__(self, protocol: Any) -> tuple:
        buffers = [out_of_band(buffer, protocol) for buffer in self.buffers]
        return Sealed, (out_of_band(self.data, protocol), buffers)

    @property
    def nbytes(self) -> int:
        return len(self.data) + sum([memoryview(buffer).nbytes for buffer in self.buffers])

    def load(self) -> Any:
        """The object."""
        if self.loaded is None:
            self.loaded = self._unpickle()
        return self.loaded

    def _unpickle(self) -> Any:
        return pickle.loads(self.data, buffers=list(map(align, self.buffers)))


class Sent(Sealed):
    """An argument of a task, which ``seal`` seals when it goes to another process."""

    __slots__ = ("seal",)
    seal: Callable[[Any], Sealed]

    @classmethod
    def of(cls, value: Any, seal: Callable[[Any], Sealed]) -> "Sent":
        sent = cls(b"")
        sent.loaded, sent.seal = value, seal
        return sent

    def __reduce_ex__(self, protocol: Any) -> tuple:
        sealed = self if self.data else self.seal(self.loaded)
        return Sent, Sealed.__reduce_ex__(sealed, protocol)[1]

    def __sizeof__(self) -> int:
        return object.__sizeof__(self) + self.nbytes


def out_of_band(buffer: Any, protocol: int) -> Any:
    """Bytes for a pickle that are not copied, and not read in searches of the pickle."""
    if protocol >= 5:
        return pickle.PickleBuffer(buffer)
    view = memoryview(buffer)
    return view.tobytes() if view.readonly else bytearray(view)


def align(buffer: Any) -> Any:
    """A buffer that is aligned for an array; a buffer in a message may start at any byte."""
    memory = np.frombuffer(buffer, np.uint8)
    if memory.ctypes.data % ALIGNMENT == 0:
        return buffer
    copy = memory.copy()
    copy.flags.writeable = not memoryview(buffer).readonly
    return copy


# ------------------------------------------------------------------------------------------ memory

OWN_DTYPES = {code: np.dtype(code) for code in "?" + np.typecodes["AllInteger"] + "efdgFDG"}


def canonical(value: Any) -> Any:
    """A pytree with its arrays aligned and in NumPy's own dtypes, unlike arrays from a message.

    An array from a message may start at any byte: NumPy adds it up in another order, and SciPy
    refuses some. Its dtype equals NumPy's, but is another object, also in arrays that are computed
    from it: ``np.add.at`` takes 25 times as long. Aligned arrays are not copied. Sealed arguments
    are opened.
    """
    leaves, structure = flatten(value)
    if all(map(is_canonical, leaves)):
        return value
    return unflatten(structure, list(map(canonical_leaf, leaves)))


def canonical_leaf(leaf: Any) -> Any:
    if type(leaf) is not np.ndarray:
        return leaf.load() if type(leaf) is Sent else leaf
    array = leaf if leaf.flags.aligned else leaf.copy(order="A")
    dtype = own_dtype(array.dtype)
    return array if dtype is array.dtype else array.view(dtype)


def is_canonical(leaf: Any) -> bool:
    if type(leaf) is not np.ndarray:
        return type(leaf) is not Sent
    dtype = leaf.dtype
    return leaf.flags.aligned and dtype is OWN_DTYPES.get(dtype.char, dtype)


def of_its_own(value: Any) -> Any:
    """A copy that the caller may write into; a pullback may hold the original arrays."""

    def own(leaf: Any) -> Any:
        return canonical_leaf(leaf).copy(order="A") if isinstance(leaf, np.ndarray) else leaf

    return map_leaves(own, value)


def owned(arrays: list[Any], place: int) -> Any:
    """An array in a list, in C order; a copy if anybody else holds it."""
    array = arrays[place]
    return array if is_owned(arrays, place) and array.flags.carray else array.copy()


def is_owned(arrays: list[Any], place: int) -> bool:
    """Whether nobody else holds an array in a list."""
    return count_references(arrays, place) == ALONE and arrays[place].base is None


def count_references(arrays: list[Any], place: int) -> int:
    array = arrays[place]
    return getrefcount(array)


ALONE = count_references([np.zeros(2)], 0)  # in this version of Python, as ``owned`` counts


def without_memory(leaf: Any) -> Any:
    """A leaf of the same shape and dtype that takes no memory."""
    if isinstance(leaf, np.ndarray):
        return np.broadcast_to(np.zeros((), leaf.dtype), leaf.shape)
    return leaf


def own_dtype(dtype: np.dtype) -> np.dtype:
    """NumPy's own object for a dtype; the dtype itself if NumPy has no equal one."""
    numpys = OWN_DTYPES.get(dtype.char, dtype)
    return numpys if numpys == dtype and dtype.metadata is None else dtype


def takes_as_arrived(fun: Callable) -> Callable:
    """Marks a task's function that makes the used parts of its arguments canonical itself.

    Otherwise the tasks of a large container's items would take the square of its size.
    """
    fun.takes_as_arrived = True  # type: ignore[attr-defined]
    return fun


def takes_as_it_arrives(fun: Callable) -> bool:
    return getattr(fun, "takes_as_arrived", False)


def row_major(leaf: Any) -> Any:
    """A leaf in C order, as it would arrive in another process; a copy if necessary.

    BLAS and sums give different bits for strided arrays than for their copies.
    """
    if isinstance(leaf, np.ndarray):
        flags = leaf.flags
        if not (flags.c_contiguous and flags.aligned):
            require_room(leaf)
            return leaf.copy(order="C")
    return leaf


def contiguous(leaf: Any, name: str = "an array") -> Any:
    """A leaf in C or Fortran order, which survives a move; a copy if necessary."""
    if isinstance(leaf, np.ndarray):
        flags = leaf.flags
        if not (flags.forc and flags.aligned):
            require_room(leaf, name)
            return leaf.copy(order="A")
    return leaf


BROADCAST = 2**30  # bytes that the copy of a broadcast array may take


def require_room(array: np.ndarray, name: str = "an array") -> None:
    """Raises if the copy of a broadcast array, which itself takes no memory, would be huge."""
    if array.nbytes > BROADCAST and 0 in array.strides:
        raise ValueError(
            f"{name} is {describe(array)}, broadcast from fewer numbers, and would be copied to "
            f"{array.nbytes / 2**30:.0f} GiB; pass the numbers, and broadcast them in the model"
        )
