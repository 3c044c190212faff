"""Stopping: ``stop_gradient`` and ``value`` end derivatives, in graphs and in models.

In a graph a stopped node is never active, so nodes that lie only behind it get no backward tasks.
In a model the backend stops its own boxes or tracers.
"""

from typing import Any

from daskgrad.autodiff.libraries import registry
from daskgrad.autodiff.values.trees import map_leaves
from daskgrad.graph.nodes import Node, same
from daskgrad.graph.variables import Variable
from daskgrad.tasks.task_graph import TaskGraph


class StopGradient(Node):
    """The value of a node, without its derivative."""

    is_stopped = True

    def __init__(self, source: Node):
        super().__init__(source.name, (source,))
        self.is_here = source.is_here

    def build_value(self, tasks: TaskGraph, inputs: list[Any]) -> Any:
        return tasks.add(self.key, same, *inputs, annotations=self.annotations)


def stop_gradient(x: Any) -> Any:
    """Returns the value as a constant, with a derivative of zero.

    Works in graphs and within models, first and nested derivatives alike, and on pytrees: on each
    leaf alone.

    Parameters
    ----------
    x:
        a node or a variable (the result has the same value, and nodes that lie only behind it get
        no backward tasks); within a model any array or number of its backend. Anything else is
        returned as it is.

    Returns
    -------
    Any
        ``x``, as a constant.

    See Also
    --------
    value

    Notes
    -----
    Nobody notices a derivative that is zero because everything was stopped: there is a warning if
    the output does not depend on an argument in the graph, and none within a model. Values that
    reach a model through a closure or a global are constants without ``stop_gradient``.

    Examples
    --------
    >>> dg.grad(lambda x: dg.delayed(lambda x: dg.stop_gradient(x) * x)(x))(3.0)
    np.float64(3.0)
    """
    return map_leaves(stop_leaf, x)


def value(x: Any) -> Any:
    """The plain number or array within a model, for indices, logging and branches.

    While a model is differentiated, its arguments and all that it computes from them are boxes or
    tracers of a backend. This function takes the plain values out of them, through all nested
    derivatives, leaf by leaf of a pytree. Plain values are returned as they are.

    The result is a constant, without a warning: ``x * dg.value(x)`` has the derivative
    ``dg.value(x)``. ``dg.check_grads`` finds this.

    Returns
    -------
    Any
        ``x``, with plain numbers and arrays for its leaves.

    Raises
    ------
    TypeError
        if ``x`` is a node, which has no value yet (outside of models call ``.compute()``), and
        within a JAX model, which is compiled for shapes without values.

    See Also
    --------
    stop_gradient

    Examples
    --------
    >>> def model(x):
    ...     steps = int(dg.value(x))  # a plain number, also while x is differentiated
    ...     return x**steps
    >>> dg.grad(dg.delayed(model))(3.0)
    np.float64(27.0)
    """
    return map_leaves(plain_leaf, x)


def stop_leaf(leaf: Any) -> Any:
    if isinstance(leaf, Variable) and not leaf.is_settled:
        return leaf.as_constant()
    if isinstance(leaf, Node):
        return StopGradient(leaf)
    for function in registry.of_leaves("stop_gradient"):
        leaf = function(leaf)
    return leaf


def plain_leaf(leaf: Any) -> Any:
    if isinstance(leaf, Node):
        raise TypeError(
            f"dg.value needs the value of {leaf!r}, which is not computed yet: it is for numbers "
            f"within a model; outside of models, take the value with .compute()"
        )
    for function in registry.of_leaves("value"):
        leaf = function(leaf)
    return leaf
