"""Tensors: converts NumPy arrays to PyTorch's tensors and back."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch

from daskgrad.backends.traced_call import is_numeric


def tensor_of(array: Any) -> torch.Tensor:
    """A CPU tensor on the array's own memory, or a copy where that is read-only."""
    array = np.asarray(array)
    return torch.from_numpy(array if array.flags.writeable else array.copy())


def as_tensor(leaf: Any) -> Any:
    """A constant argument: arrays and NumPy numbers as tensors, everything else as it is."""
    return tensor_of(leaf) if is_numeric(leaf) else leaf


def as_numpy(leaf: Any) -> Any:
    """An output as a NumPy array or number, from any device; unchanged if it is not a tensor."""
    if not isinstance(leaf, torch.Tensor):
        return leaf
    if leaf.dtype == torch.bfloat16:  # which NumPy does not have
        leaf = leaf.float()
    return leaf.numpy(force=True)[()]


def has_derivative(leaf: Any) -> bool:
    return isinstance(leaf, torch.Tensor) and (leaf.is_floating_point() or leaf.is_complex())


def is_traced(leaf: Any) -> bool:
    """Whether a leaf is a tensor that depends on what is differentiated."""
    return has_derivative(leaf) and leaf.requires_grad


def as_like(value: Any, primal: torch.Tensor) -> torch.Tensor:
    """A tangent or cotangent in the shape and dtype of its primal, on its device."""
    tensor = value if isinstance(value, torch.Tensor) else tensor_of(value)
    return tensor.to(primal.device, primal.dtype).reshape(primal.shape)


def versions_of(leaves: Iterable[Any]) -> list[tuple[torch.Tensor, int]]:
    """The tensors among the leaves, and how often each was written into."""
    return [
        (leaf, leaf._version)
        for leaf in leaves
        if isinstance(leaf, torch.Tensor) and not leaf.is_inference()  # these count nothing
    ]


def require_unchanged(versions: Sequence[tuple[torch.Tensor, int]]) -> None:
    """Raises if a model has written into tensors since: they share others' memory."""
    for tensor, version in versions:
        if tensor._version != version:
            raise RuntimeError(
                f"a model of backend 'torch' has written into one of its arguments, a tensor of "
                f"shape {tuple(tensor.shape)}, which shares its memory; write into x.clone()"
            )
