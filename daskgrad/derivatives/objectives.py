"""Objectives: a derivative of a function that calls models, as one program.

All passes over its graph run on boxes, so that each addition is recorded in its place. Functions
must be plainly pure and run in the calling thread: there nobody could tell the difference.
"""

import dis
import inspect
import math
import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cached_property
from operator import is_
from types import FunctionType
from typing import Any

import numpy as np

from daskgrad.autodiff.libraries import registry
from daskgrad.autodiff.models import blas
from daskgrad.autodiff.models.finite import is_debugging, is_required
from daskgrad.autodiff.models.model import SentFunction, inside_model
from daskgrad.autodiff.programs.backend import prepare
from daskgrad.autodiff.programs.boxes import NotYet, Unrecordable
from daskgrad.autodiff.programs.recording import recording_models
from daskgrad.autodiff.programs.watch import MODELS, References
from daskgrad.autodiff.programs.ways import Way
from daskgrad.autodiff.programs.whole import Whole
from daskgrad.autodiff.rules.declaration import strong
from daskgrad.autodiff.tape.traced_call import FlatArguments
from daskgrad.autodiff.values.descriptions import function_name
from daskgrad.autodiff.values.trees import flatten, map_leaves
from daskgrad.derivatives.evaluation import Arrived, evaluate_here
from daskgrad.derivatives.in_line import seconds_in_line
from daskgrad.derivatives.inputs import Argnums
from daskgrad.derivatives.recording import RecordedFunction, gather_gradients, shown_name
from daskgrad.graph.activity import Graph
from daskgrad.graph.delayed import DelayedModel
from daskgrad.graph.expressions import ExpressionNode
from daskgrad.graph.nodes import CallNode, Constant, ItemNode, Node
from daskgrad.graph.stopping import StopGradient
from daskgrad.graph.sum_of_nodes import SumNode
from daskgrad.graph.variables import Variable
from daskgrad.sums.item_sum import ReductionNode
from daskgrad.sums.zipping import reason_against
from daskgrad.tasks import observers
from daskgrad.tasks.clients import is_in_line
from daskgrad.tasks.observers import Evaluated
from daskgrad.tasks.settings import may_compile

UNKNOWN = None, None, None
OWN_WATCH = 8  # calls of a function before it is watched beside an equal one
PACKAGE = ("_operator", "daskgrad.")  # modules of the functions of the package's models
CALLS = {CallNode, ExpressionNode, ItemNode}
NODES = {*CALLS, Variable, Constant, StopGradient, SumNode, ReductionNode}


def parts_of_model(model: DelayedModel) -> tuple:
    """Its function, whether it is compiled, whether the user vouches for it, and its settings."""
    fun, name, backend, keep, _ = model.model
    is_vouched = backend in ("compiled", registry.NATIVE)
    return fun, registry.is_compiled(backend), is_vouched, backend, keep, name


MODELS[DelayedModel] = parts_of_model


class Objective:
    """A derivative of a function, as one function of plain arguments.

    ``kind``: the derivative, and how a call is recorded. ``numbers``: the arguments to which it
    belongs; other ``options`` are the kind's. ``daskgrad_pushed``: the key of its programs.
    """

    def __init__(
        self,
        kind: "type[RecordedObjective]",
        fun: Callable,
        name: str,
        argnums: Argnums,
        *options: Any,
    ):
        self.kind, self.fun, self.name = kind, fun, name
        numbers = argnums if isinstance(argnums, tuple) else np.ravel(argnums)
        self.numbers, self.options = tuple(map(int, numbers)), options
        # the user's function, which the package may have put another one around
        attributes = vars(fun) if type(fun) is FunctionType else {}
        self.watched: Any = attributes.get("daskgrad_watched", fun)
        self.takes_others = is_whole = self.watched is fun  # to be recorded
        self.daskgrad_pushed = (self.watched, kind.derivative, is_whole, self.numbers, *options)
        self.may_compile, self.is_vouched = True, False
        if type(self.watched) is DelayedModel:
            _, self.may_compile, self.is_vouched, *_ = parts_of_model(self.watched)
        self._known: tuple[Any, Any, Any] = UNKNOWN  # programs, their watch, and its own
        self._calls = 0

    def __reduce__(self) -> tuple:
        return Objective, (self.kind, self.fun, self.name, self.numbers, *self.options)

    @cached_property
    def _parameters(self) -> list[inspect.Parameter]:
        """The function's parameters that may be passed by position, in their order."""
        fun = self.fun.model.fun if type(self.fun) is DelayedModel else self.fun
        try:
            parameters = inspect.signature(fun, follow_wrapped=False).parameters.values()
        except (TypeError, ValueError):
            return []
        kinds = inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD
        return [parameter for parameter in parameters if parameter.kind in kinds]

    def positional(self, args: tuple, kwargs: dict[str, Any]) -> tuple | None:
        """All arguments by position, defaults between them, too; None if that fails."""
        if not all([0 <= number < len(args) for number in self.numbers]):
            return None
        named, arguments = dict(kwargs), list(args)
        for parameter in self._parameters[len(args) :]:
            if not named:
                break
            is_named = parameter.kind is not parameter.POSITIONAL_ONLY
            default = parameter.default
            arguments.append(named.pop(parameter.name, default) if is_named else default)
        are_there = [argument is not inspect.Parameter.empty for argument in arguments]
        return tuple(arguments) if not named and all(are_there) else None

    def call(self, args: tuple, otherwise: Callable[[], Any], out: Any = None) -> Any:
        """The result of ``otherwise()``, from a program if there is one."""
        if is_debugging() or is_required() or inside_model() or not is_in_line():
            return otherwise()
        if not (self.is_vouched or (self.may_compile and may_compile())):
            return otherwise()
        programs, watch, local = self._known
        if local is None or watch is not programs.watch or local.has_changed():
            programs = self.programs()
            _, watch, local = self._known
        watch = watch if local is watch else None
        if not observers.observers:
            return programs.call(self, args, otherwise, out, watch)
        ways: list[Way] = []
        start = time.time()
        result = programs.call(self, args, otherwise, out, watch, ways.append)
        if ways:  # else the evaluation tells of its tasks and of itself
            points = [args[number] for number in self.numbers]
            value, gradients = self.kind.shown(result, self.options)
            event = (ways[0].name, points, value, gradients, start, time.time(), ways[0].calls)
            observers.tell_evaluated(Evaluated(*event))
        return result

    def programs(self) -> Whole:
        """The programs, which equal functions share; each of these may change. If the programs
        watch another one, this one gets a watch of its own after some calls."""
        programs: Any = prepare(self, self.is_vouched, self.kind.programs).programs
        watch, self._known = programs.watch, UNKNOWN
        if watch is not None and not watch.has_changed():
            self._calls += 1
            if watch.of() is self.watched:
                self._known = programs, watch, watch
            elif self._calls > OWN_WATCH:
                self._calls = 0
                settings = watch.room, self.is_vouched, watch.ran, watch.least, watch.constants
                self._known = programs, watch, References(self.watched, *settings)
        return programs

    def layout(self, args: tuple) -> FlatArguments:
        """The arguments of a call."""
        leaves, structure = flatten((args, {}))
        return FlatArguments(leaves, structure, (None,) * len(leaves))

    def recorded(self, seconds: float) -> "RecordedObjective":
        return self.kind(self, seconds)


class RecordedObjective:
    """An objective that records a call; ``context``: BLAS's setting for that; ``longest``: the
    seconds that a program may take, since threads would run its models side by side; ``name`` and
    ``calls`` of its models: for observers.

    ``ordinary``: times as long as a program the ordinary way may take. ``derivative``: what
    ``results`` returns; unless it ``has_value``, a program computes what
    nobody takes, too, for NumPy's warnings.
    """

    derivative: str
    has_value = True
    ordinary = 1.0
    programs: type[Whole] = Whole

    def __init__(self, objective: Objective, seconds: float):
        self.objective, self._seconds = objective, seconds
        self.daskgrad_pushed = objective.daskgrad_pushed
        self.takes_others = objective.takes_others
        self.context: Any = None
        self.longest = math.inf
        self.name = objective.name
        self.calls: Counter[str] = Counter()

    def __call__(self, *args: Any) -> Any:
        if catches(self.objective.watched):  # and may handle errors that boxes raise
            raise Unrecordable("it catches exceptions")
        before, structure = flatten(args)
        results = self.results(args)
        after, other = flatten(args)
        if structure != other or not all(map(is_, before, after)):
            raise Unrecordable("it changes an argument")
        return results

    def take(self, fun: Any) -> "RecordedObjective":
        """This objective, of another function from now on."""
        parts = self.objective
        self.objective = Objective(parts.kind, fun, parts.name, parts.numbers, *parts.options)
        return self

    def results(self, args: tuple) -> Any:
        raise NotImplementedError

    @staticmethod
    def shown(results: Any, options: tuple) -> tuple[float | None, Sequence[Any]]:
        """The value and the gradients for observers; none of another derivative."""
        return None, ()

    def evaluated(self, graph: Graph, evaluate: Callable[[Graph], Any] = evaluate_here) -> Any:
        """The evaluation of a graph whose variables are boxes."""
        self._require_usual(graph)
        self.name, self.calls = shown_name(self.objective.name, graph), calls_of_models(graph)
        self.context = None if graph.is_chain else blas.ONE_THREAD
        with recording_models():
            return evaluate(graph)

    def gathered(self, variables: Sequence[Variable], arrived: Arrived) -> list[Any]:
        """The gradients; none is there if the output depends on none: the ordinary way warns."""
        gradients, independent = gather_gradients(variables, arrived, True)
        if independent:
            raise Unrecordable(f"the output does not depend on {independent[0].name!r}")
        return gradients

    def _require_usual(self, graph: Graph) -> None:
        """Raises unless all nodes are for the calling thread."""
        seconds = seconds_in_line(graph)
        if not seconds:
            raise Unrecordable("it may take no time in the calling thread")
        if not graph.is_chain:
            self.longest = seconds
            if self._seconds > self.ordinary * seconds:
                raise NotYet("it takes longer than it may in the calling thread")
        for node in graph.order:
            if type(node) not in NODES:
                raise Unrecordable(f"it has the node {node.name!r}, a {type(node).__name__}")
            if node.model is not None:
                require_compiled(node)
            if type(node) is ReductionNode and not node.items.fit_a_program:
                raise Unrecordable(reason_against(node.name))


class RecordedValue(RecordedObjective):
    """A value; its arguments have no derivatives here."""

    derivative = "value"

    def results(self, args: tuple) -> Any:
        fun, name, numbers = self.objective.fun, self.objective.name, self.objective.numbers
        graph = RecordedFunction(fun, name, numbers, args, True).graph()
        return map_leaves(strong, self.evaluated(Graph(graph.output, []))[0])


def along(
    kind: type[RecordedObjective],
    fun: Callable,
    primals: Any,
    tangents: Any,
    otherwise: Callable[[], Any],
) -> Any:
    """A derivative along tangents, by a program if there is one."""
    if not (isinstance(primals, tuple | list) and isinstance(tangents, tuple | list)):
        return otherwise()
    if not primals or len(primals) != len(tangents) or not callable(fun):
        return otherwise()
    objective = Objective(kind, fun, function_name(fun), tuple(range(len(primals))))
    return objective.call((*primals, *tangents), otherwise)


def calls_of_models(graph: Graph) -> Counter[str]:
    """How often each model is called, by name; an item of a sum is a call."""
    calls: Counter[str] = Counter()
    for node in graph.order:
        if node.model is not None and not node.is_light:
            calls[node.name] += node.items.count if type(node) is ReductionNode else 1
    return calls


def catches(fun: Any) -> bool:
    """Whether the code of an objective handles exceptions, other than by ``with``."""
    while not hasattr(fun, "__code__") and hasattr(fun, "func"):
        fun = fun.func
    code = getattr(fun, "__code__", None)
    names = [] if code is None else [step.opname for step in dis.get_instructions(code)]
    return names.count("PUSH_EXC_INFO") > names.count("WITH_EXCEPT_START")


def require_compiled(node: Node) -> None:
    """Raises unless a node's model is compiled, or one of the package."""
    model = node.model
    is_packaged = model.backend == "autograd" and model.fun.__module__.startswith(PACKAGE)
    is_ours = node.is_light or is_packaged
    if model.backend == registry.NATIVE:
        raise Unrecordable(f"model {model.name!r} is machine code, which has other bits")
    is_compiled = registry.is_compiled(model.backend) and model.keep != "recompute"
    if not (is_ours or is_compiled) or isinstance(model.fun, SentFunction):
        raise Unrecordable(f"model {model.name!r} is not compiled")
