"""Hessians: products with vectors along the graph, from which the matrices are made.

The Hessian-vector product of a function f is the gradient of its tangent <∇f(x), v>: H v with
respect to x, and ∇f(x) with respect to v. The tangent is a graph like any other, with one node for
each node of the function, and so is its backward pass (reverse over forward mode; A. Griewank and
A. Walther, "Evaluating Derivatives", 2008, section 5.1).
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import optree

from daskgrad.autodiff.models.duals import tangent_in_place
from daskgrad.autodiff.programs.boxes import Unrecordable
from daskgrad.autodiff.values import clock, cotangents
from daskgrad.autodiff.values.descriptions import is_integer
from daskgrad.autodiff.values.trees import flatten
from daskgrad.autodiff.values.vectors import entries, unit
from daskgrad.derivatives.evaluation import evaluate_graph, evaluation_groups
from daskgrad.derivatives.held import HeldForwardPass
from daskgrad.derivatives.in_line import TASK_SECONDS, Stopwatch, has_large
from daskgrad.derivatives.inputs import (
    Argnums,
    Sparse,
    as_argnums,
    as_rows_wanted,
    ask_for_rows,
    checked_cotangent,
    has_derivative,
    require_differentiable,
    require_function,
    require_real_scalar,
    warn_of_independent,
)
from daskgrad.derivatives.matrices import submatrices
from daskgrad.derivatives.objectives import Objective, RecordedObjective, along
from daskgrad.derivatives.recording import (
    RecordedFunction,
    document,
    gather_gradients,
    record_at,
    tangent_variables,
)
from daskgrad.graph.activity import Graph
from daskgrad.graph.nodes import Node
from daskgrad.graph.sum_of_nodes import sum_of
from daskgrad.graph.tangents import Tangents
from daskgrad.graph.variables import Variable


def hvp(
    fun: Callable, primals: Sequence[Any], tangents: Sequence[Any], sparse: Sparse = False
) -> tuple[tuple, tuple]:
    """The gradient of ``fun`` and the product of its Hessian with ``tangents``.

    ``fun`` returns one node, of one real number. Both results are tuples, one entry a primal, as a
    pullback of ``vjp`` returns. Costs a run of each model, and some three to four times a gradient.

    ``primals`` and ``tangents`` are as for ``jvp``; a tangent that is ``None`` is zero, and its
    primal's part of the results is still there. SciPy's ``hessp`` is
    ``lambda x, v: dg.hvp(fun, (x,), (v,))[1][0]``. Raises as ``jvp``, and ``TypeError`` for a value
    that is not one real number. ``sparse``: the arrays for which both results are ``Rows``, as for
    ``value_and_grad``.

    Source: the gradient of ⟨∇f(x), v⟩ (A. Griewank and A. Walther, "Evaluating Derivatives", 2008,
    section 5.1).

    Returns
    -------
    tuple
        Gradients and products: a pair of tuples, with an entry for each primal.

    See Also
    --------
    hessian, gnvp

    Examples
    --------
    >>> x, direction = np.array([2.0, 3.0, 4.0]), np.array([1.0, 0.0, 0.0])
    >>> (gradient,), (product,) = dg.hvp(dg.delayed(np.prod), (x,), (direction,))
    >>> gradient, product
    (array([12.,  8.,  6.]), array([0., 4., 3.]))
    """

    def by_graph() -> tuple[tuple, tuple]:
        recorded = record_at(primals, tangents, fun, "hvp")
        wanted = as_rows_wanted(sparse, recorded.name)
        if wanted:
            ask_for_rows(recorded.variables, wanted, recorded.name)
        directions = [tangents[number] for number in recorded.numbers]
        ((gradients, products),) = second_order([product(recorded, directions)])
        return recorded.in_places(gradients), recorded.in_places(products)

    return by_graph() if sparse else along(RecordedProduct, fun, primals, tangents, by_graph)


class RecordedProduct(RecordedObjective):
    """A gradient and a Hessian-vector product; its arguments are primals, and a tangent for each
    one with a number."""

    derivative = "Hessian-vector product"
    has_value = False

    def results(self, args: tuple) -> tuple[tuple, tuple]:
        fun, name, numbers = self.objective.fun, self.objective.name, self.objective.numbers
        primals, tangents = args[: -len(numbers)], args[-len(numbers) :]
        pairs = zip(numbers, tangents, strict=True)
        directions = {number: t for number, t in pairs if has_derivative(primals[number])}
        recorded = RecordedFunction(fun, name, [*directions], primals, True)
        made = product(recorded, [*directions.values()])
        graph = graph_of([made])
        if graph is None:
            raise Unrecordable("the output depends on no argument")
        value, others, arrived = self.evaluated(graph)
        require_numbers([value, *others], recorded.name)
        gradients = self.gathered(made.pushed, arrived)
        products = gather_gradients(recorded.variables, arrived, True)[0]
        return recorded.in_places(gradients), recorded.in_places(products)


class HessianProduct(NamedTuple):
    """A recorded Hessian-vector product: the gradient of a function's tangent, if it has one."""

    recorded: RecordedFunction
    pushed: list[Variable]  # the tangents of the variables
    tangent: Node | None
    constant_terms: list[Node]  # no tangent depends on them; their values must be numbers

    def results(self, arrived: dict) -> tuple[list[Any], list[Any]]:
        """The gradient and the product, variable by variable."""
        gradients, independent = gather_gradients(self.pushed, arrived)
        unused = set(independent)
        pairs = zip(self.recorded.variables, self.pushed, strict=True)
        unmet = [v.name for v, pushed in pairs if pushed in unused]
        warn_of_independent(unmet, self.recorded.name)
        return gradients, gather_gradients(self.recorded.variables, arrived)[0]


def product(recorded: RecordedFunction, directions: Sequence[Any], **kwargs: Any) -> HessianProduct:
    graph = recorded.scalar_graph(**kwargs)
    pushed_of = tangent_variables(recorded, directions)
    pushed = [pushed_of[variable][0] for variable in recorded.variables]
    for variable, direction in zip(recorded.variables, pushed, strict=True):
        direction.asked = variable.asked
    if graph.output not in graph.active:
        return HessianProduct(recorded, pushed, None, [])
    tangents = Tangents(graph, pushed_of)
    tangent = tangents.tangent(graph.output)
    return HessianProduct(recorded, pushed, tangent, list(tangents.constant_terms))


def second_order(products: Sequence[HessianProduct]) -> list[tuple[list[Any], list[Any]]]:
    """The results of products, from one evaluation: the gradient of the sum of their tangents."""
    graph = graph_of(products)
    arrived: dict = {}
    if graph is not None:
        value, others, arrived = evaluate_graph(graph)
        require_numbers([value, *others], products[0].recorded.name)
    return [product.results(arrived) for product in products]


def graph_of(products: Sequence[HessianProduct]) -> Graph | None:
    """The graph of the sum of products' tangents; None if there is none."""
    tangents = [product.tangent for product in products if product.tangent is not None]
    if not tangents:
        return None
    variables = [v for p in products for v in (*p.recorded.variables, *p.pushed)]
    constants = list(dict.fromkeys([node for p in products for node in p.constant_terms]))
    return Graph(sum_of(tangents), variables, constants, output_is_scalar=True)


def require_numbers(values: Sequence[Any], name: str) -> None:
    """Raises unless tangents, and terms on which none depends, are real numbers."""
    value, *others = values
    for number in (value, *[other for other in others if not is_integer(other)]):
        require_real_scalar(number, name)


def hessian(fun: Callable, argnums: Argnums = 0) -> Callable:
    """A function that returns the Hessian of ``fun``, for small problems.

    For an array of shape s it is an array of shape s + s. For a pytree it is the tree with the tree
    of a leaf's blocks in the place of each leaf; with several ``argnums`` both are tuples. Costs a
    Hessian-vector product for each entry of the arguments, and so as many runs of each model; some
    for each thread are evaluated at once. Raises as ``value_and_grad``.

    Returns
    -------
    function
        Of the arguments of ``fun``: the Hessian.

    See Also
    --------
    hvp, jacobian, adapters.flat

    Examples
    --------
    >>> dg.hessian(lambda x: dg.delayed(np.prod)(x))(np.array([2.0, 3.0, 4.0]))
    array([[0., 4., 3.],
           [4., 0., 2.],
           [3., 2., 0.]])
    """
    name = require_differentiable(fun, argnums, "hessian")
    objective = Objective(RecordedProduct, fun, name, argnums)

    def hessian_of(*args: Any, **kwargs: Any) -> Any:
        by_position = objective.positional(args, kwargs)
        if by_position is not None:
            args, kwargs = by_position, {}
        numbers = RecordedFunction(fun, name, argnums, args).numbers  # an error without derivatives
        arguments = [args[number] for number in numbers]
        require_real(arguments, name)
        leaves, structure = flatten(arguments)
        count = entries(leaves)

        def direction(entry: int) -> Any:
            return optree.tree_unflatten(structure, list(unit(leaves, entry)))

        def products(start: int, stop: int) -> list[tuple]:
            recorded = [RecordedFunction(fun, name, numbers, args) for _ in range(start, stop)]
            directions = map(direction, range(start, stop))
            pairs = zip(recorded, directions, strict=True)
            results = second_order([product(*pair, **kwargs) for pair in pairs])
            return [tuple(map(recorded[0].in_places, result)) for result in results]

        made: list[tuple] = []
        if by_position is not None:
            made = by_program(objective, args, map(direction, range(count)), products)
        first = len(made)
        for start, stop in evaluation_groups(count - first):
            made += products(first + start, first + stop)
        rows = [flatten([row[number] for number in numbers])[0] for _, row in made]
        argument = as_argnums(arguments, argnums)
        return submatrices(argument, argument, rows)

    return document(hessian_of, fun, "hessian")


def by_program(
    objective: Objective,
    args: tuple,
    directions: Iterable[Any],
    products: Callable[[int, int], list[Any]],
) -> list[Any]:
    """The first products: all if a program serves them, and takes little time or no large array, so
    that threads would gain nothing. ``products`` serves them in the ordinary way."""
    made: list[Any] = []
    ordinary: list[int] = []  # one of them may be a comparison
    is_large = has_large(flatten(args)[0])

    def otherwise() -> Any:
        ordinary.append(len(made))
        return products(len(made), len(made) + 1)[0]

    for direction in directions:
        watch = Stopwatch(clock.thread_seconds)
        made.append(objective.call((*args, *direction), otherwise))
        if len(ordinary) > 1 or (is_large and watch.seconds() > TASK_SECONDS):
            break
    return made


def require_real(arguments: Any, name: str) -> None:
    if any(np.iscomplexobj(leaf) for leaf in flatten(arguments)[0]):
        raise TypeError(
            f"the Hessian of {name!r} was asked for, with respect to complex numbers; pass real "
            f"and imaginary parts, or use hvp"
        )


def gnvp(
    residuals: Callable, loss: Callable, primals: Sequence[Any], tangents: Sequence[Any]
) -> tuple[tuple, tuple]:
    """The gradient of ``loss(residuals(*primals))`` and its Gauss-Newton matrix times ``tangents``.

    The matrix is Jᵀ H J, with the Jacobian J of the residuals and the Hessian H of the loss at
    them (N. N. Schraudolph, "Fast curvature matrix-vector products", Neural Computation 14, 2002);
    it is positive semidefinite where the loss is convex. ``residuals`` returns a node or a pytree
    of nodes, and ``loss`` takes their values and returns one real number; both call models. The
    models of the residuals run once. Raises as ``hvp``.

    Returns
    -------
    tuple
        Gradients and products: a pair of tuples, with an entry for each primal.

    See Also
    --------
    hvp, jacobian

    Examples
    --------
    >>> residuals = dg.delayed(lambda x: np.hstack([x[0] - 1.0, 10.0 * (x[1] - x[0] ** 2)]))
    >>> loss = dg.delayed(lambda r: 0.5 * np.sum(r**2))
    >>> x, direction = np.array([1.0, 1.0]), np.array([1.0, 0.0])
    >>> (gradient,), (product,) = dg.gnvp(residuals, loss, (x,), (direction,))
    >>> gradient, product
    (array([0., 0.]), array([ 401., -200.]))
    """
    require_function(loss, "gnvp", "second")
    recorded = record_at(primals, tangents, residuals, "gnvp")
    graph = recorded.graph()
    directions = tangent_variables(recorded, [tangents[number] for number in recorded.numbers])
    pushed = [direction for (direction,) in directions.values()]
    held = HeldForwardPass(Graph(Tangents(graph, directions).dual_as_node(graph.output), pushed))
    value, (moved,) = held.value
    tangent = tangent_in_place(value, moved)

    def pulled(cotangent: Any) -> tuple:
        """The transposed Jacobian times a cotangent: the tangent is linear in its directions."""
        leaves = checked_cotangent(cotangent, value, recorded.name).leaves
        of_dual = cotangents.Cotangent(((None,) * len(leaves)) + leaves)
        return recorded.in_places(gather_gradients(pushed, held.pull(of_dual))[0])

    (slope,), (curvature,) = hvp(loss, (value,), (tangent,))
    return pulled(slope), pulled(curvature)
