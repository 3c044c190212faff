"""Curvature: gradient and Hessian of a function within a model, in operations that are traced."""

from collections.abc import Callable
from typing import Any

import autograd


def gradient_and_hessian(fun: Callable, x: Any) -> tuple[Any, Any]:
    """The gradient and the Hessian of a function of one vector that returns a number."""

    def gradient(x: Any) -> Any:
        return autograd.grad(fun)(x) + 0.0 * x  # autograd warns of a constant

    return gradient(x), autograd.jacobian(gradient)(x)
