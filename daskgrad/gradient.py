"""Gradients: what users call. Record the nodes, build both graphs, run them, collect.

``fun`` is ordinary Python that calls models. It runs once, in the calling thread, with variables in
the place of the arguments that are differentiated.
"""

import functools
import inspect
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import optree
from distributed import CancelledError

from daskgrad import cotangents
from daskgrad.backward import add_backward
from daskgrad.cotangents import Cotangent, Seed, describe
from daskgrad.forward import Forward, Whole, add_forward
from daskgrad.graph import Graph
from daskgrad.inline import InLine, seconds_in_line
from daskgrad.nodes import (
    OTHER_DERIVATIVE,
    Constant,
    Node,
    Variable,
    delayed,
    function_name,
    variable,
)
from daskgrad.pullbacks import is_real_scalar
from daskgrad.reduction import ReductionNode
from daskgrad.resident.evaluation import ArrayTermsError
from daskgrad.shards import active_client, restore_lost
from daskgrad.shipping import complaints
from daskgrad.structures import flatten
from daskgrad.tasks import Result, TaskGraph

ATTEMPTS = 10  # how often an evaluation is repeated after placed items were lost

Argnums = int | Sequence[int]


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
    """
    name = function_name(fun)

    def value_and_grad_of(*args: Any, **kwargs: Any) -> tuple[Any, Any]:
        recorded = Recording(fun, name, require_argnums(argnums, len(args), name), args)
        output, aux = recorded.run(kwargs, has_aux)
        value, aux, gradients = recorded.differentiate(output, aux)
        gradient = gradients[0] if is_number(argnums) else tuple(gradients)
        return ((value, aux) if has_aux else value), gradient

    return documented(value_and_grad_of, fun, "value and gradient")


def grad(fun: Callable, argnums: Argnums = 0) -> Callable:
    """A function that returns the gradient of ``fun``; see ``value_and_grad``."""
    both = value_and_grad(fun, argnums)

    def grad_of(*args: Any, **kwargs: Any) -> Any:
        return both(*args, **kwargs)[1]

    return documented(grad_of, fun, "gradient")


def vjp(fun: Callable, *primals: Any) -> tuple[Any, Callable[[Any], tuple]]:
    """The value of ``fun(*primals)`` and its pullback.

    ``fun`` returns a node, or a pytree of nodes. The pullback takes a cotangent in the structure,
    shapes and dtypes of the value, and returns a tuple: one cotangent a primal. It can be called
    any number of times and runs no model again, unless what the model kept was lost with its worker
    or moved; it holds what the forward pass kept until it is garbage collected. Only the primals
    are copied: do not write into other arrays that the models use while the pullback is wanted.
    """
    name = function_name(fun)
    for number, primal in enumerate(primals):
        require_no_node(primal, argument_name(fun, number))
    wrt = [i for i, primal in enumerate(primals) if has_derivative(primal)]
    recorded = Recording(fun, name, wrt, primals)
    output = as_output(recorded.run({}, has_aux=False)[0], name)
    kept = Kept(output, recorded)

    def pullback(cotangent: Any) -> tuple:
        gradients = iter(kept.pull(checked_cotangent(cotangent, kept.value, name)))
        return tuple([next(gradients) if i in wrt else nothing(p) for i, p in enumerate(primals)])

    return of_its_own(kept.value), pullback


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
    forward = add_forward(graph, tasks)
    seed = Seed() if cotangent is None else add_cotangent(cotangent, output, tasks, forward)
    arrived = add_backward(graph, forward, tasks, seed)
    independent = [v for v in variables if not any(overlap(v, node) for node in arrived)]
    warn_of_independent(independent, output.name)
    references = [add_gradient(v, tasks, forward, arrived) for v in variables]
    built = tasks.high_level_graph()
    gradients = [Result(reference.key, built) for reference in references]
    return Result(forward.values[output].key, built), optree.tree_unflatten(structure, gradients)


# ---------------------------------------------------------------------------------- recording


class Recording:
    """One call of a user's function with variables in the place of some arguments."""

    def __init__(self, fun: Callable, name: str, argnums: Sequence[int], args: Sequence[Any]):
        self.fun = fun
        self.name = name
        self.args = list(args)
        self.variables = []
        for number in argnums:
            argument = argument_name(fun, number)
            require_no_node(args[number], argument)
            require_derivative(args[number], argument, name)
            self.variables.append(recorded_variable(args[number], argument))
            self.args[number] = self.variables[-1]

    def graph(
        self, output: Node, extras: Sequence[Node] = (), output_is_scalar: bool = False
    ) -> Graph:
        graph = Graph(output, self.variables, extras, output_is_scalar)
        require_own_variables(graph, self.variables, self.name)
        return graph

    def run(self, kwargs: dict, has_aux: bool) -> tuple[Any, Any]:
        result = self.fun(*self.args, **kwargs)
        if not has_aux:
            return result, None
        if not (isinstance(result, tuple) and len(result) == 2):
            raise TypeError(
                f"{self.name!r} must return a pair (output, auxiliary), since has_aux=True; "
                f"found {describe(result)}"
            )
        return result

    def differentiate(self, output: Any, aux: Any) -> tuple[Any, Any, list[Any]]:
        """Value, auxiliary and gradients, computed; the output must be one real number."""
        output = output if isinstance(output, Node) else constant_output(output, self.name)
        aux_leaves, aux_structure = flatten(aux)
        extras = [leaf for leaf in aux_leaves if isinstance(leaf, Node)]
        graph = self.graph(output, extras, output_is_scalar=True)
        value, computed, arrived = repeated(graph, lambda: self._compute(graph, extras))
        require_real_scalar(value, output.name)
        rest = iter(computed)
        aux = [next(rest) if isinstance(leaf, Node) else leaf for leaf in aux_leaves]
        gradients = self.gather(arrived)
        return np.asarray(value)[()], optree.tree_unflatten(aux_structure, aux), gradients

    def _compute(self, graph: Graph, extras: Sequence[Node]) -> tuple[Any, Sequence[Any], dict]:
        """The output's value, those of the extras, and the cotangents that arrive at variables."""
        tasks, client = TaskGraph(), active_client()
        seconds = seconds_in_line(graph, client)
        if not seconds:
            warn_of_shipping(graph, client)
        forward = add_forward(graph, tasks, Whole(client) if seconds else None)
        arrived = add_backward(graph, forward, tasks, Seed())
        references = [forward.values[node] for node in (graph.output, *extras)]
        wanted = [*references, *arrived.values()]
        if forward.whole is None:
            value, *rest = known_or(tasks.compute, wanted)
        else:
            value, *rest = known_or(InLine(tasks, forward.whole, seconds).compute, wanted)
        computed, pulled = rest[: len(extras)], rest[len(extras) :]
        return value, computed, dict(zip(arrived, pulled, strict=True))

    def gather(self, arrived: dict[Variable, Cotangent]) -> list[Any]:
        """The gradient of each variable, from the cotangents that arrived at its parts."""
        gradients, independent = [], []
        for root in self.variables:
            leaves = cotangents.assemble(root.leaves, parts(root, arrived))
            if cotangents.is_zero(leaves):
                independent.append(root)
            gradients.append(cotangents.gradient(root.leaves, root.structure, leaves))
        warn_of_independent(independent, self.name)
        return gradients


def recorded_variable(value: Any, name: str) -> Variable:
    made = variable(value, name)
    made.is_recorded = True
    return made


def of_its_own(value: Any) -> Any:
    """A copy for the caller, who may write into it; a pullback may hold the array itself."""
    leaves, structure = flatten(value)
    copies = [leaf.copy() if isinstance(leaf, np.ndarray) else leaf for leaf in leaves]
    return optree.tree_unflatten(structure, copies)


def argument_name(fun: Callable, number: int) -> str:
    """The name of a positional argument; read off the code where that is at hand, for speed."""
    code = getattr(fun, "__code__", None)
    if code is not None and number < code.co_argcount and not hasattr(fun, "__wrapped__"):
        return code.co_varnames[number]
    try:
        return list(inspect.signature(fun).parameters)[number]
    except (ValueError, TypeError, IndexError):
        return f"argument {number}"


def parts(root: Variable, arrived: dict[Variable, Any]) -> list[tuple[int, Any]]:
    """What arrived at a variable as a whole and at its parts, in the order of their leaves."""
    found = [node for node in arrived if node.root is root]
    found.sort(key=lambda node: (node.first_leaf, -len(node.leaves)))
    return [(node.first_leaf, arrived[node]) for node in found]


def overlap(first: Variable, second: Variable) -> bool:
    """Whether two variables are one, or one is a part of the other."""
    apart = (
        first.first_leaf + len(first.leaves) <= second.first_leaf
        or second.first_leaf + len(second.leaves) <= first.first_leaf
    )
    return first.root is second.root and not apart


def add_gradient(wrt: Variable, tasks: TaskGraph, forward: Forward, arrived: dict) -> Any:
    """Adds the task that puts the gradient of a variable, or of a part of one, in its structure."""
    found = parts(wrt.root, arrived)
    return tasks.add(
        tasks.key("cotangent", wrt.name),
        collect_gradient,
        value_of_variable(wrt.root, tasks, forward),
        tuple([start for start, _ in found]),
        [cotangent for _, cotangent in found],
        value_of_variable(wrt, tasks, forward),
        wrt.first_leaf,
        wrt.name,
    )


def value_of_variable(wrt: Variable, tasks: TaskGraph, forward: Forward) -> Any:
    return forward.values[wrt] if wrt in forward.values else wrt.add_value(tasks, [])


def collect_gradient(
    whole: Any,
    starts: Sequence[int],
    arrived: Sequence[Cotangent],
    part: Any,
    first: int,
    name: str,
) -> Any:
    """The gradient of a part of a variable, from what arrived at the whole and at its parts."""
    for start, cotangent in zip(starts, arrived, strict=True):
        if isinstance(cotangent, Seed):  # it met no model on its way
            require_real_scalar(flatten(whole)[0][start], name)
    total = cotangents.assemble(flatten(whole)[0], list(zip(starts, arrived, strict=True)))
    leaves, structure = flatten(part)
    return cotangents.gradient(leaves, structure, total[first : first + len(leaves)])


def add_cotangent(cotangent: Any, output: Node, tasks: TaskGraph, forward: Forward) -> Any:
    """Adds the task that compares a cotangent that was handed in to the value."""
    given = tasks.constant(cotangent, output.name)
    key = tasks.key("cotangent", output.name)
    return tasks.add(key, checked_cotangent, given, forward.values[output], output.name)


# ------------------------------------------------------------------------------------ running


def known_or(compute: Callable[[list[Any]], Sequence[Any]], references: Sequence[Any]) -> list[Any]:
    """What references stand for: computed, unless it is a cotangent, which is known already.

    That is the cotangent of an output that is itself a variable.
    """
    keys = [ref.key for ref in references if not isinstance(ref, Cotangent)]
    computed = iter(compute(keys))
    return [ref if isinstance(ref, Cotangent) else next(computed) for ref in references]


def repeated(
    graph: Graph, evaluate: Callable[[], Any], prepare: Callable[[], Any] = lambda: None
) -> Any:
    """Evaluates; where placed items were lost with a worker, places them again and repeats.

    ``prepare`` is called before each repetition.
    """
    sums = [node for node in graph.order if isinstance(node, ReductionNode)]
    placed = [shards for node in sums for shards in node.items.placed]
    for _ in range(ATTEMPTS):
        try:
            return evaluate()
        except ArrayTermsError as error:
            for shards in placed:
                shards.array_valued.add(str(error))
        except CancelledError:
            if not placed:
                raise
            restore_lost(placed)  # or another evaluation has done so already
            prepare()
    return evaluate()


class Kept:
    """A forward pass that was run, and what its pullbacks need for any number of cotangents."""

    def __init__(self, output: Node, recorded: Recording):
        self._recorded = recorded
        self._graph = recorded.graph(output)
        self.value = repeated(self._graph, self._run)

    def _run(self) -> Any:
        warn_of_shipping(self._graph, active_client())
        tasks = TaskGraph()
        self._forward = add_forward(self._graph, tasks)
        self._tasks = tasks.persisted()
        return known_or(self._tasks.compute, [self._forward.values[self._graph.output]])[0]

    def pull(self, cotangent: Cotangent) -> list[Any]:
        """The gradient of each variable."""
        return repeated(self._graph, lambda: self._pull(cotangent), prepare=self._run)

    def _pull(self, cotangent: Cotangent) -> list[Any]:
        tasks = self._tasks.copy()
        arrived = add_backward(self._graph, self._forward, tasks, cotangent)
        computed = known_or(tasks.compute, list(arrived.values()))
        return self._recorded.gather(dict(zip(arrived, computed, strict=True)))


# ------------------------------------------------------------------------------------ demands


def require_argnums(argnums: Argnums, count: int, name: str) -> list[int]:
    is_sequence = isinstance(argnums, Sequence | np.ndarray)
    numbers: list[Any] = list(argnums) if is_sequence else [argnums]  # type: ignore[arg-type]
    for number in numbers:
        if not (is_number(number) and 0 <= number < count):
            raise ValueError(
                f"argnums={argnums!r} of {name!r} must be numbers of positional arguments, counted "
                f"from 0; it was called with {count}"
            )
    if len(set(numbers)) < len(numbers):
        raise ValueError(f"argnums={argnums!r} of {name!r} names an argument twice")
    return numbers


def is_number(argnum: Any) -> bool:
    return isinstance(argnum, int | np.integer) and not isinstance(argnum, bool)


def has_derivative(value: Any) -> bool:
    return any(cotangents.is_differentiable(leaf) for leaf in flatten(value)[0])


def require_derivative(value: Any, argument: str, name: str) -> None:
    if has_derivative(value):
        return
    raise TypeError(
        f"argument {argument!r} of {name!r} is {describe(value)}, which has no derivative; "
        f"pass float or complex numbers or arrays, or leave it out of argnums"
    )


def require_no_node(value: Any, argument: str) -> None:
    for leaf in flatten(value)[0]:
        if isinstance(leaf, Node):
            raise TypeError(f"{argument!r} holds {leaf!r}, which {OTHER_DERIVATIVE}")


def require_own_variables(graph: Graph, variables: Sequence[Variable], name: str) -> None:
    """A derivative inside another one would take the variables of the other for constants."""
    own = set(variables)
    for node in graph.order:
        if isinstance(node, Variable) and node.root not in own and node.root.is_recorded:
            raise TypeError(f"the output of {name!r} depends on {node!r}, which {OTHER_DERIVATIVE}")


def require_node(output: Any) -> None:
    if not isinstance(output, Node):
        raise TypeError(
            f"differentiate needs a node, which is what calling a model returns; "
            f"found {describe(output)}"
        )


def require_variables(wrt: Sequence[Any]) -> None:
    for leaf in wrt:
        if not isinstance(leaf, Variable):
            raise TypeError(
                f"wrt must be a variable that dg.variable made, or a pytree of them; "
                f"found {describe(leaf)}"
            )


def require_real_scalar(value: Any, name: str) -> None:
    """The value of an output that no backward task has looked at."""
    if not is_real_scalar([value]):
        raise TypeError(
            f"the gradient of {name!r} was asked for, but its value is {describe(value)}; "
            f"a gradient needs one real number: sum it up, or use vjp"
        )


def constant_output(output: Any, name: str) -> Node:
    """A node for an output that depends on no model: a number, or an error."""
    if isinstance(output, int | float | np.integer | np.floating) and not isinstance(output, bool):
        return Constant(np.float64(output))
    raise TypeError(
        f"{name!r} must return a node, whose value is one real number; found {describe(output)}"
        + (": add the nodes up, or use vjp" if holds_node(output) else "")
    )


def as_output(output: Any, name: str) -> Node:
    """The node of an output that may be a pytree of nodes."""
    if isinstance(output, Node):
        return output
    if holds_node(output):
        return PACK(output)
    raise TypeError(f"{name!r} must return a node or a pytree of nodes; found {describe(output)}")


def holds_node(value: Any) -> bool:
    return any(isinstance(leaf, Node) for leaf in flatten(value)[0])


def packed(value: Any) -> Any:
    return value


PACK = delayed(packed, name="output")


def checked_cotangent(cotangent: Any, value: Any, name: str) -> Cotangent:
    """A cotangent in the structure, shapes and dtypes of the value."""
    leaves, structure = flatten(cotangent)
    primals, expected = flatten(value)
    if structure != expected:
        raise ValueError(
            f"cotangent of {name!r}: expected the structure of the value, {describe(value)}; "
            f"found {describe(cotangent)}"
        )
    pairs = zip(leaves, primals, strict=True)
    return Cotangent(tuple([cotangents.check(c, leaf, repr(name)) for c, leaf in pairs]))


def nothing(primal: Any) -> Any:
    """The gradient of an argument without derivative: None for every leaf."""
    leaves, structure = flatten(primal)
    return optree.tree_unflatten(structure, [None] * len(leaves))


def warn_of_independent(variables: Sequence[Variable], name: str) -> None:
    for independent in variables:
        warnings.warn(
            f"the output of {name!r} does not depend on {independent.name!r}; its gradient is zero",
            stacklevel=outside(),
        )


def warn_of_shipping(graph: Graph, client: Any) -> None:
    for message in complaints(graph, client):
        warnings.warn(message, stacklevel=outside())


def outside() -> int:
    """The stacklevel, for the caller's warning, of the first frame that is not of this package."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back and frame.f_globals.get("__name__", "").startswith("daskgrad."):
        level, frame = level + 1, frame.f_back
    return level


def documented(derivative: Callable, fun: Callable, what: str) -> Callable:
    """A derivative that carries the name and the docstring of its function."""
    name = function_name(fun)
    functools.update_wrapper(derivative, fun, ("__module__",), ())
    derivative.__name__ = f"{what.replace(' ', '_')}_of_{name}"
    derivative.__doc__ = f"The {what} of {name}.\n\n{getattr(fun, '__doc__', None) or ''}"
    return derivative
