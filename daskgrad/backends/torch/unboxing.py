"""Unboxing: numbers without derivative within a PyTorch model."""

from typing import Any

import numpy as np
import torch


def stop_gradient(leaf: Any) -> Any:
    """The same number, without its derivative."""
    return leaf.detach() if isinstance(leaf, torch.Tensor) else leaf


def value(leaf: Any) -> Any:
    """The plain array in a tensor, through all nested derivatives; a copy."""
    if not isinstance(leaf, torch.Tensor):
        return leaf
    plain = torch.func.debug_unwrap(leaf, recurse=True)
    dtype = str(leaf.dtype).removeprefix("torch.")
    return np.array(plain.tolist(), dtype)[()]  # in a nested derivative it shows no memory
