"""as_pytensor: a function that is differentiated here, as a term of a PyTensor or PyMC model."""

from collections.abc import Callable
from typing import Any

import numpy as np

from daskgrad.adapters import gradients_of
from daskgrad.autodiff.values.descriptions import imported
from daskgrad.derivatives.inputs import require_differentiable


def as_pytensor(fun: Callable) -> Callable:
    """A function of PyTensor's variables, whose gradient PyTensor asks daskgrad for.

    ::

        likelihood = dg.adapters.as_pytensor(lambda mu, tau: dg.map_sum(model, shards, mu, tau))
        with pymc.Model():
            mu, tau = pymc.Normal("mu"), pymc.HalfNormal("tau")
            pymc.Potential("likelihood", likelihood(mu, tau))

    Parameters
    ----------
    fun:
        as for ``value_and_grad``; each argument is an array or a number.

    Returns
    -------
    function
        A function of as many tensor variables, which returns a scalar variable. Value and gradient
        come from one forward pass, always together: samplers need both. To differentiate the
        gradient is an error.

        It may be called from any thread, and uses the client that is active where ``as_pytensor``
        is called; so does ``fun``, which is not sent to other processes.
    """
    name = require_differentiable(fun, 0, "adapters.as_pytensor")
    imported("pytensor", "pymc", "its variables are PyTensor's")
    return make_op(name, gradients_of(fun))


def make_op(name: str, evaluate: Callable) -> Callable:
    """PyTensor's operation of that name; ``evaluate`` is a result of ``gradients_of``."""
    from pytensor import tensor
    from pytensor.gradient import DisconnectedType, disconnected_type
    from pytensor.graph.basic import Apply
    from pytensor.graph.op import Op

    class Differentiated(Op):
        """The value, and the gradients of the floating-point inputs."""

        default_output = 0

        def make_node(self, *inputs: Any) -> Any:
            variables = list(map(tensor.as_tensor_variable, inputs))
            floats = [variable.type() for variable in variables if is_float(variable)]
            if not floats:
                raise TypeError(f"{name!r} was called on no floating-point number")
            return Apply(self, variables, [tensor.scalar(dtype="float64"), *floats])

        def perform(self, node: Any, inputs: Any, outputs: Any) -> None:
            numbers = [n for n, variable in enumerate(node.inputs) if is_float(variable)]
            value, gradients = evaluate(numbers, inputs)
            results = zip(outputs, (value, *gradients), node.outputs, strict=True)
            for storage, result, variable in results:
                storage[0] = np.asarray(result, variable.dtype)

        def L_op(self, inputs: Any, outputs: Any, cotangents: Any) -> Any:
            first, *others = cotangents
            if not all(isinstance(other.type, DisconnectedType) for other in others):
                raise NotImplementedError(f"the gradient of {name!r} cannot be differentiated")
            gradients = iter(outputs[1:])
            return [
                first * next(gradients) if is_float(variable) else disconnected_type()
                for variable in inputs
            ]

        def connection_pattern(self, node: Any) -> Any:
            return [[is_float(variable)] * len(node.outputs) for variable in node.inputs]

        def infer_shape(self, fgraph: Any, node: Any, shapes: Any) -> Any:
            pairs = zip(node.inputs, shapes, strict=True)
            return [(), *[shape for variable, shape in pairs if is_float(variable)]]

    Differentiated.__name__ = Differentiated.__qualname__ = name
    return Differentiated()


def is_float(variable: Any) -> bool:
    """Whether a PyTensor variable is differentiated."""
    return bool(variable.dtype.startswith("float"))
