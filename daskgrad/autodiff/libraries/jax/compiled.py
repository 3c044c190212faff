"""Compiled: models compiled once for each kind of call.

JAX runs a function's Python code only when it compiles it. All parts of a call and its result that
are not arrays are kept with the program. So a program belongs to one kind of call: one function,
the structure of the arguments, the leaves that are not arrays, and the arrays' shapes and dtypes. A
function is known by its bytes, as objects that it refers to may have changed, and as a worker loads
it again with every evaluation.
"""

import contextlib
import functools
import itertools
import logging
import threading
from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optree
from jax.extend.core import jaxpr_as_fun

from daskgrad.autodiff.libraries.jax.arrays import JaxOutputs, dumps, reached
from daskgrad.autodiff.tape.traced_call import FlatArguments, is_numeric
from daskgrad.autodiff.values.carriers import drop_oldest
from daskgrad.autodiff.values.pickling import digest
from daskgrad.autodiff.values.trees import exactly, flatten, substitute, unflatten

logger = logging.getLogger("daskgrad")

MOST_KEPT = 4096  # programs: a sum may have as many shapes

STATIC = frozenset({bool, int, str, bytes, type(None)})
WEAK = frozenset({float, complex})  # traced: another number is the same kind of call


class Prepared:
    """A model's function and the digest of its bytes; ``None`` if it cannot be pickled."""

    __slots__ = ("digest", "fun")

    def __init__(self, fun: Callable):
        self.fun = fun
        self.digest: bytes | None = getattr(fun, "daskgrad_digest", None)  # from another process
        if self.digest is None:
            with contextlib.suppress(Exception):  # then it is traced at each call
                self.digest = digest(dumps(fun))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.fun(*args, **kwargs)


def prepare(fun: Callable) -> Prepared:
    return fun if isinstance(fun, Prepared) else Prepared(fun)


class CallKind(NamedTuple):
    """The key of a program: all about a call but the entries of its arrays."""

    structure: optree.PyTreeSpec
    exactly: bytes
    places: tuple[int | None, ...]
    leaves: tuple[Hashable, ...]


def kind_of(layout: FlatArguments) -> CallKind | None:
    """The kind of a call; ``None`` if an argument is neither an array nor a plain constant."""
    structure = exactly(layout.structure)
    if structure is None:
        logger.info("not compiled by JAX: the structure of its arguments cannot be pickled")
        return None
    leaves = [leaf_kind(leaf) for leaf in layout.leaves]
    if None in leaves:
        cls = type(layout.leaves[leaves.index(None)])
        logger.info("not compiled by JAX: an argument is %s", cls.__name__)
        return None
    return CallKind(layout.structure, structure, tuple(layout.places), tuple(leaves))


def leaf_kind(leaf: Any) -> Hashable:
    """All about a leaf but the entries of an array; ``None`` unless it is a plain constant."""
    cls = type(leaf)
    if is_numeric(leaf):
        return leaf.shape, leaf.dtype
    if isinstance(leaf, jax.Array):
        return jax.Array, leaf.shape, leaf.dtype, leaf.weak_type
    if cls in WEAK:
        return (cls,)
    return (cls, leaf) if cls in STATIC else None


def is_traced(leaf: Any) -> bool:
    return type(leaf) in WEAK or is_numeric(leaf) or isinstance(leaf, jax.Array)


class JitProgram:
    """One function, compiled for one kind of call: its value, its forward pass and its pullback.

    If several threads call it first, JAX compiles it in one of them.
    """

    def __init__(self, fun: Callable, layout: FlatArguments):
        statics = [None if is_traced(leaf) else leaf for leaf in layout.leaves]
        self._fun = fun
        self._layout = FlatArguments(statics, layout.structure, layout.places)
        self._is_constant = [
            place is None and is_traced(leaf)
            for leaf, place in zip(layout.leaves, layout.places, strict=True)
        ]
        self.outputs = JaxOutputs()
        self.structure: Any = None
        self.reached: list[bool] = []  # for each array, whether an output depends on it
        self.loops: dict[Any, Any] = {}  # over items, by which leaves are theirs
        self.lock = threading.RLock()  # held while a loop is made
        self._value = jax.jit(functools.partial(self._call, ()))
        self._forward = jax.jit(self._traced_forward)
        self._pull = jax.jit(self.outputs.pull)

    def value(self, layout: FlatArguments) -> tuple[list[Any], list[Any]]:
        return self._value(self.constants(layout.leaves))

    def forward(
        self, layout: FlatArguments, arrays: Sequence[Any]
    ) -> tuple[list[Any], Any, list[Any]]:
        """The outputs with derivative, the pullback, the other outputs. The pullback of one real
        number is its gradient: XLA fuses both passes."""
        return self._forward(list(arrays), self.constants(layout.leaves))

    def pull(self, pullback: Any, cotangents: Sequence[Any]) -> list[Any]:
        return self.of_reached(self._pull(pullback, list(cotangents)))

    def of_reached(self, pulled: Sequence[Any]) -> list[Any]:
        """The cotangents of the arrays; ``None`` for arrays that no output depends on."""
        pairs = zip(pulled, self.reached, strict=True)
        return [cotangent if is_reached else None for cotangent, is_reached in pairs]

    def constants(self, leaves: Sequence[Any]) -> list[Any]:
        """Selects the entries of leaves that are traced and not differentiated."""
        return list(itertools.compress(leaves, self._is_constant))

    def trace(self, arrays: Sequence[Any], constants: Sequence[Any]) -> Any:
        """The operations of a call; runs the Python code of the function."""
        traced = jax.make_jaxpr(self._call)(list(arrays), list(constants))
        self.reached = reached(traced.jaxpr, len(arrays), len(self.outputs.places()))
        return traced

    def _traced_forward(self, arrays: list[Any], constants: list[Any]) -> tuple:
        return self.both_passes(self.trace(arrays, constants), arrays, constants)

    def both_passes(self, traced: Any, arrays: Sequence[Any], constants: Sequence[Any]) -> tuple:
        """As ``forward``, by traced operations."""
        ends = len(self.outputs.places())

        def of_arrays(*boxes: Any) -> tuple[list[Any], list[Any]]:
            results = jaxpr_as_fun(traced)(*boxes, *constants)
            return results[:ends], results[ends:]

        values, pullback, others = jax.vjp(of_arrays, *arrays, has_aux=True)
        if self.outputs.is_real_scalar():
            return values, pullback([jnp.ones_like(values[0])]), others
        return values, pullback, others

    def _call(self, boxes: Sequence[Any], constants: Sequence[Any]) -> tuple[list, list]:
        places = self.constants(range(len(self._layout.leaves)))
        layout = self._layout._replace(leaves=substitute(self._layout.leaves, places, constants))
        args, kwargs = unflatten(layout.structure, layout.fill(boxes, lambda leaf: leaf))
        outputs, self.structure = flatten(self._fun(*args, **kwargs))
        return self.outputs.split(outputs)


# ------------------------------------------------------------------------------------- the cache

_programs: dict[tuple[bytes, CallKind], JitProgram] = {}
_lock = threading.Lock()


def program_of(fun: Callable, layout: FlatArguments) -> JitProgram | None:
    """The program of a kind of call, or ``None`` if the kind cannot be determined."""
    function = prepare(fun)
    if function.digest is None:
        return None
    kind = kind_of(layout)
    if kind is None:
        return None
    with _lock:
        program = _programs.pop((function.digest, kind), None) or JitProgram(function.fun, layout)
        _programs[function.digest, kind] = program  # as the latest
        drop_oldest(_programs, MOST_KEPT)
    return program
