"""Traced calls: a call of a model as a backend traces it, and the calls on a block of items."""

from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import Any, NamedTuple

import numpy as np
import optree

from daskgrad.autodiff.values.trees import flatten

# Traces the calls of models in place of their backends, while a whole evaluation is recorded.
recorder: ContextVar[Callable | None] = ContextVar("records what models do", default=None)


class FlatArguments(NamedTuple):
    """The arguments of a call: all leaves, their structure, and the places of traced arrays.

    ``places`` has for each leaf the number of its traced array, or ``None``; the cotangents of the
    arrays with the numbers ``asked`` should be rows.
    """

    leaves: Sequence[Any]
    structure: optree.PyTreeSpec  # of (args, kwargs)
    places: Sequence[int | None]
    asked: Sequence[int] = ()

    def fill(self, boxes: Sequence[Any], converted: Callable[[Any], Any]) -> list[Any]:
        """All leaves: boxes for the traced arrays, all others converted."""
        return [
            converted(leaf) if place is None else boxes[place]
            for leaf, place in zip(self.leaves, self.places, strict=True)
        ]


class TracedCall:
    """A call of a model as a function of its traced leaves.

    It can be called like any function. A backend that converts all arrays of a call takes the
    ``layout()``, calls the model's function ``fun``, and passes the value to ``leaves_of``; a
    backend that has compiled the model, and does not run it, sets the value's ``structure``.
    ``known`` is the backend's earlier finding about the call, or None (see ``Pending``).
    """

    __slots__ = ("_inputs", "_tracer", "fun", "known", "structure")

    structure: Any

    def __init__(self, tracer: Any, inputs: Sequence[Any], known: Any = None):
        self._tracer = tracer
        self._inputs = inputs
        self.fun = tracer.fun
        self.known = known

    def __call__(self, *boxes: Any) -> list[Any]:
        args, kwargs = self._tracer.boxed_arguments(self._inputs, boxes)
        return self.leaves_of(self.fun(*args, **kwargs))

    def leaves_of(self, value: Any) -> list[Any]:
        """The leaves of the value; keeps its structure."""
        leaves, self.structure = flatten(value)
        return leaves

    def arrays(self) -> list[np.ndarray]:
        """The arrays among the arguments, and in sparse matrices among these."""
        leaves = flatten(self._tracer.arguments(self._inputs))[0]
        matrices = [leaf for leaf in leaves if hasattr(type(leaf), "tocsr")]
        parts = flatten([vars(matrix) for matrix in matrices])[0] if matrices else []
        return [leaf for leaf in (*leaves, *parts) if isinstance(leaf, np.ndarray)]

    def layout(self) -> FlatArguments:
        """All arguments, flattened, and the places of the traced leaves."""
        return self._tracer.layout(self._inputs)

    def origins(self) -> list[tuple[int, int] | None]:
        """For each leaf of the arguments the numbers of its input and of the leaf in the input;
        ``None`` for a constant."""
        return self._tracer.origins(self._inputs)


class TracedBlock:
    """The calls of a model on the items of a block.

    The first inputs of a call are the fields of its item. ``fields`` has a list for each field, or
    an array with a row for each item. In ``kept`` a backend keeps things for all blocks of one sum
    in one evaluation.
    """

    def __init__(
        self,
        fields: Sequence[Sequence[Any]],
        call: Callable[[Sequence[Any]], tuple[TracedCall, Sequence[Any]]],
        kept: dict[Any, Any],
    ):
        self.fields = fields
        self.kept = kept
        self.count = len(fields[0])
        self._call = call

    def call(self, number: int) -> tuple[TracedCall, Sequence[Any]]:
        """The call on one item, and its traced arrays."""
        return self._call([field[number] for field in self.fields])


class Pending:
    """An item of a block that is to be traced, and its call's ``known``."""

    __slots__ = ("known",)

    def __init__(self, known: Any):
        self.known = known


SIDE_BY_SIDE = 2**14  # bytes of a gradient: to copy a larger one takes longer than to add it


class TermRun(NamedTuple):
    """The values of consecutive items, in double precision, and their gradients side by side: an
    array for each traced array, in its dtype, with a row for each item; or None for zeros."""

    values: np.ndarray
    gradients: list[Any]

    def each(self) -> list[tuple[Any, list[Any]]]:
        """Value and gradient of each item."""
        return [
            (value, [rows if rows is None else rows[number] for rows in self.gradients])
            for number, value in enumerate(self.values)
        ]


def is_numeric(leaf: Any) -> bool:
    """Whether a leaf is a NumPy array or number of a dtype that other libraries may have."""
    is_plain = type(leaf) in (np.ndarray, np.memmap) or isinstance(leaf, np.generic)
    return is_plain and leaf.dtype.kind in "biufc"
