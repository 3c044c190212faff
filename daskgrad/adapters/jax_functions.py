"""as_jax: a function that is differentiated here, as a part of a JAX program."""

from collections.abc import Callable
from typing import Any

import numpy as np

from daskgrad.adapters.contexts import gradients_of, in_this_context
from daskgrad.derivatives.evaluation import compute_value
from daskgrad.derivatives.inputs import require_differentiable
from daskgrad.derivatives.outputs import as_number
from daskgrad.values.cotangents import is_differentiable
from daskgrad.values.extras import imported
from daskgrad.values.trees import flatten


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
    A function of JAX's arrays, or pytrees of them, which are NumPy's to ``fun``. Its value has the
    dtype that the floating ones have together, and so single precision unless ``jax_enable_x64`` is
    set. ``jax.vmap`` calls it for each entry, one after another. JAX can differentiate it in
    reverse mode, once: else it raises an error.

    JAX calls back from threads of its own; the client is the one that is active where ``as_jax`` is
    called. Errors of models reach the caller as JAX's runtime error, with their message.
    """
    name = require_differentiable(fun, 0, "adapters.as_jax")
    jax = imported("jax", "jax", "jax.numpy's arrays are JAX's")
    evaluate = gradients_of(fun)
    value_of = in_this_context(lambda args: compute_value(as_number(fun(*args), name)))

    def is_float(leaf: Any) -> bool:
        return jax.numpy.issubdtype(leaf.dtype, jax.numpy.inexact)

    def differentiable(args: Any) -> list[int]:
        numbers = [n for n, arg in enumerate(args) if any(map(is_float, jax.tree.leaves(arg)))]
        if not numbers:
            raise TypeError(f"{name!r} was called on no floating-point number")
        return numbers

    def number_of(args: Any) -> Any:
        """What is known of the value before anything runs."""
        dtype = jax.numpy.result_type(*filter(is_float, jax.tree.leaves(args)))
        return jax.ShapeDtypeStruct((), dtype)

    def call_back(host: Callable, shapes: Any, args: Any) -> Any:
        return jax.pure_callback(host, shapes, args, vmap_method="sequential")

    @jax.custom_vjp
    def called(*args: Any) -> Any:
        args = jax.tree.map(jax.numpy.asarray, args)
        differentiable(args)
        number = number_of(args)

        def host(args: Any) -> Any:
            return np.asarray(value_of(jax.tree.map(np.asarray, args)), number.dtype)

        return call_back(host, number, args)

    def forward(*args: Any) -> Any:
        args = jax.tree.map(jax.numpy.asarray, args)
        numbers, number = differentiable(args), number_of(args)
        floats = [
            jax.ShapeDtypeStruct(leaf.shape, leaf.dtype)
            for leaf in jax.tree.leaves(args)
            if is_float(leaf)
        ]

        def host(args: Any) -> Any:
            value, gradients = evaluate(numbers, jax.tree.map(np.asarray, args))
            leaves = [leaf for leaf in flatten(gradients)[0] if is_differentiable(leaf)]
            return np.asarray(value, number.dtype), list(map(np.asarray, leaves))

        value, gradients = call_back(host, (number, floats), args)
        return value, (gradients, args)

    def backward(residuals: Any, cotangent: Any) -> Any:
        gradients, args = residuals
        rest = iter(gradients)

        def pulled(leaf: Any) -> Any:
            if is_float(leaf):
                return (cotangent * next(rest)).astype(leaf.dtype)
            return np.zeros(leaf.shape, jax.dtypes.float0)

        return jax.tree.map(pulled, args)

    called.defvjp(forward, backward)
    return called
