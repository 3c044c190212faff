"""as_torch: a function that is differentiated here, as a part of a PyTorch program."""

from collections.abc import Callable
from typing import Any

import numpy as np

from daskgrad.adapters import gradients_of, value_of
from daskgrad.autodiff.values.descriptions import imported
from daskgrad.derivatives.inputs import require_differentiable


def as_torch(fun: Callable) -> Callable:
    """A function of tensors, whose derivative PyTorch asks daskgrad for.

    ::

        energy = dg.adapters.as_torch(lambda x, y: dg.map_sum(model, shards, x, y))
        loss = energy(layer(batch), weights) + penalty
        loss.backward()

    Parameters
    ----------
    fun:
        as for ``value_and_grad``; each argument is an array.

    Returns
    -------
    function
        A function of as many tensors, on any device; ``fun`` gets NumPy arrays. The value is a
        tensor without axes, on the device of the first tensor, with the common dtype of the
        floating tensors (if it is complex, of their parts). Value and gradient are of one forward
        pass; if no tensor requires a gradient, the value alone is computed. To differentiate twice
        is an error.

        It may be called from any thread, and uses the client that is active where ``as_torch`` is
        called. Errors of models are raised as they are.
    """
    name = require_differentiable(fun, 0, "adapters.as_torch")
    torch = imported("torch", "torch", "tensors are PyTorch's")
    evaluate, evaluate_value = gradients_of(fun), value_of(fun, name)
    once = once_differentiated(name, torch)

    class Called(torch.autograd.Function):  # type: ignore[name-defined]
        @staticmethod
        def forward(context: Any, *tensors: Any) -> Any:
            numbers = [n for n, needs in enumerate(context.needs_input_grad) if needs]
            args = [tensor.numpy(force=True) for tensor in tensors]
            value, gradients = evaluate(numbers, args) if numbers else (evaluate_value(args), ())
            context.save_for_backward(*tensors)
            context.gradients = {
                n: torch.as_tensor(gradient, device=tensors[n].device).conj()  # as is PyTorch's
                for n, gradient in zip(numbers, gradients, strict=True)
            }
            dtypes = [arg.dtype for arg in args if arg.dtype.kind in "fc"] or [float]
            number = np.asarray(value, np.finfo(np.result_type(*dtypes)).dtype)
            return torch.tensor(number[()], device=tensors[0].device)

        @staticmethod
        def backward(context: Any, cotangent: Any) -> Any:
            pulled = [None] * len(context.needs_input_grad)
            for n, gradient in context.gradients.items():
                if torch.is_grad_enabled():  # the gradient is a part of a program, too
                    gradient = once(gradient, *context.saved_tensors)
                pulled[n] = cotangent.to(gradient.device) * gradient
            return tuple(pulled)

    def called(*tensors: Any) -> Any:
        arguments = list(map(torch.as_tensor, tensors))
        if not torch.is_grad_enabled():
            arguments = [tensor.detach() for tensor in arguments]
        return Called.apply(*arguments)

    called.__name__ = name
    return called


def once_differentiated(name: str, torch: Any) -> Callable:
    """A function that returns its first argument, a gradient, and takes the tensors that this
    depends on: PyTorch, if it knew nothing of them, would take second derivatives for zero."""

    class Once(torch.autograd.Function):
        @staticmethod
        def forward(context: Any, gradient: Any, *tensors: Any) -> Any:
            return gradient.view_as(gradient)

        @staticmethod
        def backward(context: Any, cotangent: Any) -> Any:
            raise RuntimeError(f"PyTorch cannot differentiate {name!r} twice; dg.hvp can")

    return Once.apply
