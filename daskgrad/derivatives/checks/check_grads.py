"""check_grads: whether a derivative is right, and otherwise which model's rule is wrong."""

import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import dask

from daskgrad.autodiff.models.failures import Partition, argument_label, at
from daskgrad.autodiff.models.model import Call, Model
from daskgrad.autodiff.models.pullbacks import capture, each_of, evaluate, pull_back
from daskgrad.autodiff.models.tracing import Active
from daskgrad.autodiff.values.cotangents import Cotangent, gradient
from daskgrad.autodiff.values.descriptions import Report, require_number
from daskgrad.autodiff.values.trees import flatten, substitute
from daskgrad.autodiff.values.vectors import is_double
from daskgrad.derivatives.checks.directional import (
    DIRECTIONS,
    FORWARD,
    SECOND,
    Checked,
    Fault,
    Settings,
    first_fault,
    require_order,
)
from daskgrad.derivatives.checks.taylor import taylor_rates
from daskgrad.derivatives.inputs import as_output, has_derivative, require_function
from daskgrad.graph.activity import Graph
from daskgrad.graph.delayed import DelayedModel
from daskgrad.graph.nodes import CallNode, Node, build_values
from daskgrad.graph.variables import copy_variable, for_user
from daskgrad.random import require_seed
from daskgrad.sums.block_tasks import nth
from daskgrad.sums.item_sum import ReductionNode
from daskgrad.tasks.task_graph import TaskGraph

MODES = ("forward", "reverse")


def check_grads(
    fun: Callable,
    order: int = 1,
    modes: Sequence[str] = MODES,
    rtol: float = 1e-6,
    atol: float = 1e-8,
    seed: int = 0,
) -> Callable[..., Report]:
    """A function that checks the derivatives of ``fun`` at the arguments that it is called with.

    In three random directions v of each float argument, and with a random cotangent c of the value,
    ⟨c, f(x + εv) - f(x - εv)⟩ / 2ε, extrapolated to ε → 0 from two steps (Richardson), must equal
    ⟨pullback(c), v⟩ in reverse mode and ⟨c, tangent⟩ of ``jvp`` in forward mode. The check is as
    strict as the dtype allows. In double precision it finds a rule that is off by a thousandth; a
    rule that is wrong in a few entries of a large array may escape it.

    Costs one gradient, and for each float argument (a dict is one) 12 values and 3 tangents; order
    2 costs 3 Hessian-vector products more, and 12 gradients for each argument. ``dg.progress``
    shows how far each of these is.

    Parameters
    ----------
    fun:
        returns a node or a pytree of nodes, as for ``vjp``.
    order:
        1: gradients; 2: Hessian-vector products, too (``hvp`` of the value, or of its product with
        c if it is not one real number), against differences of gradients. Needs real numbers in
        double precision.
    modes:
        "forward", "reverse", or both: the modes that are checked to first order.
    rtol, atol:
        how much a derivative may differ, besides rounding errors of the differences.
    seed:
        the seed of the directions and of the cotangent.

    Returns
    -------
    Callable
        the function, which returns a report (a string) of what agreed.

    Raises
    ------
    AssertionError
        if they differ. The message has the argument, both numbers, the rates of Taylor's test
        (``taylor_rates``), and the first model of the graph with a wrong derivative: each active
        call, and each item of a sum, is checked alone, in this process.

    See Also
    --------
    taylor_rates, debug_nans

    Examples
    --------
    >>> dg.check_grads(dg.delayed(lambda x: np.sum(np.sin(x))))(np.ones(3))  # or an AssertionError
    the derivatives of '<lambda>' agree with differences: order 1, forward and reverse, in 3 ...
    """
    require_function(fun, "check_grads")
    require_order(order)
    require_seed(seed, "dg.check_grads")
    for name, tolerance in (("rtol", rtol), ("atol", atol)):
        require_number(tolerance, name)
    settings = Settings(order, require_modes(modes), rtol, atol, seed)

    def check(*args: Any) -> Report:
        checked = Checked.of(fun, args)
        fault = first_fault(checked, settings)
        if fault is not None:
            raise AssertionError(explain(fault, fun, args, settings))
        return Report(
            f"the derivatives of {checked.name!r} agree with differences: order {order}, "
            f"{' and '.join(settings.modes)}, in {DIRECTIONS} directions of each argument"
        )

    return check


def explain(fault: Fault, fun: Callable, args: tuple, settings: Settings) -> str:
    """The message: the wrong derivative, the rates of Taylor's test, and the model to blame."""
    try:
        rates = describe_rates(fault, fun, args, settings)
        culprit = find_wrong_rule(fault.checked, settings)
    except Exception as error:
        error.add_note(f"daskgrad: this error arose while daskgrad looked for why {fault}")
        raise
    return f"{fault}{rates}\n{culprit}"


def describe_rates(fault: Fault, fun: Callable, args: tuple, settings: Settings) -> str:
    """The rates of Taylor's test; nothing if it does not use the wrong derivative."""
    order = 2 if fault.kind == SECOND else 1
    if fault.kind == FORWARD or not is_double((args, fault.checked.evaluate(*args))):
        return ""
    rates = taylor_rates(fun, order, settings.seed)(*args)
    actual = ", ".join([f"{rate:.2f}" for rate in rates])
    right = ", ".join(map(str, range(1, order + 2)))
    return f"\nTaylor's remainders fall at the rates {actual}, where {right} is right"


def require_modes(modes: Any) -> tuple[str, ...]:
    named = tuple(modes) if isinstance(modes, list | tuple | set | frozenset) else (modes,)
    if not named or not all(isinstance(mode, str) and mode in MODES for mode in named):
        raise ValueError(f"modes must be some of {', '.join(map(repr, MODES))}; found {modes!r}")
    return named


# -------------------------------------------------------------------------------------------------
# The first wrong rule: each call of an active node, and each term of a sum, is checked alone at the
# values of its inputs, in the order of the graph and in the calling thread.


def find_wrong_rule(checked: Checked, settings: Settings) -> str:
    """A sentence that names the first call with a wrong derivative."""
    graph, calls = recorded_calls(checked)
    with dask.config.set(scheduler="sync"), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # a term need not depend on every argument
        for call in calls:
            fault = first_fault(call.checked(), settings)
            if fault is not None:
                return call.describe(fault)
    return (
        f"each of the {len(graph.active)} nodes that matter is right by itself: look for what a "
        f"derivative cannot see, such as an argument that is also used through a closure"
    )


class SingleCall(NamedTuple):
    """One call of a model at the values of its inputs, or one term of a sum."""

    model: Model
    call: Call
    active: tuple[Active, ...]
    inputs: Sequence[Any]
    place: int | Partition | None = None

    def checked(self) -> Checked:
        """The call as a function of its active inputs."""
        args = tuple([self.inputs[number] for number, *_ in self.active])
        labels = [argument_label(self.call, number) for number, *_ in self.active]
        return Checked(self._record, self._evaluate, self._pull, args, self.model.name, labels)

    def describe(self, fault: Fault) -> str:
        label = fault.checked.labels[fault.number]
        return (
            f"the first wrong rule is that of model {self.model.name!r}{at(self.place)}, "
            f"{label}: by itself, {fault.numbers}"
        )

    def _with(self, values: Sequence[Any]) -> list[Any]:
        return substitute(self.inputs, [number for number, *_ in self.active], values)

    def _evaluate(self, *values: Any) -> Any:
        return evaluate(self.model, self.call, self._with(values))

    def _pull(self, cotangent: Any) -> list[Any]:
        """The cotangents of the active inputs, without a graph: there may be many calls."""
        called = self.model, self.call, self.active, self.inputs
        leaves = tuple(flatten(cotangent)[0])
        pulled = pull_back(capture(*called), Cotangent(leaves), *called)
        trees = [flatten(self.inputs[number]) for number, *_ in self.active]
        pairs = zip(trees, each_of(pulled), strict=True)
        return [gradient(*tree, part.leaves) for tree, part in pairs]

    def _record(self, *values: Any) -> Node:
        args, kwargs = self.call.arguments(self._with(values))
        return DelayedModel(self.model)(*args, **kwargs)


def recorded_calls(checked: Checked) -> tuple[Graph, Iterator[SingleCall]]:
    """The graph of a function, and its active calls at the values of their inputs."""
    args = [copy_variable(arg, "variable") if has_derivative(arg) else arg for arg in checked.args]
    output = as_output(checked.fun(*map(for_user, args)), checked.name)
    graph = Graph(output, [arg for n, arg in enumerate(args) if n in checked.numbers])
    nodes = [node for node in graph.order if node in graph.active]
    return graph, calls_of(graph, nodes, compute_inputs(nodes))


def compute_inputs(nodes: Sequence[Node]) -> dict[Any, Any]:
    """The values of the nodes' inputs, and for each sum the items of its blocks."""
    tasks = TaskGraph()
    sources = list(dict.fromkeys(source for node in nodes for source in node.inputs))
    values = build_values(tasks, sources)
    references = {source: values[source] for source in sources}
    for node in nodes:
        if isinstance(node, ReductionNode):
            references |= {
                (node, number): tasks.add(tasks.key("value", node.name), as_tuple, *fields)
                for number, (_, fields) in enumerate(node.items.blocks(tasks, node.name))
            }
    results = tasks.compute([reference.key for reference in references.values()])
    return dict(zip(references, results, strict=True))


def as_tuple(*fields: Any) -> tuple:
    """The fields of a block: Dask finds references in a task's own list arguments only."""
    return fields


def calls_of(graph: Graph, nodes: Sequence[Node], values: dict[Any, Any]) -> Iterator[SingleCall]:
    for node in nodes:
        inputs = [values[source] for source in node.inputs]
        if isinstance(node, CallNode):
            yield SingleCall(node.model, node.call, graph.active_inputs(node), inputs)
        elif isinstance(node, ReductionNode):
            active = node.active_terms(graph)
            for number, first in enumerate(node.items.firsts):
                for offset, item in enumerate(zip(*values[node, number], strict=True)):
                    term = [*item, *inputs[: node.width]]
                    yield SingleCall(node.model, node.call, active, term, nth(first, offset))
