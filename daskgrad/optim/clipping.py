"""Clipping: gradients of limited length."""

from typing import Any

import numpy as np

from daskgrad.optim.optimiser import require_number
from daskgrad.values import fingerprints
from daskgrad.values.rows import Rows
from daskgrad.values.trees import flatten, unflatten


def norm(gradients: Any) -> float:
    """The 2-norm of all arrays, numbers and ``Rows`` of a pytree, whatever else is in it.

    Examples
    --------
    >>> dg.optim.norm({"w": np.array([3.0, 4.0]), "b": 12.0})
    13.0
    """
    leaves = flatten(gradients)[0]
    found = [leaf.values if isinstance(leaf, Rows) else np.asarray(leaf) for leaf in leaves]
    norms = [norm_of(leaf) for leaf in found if leaf.dtype.kind in "fc"]
    return fingerprints.norm(np.array(norms, np.float64))


def norm_of(array: np.ndarray) -> float:
    """The 2-norm in double precision, also where squares overflow."""
    return fingerprints.norm(np.ravel(array).astype(np.result_type(array, np.float64)))


def clip_by_norm(gradients: Any, limit: float) -> Any:
    """The gradients, scaled so that their norm is at most ``limit``, over all leaves together.

    Examples
    --------
    >>> dg.optim.clip_by_norm({"w": np.array([3.0, 4.0])}, 1.0)
    {'w': array([0.6, 0.8])}
    """
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
    dtype = np.asarray(leaf).dtype
    return leaf * dtype.type(factor) if dtype.kind in "fc" else leaf
