"""Storage: arrays of the caller's that gradients are written into."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import optree
from numpy.lib.array_utils import byte_bounds

from daskgrad.derivatives.inputs import Argnums, as_argnums
from daskgrad.graph.variables import Variable
from daskgrad.values.cotangents import is_differentiable
from daskgrad.values.descriptions import describe
from daskgrad.values.trees import NAMESPACE, flatten


def require_storage(
    out: Any, variables: Sequence[Variable], argnums: Argnums, arguments: Any, name: str
) -> None:
    """Raises unless gradients can be written into ``out``, and nothing else changes with it."""
    like = as_argnums([each.primal for each in variables], argnums)
    leaves, expected = flatten(like)
    paths, arrays, structure = optree.tree_flatten_with_path(
        out, none_is_leaf=True, namespace=NAMESPACE
    )
    if structure != expected:
        raise ValueError(
            f"out of {name!r}: expected the structure of the gradient, {describe(like)}; found "
            f"{describe(out)}"
        )
    places = ["".join([f"[{entry!r}]" for entry in path]) for path in paths]
    for place, array, leaf in zip(places, arrays, leaves, strict=True):
        require_array(array, leaf, f"out{place} of {name!r}")
    given = [leaf for leaf in flatten(arguments)[0] if isinstance(leaf, np.ndarray)]
    named = [(f"out{place}", array) for place, array in zip(places, arrays, strict=True)]
    others = [("an argument", array) for array in given]
    for one, other in overlaps([each for each in named if each[1] is not None], others):
        raise ValueError(
            f"{one} of {name!r} shares memory with {other}; pass arrays that nothing else uses"
        )


def require_no_storage_of_rows(out: Any, sparse: Any, name: str) -> None:
    if out is not None and sparse:
        raise ValueError(
            f"value_and_grad of {name!r} got both out and sparse; rows are not written into "
            f"arrays, so pass one of them"
        )


def require_array(array: Any, leaf: Any, what: str) -> None:
    """Raises unless the gradient of a leaf can be written into an array."""
    if not is_differentiable(leaf):
        if array is not None:
            raise TypeError(f"{what}: {describe(leaf)} has no gradient; pass None for it")
        return
    if type(array) not in (np.ndarray, np.memmap):
        raise TypeError(f"{what}: expected a NumPy array; found {describe(array)}")
    shape, dtype = np.shape(leaf), np.asarray(leaf).dtype
    if array.shape != shape:
        raise ValueError(f"{what}: expected shape {shape}, found {array.shape}")
    if array.dtype != dtype:
        raise TypeError(f"{what}: expected dtype {dtype}, found {array.dtype}")
    if not array.flags.writeable:
        raise ValueError(f"{what}: the array is read-only")
    if array.size > 1 and 0 in array.strides:
        raise ValueError(f"{what}: entries of the array share memory; it is broadcast")


def overlaps(
    own: Sequence[tuple[str, np.ndarray]], others: Sequence[tuple[str, np.ndarray]]
) -> Iterator[tuple[str, str]]:
    """The names of own arrays that share memory with another one, own or not, and that one's."""
    found = [(*byte_bounds(array), name, array) for name, array in [*own, *others] if array.size]
    names = {name for name, _ in own}
    waiting: list[Any] = []
    for low, high, name, array in sorted(found, key=lambda each: each[:2]):
        waiting = [each for each in waiting if each[0] > low]
        for _, other, before in waiting:
            if (name in names or other in names) and np.shares_memory(array, before):
                yield (name, other) if name in names else (other, name)
        waiting.append((high, name, array))


def write(gradient: Any, out: Any) -> Any:
    """Writes a gradient into ``out``, and returns that."""
    for leaf, array in zip(flatten(gradient)[0], flatten(out)[0], strict=True):
        if array is not None:
            array[...] = leaf
    return out
