"""Pullbacks of functions: vjp holds a forward pass, for any number of cotangents."""

import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from daskgrad.autodiff.models.pullbacks import Batch, unit_cotangents
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
from daskgrad.autodiff.values.trees import flatten, map_leaves
from daskgrad.derivatives.eager import EagerForwardPass, EagerVjp, known_of
from daskgrad.derivatives.evaluation import (
    Arrived,
    compute_unknown,
    evaluate_again_if_lost,
    task_groups,
)
from daskgrad.derivatives.in_line import run_by_dask
from daskgrad.derivatives.inputs import (
    Sparse,
    as_rows_wanted,
    checked_cotangent,
    has_derivative,
    require_function,
    require_no_node,
    unstack,
    warn_of_shipping,
)
from daskgrad.derivatives.recording import RecordedFunction
from daskgrad.graph.activity import Graph
from daskgrad.graph.backward import build_backward, pull_here
from daskgrad.graph.forward import Forward, build_forward
from daskgrad.tasks.clients import active_client, is_in_line
from daskgrad.tasks.task_graph import TaskGraph, where


def vjp(fun: Callable, *primals: Any, sparse: Sparse = False) -> tuple[Any, Callable[[Any], tuple]]:
    """The value of ``fun(*primals)`` and its pullback.

    ``fun`` returns a node, or a pytree of nodes. The pullback takes a cotangent in the structure,
    shapes and dtypes of the value, and returns a tuple: one cotangent a primal. It also takes many
    cotangents at once, stacked along a new first axis of every leaf, and returns stacked ones; they
    are pulled back in parallel tasks, several in each.

    The pullback can be called any number of times, and holds the residuals of the forward pass
    until it is garbage collected. It runs no model again, unless residuals were lost with a worker
    or moved. If all are gone (the cluster was restarted, its client is closed, another client is
    active), the forward pass runs again, and must have the same value. Only the primals are copied:
    do not write into other arrays that the models use as long as you need the pullback.

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
    numbers = [number for number, primal in enumerate(primals) if has_derivative(primal)]
    eager = EagerVjp(fun, name, numbers, wanted)
    key = eager.key_at(primals)
    held: EagerForwardPass | RecordedForwardPass | None = eager.forward_pass(key, primals)
    if held is None:
        held = RecordedForwardPass(RecordedFunction(fun, name, numbers, primals, sparse=wanted))
        eager.note(key, held.recorded, held.known)

    def pullback(cotangent: Any) -> tuple:
        batch = unstack(cotangent, held.value, name)
        if batch is None:
            return held.pull(checked_cotangent(cotangent, held.value, name))
        return stack(held.pull_each(batch))

    return of_its_own(map_leaves(strong, held.value)), pullback


def stack(trees: Sequence[Any]) -> Any:
    """Trees of one structure as one: stacked arrays, and lists of ``Rows``."""

    def stacked(*leaves: Any) -> Any:
        if leaves[0] is None:
            return None
        return list(leaves) if isinstance(leaves[0], Rows) else np.stack(leaves)

    return map_leaves(stacked, *trees)


# ----------------------------------------------------------------------------- held forward passes


class ForwardPass(NamedTuple):
    """A forward pass that was run: ``tasks`` holds the results, on the cluster of ``client``."""

    forward: Forward
    tasks: TaskGraph
    client: Any


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


class HeldForwardPass:
    """A forward pass that was run, for the pullbacks of any number of cotangents; it runs again if
    its results are gone (dead workers, a restart, another client), with the same value."""

    def __init__(self, graph: Graph):
        self._graph = graph
        self._lock = threading.Lock()
        self.value, self._latest = evaluate_again_if_lost(graph, self._run)
        self._fingerprint = fingerprint(flatten(self.value)[0])

    def _run(self) -> tuple[Any, ForwardPass]:
        client = active_client()
        warn_of_shipping(self._graph, client)
        tasks = TaskGraph(where())
        forward = build_forward(self._graph, tasks)
        persisted = tasks.persist()
        try:
            value = compute_unknown(persisted.compute, [forward.values[self._graph.output]])[0]
        except BaseException:
            persisted.release()
            raise
        return value, ForwardPass(forward, persisted, client)

    def _run_again(self, lost: ForwardPass) -> None:
        """Runs the forward pass again, unless another thread has done so since it was lost."""
        with self._lock:
            if self._latest is not lost:
                return
            value, anew = self._run()
            if not agree(fingerprint(flatten(value)[0]), self._fingerprint):
                raise NondeterministicModelError(
                    f"the forward pass of {self._graph.output.name!r} is not deterministic: run "
                    f"again for its pullback, since its results were lost, it returned a different "
                    f"value. Pass its models generators (dg.random.generators) instead of drawing "
                    f"from global state."
                )
            self._latest = anew

    def _evaluate(self, evaluate: Callable[[ForwardPass], Any]) -> Any:
        """Evaluates on the latest forward pass, which runs again if its results are gone."""
        used = self._latest
        if used.client is not None and active_client() is not used.client:
            evaluate_again_if_lost(self._graph, lambda: self._run_again(used))

        def evaluate_latest() -> Any:
            nonlocal used
            used = self._latest
            return evaluate(used)

        return evaluate_again_if_lost(
            self._graph, evaluate_latest, prepare=lambda: self._run_again(used)
        )

    def pull(self, cotangent: Cotangent) -> Arrived:
        """The cotangents of the variables."""

        def evaluate(run: ForwardPass) -> Arrived:
            tasks, of_value = run.tasks.copy(), self._of_value(cotangent)
            arrived = build_backward(run.forward, tasks, of_value, saw_value=True)
            computed = compute_unknown(tasks.compute, list(arrived.values()))
            return pull_here(run.forward, dict(zip(arrived, computed, strict=True)))

        return self._evaluate(evaluate)

    def _of_value(self, cotangent: Cotangent) -> Cotangent:
        """A cotangent of the value that the caller has: the models may have run again since."""
        return Cotangent(cotangent.leaves, self._fingerprint)

    def pull_each(self, cotangents: Sequence[Cotangent]) -> list[Arrived]:
        """The cotangents of the variables for each of many cotangents."""

        def seeds(run: ForwardPass, tasks: TaskGraph, start: int, stop: int) -> Any:
            batch = Batch(tuple(map(self._of_value, cotangents[start:stop])))
            return tasks.data(self._seed_key(tasks), batch)

        return self._pull_all(len(cotangents), seeds)

    def pull_units(self, count: int) -> list[Arrived]:
        """The cotangents of the variables for one in each of the value's ``count`` entries."""

        def seeds(run: ForwardPass, tasks: TaskGraph, start: int, stop: int) -> Any:
            value = run.forward.values[self._graph.output]
            args = (value, start, stop, self._fingerprint)
            return tasks.add(self._seed_key(tasks), unit_cotangents, *args)

        return self._pull_all(count, seeds)

    def _seed_key(self, tasks: TaskGraph) -> Any:
        return tasks.key("cotangent", self._graph.output.name)

    def _pull_all(
        self, count: int, seeds: Callable[[ForwardPass, TaskGraph, int, int], Any]
    ) -> list[Arrived]:
        runs = task_groups(count)

        def evaluate(run: ForwardPass) -> list[Arrived]:
            tasks = run.tasks.copy(is_batched=True)
            arrived = [
                build_backward(run.forward, tasks, seeds(run, tasks, start, stop), saw_value=True)
                for start, stop in runs
            ]
            keys = [ref.key for references in arrived for ref in references.values()]
            computed = iter(tasks.compute(keys))
            batches = [
                pull_here(run.forward, {node: next(computed) for node in nodes}, is_batched=True)
                for nodes in arrived
            ]
            return [
                {variable: cotangents.entries[index] for variable, cotangents in batch.items()}
                for batch, (start, stop) in zip(batches, runs, strict=True)
                for index in range(stop - start)
            ]

        return self._evaluate(evaluate)
