"""Leaves: the arrays of a pytree of parameters, with their names, and the gradients that fit."""

import functools
from typing import Any, NamedTuple

import numpy as np
import optree

from daskgrad.autodiff.values.descriptions import describe
from daskgrad.autodiff.values.elsewhere import AttachedElsewhere, CotangentElsewhere, replicated_of
from daskgrad.autodiff.values.rows import Rows
from daskgrad.autodiff.values.trees import flatten


class Leaf(NamedTuple):
    """A parameter: its path in the pytree, as one writes it, and the array, or attached one."""

    path: str
    array: Any

    def key(self, name: str) -> str:
        """What the state calls an array of this parameter."""
        return f"{name}{self.path}"


@functools.lru_cache(maxsize=64)
def paths_of(structure: optree.PyTreeSpec) -> list[str]:
    return [accessor.codify("") for accessor in structure.accessors()]


def leaves_of(params: Any) -> list[Leaf]:
    """The parameters that can be optimised: float arrays."""
    leaves, structure = flatten(params)
    found = map(Leaf, paths_of(structure), leaves)
    return [leaf for leaf in found if is_parameter(*leaf)]


def is_parameter(path: str, leaf: Any) -> bool:
    """Whether a leaf is optimised; TypeError or ValueError if it should be, and cannot."""
    if type(leaf) is np.ndarray and leaf.dtype.char in "df" and leaf.flags.writeable:
        return True  # as most are
    name = f"params{path}"
    if isinstance(leaf, float | complex | np.inexact):
        raise TypeError(
            f"{name} is the number {leaf!r}, which cannot be changed in place; make it an array, "
            f"np.array({leaf!r})"
        )
    if isinstance(leaf, AttachedElsewhere):
        return True
    if leaf is None or isinstance(leaf, bool | int | str | bytes | np.generic):
        return False
    if type(leaf) not in (np.ndarray, np.memmap):
        raise TypeError(
            f"{name} is {describe(leaf)}, and parameters are arrays, in dicts, lists, tuples and "
            f"registered dataclasses; pass these"
        )
    if leaf.dtype.kind in "biuSU":
        return False
    if leaf.dtype.kind != "f" or leaf.dtype.itemsize < 4:
        raise TypeError(
            f"{name} is {describe(leaf)}, and optimisers take real arrays in single precision or "
            f"better; pass real and imaginary parts of complex ones, and float32 for float16"
        )
    if not leaf.flags.writeable and replicated_of(leaf) is None:
        raise ValueError(f"{name} is read-only and cannot be changed in place; pass a copy")
    return True


def pairs_of(params: Any, gradients: Any) -> list[tuple[Leaf, Any]]:
    """The parameters that have a gradient, and it; an error if a gradient does not fit."""
    given, structure = flatten(gradients)
    leaves, own = flatten(params)
    if structure != own:
        raise ValueError(f"gradients have the structure {structure}, and the parameters {own}")
    return [
        (Leaf(path, leaf), require_gradient(gradient, path, leaf))
        for path, leaf, gradient in zip(paths_of(own), leaves, given, strict=True)
        if is_parameter(path, leaf) and gradient is not None
    ]


def require_gradient(
    gradient: Any, path: str, array: Any
) -> np.ndarray | Rows | CotangentElsewhere:
    stays = isinstance(gradient, CotangentElsewhere) and gradient.attached is array
    found = gradient if stays or isinstance(gradient, Rows) else np.asarray(gradient)
    if found.dtype.kind != "f" or found.shape != array.shape:
        raise ValueError(
            f"the gradient of params{path}, {describe(array)}, must be a real "
            f"floating-point array or Rows of its shape; found {describe(gradient)}"
        )
    return found
