"""Trees: pytrees taken apart and put together, by ``optree`` in the namespace "daskgrad"."""

import itertools
import pickle
from collections.abc import Callable, Sequence
from typing import Any

import cloudpickle
import numpy as np
import optree

NAMESPACE = "daskgrad"


LEAF = optree.treespec_leaf(none_is_leaf=True, namespace=NAMESPACE)
LEAF_TYPES = {np.ndarray, np.float64, float, type(None)}  # and a backend's boxes of arrays


def flatten(value: Any) -> tuple[list[Any], optree.PyTreeSpec]:
    """The leaves of a pytree and its structure; ``None`` counts as a leaf."""
    if type(value) in LEAF_TYPES:  # by far the most frequent ones, in a tenth of the time
        return [value], LEAF
    try:
        return optree.tree_flatten(value, none_is_leaf=True, namespace=NAMESPACE)
    except RecursionError:
        raise RecursionError(
            f"a {type(value).__name__} is nested too deep to be taken apart, or holds itself; "
            f"pytrees of arrays are some levels deep"
        ) from None


def unflatten(structure: optree.PyTreeSpec, leaves: Sequence[Any]) -> Any:
    """The pytree of this structure and these leaves."""
    return leaves[0] if structure is LEAF else structure.unflatten(leaves)


def map_leaves(fun: Callable, value: Any, *others: Any) -> Any:
    """The pytree of what a function makes of each leaf, and of those of others in its place."""
    leaves, structure = flatten(value)
    if not others:
        return unflatten(structure, list(map(fun, leaves)))
    rest = [flatten(other)[0] for other in others]
    return unflatten(structure, [fun(*each) for each in zip(leaves, *rest, strict=True)])


def children_of(structure: optree.PyTreeSpec) -> dict[Any, tuple[int, optree.PyTreeSpec]]:
    """For each child of a container, by its entry: its first leaf, and its structure."""
    children = structure.children()
    firsts = itertools.accumulate([child.num_leaves for child in children], initial=0)
    return dict(zip(structure.entries(), zip(firsts, children, strict=False), strict=True))


def exactly(structure: optree.PyTreeSpec) -> bytes | None:
    """What tells structures apart that are equal, or None where nothing does.

    They may differ in the order of a dict's keys, which a model may go by, and in keys like 1 and
    True. Equality is wanted, too: two classes of one name may have the same bytes here.
    """
    for dumps in (pickle.dumps, cloudpickle.dumps):  # which may do what pickle cannot
        try:
            return dumps(structure)
        except Exception:
            continue
    return None
