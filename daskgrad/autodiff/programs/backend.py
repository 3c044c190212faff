"""The backend of compiled models: autograd's, with programs in place of tapes.

Programs are kept with the model's function. Each task unpickles a sent model anew: its programs are
kept by the digest of its pickle. Programs of a function that is defined anew for each evaluation,
and refers to constants alone, are kept by its code and these constants.
"""

import types
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from daskgrad.autodiff import tape
from daskgrad.autodiff.programs.blocks import is_batched, trace_block
from daskgrad.autodiff.programs.references import kind_of_reference
from daskgrad.autodiff.programs.store import Programs
from daskgrad.autodiff.programs.watch import MODELS, SMALL, content_of, is_input, is_rule
from daskgrad.autodiff.tape.questions import answer
from daskgrad.autodiff.tape.traced_call import FlatArguments, TracedCall, recorder
from daskgrad.autodiff.values.carriers import kept_or_made
from daskgrad.autodiff.values.trees import flatten, unflatten

MOST_MODELS = 1024
MOST_PARTS = 256  # of one
MOST_BYTES = 2**27  # of sent models, and of arrays to which functions referred that are gone

_sent: dict[Any, tuple[Programs, int]] = {}  # with the bytes of the model
_defined: dict[Any, tuple[list, Programs]] = {}  # with all that the key names by identity
_firsts: dict[Any, tuple[list, tuple]] = {}  # keys of the first functions of a layout
_here: dict[Any, "OfObjects"] = {}  # by identity: equal objects may differ


class OfObjects(NamedTuple):
    """Programs that live as long as some objects of this process, to which a model refers.

    A program holds the arrays among these, of ``nbytes``. So it goes after the functions that use
    it. ``held``: things that its key names by identity, ``references``: weak ones to the objects.
    """

    programs: Programs
    held: list[Any]
    references: list[weakref.ref]
    nbytes: int
    functions: weakref.WeakSet


@dataclass(slots=True, eq=False, repr=False)
class CompiledModel:
    """A model's function, and its programs in this process."""

    fun: Callable
    programs: Programs

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.fun(*args, **kwargs)


def prepare(fun: Any, is_vouched: bool = True, kind: type[Programs] = Programs) -> CompiledModel:
    """The function of a model with its programs, some of them from earlier calls."""
    if type(fun) is CompiledModel:
        return fun
    pushed: tuple = getattr(fun, "daskgrad_pushed", (fun,))
    base, *options = *pushed, is_vouched, kind
    answer(base)
    make = partial(kind, is_vouched)
    digest = getattr(fun, "daskgrad_digest", None)
    if digest is not None:
        sent = _sent.get((digest, *options[-2:]))
        if sent is None:
            nbytes = max(fun.nbytes, MOST_BYTES // MOST_MODELS)
            sent = _sent.setdefault((digest, *options[-2:]), (make(), nbytes))
            drop_oldest_bytes(_sent, [(key, size) for key, (_, size) in _sent.copy().items()])
        return CompiledModel(fun.load(), sent[0])
    tracing = recorder.get()  # may have made it for one recording
    if tracing is not None and (kind.is_exact or tracing is not tape.trace):
        return CompiledModel(fun, make())
    if is_rule(base):  # a program would be one call of it, and keep it alive
        return CompiledModel(fun, make() if kind.is_exact else Programs(is_vouched))
    maker = Key()
    key = maker.of(base), *options
    programs = shared_programs(base, options, key, make) if maker.has_inputs else None
    return CompiledModel(fun, programs or own_programs(base, options, maker, key, make))


def shared_programs(
    base: Any, options: Sequence[Any], key: tuple, make: Callable[..., Programs]
) -> Programs | None:
    """The programs of functions that differ in the arrays and numbers alone to which they refer;
    None for the first of them, and if these are no inputs."""
    maker = Key(by_layout=True)
    layout = maker.of(base), *options, "shared"
    _, first = kept_or_made(_firsts, layout, lambda: (maker.held, key), MOST_MODELS)
    if first == key:
        return None
    programs = own_programs(base, options, maker, layout, partial(make, is_shared=True))
    return None if programs.impurity else programs


def own_programs(
    base: Any, options: Sequence[Any], maker: "Key", key: tuple, make: Callable[..., Programs]
) -> Programs:
    """The programs of a function with a key."""
    if not maker.owners:
        return kept_or_made(_defined, key, lambda: (maker.held, make()), MOST_MODELS)[1]
    try:
        return programs_of(base, maker, key, make)
    except TypeError:  # there are no weak references to something that it refers to
        maker.owners = [base]
    try:
        return programs_of(base, maker, (id(base), *options), make)
    except TypeError:
        return make()


def programs_of(base: Any, maker: "Key", key: tuple, make: Callable[[], Programs]) -> Programs:
    """The programs of a function that refers to some objects of this process."""
    known = _here.get(key)
    is_new = known is None
    if known is None:
        forget = _here.pop  # Python clears a module's names before all objects go
        references = [weakref.ref(owner, lambda _: forget(key, None)) for owner in maker.owners]
        nbytes = sum([owner.nbytes for owner in maker.owners if isinstance(owner, np.ndarray)])
        new = OfObjects(make(), maker.held, references, nbytes, weakref.WeakSet())
        known = _here.setdefault(key, new)
    if known.nbytes:
        known.functions.add(base)
        if is_new:
            entries = _here.copy().items()  # others go meanwhile
            unused = [(k, e.nbytes) for k, e in entries if e.nbytes and not e.functions]
            drop_oldest_bytes(_here, unused)
    return known.programs


def drop_oldest_bytes(kept: dict[Any, Any], sizes: Sequence[tuple[Any, int]]) -> None:
    """Drops all but the latest entries of so many bytes; never the latest one."""
    room = MOST_BYTES
    for key, nbytes in reversed(sizes):
        if room < 0:
            kept.pop(key, None)
        room -= nbytes


class Key:
    """Makes keys that are equal for equal content: constants, and functions of one code, methods
    and partials that refer to constants.

    ``held``: things that a key names by identity; ``owners``: objects that it names so, and does
    not keep alive; ``has_inputs``: whether there are arrays and floating-point numbers, which it
    names by their types and layouts if ``by_layout``.
    """

    def __init__(self, by_layout: bool = False) -> None:
        self._by_layout, self.has_inputs = by_layout, False
        self.held: list[Any] = []
        self.owners: list[Any] = []
        self._left = MOST_PARTS
        self._open: set[int] = set()  # functions that are read now: they may refer to themselves

    def of(self, value: Any) -> tuple:
        kind = type(value)
        if kind in (bool, int, str, bytes, type(None)):
            return kind, value
        if is_input(value, 0):
            self.has_inputs = True
            if self._by_layout:
                return kind, kind_of_reference(value)
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


def run(
    fun: Any,
    args: tuple,
    kwargs: dict,
    is_vouched: bool = True,
    kind: type[Programs] = Programs,
) -> Any:
    """The value of a call; by a program for tangents of a model, which traces within."""
    model: Any = fun.fun if type(fun) is CompiledModel else fun
    if hasattr(model, "daskgrad_digest"):
        model = model.load()
    if not hasattr(model, "daskgrad_pushed"):
        return tape.run(fun, args, kwargs)
    prepared = prepare(fun, is_vouched, kind)
    call = ValueCall(prepared, args, kwargs)
    leaves, _ = prepared.programs.trace(prepared.fun, call, [])
    return unflatten(call.structure, leaves)


class CompiledBackend:
    """autograd's backend with programs of a ``kind``: of all models, or of pure ones unless
    ``is_vouched``."""

    finds_writes = False
    dumps = staticmethod(tape.dumps)
    loads = staticmethod(tape.loads)
    hint = staticmethod(tape.hint)
    linearize = staticmethod(tape.linearize)
    Dependence = tape.Dependence
    trace = staticmethod(trace)
    trace_block = staticmethod(trace_block)
    is_batched = staticmethod(is_batched)

    def __init__(self, is_vouched: bool, kind: type[Programs] = Programs):
        self.prepare = partial(prepare, is_vouched=is_vouched, kind=kind)
        self.run = partial(run, is_vouched=is_vouched, kind=kind)


vouched, cautious = CompiledBackend(True), CompiledBackend(False)
