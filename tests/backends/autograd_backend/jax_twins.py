"""JAX's functions on autograd's boxes, so that calls of the sweep can be made of them.

Their rules are JAX's pullback and pushforward, which are such functions, too: so derivatives are
JAX's in all orders. Complex arguments are two real ones each.
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
from jax_by_numpy import program


class Place(int):
    """The place of a traced array among the leaves of the arguments."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({int(self)})"


class Pair(Place):
    """The place of a real part, after which the imaginary part comes."""


def twin(fun: Callable) -> Callable:
    """A function of JAX's that takes traced arrays, in lists, too."""
    made: dict[str, Function] = {}

    @functools.wraps(fun, updated=())
    def call(*args: Any, **kwargs: Any) -> Any:
        leaves: list[Any] = []
        placed = take(args, leaves)
        key = repr((placed, kwargs))
        if key not in made:
            made[key] = Function(
                lambda *given: without_lists(fun, put(placed, given), kwargs), len(leaves)
            )
        return applied(made[key], *leaves)

    return call


def without_lists(fun: Callable, args: Sequence[Any], kwargs: dict) -> Any:
    """A call of JAX's; with arrays in the place of lists where it takes no lists."""
    try:
        return fun(*args, **kwargs)
    except TypeError as error:
        if "got <class 'list'>" not in str(error):
            raise
    arrays = [jax.numpy.asarray(arg) if isinstance(arg, list) else arg for arg in args]
    return fun(*arrays, **kwargs)


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


class Function:
    """A function of JAX's, and its pullback and pushforward, which are such functions, too."""

    def __init__(self, fun: Callable, count: int) -> None:
        self._fun = fun
        self._count = count
        self._programs: dict[tuple, Callable] = {}
        self._derived: dict[int, Function] = {}  # by the number of cotangents; 0: pushforward

    def __call__(self, *args: Any) -> Any:
        kind = tuple([(np.shape(arg), np.result_type(arg)) for arg in args])
        if kind not in self._programs:
            self._programs[kind] = program(self._fun, args)
        return outward(self._programs[kind](*args))

    def pullback(self, count: int) -> "Function":
        """Of the arguments and ``count`` cotangents, of the outputs that have derivatives."""

        def pull(*given: Any) -> Any:
            found, pullback = jax.vjp(self._smooth, *given[: self._count])
            pairs = zip(given[self._count :], found, strict=True)
            return pullback([g.astype(leaf.dtype) for g, leaf in pairs])

        return self._derived.setdefault(count, Function(pull, self._count + count))

    def pushforward(self) -> "Function":
        """Of the arguments and as many tangents."""

        def push(*given: Any) -> Any:
            return jax.jvp(self._smooth, given[: self._count], given[self._count :])[1]

        return self._derived.setdefault(0, Function(push, 2 * self._count))

    def _smooth(self, *args: Any) -> list[Any]:
        return [leaf for leaf in parts(self._fun(*args)) if leaf.dtype.kind in "fc"]


@primitive
def applied(fun: Function, *args: Any) -> Any:
    return fun(*args)


def adjoint(argnums: tuple, ans: Any, args: tuple, kwargs: dict) -> Callable[[Any], tuple]:
    places = places_of(ans)

    def pullback(g: Any) -> tuple:
        gs = parts(g)
        found = applied(args[0].pullback(len(places)), *args[1:], *[gs[n] for n in places])
        return tuple([found[argnum - 1] for argnum in argnums])

    return pullback


def tangent(argnums: tuple, tangents: Sequence, ans: Any, args: tuple, kwargs: dict) -> Any:
    given = dict(zip(argnums, tangents, strict=True))
    along = [np.zeros_like(plain(arg)) + given.get(n, 0.0) for n, arg in enumerate(args) if n]
    found = applied(args[0].pushforward(), *args[1:], *along)
    if not isinstance(plain(ans), list):
        return found[0]
    slopes = dict(zip(places_of(ans), parts(found), strict=True))
    return autograd_list([slopes.get(n, np.zeros(())) for n in range(len(parts(ans)))])


defvjp_argnums(applied, adjoint)
defjvp_argnums(applied, tangent)


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
