"""Gradients: records the nodes of a function, runs both passes and collects the gradients."""

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from daskgrad.derivatives.collector import rare_full_collections
from daskgrad.derivatives.evaluation import evaluate_graph
from daskgrad.derivatives.inputs import Argnums, as_argnums, require_differentiable
from daskgrad.derivatives.outputs import as_number, require_real_scalar
from daskgrad.derivatives.recording import Recording, document
from daskgrad.derivatives.shortcut import shortcut_of
from daskgrad.derivatives.sparse import Sparse, as_asked
from daskgrad.derivatives.storage import require_no_storage_of_rows, require_storage, write
from daskgrad.graph.nodes import Node
from daskgrad.tasks import observers
from daskgrad.values.descriptions import require_pair
from daskgrad.values.memory import of_its_own
from daskgrad.values.trees import flatten, unflatten


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
        ordinary Python that calls models on its arguments and returns one node, whose value is a
        real floating-point number.
    argnums:
        which arguments to differentiate: a number gives the bare gradient, a sequence a tuple. They
        may be pytrees of float or complex arrays.
    has_aux:
        ``fun`` returns a pair (output, auxiliary); the value is then such a pair, too, with the
        auxiliary's nodes computed.
    out:
        an array that the gradient is written into at each call, and that is returned in its place;
        a pytree of arrays where the gradient is one, with ``None`` where that is ``None``; a tuple
        of them for a sequence of ``argnums``. Shapes and dtypes are those of the arguments, and a
        number's array has no axes. No other array that is used may share its memory, and no two
        calls may run at once. It saves a compiled model that is called by itself one array, and
        everywhere else it is a copy. After an error its contents are undefined.
    sparse:
        the arrays whose gradients should be ``Rows``: True for all of them, or the paths of some:
        the name of an argument or an entry of a pytree, ``"W"``, ``"params.layers.0.W"``, or a
        list of such. Such a gradient costs what the rows cost that were used. It is ``Rows`` if
        all that models do with the array is to select: integers, arrays of integers, masks,
        slices, ``np.take``, transposes, and these of their results. If anything else is done with
        it, or a sum has no item, it is an array as ever; and ``Rows`` without entries if nothing
        uses it. So the program decides, and not how many rows there are. Its entries have the bits
        of the array.

    Returns
    -------
    function
        A function of ``fun``'s arguments. The gradient has the arguments' structure, and each leaf
        the shape and dtype of its argument's; ``None`` replaces integers, booleans and strings. An
        argument that the output does not depend on gets zeros, and a warning.

        The gradient of a complex argument follows autograd's convention: for z = x + iy it is df/dx
        - i df/dy. Runs on Dask's active client, or else on its configured scheduler.

        Arguments are not copied: no other thread may write into them before the call returns.
        Gradients share memory with nothing else, but with ``out``.

    Raises
    ------
    TypeError
        if ``fun`` is not a function, its output is not one real number, or an argument to
        differentiate holds neither float nor complex numbers. Errors of models keep their type, and
        get a note with the model's name.
    ValueError
        if ``argnums`` names an argument that the call does not have.

    Examples
    --------
    >>> def objective(weights, data):
    ...     return dg.map_sum(lambda row, w: (np.dot(row, w) - 1.0) ** 2, data, weights)
    >>> dg.value_and_grad(objective)(np.array([1.0, 0.0]), np.eye(2))
    (np.float64(1.0), array([ 0., -2.]))
    """
    name = require_differentiable(fun, argnums, "value_and_grad")
    asked = as_asked(sparse, repr(name))
    require_no_storage_of_rows(out, asked, name)

    shortcut = None if has_aux else shortcut_of(fun, argnums, out, asked)

    def value_and_grad_of(*args: Any, **kwargs: Any) -> tuple[Any, Any]:
        found = shortcut(args) if shortcut is not None and not kwargs else None
        if found is not None:
            return found
        start = time.time() if observers.observers else None
        recorded = Recording(fun, name, argnums, args, borrows=True, sparse=asked)
        try:
            if out is not None:
                require_storage(out, recorded.variables, argnums, (args, kwargs), name)
            value, aux, gradients = compute_gradients(recorded, kwargs, has_aux)
        finally:
            recorded.give_back()
        if start is not None:
            points = [args[number] for number in recorded.numbers]
            told = observers.Evaluated(name, points, value, gradients, start, time.time())
            observers.tell_evaluated(told)
        gradient = as_argnums(gradients, argnums)
        if out is not None:
            gradient = write(gradient, out)
        return ((value, aux) if has_aux else value), gradient

    return document(value_and_grad_of, fun, "value and gradient")


@rare_full_collections
def compute_gradients(
    recorded: Recording, kwargs: dict, has_aux: bool
) -> tuple[Any, Any, list[Any]]:
    """Value, auxiliary and gradients, computed; the output must be one real number."""
    output, aux = recorded.run(**kwargs), None
    if has_aux:
        asked = f"{recorded.name!r} must return a pair (output, auxiliary), since has_aux=True"
        output, aux = require_pair(output, asked)
    output = as_number(output, recorded.name)
    aux_leaves, aux_structure = flatten(aux)
    extras = [leaf for leaf in aux_leaves if isinstance(leaf, Node)]
    graph = recorded.graph(output, extras, output_is_scalar=True)
    value, computed, arrived = evaluate_graph(graph)
    require_real_scalar(value, output.name)
    rest = iter(map(of_its_own, computed))
    aux = [next(rest) if isinstance(leaf, Node) else leaf for leaf in aux_leaves]
    gradients = recorded.gather(arrived, is_last=True)
    return np.asarray(value)[()], unflatten(aux_structure, aux), gradients


def grad(fun: Callable, argnums: Argnums = 0, sparse: Sparse = False) -> Callable:
    """A function that returns the gradient of ``fun`` alone.

    It costs as much as ``value_and_grad``, which documents the arguments, results and errors.

    Examples
    --------
    >>> dg.grad(lambda x: dg.delayed(np.sum)(x**3))(np.array([1.0, 2.0]))
    array([ 3., 12.])
    """
    both = value_and_grad(fun, argnums, sparse=sparse)

    def grad_of(*args: Any, **kwargs: Any) -> Any:
        return both(*args, **kwargs)[1]

    return document(grad_of, fun, "gradient")
