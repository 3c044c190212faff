"""Clipping: gradients of limited length."""

from typing import Any

import numpy as np

from daskgrad.optim.optimiser import require_number
from daskgrad.values.rows import Rows
from daskgrad.values.trees import flatten, unflatten


def norm(gradients: Any) -> float:
    """The 2-norm of all arrays, numbers and ``Rows`` of a pytree, whatever else is in it."""
    leaves = flatten(gradients)[0]
    found = [leaf.values if isinstance(leaf, Rows) else np.asarray(leaf) for leaf in leaves]
    norms = [np.linalg.norm(leaf) for leaf in found if leaf.dtype.kind in "fc"]
    return float(np.linalg.norm(np.array(norms)))


def clip_by_norm(gradients: Any, limit: float) -> Any:
    """The gradients, scaled so that their norm is at most ``limit``, over all leaves together."""
    require_number(limit, "the limit", 0.0)
    length = norm(gradients)
    if not length > limit:
        return gradients
    leaves, structure = flatten(gradients)
    factor = limit / length
    return unflatten(structure, [scaled(leaf, factor) for leaf in leaves])


def scaled(leaf: Any, factor: float) -> Any:
    if isinstance(leaf, Rows):
        return leaf * leaf.dtype.type(factor)
    is_gradient = (
        isinstance(leaf, np.ndarray | float | complex) and np.asarray(leaf).dtype.kind in "fc"
    )
    return leaf * np.asarray(leaf).dtype.type(factor) if is_gradient else leaf
