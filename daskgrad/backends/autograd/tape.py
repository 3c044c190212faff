"""The tape: autograd's record of one call, kept flat.

Each array is boxed alone (one box around a dict or tuple makes autograd densify it at every use).
The nodes are kept as a list in the order of the backward pass, which is autograd's own order, so
that cotangents are added in the same order and have the same bits.
"""

import functools
from collections.abc import Callable, Container, Sequence
from typing import Any

import numpy as np
from autograd.core import add_outgrads, primitive_vjps, sparse_object_types
from autograd.numpy.numpy_boxes import ArrayBox
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
from daskgrad.backends.autograd.indexing import Piece, Pieces
from daskgrad.backends.autograd.linear import RULES as LINEAR_RULES
from daskgrad.backends.autograd.pickling import TapePickler
from daskgrad.backends.autograd.ruled import call_ruled
from daskgrad.backends.autograd.tracing import trace_numbers
from daskgrad.structures import LEAF_TYPES

LEAF_TYPES.add(ArrayBox)  # optree would find out as much, in ten times the time

RULES = {**ARITHMETIC_RULES, **LINEAR_RULES, **INDEXING_RULES, **GUARDED_RULES}


class TapeNode(Node):
    """One primitive that ran, and its pullback."""

    __slots__ = ("parents", "pullback")

    parents: Any
    pullback: Any

    def __init__(self, value, fun, args, kwargs, parent_argnums, parents):
        self.parents = parents
        rule = RULES.get(fun) or primitive_vjps.get(fun) or missing(fun, parent_argnums)
        if kwargs:
            require_seen(fun, kwargs)
        if is_integer(value):
            self.parents, self.pullback = (), integer_pullback
            return
        try:
            self.pullback = rule(parent_argnums, value, args, kwargs)
        except (KeyError, NotImplementedError, TypeError) as error:
            if fun is not call_ruled:  # what that raises is the user's, or says what is missing
                explain(error, fun, parent_argnums)
            raise

    def initialize_root(self):
        self.parents = ()
        self.pullback = None


def pullback_of(fun: Callable, argnums: tuple, value: Any, args: tuple, kwargs: dict) -> Callable:
    """The pullback of a primitive, for the arguments ``argnums`` of one call."""
    return TapeNode(value, fun, args, kwargs, argnums, ()).pullback


def missing(fun: Callable, argnums: tuple) -> Callable:
    raise NotImplementedError(missing_rule(fun, argnums))


def explain(error: Exception, fun: Callable, argnums: tuple) -> None:
    """Raises a clearer error where a rule has failed since it is not made for a call."""
    if isinstance(error, NotImplementedError) or (
        isinstance(error, KeyError) and error.args[0] in argnums
    ):
        raise NotImplementedError(missing_rule(fun, argnums)) from error
    if isinstance(error, TypeError) and "argument" in str(error):
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

    __slots__ = ("_ends", "_order", "_roots")

    pickler = TapePickler

    def __init__(self, roots: Sequence[TapeNode], ends: Sequence[TapeNode | None]):
        self._order = backward_order([end for end in ends if end is not None])
        require_own_roots(self._order, roots)
        self._ends = ends
        self._roots = roots

    def __len__(self) -> int:
        return len(self._order)

    @property
    def steps(self) -> int:
        """How many operations were recorded."""
        return len(self._order)

    def __reduce__(self) -> tuple:
        """Flat, as the tape is: a chain of nodes that hold each other is too deep for a pickle."""
        nodes = list(dict.fromkeys([*self._order, *self._roots]))
        places = {node: place for place, node in enumerate(nodes)}
        parents = [[places[parent] for parent in node.parents] for node in nodes]
        ends = [None if end is None else places[end] for end in self._ends]
        roots = [places[root] for root in self._roots]
        pullbacks = [node.pullback for node in nodes]
        return made_tape, (parents, pullbacks, len(self._order), ends, roots)

    def pull(self, cotangents: Sequence[Any]) -> list[Any]:
        """One cotangent (or None) an output in, one an array out; None where nothing arrived."""
        return self._pulled(cotangents, Cotangents())

    def pull_rows(self, cotangents: Sequence[Any]) -> list[Any]:
        """The same, with ``Rows`` in the place of large arrays of which few were used."""
        pulled = self._pulled(cotangents, Cotangents(set(self._roots)))
        return [each.total() if type(each) is Pieces else each for each in pulled]

    def _pulled(self, cotangents: Sequence[Any], sums: "Cotangents") -> list[Any]:
        arrived = sums.value
        for end, cotangent in zip(self._ends, cotangents, strict=True):
            if end is not None and cotangent is not None:
                sums.add(end, cotangent)
        for node in self._order:
            if node.pullback is None or node not in arrived:
                continue
            for parent, cotangent in zip(
                node.parents, node.pullback(arrived.pop(node)), strict=True
            ):
                if type(cotangent) in PLAIN and parent not in arrived:
                    arrived[parent] = cotangent
                elif cotangent is not None:
                    sums.add(parent, cotangent)
        return [arrived.get(root) for root in self._roots]

    def held_arrays(self) -> list[np.ndarray]:
        """The arrays that the pullbacks keep alive, each once; a view counts as its owner."""
        return arrays_within([node.pullback for node in self._order])


def made_tape(
    parents: Sequence[Sequence[int]],
    pullbacks: Sequence[Callable | None],
    length: int,
    ends: Sequence[int | None],
    roots: Sequence[int],
) -> Tape:
    """A tape from its parts: the nodes by their places, those of the backward pass first."""
    nodes = [TapeNode.__new__(TapeNode) for _ in pullbacks]
    for node, places, pullback in zip(nodes, parents, pullbacks, strict=True):
        node.parents = tuple([nodes[place] for place in places])
        node.pullback = pullback
    tape = Tape.__new__(Tape)
    tape._order = nodes[:length]
    tape._ends = [None if place is None else nodes[place] for place in ends]
    tape._roots = [nodes[place] for place in roots]
    return tape


def require_own_roots(order: Sequence[TapeNode], roots: Sequence[TapeNode]) -> None:
    """Whatever the outputs depend on began at the roots; a copy of a box began elsewhere."""
    beginnings = {node for node in order if node.pullback is None}
    if not beginnings.issubset(roots):
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
    it was given (that of ``a + 1.0`` does). At the nodes ``in_pieces`` pieces stay such, as long as
    nothing else arrives.
    """

    __slots__ = ("_in_pieces", "_ours", "value")

    def __init__(self, in_pieces: Container[TapeNode] = ()) -> None:
        self.value: dict[TapeNode, Any] = {}
        self._ours: set[TapeNode] = set()
        self._in_pieces = in_pieces

    def add(self, node: TapeNode, cotangent: Any) -> None:
        previous = self.value.get(node)
        if type(previous) is Pieces and type(cotangent) is not Piece:
            previous = previous.dense()
            self._put(node, previous, True)
        if type(cotangent) is Piece:
            self._add_piece(node, previous, cotangent)
        elif isbox(previous) or type(cotangent) in sparse_object_types or isbox(cotangent):
            flagged = None if previous is None else (previous, node in self._ours)
            self._put(node, *add_outgrads(flagged, cotangent))
        elif previous is None:
            self.value[node] = cotangent
        else:
            self._put(node, self._add_dense(previous, cotangent, node in self._ours), True)

    def _put(self, node: TapeNode, value: Any, ours: bool) -> None:
        self.value[node] = value
        if ours:
            self._ours.add(node)
        else:
            self._ours.discard(node)

    def _add_piece(self, node: TapeNode, previous: Any, piece: Piece) -> None:
        if isbox(previous):
            return self.add(node, untake(piece.g, piece.index, piece.space))
        if type(previous) is Pieces:
            return previous.append(piece)
        if previous is None and node in self._in_pieces:
            self.value[node] = Pieces([piece])
            return
        if previous is None:
            previous = piece.space.zeros()
        elif node not in self._ours or not isinstance(previous, np.ndarray):
            previous = np.asarray(piece.space.zeros() + previous)
        self._put(node, piece.add_into(previous), True)

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
    if isinstance(thing, Tape):  # of the residual of a root
        return [node.pullback for node in thing._order]
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
