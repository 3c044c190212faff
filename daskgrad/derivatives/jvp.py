"""Forward mode: tangents pushed along the graph, each with its value."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from daskgrad.autodiff.models.duals import Dual, tangent_in_place
from daskgrad.autodiff.rules.declaration import strong
from daskgrad.autodiff.values.memory import of_its_own, row_major
from daskgrad.autodiff.values.trees import map_leaves
from daskgrad.derivatives.evaluation import evaluate_graph
from daskgrad.derivatives.objectives import RecordedObjective, along
from daskgrad.derivatives.recording import record_at, tangent_variables
from daskgrad.graph.activity import Graph
from daskgrad.graph.tangents import Tangents


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


def dual_graph(fun: Callable, primals: Any, tangents: Any) -> Graph:
    """The graph of the value and its tangent."""
    recorded = record_at(primals, tangents, fun, "jvp", with_zeros=False)
    graph = recorded.graph()
    directions = tangent_variables(recorded, [tangents[n] for n in recorded.numbers])
    return Graph(Tangents(graph, directions).dual_as_node(graph.output), [])


def value_and_tangent(dual: Dual) -> tuple[Any, Any]:
    """Both in C order, numbers as NumPy's."""

    def tangent_leaf(leaf: Any) -> Any:
        is_array = isinstance(leaf, np.ndarray)
        return row_major(leaf[()] if is_array and leaf.ndim == 0 else leaf)

    tangent = map_leaves(tangent_leaf, tangent_in_place(dual.value, dual.tangents[0]))
    return map_leaves(lambda leaf: row_major(strong(leaf)), dual.value), tangent
