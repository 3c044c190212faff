"""Forward mode: records the primitives of one call, and pushes tangents along the record.

The primitives are recorded in the order in which they ran, with their arguments. Tangents are
pushed forward along the record, any number of times, and no model runs again. The rules are
autograd's if it has one, and otherwise the transposes of the tape's rules: a pullback is linear in
its cotangent, so its own pullback maps tangents (J. Townsend, "A new trick for calculating Jacobian
vector products", 2017). All of it is written in autograd's primitives, and can be differentiated.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from autograd.builtins import list as autograd_list
from autograd.builtins import tuple as autograd_tuple
from autograd.core import primitive_jvps, vspace
from autograd.tracer import Node, box_type_mappings, getval, isbox, new_box, notrace_primitives

from daskgrad.autodiff.rules import python_numbers
from daskgrad.autodiff.rules.declaration import (
    DECLARED,
    Declaration,
    explain,
    on_numpys,
    plain,
    require_seen,
    settle,
    without_derivative,
)
from daskgrad.autodiff.tape.boxes import (
    INTEGERS,
    kept_value_error,
    kind_of,
    live,
    real_part,
    trace_numbers,
)
from daskgrad.autodiff.tape.operands import MAKERS, WITHOUT, Operands
from daskgrad.autodiff.tape.reverse import (
    copied_box_error,
    is_replaced,
    program_of,
    pullback_of,
    run_on_boxes,
    trace_with,
)
from daskgrad.autodiff.tape.rule_calls import call_rule
from daskgrad.autodiff.values.cotangents import is_differentiable


class Primitive(NamedTuple):
    """One primitive that ran; ``parents`` are the places of its traced arguments."""

    parents: Sequence[int]
    fun: Callable
    argnums: tuple
    value: Any
    args: tuple
    kwargs: dict

    def push(self, tangents: Sequence[Any]) -> Any:
        """The tangent of the value, from the earlier primitives' tangents; ``None`` for zero."""
        pairs = zip(self.argnums, [tangents[parent] for parent in self.parents], strict=True)
        known = [(argnum, tangent) for argnum, tangent in pairs if tangent is not None]
        if not known:
            return None
        argnums, arrived = zip(*known, strict=True)
        rule = RULES.get(self.fun) or rule_of(self.fun)
        try:
            tangent = rule(argnums, arrived, self.value, self.args, self.kwargs)
        except (KeyError, NotImplementedError, TypeError) as error:
            if self.fun is not call_rule:
                explain(error, self.fun, argnums)
            raise
        return real_part(tangent) if kind_of(self.value) == "f" else tangent


class RecordNode(Node):
    """The place of a box in a record. The record holds no nodes: that would be a cycle."""

    __slots__ = ("place", "record", "trace")

    record: list
    place: int
    trace: int

    def __init__(self, value, fun, args, kwargs, parent_argnums, parents):
        if kwargs:
            require_seen(fun, kwargs)
        has_none = kind_of(value) in INTEGERS or type(value) not in box_type_mappings
        places = () if has_none else [parent.place for parent in parents]
        argnums = () if has_none else parent_argnums
        record, trace = parents[0].record, parents[0].trace
        if trace not in live:
            raise kept_value_error(f"np.{getattr(fun, '__name__', fun)}")
        operands = live[trace]
        if operands is not None and fun not in WITHOUT:
            args, kwargs = operands.taken(fun, args, parent_argnums), operands.of(kwargs)
        if any(parent.record is not record for parent in parents):
            raise copied_box_error()
        self._enter(record, trace, Primitive(places, fun, argnums, value, args, kwargs))

    def initialize_root(self, record, trace):
        self._enter(record, trace, None)

    def _enter(self, record: list, trace: int, entry: Primitive | None) -> None:
        self.record, self.trace = record, trace
        self.place = len(record)
        record.append(entry)


def make_box(number: int) -> Any:
    """A box of a trace of that number."""
    return new_box(np.ones(Operands.small), number, RecordNode.new_root([], number))


MAKERS.append(make_box)


class Push:
    """The map of tangents along a record, from the arrays at its first places to the outputs at the
    places ``ends``; ``None`` for a constant output."""

    def __init__(
        self,
        record: Sequence[Any],
        arrays: int,
        outputs: Sequence[Any],
        ends: Sequence[int | None],
        operands: Operands | None,
    ):
        self.record, self.arrays, self.outputs, self.ends = record, arrays, outputs, ends
        self.locks = operands.locks if operands is not None else ()

    def __call__(self, tangents: Sequence[Any], moved: Sequence[bool] | None = None) -> list[Any]:
        """``moved``: which values in the record may have tangents that are not zero."""
        pushed = list(tangents)
        for place, primitive in enumerate(self.record[self.arrays :], self.arrays):
            pushed.append(primitive.push(pushed) if moved is None or moved[place] else None)
        return [
            tangent_of(output, None if end is None else pushed[end])
            for output, end in zip(self.outputs, self.ends, strict=True)
        ]


def linearize(
    fun: Callable[..., Sequence[Any]], arrays: Sequence[Any]
) -> tuple[list[Any], Callable[[Sequence[Any]], list[Any]]]:
    """Runs ``fun`` once; returns its outputs and the map of tangents (``libraries.registry``)."""
    return linearize_with(Operands(fun), fun, arrays)


def linearize_with(
    operands: Operands | None, fun: Callable, arrays: Sequence[Any]
) -> tuple[list[Any], Callable[[Sequence[Any]], list[Any]]]:
    """As ``reverse.trace_with``."""
    number = trace_numbers.next_number()
    notrace_primitives[RecordNode] = without_derivative()
    record: list[Any] = []
    roots = [RecordNode.new_root(record, number) for _ in arrays]
    outputs, ends = run_on_boxes(fun, arrays, roots, number, operands)
    for output, end in zip(outputs, ends, strict=True):
        if end is not None and end.record is not record:
            raise copied_box_error()
        if end is not None:
            require_array(output)
    settle()  # the model may have imported functions with rules of ours
    places = [None if end is None else end.place for end in ends]
    return outputs, Push(record, len(arrays), outputs, places, operands)


def tangent_of(output: Any, tangent: Any) -> Any:
    """The tangent of an output in its dtype: zeros where none arrived; ``None`` if it has none."""
    value = getval(output)
    if not is_differentiable(value):
        return None
    if tangent is None:
        return vspace(value).zeros()[()]
    dtype = np.result_type(value)
    tangent = tangent if isbox(tangent) else np.asarray(tangent)[()]
    return tangent if tangent.dtype == dtype else tangent.astype(dtype)


def require_array(output: Any) -> None:
    value = getval(output)
    if isinstance(value, list | tuple | dict):
        kind = type(value).__name__
        raise TypeError(f"a model returned autograd's box of a {kind}; return a plain {kind}")


# ------------------------------------------------------------------------------------- rules

RULES: dict[Callable, Callable] = {}  # declared rules of the primitives used so far


def rule_of(fun: Callable) -> Callable:
    """The rule of a primitive that is new, or has autograd's rule."""
    known = DECLARED.get(fun)
    if known is None or not (known.adjoint or known.program or known.refused or known.tangent):
        autograds = primitive_jvps.get(fun)
        return on_numpys(autograds) if autograds else transpose(fun)
    if known.refused:  # by the adjoint
        rule = transpose(fun)
    elif known.program:
        rule = rule_by_program(fun, known, known.program)
    else:
        rule = known.tangent or transpose(fun)
    RULES[fun] = rule if fun in python_numbers.PRIMITIVES else on_numpys(rule)
    return RULES[fun]


def transpose(fun: Callable) -> Callable:
    """The rule for tangents, from the rule for cotangents."""

    def rule(argnums: tuple, tangents: Sequence, ans: Any, args: tuple, kwargs: dict) -> Any:
        pullback = pullback_of(fun, argnums, ans, args, kwargs)
        ones = vspace(ans).ones()  # some rules skip zeros
        _, tape = trace_with(None, lambda cotangent: list(pullback(cotangent)), [ones])
        (tangent,) = tape.pull(tangents)
        return tangent

    return rule


def rule_by_program(fun: Callable, known: Declaration, program: Callable) -> Callable:
    """The rule of a function that a program replaces in some of its calls."""
    autograds = None if known.adjoint else primitive_jvps.get(fun)
    otherwise = known.tangent or autograds or transpose(fun)

    def rule(argnums: tuple, tangents: Sequence, ans: Any, args: tuple, kwargs: dict) -> Any:
        if not is_replaced(fun, known, argnums, args, kwargs):
            return otherwise(argnums, tangents, ans, args, kwargs)
        active = [args[argnum] for argnum in argnums]
        _, push = linearize_with(None, program_of(program, argnums, args, kwargs), active)
        pushed, value = push(tangents), plain(ans)
        if isinstance(value, list | tuple):
            return (autograd_list if isinstance(value, list) else autograd_tuple)(pushed)
        return pushed[0]

    return rule
