"""The backend of compiled models: autograd's, with programs in place of tapes.

Programs are kept with the model's function. Each task unpickles a sent model anew: its programs are
kept by the digest of its pickle. Programs of a function that is defined anew for each evaluation,
and refers to constants alone, are kept by its code and these constants.
"""

import types
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from daskgrad.autodiff import tape
from daskgrad.autodiff.programs.blocks import trace_block
from daskgrad.autodiff.programs.store import Programs
from daskgrad.autodiff.programs.watch import MODELS, SMALL, content_of, is_rule
from daskgrad.autodiff.tape.traced_call import FlatArguments, TracedCall
from daskgrad.autodiff.values.carriers import kept_or_made
from daskgrad.autodiff.values.trees import flatten, unflatten

MOST_MODELS = 1024
MOST_PARTS = 256  # of one

_sent: dict[Any, Programs] = {}
_defined: dict[Any, tuple[list, Programs]] = {}  # with all that the key names by identity
_here: dict[Any, tuple[list, list, Programs]] = {}  # by identity: equal objects may differ


@dataclass(slots=True, eq=False, repr=False)
class CompiledModel:
    """A model's function, and its programs in this process."""

    fun: Callable
    programs: Programs

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.fun(*args, **kwargs)


def prepare(
    fun: Any, is_vouched: bool = True, kind: Callable[[bool], Programs] = Programs
) -> CompiledModel:
    """The function of a model with its programs, some of them from earlier calls."""
    if type(fun) is CompiledModel:
        return fun

    make = partial(kind, is_vouched)
    digest = getattr(fun, "daskgrad_digest", None)
    if digest is not None:
        return CompiledModel(
            fun.load(), kept_or_made(_sent, (digest, is_vouched), make, MOST_MODELS)
        )
    pushed: tuple = getattr(fun, "daskgrad_pushed", (fun,))
    base, *options = *pushed, is_vouched
    if is_rule(base):  # a program would be one call of it, and keep it alive
        return CompiledModel(fun, make())
    maker = Key()
    key = maker.of(base), *options
    if not maker.owners:
        made = kept_or_made(_defined, key, lambda: (maker.held, make()), MOST_MODELS)
        return CompiledModel(fun, made[1])
    for owners, names in ((maker.owners, key), ([base], (id(base), *options))):
        with suppress(TypeError):  # there are no weak references to something that it refers to
            known = _here.get(names)
            if known is None:
                refs = [weakref.ref(owner, partial(forget, names)) for owner in owners]
                known = _here.setdefault(names, (maker.held, refs, make()))
            return CompiledModel(fun, known[2])
    return CompiledModel(fun, make())


def forget(names: tuple, _: Any) -> None:
    """Drops programs of a function after an object of this process that is gone."""
    _here.pop(names, None)


class Key:
    """Makes keys that are equal for equal content: constants, and functions of one code, methods
    and partials that refer to constants.

    ``held``: things that a key names by identity; ``owners``: objects that it names so, and does
    not keep alive.
    """

    def __init__(self) -> None:
        self.held: list[Any] = []
        self.owners: list[Any] = []
        self._left = MOST_PARTS
        self._open: set[int] = set()  # functions that are read now: they may refer to themselves

    def of(self, value: Any) -> tuple:
        kind = type(value)
        if kind in (bool, int, str, bytes, type(None)):
            return kind, value
        if kind in (float, complex):
            return kind, repr(value)  # 0.0 and -0.0 are equal
        if isinstance(value, np.generic | np.ndarray) and kind in (np.ndarray, value.dtype.type):
            if value.nbytes <= SMALL and not value.dtype.hasobject:  # hours and minutes differ in
                return kind, value.shape, value.strides, value.dtype, value.tobytes()  # dtype alone
        if isinstance(value, types.ModuleType | np.ufunc | types.BuiltinFunctionType):
            self.held.append(value)
            return kind, id(value)
        name, parts = self._parts(value)
        self._left -= 1
        if parts is None or self._left < len(parts) or id(value) in self._open:
            self.owners.append(value)
            return kind, id(value)
        if not parts:  # nearly always
            return name
        self._open.add(id(value))
        key = (*name, *map(self.of, parts))
        self._open.discard(id(value))
        return key

    def _parts(self, value: Any) -> tuple[tuple, Sequence[Any] | None]:
        """The name and the parts of a thing; no parts if it has others, too."""
        kind = type(value)
        if kind is types.FunctionType and not vars(value):
            self.held += (value.__code__, value.__globals__)
            defaults = value.__defaults__, value.__kwdefaults__
            name = id(value.__code__), id(value.__globals__)
            if not value.__closure__ and defaults == (None, None):
                return name, ()
            return name, (*defaults, *map(content_of, value.__closure__ or ()))
        if kind is types.MethodType:
            return (kind,), (value.__func__, value.__self__)
        if kind is partial:
            return (kind,), (value.func, value.args, value.keywords)
        if kind is dict:
            return (kind, len(value)), (*value, *value.values())
        if kind in MODELS:
            return (kind,), MODELS[kind](value)
        return (kind, 0), value if kind in (tuple, list) else None


def trace(fun: Any, arrays: Sequence[Any]) -> tuple[list[Any], Any]:
    """The value of a call, and its tape (see ``autodiff.libraries.registry``)."""
    if type(fun) is TracedCall and type(fun.fun) is CompiledModel:
        return fun.fun.programs.trace(fun.fun.fun, fun, arrays)
    return tape.trace(fun, arrays)


class ValueCall(TracedCall):
    """A call for its value: none of its arguments is traced."""

    __slots__ = ("_args", "_kwargs")

    def __init__(self, fun: Callable, args: tuple, kwargs: dict):
        self.fun, self._args, self._kwargs = fun, args, kwargs
        self.known = None

    def __call__(self, *boxes: Any) -> list[Any]:
        return self.leaves_of(self.fun(*self._args, **self._kwargs))

    def layout(self) -> FlatArguments:
        leaves, structure = flatten((self._args, self._kwargs))
        return FlatArguments(leaves, structure, (None,) * len(leaves))


def run(fun: Any, args: tuple, kwargs: dict, is_vouched: bool = True) -> Any:
    """The value of a call; by a program for tangents of a model, which traces within."""
    model: Any = fun.fun if type(fun) is CompiledModel else fun
    if hasattr(model, "daskgrad_digest"):
        model = model.load()
    if not hasattr(model, "daskgrad_pushed"):
        return tape.run(fun, args, kwargs)
    prepared = prepare(fun, is_vouched)
    call = ValueCall(prepared, args, kwargs)
    leaves, _ = prepared.programs.trace(prepared.fun, call, [])
    return unflatten(call.structure, leaves)


class CompiledBackend:
    """autograd's backend with programs: of all models, or of pure ones unless ``is_vouched``."""

    finds_writes = False
    dumps = staticmethod(tape.dumps)
    loads = staticmethod(tape.loads)
    hint = staticmethod(tape.hint)
    linearize = staticmethod(tape.linearize)
    Dependence = tape.Dependence
    trace = staticmethod(trace)
    trace_block = staticmethod(trace_block)

    def __init__(self, is_vouched: bool):
        self.prepare = partial(prepare, is_vouched=is_vouched)
        self.run = partial(run, is_vouched=is_vouched)


vouched, cautious = CompiledBackend(True), CompiledBackend(False)
