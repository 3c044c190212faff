"""Elsewhere: arrays of numbers that are not in this process, until somebody asks for them."""

import contextlib
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np


class Elsewhere:
    """A real array, perhaps a gradient, that other processes hold; ``np.asarray`` fetches it.

    It has the bits of the array that it stands for. It is no abstract class, for which
    ``isinstance`` runs Python for each leaf.
    """

    shape: tuple[int, ...]
    dtype: np.dtype

    def fetch(self) -> np.ndarray:
        """The array as it is now, in memory of its own."""
        raise NotImplementedError

    def rows(self, indices: np.ndarray) -> np.ndarray:
        """Some of its rows as they are now, in memory of their own."""
        return self.fetch()[indices]

    def reading(self) -> contextlib.AbstractContextManager[None]:
        """A context in which nobody changes it."""
        return contextlib.nullcontext()

    def gradient_of(self, cotangent: np.ndarray) -> Any:
        """The user's gradient, from a cotangent in this process."""
        return cotangent

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def nbytes(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize

    def __len__(self) -> int:
        return self.shape[0]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if copy is False:
            raise ValueError(f"{self!r} is not in this process; it cannot be had without a copy")
        return self.fetch().astype(dtype or self.dtype, copy=False)

    def __reduce__(self) -> Any:
        raise TypeError(
            f"{self!r} belongs to one process, and cannot be sent to another one or saved as it "
            f"is; pass or save the array, np.asarray(...)"
        )

    def __repr__(self) -> str:
        shape = ", ".join(map(str, self.shape))
        return f"<{type(self).__name__}: {self.dtype.name}[{shape}]>"


class RowsElsewhere(Elsewhere):
    """Some rows of an array that is elsewhere."""

    def __init__(self, whole: Elsewhere, indices: np.ndarray):
        self.whole, self.indices = whole, indices
        self.shape, self.dtype = (len(indices), *whole.shape[1:]), whole.dtype

    def fetch(self) -> np.ndarray:
        return self.whole.rows(self.indices)

    def reading(self) -> contextlib.AbstractContextManager[None]:
        return self.whole.reading()


class CotangentElsewhere(Elsewhere):
    """The cotangent of an array that is elsewhere, which may be scaled and added there.

    Users' arithmetic with it gives arrays; only the sum of two stays there. ``attached`` is the
    array; ``kept`` the numbers, or the record of numbers that workers keep.
    """

    attached: Any
    kept: Any

    def scaled(self, factor: Any) -> "CotangentElsewhere":
        """This times a number, rounded as an array is."""
        raise NotImplementedError

    def plus(self, other: "CotangentElsewhere") -> Any:
        """The sum with another one of the same array."""
        raise NotImplementedError

    def __add__(self, other: Any) -> Any:
        if isinstance(other, CotangentElsewhere):
            return self.plus(other)
        return self.fetch() + other

    def __radd__(self, other: Any) -> np.ndarray:
        return other + self.fetch()

    def __sub__(self, other: Any) -> np.ndarray:
        return self.fetch() - brought_here(other)

    def __rsub__(self, other: Any) -> np.ndarray:
        return other - self.fetch()

    def __mul__(self, other: Any) -> np.ndarray:
        return self.fetch() * brought_here(other)

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> np.ndarray:
        return self.fetch() / brought_here(other)

    def __neg__(self) -> np.ndarray:
        return -self.fetch()

    def __reduce__(self) -> Any:
        return np.asarray, (self.fetch(),)

    def copy(self) -> "CotangentElsewhere":
        return self  # nobody can write into it


def brought_here(leaf: Any) -> Any:
    """A leaf as models get it."""
    return leaf.fetch() if isinstance(leaf, Elsewhere) else leaf


# ----------------------------------------------------------------------------------- optimisers


class AttachedElsewhere(Elsewhere):
    """An array under a ``name`` that optimisers change, with the others of its ``attachment``."""

    name: str
    attachment: Any  # ``Changing``

    def slot(self) -> "AttachedElsewhere":
        """An array of zeros of the same shape, for an optimiser's state."""
        raise NotImplementedError

    def fill(self, array: np.ndarray) -> None:
        """Gives it the numbers of an array."""
        raise NotImplementedError


class Update(NamedTuple):
    """A step of an optimiser for an array elsewhere, and for the arrays in its ``slots``.

    ``rate``: of this step. ``steps``: the number of steps that the array has taken.
    """

    array: AttachedElsewhere
    gradient: np.ndarray | CotangentElsewhere
    optimiser: Any
    rate: float
    steps: np.ndarray
    slots: Sequence[AttachedElsewhere]


class Changing(Protocol):
    """Arrays elsewhere that change together."""

    def without_readers(self) -> contextlib.AbstractContextManager[None]:
        """No evaluation that uses them begins meanwhile; RuntimeError if one is under way."""

    def rewriting(self) -> contextlib.AbstractContextManager[dict[str, np.ndarray]]:
        """All of them in this process, by name; the final contents of the dictionary hold."""

    def ready(self, updates: Sequence[Update]) -> Callable[[], None]:
        """A function that takes the step; RuntimeError if a gradient was lost."""


# The arrays of this process that workers have copies of, by id, with records of the copies.
replicated: dict[int, tuple[weakref.ref, Any]] = {}


def replicated_of(array: Any) -> Any:
    """The record of an array's copies (``dg.replicate``); None if there are none."""
    entry = replicated.get(id(array))
    return None if entry is None else entry[1]


def replicated_among(leaves: Iterable[Any]) -> list[Any]:
    """The records of leaves that have copies."""
    if not replicated:
        return []
    return [known for known in map(replicated_of, leaves) if known is not None]
