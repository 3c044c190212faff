"""as_jax: a function that is differentiated here, as a part of a JAX program."""

from collections.abc import Callable
from typing import Any

import numpy as np

from daskgrad.adapters import gradients_of, value_of
from daskgrad.autodiff.values.cotangents import is_differentiable
from daskgrad.autodiff.values.descriptions import imported
from daskgrad.autodiff.values.trees import flatten
from daskgrad.derivatives.inputs import require_differentiable


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
        A function of JAX's arrays, or pytrees of them; ``fun`` gets NumPy's arrays. The value has
        the common dtype of the floating arrays (if it is complex, of their parts), and so single
        precision unless ``jax_enable_x64`` is set. ``jax.vmap`` calls it for each entry, one after
        another. JAX can differentiate it once, in reverse mode; anything else is an error.

        JAX calls back from threads of its own; the client is the one that is active where
        ``as_jax`` is called. An error of a model reaches the caller as JAX's runtime error, with
        its message.
    """
    name = require_differentiable(fun, 0, "adapters.as_jax")
    jax = imported("jax", "jax", "jax.numpy's arrays are JAX's")
    evaluate, evaluate_value = gradients_of(fun), value_of(fun, name)

    def is_float(leaf: Any) -> bool:
        return jax.numpy.issubdtype(leaf.dtype, jax.numpy.inexact)

    def floats_in(args: Any) -> list[Any]:
        floats = list(filter(is_float, jax.tree.leaves(args)))
        if not floats:
            raise TypeError(f"{name!r} was called on no floating-point number")
        return floats

    def number_like(args: Any) -> Any:
        """The shape and dtype of the value."""
        common = jax.numpy.result_type(*floats_in(args))
        return jax.ShapeDtypeStruct((), jax.numpy.finfo(common).dtype)

    def call_back(host: Callable, like: Any, args: Any) -> Any:
        """Lets JAX call a function of NumPy's arrays; its results are ``like`` these."""

        def call(args: Any) -> Any:
            return host(jax.tree.map(np.asarray, args))

        return jax.pure_callback(call, like, args, vmap_method="sequential")

    @jax.custom_vjp
    def called(*args: Any) -> Any:
        arrays = jax.tree.map(jax.numpy.asarray, args)
        number = number_like(arrays)
        return call_back(
            lambda args: np.asarray(evaluate_value(args), number.dtype), number, arrays
        )

    def forward(*args: Any) -> Any:
        arrays = jax.tree.map(jax.numpy.asarray, args)
        number = number_like(arrays)
        numbers = [n for n, arg in enumerate(arrays) if any(map(is_float, jax.tree.leaves(arg)))]
        like = [jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for leaf in floats_in(arrays)]

        def host(args: Any) -> Any:
            value, gradients = evaluate(numbers, args)
            leaves = [leaf for leaf in flatten(gradients)[0] if is_differentiable(leaf)]
            return np.asarray(value, number.dtype), list(map(np.asarray, leaves))

        value, gradients = call_back(host, (number, like), arrays)
        return value, (gradients, arrays)

    def backward(residuals: Any, cotangent: Any) -> Any:
        gradients, args = residuals
        remaining = iter(gradients)

        def pulled(leaf: Any) -> Any:
            if is_float(leaf):
                return (cotangent * next(remaining)).astype(leaf.dtype)
            return np.zeros(leaf.shape, jax.dtypes.float0)

        return jax.tree.map(pulled, args)

    called.defvjp(forward, backward)
    return called
