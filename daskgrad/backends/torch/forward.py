"""Forward mode of a PyTorch model: the pullback of its pullback."""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from daskgrad.backends.torch.tensors import as_like, has_derivative, is_traced, tensor_of


def linearize(
    fun: Callable[..., Sequence[Any]], arrays: Sequence[Any]
) -> tuple[list[Any], Callable[[Sequence[Any]], list[Any]]]:
    """The outputs of ``fun``, and the map from the arrays' tangents to theirs; in tensors.

    ``fun`` runs once: a pullback is linear in its cotangent, and so its own pullback maps tangents.
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
            (each, as_like(tangent, primal))
            for each, tangent, primal in zip(pulled, tangents, primals, strict=True)
            if tangent is not None and is_traced(each)
        ]
        with torch.inference_mode(False), torch.enable_grad():
            pushed = differentiate([e for e, _ in moving], cotangents, [t for _, t in moving])
        rest = iter(pushed)
        return [tangent_of(each, next(rest) if is_traced(each) else None) for each in outputs]

    return outputs, push


def differentiate(
    outputs: Sequence[Any], inputs: Sequence[Any], cotangents: Sequence[Any]
) -> Sequence[Any]:
    """The cotangents of inputs, which can be differentiated themselves; ``None`` for none."""
    if not outputs:
        return [None] * len(inputs)
    return torch.autograd.grad(outputs, inputs, cotangents, create_graph=True, allow_unused=True)


def tangent_of(output: Any, tangent: Any) -> Any:
    if not has_derivative(output):
        return None
    return torch.zeros_like(output) if tangent is None else tangent
