"""Pullbacks of functions: vjp holds a forward pass, for any number of cotangents."""

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from daskgrad.autodiff.programs.recording import recording_models
from daskgrad.autodiff.programs.whole import HeldCall, WholePullbacks
from daskgrad.autodiff.rules.declaration import strong
from daskgrad.autodiff.values.cotangents import Cotangent
from daskgrad.autodiff.values.descriptions import (
    NondeterministicModelError,
    argument_name,
    function_name,
)
from daskgrad.autodiff.values.fingerprints import agree, fingerprint
from daskgrad.autodiff.values.memory import of_its_own
from daskgrad.autodiff.values.rows import Rows
from daskgrad.autodiff.values.trees import flatten, map_leaves, unflatten
from daskgrad.derivatives.eager import EagerForwardPass, EagerVjp, known_of
from daskgrad.derivatives.evaluation import Arrived, hold_here
from daskgrad.derivatives.held import HeldForwardPass
from daskgrad.derivatives.in_line import run_by_dask
from daskgrad.derivatives.inputs import (
    RowsWanted,
    Sparse,
    as_rows_wanted,
    checked_cotangent,
    has_derivative,
    require_function,
    require_no_node,
    unstack,
)
from daskgrad.derivatives.objectives import Objective, RecordedObjective
from daskgrad.derivatives.recording import RecordedFunction
from daskgrad.tasks.clients import is_in_line


def vjp(fun: Callable, *primals: Any, sparse: Sparse = False) -> tuple[Any, Callable[[Any], tuple]]:
    """The value of ``fun(*primals)`` and its pullback.

    ``fun`` returns a node, or a pytree of nodes. The pullback takes a cotangent in the structure,
    shapes and dtypes of the value, and returns a tuple: one cotangent a primal. It also takes many
    cotangents at once, stacked along a new first axis of every leaf, and returns stacked ones; they
    are pulled back in parallel tasks, several in each.

    The pullback can be called any number of times, and holds the residuals of the forward pass
    until it is garbage collected. It runs no model again, unless residuals were lost with a worker
    or moved, or a program meets a cotangent or a warning for which it was not made. If all are gone
    (the cluster was restarted, its client is closed, another client is active), the forward pass
    runs again, and must have the same value. Only the primals are copied: do not write into other
    arrays that the models use as long as you need the pullback.

    ``sparse``: the arrays whose cotangents should be ``Rows``, as for ``value_and_grad``; from
    stacked cotangents come lists of ``Rows``.

    Returns
    -------
    tuple
        The value, and the pullback.

    Raises
    ------
    TypeError
        if ``fun`` is not a function or returns neither a node nor a pytree of nodes. From the
        pullback: if the cotangent holds a different kind of number than the value.
    ValueError
        from the pullback, if the cotangent has a different structure or shape than the value.
    NondeterministicModelError
        from the pullback, if the forward pass ran again and its value was different.

    See Also
    --------
    jvp, value_and_grad, jacobian

    Examples
    --------
    >>> value, pullback = dg.vjp(dg.delayed(lambda x: x**2), np.array([1.0, 2.0]))
    >>> value, pullback(np.array([1.0, 10.0]))
    (array([1., 4.]), (array([ 2., 40.]),))
    """
    require_function(fun, "vjp")
    name = function_name(fun)
    wanted = as_rows_wanted(sparse, name)
    for number, primal in enumerate(primals):
        require_no_node(primal, argument_name(fun, number))
    numbers = tuple([number for number, primal in enumerate(primals) if has_derivative(primal)])
    held = hold(fun, name, numbers, primals, wanted)

    def pullback(cotangent: Any) -> tuple:
        batch = unstack(cotangent, held.value, name)
        if batch is None:
            return held.pull(checked_cotangent(cotangent, held.value, name))
        return stack(held.pull_each(batch))

    return of_its_own(map_leaves(strong, held.value)), pullback


def hold(
    fun: Callable, name: str, numbers: Sequence[int], primals: tuple, wanted: RowsWanted
) -> Any:
    """The forward pass of a function: a value, and ``pull`` and ``pull_each``."""

    def by_graph(primals: tuple = primals) -> EagerForwardPass | RecordedForwardPass:
        eager = EagerVjp(fun, name, numbers, wanted)
        key = eager.key_at(primals)
        held: Any = eager.forward_pass(key, primals)
        if held is None:
            held = RecordedForwardPass(RecordedFunction(fun, name, numbers, primals, sparse=wanted))
            eager.note(key, held.recorded, held.known)
        return held

    if wanted or not numbers:
        return by_graph()
    held = Objective(RecordedPullback, fun, name, numbers).call(primals, by_graph)
    return ForwardPassOfProgram(name, held, by_graph) if type(held) is HeldCall else held


def stack(trees: Sequence[Any]) -> Any:
    """Trees of one structure as one: stacked arrays, and lists of ``Rows``."""

    def stacked(*leaves: Any) -> Any:
        if leaves[0] is None:
            return None
        return list(leaves) if isinstance(leaves[0], Rows) else np.stack(leaves)

    return map_leaves(stacked, *trees)


# ----------------------------------------------------------------------------- held forward passes


class RecordedPullback(RecordedObjective):
    """A value and its pullback; the arguments are primals."""

    derivative, programs = "pullback", WholePullbacks

    def results(self, args: tuple) -> Any:
        fun, name, numbers = self.objective.fun, self.objective.name, self.objective.numbers
        self._recorded = RecordedFunction(fun, name, numbers, args, True)
        value, self._pull_back = self.evaluated(self._recorded.graph(), hold_here)
        return value

    def pull(self, cotangents: Sequence[Any]) -> list[Any]:
        """The cotangents of all leaves of the arguments."""
        with recording_models():
            arrived = self._pull_back(Cotangent(tuple(cotangents)))
        gradients = self.gathered(self._recorded.variables, arrived)
        return flatten(self._recorded.in_places(gradients))[0]


class ForwardPassOfProgram:
    """The forward pass of a program; ``by_graph`` makes another one, when it is needed."""

    def __init__(self, name: str, held: HeldCall, by_graph: Callable):
        self._name, self.value = name, held.value
        self._held, self._by_graph = held, by_graph

    @cached_property
    def _ordinary(self) -> Any:
        other = self._by_graph(self._held.args)
        values = [fingerprint(flatten(value)[0]) for value in (self.value, other.value)]
        if not agree(*values):
            raise NondeterministicModelError(
                f"the forward pass of {self._name!r} returned a different value when it ran again "
                f"for a pullback that its program cannot do: a model refers to something that has "
                f"changed since, and is not an argument; pass that as an argument"
            )
        return other

    def pull(self, cotangent: Cotangent) -> tuple:
        pulled = self._held.pull(cotangent.leaves)
        if pulled is None:
            return self._ordinary.pull(cotangent)
        return unflatten(flatten(self._held.args)[1], pulled)

    def pull_each(self, cotangents: Sequence[Cotangent]) -> list[tuple]:
        return list(map(self.pull, cotangents))


class RecordedForwardPass:
    """The forward pass of a recorded function; see ``EagerForwardPass``.

    ``known``: the facts for an eager one, if that can do it as well.
    """

    def __init__(self, recorded: RecordedFunction):
        graph = recorded.graph()
        self.recorded, self.known = recorded, known_of(recorded, graph) if is_in_line() else None
        if self.known is None:
            self._held = HeldForwardPass(graph)
        else:
            key = self.known.measured._replace(last=("vjp", self.known.measured.last))
            self.known = self.known._replace(measured=key)
            self._held = run_by_dask(key, lambda: HeldForwardPass(graph), graph)
        self.value = self._held.value

    def pull(self, cotangent: Cotangent) -> tuple:
        return self._by_primal(self._held.pull(cotangent))

    def pull_each(self, cotangents: Sequence[Cotangent]) -> list[tuple]:
        return list(map(self._by_primal, self._held.pull_each(cotangents)))

    def _by_primal(self, arrived: Arrived) -> tuple:
        return self.recorded.in_places(self.recorded.gather(arrived))
