"""Tensors: NumPy arrays as PyTorch has them, and back."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch

from daskgrad.backends.calls import is_numeric


def tensor_of(array: Any) -> torch.Tensor:
    """A CPU tensor on the array's own memory, or a copy where that is read-only."""
    array = np.asarray(array)
    return torch.from_numpy(array if array.flags.writeable else array.copy())


def as_tensor(leaf: Any) -> Any:
    """A constant argument: arrays and NumPy numbers as tensors, everything else as it is."""
    return tensor_of(leaf) if is_numeric(leaf) else leaf


def as_numpy(leaf: Any) -> Any:
    """An output as a NumPy array or number, from whatever device; what is no tensor as it is."""
    return leaf.numpy(force=True)[()] if isinstance(leaf, torch.Tensor) else leaf


def has_derivative(leaf: Any) -> bool:
    return isinstance(leaf, torch.Tensor) and (leaf.is_floating_point() or leaf.is_complex())


def like(value: Any, primal: torch.Tensor) -> torch.Tensor:
    """A tangent or cotangent in the shape and dtype of its primal, where that is."""
    if value is None:
        return torch.zeros_like(primal)
    tensor = value if isinstance(value, torch.Tensor) else tensor_of(value)
    return tensor.to(primal.device, primal.dtype).reshape(primal.shape)


def require_unchanged(leaves: Iterable[Any]) -> None:
    """A model that writes into its arguments would change the arrays of other tasks."""
    for leaf in leaves:
        if isinstance(leaf, torch.Tensor) and leaf._version:
            raise RuntimeError(
                f"a model of backend 'torch' has written into one of its arguments, a tensor of "
                f"shape {tuple(leaf.shape)}, whose memory others share; write into x.clone()"
            )
