"""Hidden nodes: nodes in functions, containers and objects, which a pytree does not show."""

import functools
import itertools
import types
from collections import deque
from collections.abc import ItemsView, Iterable, KeysView, ValuesView
from typing import Any

import numpy as np

from daskgrad.autodiff.models.duals import Pushforward
from daskgrad.autodiff.models.local_jacobians import LocalJacobian
from daskgrad.autodiff.values.trees import held_by

LOOKED_AT = 100  # objects examined within one

PLAIN: tuple[type, ...]
PLAIN = (str, bytes, int, float, complex, np.generic, type, types.ModuleType, type(None))
PLAIN += (LocalJacobian, Pushforward)  # of models that were looked at, for each of their calls
NESTED = {list, tuple, dict}
CONTAINERS = (list, tuple, set, frozenset, deque, KeysView, ValuesView, ItemsView)


def find_hidden(kind: type, thing: Any) -> Any:
    """The first object of a class among the first 100 objects in a thing, or ``None``."""
    if isinstance(thing, PLAIN) or (type(thing) is types.FunctionType and not held_by(thing)):
        return None
    objects, known = [thing], {id(thing)}  # each once: autograd's functions hold themselves
    for part in objects:  # grows during the loop
        if isinstance(part, kind):
            return part
        for other in itertools.islice(parts_of(part), max(0, LOOKED_AT - len(objects))):
            if id(other) not in known:
                known.add(id(other))
                objects.append(other)
    return None


def containers_in(thing: Any) -> list[Any]:
    """A tuple and the lists, tuples and dicts in it, the first 100 of them."""
    containers = [thing]
    for container in containers:  # grows during the loop
        parts = container.values() if isinstance(container, dict) else container
        inner = [part for part in itertools.islice(parts, LOOKED_AT) if type(part) in NESTED]
        containers.extend(inner[: LOOKED_AT - len(containers)])
    return containers


def parts_of(thing: Any) -> Iterable[Any]:
    """The objects in an object that models may reach."""
    if type(thing) is types.FunctionType:
        return held_by(thing)
    if isinstance(thing, PLAIN):
        return ()
    if isinstance(thing, np.ndarray):
        return thing.flat if thing.dtype == object else ()
    if hasattr(type(thing), "__dlpack__"):  # another library's array has numbers alone
        return ()
    if isinstance(thing, CONTAINERS):
        return thing
    if isinstance(thing, dict):
        return [*thing.values(), *thing]
    if isinstance(thing, functools.partial):
        return (thing.func, *thing.args, *thing.keywords.values())
    if isinstance(thing, types.MethodType):
        return (thing.__func__, thing.__self__)
    slots = [getattr(thing, name, None) for name in getattr(type(thing), "__slots__", ())]
    return [*getattr(thing, "__dict__", {}).values(), *slots]
