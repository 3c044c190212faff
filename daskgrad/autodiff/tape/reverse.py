"""Reverse mode: a flat tape of autograd's record of one call.

Each array has its own box (autograd would make a box of a dict or tuple dense at every use). The
tape is a list of nodes in the order of autograd's backward pass, so that cotangents are added in
the same order and have the same bits.
"""

import functools
import threading
import types
from collections.abc import Callable, Collection, Container, Iterable, Sequence
from typing import Any

import numpy as np
from autograd.core import add_outgrads, primitive_vjps, sparse_object_types, vspace
from autograd.numpy.numpy_boxes import ArrayBox
from autograd.tracer import Node, isbox, new_box, notrace_primitives
from numpy import float64, ndarray

from daskgrad.autodiff.rules import python_numbers
from daskgrad.autodiff.rules.declaration import (
    DECLARED,
    Declaration,
    explain,
    is_plain,
    is_recorded,
    missing,
    on_numpys,
    plain,
    require_derivative,
    require_seen,
    settle,
    without_derivative,
)
from daskgrad.autodiff.rules.indexing import (
    Scatter,
    ScatterOfRows,
    Scatters,
    Selection,
    Transposition,
)
from daskgrad.autodiff.rules.math_elementwise import ARITHMETIC
from daskgrad.autodiff.tape.boxes import (
    INTEGERS,
    integer_pullback,
    kept_value_error,
    kind_of,
    live,
    place_here,
    real_part,
    require_live,
    trace_numbers,
)
from daskgrad.autodiff.tape.numpy_warnings import naming
from daskgrad.autodiff.tape.operands import FIXED, MAKERS, WITHOUT, Operands
from daskgrad.autodiff.tape.pickling import TapePickler
from daskgrad.autodiff.tape.rule_calls import call_rule
from daskgrad.autodiff.values.rows import Rows
from daskgrad.autodiff.values.trees import LEAF_TYPES, held_by, substitute

LEAF_TYPES.add(ArrayBox)  # optree would find this, too, in ten times the time

RULES: dict[Callable, Callable] = {}  # declared rules of the primitives used so far


class TapeNode(Node):
    """One primitive that ran, and its pullback; ``is_real``: so are its value and cotangent."""

    __slots__ = ("is_real", "parents", "pullback", "trace")

    is_real: bool
    parents: Any
    pullback: Any
    trace: int

    def __init__(self, value, fun, args, kwargs, parent_argnums, parents):
        self.parents = parents
        if parents:
            self.trace = trace = parents[0].trace
            if trace not in live:
                raise kept_value_error(f"np.{getattr(fun, '__name__', fun)}")
            operands = live[trace]
            if operands is not None and fun not in WITHOUT:
                if len(parents) < len(args):
                    for place, arg in enumerate(args):
                        if type(arg) not in FIXED and place not in parent_argnums:
                            args = operands.taken(fun, args, parent_argnums)
                            break
                if kwargs:
                    kwargs = operands.of(kwargs)
        rule = RULES.get(fun) or rule_of(fun, parent_argnums)
        if kwargs:
            require_seen(fun, kwargs)
        if type(value) is float64 or (type(value) is ndarray and value.dtype.kind == "f"):
            self.is_real = True  # most are recognised without a call
        else:
            kind = kind_of(value)
            self.is_real = kind == "f"
            if kind in INTEGERS:
                self.parents, self.pullback = (), integer_pullback
                return
        try:
            self.pullback = rule(parent_argnums, value, args, kwargs)
        except (KeyError, NotImplementedError, TypeError) as error:
            if fun is not call_rule:  # its errors are the user's, or clear already
                explain(error, fun, parent_argnums)
            raise

    def initialize_root(self, value, trace):
        self.trace = trace
        self.is_real = kind_of(value) == "f"
        self.parents = ()
        self.pullback = None


class PlacedNode(TapeNode):
    """A node that knows the file and line of the model that called its primitive."""

    __slots__ = ("place",)

    def __init__(self, *args: Any):
        super().__init__(*args)
        self.place = place_here()


def make_box(number: int) -> Any:
    """A box of a trace of that number."""
    array = np.ones(Operands.small)
    return new_box(array, number, TapeNode.new_root(array, number))


MAKERS.append(make_box)


def pullback_of(fun: Callable, argnums: tuple, value: Any, args: tuple, kwargs: dict) -> Callable:
    """The pullback of a primitive, for the arguments ``argnums`` of one call."""
    return TapeNode(value, fun, args, kwargs, argnums, ()).pullback


def rule_of(fun: Callable, argnums: tuple) -> Callable:
    """The rule of a primitive that is new, or has autograd's rule."""
    settle()
    known = DECLARED.get(fun)
    if known is not None and (known.adjoint or known.program or known.refused):
        rule = declared_rule(fun, known)
        if fun not in ARITHMETIC and fun not in python_numbers.PRIMITIVES:
            rule = on_numpys(rule)
        RULES[fun] = rule
        return rule
    return on_numpys(primitive_vjps.get(fun) or missing(fun, argnums))


def trace(
    fun: Callable[..., Sequence[Any]], arrays: Sequence[Any], node_type: type[TapeNode] = TapeNode
) -> tuple[list[Any], "AutogradTape"]:
    """Runs ``fun`` once; returns its outputs and the tape (see ``autodiff.libraries.registry``)."""
    return trace_with(Operands(fun), fun, arrays, node_type)


def trace_with(
    operands: Operands | None,
    fun: Callable[..., Sequence[Any]],
    arrays: Sequence[Any],
    node_type: type[TapeNode] = TapeNode,
) -> tuple[list[Any], "AutogradTape"]:
    """As ``trace``; ``operands`` is None if nobody changes them: for code of the package."""
    number = trace_numbers.next_number()
    notrace_primitives[node_type] = without_derivative()
    roots = [node_type.new_root(array, number) for array in arrays]
    outputs, ends = run_on_boxes(fun, arrays, roots, number, operands)
    return outputs, AutogradTape(roots, ends, operands)


def run_on_boxes(
    fun: Callable[..., Sequence[Any]],
    arrays: Sequence[Any],
    roots: Sequence[Any],
    number: int,
    operands: Operands | None,
) -> tuple[list[Any], list[Any]]:
    """Runs ``fun`` in the trace of that number; returns its outputs, and for each its node or
    None."""
    live[number] = operands
    try:
        boxes = [new_box(array, number, root) for array, root in zip(arrays, roots, strict=True)]
        returned = naming(fun, *boxes)
    except BaseException as error:
        if operands is not None:
            operands.explain(error)
            for lock in operands.locks:
                lock.release()  # the traceback may live on
        raise
    finally:
        del live[number]
    outputs, ends = [], []
    for output in returned:
        ours = isbox(output) and output._trace == number
        if isbox(output) and not ours:
            require_live(output, "what the model returns")
        outputs.append(output._value if ours else output)
        ends.append(output._node if ours else None)
    return outputs, ends


class Taken(threading.local):
    """The number of steps on this thread's tapes."""

    steps = 0


taken = Taken()


class AutogradTape:
    """The record of one call; ``pull`` maps cotangents of outputs to cotangents of arrays."""

    __slots__ = ("ends", "locks", "order", "roots")

    pickler = TapePickler

    def __init__(
        self,
        roots: Sequence[TapeNode],
        ends: Sequence[TapeNode | None],
        operands: Operands | None = None,
    ):
        self.locks = operands.locks if operands is not None else ()
        self.order = backward_order([end for end in ends if end is not None])
        taken.steps += len(self.order)
        beginnings = {node for node in self.order if node.pullback is None}
        if not beginnings.issubset(roots):
            raise copied_box_error()
        self.ends = ends
        self.roots = roots

    @property
    def steps(self) -> int:
        """The number of recorded operations."""
        return len(self.order)

    def __reduce__(self) -> tuple:
        """As flat lists: a chain of nodes that refer to each other is too deep for pickle."""
        nodes = list(dict.fromkeys([*self.order, *self.roots]))
        places: dict[Any, int] = {node: place for place, node in enumerate(nodes)}
        records = [
            (node.pullback, node.is_real, [places[parent] for parent in node.parents])
            for node in nodes
        ]
        roots = [places[root] for root in self.roots]
        return make_tape, (records, roots, [places.get(end) for end in self.ends])

    def pull(self, cotangents: Sequence[Any]) -> list[Any]:
        """Maps a cotangent (or None) per output to one per array; None where nothing arrived."""
        sums = Cotangents()
        naming(pull_nodes, self.order, sums, zip(self.ends, cotangents, strict=True))
        return [sums.value.get(root) for root in self.roots]

    def pull_rows(
        self, cotangents: Sequence[Any], asked: Collection[int] = (), is_term: bool = False
    ) -> list[Any]:
        """Maps as ``pull``, to ``Rows`` for the arrays ``asked`` if only selections use them;
        ``is_term``: also for other large arrays with few used rows."""
        kept = self._kept([self.roots[number] for number in asked])
        sums = Cotangents(kept.union(self.roots) if is_term else kept)
        naming(pull_nodes, self.order, sums, zip(self.ends, cotangents, strict=True))
        pulled = [sums.value.get(root) for root in self.roots]
        for number, cotangent in enumerate(pulled):
            if type(cotangent) is Scatters:
                pulled[number] = cotangent.asked() if number in asked else cotangent.total()
        return pulled

    def _kept(self, asked: Iterable[TapeNode]) -> set[TapeNode]:
        """The arrays asked for, and the selections and transposes of them."""
        kept = set(asked)
        if kept:
            for node in reversed(self.order):
                if isinstance(node.pullback, Selection | Transposition) and node.parents[0] in kept:
                    kept.add(node)
        return kept

    def held_arrays(self) -> list[np.ndarray]:
        """The arrays that the pullbacks keep alive, each once; a view counts as its owner."""
        return arrays_within([node.pullback for node in self.order])


def pull_scatters(pullback: Any, scatters: Scatters) -> tuple:
    """Pulls rows back through a selection or a transpose."""
    rows = scatters.asked()
    return pullback.of_rows(rows) if isinstance(rows, Rows) else pullback(rows)


def make_tape(
    records: Sequence[tuple], roots: Sequence[int], ends: Sequence[int | None]
) -> AutogradTape:
    """A tape from its parts: records of its nodes, and the places of roots and ends among them."""
    nodes = [TapeNode.__new__(TapeNode) for _ in records]
    for node, (pullback, is_real, parents) in zip(nodes, records, strict=True):
        node.pullback = pullback
        node.is_real = is_real
        node.parents = tuple([nodes[place] for place in parents])
    of_outputs = [None if place is None else nodes[place] for place in ends]
    return AutogradTape([nodes[place] for place in roots], of_outputs)


def copied_box_error() -> TypeError:
    return TypeError(
        "an ArrayBox was copied with copy.deepcopy or pickle, so the copy has no derivative; copy "
        "arrays with np.array(x)"
    )


NUMBERS = (np.ndarray, np.generic, float, complex, int)


class Cotangents:
    """The cotangents of a tape's nodes while it is pulled back; it adds in place only into its own
    arrays, since a pullback may return its argument. Scatters stay apart at the nodes
    ``scattered``."""

    __slots__ = ("_ours", "_scattered", "value")

    def __init__(self, scattered: Container[TapeNode] = ()) -> None:
        self.value: dict[TapeNode, Any] = {}
        self._ours: set[TapeNode] = set()
        self._scattered = scattered

    def add(self, node: TapeNode, cotangent: Any) -> None:
        previous = self.value.get(node)
        if type(cotangent) is Scatter or type(cotangent) is ScatterOfRows:
            return self._add_scatter(node, previous, cotangent)
        if type(previous) is Scatters:
            previous = previous.dense()
            self._put(node, previous, True)
        if node.is_real:
            cotangent = real_part(cotangent)
        if isinstance(cotangent, NUMBERS) and (previous is None or isinstance(previous, NUMBERS)):
            self.add_dense(node, previous, cotangent)
        else:
            self._add_by_space(node, previous, cotangent)

    def _put(self, node: TapeNode, value: Any, ours: bool) -> None:
        self.value[node] = value
        if ours:
            self._ours.add(node)
        else:
            self._ours.discard(node)

    def _add_scatter(self, node: TapeNode, previous: Any, scatter: Any) -> None:
        if isbox(previous) and not is_plain(previous):
            return self.add(node, scatter.differentiable())
        if type(previous) is Scatters:
            return previous.append(scatter)
        if previous is None and node in self._scattered:
            self.value[node] = Scatters([scatter])
            return
        if previous is None:
            previous = scatter.space.zeros()
        elif node not in self._ours or not isinstance(previous, np.ndarray):
            previous = scatter.space.zeros() + previous
            previous = previous if isinstance(previous, np.ndarray) else np.asarray(previous)
        self._put(node, scatter.add_into(previous), True)

    def add_dense(self, node: TapeNode, previous: Any, cotangent: Any) -> None:
        """Adds a number or array to a number, an array or nothing; a real one to a real node."""
        if previous is None:
            self.value[node] = cotangent
        elif node in self._ours and isinstance(previous, np.ndarray):
            self._put(node, add_in_place(previous, cotangent), True)
        else:
            self._put(node, previous + cotangent, True)

    def _add_by_space(self, node: TapeNode, previous: Any, cotangent: Any) -> None:
        """Boxes, sparse objects and containers are added by autograd's vector spaces."""
        is_ours = node in self._ours and not is_recorded(cotangent)
        if type(cotangent) in sparse_object_types and isinstance(previous, np.ndarray):
            space = vspace(cotangent)  # autograd would add into an array of its dtype
            if np.result_type(space.dtype, previous.dtype) != space.dtype:
                previous, is_ours = space.zeros() + previous, True
        flagged = None if previous is None else (previous, is_ours)
        self._put(node, *add_outgrads(flagged, cotangent))


def add_in_place(array: np.ndarray, cotangent: Any) -> Any:
    try:
        array += cotangent
    except TypeError:  # complex does not go into real: the sum is complex
        return array + cotangent
    return array


def pull_nodes(
    order: Iterable[TapeNode], sums: "Cotangents", seeds: Iterable[tuple[TapeNode | None, Any]] = ()
) -> None:
    """Adds the seeds to the cotangents of their nodes, and pulls all back to the nodes' parents."""
    for end, cotangent in seeds:
        if end is not None and cotangent is not None:
            sums.add(end, cotangent)
    arrived = sums.value
    for node in order:
        if node.pullback is None or node not in arrived:
            continue
        g = arrived.pop(node)
        pulled = pull_scatters(node.pullback, g) if type(g) is Scatters else node.pullback(g)
        del g  # its memory is free for what is added up now
        for parent, cotangent in zip(node.parents, pulled, strict=True):
            kind = type(cotangent)  # most are recognised without a call
            is_real = kind is float64 or (kind is ndarray and cotangent.dtype.kind == "f")
            if is_real and parent not in arrived:
                arrived[parent] = cotangent
            elif is_real and type(arrived[parent]) is ndarray:  # ``add`` would find the same
                sums.add_dense(parent, arrived[parent], cotangent)
            elif cotangent is not None:
                sums.add(parent, cotangent)


def backward_order(
    ends: Iterable[TapeNode], among: Container[TapeNode] | None = None
) -> list[TapeNode]:
    """Every node that the ends depend on, each after all its children, in autograd's order.

    ``among``: leaves out all other nodes.
    """
    children = dict.fromkeys(ends, 0)
    ends, waiting = list(children), list(children)
    while waiting:
        for parent in waiting.pop().parents:
            if parent in children:
                children[parent] += 1
            elif among is None or parent in among:
                children[parent] = 1
                waiting.append(parent)
    ready = [end for end in ends if not children[end]]
    order = []
    while ready:
        node = ready.pop()
        order.append(node)
        for parent in node.parents:
            if parent in children:
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
    if isinstance(thing, AutogradTape):  # of the residual of a root
        return [node.pullback for node in thing.order]
    if isinstance(thing, Selection):
        return [thing.index]
    if hasattr(thing, "tocsr"):  # SciPy's sparse matrices have their arrays as attributes
        return list(vars(thing).values())
    return held_by(thing) if isinstance(thing, types.FunctionType) else ()


# ----------------------------------------------------------------------------- declared rules


def declared_rule(fun: Callable, known: Declaration) -> Callable:
    otherwise = known.adjoint or primitive_vjps.get(fun)
    if otherwise and not known.program and not known.refused:
        return otherwise

    def rule(argnums: tuple, ans: Any, args: tuple, kwargs: dict) -> Callable[[Any], tuple]:
        if known.refused:
            require_derivative(fun, argnums)
        if known.program and is_replaced(fun, known, argnums, args, kwargs):
            return program_pullback(known.program, argnums, ans, args, kwargs)
        return (otherwise or missing(fun, argnums))(argnums, ans, args, kwargs)

    return rule


def is_replaced(
    fun: Callable, known: Declaration, argnums: tuple, args: tuple, kwargs: dict
) -> bool:
    """Whether the program stands for a call; it has no derivative by other arguments."""
    if argnums[-1] >= known.arrays:
        missing(fun, argnums)
    return known.needed(*args, **kwargs)


def program_pullback(
    program: Callable, argnums: tuple, ans: Any, args: tuple, kwargs: dict
) -> Callable[[Any], tuple]:
    """The pullback of a program, which is traced now."""
    active = [args[argnum] for argnum in argnums]
    outputs, tape = trace_with(None, program_of(program, argnums, args, kwargs), active)
    is_list, count = isinstance(plain(ans), list | tuple), len(outputs)
    spaces = [vspace(array) for array in active]

    def pull_program(g: Any) -> tuple:
        gs = [g[n] for n in range(count)] if is_list else [g]
        pairs = zip(spaces, tape.pull(gs), strict=True)
        return tuple([space.zeros() if pulled is None else pulled for space, pulled in pairs])

    return pull_program


def program_of(program: Callable, argnums: tuple, args: tuple, kwargs: dict) -> Callable:
    """A program as a function of the arguments ``argnums``, with its outputs in a list."""

    def outputs_of(*active: Any) -> list[Any]:
        value = program(*substitute(args, argnums, active), **kwargs)
        is_list = isinstance(plain(value), list)
        return [value[n] for n in range(len(plain(value)))] if is_list else [value]

    return outputs_of
