"""Jacobians: model by model along the graph, or by many tangents or cotangents in parallel."""

from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
import optree

from daskgrad.autodiff.libraries import registry
from daskgrad.autodiff.models.duals import Dual
from daskgrad.autodiff.models.local_jacobians import LocalJacobian, unit_slopes
from daskgrad.autodiff.models.model import Model
from daskgrad.autodiff.programs.boxes import Unrecordable
from daskgrad.autodiff.values.descriptions import describe, imported, is_integer, require_choice
from daskgrad.autodiff.values.slopes import Left
from daskgrad.autodiff.values.trees import flatten
from daskgrad.autodiff.values.vectors import differentiable, entries, unit
from daskgrad.derivatives.evaluation import evaluate_graph, task_groups
from daskgrad.derivatives.held import HeldForwardPass
from daskgrad.derivatives.inputs import (
    Argnums,
    as_argnums,
    require_differentiable,
    warn_of_independent,
)
from daskgrad.derivatives.matrices import as_scipy, blocks, submatrices
from daskgrad.derivatives.objectives import Objective, RecordedObjective
from daskgrad.derivatives.recording import RecordedFunction, document, gather_gradients
from daskgrad.graph.activity import Graph
from daskgrad.graph.delayed import delayed
from daskgrad.graph.expressions import ExpressionNode
from daskgrad.graph.nodes import CallNode, ItemNode, Node
from daskgrad.graph.tangents import Tangents
from daskgrad.graph.variables import Variable, copy_variable

MODES = ("auto", "forward", "reverse")
Mode = Literal["auto", "forward", "reverse"]


def jacobian(
    fun: Callable, argnums: Argnums = 0, mode: Mode = "auto", sparse: bool = False
) -> Callable:
    """A function that returns the Jacobian of ``fun``.

    Parameters
    ----------
    fun:
        ordinary Python that calls models on its arguments and returns a node or a pytree of nodes.
    argnums:
        which arguments to differentiate: a number, or a sequence of them.
    mode:
        "reverse" pulls back one cotangent for each entry of the value along one forward pass: each
        model runs once. "forward" pushes one tangent for each entry of the arguments: each model
        runs once for each group of tangents, at most two groups a thread. "auto" computes the
        Jacobian of each model by itself, in as few products as its structure allows, and applies
        the chain rule to these: see below. If that takes nearly as many products as another mode,
        "auto" is this mode, and the models run up to three times more.
    sparse:
        True: SciPy's sparse arrays, in CSR format, with a row an entry of the value and a column an
        entry of the argument, both in C order. ``toarray()`` has the bits of the dense Jacobian.

    Returns
    -------
    function
        A function of ``fun``'s arguments. For a value of shape s and an argument of shape a the
        Jacobian is an array of shape s + a. For pytrees it is the value's tree with the argument's
        tree in the place of each leaf (a tuple of trees for several ``argnums``). ``None`` replaces
        leaves without derivative. A complex function is assumed to be holomorphic.

        The products are computed in parallel tasks, several in each, or the Jacobian of a model in
        one.

    See Also
    --------
    hessian, vjp, jvp, adapters.flat_residuals

    Notes
    -----
    The structure follows from the graph and from the calls of NumPy that the models make, and not
    from the numbers: functions that work entry by entry, move entries, or reduce along axes keep
    it; others have blocks with all entries, zeros among them. The whole matrix has all entries if
    the graph has models of other backends, sums of nodes or over items, loops, grids or black boxes
    on the way, or if another mode is cheaper. An ``if`` or an index that depends on the data is as
    in this call. Two columns share a tangent if no entry of a model's value depends on both (A. R.
    Curtis, M. J. D. Powell and J. K. Reid, "On the estimation of sparse Jacobian matrices", 1974).
    So residuals of many sets of data, or of the points of a grid, take as many products as one set,
    or one point, has parameters.

    Raises
    ------
    TypeError
        if ``fun`` is not a function, an argument to differentiate holds neither float nor complex
        numbers, ``sparse`` is no bool, or the value and the arguments mix real and complex numbers.
    ValueError
        if the mode is unknown, or ``argnums`` names an argument that the call does not have.

    Examples
    --------
    >>> dg.jacobian(dg.delayed(lambda x: x * x[::-1]))(np.array([2.0, 3.0]))
    array([[3., 2.],
           [3., 2.]])
    """
    name = require_differentiable(fun, argnums, "jacobian")
    require_choice(mode, MODES, "mode")
    if not isinstance(sparse, bool):
        raise TypeError(
            f"sparse of the Jacobian of {name!r} must be True or False: all blocks are sparse, or "
            f"none; found {describe(sparse)}"
        )
    if sparse:
        imported("scipy.sparse", "scipy", "a sparse Jacobian is SciPy's")

    objective = Objective(RecordedJacobian, fun, name, argnums, is_integer(argnums), sparse)

    def jacobian_of(*args: Any, **kwargs: Any) -> Any:
        arguments = objective.positional(args, kwargs) if mode == "auto" else None
        if arguments is None:
            matrices = by_graph(*args, **kwargs)
        else:
            matrices = objective.call(arguments, lambda: by_graph(*args, **kwargs))
        return as_scipy(matrices) if sparse else matrices

    def by_graph(*args: Any, **kwargs: Any) -> Any:
        recorded = RecordedFunction(fun, name, argnums, args)
        graph = recorded.graph(**kwargs)
        warn_of_independent(independent_of(graph, recorded.variables), name)
        argument = as_argnums([args[number] for number in recorded.numbers], argnums)
        if mode == "auto":
            dual = value_and_slopes(graph, recorded.variables, lambda g: evaluate_graph(g)[0])
            if dual is not None:
                require_one_kind(dual.value, argument, name)
                return blocks(dual, argument, sparse)
        if mode == "forward" and entries(argument):
            return push_columns(recorded, graph, argument, sparse)
        held = HeldForwardPass(graph)
        # pushing tangents runs the models again, and is quicker for many values
        if mode == "auto" and entries(held.value) > 2 * entries(argument) > 0:
            return push_columns(recorded, graph, argument, sparse)
        require_one_kind(held.value, argument, name)
        return pull_rows(recorded, held, argument, sparse)

    return document(jacobian_of, fun, "jacobian")


class RecordedJacobian(RecordedObjective):
    """A Jacobian by the Jacobians of the models; options: whether it is of one argument, and
    whether it is sparse."""

    derivative = "Jacobian"
    has_value = False
    ordinary = 32.0

    def results(self, args: tuple) -> Any:
        fun, name, numbers = self.objective.fun, self.objective.name, self.objective.numbers
        recorded = RecordedFunction(fun, name, numbers, args, True)
        graph = recorded.graph()
        if independent_of(graph, recorded.variables):
            raise Unrecordable("the output does not depend on an argument")
        dual = value_and_slopes(graph, recorded.variables, lambda graph: self.evaluated(graph)[0])
        if dual is None:
            raise Unrecordable("products along the whole graph are quicker")
        arguments = [args[number] for number in numbers]
        is_bare, sparse = self.objective.options
        argument = arguments[0] if is_bare else tuple(arguments)
        require_one_kind(dual.value, argument, name)
        return blocks(dual, argument, sparse)


def independent_of(graph: Graph, variables: Sequence[Variable]) -> list[str]:
    """The names of variables that do not matter to the output."""
    used = {node.root for node in graph.active if isinstance(node, Variable)}
    return [variable.name for variable in variables if variable not in used]


def require_one_kind(value: Any, argument: Any, name: str) -> None:
    """Raises for real and complex numbers together: each pair would have two derivatives."""
    kinds = {np.iscomplexobj(leaf) for tree in (value, argument) for leaf in differentiable(tree)}
    if len(kinds) > 1:
        raise TypeError(
            f"the Jacobian of {name!r} mixes real and complex numbers: it is that of "
            f"{describe(value)} with respect to {describe(argument)}; pass and return real and "
            f"imaginary parts, or use jvp and vjp"
        )


def pull_rows(
    recorded: RecordedFunction, held: HeldForwardPass, argument: Any, sparse: bool
) -> Any:
    """The Jacobian by rows, from the cotangents of the value's entries."""
    rows = [
        flatten(gather_gradients(recorded.variables, arrived)[0])[0]
        for arrived in held.pull_units(entries(held.value))
    ]
    return submatrices(held.value, argument, rows, sparse=sparse)


def push_columns(recorded: RecordedFunction, graph: Graph, argument: Any, sparse: bool) -> Any:
    """The Jacobian by columns, from the tangents of the arguments' entries."""
    leaves = flatten(argument)[0]
    duals = [
        Tangents(graph, unit_directions(recorded, leaves, start, stop)).dual_as_node(graph.output)
        for start, stop in task_groups(entries(leaves))
    ]
    first, others, _ = evaluate_graph(Graph(duals[0], [], duals[1:]))
    require_one_kind(first.value, argument, recorded.name)
    columns = [flatten(tangent)[0] for dual in (first, *others) for tangent in dual.tangents]
    return submatrices(first.value, argument, columns, True, sparse)


def unit_directions(
    recorded: RecordedFunction, leaves: Sequence[Any], start: int, stop: int
) -> dict:
    """For each variable the tangents that are one in one entry of all arguments."""
    units = [unit(leaves, entry) for entry in range(start, stop)]
    directions, first = {}, 0
    for variable in recorded.variables:
        last, name = first + len(variable.leaves), f"tangent of {variable.name}"
        trees = [optree.tree_unflatten(variable.structure, list(u[first:last])) for u in units]
        directions[variable] = tuple([copy_variable(tree, name) for tree in trees])
        first = last
    return directions


# ------------------------------------------------------------ the Jacobian of each model by itself

FEW = 16  # products, which one task may well do
UNIT = delayed(unit_slopes, name="slopes")


class SlopesAlongGraph(Tangents):
    """Records nodes of values with slopes; a model's slopes may take ``most`` products."""

    def __init__(self, graph: Graph, variables: Sequence[Variable], most: int):
        super().__init__(graph, {})
        self._most = most
        self._firsts, first = {}, 0
        for variable in variables:
            self._firsts[variable] = first
            first += entries_of(variable)

    def model(self, model: Model, tangent_only: bool) -> Model:
        key = id(model), tangent_only
        if key not in self._models:
            self._models[key] = model._replace(fun=LocalJacobian(model, self._most))
        return self._models[key]

    def dual_of_variable(self, variable: Variable) -> Any:
        root = variable.root
        first = self._firsts[root] + entries(root.leaves[: variable.first_leaf])
        return UNIT(variable, first)


def value_and_slopes(
    graph: Graph, variables: Sequence[Variable], evaluate: Callable[[Graph], Dual]
) -> Dual | None:
    """The value with its slopes; ``None`` if products along the whole graph are quicker: if a model
    takes more than half as many, or a node is no plain call."""
    if graph.output not in graph.active or not all(map(has_structure, graph.active)):
        return None
    most = FEW
    while True:
        node = SlopesAlongGraph(graph, variables, most).dual(graph.output)
        dual = evaluate(Graph(node, []))
        products = [leaf.products for leaf in flatten(dual.tangents)[0] if type(leaf) is Left]
        if not products:
            return dual
        along_graph = min(entries(dual.value), sum(map(entries_of, variables)))
        if 2 * max(products) > along_graph:
            return None
        most = along_graph // 2


def entries_of(variable: Variable) -> int:
    return entries(variable.leaves)


def has_structure(node: Node) -> bool:
    """Whether a node is a variable, or a call of a backend that knows its dependences."""
    if isinstance(node, Variable):
        return True
    is_call = type(node) in (CallNode, ExpressionNode, ItemNode)
    return is_call and hasattr(registry.load(node.model.backend), "Dependence")
