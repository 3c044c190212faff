"""Linearizing: the record of one call for forward mode.

The primitives are recorded in the order in which they ran, with what they ran on. Tangents are
pushed forward along the record, any number of times, and no model runs again. The rules are
autograd's where it has one, and else the transposes of those of the tape: a pullback is linear in
its cotangent, so its own pullback maps tangents (J. Townsend, "A new trick for calculating Jacobian
vector products", 2017). All of it is written in autograd's primitives, and can be differentiated.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import autograd.numpy as anp
import numpy as np
from autograd.core import primitive_jvps, vspace
from autograd.tracer import (
    Node,
    getval,
    isbox,
    new_box,
    notrace_primitives,
    trace_primitives_map,
)

from daskgrad.backends.autograd.guards import (
    INTEGERS,
    kind_of,
    require_seen,
    without_derivative,
)
from daskgrad.backends.autograd.tape import copied, pullback_of, trace
from daskgrad.backends.autograd.tracing import trace_numbers
from daskgrad.cotangents import is_differentiable

TRANSPOSED = {  # autograd's rules for tangents are wrong, or fail,
    trace_primitives_map[np.where],  # where the arrays are broadcast
    trace_primitives_map[np.var],  # over several axes
    trace_primitives_map[np.std],
}


def tanh_rule(argnums: tuple, tangents: Sequence, ans: Any, args: tuple, kwargs: dict) -> Any:
    """g / cosh(x)², for real x without its overflow, whose derivative is NaN."""
    if anp.iscomplexobj(args[0]):
        return tangents[0] / anp.cosh(args[0]) ** 2
    small = anp.exp(-2.0 * anp.abs(args[0]))
    return tangents[0] * (4.0 * small / (1.0 + small) ** 2)


def power_rule(argnums: tuple, tangents: Sequence, ans: Any, args: tuple, kwargs: dict) -> Any:
    """autograd's, with the exponent y - 1 also where y is zero, or its derivative is wrong."""
    x, y = args
    one = np.where(np.logical_or(getval(x), getval(y)), 1.0, 0.0)[()]  # 0 · 0 ** -1 is NaN
    slopes = {0: lambda: y * x ** (y - one)}
    slopes[1] = lambda: anp.log(anp.where(x, x, 1.0)) * ans
    parts = [t * slopes[argnum]() for argnum, t in zip(argnums, tangents, strict=True)]
    return sum(parts[1:], parts[0])


RULES = {anp.tanh: tanh_rule, anp.power: power_rule}


class Step(NamedTuple):
    """One primitive that ran; ``parents`` are the places of its traced arguments."""

    parents: Sequence[int]
    fun: Callable
    argnums: tuple
    value: Any
    args: tuple
    kwargs: dict

    def push(self, tangents: Sequence[Any]) -> Any:
        """The tangent of the value, from those of all steps before it; ``None`` for zero."""
        pairs = zip(self.argnums, [tangents[parent] for parent in self.parents], strict=True)
        there = [(argnum, tangent) for argnum, tangent in pairs if tangent is not None]
        if not there:
            return None
        argnums, arrived = zip(*there, strict=True)
        rule = None if self.fun in TRANSPOSED else rule_for_tangents(self.fun)
        if rule is None:
            return self._transposed(argnums, arrived)
        tangent = rule(argnums, arrived, self.value, self.args, self.kwargs)
        is_forgetful = kind_of(tangent) == "c" and kind_of(self.value) == "f"
        return anp.real(tangent) if is_forgetful else tangent

    def _transposed(self, argnums: tuple, tangents: Sequence[Any]) -> Any:
        pullback = pullback_of(self.fun, argnums, self.value, self.args, self.kwargs)
        ones = vspace(self.value).ones()  # some rules leave out what comes of zeros
        _, tape = trace(lambda cotangent: list(pullback(cotangent)), [ones])
        (tangent,) = tape.pull(tangents)
        return tangent


def rule_for_tangents(fun: Callable) -> Callable | None:
    return RULES.get(fun) or primitive_jvps.get(fun)


class RecordNode(Node):
    """The place of a box in a record. The record holds no nodes: that would be a cycle."""

    __slots__ = ("place", "record")

    record: list
    place: int

    def __init__(self, value, fun, args, kwargs, parent_argnums, parents):
        if kwargs:
            require_seen(fun, kwargs)
        has_none = kind_of(value) in INTEGERS
        places = () if has_none else [parent.place for parent in parents]
        argnums = () if has_none else parent_argnums
        record = parents[0].record
        if any(parent.record is not record for parent in parents):
            raise copied()
        self._enter(record, Step(places, fun, argnums, value, args, kwargs))

    def initialize_root(self, record):
        self._enter(record, None)

    def _enter(self, record: list, step: Step | None) -> None:
        self.record = record
        self.place = len(record)
        record.append(step)


def linearize(
    fun: Callable[..., Sequence[Any]], arrays: Sequence[Any]
) -> tuple[list[Any], Callable[[Sequence[Any]], list[Any]]]:
    """Runs ``fun`` once; returns its outputs and the linear map of tangents (see the package)."""
    number = trace_numbers.next_number()
    notrace_primitives[RecordNode] = without_derivative()
    record: list[Any] = []
    boxes = [new_box(array, number, RecordNode.new_root(record)) for array in arrays]
    outputs, ends = [], []
    for output in fun(*boxes):
        ours = isbox(output) and output._trace == number
        if ours and output._node.record is not record:
            raise copied()
        if ours:
            require_array(output)
        outputs.append(output._value if ours else output)
        ends.append(output._node.place if ours else None)

    def push(tangents: Sequence[Any]) -> list[Any]:
        pushed = list(tangents)
        for step in record[len(arrays) :]:
            pushed.append(step.push(pushed))
        return [
            tangent_of(output, None if end is None else pushed[end])
            for output, end in zip(outputs, ends, strict=True)
        ]

    return outputs, push


def tangent_of(output: Any, tangent: Any) -> Any:
    """The tangent of an output in its dtype: zeros where none arrived; ``None`` if it has none."""
    plain = getval(output)
    if not is_differentiable(plain):
        return None
    if tangent is None:
        return vspace(plain).zeros()[()]
    dtype = np.result_type(plain)
    tangent = tangent if isbox(tangent) else np.asarray(tangent)[()]
    return tangent if tangent.dtype == dtype else tangent.astype(dtype)


def require_array(box: Any) -> None:
    plain = getval(box)
    if isinstance(plain, list | tuple | dict):
        kind = type(plain).__name__
        raise TypeError(f"a model returned autograd's box of a {kind}; return a plain {kind}")
