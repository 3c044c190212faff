"""Notebooks: the tables that nodes and variables show of themselves in notebooks."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import optree

from daskgrad.autodiff.values.descriptions import nbytes, table
from daskgrad.autodiff.values.trees import flatten

LEAVES = 20  # of a value that are shown one by one
BACKENDS = {  # options by which users ask for backends that they do not name
    "cautious": 'autograd, compile="auto"',
    "compiled": "autograd, compile=True",
    "native": 'autograd, compile="native"',
    "by_hand": "autograd, gradient=True",
}


def node_table(kind: str, name: str, rows: Sequence[tuple[str, str]], held: Any) -> str:
    """The kind of a node, its state, and its value's leaves if the value is in this process.

    ``held``: of a persisted node, a value in a node of Dask's, or a future.
    """
    if held is None:
        return table("", (kind, name), [*rows, ("state", "recorded; computing it runs its models")])
    if hasattr(held, "status"):
        return table("", (kind, name), [*rows, ("state", f"persisted: {held.status}")])
    leaves, structure = flatten(held.value)
    above = table("", (kind, name), [*rows, ("state", "persisted in this process")])
    return above + leaves_table("value", name, leaves, structure)


def leaves_table(kind: str, name: str, leaves: Sequence[Any], structure: optree.PyTreeSpec) -> str:
    """Dtype, shape and bytes of each leaf of a value, under its path."""
    paths = [accessor.codify(name) for accessor in optree.treespec_accessors(structure)]
    rows = [(path, *about(leaf)) for path, leaf in zip(paths, leaves, strict=True)]
    if len(rows) > LEAVES:
        size = sum([np.asarray(leaf).nbytes for leaf in leaves[LEAVES:]])
        rows = [*rows[:LEAVES], (f"{len(rows) - LEAVES:,} more", "", "", nbytes(size))]
    return table("", (f"{kind} {name}", "dtype", "shape", "bytes"), rows)


def about(leaf: Any) -> tuple[str, str, str]:
    if not isinstance(leaf, np.ndarray | np.generic | float | int | complex):
        return type(leaf).__name__, "", ""
    array = np.asarray(leaf)
    return str(array.dtype), str(array.shape), nbytes(array.nbytes)
