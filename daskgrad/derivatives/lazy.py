"""Lazy derivatives: value and gradients as Dask collections that share one forward pass."""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import optree
from dask.typing import Key

from daskgrad.autodiff.models.as_called import as_called
from daskgrad.autodiff.values import cotangents
from daskgrad.autodiff.values.cotangents import Cotangent, Seed
from daskgrad.autodiff.values.trees import flatten
from daskgrad.derivatives.inputs import (
    checked_cotangent,
    require_node,
    require_real_scalar,
    require_variables,
    warn_of_independent,
)
from daskgrad.derivatives.recording import by_root
from daskgrad.graph.activity import Graph
from daskgrad.graph.backward import build_backward, pull_here
from daskgrad.graph.forward import Forward, build_forward
from daskgrad.graph.nodes import Node
from daskgrad.graph.variables import ChunkedVariable, ChunkVariable, Variable
from daskgrad.tasks.collections import LazyResult, as_dask_array
from daskgrad.tasks.task_graph import TaskGraph


def differentiate(output: Node, wrt: Any, cotangent: Any = None) -> tuple[Any, Any]:
    """The value of a node and its gradients as lazy Dask collections that share one forward pass.

    Parameters
    ----------
    output:
        a node; its value must be one real number unless a cotangent is given.
    wrt:
        a variable, a part of one, or a pytree of them. The gradient of one that is a dask Array is
        a dask Array of the same chunks.
    cotangent:
        the cotangent of the output, in the structure, shapes and dtypes of its value.

    Returns
    -------
    tuple
        The value, and the gradients in the structure of ``wrt``; compute them together with
        ``dask.compute(value, gradients)``, or each model's forward runs once for each of them.

    See Also
    --------
    variable, value_and_grad

    Examples
    --------
    >>> x = dg.variable(np.array([1.0, 2.0]))
    >>> value, gradient = dg.differentiate(dg.delayed(np.sum)(x**2), x)
    >>> dask.compute(value, gradient)
    (np.float64(5.0), array([2., 4.]))
    """
    require_node(output)
    leaves, structure = flatten(wrt)
    require_variables(leaves)
    variables = [part for leaf in leaves for part in parts_of(leaf)]
    tasks = TaskGraph()
    graph = Graph(output, [v.root for v in variables], output_is_scalar=cotangent is None)
    as_called(graph.order, is_kept=True)
    for node in graph.scalars:
        if isinstance(node, Variable):  # a cotangent may meet no model on its way to it
            require_real_scalar(stand_in(node), output.name)
    for node in (*graph.order, *variables):
        node.own_arrays()  # the collections may be computed after a call that borrows has ended
    forward = build_forward(graph, tasks, is_lazy=True)
    seed: Any = Seed()
    if cotangent is not None:
        args = (tasks.constant(cotangent, output.name), forward.values[output], output.name)
        seed = tasks.add(tasks.key("cotangent", output.name), checked_cotangent, *args)
    arrived = pull_here(forward, build_backward(forward, tasks, seed), tasks)
    parts = by_root(arrived)
    pairs = [(v, overlapping(v, parts[v.root], arrived)) for v in variables]
    reached = {v for v, pieces in pairs if pieces}
    warn_of_independent([v.name for v in leaves if reached.isdisjoint(parts_of(v))], output.name)
    keys = [build_gradient(v, tasks, forward, pieces).key for v, pieces in pairs]
    built = tasks.high_level_graph([forward.values[output].key, *keys])
    remaining = iter(keys)
    gradients = [gradient_of(leaf, remaining, built) for leaf in leaves]
    return LazyResult(forward.values[output].key, built), optree.tree_unflatten(
        structure, gradients
    )


def parts_of(leaf: Variable | ChunkedVariable) -> Sequence[Variable]:
    """The variables that a leaf consists of."""
    return leaf.blocks if isinstance(leaf, ChunkedVariable) else [leaf]


def gradient_of(leaf: Variable | ChunkedVariable, keys: Iterator[Key], built: Any) -> Any:
    """The gradient of a variable as a collection; takes the keys of its parts."""
    if not isinstance(leaf, ChunkedVariable):
        return LazyResult(next(keys), built)
    return as_dask_array(built, [next(keys) for _ in leaf.blocks], leaf.chunks, leaf.dtype)


def stand_in(variable: Variable) -> Any:
    """The value of a variable; for a chunk an array of its shape and dtype."""
    primal = variable.primal
    if not isinstance(variable, ChunkVariable):
        return primal
    return np.broadcast_to(primal.dtype.type(0), primal.shape)


def overlapping(
    wrt: Variable, parts: Sequence[Variable], arrived: dict[Variable, Any]
) -> list[tuple[int, Any]]:
    """The cotangents that arrived at a variable, its containers and its parts, outermost first;
    each with the index of its first leaf, counted from the variable's first."""
    first, last = wrt.first_leaf, wrt.first_leaf + len(wrt.leaves)
    begin = bisect_left(parts, first, key=lambda part: part.first_leaf)
    end = bisect_left(parts, last, key=lambda part: part.first_leaf)
    around = [whole for whole in wrt.containers if whole in arrived and whole.first_leaf < first]
    overlaps = [*around[::-1], *parts[begin:end]]
    return [(part.first_leaf - first, arrived[part]) for part in overlaps]


def build_gradient(wrt: Variable, tasks: TaskGraph, forward: Forward, pieces: Any) -> Any:
    """Builds the task that puts the gradient of a variable, or of a part, in its structure."""
    return tasks.add(
        tasks.key("cotangent", wrt.key_name),
        collect_gradient,
        forward.values[wrt],
        tuple([start for start, _ in pieces]),
        [cotangent for _, cotangent in pieces],
    )


def collect_gradient(value: Any, starts: Sequence[int], arrived: Sequence[Cotangent]) -> Any:
    """The gradient of a variable, from the cotangents of its containers and parts."""
    leaves, structure = flatten(value)
    parts = [cut(part, start, len(leaves)) for start, part in zip(starts, arrived, strict=True)]
    return cotangents.gradient(leaves, structure, cotangents.assemble(leaves, parts))


def cut(cotangent: Cotangent, start: int, count: int) -> tuple[int, Cotangent]:
    """The part of a cotangent that belongs to ``count`` leaves, and its first index among them; a
    container's begins at a negative ``start``, or ends after them."""
    if start >= 0 and start + len(cotangent.leaves) <= count:
        return start, cotangent
    return max(start, 0), Cotangent(cotangent.leaves[max(-start, 0) : count - start])
