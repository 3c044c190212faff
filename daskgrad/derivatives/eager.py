"""Eager: value and gradient of an objective whose models run when they are called.

Which way an evaluation goes is decided before it begins, by what is known of the one before.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from types import FunctionType
from typing import Any, NamedTuple

import numpy as np

from daskgrad.autodiff.models import blas
from daskgrad.autodiff.models.as_called import UsersRun
from daskgrad.autodiff.models.finite import is_debugging, is_required
from daskgrad.autodiff.models.model import Model, identity, inside_model
from daskgrad.autodiff.tape.boxes import ArrayBox
from daskgrad.autodiff.tape.numpy_warnings import naming
from daskgrad.autodiff.tape.questions import answer, answer_arguments
from daskgrad.autodiff.values import cotangents
from daskgrad.autodiff.values.carriers import drop_oldest
from daskgrad.autodiff.values.cotangents import Cotangent, is_differentiable
from daskgrad.autodiff.values.descriptions import argument_name, is_number, require_pair
from daskgrad.autodiff.values.memory import of_its_own
from daskgrad.autodiff.values.trees import flatten, held_by, map_leaves, unflatten
from daskgrad.derivatives.in_line import LARGE, GraphKey, key_of, run_here, stays
from daskgrad.derivatives.inputs import (
    Argnums,
    RowsWanted,
    require_argnums,
    require_derivative,
    require_no_node,
    require_real_scalar,
    warn_of_independent,
)
from daskgrad.derivatives.recording import RecordedFunction, take_cotangent
from daskgrad.derivatives.storage import require_storage
from daskgrad.graph.activity import Graph
from daskgrad.graph.eager import EagerTape
from daskgrad.graph.expressions import ExpressionNode
from daskgrad.graph.nodes import CallNode, Constant, ItemNode, Node
from daskgrad.graph.stopping import StopGradient
from daskgrad.graph.sum_of_nodes import SumNode
from daskgrad.graph.sweep import Sweep
from daskgrad.graph.variables import Variable, checked_leaf
from daskgrad.sums.item_sum import ReductionNode
from daskgrad.sums.sources import Source
from daskgrad.tasks import observers
from daskgrad.tasks.clients import is_in_line

CALLS = {CallNode, ExpressionNode, ItemNode}
NODES = {*CALLS, Variable, Constant, StopGradient, SumNode, ReductionNode}
MOST_KNOWN = 1024  # functions


class GraphFacts(NamedTuple):
    """The things that an eager evaluation needs to know, from a recorded one.

    ``measured``: where times are kept. ``is_chain``: no model ran beside another, so that BLAS had
    all of its threads. ``takes_apart``: see ``EagerTape``.
    """

    measured: GraphKey
    is_chain: bool
    takes_apart: bool


class EagerObjective:
    """Value and gradient of a function, by eager evaluations if these can do it."""

    def __init__(
        self, fun: Callable, name: str, argnums: Argnums, has_aux: bool, sparse: RowsWanted
    ):
        self._fun, self._name, self._argnums = fun, name, argnums
        self._has_aux, self._sparse = has_aux, sparse
        self._key = identity(Model(fun, name)), tuple(np.ravel(argnums)), has_aux, sparse

    def __reduce__(self) -> tuple:
        return EagerObjective, (self._fun, self._name, self._argnums, self._has_aux, self._sparse)

    def key_at(self, args: Sequence[Any]) -> tuple:
        """The key of calls on arguments of these sizes, with such data in the function."""
        data = held_by(self._fun) if type(self._fun) is FunctionType else ()
        return self._key, tuple([size_of(thing) for thing in (*args, *data)])

    @staticmethod
    def known(key: tuple) -> GraphFacts | None:
        """The facts for the next evaluation; None if it is to be recorded."""
        known = _known.get(key)
        if known is None or not is_in_line() or observers.observers or inside_model():
            return None
        if is_debugging() or is_required() or not stays(known.measured):
            return None
        return known

    @staticmethod
    def note(key: tuple, recorded: RecordedFunction, known: GraphFacts | None) -> None:
        """Notes what is known after a recorded evaluation; None: the next one is recorded, too."""
        if known is None or recorded.is_kept or _refused.get(key) == known:
            _known.pop(key, None)
        else:
            _known[key] = known
            drop_oldest(_known, MOST_KNOWN)

    def value_and_gradients(
        self, key: tuple, known: GraphFacts, args: Sequence[Any], kwargs: dict[str, Any], out: Any
    ) -> tuple[Any, Any, list[Any]] | None:
        """The value, the auxiliary and the gradients; None if the evaluation is to be recorded.

        An error of a model is raised. After any other error the function is recorded, which may
        serve it, and has errors of its own.
        """
        tape = EagerTape(known.takes_apart)
        recording = UsersRun(tape)

        def evaluate() -> Any:
            with blas.threads(known.is_chain):
                return naming(self._evaluate, tape, known, args, kwargs, out)

        try:
            return run_here(
                known.measured, lambda: recording.run(evaluate), lambda: tape.largest >= LARGE
            )
        except Exception as error:
            if error is tape.failure:
                raise
            _refused[key] = _known.pop(key, known)
            drop_oldest(_refused, MOST_KNOWN)
            return None
        finally:
            tape.close()

    def _evaluate(
        self,
        tape: EagerTape,
        known: GraphFacts,
        args: Sequence[Any],
        kwargs: dict[str, Any],
        out: Any,
    ) -> tuple[Any, Any, list[Any]]:
        name, arguments, variables = self._name, list(args), []
        for number in require_argnums(self._argnums, len(args), name):
            argument = argument_name(self._fun, number)
            require_no_node(args[number], argument)
            require_derivative(args[number], argument, name)
            leaves, structure = flatten(args[number])
            leaves = [checked_leaf(leaf, argument, copy=False) for leaf in leaves]
            boxes = [tape.variable(leaf) if is_differentiable(leaf) else leaf for leaf in leaves]
            arguments[number] = unflatten(structure, boxes)
            nodes = [box._node if type(box) is ArrayBox else None for box in boxes]
            variables.append((argument, leaves, structure, nodes))
        if out is not None:
            primals = [unflatten(structure, leaves) for _, leaves, structure, _ in variables]
            require_storage(out, primals, self._argnums, (args, kwargs), name)
        answer(self._fun)
        answer_arguments(arguments)
        output, aux = tape.trace.run(lambda: self._fun(*arguments, **kwargs)), None
        if self._has_aux:
            output, aux = require_pair(output, name)
            aux = map_leaves(plain_leaf, aux)
        value, arrived = self._pull(tape, known, output)
        if tape.refusal is not None:  # which the function has handled
            raise tape.refusal
        gradients, independent = [], []
        for argument, leaves, structure, nodes in variables:
            of_leaves = tuple([take(arrived, node) for node in nodes])
            if cotangents.is_zero(of_leaves):
                independent.append(argument)
            gradients.append(cotangents.gradient(leaves, structure, of_leaves))
        warn_of_independent(independent, name)
        return value, aux, gradients

    def _pull(
        self, tape: EagerTape, known: GraphFacts, output: Any
    ) -> tuple[Any, dict[Any, Cotangent]]:
        """The value of the output, and the cotangents that arrive at variables."""
        end = tape.trace.node_of(output) if type(output) is ArrayBox else None
        if end is None:
            if not is_number(output) or tape.has_constant_calls:
                tape.refuse("an output without derivative")
            return np.float64(output), {}
        require_real_scalar(end.value, self._name)
        value, sweep = np.asarray(end.value)[()], Sweep(end, tape.run)
        is_chain = sweep.is_chain and not tape.has_constant_calls
        is_other = is_chain != known.is_chain and (known.is_chain or not tape.has_containers)
        if is_other or not sweep.is_as_moved:
            tape.refuse("another order of models")
        tape.require_unchanged()
        return value, {node: Cotangent((leaf,)) for node, leaf in sweep.pull().items()}


def size_of(thing: Any) -> int:
    """The bytes of an array, or the length of a container."""
    kind = type(thing)
    if kind is np.ndarray:
        return thing.nbytes
    return len(thing) if kind is list or kind is tuple or kind is dict else 0


_known: dict[Any, GraphFacts] = {}  # objectives whose next evaluation is eager
_refused: dict[Any, GraphFacts] = {}  # and objectives that had to be recorded


def take(arrived: dict[Any, Cotangent], node: Any) -> Any:
    """The cotangent that has arrived at a leaf; the caller owns it."""
    return take_cotangent(arrived, node).leaves[0] if node in arrived else None


def plain_leaf(leaf: Any) -> Any:
    return of_its_own(leaf._value) if type(leaf) is ArrayBox else leaf


# ---------------------------------------------------------------- which graphs, once recorded


def known_of(recorded: RecordedFunction, graph: Graph) -> GraphFacts | None:
    """The facts of an evaluation; None if an eager one could not do all that it has done."""
    if recorded.has_computed or not is_in_line():
        return None
    if not all(map(is_usual, graph.order)):
        return None
    if has_overlaps([node for node in graph.order if isinstance(node, Variable)]):
        return None
    return GraphFacts(key_of(graph), graph.is_chain, has_items_apart(graph))


def is_usual(node: Node) -> bool:
    """Whether an eager evaluation has the like of a node."""
    if type(node) not in NODES or node.annotations or node.is_settled or node.asked:
        return False
    if type(node) is Constant:
        return isinstance(node.value, np.ndarray)
    if type(node) is Variable:
        return node.is_here
    if type(node) is ReductionNode:
        sources = node.items.sources
        return {Source}.issuperset(map(type, sources)) and node.items.is_here and not node.own
    return node.model is None or node.model.keep != "recompute"


def has_overlaps(variables: Sequence[Variable]) -> bool:
    """Whether a container is used whole and in parts, whose cotangents are added up apart."""
    parts = [variable for variable in variables if variable.root is not variable]
    whole = set(variables)
    return any([not whole.isdisjoint(part.containers) for part in parts])


def has_items_apart(graph: Graph) -> bool:
    """Whether a value may be a container that is used whole and in parts, or a part twice."""
    uses: dict[Node, list[Any]] = defaultdict(list)
    apart = set()
    for node in graph.order:
        is_item = type(node) is ItemNode
        for source in node.inputs:
            if is_item:
                apart.add(source)
            uses[source].append(repr(node.call.leaves[-1]) if is_item else None)
    return any([None in uses[node] or len(set(uses[node])) < len(uses[node]) for node in apart])
