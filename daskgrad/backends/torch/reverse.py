"""Reverse mode of a PyTorch model: the tape is PyTorch's own graph, kept for further pullbacks.

PyTorch's cotangents of complex numbers are the conjugates of autograd's, in and out.

Models run one at a time in a process: ``torch.func.functional_call`` puts the parameters that it is
given into its module while it runs, and threads that share the module would see each other's.
"""

import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch

from daskgrad.backends.torch.tensors import (
    as_like,
    as_numpy,
    as_tensor,
    is_traced,
    require_unchanged,
    tensor_of,
    versions_of,
)
from daskgrad.backends.traced_call import TracedCall
from daskgrad.values.carriers import carrier
from daskgrad.values.trees import flatten, unflatten

_model_lock = threading.RLock()


def run(fun: Callable, args: tuple, kwargs: dict) -> Any:
    """The value of a call."""
    leaves, structure = flatten((args, kwargs))
    with _model_lock, torch.inference_mode(False):
        tensors = list(map(as_tensor, leaves))
        args, kwargs = unflatten(structure, tensors)
        versions = versions_of(tensors)
        outputs, value = flatten(fun(*args, **kwargs))
        require_unchanged(versions)
    return unflatten(value, list(map(as_numpy, outputs)))


def trace(fun: Any, arrays: Sequence[Any]) -> tuple[list[Any], "Tape"]:
    """Runs ``fun`` once (see ``backends.protocol``)."""
    with _model_lock, torch.inference_mode(False), torch.enable_grad():
        roots = [tensor_of(array).requires_grad_() for array in arrays]
        outputs = call_on_tensors(fun, roots) if isinstance(fun, TracedCall) else fun(*roots)
    ends = [each if is_traced(each) else None for each in outputs]
    return list(map(as_numpy, outputs)), Tape(roots, arrays, ends)


def call_on_tensors(fun: TracedCall, roots: Sequence[torch.Tensor]) -> list[Any]:
    """The leaves of the value of a call, all of whose arrays are tensors."""
    layout = fun.layout()
    tensors = layout.fill(roots, as_tensor)
    args, kwargs = unflatten(layout.structure, tensors)
    versions = versions_of(tensors)
    leaves = fun.leaves_of(fun.fun(*args, **kwargs))
    require_unchanged(versions)
    return leaves


@carrier
class Tape:
    """The graph of one call: ``pull`` maps cotangents of the outputs to those of the arrays."""

    roots: Sequence[Any]
    arrays: Sequence[Any]
    ends: Sequence[Any]

    def pull(self, cotangents: Sequence[Any]) -> list[Any]:
        """Maps a cotangent (or None) per output to one (or None) per array."""
        pairs = zip(self.ends, cotangents, strict=True)
        arrived = [(end, c) for end, c in pairs if end is not None and c is not None]
        if not arrived:
            return [None] * len(self.roots)
        pulled = torch.autograd.grad(
            [end for end, _ in arrived],
            self.roots,
            [as_like(cotangent, end).conj() for end, cotangent in arrived],
            retain_graph=True,
            allow_unused=True,
        )
        return [None if each is None else as_numpy(each.conj()) for each in pulled]

    def held_arrays(self) -> list[Any]:
        """The memory of all saved tensors, each once; that of an argument is the argument."""
        own = {
            root.untyped_storage().data_ptr(): array
            for root, array in zip(self.roots, self.arrays, strict=True)
        }
        held: dict[int, Any] = {}
        for tensor in saved_tensors([end.grad_fn for end in self.ends if end is not None]):
            address = tensor.untyped_storage().data_ptr()
            if address in own:
                held[address] = own[address]
            elif address not in held or held[address].nbytes < tensor.nbytes:
                held[address] = tensor
        return list(held.values())


def saved_tensors(functions: Sequence[Any]) -> list[torch.Tensor]:
    """The tensors that the functions of a graph have saved for the backward pass."""
    found: list[torch.Tensor] = []
    seen, waiting = set(), list(functions)
    while waiting:
        function = waiting.pop()
        if function is None or function in seen:
            continue
        seen.add(function)
        names = [name for name in dir(function) if name.startswith(("_saved_", "saved_tensors"))]
        for name in names:
            saved = getattr(function, name)
            several = saved if isinstance(saved, list | tuple) else [saved]
            found.extend([each for each in several if isinstance(each, torch.Tensor)])
        waiting.extend(before for before, _ in function.next_functions)
    return found
