"""Forward mode: tangents pushed along the graph, each with its value."""

from collections.abc import Callable, Sequence
from typing import Any

from daskgrad.derivatives.collector import rare_full_collections
from daskgrad.derivatives.evaluation import evaluate_graph
from daskgrad.derivatives.inputs import (
    checked_tangent,
    has_derivative,
    require_function,
    require_tangents,
)
from daskgrad.derivatives.outputs import as_output
from daskgrad.derivatives.recording import Recording
from daskgrad.graph.activity import Graph
from daskgrad.graph.tangents import Tangents
from daskgrad.graph.variables import Variable, copy_variable
from daskgrad.models.duals import tangent_in_place
from daskgrad.values.descriptions import function_name
from daskgrad.values.memory import of_its_own


@rare_full_collections
def jvp(fun: Callable, primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
    """The value of ``fun(*primals)`` and its tangent, the Jacobian times ``tangents``.

    Each model runs once, and its task sends its tangent with its value.

    Parameters
    ----------
    fun:
        ordinary Python that calls models on its arguments and returns a node or a pytree of nodes.
    primals, tangents:
        a tuple or list with an entry for each argument. A tangent is in the structure, shapes and
        dtypes of its primal, with ``None`` for leaves without derivative; ``None`` instead of a
        tangent means zero.

    Returns
    -------
    tuple
        The value, and the tangent in its structure, shapes and dtypes; ``None`` replaces integers,
        booleans and strings.

    Raises
    ------
    TypeError, ValueError
        if ``fun`` is not a function, ``primals`` and ``tangents`` are not two tuples of one length,
        or a tangent differs from its primal in structure, shapes or kinds of numbers.
    NotImplementedError
        if a model has a rule of its own for gradients only (``custom_vjp``).

    Examples
    --------
    >>> x, direction = np.array([2.0, 3.0]), np.array([1.0, 0.0])
    >>> dg.jvp(dg.delayed(np.prod), (x,), (direction,))
    (np.float64(6.0), np.float64(3.0))
    """
    recorded = record_at(primals, tangents, fun, "jvp", with_zeros=False)
    graph = recorded.graph(as_output(recorded.run(), recorded.name))
    directions = tangent_variables(recorded, [tangents[n] for n in recorded.numbers])
    output = Tangents(graph, directions).dual_as_node(graph.output)
    dual = evaluate_graph(Graph(output, []))[0]
    tangent = tangent_in_place(dual.value, dual.tangents[0])
    return of_its_own(dual.value), of_its_own(tangent)


def record_at(
    primals: Any, tangents: Any, fun: Callable, asked: str, with_zeros: bool = True
) -> Recording:
    """A call of ``fun`` with variables for the primals that have a derivative.

    Without ``with_zeros`` those whose tangent is ``None`` are constants.
    """
    require_function(fun, asked)
    name = function_name(fun)
    require_tangents(primals, tangents, asked, name)
    wrt = [
        number
        for number, (primal, tangent) in enumerate(zip(primals, tangents, strict=True))
        if (with_zeros or tangent is not None) and has_derivative(primal)
    ]
    return Recording(fun, name, wrt, primals)


def tangent_variables(
    recorded: Recording, tangents: Sequence[Any]
) -> dict[Variable, tuple[Variable, ...]]:
    """For each variable a second one, which holds its tangent."""
    return {
        own: (
            copy_variable(checked_tangent(tangent, own.primal, own.name), f"tangent of {own.name}"),
        )
        for own, tangent in zip(recorded.variables, tangents, strict=True)
    }
