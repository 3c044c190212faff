"""The backend of compiled models: autograd's, with programs in place of tapes where there are any.

Programs are kept with the model's function; or, where a model was sent and each task unpickles it
anew, by the digest of its pickle; or, where a function that refers to constants alone is defined
anew for each evaluation, by its code and these.
"""

import types
import weakref
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from daskgrad.autodiff import tape
from daskgrad.autodiff.compiled.blocks import trace_block
from daskgrad.autodiff.compiled.evaluations import Evaluation
from daskgrad.autodiff.compiled.programs import Programs
from daskgrad.autodiff.compiled.watch import SMALL, content_of, is_rule
from daskgrad.autodiff.tape.traced_call import TracedCall
from daskgrad.autodiff.values.carriers import kept_or_made
from daskgrad.autodiff.values.trees import unflatten

MOST_MODELS = 256

_sent: dict[Any, Programs] = {}
_defined: dict[Any, tuple[list, Programs]] = {}  # with what the key tells apart by identity
_here: dict[Any, tuple[weakref.ref, Programs]] = {}  # by identity: equal objects may differ


class Compiled:
    """A model's function, and its programs in this process."""

    __slots__ = ("fun", "programs")

    def __init__(self, fun: Callable, programs: Programs):
        self.fun = fun
        self.programs = programs

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.fun(*args, **kwargs)


def prepare(fun: Any, is_vouched: bool = True) -> Compiled:
    """The function of a model with its programs, which earlier calls may have made."""
    if type(fun) is Compiled:
        return fun

    make = partial(Programs, is_vouched)
    digest = getattr(fun, "daskgrad_digest", None)
    if digest is not None:
        return Compiled(fun.load(), kept_or_made(_sent, (digest, is_vouched), make, MOST_MODELS))
    pushed: tuple = getattr(fun, "daskgrad_pushed", (fun,))
    base, *how = *pushed, is_vouched
    held: list[Any] = []
    key = definition(base, held)
    if key is not None:
        made = kept_or_made(_defined, (key, *how), lambda: (held, make()), MOST_MODELS)
        return Compiled(fun, made[1])
    if is_rule(base):  # a program would be one call of it, and keep it alive
        return Compiled(fun, make())
    try:
        return Compiled(fun, programs_of(base, (id(base), *how), make))
    except TypeError:  # there are no weak references to it
        return Compiled(fun, make())


def programs_of(fun: Any, key: Any, make: Callable[[], Programs]) -> Programs:
    """The programs of a function of this process, or of its tangents, which go with it."""
    found = _here.get(key)
    if found is None:
        made = weakref.ref(fun, lambda _: _here.pop(key, None)), make()
        found = _here.setdefault(key, made)
    return found[1]


def definition(fun: Any, held: list[Any], depth: int = 8) -> tuple | None:
    """A key for all functions of the same code that refer to the same constants.

    What the key names by its identity is added to ``held``. ``None`` for other callables, and for
    functions that refer to other objects, which are told apart by their own identity.
    """
    if type(fun) is not types.FunctionType or vars(fun) or not depth:
        return None
    held += (fun.__code__, fun.__globals__)
    if not (fun.__closure__ or fun.__defaults__ or fun.__kwdefaults__):  # nearly always
        return id(fun.__code__), id(fun.__globals__)
    given = [*(fun.__defaults__ or ()), *(fun.__kwdefaults__ or {}).values()]
    given += map(content_of, fun.__closure__ or ())
    parts = [key_of(each, held, depth - 1) for each in given]
    return None if None in parts else (id(fun.__code__), id(fun.__globals__), *parts)


def key_of(value: Any, held: list[Any], depth: int) -> tuple | None:
    """A key for a constant that a function refers to, or ``None`` if it is none."""
    kind = type(value)
    if kind in (bool, int, str, bytes, type(None)):
        return kind, value
    if kind in (float, complex):
        return kind, repr(value)  # 0.0 and -0.0 are equal
    if isinstance(value, np.generic):
        return kind, value.dtype, value.tobytes()  # hours and minutes differ in dtype alone
    if kind is types.FunctionType:
        return definition(value, held, depth)
    is_small = kind is np.ndarray and value.nbytes <= SMALL
    if is_small or isinstance(value, types.ModuleType | np.ufunc | types.BuiltinFunctionType):
        held.append(value)
        return kind, id(value)
    return None


def trace(fun: Any, arrays: Sequence[Any]) -> tuple[list[Any], Any]:
    """The value of a call, and its tape (see ``autodiff.libraries.registry``)."""
    if type(fun) is TracedCall and type(fun.fun) is Compiled:
        return fun.fun.programs.trace(fun.fun.fun, fun, arrays)
    return tape.trace(fun, arrays)


def run(fun: Any, args: tuple, kwargs: dict, is_vouched: bool = True) -> Any:
    """The value of a call: by a program for what traces within, the tangents of a model."""
    model: Any = fun.fun if type(fun) is Compiled else fun
    if hasattr(model, "daskgrad_digest"):
        model = model.load()
    if not hasattr(model, "daskgrad_pushed"):
        return tape.run(fun, args, kwargs)
    prepared = prepare(fun, is_vouched)
    call = Evaluation(prepared, args, kwargs)
    leaves, _ = prepared.programs.trace(prepared.fun, call, [])
    return unflatten(call.structure, leaves)


class CompiledBackend:
    """autograd's backend with programs: of all models, or if nobody ``is_vouched`` for them, of
    those whose code tells that they are pure."""

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
