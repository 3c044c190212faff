"""Pullbacks of functions: vjp, whose forward pass is held for any number of cotangents."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from daskgrad.autodiff.values.descriptions import argument_name, function_name
from daskgrad.autodiff.values.memory import of_its_own
from daskgrad.autodiff.values.rows import Rows
from daskgrad.autodiff.values.trees import map_leaves
from daskgrad.derivatives.evaluation import Arrived
from daskgrad.derivatives.held import HeldForwardPass
from daskgrad.derivatives.inputs import (
    Sparse,
    as_asked,
    as_output,
    checked_cotangent,
    has_derivative,
    require_function,
    require_no_node,
    unstack,
)
from daskgrad.derivatives.recording import Recording


def vjp(fun: Callable, *primals: Any, sparse: Sparse = False) -> tuple[Any, Callable[[Any], tuple]]:
    """The value of ``fun(*primals)`` and its pullback.

    ``fun`` returns a node, or a pytree of nodes. The pullback takes a cotangent in the structure,
    shapes and dtypes of the value, and returns a tuple: one cotangent a primal. It also takes many
    cotangents at once, stacked along a new first axis of every leaf, and returns theirs so stacked;
    they are pulled back in parallel tasks, several in each. It can be called any number of times
    and runs no model again, unless what the model kept was lost with its worker or moved; it holds
    what the forward pass kept until it is garbage collected. Where all of that is gone (the cluster
    was restarted, its client is closed, another client is active) the forward pass runs again, and
    must have the same value. Only the primals are copied: do not write into other arrays that the
    models use as long as you need the pullback. ``sparse``: the arrays whose cotangents should be
    ``Rows``, as for ``value_and_grad``; of stacked cotangents they come back as lists of ``Rows``.

    Raises
    ------
    TypeError
        if ``fun`` is not a function or returns neither a node nor a pytree of nodes. From the
        pullback: if the cotangent holds a different kind of number than the value.
    ValueError
        from the pullback, if the cotangent has a different structure or shape than the value.
    NondeterministicModelError
        from the pullback, if the forward pass ran again and its value was different.

    Examples
    --------
    >>> value, pullback = dg.vjp(dg.delayed(lambda x: x**2), np.array([1.0, 2.0]))
    >>> value, pullback(np.array([1.0, 10.0]))
    (array([1., 4.]), (array([ 2., 40.]),))
    """
    require_function(fun, "vjp")
    name = function_name(fun)
    asked = as_asked(sparse, repr(name))
    for number, primal in enumerate(primals):
        require_no_node(primal, argument_name(fun, number))
    wrt = [i for i, primal in enumerate(primals) if has_derivative(primal)]
    recorded = Recording(fun, name, wrt, primals, sparse=asked)
    held = HeldForwardPass(recorded.graph(as_output(recorded.run(), name)))

    def by_primal(arrived: Arrived) -> tuple:
        return recorded.in_places(recorded.gather(arrived))

    def pullback(cotangent: Any) -> tuple:
        batch = unstack(cotangent, held.value, name)
        if batch is None:
            return by_primal(held.pull(checked_cotangent(cotangent, held.value, name)))
        return stack([by_primal(arrived) for arrived in held.pull_each(batch)])

    return of_its_own(held.value), pullback


def stack(trees: Sequence[Any]) -> Any:
    """Trees of one structure as one: arrays with a new first axis, and ``Rows`` in lists."""

    def stacked(*leaves: Any) -> Any:
        if leaves[0] is None:
            return None
        return list(leaves) if isinstance(leaves[0], Rows) else np.stack(leaves)

    return map_leaves(stacked, *trees)
