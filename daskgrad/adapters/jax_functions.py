"""as_jax: a function that is differentiated here, as a part of a JAX program."""

from collections.abc import Callable
from typing import Any

import numpy as np

from daskgrad.adapters.contexts import gradients_of, in_this_context
from daskgrad.autodiff.values.cotangents import is_differentiable
from daskgrad.autodiff.values.descriptions import imported
from daskgrad.autodiff.values.trees import flatten
from daskgrad.derivatives.evaluation import compute_value
from daskgrad.derivatives.inputs import as_number, require_differentiable


def as_jax(fun: Callable) -> Callable:
    """A function of JAX arrays, whose gradient JAX asks daskgrad for, also under ``jax.jit``.

    ::

        energy = dg.adapters.as_jax(lambda x: dg.map_sum(model, shards, x))
        value, gradient = jax.jit(jax.value_and_grad(lambda x: energy(x) + penalty(x)))(x)

    Parameters
    ----------
    fun:
        as for ``value_and_grad``; its arguments are pytrees of dicts, lists, tuples and arrays.

    Returns
    -------
    function
        A function of JAX's arrays, or pytrees of them, which are NumPy's to ``fun``. Its value has
        the dtype that the floating ones have together (of complex ones that of their parts), and so
        single precision unless ``jax_enable_x64`` is set. ``jax.vmap`` calls it for each entry, one
        after another. JAX can differentiate it in reverse mode, once: else it raises an error.

        JAX calls back from threads of its own; the client is the one that is active where
        ``as_jax`` is called. Errors of models reach the caller as JAX's runtime error, with their
        message.
    """
    name = require_differentiable(fun, 0, "adapters.as_jax")
    jax = imported("jax", "jax", "jax.numpy's arrays are JAX's")
    calls = HostCalls(fun, name, jax)

    @jax.custom_vjp
    def called(*args: Any) -> Any:
        return calls.value(jax.tree.map(jax.numpy.asarray, args))

    def forward(*args: Any) -> Any:
        arrays = jax.tree.map(jax.numpy.asarray, args)
        value, gradients = calls.both(arrays)
        return value, (gradients, arrays)

    def backward(residuals: Any, cotangent: Any) -> Any:
        gradients, args = residuals
        rest = iter(gradients)

        def pulled(leaf: Any) -> Any:
            if calls.is_float(leaf):
                return (cotangent * next(rest)).astype(leaf.dtype)
            return np.zeros(leaf.shape, jax.dtypes.float0)

        return jax.tree.map(pulled, args)

    called.defvjp(forward, backward)
    return called


class HostCalls:
    """What JAX calls back, and what it knows of the results before: shapes and dtypes."""

    def __init__(self, fun: Callable, name: str, jax: Any):
        self._name = name
        self._jax = jax
        self._evaluate = gradients_of(fun)
        self._value_of = in_this_context(lambda args: compute_value(as_number(fun(*args), name)))

    def value(self, args: Any) -> Any:
        """The value alone."""
        self._numbers(args)
        number = self._number(args)

        def host(args: Any) -> Any:
            return np.asarray(self._value_of(self._as_numpy(args)), number.dtype)

        return self._call_back(host, number, args)

    def both(self, args: Any) -> Any:
        """The value, and the gradients of the floating leaves in their order."""
        jax, numbers, number = self._jax, self._numbers(args), self._number(args)
        floats = filter(self.is_float, jax.tree.leaves(args))
        like = [jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for leaf in floats]

        def host(args: Any) -> Any:
            value, gradients = self._evaluate(numbers, self._as_numpy(args))
            leaves = [leaf for leaf in flatten(gradients)[0] if is_differentiable(leaf)]
            return np.asarray(value, number.dtype), list(map(np.asarray, leaves))

        return self._call_back(host, (number, like), args)

    def is_float(self, leaf: Any) -> bool:
        return self._jax.numpy.issubdtype(leaf.dtype, self._jax.numpy.inexact)

    def _numbers(self, args: Any) -> list[int]:
        """The numbers of the arguments that have floating leaves."""
        leaves = self._jax.tree.leaves
        numbers = [n for n, arg in enumerate(args) if any(map(self.is_float, leaves(arg)))]
        if not numbers:
            raise TypeError(f"{self._name!r} was called on no floating-point number")
        return numbers

    def _number(self, args: Any) -> Any:
        floats = filter(self.is_float, self._jax.tree.leaves(args))
        common = self._jax.numpy.result_type(*floats)
        return self._jax.ShapeDtypeStruct((), self._jax.numpy.finfo(common).dtype)

    def _as_numpy(self, args: Any) -> Any:
        return self._jax.tree.map(np.asarray, args)

    def _call_back(self, host: Callable, like: Any, args: Any) -> Any:
        return self._jax.pure_callback(host, like, args, vmap_method="sequential")
