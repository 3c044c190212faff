"""Gradients: what users call. Record the nodes, build both graphs, run them, collect."""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import optree

from daskgrad.derivatives.evaluation import Arrived, Kept, evaluated
from daskgrad.derivatives.inputs import (
    Argnums,
    as_number,
    as_output,
    checked_cotangent,
    has_derivative,
    is_number,
    require_argnums,
    require_argnums_kind,
    require_function,
    require_no_node,
    require_node,
    require_real_scalar,
    require_variables,
    unstacked,
    warn_of_independent,
)
from daskgrad.derivatives.recording import Recording, by_root, documented, in_places
from daskgrad.graph.activity import Graph
from daskgrad.graph.backward import add_backward
from daskgrad.graph.forward import Forward, add_forward
from daskgrad.graph.nodes import Node
from daskgrad.graph.variables import Variable
from daskgrad.tasks.collections import Result
from daskgrad.tasks.task_graph import TaskGraph
from daskgrad.values import cotangents
from daskgrad.values.cotangents import Cotangent, Seed
from daskgrad.values.descriptions import argument_name, function_name
from daskgrad.values.memory import of_its_own
from daskgrad.values.trees import flatten, unflatten

# ------------------------------------------------------------------------------------- public


def value_and_grad(fun: Callable, argnums: Argnums = 0, has_aux: bool = False) -> Callable:
    """A function that returns the value of ``fun`` and its gradient, from one forward pass.

    Parameters
    ----------
    fun:
        ordinary Python that calls models on its arguments and returns one node, whose value is a
        real floating-point number.
    argnums:
        which arguments to differentiate: a number gives the bare gradient, a sequence a tuple. They
        may be pytrees of float or complex arrays.
    has_aux:
        ``fun`` returns a pair (output, auxiliary); the value is then such a pair, too, with the
        auxiliary's nodes computed.

    Returns
    -------
    A function of ``fun``'s arguments. The gradient has the arguments' structure, and each leaf the
    shape and dtype of its argument's; ``None`` stands in the place of integers, booleans and
    strings. An argument that the output does not depend on gets zeros, and a warning.

    The gradient of a complex argument follows autograd's convention: for z = x + iy it is
    df/dx - i df/dy. Runs where Dask would run: the active client, or the configured scheduler.

    Arguments are not copied: no other thread may write into them before the call returns. Gradients
    share memory with nothing else.

    Raises
    ------
    TypeError
        where ``fun`` is no function, its output is not one real number, or an argument to
        differentiate holds no float or complex number. Errors of models keep their type, and get a
        note with the model's name.
    ValueError
        for ``argnums`` that the call has no arguments for.
    """
    require_function(fun, "value_and_grad")
    name = function_name(fun)
    require_argnums_kind(argnums, name)

    def value_and_grad_of(*args: Any, **kwargs: Any) -> tuple[Any, Any]:
        numbers = require_argnums(argnums, len(args), name)
        recorded = Recording(fun, name, numbers, args, borrows=True)
        try:
            value, aux, gradients = differentiated(recorded, *recorded.run(kwargs, has_aux))
        finally:
            recorded.give_back()
        gradient = gradients[0] if is_number(argnums) else tuple(gradients)
        return ((value, aux) if has_aux else value), gradient

    return documented(value_and_grad_of, fun, "value and gradient")


def differentiated(recorded: Recording, output: Any, aux: Any) -> tuple[Any, Any, list[Any]]:
    """Value, auxiliary and gradients, computed; the output must be one real number."""
    output = as_number(output, recorded.name)
    aux_leaves, aux_structure = flatten(aux)
    extras = [leaf for leaf in aux_leaves if isinstance(leaf, Node)]
    graph = recorded.graph(output, extras, output_is_scalar=True)
    value, computed, arrived = evaluated(graph, extras)
    require_real_scalar(value, output.name)
    rest = iter(map(of_its_own, computed))
    aux = [next(rest) if isinstance(leaf, Node) else leaf for leaf in aux_leaves]
    gradients = recorded.gather(arrived, is_last=True)
    return np.asarray(value)[()], unflatten(aux_structure, aux), gradients


def grad(fun: Callable, argnums: Argnums = 0) -> Callable:
    """A function that returns the gradient of ``fun`` alone.

    It costs as much as ``value_and_grad``, which tells of arguments, results and errors.
    """
    both = value_and_grad(fun, argnums)

    def grad_of(*args: Any, **kwargs: Any) -> Any:
        return both(*args, **kwargs)[1]

    return documented(grad_of, fun, "gradient")


def vjp(fun: Callable, *primals: Any) -> tuple[Any, Callable[[Any], tuple]]:
    """The value of ``fun(*primals)`` and its pullback.

    ``fun`` returns a node, or a pytree of nodes. The pullback takes a cotangent in the structure,
    shapes and dtypes of the value, and returns a tuple: one cotangent a primal. It also takes many
    cotangents at once, stacked along a new first axis of every leaf, and returns theirs so stacked;
    they are pulled back in parallel tasks, several in each. It can be called any number of times
    and runs no model again, unless what the model kept was lost with its worker or moved; it holds
    what the forward pass kept until it is garbage collected. Where all of that is gone (the cluster
    was restarted, its client is closed, another one is active) the forward pass runs again, and
    must have the same value. Only the primals are copied: do not write into other arrays that the
    models use while the pullback is wanted.

    Raises
    ------
    TypeError
        where ``fun`` is no function or returns neither a node nor a pytree of nodes, and of the
        pullback for a cotangent of a kind of number that the value is not.
    ValueError
        of the pullback, for a cotangent in another structure or shape.
    NondeterministicModelError
        of the pullback, where the forward pass ran again and had another value.
    """
    require_function(fun, "vjp")
    name = function_name(fun)
    for number, primal in enumerate(primals):
        require_no_node(primal, argument_name(fun, number))
    wrt = [i for i, primal in enumerate(primals) if has_derivative(primal)]
    recorded = Recording(fun, name, wrt, primals)
    output = as_output(recorded.run({}, has_aux=False)[0], name)
    kept = Kept(recorded.graph(output))

    def by_primal(arrived: Arrived) -> tuple:
        return in_places(recorded.gather(arrived), wrt, primals)

    def pullback(cotangent: Any) -> tuple:
        batch = unstacked(cotangent, kept.value, name)
        if batch is None:
            return by_primal(kept.pull(checked_cotangent(cotangent, kept.value, name)))
        return stacked([by_primal(arrived) for arrived in kept.pull_each(batch)])

    return of_its_own(kept.value), pullback


def stacked(trees: Sequence[Any]) -> Any:
    """Trees of one structure as one, whose arrays have a new first axis."""
    structure = flatten(trees[0])[1]
    columns = zip(*[flatten(tree)[0] for tree in trees], strict=True)
    return optree.tree_unflatten(
        structure, [None if column[0] is None else np.stack(column) for column in columns]
    )


def differentiate(output: Node, wrt: Any, cotangent: Any = None) -> tuple[Any, Any]:
    """The value of a node and its gradients as lazy Dask collections that share one forward pass.

    Parameters
    ----------
    output:
        a node; its value must be one real number unless a cotangent is given.
    wrt:
        a variable, a part of one, or a pytree of them.
    cotangent:
        the cotangent of the output, in the structure, shapes and dtypes of its value.

    Returns
    -------
    The value, and the gradients in the structure of ``wrt``; compute them together with
    ``dask.compute(value, gradients)``, or each model's forward runs once for each of them.
    """
    require_node(output)
    variables, structure = flatten(wrt)
    require_variables(variables)
    tasks = TaskGraph()
    graph = Graph(output, [v.root for v in variables], output_is_scalar=cotangent is None)
    for node in graph.scalars:
        if isinstance(node, Variable):  # a cotangent may meet no model on its way to it
            require_real_scalar(node.primal, output.name)
    for node in (*graph.order, *variables):
        node.own_arrays()  # the collections may be computed when a call that borrows has ended
    forward = add_forward(graph, tasks)
    seed = Seed() if cotangent is None else add_cotangent(cotangent, output, tasks, forward)
    arrived = add_backward(graph, forward, tasks, seed)
    parts = by_root(arrived)
    found = [overlapping(v, parts[v.root], arrived) for v in variables]
    pairs = list(zip(variables, found, strict=True))
    warn_of_independent([v for v, there in pairs if not there], output.name)
    references = [add_gradient(v, tasks, forward, there) for v, there in pairs]
    built = tasks.high_level_graph()
    gradients = [Result(reference.key, built) for reference in references]
    return Result(forward.values[output].key, built), optree.tree_unflatten(structure, gradients)


def overlapping(
    wrt: Variable, parts: Sequence[Variable], arrived: dict[Variable, Any]
) -> list[tuple[int, Any]]:
    """What arrived at a variable, at what it is a part of and at its parts, outermost first.

    With each the number of its first leaf, counted from the variable's. ``parts`` are those of the
    root that something arrived at, sorted by their leaves.
    """
    first, last = wrt.first_leaf, wrt.first_leaf + len(wrt.leaves)
    begin = bisect_left(parts, first, key=lambda part: part.first_leaf)
    end = bisect_left(parts, last, key=lambda part: part.first_leaf)
    around = [whole for whole in wrt.wholes if whole in arrived and whole.first_leaf < first]
    found = [*around[::-1], *parts[begin:end]]
    return [(part.first_leaf - first, arrived[part]) for part in found]


def add_gradient(wrt: Variable, tasks: TaskGraph, forward: Forward, found: Any) -> Any:
    """Adds the task that puts the gradient of a variable, or of a part of one, in its structure."""
    return tasks.add(
        tasks.key("cotangent", wrt.name),
        collect_gradient,
        value_of_variable(wrt, tasks, forward),
        tuple([start for start, _ in found]),
        [cotangent for _, cotangent in found],
    )


def value_of_variable(wrt: Variable, tasks: TaskGraph, forward: Forward) -> Any:
    return forward.values[wrt] if wrt in forward.values else wrt.add_value(tasks, [])


def collect_gradient(value: Any, starts: Sequence[int], arrived: Sequence[Cotangent]) -> Any:
    """The gradient of a variable, from what arrived at it, around it and at its parts."""
    leaves, structure = flatten(value)
    found = [cut(each, start, len(leaves)) for start, each in zip(starts, arrived, strict=True)]
    return cotangents.gradient(leaves, structure, cotangents.assemble(leaves, found))


def cut(cotangent: Cotangent, start: int, count: int) -> tuple[int, Cotangent]:
    """What of a cotangent is of ``count`` leaves, of which its own first is number ``start``.

    That of what the leaves are a part of may begin before them, and end after them.
    """
    if start >= 0 and start + len(cotangent.leaves) <= count:
        return start, cotangent
    return max(start, 0), Cotangent(cotangent.leaves[max(-start, 0) : count - start])


def add_cotangent(cotangent: Any, output: Node, tasks: TaskGraph, forward: Forward) -> Any:
    """Adds the task that compares a cotangent that was handed in to the value."""
    given = tasks.constant(cotangent, output.name)
    key = tasks.key("cotangent", output.name)
    return tasks.add(key, checked_cotangent, given, forward.values[output], output.name)
