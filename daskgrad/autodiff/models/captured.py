"""Captured: the value of one call and its pullback, as a worker keeps them until the backward pass.

A pullback that leaves its process takes its tape along as bytes, or arrives empty (``travel``
decides) and is traced again at its first use.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from daskgrad.autodiff.models.determinism import fingerprint_of
from daskgrad.autodiff.models.model import run_as_model
from daskgrad.autodiff.models.travel import Measured, Travelling
from daskgrad.autodiff.values import cotangents
from daskgrad.autodiff.values.carriers import carrier
from daskgrad.autodiff.values.cotangents import Leaves
from daskgrad.autodiff.values.descriptions import describe
from daskgrad.autodiff.values.fingerprints import Fingerprint
from daskgrad.autodiff.values.memory import without_memory

# One active input as a call saw it: its fingerprint, if watched, and its number of leaves. The
# garbage collector forgets plain tuples, not named ones.
Seen = tuple[Fingerprint | None, int]


@carrier
class Captured:
    """The value of one call and its pullback, with fingerprints of the inputs, and of the value
    once it is compared or leaves its process."""

    value: Any
    pullback: Any
    seen: tuple[Seen, ...]
    _fingerprint: Fingerprint | None = None

    def __repr__(self) -> str:
        return f"Captured({describe(self.value)}, {self.pullback!r})"

    @property
    def fingerprint(self) -> Fingerprint:
        if self._fingerprint is None:
            self._fingerprint = fingerprint_of(self.value)
        return self._fingerprint

    def __reduce__(self):
        return Captured, (self.value, self.pullback, self.seen, self.fingerprint)


@carrier
class Gradient:
    """The pullback of a real scalar: its gradient, to be scaled by the cotangent.

    All leaves are ``None`` for a value without derivative.
    """

    leaves: Leaves

    def __repr__(self) -> str:
        return "Gradient()"

    def with_leaves(self, leaves: Leaves) -> "Gradient":
        """This gradient with different leaves, for example rounded ones."""
        return Gradient(leaves)

    @property
    def is_zero(self) -> bool:
        return cotangents.is_zero(self.leaves)

    def __call__(self, cotangent: Leaves) -> Leaves:
        if self.is_zero or cotangent[0] is None:
            return (None,) * len(self.leaves)
        return cotangents.scale(self.leaves, cotangent[0])

    of_term = __call__


class Pullback(Travelling):
    """The pullback of one call, from its tape; ``seconds`` is the time that tracing took."""

    __slots__ = ("_asked", "_nbytes", "_places", "_primals", "_seconds", "tape")

    def __init__(
        self,
        tape: Any = None,
        primals: Leaves = (),
        places: Sequence[int] = (),
        seconds: float = 0.0,
        asked: Sequence[int] = (),
    ):
        super().__init__()
        self.tape = tape
        self._primals = primals
        self._places = places  # which of the primals were traced
        self._seconds = seconds
        self._asked = asked  # which of the traced arrays should have rows as cotangents
        self._nbytes: int | None = None

    @property
    def is_empty(self) -> bool:  # type: ignore[override]
        return self.tape is None and self._packed is None

    def __repr__(self) -> str:
        return "Pullback(empty)" if self.is_empty else "Pullback()"

    def tapes(self) -> list[Any]:
        return [self.tape]

    def contents(self) -> tuple[Any, ...]:
        """All that another process needs for a pullback of the same bits."""
        primals = tuple(map(without_memory, self._primals))
        return self.tape, primals, self._places, self._seconds, self._asked

    def measured(self) -> Measured:
        nbytes = held_nbytes(self.tape)
        return Measured(nbytes, getattr(self.tape, "steps", 0), self._seconds)

    def restore(self, contents: tuple[Any, ...]) -> None:
        tape, self._primals, self._places, self._seconds, self._asked = contents
        self.tape = tape  # last: other threads may do the same

    def __sizeof__(self) -> int:
        """The bytes of the residuals, without the arguments, which the worker holds anyway."""
        if self._nbytes is None:
            tape, packed = self.tape, self._packed
            held = 0 if tape is None else held_nbytes(tape, self._primals)
            self._nbytes = held if packed is None else packed.nbytes
        return object.__sizeof__(self) + self._nbytes

    def __call__(self, cotangent: Leaves) -> Leaves:
        """The cotangents of the inputs' leaves, each in its leaf's shape and dtype."""
        return pull_tape(self.tape, cotangent, self._primals, self._places, self._asked)

    def of_term(self, cotangent: Leaves) -> Leaves:
        """The cotangents, as rows if few rows were used."""
        return pull_tape(self.tape, cotangent, self._primals, self._places, self._asked, True)


def pull_tape(
    tape: Any,
    cotangent: Leaves,
    primals: Leaves,
    places: Sequence[int],
    asked: Sequence[int] = (),
    is_term: bool = False,
) -> Leaves:
    """The cotangents of the primals' leaves. A tape that can return ``Rows`` does so for the traced
    arrays ``asked``, and in a term of a sum for arrays with few used rows. It may run the model
    again, or a rule of the user's: nothing is recorded."""
    if (asked or is_term) and hasattr(tape, "pull_rows"):
        pulled = run_as_model(tape.pull_rows, cotangent, asked, is_term)
    else:
        pulled = run_as_model(tape.pull, cotangent)
    return put_in_places(pulled, primals, places)


def put_in_places(pulled: Sequence[Any], primals: Leaves, places: Sequence[int]) -> Leaves:
    """The cotangents of the traced arrays, in the places and dtypes of the primals."""
    leaves: list[Any] = [None] * len(primals)
    for place, cotangent in zip(places, pulled, strict=True):
        leaves[place] = cotangents.project(cotangent, primals[place])
    return tuple(leaves)


def held_nbytes(tape: Any, without: Sequence[Any] = ()) -> int:
    """The bytes of the arrays that a tape keeps alive, except the leaves ``without``."""
    others = {id(owner(leaf)) for leaf in without}
    return sum([array.nbytes for array in tape.held_arrays() if id(array) not in others])


def owner(array: Any) -> Any:
    """The array with the memory of a view."""
    while isinstance(getattr(array, "base", None), np.ndarray):
        array = array.base
    return array
