"""Reverse mode of a JAX model: the tape is JAX's own pullback, a pytree of residuals.

Everything runs in double precision where the arrays are, by JAX's thread-local switch: the
process's own setting is left alone.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax

from daskgrad.backends.jax.compiled import compiled_of
from daskgrad.backends.jax.outputs import Outputs, as_numpy
from daskgrad.backends.traced_call import Layout, TracedCall
from daskgrad.values.trees import flatten, unflatten


def run(fun: Callable, args: tuple, kwargs: dict) -> Any:
    """The value of a call, compiled if possible."""
    leaves, structure = flatten((args, kwargs))
    layout = Layout(leaves, structure, (None,) * len(leaves))
    with jax.enable_x64(True):
        compiled = compiled_of(fun, layout)
        if compiled is None:
            return plain(fun(*args, **kwargs))
        ends, others = compiled.value(layout)
        values = compiled.outputs.join(as_numpy(ends), as_numpy(others))
        return unflatten(compiled.structure, values)


def plain(value: Any) -> Any:
    leaves, structure = flatten(value)
    outputs = Outputs()
    ends, others = outputs.split(leaves)
    return unflatten(structure, outputs.join(as_numpy(ends), as_numpy(others)))


def trace(fun: Any, arrays: Sequence[Any]) -> tuple[list[Any], "Tape | GradientTape"]:
    """Runs ``fun`` once, compiled if possible (see ``backends.protocol``)."""
    with jax.enable_x64(True):
        if not isinstance(fun, TracedCall):
            return trace_anew(fun, arrays)
        layout = fun.layout()
        compiled = compiled_of(fun.fun, layout)
        if compiled is None:
            return trace_anew(fun, arrays)
        ends, pullback, others = compiled.forward(layout, arrays)
        fun.structure = compiled.structure
        values = compiled.outputs.join(as_numpy(ends), as_numpy(others))
    if compiled.outputs.is_real_scalar():
        gradient = as_numpy(compiled.of_reached(pullback))
        return values, GradientTape(gradient, compiled.outputs.likes())
    return values, Tape(pullback, compiled.pull, compiled.outputs, len(arrays))


def trace_anew(fun: Callable, arrays: Sequence[Any]) -> tuple[list[Any], "Tape"]:
    """Runs the Python code of ``fun``, operation by operation."""
    outputs = Outputs()

    def of_arrays(*boxes: Any) -> tuple[list[Any], list[Any]]:
        return outputs.split(fun(*boxes))

    ends, pullback, others = jax.vjp(of_arrays, *arrays, has_aux=True)
    values = outputs.join(as_numpy(ends), as_numpy(others))

    def pull(pullback: Any, cotangents: Sequence[Any]) -> tuple[Any, ...]:
        return pullback(outputs.dense(cotangents))

    return values, Tape(pullback, pull, outputs, len(arrays))


class Tape:
    """The residuals of one call: ``pull`` maps cotangents of the outputs to those of the arrays."""

    __slots__ = ("_count", "_is_end", "_pull", "_pullback")

    def __init__(self, pullback: Any, pull: Callable, outputs: Outputs, count: int):
        self._pullback = pullback
        self._pull = pull
        self._is_end = [like is not None for like in outputs.likes()]
        self._count = count

    def pull(self, cotangents: Sequence[Any]) -> list[Any]:
        """Maps a cotangent (or None) per output to one per array."""
        pairs = zip(cotangents, self._is_end, strict=True)
        arrived = [cotangent for cotangent, is_end in pairs if is_end]
        if all(cotangent is None for cotangent in arrived):
            return [None] * self._count
        with jax.enable_x64(True):
            return as_numpy(self._pull(self._pullback, arrived))

    def held_arrays(self) -> list[Any]:
        """The residuals, each once."""
        leaves = jax.tree_util.tree_leaves(self._pullback)
        return list({id(leaf): leaf for leaf in leaves if hasattr(leaf, "nbytes")}.values())


class GradientTape:
    """The gradient of one real number, computed with it, to be scaled by the cotangent."""

    __slots__ = ("_end", "_gradient")

    def __init__(self, gradient: list[Any], likes: Sequence[Any]):
        self._gradient = gradient
        (self._end,) = [number for number, like in enumerate(likes) if like is not None]

    def pull(self, cotangents: Sequence[Any]) -> list[Any]:
        """Maps a cotangent (or None) per output to one (or None) per array."""
        factor = cotangents[self._end]
        if factor is None:
            return [None] * len(self._gradient)
        return [None if g is None else g.dtype.type(factor) * g for g in self._gradient]

    def held_arrays(self) -> list[Any]:
        return [g for g in self._gradient if g is not None]
