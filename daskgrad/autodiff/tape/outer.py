"""Outer traces: of functions that call models, while these run when they are called.

A model has a tape of its own. The outer trace has a node for each call of NumPy between models, for
each variable, and for each array or number that a call of a model has returned.
"""

from collections.abc import Callable
from typing import Any

import autograd.numpy as anp
from autograd.tracer import new_box, notrace_primitives

from daskgrad.autodiff.rules.declaration import without_derivative
from daskgrad.autodiff.rules.indexing import Selection
from daskgrad.autodiff.tape.boxes import ArrayBox, integer_pullback, live, trace_numbers
from daskgrad.autodiff.tape.operands import Operands
from daskgrad.autodiff.tape.reverse import TapeNode

OPERATORS = {
    *(anp.add, anp.subtract, anp.multiply, anp.true_divide, anp.divide, anp.power, anp.negative)
}


class OuterNode(TapeNode):
    """A value between models.

    ``call``: the call of a model that has returned it, or None. ``is_here``: it depends on
    variables alone; ``is_small``: on small ones.
    """

    __slots__ = ("call", "fun", "is_here", "is_small", "value")

    call: Any
    fun: Any
    is_here: bool
    is_small: bool
    value: Any

    def __init__(self, value: Any, fun: Any, args: Any, kwargs: Any, argnums: Any, parents: Any):
        super().__init__(value, fun, args, kwargs, argnums, parents)
        self.value, self.fun, self.call = value, fun, None
        self.is_here = self.is_small = True
        for parent in parents:
            self.is_here = self.is_here and parent.is_here
            self.is_small = self.is_small and parent.is_small

    def initialize_root(self, value: Any, trace: int) -> None:
        super().initialize_root(value, trace)
        self.value, self.fun, self.call = value, None, None
        self.is_here = self.is_small = False

    @property
    def is_operator(self) -> bool:
        """Whether it is one of Python's operators, entry by entry."""
        return self.fun in OPERATORS

    @property
    def is_selection(self) -> bool:
        """Whether it is entries of an array."""
        return type(self.pullback) is Selection


class OuterTrace:
    """The outer trace of one evaluation."""

    def __init__(self) -> None:
        self._number = trace_numbers.next_number()
        self._operands = Operands()
        notrace_primitives[OuterNode] = without_derivative()

    def run(self, fun: Callable[[], Any]) -> Any:
        """The result of the function, in boxes."""
        live[self._number] = self._operands
        try:
            return fun()
        finally:
            del live[self._number]

    def close(self) -> None:
        """Operands can be written into again, once all has been pulled back."""
        for lock in self._operands.locks:
            lock.release()

    def box(self, value: Any) -> ArrayBox:
        """The box of a variable, or of what a model has returned."""
        return new_box(value, self._number, OuterNode.new_root(value, self._number))

    def node_of(self, box: ArrayBox) -> OuterNode | None:
        """The node of a box; None if it has no derivative.

        Raises
        ------
        TypeError
            if it is a box of another trace.
        """
        node = box._node
        if type(node) is not OuterNode or node.trace != self._number:
            raise TypeError(f"{box!r} is a traced value of another derivative")
        return None if node.pullback is integer_pullback else node
