"""Storage: arrays of the caller, which gradients are written into."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import optree
from numpy.lib.array_utils import byte_bounds

from daskgrad.autodiff.values.cotangents import is_differentiable
from daskgrad.autodiff.values.descriptions import describe
from daskgrad.autodiff.values.trees import NAMESPACE, flatten
from daskgrad.derivatives.inputs import Argnums, as_argnums


def require_storage(
    out: Any, primals: Sequence[Any], argnums: Argnums, arguments: Any, name: str
) -> None:
    """Raises unless gradients can be written into ``out``, and nothing else changes with it."""
    like = as_argnums(primals, argnums)
    leaves, expected = flatten(like)
    paths, arrays, structure = optree.tree_flatten_with_path(
        out, none_is_leaf=True, namespace=NAMESPACE
    )
    if structure != expected:
        raise ValueError(
            f"out of {name!r}: expected the structure of the gradient, {describe(like)}; found "
            f"{describe(out)}"
        )
    names = ["out" + "".join([f"[{entry!r}]" for entry in path]) for path in paths]
    for array_name, array, leaf in zip(names, arrays, leaves, strict=True):
        require_array(array, leaf, f"{array_name} of {name!r}")
    named = [pair for pair in zip(names, arrays, strict=True) if pair[1] is not None]
    inputs = [leaf for leaf in flatten(arguments)[0] if isinstance(leaf, np.ndarray)]
    for one, other in overlaps(named, [("an argument", array) for array in inputs]):
        raise ValueError(
            f"{one} of {name!r} shares memory with {other}; pass arrays that nothing else uses"
        )


def require_array(array: Any, leaf: Any, subject: str) -> None:
    """Raises unless the gradient of a leaf can be written into an array."""
    if not is_differentiable(leaf):
        if array is not None:
            raise TypeError(f"{subject}: {describe(leaf)} has no gradient; pass None for it")
        return
    if type(array) not in (np.ndarray, np.memmap):
        raise TypeError(f"{subject}: expected a NumPy array; found {describe(array)}")
    shape, dtype = np.shape(leaf), np.asarray(leaf).dtype
    if array.shape != shape:
        raise ValueError(f"{subject}: expected shape {shape}, found {array.shape}")
    if array.dtype != dtype:
        raise TypeError(f"{subject}: expected dtype {dtype}, found {array.dtype}")
    if not array.flags.writeable:
        raise ValueError(f"{subject}: the array is read-only")
    if array.size > 1 and 0 in array.strides:
        raise ValueError(f"{subject}: entries of the array share memory; it is broadcast")


def overlaps(
    outputs: Sequence[tuple[str, np.ndarray]], inputs: Sequence[tuple[str, np.ndarray]]
) -> Iterator[tuple[str, str]]:
    """The names of an output and of another array that share memory."""
    bounded = [
        (*byte_bounds(array), name, array) for name, array in [*outputs, *inputs] if array.size
    ]
    names = {name for name, _ in outputs}
    open_arrays: list[Any] = []  # that end behind the beginning of the next one
    for low, high, name, array in sorted(bounded, key=lambda entry: entry[:2]):
        open_arrays = [entry for entry in open_arrays if entry[0] > low]
        for _, other, before in open_arrays:
            if (name in names or other in names) and np.shares_memory(array, before):
                yield (name, other) if name in names else (other, name)
        open_arrays.append((high, name, array))


def write(gradient: Any, out: Any) -> Any:
    """Writes a gradient into ``out``, and returns that."""
    for leaf, array in zip(flatten(gradient)[0], flatten(out)[0], strict=True):
        if array is not None:
            array[...] = leaf
    return out
