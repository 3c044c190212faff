"""What cuts derivatives within a PyTorch model."""

from typing import Any

import torch


def stop_gradient(leaf: Any) -> Any:
    """The same number, without its derivative."""
    return leaf.detach() if isinstance(leaf, torch.Tensor) else leaf


def value(leaf: Any) -> Any:
    """The plain array in a tensor, through all nested derivatives; a copy."""
    if not isinstance(leaf, torch.Tensor):
        return leaf
    plain = torch.func.debug_unwrap(leaf, recurse=True).detach()
    return plain.cpu().resolve_conj().numpy().copy()[()]
