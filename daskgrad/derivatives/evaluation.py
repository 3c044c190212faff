"""Evaluation: runs graphs in the calling thread or with Dask, and repeats what was lost."""

import contextlib
import math
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import pairwise
from typing import Any

import dask.system

from daskgrad.autodiff.models import blas
from daskgrad.autodiff.models.pullbacks import capture, each_of, pull_back
from daskgrad.autodiff.values.cotangents import Cotangent, Seed
from daskgrad.autodiff.values.elsewhere import Elsewhere, replicated_among
from daskgrad.derivatives.in_line import InLine, Known, seconds_in_line
from daskgrad.derivatives.inputs import warn_of_shipping
from daskgrad.graph.activity import Graph, leaves_in
from daskgrad.graph.backward import build_backward, pull_here
from daskgrad.graph.forward import DirectSums, build_forward
from daskgrad.graph.nodes import Node, build_values
from daskgrad.graph.variables import Variable
from daskgrad.sums.item_sum import ReductionNode
from daskgrad.sums.placed import ArrayTermsError
from daskgrad.tasks import observers
from daskgrad.tasks.clients import active_client
from daskgrad.tasks.sending import named_if_unreadable
from daskgrad.tasks.supervision import LostError, present_workers
from daskgrad.tasks.task_graph import TaskGraph, where

NOTHING = contextlib.nullcontext()
ATTEMPTS = 10  # how often an evaluation is repeated after placed items were lost

Arrived = dict[Variable, Cotangent]  # what arrived at each variable, or part of one


def evaluate_graph(graph: Graph) -> tuple[Any, Sequence[Any], Arrived]:
    """The output's value, those of the extras, and the cotangents that arrive at variables."""
    with reading_replicated(graph):
        return evaluate_again_if_lost(graph, lambda: evaluate_once(graph))


def compute_value(node: Node) -> Any:
    """The value of a node; nothing is traced."""
    tasks = TaskGraph()
    return tasks.compute([build_values(tasks, [node])[node].key])[0]


def evaluate_once(graph: Graph) -> tuple[Any, Sequence[Any], Arrived]:
    client = active_client()
    seconds = seconds_in_line(graph, client)
    if not seconds:
        warn_of_shipping(graph, client)
        with reading(graph):
            return both_passes(graph, TaskGraph(where()))
    if client is None and graph.is_one_call and not observers.of_tasks:
        return one_call(graph)
    with blas.threads(graph.is_chain):
        return evaluate_in_line(graph, client, seconds)


def evaluate_in_line(
    graph: Graph, client: Any, seconds: float
) -> tuple[Any, Sequence[Any], Arrived]:
    """In the calling thread, as far as there is time."""
    direct = DirectSums(client)
    tasks = InLine(graph, direct, seconds)
    try:
        with reading(graph) if client is None else NOTHING:  # calls of workers see to that
            return both_passes(graph, tasks, direct)
    except BaseException:
        tasks.abandon()
        raise


def reading(graph: Graph) -> contextlib.AbstractContextManager:
    """Nobody changes what sums run over meanwhile; calls of workers see to that themselves."""
    sums = [node for node in graph.order if isinstance(node, ReductionNode)]
    sources = [source for node in sums for source in node.items.beside_placed]
    items = [getattr(source, "items", None) for source in sources]
    return reading_all([each for each in items if isinstance(each, Elsewhere)])


def reading_replicated(graph: Graph) -> contextlib.AbstractContextManager:
    """Nobody changes the replicated arrays among the arguments of models meanwhile."""
    found = replicated_among(leaf for node in graph.order for leaf in leaves_in(node))
    return reading_all(set(found)) if found else NOTHING


def reading_all(arrays: Collection[Any]) -> contextlib.AbstractContextManager:
    with contextlib.ExitStack() as stack:
        for each in arrays:
            stack.enter_context(each.reading())
        return stack.pop_all()


def one_call(graph: Graph) -> tuple[Any, Sequence[Any], Arrived]:
    """Both passes of one model called on variables, without any graph."""
    graph.is_watched = False
    node: Any = graph.output
    inputs = [each.primal if each.is_here else each.primal_here for each in node.inputs]
    active = graph.active_inputs(node)
    called = (node.model, node.call, active, inputs)
    captured = capture(*called)
    pulled = each_of(pull_back(captured, Seed(), *called))
    sources = [node.inputs[each.number] for each in active]
    return captured.value, (), dict(zip(sources, pulled, strict=True))


def evaluate_here(graph: Graph) -> tuple[Any, Arrived]:
    """The output's value, and the cotangents that arrive at variables, whatever time it takes."""
    if graph.is_one_call:
        value, _, arrived = one_call(graph)
    else:
        direct = DirectSums(None)
        value, _, arrived = both_passes(graph, InLine(graph, direct, math.inf), direct)
    return value, arrived


def both_passes(
    graph: Graph,
    tasks: TaskGraph,
    direct: DirectSums | None = None,
) -> tuple[Any, Sequence[Any], Arrived]:
    """Builds the tasks of both passes, and computes those that did not run when they were added."""
    forward = build_forward(graph, tasks, direct)
    if graph.output in graph.here and not graph.extras:
        seeds = {graph.output: Seed()} if graph.active else {}
        return forward.here.values[graph.output], (), pull_here(forward, seeds)
    arrived = build_backward(forward, tasks, Seed())
    references = [forward.values[node] for node in (graph.output, *graph.extras)]
    value, *rest = compute_unknown(tasks.compute, [*references, *arrived.values()])
    count = len(graph.extras)
    arrived = dict(zip(arrived, rest[count:], strict=True))
    return value, rest[:count], pull_here(forward, arrived)


def compute_unknown(
    compute: Callable[[list[Any]], Sequence[Any]], references: Sequence[Any]
) -> list[Any]:
    """The values of references; computes those that are not known yet.

    Known are the results of tasks that ran when they were added, and the cotangent of an output
    that is itself a variable.
    """
    keys = [ref.key for ref in references if not isinstance(ref, Cotangent | Known)]
    computed = iter(compute(keys) if keys else ())
    return [
        known(ref) if isinstance(ref, Cotangent | Known) else next(computed) for ref in references
    ]


def known(reference: Any) -> Any:
    return reference.value if isinstance(reference, Known) else reference


def evaluate_again_if_lost(
    graph: Graph, evaluate: Callable[[], Any], prepare: Callable[[], Any] | None = None
) -> Any:
    """Evaluates, and repeats that if results were lost with workers or in a restart.

    Before it repeats, it places lost items again and calls ``prepare``, which computes again what
    the evaluation uses. Raises the error if nothing can be restored.
    """
    sums = [node for node in graph.order if isinstance(node, ReductionNode)]
    placed = [shards for node in sums for shards in node.items.placed]
    is_lost = False
    for _ in range(ATTEMPTS):
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
    if is_lost and prepare is not None:
        prepare()
    return evaluate()


def parts_of(graph: Graph) -> Iterator[tuple[str, Any]]:
    """What models take, and how errors call it."""
    for node in graph.order:
        for source in node.items.sources if isinstance(node, ReductionNode) else ():
            items = getattr(source, "items", ())
            for number, item in enumerate(items if isinstance(items, list) else ()):
                yield f"item {number} of the sum over {node.name!r}", item
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


def even_runs(count: int, number: int) -> list[tuple[int, int]]:
    """Splits ``count`` things into ``number`` runs, or into one a thing if there are fewer."""
    number = max(1, min(count, number))
    bounds = [count * n // number for n in range(number + 1)]
    return list(pairwise(bounds)) if count else []


def threads() -> int:
    client = active_client()
    return sum(present_workers(client).values()) if client else dask.system.CPU_COUNT
