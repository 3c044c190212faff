"""Per item: the value and the gradient of each term of a sum, in one pass."""

import functools
from collections.abc import Callable, Mapping, Sequence
from itertools import chain, islice
from typing import Any

import numpy as np
import optree

from daskgrad.autodiff.models import blas
from daskgrad.autodiff.models.model import inside_model
from daskgrad.autodiff.values.descriptions import require_choice
from daskgrad.autodiff.values.rows import dense_leaf
from daskgrad.derivatives.evaluation import evaluate_again_if_lost, reading_replicated
from daskgrad.derivatives.in_line import (
    is_large,
    key_of,
    run_by_dask,
    run_here,
    seconds_in_line,
    stays,
)
from daskgrad.derivatives.inputs import (
    Argnums,
    Sparse,
    as_argnums,
    as_rows_wanted,
    require_argnums,
    require_argnums_kind,
    warn_of_shipping,
)
from daskgrad.derivatives.recording import RecordedFunction
from daskgrad.derivatives.tasks_in_line import InLine
from daskgrad.graph.activity import Graph
from daskgrad.graph.delayed import as_model
from daskgrad.graph.forward import DirectSums
from daskgrad.graph.nodes import build_values
from daskgrad.sums.cutting import Grainsize, require_grainsize
from daskgrad.sums.item_sum import ReductionNode
from daskgrad.sums.map_sum import reduction
from daskgrad.sums.term_gradients import norms, stacks, terms_of_block
from daskgrad.sums.zipping import Zip, as_sources, cut_alike, holds_nodes
from daskgrad.tasks.clients import active_client
from daskgrad.tasks.supervision import LostError
from daskgrad.tasks.task_graph import TaskGraph

KINDS = {"norm": norms, "full": stacks}


def per_item(
    model: Any,
    items: Any,
    argnums: Argnums = 0,
    gradient: str = "norm",
    grainsize: Grainsize = "auto",
    name: str | None = None,
    sparse: Sparse = False,
) -> Callable[..., tuple[np.ndarray, Any]]:
    """A function that returns for each item the value of ``model(item, *shared)`` and its gradient.

    For clipping, influence and Fisher information, and to find the item whose value or gradient is
    NaN: its norm is NaN, and the other norms are not affected. Each term is evaluated and pulled
    back once, in one task a block of items, as in ``map_sum``; results come back item by item.

    Parameters
    ----------
    model:
        a plain function, or what ``delayed`` made of one; returns one real number.
    items:
        as for ``map_sum``, except variables and lists of nodes.
    argnums:
        which of the shared arguments to differentiate, counted from 0 after the item.
    gradient:
        "norm": the 2-norm of each item's gradient, over all leaves of these arguments together.
        "full": the gradients; all of them are held in this process.
    grainsize:
        as for ``map_sum``; the results do not depend on it.
    name:
        the name in task keys, errors and the dashboard; by default the model's.
    sparse:
        which gradients should be ``Rows``, as for ``value_and_grad``; these come back as lists,
        with one for each item.

    Returns
    -------
    function
        A function of the shared arguments, which returns a pair in the order of the items: the
        values, of shape (n,), and the norms, of shape (n,), or the gradients. A gradient has the
        structure of its argument (there is a tuple of them if ``argnums`` is a sequence), and each
        leaf a row for each item: its shape is ``(n, *shape of the leaf)``. ``None`` replaces
        integers, booleans and strings.

    Raises
    ------
    TypeError
        if the items are variables or nodes, if it is called within a model, if a term is not one
        real number, or if the name is not a string.
    ValueError
        if ``gradient`` is unknown, and as ``map_sum`` does.

    See Also
    --------
    map_sum, jacobian

    Examples
    --------
    >>> items = [1.0, 2.0, 3.0]
    >>> values, norms = dg.per_item(lambda item, x: item * x**2, items)(2.0)
    >>> values, norms
    (array([ 4.,  8., 12.]), array([ 4.,  8., 12.]))
    """
    model = as_model(model, name)
    require_grainsize(grainsize)
    require_choice(gradient, KINDS, "gradient")
    require_argnums_kind(argnums, model.name)
    wanted = as_rows_wanted(sparse, model.name)
    if inside_model():
        raise TypeError(
            f"dg.per_item of model {model.name!r} was called inside a model, where nothing is "
            f"recorded; call it outside of models"
        )
    sources = as_sources(items, "items", slices=False)
    if holds_nodes(sources) or any(source.variable is not None for source in sources):
        raise TypeError(
            f"dg.per_item of model {model.name!r} differentiates only the shared arguments, but "
            f"its items are or hold nodes or variables; pass plain items"
        )
    blocks = cut_alike(sources, grainsize, slices=False)

    def per_item_of(*shared: Any) -> tuple[np.ndarray, Any]:
        numbers = require_argnums(argnums, len(shared), model.name)
        recorded = RecordedFunction(
            model.fun, model.name, sorted(numbers), shared, skipped=1, sparse=wanted
        )
        node = reduction(model, blocks, tuple(recorded.args), isinstance(items, Zip), "pairwise")
        graph = recorded.graph_of(node)
        collect = KINDS[gradient]
        done: dict[int, Any] = {}  # by block; what is lost on the way is evaluated again
        with reading_replicated(graph):
            evaluate_again_if_lost(graph, lambda: evaluate_terms(node, graph, collect, done))
        values, gradients = zip(*[done[block] for block in range(len(done))], strict=True)
        if gradient == "norm":
            return concatenate(values), concatenate(gradients)
        trees = joined_trees(recorded, gradients)
        return concatenate(values), as_argnums([trees[number] for number in numbers], argnums)

    return per_item_of


def joined_trees(recorded: RecordedFunction, blocks: Sequence[Sequence]) -> dict[int, Any]:
    """The gradients by argument, from the blocks' leaves in the order of the arguments."""
    by_leaf = zip(*blocks, strict=True)
    leaves = iter([None if parts[0] is None else joined(parts) for parts in by_leaf])
    return {
        number: optree.tree_unflatten(v.structure, list(islice(leaves, len(v.leaves))))
        for number, v in zip(recorded.numbers, recorded.variables, strict=True)
    }


def evaluate_terms(
    node: ReductionNode, graph: Graph, collect: Callable, done: dict[int, Any]
) -> None:
    """Adds to ``done`` the values of terms, and their gradients as ``collect`` returns them: of all
    items as one block in the calling thread, or of each other block."""
    client, key = active_client(), key_of(graph)
    by_dask = functools.partial(evaluate_blocks, node, graph, collect, done)
    if client is not None:
        warn_of_shipping(graph, client)
        return by_dask()
    key = key._replace(last=("per item", key.last))
    if not (seconds_in_line(graph) and stays(key, graph)):
        return run_by_dask(key, by_dask, graph)
    tasks = InLine(graph, DirectSums(None))
    values, items = build_values(tasks, node.inputs), node.items
    inputs = [values[source].value for source in node.inputs]
    fields = items.here(0, len(items.firsts))
    args = collect, node.model, node.summand(graph), items.firsts[0], inputs, *fields
    fun, task = functools.partial(terms_of_block, *args), tasks.key("backward", node.name)
    with blas.ONE_THREAD:
        result = run_here(key, lambda: tasks.add(task, fun), lambda: is_large(graph))
    done[0] = result.value
    return None


def evaluate_blocks(
    node: ReductionNode, graph: Graph, collect: Callable, done: dict[int, Any]
) -> None:
    tasks = TaskGraph()
    tasks.are_apart = True
    values = build_values(tasks, node.inputs)
    tasks.share([node.model, node.model])  # it is in every task
    args = (node.summand(graph), [values[source] for source in node.inputs])
    fun, blocks = functools.partial(terms_of_block, collect), node.items.blocks(tasks, node.name)
    references = node.build_blocks(tasks, "backward", fun, *args, blocks)
    blocks_of = {ref.key: block for block, ref in enumerate(references) if block not in done}
    kept: Mapping[Any, Any] = {}
    try:
        kept = dict(zip(blocks_of, tasks.compute(blocks_of), strict=True))
    except LostError as error:
        kept = error.kept
        raise
    finally:
        done.update({blocks_of[key]: result for key, result in kept.items()})


def joined(blocks: Sequence[Any]) -> Any:
    """The gradients of one leaf: in one array, or in a list if all blocks have rows."""
    if all([isinstance(block, list) for block in blocks]):
        return list(chain.from_iterable(blocks))
    rows = [np.stack([*map(dense_leaf, b)]) if isinstance(b, list) else b for b in blocks]
    return concatenate(rows)


def concatenate(blocks: Sequence[np.ndarray]) -> np.ndarray:
    """Blocks one after the other; an empty block has no dtype."""
    return np.concatenate([block for block in blocks if len(block)] or blocks[:1])
