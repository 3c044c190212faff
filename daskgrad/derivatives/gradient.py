"""Gradients: ``grad`` and ``value_and_grad``, by a graph or by one program."""

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from daskgrad.autodiff.programs.boxes import Unrecordable
from daskgrad.autodiff.rules.declaration import strong
from daskgrad.autodiff.values.descriptions import describe, is_integer, require_pair
from daskgrad.autodiff.values.memory import of_its_own, row_major
from daskgrad.autodiff.values.trees import flatten, map_leaves, unflatten
from daskgrad.derivatives.eager import EagerObjective, GraphFacts, known_of
from daskgrad.derivatives.evaluation import evaluate_graph
from daskgrad.derivatives.inputs import (
    Argnums,
    Sparse,
    as_argnums,
    as_number,
    as_rows_wanted,
    require_differentiable,
    require_real_scalar,
)
from daskgrad.derivatives.objectives import Objective, RecordedObjective
from daskgrad.derivatives.recording import RecordedFunction, document, shown_name
from daskgrad.derivatives.storage import require_storage, write
from daskgrad.graph.activity import Graph
from daskgrad.graph.nodes import Node
from daskgrad.tasks import observers


def value_and_grad(
    fun: Callable,
    argnums: Argnums = 0,
    has_aux: bool = False,
    out: Any = None,
    sparse: Sparse = False,
) -> Callable:
    """A function that returns the value of ``fun`` and its gradient, from one forward pass.

    Parameters
    ----------
    fun:
        ordinary Python that calls models on its arguments and returns one node, of one real
        floating-point number.
    argnums:
        which arguments to differentiate: a number gives the bare gradient, a sequence a tuple. They
        may be pytrees of float or complex arrays.
    has_aux:
        ``fun`` returns a pair (output, auxiliary); the value is then such a pair, too, with the
        auxiliary's nodes computed.
    out:
        an array that each call writes the gradient into, and returns; for a gradient that is a
        pytree, a pytree of arrays, with ``None`` where the gradient is ``None``; a tuple of them
        for a sequence of ``argnums``. Shapes and dtypes are as in the arguments, and a number's
        array has no axes. No other array that is used may share its memory, and no two calls may
        run at once. It saves an array if the call is one program, and is a copy otherwise. After
        an error its contents are undefined.
    sparse:
        the arrays whose gradients should be ``Rows``: True for all arrays, or one path or a list of
        paths: the name of an argument or an entry of a pytree, ``"W"``, ``"params.layers.0.W"``.
        The gradient then costs as much as the rows that were used. It is ``Rows`` if models only
        select from the array: by integers, arrays of integers, masks, slices, ``np.take``,
        transposes, and by these from the results. If they do anything else with it, or a sum has no
        item, it is an array as ever; if nothing uses it, ``Rows`` without entries. So the program
        decides, and not how many rows there are. The entries have the bits of the array.

    Returns
    -------
    function
        A function of ``fun``'s arguments. The gradient has the structure, shapes and dtypes of the
        arguments; ``None`` replaces integers, booleans and strings. An argument that the output
        does not depend on gets zeros, and a warning.

        The gradient of a complex argument follows autograd's convention: for z = x + iy it is df/dx
        - i df/dy. Runs on Dask's active client, or else on its configured scheduler; what was quick
        there runs in the calling thread (``daskgrad.inline.seconds`` in ``dask.config``).

        Arguments are not copied: no other thread may write into them before the call returns.
        Gradients share memory with nothing but ``out``.

    Raises
    ------
    TypeError
        if ``fun`` is not a function, its output is not one real number, or an argument to
        differentiate holds neither float nor complex numbers. Errors of models keep their type, and
        get a note with the model's name.
    ValueError
        if ``argnums`` names an argument that the call does not have.

    See Also
    --------
    grad, vjp, hvp, per_item, adapters.flat

    Examples
    --------
    >>> def objective(weights, data):
    ...     return dg.map_sum(lambda row, w: (np.dot(row, w) - 1.0) ** 2, data, weights)
    >>> dg.value_and_grad(objective)(np.array([1.0, 0.0]), np.eye(2))
    (np.float64(1.0), array([ 0., -2.]))
    """
    name = require_differentiable(fun, argnums, "value_and_grad")
    wanted = as_rows_wanted(sparse, name)
    if out is not None and wanted:
        raise ValueError(
            f"value_and_grad of {name!r} got both out and sparse; rows are not written into "
            f"arrays, so pass one of them"
        )
    options = is_integer(argnums), has_aux, wanted
    objective = Objective(RecordedGradient, fun, name, argnums, *options)
    eager = EagerObjective(fun, name, argnums, has_aux, wanted)

    def value_and_grad_of(*args: Any, **kwargs: Any) -> tuple[Any, Any]:
        arguments = objective.positional(args, kwargs) if kwargs else args
        if arguments is None:
            return by_graph(args, kwargs)
        return objective.call(arguments, lambda: by_graph(args, kwargs), out)

    def by_graph(args: tuple, kwargs: dict) -> tuple[Any, Any]:
        key, results = eager.key_at(args), None
        if (known := eager.known(key)) is not None:
            results = eager.value_and_gradients(key, known, args, kwargs, out)
        value, aux, gradients = results or recorded_gradients(key, args, kwargs)
        gradient = as_argnums(gradients, argnums)
        if out is not None:
            gradient = write(gradient, out)
        return ((value, aux) if has_aux else value), gradient

    def recorded_gradients(key: tuple, args: tuple, kwargs: dict) -> tuple[Any, Any, list[Any]]:
        start, known = time.time() if observers.observers else None, None
        recorded = RecordedFunction(fun, name, argnums, args, borrows=True, sparse=wanted)
        try:
            if out is not None:
                primals = [variable.primal for variable in recorded.variables]
                require_storage(out, primals, argnums, (args, kwargs), name)
            value, aux, gradients, known = compute_gradients(recorded, kwargs, has_aux)
        finally:
            recorded.give_back()
            eager.note(key, recorded, known)
        if start is not None:
            points = [args[number] for number in recorded.numbers]
            shown, now = recorded.shown_name, time.time()
            evaluated = observers.Evaluated(shown, points, value, gradients, start, now)
            observers.tell_evaluated(evaluated)
        return value, aux, gradients

    return document(value_and_grad_of, fun, "value and gradient")


def compute_gradients(
    recorded: RecordedFunction, kwargs: dict, has_aux: bool
) -> tuple[Any, Any, list[Any], GraphFacts | None]:
    """The value, the auxiliary and the gradients, and what is known then; the output must be one
    real number."""
    graph, aux = graph_and_aux(recorded, kwargs, has_aux)
    if observers.observers:
        recorded.shown_name = shown_name(recorded.name, graph)
    value, computed, arrived = evaluate_graph(graph)
    require_real_scalar(value, graph.output.name)
    gradients = recorded.gather(arrived, is_last=True)
    known = known_of(recorded, graph)
    auxiliary = aux.of([map_leaves(row_major, of_its_own(result)) for result in computed])
    return np.asarray(value)[()], auxiliary, gradients, known


class Auxiliary(NamedTuple):
    """A pytree that a function returns beside its output; some of its leaves are nodes."""

    leaves: list[Any]
    structure: Any

    def nodes(self) -> list[Node]:
        return [leaf for leaf in self.leaves if isinstance(leaf, Node)]

    def of(self, values: Iterable[Any]) -> Any:
        """The auxiliary with the values of its nodes."""
        results = iter(values)
        leaves = [next(results) if isinstance(leaf, Node) else leaf for leaf in self.leaves]
        return unflatten(self.structure, leaves)


def graph_and_aux(
    recorded: RecordedFunction, kwargs: dict, has_aux: bool
) -> tuple[Graph, Auxiliary]:
    output, aux = recorded.run(**kwargs), None
    if has_aux:
        pair = f"{recorded.name!r} must return a pair (output, auxiliary), since has_aux=True"
        output, aux = require_pair(output, pair)
    output, auxiliary = as_number(output, recorded.name), Auxiliary(*flatten(aux))
    return recorded.graph_of(output, auxiliary.nodes(), output_is_scalar=True), auxiliary


class RecordedGradient(RecordedObjective):
    """Options: whether there is a bare gradient, whether there is an auxiliary, and which gradients
    should be rows."""

    derivative = "value and gradient"

    def results(self, args: tuple) -> tuple[Any, Any]:
        fun, name, numbers = self.objective.fun, self.objective.name, self.objective.numbers
        is_bare, has_aux, sparse = self.objective.options
        recorded = RecordedFunction(fun, name, numbers, args, True, sparse=sparse)
        graph, aux = graph_and_aux(recorded, {}, has_aux)
        for leaf in aux.leaves:
            if not isinstance(leaf, Node | bool | int | float | complex | str | bytes | None):
                raise Unrecordable(f"its auxiliary holds {describe(leaf)}")
        value, computed, arrived = self.evaluated(graph)
        require_real_scalar(value, graph.output.name)
        gradients = self.gathered(recorded.variables, arrived)
        value = value[()] if isinstance(value, np.ndarray) else strong(value)
        gradient = gradients[0] if is_bare else tuple(gradients)
        return ((value, aux.of(computed)) if has_aux else value), gradient

    @staticmethod
    def shown(results: Any, options: tuple) -> tuple[float | None, Sequence[Any]]:
        value, gradient = results
        return value[0] if options[1] else value, [gradient]


def grad(fun: Callable, argnums: Argnums = 0, sparse: Sparse = False) -> Callable:
    """A function that returns the gradient of ``fun`` alone.

    It costs as much as ``value_and_grad``, which documents the arguments, results and errors.

    Returns
    -------
    function
        Of the arguments of ``fun``: the gradient, in the structure of the argument that ``argnums``
        names; a tuple of gradients for a sequence of numbers.

    See Also
    --------
    value_and_grad, vjp

    Examples
    --------
    >>> dg.grad(lambda x: dg.delayed(np.sum)(x**3))(np.array([1.0, 2.0]))
    array([ 3., 12.])
    """
    both = value_and_grad(fun, argnums, sparse=sparse)

    def grad_of(*args: Any, **kwargs: Any) -> Any:
        return both(*args, **kwargs)[1]

    return document(grad_of, fun, "gradient")
