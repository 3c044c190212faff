"""JAX's functions as primitives of autograd's, so that calls of the sweep can be made of them.

The derivatives of such a primitive are contractions of JAX's Jacobian, which is one, too: so they
are JAX's in all orders. Complex arguments are two real ones each.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import autograd.numpy as anp
import jax
import numpy as np
from autograd.builtins import list as autograd_list
from autograd.core import defjvp_argnums, defvjp_argnums
from autograd.tracer import isbox, primitive


class Place(int):
    """The place of a traced array among the leaves of the arguments."""


class Pair(int):
    """The place of a real part, after which the imaginary part comes."""


def twin(fun: Callable) -> Callable:
    """A function of JAX's that takes traced arrays, in lists, too; it is compiled once."""
    made: dict[str, Callable] = {}

    @functools.wraps(fun, updated=())
    def call(*args: Any, **kwargs: Any) -> Any:
        leaves: list[Any] = []
        placed = take(args, leaves)
        key = repr((placed, kwargs))
        if key not in made:

            def of_leaves(*given: Any) -> Any:
                return fun(*put(placed, given), **kwargs)

            made[key] = recorded(of_leaves, of_leaves)
        return made[key](*leaves)

    return call


def take(arg: Any, leaves: list[Any]) -> Any:
    """The argument with places instead of traced arrays, which go to the leaves."""
    if isinstance(arg, list | tuple):
        return type(arg)([take(each, leaves) for each in arg])
    if not isbox(arg):
        return arg
    place = len(leaves)
    leaves += [anp.real(arg), anp.imag(arg)] if anp.iscomplexobj(arg) else [arg]
    return (Pair if anp.iscomplexobj(arg) else Place)(place)


def put(arg: Any, leaves: Sequence[Any]) -> Any:
    if isinstance(arg, list | tuple):
        return type(arg)([put(each, leaves) for each in arg])
    if isinstance(arg, Pair):
        return leaves[arg] + 1j * leaves[arg + 1]
    return leaves[arg] if isinstance(arg, Place) else arg


def recorded(fun: Callable, compiled: Callable) -> Callable:
    """A primitive of real arrays with JAX's derivatives."""

    def smooth(*args: Any) -> list[Any]:
        return [leaf for leaf in parts(fun(*args)) if leaf.dtype.kind in "fc"]

    def slopes(*args: Any) -> list[Any]:
        """The Jacobians of the outputs, one after the other, by all arguments."""
        found = jax.jacfwd(smooth, tuple(range(len(args))))(*args)
        return [jacobian for of_output in found for jacobian in of_output]

    @functools.cache
    def jacobians() -> Callable:
        return recorded(slopes, jax.jit(slopes))

    def adjoint(argnums: tuple, ans: Any, args: tuple, kwargs: dict) -> Callable[[Any], tuple]:
        places = places_of(ans)

        def pullback(g: Any) -> tuple:
            rows, gs = jacobians()(*args), parts(g)
            return tuple([sum(pulled(rows, gs, argnum)) for argnum in argnums])

        def pulled(rows: Any, gs: Sequence[Any], argnum: int) -> list[Any]:
            return [
                anp.real(anp.tensordot(gs[n], rows[m * len(args) + argnum], np.ndim(plain(gs[n]))))
                for m, n in enumerate(places)
            ]

        return pullback

    def tangent(argnums: tuple, tangents: Sequence, ans: Any, args: tuple, kwargs: dict) -> Any:
        rows = jacobians()(*args)
        pairs = list(zip(argnums, tangents, strict=True))
        pushed: list[Any] = [np.zeros(()) for _ in parts(ans)]
        for m, n in enumerate(places_of(ans)):
            each = [anp.tensordot(rows[m * len(args) + k], t, np.ndim(plain(t))) for k, t in pairs]
            pushed[n] = sum(each)
        return autograd_list(pushed) if isinstance(plain(ans), list) else pushed[0]

    known: dict[bytes, Any] = {}

    def run(args: tuple) -> Any:
        try:
            return compiled(*args)
        except (jax.errors.JAXTypeError, jax.errors.JAXIndexError):  # values decide on shapes
            return fun(*args)

    @primitive
    def call(*args: Any) -> Any:
        key = b"".join([np.asarray(arg).tobytes() for arg in args])
        if key not in known:
            known[key] = outward(run(args))
        return known[key]

    defvjp_argnums(call, adjoint)
    defjvp_argnums(call, tangent)
    return call


def outward(found: Any) -> Any:
    if isinstance(found, list | tuple):
        return [np.asarray(leaf) for leaf in found]
    return np.asarray(found)[()]


def plain(value: Any) -> Any:
    while isbox(value):
        value = value._value
    return value


def parts(value: Any) -> list[Any]:
    """The arrays of a value that may be a list, or a box with one."""
    if isinstance(plain(value), list | tuple):
        return [value[n] for n in range(len(plain(value)))]
    return [value]


def places_of(ans: Any) -> list[int]:
    """Those of the outputs that have derivatives."""
    return [n for n, leaf in enumerate(parts(ans)) if np.asarray(plain(leaf)).dtype.kind in "fc"]
