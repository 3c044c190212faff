"""Objectives: value and gradient of a function that calls models, as one program.

The passes over its graph run on boxes, so that each addition is recorded in its place. It is tried
where nobody could tell: in the calling thread, of functions that are plainly pure.
"""

import dis
from collections.abc import Callable
from operator import is_
from typing import Any

import numpy as np

from daskgrad.autodiff.libraries import registry
from daskgrad.autodiff.models import blas
from daskgrad.autodiff.models.finite import is_debugging, is_required
from daskgrad.autodiff.models.model import SentFunction, inside_model
from daskgrad.autodiff.programs.backend import prepare
from daskgrad.autodiff.programs.recording import recording_models
from daskgrad.autodiff.programs.steps import Unrecordable
from daskgrad.autodiff.programs.watch import MODELS, Watch
from daskgrad.autodiff.programs.whole import Whole
from daskgrad.autodiff.tape.traced_call import Layout
from daskgrad.autodiff.values.descriptions import is_integer
from daskgrad.autodiff.values.trees import flatten, map_leaves
from daskgrad.derivatives.evaluation import evaluate_here
from daskgrad.derivatives.in_line import seconds_in_line
from daskgrad.derivatives.inputs import Argnums, RowsWanted, as_argnums, require_real_scalar
from daskgrad.derivatives.recording import RecordedFunction, gather_gradients
from daskgrad.graph.activity import Graph
from daskgrad.graph.delayed import DelayedModel
from daskgrad.graph.expressions import ExpressionNode
from daskgrad.graph.nodes import CallNode, Constant, ItemNode, Node
from daskgrad.graph.stopping import StopGradient
from daskgrad.graph.sum_of_nodes import SumNode
from daskgrad.graph.variables import Variable
from daskgrad.sums.item_sum import ReductionNode
from daskgrad.sums.sources import Source
from daskgrad.tasks.clients import is_in_line

UNKNOWN = None, None, None
OWN_WATCH = 8  # calls of equal functions before each is watched
MOST_ITEMS = 64  # of a sum: more belong to batches
OWN = ("_operator", "daskgrad.")  # modules of the functions of the package's own models
CALLS = {CallNode, ExpressionNode, ItemNode}
NODES = {*CALLS, Variable, Constant, StopGradient, SumNode, ReductionNode}


def parts_of_model(model: DelayedModel) -> tuple:
    """Its function; whether it is compiled, and somebody vouches for it; and what else it is."""
    fun, name, backend, keep, _ = model.model
    return fun, registry.is_compiled(backend), backend == "compiled", backend, keep, name


MODELS[DelayedModel] = parts_of_model


def objective_of(fun: Any, *how: Any) -> "Objective | None":
    """The objective of a function; None for a model that is not compiled."""
    is_left = type(fun) is DelayedModel and not parts_of_model(fun)[1]
    return None if is_left else Objective(fun, *how)


class Objective:
    """Value and gradient of a function with respect to some arguments, as one function.

    ``daskgrad_pushed``: what programs are kept by.
    """

    def __init__(
        self, fun: Callable, name: str, argnums: Argnums, sparse: RowsWanted, stores: bool
    ):
        self.fun, self.name, self.argnums, self.sparse = fun, name, argnums, sparse
        self.stores = stores
        self.numbers = tuple(map(int, np.ravel(argnums)))
        how = self.numbers, is_integer(argnums), sparse, stores
        self.daskgrad_pushed = (fun, "value and gradient", *how)
        self.is_vouched = type(fun) is DelayedModel and fun.model.backend == "compiled"
        self._found: tuple[Any, Any, Any] = UNKNOWN
        self._calls = 0

    def __reduce__(self) -> tuple:
        return Objective, (self.fun, self.name, self.argnums, self.sparse, self.stores)

    def call(self, args: tuple, otherwise: Callable[[], Any], out: Any) -> Any:
        """What ``otherwise()`` returns, by a program where there is one."""
        if is_debugging() or is_required() or inside_model() or not is_in_line():
            return otherwise()
        programs, watch, own = self._found
        if own is None or watch is not programs.watch or own.has_changed():
            programs, watch = self._find(), None
        return programs.call(self, args, otherwise, out, watch if own is watch else None)

    def _find(self) -> Whole:
        """The programs. Functions that are equal share them, and each of these may change: where
        the programs' watch is over another one, this one gets its own after some calls."""
        programs: Any = prepare(self, self.is_vouched, Whole).programs
        watch, self._found = programs.watch, UNKNOWN
        if watch is not None and not watch.has_changed():
            self._calls += 1
            if watch.of() is self.fun:
                self._found = programs, watch, watch
            elif self._calls > OWN_WATCH:
                self._calls = 0
                self._found = programs, watch, Watch(self.fun, watch.room, self.is_vouched)
        return programs

    def layout(self, args: tuple) -> Layout:
        """The arguments of a call, with NumPy's numbers where variables have them."""
        given = list(args)
        for number in self.numbers:
            given[number] = as_variable(given[number])
        leaves, structure = flatten((tuple(given), {}))
        return Layout(leaves, structure, (None,) * len(leaves))

    def recorded(self, seconds: float) -> "RecordedObjective":
        return RecordedObjective(self, seconds)


def as_variable(value: Any) -> Any:
    """An argument with numbers of Python's as a variable has them."""
    return map_leaves(lambda x: np.asarray(x)[()] if type(x) in (float, complex) else x, value)


class RecordedObjective:
    """An objective whose call is recorded; ``context`` is what BLAS needs then."""

    def __init__(self, objective: Objective, seconds: float):
        self._of, self._seconds = objective, seconds
        self.daskgrad_pushed, self.stores = objective.daskgrad_pushed, objective.stores
        self.context: Any = None

    def __call__(self, *args: Any) -> tuple[Any, Any]:
        of = self._of
        if catches(of.fun):  # and may take what only boxes raise for an error of its own
            raise Unrecordable("it catches exceptions")
        before, structure = flatten(args)
        recorded = RecordedFunction(
            of.fun, of.name, of.argnums, args, borrows=True, sparse=of.sparse
        )
        graph = recorded.scalar_graph()
        after, other = flatten(args)
        if structure != other or not all(map(is_, before, after)):
            raise Unrecordable("it changes an argument")
        self._require_usual(graph)
        self.context = None if graph.is_one_call or graph.is_chain else blas.ONE_THREAD
        with recording_models():
            value, arrived = evaluate_here(graph)
            require_real_scalar(value, graph.output.name)
            gradients, independent = gather_gradients(recorded.variables, arrived, True)
        if independent:
            raise Unrecordable(f"the output does not depend on {independent[0].name!r}")
        if isinstance(value, np.ndarray):
            value = value[()]
        return value, as_argnums(gradients, of.argnums)

    def _require_usual(self, graph: Graph) -> None:
        """Raises unless all nodes are for the calling thread."""
        seconds = seconds_in_line(graph, None)
        if not (seconds and (graph.is_one_call or self._seconds < seconds)):
            raise Unrecordable("it takes longer than it may in the calling thread")
        for node in graph.order:
            if type(node) not in NODES:
                raise Unrecordable(f"it has the node {node.name!r}, a {type(node).__name__}")
            if node.model is not None:
                require_compiled(node)
            if type(node) is ReductionNode:
                kinds = {type(source) for source in node.items.sources}
                items = node.items
                count = len(items.firsts) if items.slices else sum(items.sizes)
                if kinds != {Source} or count > MOST_ITEMS:
                    raise Unrecordable(f"the sum over {node.name!r} has other or many items")


def catches(fun: Any) -> bool:
    """Whether the code of an objective has exception handlers, beside contexts' own."""
    while not hasattr(fun, "__code__") and hasattr(fun, "func"):
        fun = fun.func
    code = getattr(fun, "__code__", None)
    names = [] if code is None else [step.opname for step in dis.get_instructions(code)]
    return names.count("PUSH_EXC_INFO") > names.count("WITH_EXCEPT_START")


def require_compiled(node: Node) -> None:
    """Raises unless a model is compiled, or the package's own."""
    model = node.model
    is_own = node.is_light or (model.backend == "autograd" and model.fun.__module__.startswith(OWN))
    is_compiled = registry.is_compiled(model.backend) and model.keep != "recompute"
    if not (is_own or is_compiled) or isinstance(model.fun, SentFunction):
        raise Unrecordable(f"model {model.name!r} is not compiled")
