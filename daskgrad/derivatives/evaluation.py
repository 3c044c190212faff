"""Evaluation: runs graphs in the calling thread or with Dask, and again if results are lost."""

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import dask.system

from daskgrad.autodiff.models import blas
from daskgrad.autodiff.values import clock
from daskgrad.autodiff.values.cotangents import Cotangent, Seed
from daskgrad.autodiff.values.elsewhere import Elsewhere, replicated_among
from daskgrad.derivatives.in_line import (
    GraphKey,
    Stopwatch,
    graph_may_spare_cluster,
    is_beside_workers,
    is_large,
    is_one_by_one,
    key_of,
    note_failure,
    note_here,
    note_of_cluster,
    run_by_dask,
    run_here,
    seconds_in_line,
    spares_cluster,
    stays,
)
from daskgrad.derivatives.inputs import warn_of_shipping
from daskgrad.derivatives.tasks_in_line import InLine, KnownResult
from daskgrad.graph.activity import Graph, leaves_in
from daskgrad.graph.backward import build_backward, pull_here
from daskgrad.graph.forward import DirectSums, build_forward
from daskgrad.graph.nodes import Node, build_values
from daskgrad.graph.variables import Variable
from daskgrad.sums.item_sum import ReductionNode
from daskgrad.sums.placed import ArrayTermsError
from daskgrad.tasks.clients import active_client, current_worker
from daskgrad.tasks.sending import named_if_unreadable
from daskgrad.tasks.supervision import LostError, present_workers
from daskgrad.tasks.task_graph import TaskGraph, where

NOTHING = contextlib.nullcontext()
ATTEMPTS = 10  # evaluations of one graph that come no further while placed items are lost

Arrived = dict[Variable, Cotangent]  # the cotangents of variables, or of parts of them


def evaluate_graph(graph: Graph) -> tuple[Any, Sequence[Any], Arrived]:
    """The values of the output and of the extras, and the cotangents that arrive at variables."""
    with reading_replicated(graph):
        return evaluate_again_if_lost(graph, lambda: evaluate_once(graph))


def compute_value(node: Node) -> Any:
    """The value of a node; nothing is traced."""
    tasks = TaskGraph()
    return tasks.compute([build_values(tasks, [node])[node].key])[0]


def evaluate_once(graph: Graph) -> tuple[Any, Sequence[Any], Arrived]:
    is_worker = current_worker() is not None  # a task of the user's, not of a graph
    client = None
    if not is_worker or any([type(n) is ReductionNode and n.items.placed for n in graph.order]):
        client = active_client()
    key = key_of(graph)
    if client is None:
        # a worker waits for no other task
        if seconds_in_line(graph) and (is_worker or stays(key, graph)):
            with blas.threads(graph.is_chain), reading_items(graph):
                return run_here(key, lambda: evaluate_here(graph), lambda: is_large(graph))
        return run_by_dask(key, lambda: evaluate_by_dask(graph)[0], graph)
    if is_beside_workers(graph, client):
        return evaluate_beside_workers(graph, key, client)
    may_spare = graph_may_spare_cluster(graph)
    if may_spare and spares_cluster(key):
        try:
            with blas.threads(graph.is_chain), reading_items(graph):
                return run_here(key, lambda: evaluate_here(graph, client), lambda: is_large(graph))
        except Exception:  # of a model, which may need a worker; else it fails on the cluster, too
            note_failure(key)
            graph.is_watched = True
    warn_of_shipping(graph, client)
    result, seconds_of_tasks = evaluate_by_dask(graph, may_spare)
    if may_spare:
        note_of_cluster(key, seconds_of_tasks, graph)
    return result


def evaluate_beside_workers(
    graph: Graph, key: GraphKey, client: Any
) -> tuple[Any, Sequence[Any], Arrived]:
    """The evaluation of a graph whose sums over placed items the workers evaluate; the nodes around
    these run in this thread meanwhile if they took little time before."""
    from daskgrad.derivatives.beside_workers import BesideWorkers  # not needed without a cluster

    direct = DirectSums(client)
    is_here = spares_cluster(key, is_one_by_one(graph, client))
    watch = Stopwatch(clock.thread_seconds)
    tasks = BesideWorkers(graph, direct, watch, is_here)
    try:
        with blas.threads(graph.is_chain):
            result = both_passes(graph, tasks, direct)
    except BaseException:
        tasks.abandon()
        raise
    if is_here:
        note_here(key, watch, lambda: is_large(graph))
    else:
        note_of_cluster(key, tasks.seconds, graph)
    return result


def evaluate_by_dask(
    graph: Graph, is_measured: bool = False
) -> tuple[tuple[Any, Sequence[Any], Arrived], float]:
    """The evaluation by Dask, and the seconds that its tasks took on a cluster if it
    ``is_measured``."""
    tasks = TaskGraph(where())
    tasks.is_measured = is_measured
    with reading_items(graph):
        return both_passes(graph, tasks), tasks.seconds


def reading_items(graph: Graph) -> contextlib.AbstractContextManager:
    """Nobody changes the items of sums meanwhile; calls of workers see to that themselves."""
    sums = [node for node in graph.order if isinstance(node, ReductionNode)]
    sources = [source for node in sums for source in node.items.beside_placed]
    items = [getattr(source, "items", None) for source in sources]
    return reading([array for array in items if isinstance(array, Elsewhere)])


def reading_replicated(graph: Graph) -> contextlib.AbstractContextManager:
    """Nobody changes the replicated arrays among the arguments of models meanwhile."""
    arrays = replicated_among(leaf for node in graph.order for leaf in leaves_in(node))
    return reading(set(arrays)) if arrays else NOTHING


def reading(arrays: Iterable[Any]) -> contextlib.AbstractContextManager:
    with contextlib.ExitStack() as stack:
        for array in arrays:
            stack.enter_context(array.reading())
        return stack.pop_all()


def evaluate_here(graph: Graph, client: Any = None) -> tuple[Any, Sequence[Any], Arrived]:
    """Both passes in the calling thread, as the tasks are added; ``client``: its pages show it."""
    graph.is_watched = False  # nothing runs twice
    direct = DirectSums(None)
    return both_passes(graph, InLine(graph, direct, client), direct)


def hold_here(graph: Graph) -> tuple[Any, Callable[[Cotangent], Arrived]]:
    """The value, by a forward pass in the calling thread, and its pullback."""
    graph.is_watched = False
    direct = DirectSums(None)
    tasks = InLine(graph, direct)
    forward = build_forward(graph, tasks, direct)

    def pull(cotangent: Cotangent) -> Arrived:
        arrived = build_backward(forward, tasks, cotangent)
        computed = compute_unknown(tasks.compute, list(arrived.values()))
        return pull_here(forward, dict(zip(arrived, computed, strict=True)))

    return compute_unknown(tasks.compute, [forward.values[graph.output]])[0], pull


def both_passes(
    graph: Graph, tasks: TaskGraph, direct: DirectSums | None = None
) -> tuple[Any, Sequence[Any], Arrived]:
    """Adds the tasks of both passes; computes the ones that did not run when they were added."""
    forward = build_forward(graph, tasks, direct)
    if graph.output in graph.here and not graph.extras:
        seeds = {graph.output: Seed()} if graph.active else {}
        return forward.here.values[graph.output], (), pull_here(forward, seeds)
    arrived = build_backward(forward, tasks, Seed())
    references = [forward.values[node] for node in (graph.output, *graph.extras)]
    value, *others = compute_unknown(tasks.compute, [*references, *arrived.values()])
    count = len(graph.extras)
    arrived = dict(zip(arrived, others[count:], strict=True))
    return value, others[:count], pull_here(forward, arrived)


def compute_unknown(
    compute: Callable[[list[Any]], Sequence[Any]], references: Sequence[Any]
) -> list[Any]:
    """The results that references stand for; some are known, and so is the cotangent of an output
    that is itself a variable."""
    keys = [ref.key for ref in references if not isinstance(ref, Cotangent | KnownResult)]
    computed = iter(compute(keys) if keys else ())

    def result(reference: Any) -> Any:
        if isinstance(reference, KnownResult):
            return reference.value
        return reference if isinstance(reference, Cotangent) else next(computed)

    return list(map(result, references))


def evaluate_again_if_lost(
    graph: Graph, evaluate: Callable[[], Any], prepare: Callable[[], Any] | None = None
) -> Any:
    """Evaluates, and repeats that if results were lost with workers or in a restart; raises the
    error if nothing can be restored. ``prepare`` restores results that the evaluation uses."""
    sums = [node for node in graph.order if isinstance(node, ReductionNode)]
    placed = [shards for node in sums for shards in node.items.placed]
    is_lost, attempts = False, 0
    while attempts < ATTEMPTS:
        attempts += 1
        try:
            if is_lost and prepare is not None:
                prepare()
            with named_if_unreadable(parts_of(graph)):
                return evaluate()
        except ArrayTermsError:  # remembered: this sum is a graph from now on
            continue
        except LostError as error:
            if not (placed or prepare or error.is_restart):
                raise
            for shards in placed:
                shards.restore()  # unless another evaluation has done so already
            is_lost = True
            if error.kept:  # by the evaluation that follows
                attempts = 0
    if is_lost and prepare is not None:
        prepare()
    return evaluate()


def parts_of(graph: Graph) -> Iterator[tuple[str, Any]]:
    """The items and arguments of models, each with its name in errors."""
    for node in graph.order:
        for source in node.items.sources if isinstance(node, ReductionNode) else ():
            items = getattr(source, "items", ())
            for index, item in enumerate(items if isinstance(items, list) else ()):
                yield f"item {index} of the sum over {node.name!r}", item
        yield f"an argument of {node.name!r}", leaves_in(node)


# -------------------------------------------------------------------------------------------------
# Groups: how many directions share a task, and how many derivatives share an evaluation.

DERIVATIVES_A_THREAD = 8  # in one evaluation


def task_groups(count: int) -> list[tuple[int, int]]:
    """Directions that share a task, as (start, stop): two groups a thread, or one a direction."""
    return even_runs(count, 2 * threads())


def evaluation_groups(count: int) -> list[tuple[int, int]]:
    """Derivatives that share an evaluation, as (start, stop): at most eight a thread."""
    return even_runs(count, -(-count // (DERIVATIVES_A_THREAD * threads())))


def even_runs(count: int, runs: int) -> list[tuple[int, int]]:
    """Splits ``count`` things into at most ``runs`` of nearly one length; none is empty."""
    runs = max(1, min(count, runs))
    bounds = [count * n // runs for n in range(runs + 1)]
    return list(pairwise(bounds)) if count else []


def threads() -> int:
    client = active_client()
    return sum(present_workers(client).values()) if client else dask.system.CPU_COUNT
