"""Calls: what backends trace, and how those take it apart that turn all its arrays into theirs."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import optree

from daskgrad.values.trees import flatten


class Layout(NamedTuple):
    """The arguments of a call: all leaves, their structure, and where the traced arrays stand.

    ``places`` has for each leaf the number of the traced array that stands there, or ``None``.
    """

    leaves: Sequence[Any]
    structure: optree.PyTreeSpec  # of (args, kwargs)
    places: Sequence[int | None]

    def fill(self, boxes: Sequence[Any], converted: Callable[[Any], Any]) -> list[Any]:
        """All leaves, with boxes for the traced arrays, and the others converted."""
        return [
            converted(leaf) if place is None else boxes[place]
            for leaf, place in zip(self.leaves, self.places, strict=True)
        ]


class TracedCall:
    """A call of a model as a function of those leaves of its inputs that are traced.

    It can be called like any function. A backend that turns all arrays of a call into its own takes
    the ``layout()``, calls the model's function ``fun``, and hands the value to ``leaves_of``; one
    that has compiled the model, and does not run it, sets the value's ``structure``.
    """

    __slots__ = ("_inputs", "_tracer", "fun", "structure")

    structure: Any

    def __init__(self, tracer: Any, inputs: Sequence[Any]):
        self._tracer = tracer
        self._inputs = inputs
        self.fun = tracer.fun

    def __call__(self, *boxes: Any) -> list[Any]:
        args, kwargs = self._tracer.boxed_arguments(self._inputs, boxes)
        return self.leaves_of(self.fun(*args, **kwargs))

    def leaves_of(self, value: Any) -> list[Any]:
        """The leaves of the value, whose structure is kept."""
        leaves, self.structure = flatten(value)
        return leaves

    def layout(self) -> Layout:
        """All arguments, taken apart, and where the traced leaves stand among them."""
        return self._tracer.layout(self._inputs)

    def origins(self) -> list[tuple[int, int] | None]:
        """For each leaf of the arguments the number of the input that it is of, and which leaf of
        that it is; ``None`` for a constant."""
        return self._tracer.origins(self._inputs)


class TracedBlock:
    """The calls of a model on the items of a block.

    The first inputs of a call are the parts of its item; ``columns`` have them, each a list, or an
    array whose rows they are.
    """

    def __init__(
        self,
        columns: Sequence[Sequence[Any]],
        call: Callable[[Sequence[Any]], tuple[TracedCall, list[Any]]],
    ):
        self.columns = columns
        self.count = len(columns[0])
        self._call = call

    def call(self, number: int) -> tuple[TracedCall, list[Any]]:
        """The call on one item, and the arrays that it is a function of."""
        return self._call([column[number] for column in self.columns])


def is_numeric(leaf: Any) -> bool:
    """Whether a leaf is an array or NumPy number that other libraries may have a type for."""
    is_plain = type(leaf) in (np.ndarray, np.memmap) or isinstance(leaf, np.generic)
    return is_plain and leaf.dtype.kind in "biufc"
