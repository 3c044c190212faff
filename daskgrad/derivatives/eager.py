"""Eager: derivatives of a function whose models run when they are called.

Which way an evaluation goes is decided before it begins, by what is known of the one before.
"""

import functools
import weakref
from collections import defaultdict
from collections.abc import Callable, Sequence
from types import FunctionType, MethodType, NoneType
from typing import Any, NamedTuple

import numpy as np

from daskgrad.autodiff.models import blas
from daskgrad.autodiff.models.as_called import UsersRun
from daskgrad.autodiff.models.finite import is_debugging, is_required
from daskgrad.autodiff.models.model import Model, identity, inside_model
from daskgrad.autodiff.models.tracing import SEED
from daskgrad.autodiff.tape.boxes import TAPE_BOXES
from daskgrad.autodiff.tape.numpy_warnings import naming
from daskgrad.autodiff.tape.outer import OuterNode
from daskgrad.autodiff.tape.questions import answer, answer_arguments
from daskgrad.autodiff.values import cotangents
from daskgrad.autodiff.values.carriers import drop_oldest
from daskgrad.autodiff.values.cotangents import Cotangent, is_differentiable
from daskgrad.autodiff.values.descriptions import argument_name, is_number, require_pair
from daskgrad.autodiff.values.elsewhere import replicated
from daskgrad.autodiff.values.memory import of_its_own, row_major
from daskgrad.autodiff.values.trees import LEAF, flatten, held_by, map_leaves, unflatten
from daskgrad.derivatives.in_line import (
    LARGE,
    GraphKey,
    key_of,
    note_failure,
    run_here,
    spares_cluster,
    stays,
)
from daskgrad.derivatives.inputs import (
    Argnums,
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
from daskgrad.tasks.clients import active_client, is_in_line, may_spare_cluster

CALLS = {CallNode, ExpressionNode, ItemNode}
NODES = {*CALLS, Variable, Constant, StopGradient, SumNode, ReductionNode}
CALLS_OF_MODELS = {CallNode, ReductionNode}
MOST_KNOWN = 1024  # functions


class GraphFacts(NamedTuple):
    """The things that an eager evaluation needs to know, from a recorded one.

    ``measured``: where times are kept. ``is_chain``: no model ran beside another, so that BLAS had
    all of its threads. ``takes_apart``: see ``EagerTape``. ``models``: the names of those that were
    called, and ``identities``. ``function``: whose facts these are, once they are noted.
    ``spares_cluster``: see ``in_line``.
    """

    measured: GraphKey
    is_chain: bool
    takes_apart: bool
    models: tuple[str, ...]
    identities: frozenset[Any]
    function: "FunctionReference | None" = None
    spares_cluster: bool = False

    def are_like(self, other: "GraphFacts | None") -> bool:
        return other is not None and self[:5] == other[:5]


class FunctionReference:
    """A weak reference to an eager function, and to the things, other than data, that its function
    holds. ``shape``: of the way back from its first eager evaluation."""

    shape: tuple[int, ...] | None = None

    def __init__(self, eager: "EagerFunction", fun: Any):
        self._eager, self._things = weakref.ref(eager), things_in(fun)

    def is_like(self, eager: "EagerFunction", fun: Any) -> bool:
        """Whether it is this one, or one of the same code and things, and maybe other data."""
        if self._eager() is eager:
            return True
        things = things_in(fun)
        if self._things is None or things is None or len(things) != len(self._things):
            return False
        pairs = zip(things, self._things, strict=True)
        return all([one is other and one() is not None for one, other in pairs])


DATA = (np.ndarray, np.generic, int, float, complex, str, bytes, NoneType)
CONTAINERS = (list, tuple, dict)
MOST_THINGS = 64  # that a function holds


def things_in(fun: Any) -> list[Any] | None:
    """Weak references, one to each of the things that a function holds, other than data; None if
    there are many, or if it holds one that has no weak reference."""
    things, references = [fun], list[Any]()
    for thing in things:  # it grows
        if thing is not fun and isinstance(thing, DATA):
            continue
        if len(things) > MOST_THINGS or (type(thing) in CONTAINERS and len(thing) > MOST_THINGS):
            return None
        if type(thing) is functools.partial:
            things += [thing.func, *thing.args, *thing.keywords.values()]
        elif type(thing) is MethodType:
            things += [thing.__func__, thing.__self__]
        elif type(thing) in CONTAINERS:
            things += thing.values() if type(thing) is dict else thing
        elif thing is fun and type(thing) is FunctionType:
            things += held_by(thing)
        else:
            try:
                references.append(weakref.ref(thing))
            except TypeError:
                return None
    return references


class EagerArgument(NamedTuple):
    """An argument to differentiate; ``nodes``: of its leaves, None without derivative."""

    number: int
    name: str
    leaves: list[Any]
    structure: Any
    boxed: Any
    nodes: list[Any]


class EagerFunction:
    """A function whose models can run when they are called; ``options``: of its derivative."""

    def __init__(self, fun: Callable, name: str, argnums: Argnums, *options: Any):
        self._fun, self._name, self._argnums, self._options = fun, name, argnums, options
        numbers = tuple(argnums) if isinstance(argnums, Sequence | np.ndarray) else (argnums,)
        self._key = identity(Model(fun, name)), numbers, *options

    def __reduce__(self) -> tuple:
        return type(self), (self._fun, self._name, self._argnums, *self._options)

    def key_at(self, args: Sequence[Any]) -> tuple:
        """The key of calls on arguments of these sizes, with such data in the function."""
        data = held_by(self._fun) if type(self._fun) is FunctionType else ()
        return self._key, tuple([size_of(thing) for thing in (*args, *data)])

    def known(self, key: tuple) -> GraphFacts | None:
        """The facts for the next evaluation; None if it is to be recorded."""
        known = _known.get(key)
        if known is None or observers.observers or inside_model() or is_debugging():
            return None
        if is_required():
            return None
        if is_in_line():
            return known if stays(known.measured) else None
        if replicated or not (spares_cluster(known.measured) and may_spare_cluster()):
            return None
        if known.function is None or not known.function.is_like(self, self._fun):
            return None
        if observers.audience(active_client()):  # the pages of its cluster are told of tasks
            return None
        return known._replace(spares_cluster=True)

    def note(self, key: tuple, recorded: RecordedFunction, known: GraphFacts | None) -> None:
        """Notes what is known after a recorded evaluation; None: the next one is recorded, too."""
        if known is None or recorded.is_kept or known.are_like(_refused.get(key)):
            _known.pop(key, None)
        else:
            _known[key] = known._replace(function=FunctionReference(self, self._fun))
            drop_oldest(_known, MOST_KNOWN)

    def _run(
        self, key: tuple, known: GraphFacts, tape: EagerTape, evaluate: Callable[[], Any]
    ) -> Any:
        """The result of an evaluation; None if it is to be recorded.

        An error of a model is raised, unless a cluster can tell whether the model needs a worker.
        After any other error the function is recorded, which may serve it, and has errors of its
        own.
        """
        recording = UsersRun(tape)

        def evaluate_with_names() -> Any:
            with blas.threads(known.is_chain):
                return naming(evaluate)

        try:
            result = run_here(
                known.measured,
                lambda: recording.run(evaluate_with_names),
                lambda: tape.largest >= LARGE,
            )
        except Exception as error:
            if error is tape.failure:
                if not known.spares_cluster:
                    raise
                note_failure(known.measured)
                return None
            facts = _known.pop(key, known)
            if not tape.is_of_another:
                _refused[key] = facts
                drop_oldest(_refused, MOST_KNOWN)
            return None
        if tape.failure is None or not known.spares_cluster:
            return result
        note_failure(known.measured)  # the function has handled the error
        return None

    def _arguments(self, tape: EagerTape, args: Sequence[Any], copy: bool) -> list[EagerArgument]:
        """The arguments to differentiate, in boxes."""
        arguments, name = [], self._name
        for number in require_argnums(self._argnums, len(args), name):
            argument = argument_name(self._fun, number)
            require_no_node(args[number], argument)
            require_derivative(args[number], argument, name)
            leaves, structure = flatten(args[number])
            leaves = [checked_leaf(leaf, argument, copy) for leaf in leaves]
            boxes = [tape.variable(leaf) if is_differentiable(leaf) else leaf for leaf in leaves]
            nodes = [box._node if type(box) in TAPE_BOXES else None for box in boxes]
            boxed = unflatten(structure, boxes)
            arguments.append(EagerArgument(number, argument, leaves, structure, boxed, nodes))
        return arguments

    def _output(
        self,
        tape: EagerTape,
        args: Sequence[Any],
        kwargs: dict[str, Any],
        arguments: Sequence[EagerArgument],
    ) -> Any:
        """The output of the function, in boxes."""
        values = list(args)
        for argument in arguments:
            values[argument.number] = argument.boxed
        answer(self._fun)
        answer_arguments(values)
        return tape.trace.run(lambda: self._fun(*values, **kwargs))

    def _sweep(
        self,
        tape: EagerTape,
        known: GraphFacts,
        ends: Sequence[OuterNode],
        arguments: Sequence[EagerArgument],
        is_kept: bool = False,
    ) -> Sweep:
        """The way back from the nodes of the output's leaves."""
        sweep = Sweep(ends, tape.run, is_kept)
        is_chain = sweep.is_chain and not tape.has_constant_calls
        is_other = is_chain != known.is_chain and (known.is_chain or not tape.has_containers)
        if is_other or not sweep.is_as_moved:
            tape.refuse("another order of models")
        containers = [argument.nodes for argument in arguments if argument.structure != LEAF]
        if (containers or tape.has_containers) and not self._is_known_as(known, sweep):
            if sweep.may_be_apart(containers):
                tape.is_of_another = True
                tape.refuse("another function, which may use containers whole and in parts,")
        tape.require_unchanged()
        return sweep

    def _is_known_as(self, known: GraphFacts, sweep: Sweep) -> bool:
        """Whether the function is the known one, and has gone the same way."""
        reference = known.function
        if reference is None or known.models != sweep.models:
            return False
        if reference.shape is None:
            reference.shape = sweep.shape
        return reference.shape == sweep.shape and reference.is_like(self, self._fun)

    def _gradients(
        self, arguments: Sequence[EagerArgument], arrived: dict[OuterNode, Cotangent]
    ) -> list[Any]:
        """The gradients, from the cotangents that have arrived at variables; warns of arguments
        without any."""
        gradients, independent = [], []
        for argument in arguments:
            leaves = tuple([take(arrived, node) for node in argument.nodes])
            if cotangents.is_zero(leaves):
                independent.append(argument.name)
            gradients.append(cotangents.gradient(argument.leaves, argument.structure, leaves))
        warn_of_independent(independent, self._name)
        return gradients


class EagerObjective(EagerFunction):
    """Value and gradient of a function, by eager evaluations if these can do it; its options are
    ``has_aux`` and the rows that are wanted."""

    def value_and_gradients(
        self, key: tuple, known: GraphFacts, args: Sequence[Any], kwargs: dict[str, Any], out: Any
    ) -> tuple[Any, Any, list[Any]] | None:
        """The value, the auxiliary and the gradients; None if the evaluation is to be recorded."""
        tape = EagerTape(known.takes_apart, known.identities if known.spares_cluster else None)
        try:
            return self._run(
                key, known, tape, lambda: self._evaluate(tape, known, args, kwargs, out)
            )
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
        arguments, has_aux = self._arguments(tape, args, copy=False), self._options[0]
        if out is not None:
            primals = [unflatten(one.structure, one.leaves) for one in arguments]
            require_storage(out, primals, self._argnums, (args, kwargs), self._name)
        output, aux = self._output(tape, args, kwargs, arguments), None
        if has_aux:
            output, aux = require_pair(output, self._name)
            aux = map_leaves(plain_leaf, aux)
        value, arrived = self._pull(tape, known, output, arguments)
        if tape.refusal is not None:  # which the function has handled
            raise tape.refusal
        return value, aux, self._gradients(arguments, arrived)

    def _pull(
        self, tape: EagerTape, known: GraphFacts, output: Any, arguments: Sequence[EagerArgument]
    ) -> tuple[Any, dict[OuterNode, Cotangent]]:
        """The value of the output, and the cotangents that arrive at variables."""
        end = tape.trace.node_of(output) if type(output) in TAPE_BOXES else None
        if end is None:
            if not is_number(output) or tape.has_constant_calls:
                tape.refuse("an output without derivative")
            return np.float64(output), {}
        require_real_scalar(end.value, self._name)
        value, sweep = np.asarray(end.value)[()], self._sweep(tape, known, [end], arguments)
        return value, sweep.pull([SEED.as_like(end.value)])


class EagerForwardPass:
    """A forward pass that has run, for the pullbacks of any number of cotangents.

    ``pull(cotangent)``: the cotangents of the primals; None for primals without derivative.
    """

    def __init__(self, value: Any, pull: Callable[[Cotangent], tuple], tape: EagerTape):
        self.value, self.pull, self._tape = value, pull, tape

    def __del__(self) -> None:
        self._tape.close()

    def pull_each(self, cotangents: Sequence[Cotangent]) -> list[tuple]:
        return list(map(self.pull, cotangents))


class EagerVjp(EagerFunction):
    """The forward pass of a function, if it can run eagerly; its option: the rows wanted."""

    def forward_pass(self, key: tuple, primals: Sequence[Any]) -> EagerForwardPass | None:
        """A forward pass that is held; None if the function is to be recorded."""
        known = self.known(key) if is_in_line() else None
        if known is None:
            return None
        tape = EagerTape(known.takes_apart)
        held = None
        try:
            held = self._run(key, known, tape, lambda: self._evaluate(tape, known, primals))
        finally:
            if held is None:
                tape.close()
        return held

    def _evaluate(
        self, tape: EagerTape, known: GraphFacts, primals: Sequence[Any]
    ) -> EagerForwardPass:
        arguments = self._arguments(tape, primals, copy=True)
        leaves, structure = flatten(self._output(tape, primals, {}, arguments))
        nodes = [tape.trace.node_of(leaf) if type(leaf) in TAPE_BOXES else None for leaf in leaves]
        ends = [node for node in nodes if node is not None]
        if not ends or len(set(ends)) < len(ends) or tape.refusal is not None:
            tape.refuse("an output of the same values, or of none")
        sweep = self._sweep(tape, known, ends, arguments, is_kept=True)
        places = {argument.number: place for place, argument in enumerate(arguments)}
        without = [map_leaves(lambda _: None, primal) for primal in primals]

        def pull(cotangent: Cotangent) -> tuple:
            tape.require_unchanged()
            pairs = zip(cotangent.leaves, nodes, strict=True)
            seeds = [leaf for leaf, node in pairs if node is not None]
            with blas.threads(known.is_chain):
                gradients = self._gradients(arguments, naming(sweep.pull, seeds))
            return tuple(
                [
                    gradients[places[number]] if number in places else tree
                    for number, tree in enumerate(without)
                ]
            )

        value = unflatten(structure, list(map(plain_leaf, leaves)))
        return EagerForwardPass(value, pull, tape)


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
    return row_major(of_its_own(leaf._value)) if type(leaf) in TAPE_BOXES else leaf


# ---------------------------------------------------------------- which graphs, once recorded


def known_of(recorded: RecordedFunction, graph: Graph) -> GraphFacts | None:
    """The facts of an evaluation; None if an eager one could not do all that it has done."""
    if recorded.has_computed or not (is_in_line() or may_spare_cluster()):
        return None
    if not all(map(is_usual, graph.order)):
        return None
    variables = {node for node in graph.order if isinstance(node, Variable)}
    if any([not variables.isdisjoint(part.containers) for part in variables]):
        return None  # a container is used whole and in parts, whose cotangents are added up apart
    calls = [node for node in graph.order if type(node) in CALLS_OF_MODELS and not node.is_light]
    models = tuple(sorted([node.name for node in calls]))
    identities = frozenset([identity(node.model) for node in calls if node.model is not None])
    facts = key_of(graph), graph.is_chain, has_items_apart(graph), models, identities
    return GraphFacts(*facts)


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
