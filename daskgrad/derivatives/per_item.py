"""Per item: the value and the gradient of each term of a sum, in one pass."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import optree

from daskgrad.derivatives.evaluation import evaluate_again_if_lost
from daskgrad.derivatives.inputs import (
    Argnums,
    require_argnums,
    require_argnums_kind,
)
from daskgrad.derivatives.notices import warn_of_shipping
from daskgrad.derivatives.recording import Recording
from daskgrad.graph.delayed import as_model
from daskgrad.graph.nodes import build_values
from daskgrad.models.model import Model, inside_model
from daskgrad.sums.cutting import Grainsize, require_grainsize
from daskgrad.sums.item_sum import ReductionNode
from daskgrad.sums.map_sum import reduction
from daskgrad.sums.term_gradients import SingleTerms, gradients_of_block, norms_of_block
from daskgrad.sums.zipping import Items, Zip, as_sources, cut_alike, holds_nodes
from daskgrad.tasks.clients import active_client
from daskgrad.tasks.task_graph import TaskGraph
from daskgrad.values.descriptions import is_integer, require_choice

KINDS = {"norm": norms_of_block, "full": gradients_of_block}


def per_item(
    model: Any,
    items: Any,
    argnums: Argnums = 0,
    gradient: str = "norm",
    grainsize: Grainsize = "auto",
    name: str | None = None,
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
        what ``map_sum`` takes, except variables and lists of nodes.
    argnums:
        which of the shared arguments to differentiate, counted from 0 after the item.
    gradient:
        "norm": the 2-norm of each item's gradient, over all leaves of all these arguments.
        "full": the gradients; all of them are held in this process.
    grainsize:
        as for ``map_sum``; the results do not depend on it.
    name:
        what task keys, errors and the dashboard call it; the model's if not given.

    Returns
    -------
    A function of the shared arguments, which returns a pair in the order of the items: the values,
    of shape (n,), and the norms, of shape (n,), or the gradients. These have the structure of the
    argument (a tuple of such where ``argnums`` is a sequence), and each leaf has a row an item, of
    shape (n, *shape of the leaf); ``None`` replaces integers, booleans and strings.

    Raises
    ------
    TypeError
        if the items are variables or nodes, if it is called within a model, if a term is not one
        real number, or if the name is not a string.
    ValueError
        if ``gradient`` is unknown, and as ``map_sum`` does.
    """
    model = as_model(model, name)
    require_grainsize(grainsize)
    require_choice(gradient, KINDS, "gradient")
    require_argnums_kind(argnums, model.name)
    require_outside(model)
    sources = as_sources(items, "items", slices=False)
    if holds_nodes(sources) or any(source.variable is not None for source in sources):
        raise TypeError(
            f"dg.per_item of model {model.name!r} differentiates only the shared arguments, but "
            f"its items are or hold nodes or variables; pass plain items"
        )
    each = cut_alike(sources, grainsize, slices=False)

    def per_item_of(*shared: Any) -> tuple[np.ndarray, Any]:
        numbers = require_argnums(argnums, len(shared), model.name)
        evaluation = ItemByItem(model, each, isinstance(items, Zip), shared, sorted(numbers))
        values, gradients = evaluation.compute(gradient)
        if gradient == "norm":
            return values, gradients
        ordered = [gradients[sorted(numbers).index(number)] for number in numbers]
        return values, ordered[0] if is_integer(argnums) else tuple(ordered)

    return per_item_of


class ItemByItem:
    """One evaluation of all items; ``numbers`` of the shared arguments are differentiated."""

    def __init__(
        self, model: Model, items: Items, is_zip: bool, shared: tuple, numbers: Sequence[int]
    ):
        recorded = Recording(model.fun, model.name, numbers, shared, skipped=1)
        self._variables = recorded.variables
        args = tuple(recorded.args)
        self._node: ReductionNode = reduction(model, items, args, is_zip, "pairwise")
        self._graph = recorded.graph(self._node)

    def compute(self, kind: str) -> tuple[np.ndarray, Any]:
        """The values, and the norms or, of each variable, the gradients."""
        blocks: Sequence[SingleTerms] = evaluate_again_if_lost(self._graph, lambda: self._run(kind))
        values = concatenate([block.values for block in blocks])
        if kind == "norm":
            return values, concatenate([block.gradients for block in blocks])
        by_leaf = zip(*[block.gradients for block in blocks], strict=True)
        leaves = iter([None if rows[0] is None else concatenate(rows) for rows in by_leaf])
        return values, [
            optree.tree_unflatten(v.structure, [next(leaves) for _ in v.leaves])
            for v in self._variables
        ]

    def _run(self, kind: str) -> Sequence[SingleTerms]:
        warn_of_shipping(self._graph, active_client())
        node, tasks = self._node, TaskGraph()
        values = build_values(tasks, node.inputs)
        summand = node.summand(self._graph)
        model = tasks.constant(node.model, node.name)
        inputs = [values[source] for source in node.inputs]
        blocks = node.items.blocks(tasks, node.name)
        references = [
            tasks.add(tasks.key("backward", node.name), KINDS[kind], model, summand, *block)
            for block in [(first, inputs, *fields) for first, fields in blocks]
        ]
        return tasks.compute([reference.key for reference in references])


def concatenate(blocks: Sequence[np.ndarray]) -> np.ndarray:
    """Blocks one after the other; a block without items has no dtype of its own."""
    return np.concatenate([block for block in blocks if len(block)] or blocks[:1])


def require_outside(model: Model) -> None:
    if inside_model():
        raise TypeError(
            f"dg.per_item of model {model.name!r} was called inside a model, where nothing is "
            f"recorded; call it outside of models"
        )
