"""The PyTorch backend: models get CPU tensors, and may move them to any device."""

import pickle
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import torch

from daskgrad.autodiff.tape.traced_call import TracedCall, is_numeric
from daskgrad.autodiff.values.carriers import carrier
from daskgrad.autodiff.values.pickling import Pickles
from daskgrad.autodiff.values.trees import flatten, unflatten

# -------------------------------------------------------------------------------------------------
# Tensors: converts NumPy arrays to PyTorch's tensors and back.


def tensor_of(array: Any) -> torch.Tensor:
    """A CPU tensor on the array's memory; on a copy of a read-only array."""
    array = np.asarray(array)
    return torch.from_numpy(array if array.flags.writeable else array.copy())


def as_tensor(leaf: Any) -> Any:
    """A constant argument: arrays and NumPy numbers as tensors, everything else unchanged."""
    return tensor_of(leaf) if is_numeric(leaf) else leaf


def as_numpy(leaf: Any) -> Any:
    """A tensor on any device as a NumPy array or number; other outputs unchanged."""
    if not isinstance(leaf, torch.Tensor):
        return leaf
    if leaf.dtype == torch.bfloat16:  # which NumPy does not have
        leaf = leaf.float()
    return leaf.numpy(force=True)[()]


def has_derivative(leaf: Any) -> bool:
    return isinstance(leaf, torch.Tensor) and (leaf.is_floating_point() or leaf.is_complex())


def is_traced(leaf: Any) -> bool:
    """Whether a leaf is a tensor that depends on a differentiated one."""
    return has_derivative(leaf) and leaf.requires_grad


def as_like(value: Any, primal: torch.Tensor) -> torch.Tensor:
    """A tangent or cotangent in the shape and dtype of its primal, on its device."""
    tensor = value if isinstance(value, torch.Tensor) else tensor_of(value)
    return tensor.to(primal.device, primal.dtype).reshape(primal.shape)


def versions_of(leaves: Iterable[Any]) -> list[tuple[torch.Tensor, int]]:
    """The tensors among the leaves, and the number of writes into each."""
    return [
        (leaf, leaf._version)
        for leaf in leaves
        if isinstance(leaf, torch.Tensor) and not leaf.is_inference()  # which count no writes
    ]


def require_unchanged(versions: Sequence[tuple[torch.Tensor, int]]) -> None:
    """Raises if a model has written into tensors, which share the memory of arguments."""
    for tensor, version in versions:
        if tensor._version != version:
            raise RuntimeError(
                f"a model of backend 'torch' has written into one of its arguments, a tensor of "
                f"shape {tuple(tensor.shape)}, which shares its memory; write into x.clone()"
            )


# -------------------------------------------------------------------------------------------------
# Reverse mode of a PyTorch model: the tape is PyTorch's own graph, kept for further pullbacks.
#
# PyTorch's cotangents of complex numbers are the conjugates of autograd's, in and out.
#
# A process runs one model at a time: ``torch.func.functional_call`` puts parameters into its module
# while it runs, and threads that share the module would see each other's.

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


def trace(fun: Any, arrays: Sequence[Any]) -> tuple[list[Any], "TorchTape"]:
    """Runs ``fun`` once (see ``autodiff.libraries.registry``)."""
    with _model_lock, torch.inference_mode(False), torch.enable_grad():
        roots = [tensor_of(array).requires_grad_() for array in arrays]
        outputs = call_on_tensors(fun, roots) if isinstance(fun, TracedCall) else fun(*roots)
    ends = [output if is_traced(output) else None for output in outputs]
    return list(map(as_numpy, outputs)), TorchTape(roots, arrays, ends)


def call_on_tensors(fun: TracedCall, roots: Sequence[torch.Tensor]) -> list[Any]:
    """The leaves of the value of a call on tensors."""
    layout = fun.layout()
    tensors = layout.fill(roots, as_tensor)
    args, kwargs = unflatten(layout.structure, tensors)
    versions = versions_of(tensors)
    leaves = fun.leaves_of(fun.fun(*args, **kwargs))
    require_unchanged(versions)
    return leaves


@carrier
class TorchTape:
    """The graph of one call: ``pull`` maps the outputs' cotangents to the arrays'."""

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
        return [None if cotangent is None else as_numpy(cotangent.conj()) for cotangent in pulled]

    def held_arrays(self) -> list[Any]:
        """The memory of all saved tensors, each once; an argument's memory is the argument."""
        arguments = {
            root.untyped_storage().data_ptr(): array
            for root, array in zip(self.roots, self.arrays, strict=True)
        }
        held: dict[int, Any] = {}
        for tensor in saved_tensors([end.grad_fn for end in self.ends if end is not None]):
            address = tensor.untyped_storage().data_ptr()
            if address in arguments:
                held[address] = arguments[address]
            elif address not in held or held[address].nbytes < tensor.nbytes:
                held[address] = tensor
        return list(held.values())


def saved_tensors(functions: Sequence[Any]) -> list[torch.Tensor]:
    """The tensors that the functions of a graph saved for the backward pass."""
    tensors: list[torch.Tensor] = []
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
            tensors.extend([tensor for tensor in several if isinstance(tensor, torch.Tensor)])
        waiting.extend(before for before, _ in function.next_functions)
    return tensors


# -------------------------------------------------------------------------------------------------
# Forward mode of a PyTorch model: the pullback of its pullback.


def linearize(
    fun: Callable[..., Sequence[Any]], arrays: Sequence[Any]
) -> tuple[list[Any], Callable[[Sequence[Any]], list[Any]]]:
    """The outputs of ``fun``, and the map from the arrays' tangents to the outputs'; in tensors.

    ``fun`` runs once: a pullback is linear in its cotangent, and so its pullback maps tangents.
    PyTorch's forward mode would run it again for every push, and ignores ``no_grad``.
    """
    with torch.inference_mode(False), torch.enable_grad():
        primals = [each if is_traced(each) else tensor_of(each).requires_grad_() for each in arrays]
        outputs = list(fun(*primals))
        ends = [each for each in outputs if is_traced(each)]
        cotangents = [torch.ones_like(end, requires_grad=True) for end in ends]
        pulled = differentiate(ends, primals, cotangents)

    def push(tangents: Sequence[Any]) -> list[Any]:
        moving = [
            (output, as_like(tangent, primal))
            for output, tangent, primal in zip(pulled, tangents, primals, strict=True)
            if tangent is not None and is_traced(output)
        ]
        with torch.inference_mode(False), torch.enable_grad():
            pushed = differentiate([e for e, _ in moving], cotangents, [t for _, t in moving])
        remaining = iter(pushed)
        return [
            tangent_of(output, next(remaining) if is_traced(output) else None) for output in outputs
        ]

    return outputs, push


def differentiate(
    outputs: Sequence[Any], inputs: Sequence[Any], cotangents: Sequence[Any]
) -> Sequence[Any]:
    """The cotangents of inputs, which can be differentiated again; ``None`` for zero."""
    if not outputs:
        return [None] * len(inputs)
    return torch.autograd.grad(outputs, inputs, cotangents, create_graph=True, allow_unused=True)


def tangent_of(output: Any, tangent: Any) -> Any:
    if not has_derivative(output):
        return None
    return torch.zeros_like(output) if tangent is None else tangent


# -------------------------------------------------------------------------------------------------
# Hints: advice for errors of models that are not written for PyTorch.

SIGNS = (  # in messages of PyTorch and NumPy about each other's arrays
    "Can't call numpy() on Tensor",
    "'numpy.ndarray' and 'Tensor'",
    "'Tensor' and 'numpy.ndarray'",
    "not Tensor",
    "not numpy.ndarray",
    "got numpy.ndarray",
    "got (numpy.ndarray",
)

HINT = (
    "all array arguments of a model of backend 'torch' are tensors: use torch's functions instead "
    "of NumPy's, and torch.as_tensor for the model's own arrays; .detach() and .numpy() would lose "
    "the derivative"
)


def hint(error: Exception, stage: str) -> str | None:
    """The hint for an error about tensors among NumPy arrays."""
    return HINT if any(sign in str(error) for sign in SIGNS) else None


# -------------------------------------------------------------------------------------------------
# Unboxing: numbers without derivative within a PyTorch model.


def stop_gradient(leaf: Any) -> Any:
    """The number without its derivative."""
    return leaf.detach() if isinstance(leaf, torch.Tensor) else leaf


def value(leaf: Any) -> Any:
    """A copy of the plain array in a tensor, out of all nested derivatives."""
    if not isinstance(leaf, torch.Tensor):
        return leaf
    plain = torch.func.debug_unwrap(leaf, recurse=True)
    dtype = str(leaf.dtype).removeprefix("torch.")
    return np.array(plain.tolist(), dtype)[()]  # nested tensors show no memory


# ----------------------------------------------------------------------------- the pytorch backend

dumps, loads = Pickles().dumps, pickle.loads  # PyTorch's own functions are sent by name

finds_writes = True  # tensors count the writes into the memory that they share with arrays
