"""The tape: autograd's record of one call, kept flat.

Each array is boxed alone (one box around a dict or tuple makes autograd densify it at every use).
The nodes are kept as a list in the order of the backward pass, which is autograd's own order, so
that cotangents are added in the same order and have the same bits.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from autograd.core import add_outgrads, primitive_vjps, sparse_object_types
from autograd.numpy.numpy_vjps import untake
from autograd.tracer import Node, isbox, new_box, notrace_primitives

from daskgrad.backends.autograd.arithmetic import RULES as ARITHMETIC_RULES
from daskgrad.backends.autograd.guards import RULES as GUARDED_RULES
from daskgrad.backends.autograd.guards import (
    integer_pullback,
    is_integer,
    require_seen,
    without_derivative,
)
from daskgrad.backends.autograd.indexing import RULES as INDEXING_RULES
from daskgrad.backends.autograd.indexing import Piece
from daskgrad.backends.autograd.linear import RULES as LINEAR_RULES
from daskgrad.backends.autograd.tracing import trace_numbers

RULES = {**ARITHMETIC_RULES, **LINEAR_RULES, **INDEXING_RULES, **GUARDED_RULES}


class TapeNode(Node):
    """One primitive that ran, and its pullback."""

    __slots__ = ("parents", "pullback")

    parents: Any
    pullback: Any

    def __init__(self, value, fun, args, kwargs, parent_argnums, parents):
        self.parents = parents
        rule = rule_of(fun, parent_argnums)
        if kwargs:
            require_seen(fun, kwargs)
        if is_integer(value):
            self.parents, self.pullback = (), integer_pullback
        else:
            self.pullback = pullback_by(rule, fun, parent_argnums, value, args, kwargs)

    def initialize_root(self):
        self.parents = ()
        self.pullback = None


def rule_of(fun: Callable, argnums: tuple) -> Callable:
    """The rule of a primitive, which makes a pullback of what it ran on."""
    rule = RULES.get(fun) or primitive_vjps.get(fun)
    if rule is None:
        raise NotImplementedError(missing_rule(fun, argnums))
    return rule


def pullback_by(
    rule: Callable, fun: Callable, argnums: tuple, value: Any, args: tuple, kwargs: dict
) -> Callable:
    try:
        return rule(argnums, value, args, kwargs)
    except (KeyError, NotImplementedError) as error:
        if isinstance(error, KeyError) and error.args[0] not in argnums:
            raise
        raise NotImplementedError(missing_rule(fun, argnums)) from error
    except TypeError as error:
        if "argument" not in str(error):
            raise
        raise TypeError(narrow_rule(fun, error)) from error  # np.clip(box) goes another way on


def missing_rule(fun: Callable, argnums: tuple) -> str:
    name = getattr(fun, "__name__", repr(fun))
    return (
        f"the primitive {name!r} has no derivative rule for its argument "
        f"{', '.join(map(str, argnums))}; write the model without it, or define the rule with "
        f"autograd.extend.defvjp"
    )


def narrow_rule(fun: Callable, error: TypeError) -> str:
    name = getattr(fun, "__name__", repr(fun))
    return f"the rule of the primitive {name!r} does not take all arguments of this call: {error}"


def trace(fun: Callable[..., Sequence[Any]], arrays: Sequence[Any]) -> tuple[list[Any], "Tape"]:
    """Runs ``fun`` once; returns its outputs and the tape (see ``daskgrad.backends``)."""
    number = trace_numbers.next_number()
    notrace_primitives[TapeNode] = without_derivative()
    roots = [TapeNode.new_root() for _ in arrays]
    boxes = [new_box(array, number, root) for array, root in zip(arrays, roots, strict=True)]
    outputs, ends = [], []
    for output in fun(*boxes):
        ours = isbox(output) and output._trace == number
        outputs.append(output._value if ours else output)
        ends.append(output._node if ours else None)
    return outputs, Tape(roots, ends)


class Tape:
    """The record of one call: ``pull`` maps cotangents of the outputs to those of the arrays."""

    __slots__ = ("_ends", "_parents", "_pullbacks", "_roots")

    def __init__(self, roots: Sequence[TapeNode], ends: Sequence[TapeNode | None]):
        order = backward_order([end for end in ends if end is not None])
        require_own_roots(order, roots)
        place = {node: index for index, node in enumerate(order)}
        placed = place.__getitem__
        self._pullbacks = [node.pullback for node in order]
        self._parents = [tuple(map(placed, node.parents)) for node in order]
        self._ends = [None if end is None else placed(end) for end in ends]
        self._roots = [place.get(root) for root in roots]

    def __len__(self) -> int:
        return len(self._pullbacks)

    def pull(self, cotangents: Sequence[Any]) -> list[Any]:
        """One cotangent (or None) an output in, one an array out; None where nothing arrived."""
        sums = Cotangents(len(self._pullbacks))
        for end, cotangent in zip(self._ends, cotangents, strict=True):
            if end is not None and cotangent is not None:
                sums.add(end, cotangent)
        for index, pullback in enumerate(self._pullbacks):
            if pullback is not None and sums.value[index] is not None:
                for parent, cotangent in zip(
                    self._parents[index], pullback(sums.pop(index)), strict=True
                ):
                    sums.add(parent, cotangent)
        return [None if root is None else sums.value[root] for root in self._roots]

    def held_arrays(self) -> list[np.ndarray]:
        """The arrays that the pullbacks keep alive, each once; a view counts as its owner."""
        return arrays_within(self._pullbacks)


def require_own_roots(order: Sequence[TapeNode], roots: Sequence[TapeNode]) -> None:
    """Whatever the outputs depend on began at the roots; a copy of a box began elsewhere."""
    own = set(roots)
    if any(node.pullback is None and node not in own for node in order):
        raise copied()


def copied() -> TypeError:
    return TypeError(
        "an ArrayBox was copied with copy.deepcopy or pickle, and its copy has lost its "
        "derivative; copy arrays with np.array(x)"
    )


PLAIN = {np.ndarray, np.float64}  # what most cotangents are: neither boxes nor pieces


class Cotangents:
    """The cotangents of all nodes of a tape, while it is pulled back.

    Adds in place only into arrays that it made itself: a pullback may return the very object that
    it was given (that of ``a + 1.0`` does).
    """

    __slots__ = ("_ours", "value")

    def __init__(self, count: int):
        self.value: list[Any] = [None] * count
        self._ours = [False] * count

    def pop(self, index: int) -> Any:
        value, self.value[index] = self.value[index], None
        return value

    def add(self, index: int, cotangent: Any) -> None:
        if cotangent is None:
            return
        previous = self.value[index]
        if previous is None and type(cotangent) in PLAIN:
            self.value[index] = cotangent
        elif type(cotangent) is Piece:
            self._add_piece(index, previous, cotangent)
        elif isbox(previous) or type(cotangent) in sparse_object_types or isbox(cotangent):
            flagged = None if previous is None else (previous, self._ours[index])
            self.value[index], self._ours[index] = add_outgrads(flagged, cotangent)
        elif previous is None:
            self.value[index] = cotangent
        else:
            self.value[index] = self._add_dense(previous, cotangent, self._ours[index])
            self._ours[index] = True

    def _add_piece(self, index: int, previous: Any, piece: Piece) -> None:
        if isbox(previous):
            return self.add(index, untake(piece.g, piece.index, piece.space))
        if previous is None:
            previous = piece.space.zeros()
        elif not self._ours[index] or not isinstance(previous, np.ndarray):
            previous = np.asarray(piece.space.zeros() + previous)
        self.value[index] = piece.add_into(previous)
        self._ours[index] = True

    @staticmethod
    def _add_dense(previous: Any, cotangent: Any, ours: bool) -> Any:
        if not (ours and isinstance(previous, np.ndarray)):
            return previous + cotangent
        try:
            previous += cotangent
        except TypeError:  # complex does not go into real: the sum is complex
            return previous + cotangent
        return previous


def backward_order(ends: Sequence[TapeNode]) -> list[TapeNode]:
    """Every node that the ends depend on, each after all its children, in autograd's order."""
    children: dict[TapeNode, int] = {}
    stack = list(ends)
    while stack:
        node = stack.pop()
        if node in children:
            children[node] += 1
        else:
            children[node] = 1
            stack.extend(node.parents)
    for end in ends:
        children[end] -= 1  # an end counts as nobody's child, unless a node uses it
    order = []
    ready = [end for end in dict.fromkeys(ends) if not children[end]]
    while ready:
        node = ready.pop()
        order.append(node)
        for parent in node.parents:
            children[parent] -= 1
            if not children[parent]:
                ready.append(parent)
    return order


def arrays_within(start: Any) -> list[np.ndarray]:
    """The arrays that an object made of functions and containers keeps alive, each once."""
    arrays, seen, stack = [], set(), [start]
    while stack:
        thing = stack.pop()
        if id(thing) in seen:
            continue
        seen.add(id(thing))
        if isinstance(thing, np.ndarray):
            if isinstance(thing.base, np.ndarray):
                stack.append(thing.base)
            else:
                arrays.append(thing)
        else:
            stack.extend(_parts(thing))
    return arrays


def _parts(thing: Any) -> Sequence[Any]:
    if isinstance(thing, list | tuple):
        return thing
    if isinstance(thing, dict):
        return list(thing.values())
    if isinstance(thing, functools.partial):
        return [thing.func, thing.args, thing.keywords]
    closure = getattr(thing, "__closure__", None)
    return _filled(closure) if closure else ()


def _filled(cells: Sequence[Any]) -> list[Any]:
    contents = []
    for cell in cells:
        try:
            contents.append(cell.cell_contents)
        except ValueError:  # a cell that was never filled
            continue
    return contents
