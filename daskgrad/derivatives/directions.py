"""Directions: random vectors in the shape of a pytree, and what is computed with them."""

from typing import Any

import numpy as np
import optree

from daskgrad.values import cotangents
from daskgrad.values.trees import flatten


def like(value: Any, random: np.random.Generator) -> Any:
    """A random pytree in the shape of a value, of norm about one; None without derivative."""
    leaves, structure = flatten(value)
    total = sum([np.size(leaf) for leaf in leaves if cotangents.is_differentiable(leaf)])
    drawn = [draw(leaf, random, total) for leaf in leaves]
    return optree.tree_unflatten(structure, drawn)


def draw(leaf: Any, random: np.random.Generator, total: int) -> Any:
    if not cotangents.is_differentiable(leaf):
        return None
    leaf = np.asarray(leaf)
    entries = random.standard_normal(leaf.shape)
    if leaf.dtype.kind == "c":
        entries = entries + 1j * random.standard_normal(leaf.shape)
    return np.asarray(entries / np.sqrt(total), dtype=leaf.dtype)[()]


def moved(value: Any, t: float, direction: Any) -> Any:
    leaves, structure = flatten(value)
    steps, _ = flatten(direction)
    ends = [
        leaf if step is None else cotangents.cast(np.asarray(leaf + t * step), leaf)[()]
        for leaf, step in zip(leaves, steps, strict=True)
    ]
    return optree.tree_unflatten(structure, ends)


def products(first: Any, second: Any) -> list[np.ndarray]:
    pairs = zip(flatten(first)[0], flatten(second)[0], strict=True)
    return [
        np.real(a * np.asarray(b, dtype=np.result_type(b, float)))
        for a, b in pairs
        if a is not None
    ]


def inner(first: Any, second: Any) -> float:
    """The inner product of two pytrees, in autograd's convention for complex numbers."""
    return float(sum([np.sum(product) for product in products(first, second)]))


def size(first: Any, second: Any) -> float:
    """What the rounding error of the inner product is relative to."""
    return float(sum([np.sum(np.abs(product)) for product in products(first, second)]))


def epsilon(value: Any) -> float:
    """The largest epsilon of the dtypes of a value's floating-point leaves."""
    leaves = [np.asarray(leaf) for leaf in flatten(value)[0] if cotangents.is_differentiable(leaf)]
    return max([float(np.finfo(leaf.dtype).eps) for leaf in leaves], default=0.0)


def still(value: Any) -> Any:
    """The zero direction."""
    leaves, structure = flatten(value)
    return optree.tree_unflatten(structure, list(map(cotangents.zeros, leaves)))


def is_double(value: Any) -> bool:
    """Whether all floating-point leaves are real and in double precision."""
    leaves = [np.asarray(leaf) for leaf in flatten(value)[0] if cotangents.is_differentiable(leaf)]
    return all(leaf.dtype == np.float64 for leaf in leaves)
