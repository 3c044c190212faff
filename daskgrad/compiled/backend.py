"""The backend of compiled models: autograd's, with programs in place of tapes where there are any.

Programs are kept with the model's function, or, where a model was sent and each task unpickles it
anew, by the digest of its pickle.
"""

import weakref
from collections.abc import Callable, Sequence
from typing import Any

from daskgrad.backends.autograd import dumps as dumps
from daskgrad.backends.autograd import hint as hint
from daskgrad.backends.autograd import linearize as linearize
from daskgrad.backends.autograd import run as run_plainly
from daskgrad.backends.autograd import trace as trace_by_tape
from daskgrad.backends.autograd.pickling import loads as loads
from daskgrad.backends.traced_call import TracedCall
from daskgrad.compiled.blocks import trace_block as trace_block
from daskgrad.compiled.evaluations import Evaluation
from daskgrad.compiled.programs import Programs
from daskgrad.compiled.watch import is_rule
from daskgrad.values.caches import kept_or_made
from daskgrad.values.trees import unflatten

MOST_MODELS = 256

finds_writes = False

_sent: dict[bytes, Programs] = {}
_here: dict[Any, tuple[weakref.ref, Programs]] = {}  # by identity: equal objects may differ


class Compiled:
    """A model's function, and its programs in this process."""

    __slots__ = ("fun", "programs")

    def __init__(self, fun: Callable, programs: Programs):
        self.fun = fun
        self.programs = programs

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.fun(*args, **kwargs)


def prepare(fun: Any) -> Compiled:
    """The function of a model with its programs, which earlier calls may have made."""
    if type(fun) is Compiled:
        return fun
    digest = getattr(fun, "daskgrad_digest", None)
    if digest is not None:
        return Compiled(fun.load(), kept_or_made(_sent, digest, Programs, MOST_MODELS))
    which = getattr(fun, "daskgrad_pushed", (fun,))
    if is_rule(which[0]):  # a program would be one call of it, and keep it alive
        return Compiled(fun, Programs())
    try:
        return Compiled(fun, programs_of(*which))
    except TypeError:  # there are no weak references to it
        return Compiled(fun, Programs())


def programs_of(fun: Any, kind: Any = None) -> Programs:
    """The programs of a function of this process, or of its tangents, which go with it."""
    key = id(fun) if kind is None else (id(fun), kind)
    found = _here.get(key)
    if found is None:
        made = weakref.ref(fun, lambda _: _here.pop(key, None)), Programs()
        found = _here.setdefault(key, made)
    return found[1]


def trace(fun: Any, arrays: Sequence[Any]) -> tuple[list[Any], Any]:
    """The value of a call, and its tape (see ``backends.protocol``)."""
    if type(fun) is TracedCall and type(fun.fun) is Compiled:
        return fun.fun.programs.trace(fun.fun.fun, fun, arrays)
    return trace_by_tape(fun, arrays)


def run(fun: Any, args: tuple, kwargs: dict) -> Any:
    """The value of a call: by a program for what traces within, the tangents of a model."""
    model: Any = fun.fun if type(fun) is Compiled else fun
    if hasattr(model, "daskgrad_digest"):
        model = model.load()
    if not hasattr(model, "daskgrad_pushed"):
        return run_plainly(fun, args, kwargs)
    prepared = prepare(fun)
    call = Evaluation(prepared, args, kwargs)
    leaves, _ = prepared.programs.trace(prepared.fun, call, [])
    return unflatten(call.structure, leaves)
