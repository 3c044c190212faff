"""Questions: ``type(x)`` and ``hasattr(x, name)`` in a model, answered for the value within a box.

``isinstance`` asks for ``__class__``, with which boxes answer; these two builtins do not. So their
calls in the code of a model, and in all code to which it refers, become calls of the functions
here. Each function stays the object that it is, and gets other code once; for all values but boxes
and nodes it does what it did.
"""

import dis
import functools
import operator
import sys
import types
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from daskgrad.autodiff.tape.boxes import BASES, LIBRARIES, TRACERS, AnsweringType
from daskgrad.autodiff.values.carriers import drop_oldest
from daskgrad.autodiff.values.descriptions import function_name
from daskgrad.autodiff.values.digests import REPLACED
from daskgrad.autodiff.values.trees import codes_in, held_by

PREFIX = "daskgrad_"  # of the names by which such code finds the functions, among its globals
MOST_KNOWN = 4096  # codes
MOST_NAMES = 128  # that one instruction can tell apart
FEW = 64  # elements of a list or dict
LASTING = {*LIBRARIES, *TRACERS, *sys.stdlib_module_names}  # packages that hold no models
LASTING |= {"dask", "distributed", "jax", "torch", "optree", "cloudpickle"}
LASTING |= {"IPython", "ipykernel", "_pytest", "pluggy", "rich"}  # they show objects
PLAIN = {np.ndarray, type(None), bool, int, float, str, np.float64, types.ModuleType}
PLAIN |= {types.BuiltinFunctionType, np.ufunc}
FUNCTION_TYPES = (types.FunctionType, types.MethodType, functools.partial)
CONTAINERS = (list, tuple, set, frozenset, dict)
INNER = ("fget", "func", "__wrapped__", "__func__")
WRAPPERS: tuple[type, ...] = (property, staticmethod, classmethod, functools.cached_property)
WRAPPERS = (*WRAPPERS, type(functools.lru_cache(len)))


def type_of(*args: Any, **keywords: Any) -> Any:
    """Python's ``type``; of a box or a node, the type of its value."""
    if len(args) == 1:
        kind = type(args[0])
        return args[0].class_of_value() if type(kind) is AnsweringType else kind
    if len(args) == 3:  # a new class, whose module Python takes from the caller
        args = (*args[:2], {"__module__": sys._getframe(1).f_globals["__name__"], **args[2]})
    return type(*args, **keywords)


def has_attribute(thing: Any, name: str) -> bool:
    """Python's ``hasattr``; of a box or a node, that of its value."""
    if type(type(thing)) is AnsweringType:
        kind = thing.class_of_value()
        if issubclass(kind, np.ndarray | np.generic | int | float | complex):  # no container
            return hasattr(kind, name)
    return hasattr(thing, name)


FUNCTIONS: dict[str, Callable] = {"type": type_of, "hasattr": has_attribute}


# --------------------------------------------------------------------------- what a model refers to


class Link(NamedTuple):
    """A function that a global name refers to."""

    namespace: dict[str, Any]
    name: str
    reference: weakref.ref
    code: types.CodeType

    def is_there(self) -> bool:
        """Whether the name still refers to the function, which has still this code."""
        namespace, name, reference, code = self
        fun: Any = reference()
        return fun is not None and fun.__code__ is code and namespace.get(name) is fun


class Known(NamedTuple):
    """Code that asks here, as all do that it names among these globals."""

    code: types.CodeType
    namespace: dict[str, Any]
    links: list[Link]


_known: dict[int, Known] = {}  # by the code's id: a function may be made anew for each call
_links: weakref.WeakKeyDictionary[Any, list[Link]] = weakref.WeakKeyDictionary()


def answer(fun: Any) -> None:
    """Has the code of a function, and of all to which it refers, ask here."""
    if type(fun) is types.FunctionType:
        if not (is_known(fun) and all(map(asks_here, held_by(fun)))):
            named = follow(fun)
            if not str(fun.__module__).startswith("daskgrad."):  # which may hold other models
                _known[id(fun.__code__)] = Known(fun.__code__, fun.__globals__, named)
                drop_oldest(_known, MOST_KNOWN)
        return
    try:
        if not are_there(_links.get(fun)):
            _links[fun] = follow(fun)
    except TypeError:  # it has no weak references, or no hash
        follow(fun)


def are_there(links: list[Link] | None) -> bool:
    return links is not None and all([link.is_there() for link in links])


def is_known(fun: types.FunctionType) -> bool:
    known = _known.get(id(fun.__code__))
    return (
        known is not None
        and known.code is fun.__code__
        and known.namespace is fun.__globals__
        and all([link.is_there() for link in known.links])
    )


def asks_here(thing: Any) -> bool:
    """Whether a thing in a function's closure is data or known, or a model, which asks when it is
    called."""
    kind = type(thing)
    if kind is types.FunctionType:
        return is_known(thing) and not thing.__closure__ and not thing.__defaults__
    if kind is functools.partial:
        return are_there(_links.get(thing))
    return kind in PLAIN or kind.__module__.startswith("daskgrad.")


def answer_arguments(things: Iterable[Any]) -> None:
    """Has functions among arguments, and classes of objects among them, ask here."""
    for thing in things:
        kind = type(thing)
        if kind in PLAIN or type(kind) is AnsweringType:
            continue
        if isinstance(thing, CONTAINERS):
            answer_arguments(elements_of(thing))
        else:
            answer(thing if isinstance(thing, FUNCTION_TYPES) else kind)


def elements_of(container: Any) -> Iterable[Any]:
    if len(container) > FEW:
        return ()
    return container.values() if isinstance(container, dict) else container


def follow(start: Any) -> list[Link]:
    functions: list[tuple[dict[str, Any], str, types.FunctionType]] = []
    seen: dict[int, Any] = {}
    things = [start]
    while things:
        thing = things.pop()
        if type(thing) in PLAIN or id(thing) in seen:
            continue
        seen[id(thing)] = thing
        if not isinstance(thing, types.FunctionType):
            things += parts_of(thing)
            continue
        things += held_by(thing)
        if is_users(thing.__globals__.get("__name__")):
            names = names_in(thing.__code__)
            if not names.isdisjoint(FUNCTIONS):
                ask_here(thing)
            for space, name, value in things_named(thing, names):
                things.append(value)
                if isinstance(value, types.FunctionType):
                    functions.append((space, name, value))
    return [Link(space, name, weakref.ref(fun), fun.__code__) for space, name, fun in functions]


@functools.lru_cache(1024)
def names_in(code: types.CodeType) -> frozenset[str]:
    return frozenset([name for part in codes_in(code) for name in part.co_names])


def is_users(module: Any) -> bool:
    """Whether a module may hold models or what they call."""
    return isinstance(module, str) and module.split(".")[0] not in LASTING


def things_named(
    fun: types.FunctionType, names: Iterable[str]
) -> Iterator[tuple[dict[str, Any], str, Any]]:
    """The globals of these names, and attributes of modules among globals, in the closure, and
    among the imported ones."""
    modules = [thing for thing in held_by(fun) if isinstance(thing, types.ModuleType)]
    for name in names:
        value = fun.__globals__.get(name, sys.modules.get(name))
        if isinstance(value, types.ModuleType):
            modules.append(value)
        else:
            yield fun.__globals__, name, value
    for module in modules:
        if is_users(module.__name__):
            space = vars(module)
            yield from [(space, name, space.get(name)) for name in names]


def parts_of(thing: Any) -> Iterable[Any]:
    """The things in an object, a class or a container that may have code."""
    if isinstance(thing, types.MethodType):
        return thing.__func__, thing.__self__
    if isinstance(thing, functools.partial):
        return thing.func, thing.args, thing.keywords
    if isinstance(thing, WRAPPERS):
        return [getattr(thing, name) for name in INNER if hasattr(thing, name)]
    if isinstance(thing, CONTAINERS):
        return elements_of(thing)
    if isinstance(thing, type):
        bases = [base for base in BASES(thing) if is_users(base.__module__)]
        return [member for base in bases for member in vars(base).values()]
    kind = type(thing)
    is_ours = kind.__module__.startswith("daskgrad.") and not hasattr(kind, "__dask_graph__")
    if is_ours or is_users(kind.__module__):
        return kind, *getattr(thing, "__dict__", {}).values()
    return ()


# ------------------------------------------------------------------------------ other code


def ask_here(fun: types.FunctionType) -> None:
    """Gives a function code that asks here, if it calls one of the builtins."""
    names = [
        name
        for name in FUNCTIONS.keys() - fun.__globals__.keys()
        if any([name in code.co_names for code in codes_in(fun.__code__)])
    ]
    if names:
        code = asking_here(fun.__code__, names, function_name(fun))
        if code is not fun.__code__:
            REPLACED[code] = fun.__code__
            for name in names:
                fun.__globals__[PREFIX + name] = FUNCTIONS[name]
            fun.__code__ = code


def asking_here(code: types.CodeType, names: list[str], model: str) -> types.CodeType:
    """The code with the functions here in the place of the builtins that it calls; itself if there
    is no such call."""
    inner = [
        asking_here(each, names, model) if isinstance(each, types.CodeType) else each
        for each in code.co_consts
    ]
    known, raw = list(code.co_names), bytearray(code.co_code)
    for name in names:
        uses = [
            s for s in dis.get_instructions(code) if s.opcode in dis.hasname and s.argval == name
        ]
        # the last bit says that the instruction makes room for a call
        calls = [step for step in uses if step.opname == "LOAD_GLOBAL" and (step.arg or 0) & 1]
        if calls and len(calls) == len(uses):
            known[known.index(name)] = PREFIX + name
        elif calls:
            known.append(PREFIX + name)
        for step in calls if len(calls) < len(uses) else ():
            if len(known) > MOST_NAMES:
                raise TypeError(
                    f"{model!r} calls {name}() in {code.co_filename}:{code.co_firstlineno}, which "
                    f"may ask about a traced value, and has too many names for another answer; "
                    f"write isinstance(x, np.ndarray), or ask in a function of its own"
                )
            raw[step.offset + 1] = (len(known) - 1) << 1 | 1
    if known == list(code.co_names) and all(map(operator.is_, inner, code.co_consts)):
        return code
    return code.replace(co_code=bytes(raw), co_names=tuple(known), co_consts=tuple(inner))
