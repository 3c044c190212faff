"""Forward mode: tangents pushed along the graph, each with its value."""

from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from daskgrad.autodiff.models.duals import Dual, tangent_in_place
from daskgrad.autodiff.rules.declaration import strong
from daskgrad.autodiff.values.cotangents import is_differentiable
from daskgrad.autodiff.values.descriptions import function_name
from daskgrad.autodiff.values.memory import of_its_own
from daskgrad.autodiff.values.slopes import as_matrix, dense_block, full_array, sparse_block
from daskgrad.autodiff.values.trees import flatten, map_leaves
from daskgrad.autodiff.values.vectors import entries
from daskgrad.derivatives.evaluation import evaluate_graph
from daskgrad.derivatives.inputs import (
    checked_tangent,
    has_derivative,
    require_function,
    require_tangents,
)
from daskgrad.derivatives.objectives import RecordedObjective, objective_of
from daskgrad.derivatives.recording import RecordedFunction
from daskgrad.graph.activity import Graph
from daskgrad.graph.tangents import Tangents
from daskgrad.graph.variables import Variable, copy_variable


def jvp(fun: Callable, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
    """The value of ``fun(*primals)`` and its tangent, the Jacobian times ``tangents``.

    Each model runs once, and its task returns the value and its tangent.

    Parameters
    ----------
    fun:
        ordinary Python that calls models on its arguments and returns a node or a pytree of nodes.
    primals, tangents:
        a tuple or list with an entry for each argument. A tangent has the structure, shapes and
        dtypes of its primal, with ``None`` for leaves without derivative; ``None`` instead of a
        whole tangent means zero.

    Returns
    -------
    tuple
        The value, and its tangent in the same structure, shapes and dtypes, with ``None`` for
        integers, booleans and strings.

    Raises
    ------
    TypeError, ValueError
        if ``fun`` is not a function, ``primals`` and ``tangents`` are not two tuples of one length,
        or a tangent differs from its primal in structure, shapes or kinds of numbers.
    NotImplementedError
        if a model has a rule of its own for gradients only (``custom_vjp``).

    See Also
    --------
    vjp, jacobian

    Examples
    --------
    >>> x, direction = np.array([2.0, 3.0]), np.array([1.0, 0.0])
    >>> dg.jvp(dg.delayed(np.prod), (x,), (direction,))
    (np.float64(6.0), np.float64(3.0))
    """

    def by_graph() -> tuple[Any, Any]:
        graph = dual_graph(fun, primals, tangents)
        value, tangent = value_and_tangent(evaluate_graph(graph)[0])
        return of_its_own(value), of_its_own(tangent)

    return along(RecordedTangent, fun, primals, tangents, by_graph)


class RecordedTangent(RecordedObjective):
    """A value and its tangent; the arguments are primals and tangents."""

    derivative = "tangent"

    def results(self, args: tuple) -> tuple[Any, Any]:
        count = len(self.objective.numbers)
        graph = dual_graph(self.objective.fun, args[:count], args[count:])
        return value_and_tangent(self.evaluated(graph)[0])


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
    objective = objective_of(kind, fun, function_name(fun), range(len(primals)))
    return otherwise() if objective is None else objective.call((*primals, *tangents), otherwise)


def dual_graph(fun: Callable, primals: Any, tangents: Any) -> Graph:
    """The graph of the value and its tangent."""
    recorded = record_at(primals, tangents, fun, "jvp", with_zeros=False)
    graph = recorded.graph()
    directions = tangent_variables(recorded, [tangents[n] for n in recorded.numbers])
    return Graph(Tangents(graph, directions).dual_as_node(graph.output), [])


def value_and_tangent(dual: Dual) -> tuple[Any, Any]:
    return map_leaves(strong, dual.value), tangent_in_place(dual.value, dual.tangents[0])


def record_at(
    primals: Any, tangents: Any, fun: Callable, derivative: str, with_zeros: bool = True
) -> RecordedFunction:
    """A call of ``fun`` with variables for the primals that have a derivative; without
    ``with_zeros`` a primal is a constant if its tangent is ``None``."""
    require_function(fun, derivative)
    name = function_name(fun)
    require_tangents(primals, tangents, derivative, name)
    numbers = [
        number
        for number, (primal, tangent) in enumerate(zip(primals, tangents, strict=True))
        if (with_zeros or tangent is not None) and has_derivative(primal)
    ]
    return RecordedFunction(fun, name, numbers, primals)


def tangent_variables(
    recorded: RecordedFunction, tangents: Sequence[Any]
) -> dict[Variable, tuple[Variable, ...]]:
    """For each variable a second one, which holds its tangent."""
    return {
        v: (copy_variable(checked_tangent(tangent, v.primal, v.name), f"tangent of {v.name}"),)
        for v, tangent in zip(recorded.variables, tangents, strict=True)
    }


# -------------------------------------------------------------------------------------------------
# Matrices: Jacobians and Hessians as trees of trees of submatrices.


def submatrices(
    value: Any,
    argument: Any,
    rows: Sequence[Sequence[Any]],
    are_columns: bool = False,
    sparse: bool = False,
) -> Any:
    """A tree of trees of submatrices, from the rows of a matrix, each with the argument's leaves.

    ``are_columns``: ``rows`` are the columns, each with the value's leaves. ``sparse``: submatrices
    are SciPy's arrays, with all entries.
    """
    outer, inner = flatten(value)[0], flatten(argument)[0]
    runs = list(pairwise(accumulate(map(entries, inner if are_columns else outer), initial=0)))

    def submatrix(i: int, j: int) -> Any:
        run, leaf = (j, i) if are_columns else (i, j)
        parts = [row[leaf] for row in rows[slice(*runs[run])]]
        shape = (*np.shape(outer[i]), *np.shape(inner[j]))
        if parts:
            stack = np.stack(parts, axis=-1 if are_columns else 0)
            matrix = np.ascontiguousarray(stack).reshape(shape)
        else:  # an empty leaf has no rows
            matrix = np.zeros(shape, np.result_type(outer[i] if are_columns else inner[j]))
        return (
            full_array(matrix.reshape(np.size(outer[i]), np.size(inner[j]))) if sparse else matrix
        )

    return tree_of_blocks(value, argument, submatrix)


def blocks(dual: Dual, argument: Any, sparse: bool) -> Any:
    """A tree of trees of submatrices, from a value with its slopes."""
    outer, inner = flatten(dual.value)[0], flatten(argument)[0]
    slopes = flatten(dual.tangents[0])[0]
    runs = list(pairwise(accumulate(map(entries, inner), initial=0)))

    def block(i: int, j: int) -> Any:
        matrix = as_matrix(slopes[i], outer[i])
        if sparse:
            return sparse_block(matrix, *runs[j])
        return dense_block(matrix, *runs[j]).reshape((*np.shape(outer[i]), *np.shape(inner[j])))

    return tree_of_blocks(dual.value, argument, block)


def tree_of_blocks(value: Any, argument: Any, block: Callable[[int, int], Any]) -> Any:
    """The value's tree with the argument's tree in the place of each leaf; ``block(i, j)`` makes
    its leaf ``j`` at leaf ``i`` of the value."""
    outer, outer_tree = flatten(value)
    inner, inner_tree = flatten(argument)

    def row(i: int) -> Any:
        return inner_tree.unflatten(
            [block(i, j) if is_differentiable(leaf) else None for j, leaf in enumerate(inner)]
        )

    return outer_tree.unflatten(
        [row(i) if is_differentiable(leaf) else None for i, leaf in enumerate(outer)]
    )
