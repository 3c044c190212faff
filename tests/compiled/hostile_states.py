"""Hostile models that are not functions of their arguments: what they refer to changes."""

import collections
import contextvars
import dataclasses
import functools
import math
import os
import random as python_random
import tempfile
import types
from pathlib import Path
from typing import NamedTuple

import numpy as np
from hostile_models import ERROR, LATE, PROGRAM, TAPE, Hostile, late

NUMBERS = [1.0, 2.0, 3.0, 4.0]  # the same objects at each call

# ------------------------------------------------------ changes that are seen at the next call

state = types.SimpleNamespace(scale=1.0, array=np.ones(5), gaps=np.ones(10)[::2], rank=1)
FACTOR = 2.0


def at_times(change):
    """Changes something to another number after every tenth call."""
    return lambda n: change(NUMBERS[n // 10])


def scaled_by_global(x):
    return np.sum(x * FACTOR)


@functools.wraps(np.sum)
def named_as_numpys(x):
    return np.sum(x) * FACTOR


def helped(x):
    return np.sum(helper(x)) * 2.0


def helper(x):
    return np.sin(x)


HELPERS = {1.0: helper, 2.0: np.cos, 3.0: lambda x: np.tanh(x), 4.0: lambda x: x**2}


def define_again(number):
    globals()["helper"] = HELPERS[number]


def closure():
    """A model, and a function that binds a variable of its enclosing function again."""
    factor = 1.0

    def model(x):
        return np.sum(x**2) * factor

    def change(number):
        nonlocal factor
        factor = number

    return Hostile(model, before=at_times(change))


def decorated():
    def scaled(fun):
        @functools.wraps(fun)
        def wrapper(x):
            return state.scale * fun(x)

        return wrapper

    return scaled(lambda x: np.sum(x**2))


class Scale:
    shared = 1.0

    def __init__(self):
        self.scale, self.inner, self.table = 1.0, types.SimpleNamespace(scale=1.0), {"a": [1.0]}

    def __call__(self, x):
        return np.sum(x) * self.scale

    def method(self, x):
        return np.sum(self.helper(x)) * self.inner.scale

    def helper(self, x):
        return np.sum(x) * self.scale

    @property
    def doubled(self):
        return 2.0 * self.scale

    @classmethod
    def of_class(cls, x):
        return np.sum(x) * cls.shared

    @staticmethod
    def of_none(x):
        return np.sum(x) * Scale.shared


class Child(Scale):
    def method(self, x):
        return super().method(x) * 2.0


@dataclasses.dataclass(slots=True)
class Slots:
    scale: float = 1.0


class Settings:
    """No model, but with methods that models use."""

    def __init__(self):
        self._width = 1.0

    def applied(self, x):
        return self.widened(x) * 2.0

    def widened(self, x):
        return x * self._width

    @property
    def width(self):
        return self._width

    @functools.cached_property
    def kept(self):
        return self._width

    def set_width(self, number):
        self._width = number


held, child, hiding, slots, settings = Scale(), Child(), Scale(), Slots(), Settings()
chosen, queue, nested = {3.0}, collections.deque([1.0]), [[1.0], {"a": (2.0, [3.0])}]
module = types.ModuleType("settings_of_mine")
module.scale = 1.0


def setter(thing, name="scale"):
    return at_times(lambda number: setattr(thing, name, number))


def with_default(x, buffer=np.ones(5)):  # noqa: B008  this is what is tested
    return np.sum(x * buffer)


def with_keyword(x, *, scale=[1.0]):  # noqa: B006
    return np.sum(x * scale[0])


ARRAYS = {number: np.full(5, number) for number in NUMBERS}
LISTS = {number: [number] for number in NUMBERS}


def edited(x, power=2.0):
    return np.sum(x**power)


def calls_edited(x):
    return edited(x) * 2.0


def by_code(x, power=2.0):
    return np.sum(x) * power


def by_defaults(x, scale=1.0):
    return np.sum(x) * scale


EDITIONS = {  # as IPython's autoreload puts new ones into functions that it has loaded again
    1.0: edited.__code__,
    2.0: (lambda x, power: np.sum(np.sin(x) * power)).__code__,
    3.0: (lambda x, power: np.sum(np.cos(x) * power)).__code__,
    4.0: (lambda x, power: np.sum(x) * power).__code__,
}
DEFAULTS = {number: (number,) for number in NUMBERS}
KEYWORDS = {number: {"factor": number} for number in NUMBERS}


def by_keyword(x, *, factor=1.0):
    return np.sum(x) * factor


class Rate(NamedTuple):
    number: float

    def of(self, x):
        return self.number * FACTOR * np.sum(x)

    def __mul__(self, x):
        return self.of(x)


class Limit(NamedTuple):
    number: float

    def __gt__(self, number):
        return FACTOR * self.number > number


rate, limit = Rate(2.0), Limit(1.0)


class Base:
    __slots__ = ("slot",)
    shared = 1.0

    @classmethod
    def of(cls, x):
        return cls.shared * np.sum(x)


class Derived(Base):
    def __init__(self):
        self.slot = 1.0


derived = Derived()


def with_attribute(x):
    return np.sum(x) * with_attribute.factor


with_attribute.factor = 1.0
bound = functools.partial(by_keyword, factor=1.0)
row = np.ones(1, [("factor", float)])[0]


def define_method(number):
    hiding.__dict__["helper"] = HELPERS[number]


SEEN = {
    "an attribute": Hostile(lambda x: np.sum(x) * state.scale, before=setter(state)),
    "a global": Hostile(
        scaled_by_global, before=at_times(lambda number: globals().update(FACTOR=number))
    ),
    "a global of a function that bears a name of NumPy's": Hostile(
        named_as_numpys, before=at_times(lambda number: globals().update(FACTOR=number))
    ),
    "a function is defined again": Hostile(helped, before=at_times(define_again)),
    "the code of a function": Hostile(
        calls_edited, before=at_times(lambda number: setattr(edited, "__code__", EDITIONS[number]))
    ),
    "the defaults of a function": Hostile(
        lambda x: 3.0 * edited(x),
        before=at_times(lambda number: setattr(edited, "__defaults__", DEFAULTS[number])),
    ),
    "its code": Hostile(
        by_code, before=at_times(lambda number: setattr(by_code, "__code__", EDITIONS[number]))
    ),
    "its defaults": Hostile(
        by_defaults,
        before=at_times(lambda number: setattr(by_defaults, "__defaults__", (number,))),
    ),
    "a variable of an enclosing function": closure(),
    "a decorator": Hostile(decorated(), before=setter(state)),
    "a small array": Hostile(
        lambda x: np.sum(x * state.array),
        before=at_times(lambda number: state.array.__setitem__(slice(2), number)),
    ),
    "a small array, of which a function is used": Hostile(
        lambda x: np.sum(x * np.sin(state.array[:5])),
        before=at_times(lambda number: state.array.__setitem__(0, number)),
    ),
    "a small view with gaps": Hostile(
        lambda x: np.sum(x * state.gaps),
        before=at_times(lambda number: state.gaps.__setitem__(0, number)),
    ),
    "another array": Hostile(
        lambda x: np.sum(x * state.array),
        before=at_times(lambda number: setattr(state, "array", ARRAYS[number])),
    ),
    "a default": Hostile(
        with_default,
        before=at_times(lambda number: with_default.__defaults__[0].__setitem__(1, number)),
    ),
    "a global of a named tuple's method": Hostile(
        lambda x: rate.of(x), before=at_times(lambda number: globals().update(FACTOR=number))
    ),
    "a global of a named tuple's operator": Hostile(
        lambda x: rate * x, before=at_times(lambda number: globals().update(FACTOR=number))
    ),
    "a global of a named tuple's comparison": Hostile(
        lambda x: np.sum(x) if limit > 2.5 else np.sum(x**2),
        before=at_times(lambda number: globals().update(FACTOR=number)),
    ),
    "an attribute of the function": Hostile(
        with_attribute, before=setter(with_attribute, "factor")
    ),
    "an attribute of another function": Hostile(
        lambda x: with_attribute(x), before=setter(with_attribute, "factor")
    ),
    "a slot beside attributes": Hostile(
        lambda x: np.sum(x) * derived.slot, before=setter(derived, "slot")
    ),
    "an attribute that hides that of the class": Hostile(
        lambda x: derived.of(x), before=lambda n: n > 20 and setattr(Derived, "shared", 3.0)
    ),
    "the defaults of keywords": Hostile(
        lambda x: by_keyword(x),
        before=at_times(lambda number: setattr(by_keyword, "__kwdefaults__", KEYWORDS[number])),
    ),
    "a keyword of a partial": Hostile(
        bound, before=at_times(lambda number: bound.keywords.update(factor=number))
    ),
    "a row of an array": Hostile(
        lambda x: np.sum(x) * row["factor"],
        before=at_times(lambda number: row.__setitem__("factor", number)),
    ),
    "a keyword's default": Hostile(
        with_keyword,
        before=at_times(lambda n: with_keyword.__kwdefaults__["scale"].__setitem__(0, n)),
    ),
    "a callable object": Hostile(held, before=setter(held)),
    "a method": Hostile(held.method, before=setter(held)),
    "a method that is hidden": Hostile(hiding.method, before=at_times(define_method)),
    "an inherited method": Hostile(child.method, before=setter(child)),
    "an object in an object": Hostile(held.method, before=setter(held.inner)),
    "partial": Hostile(functools.partial(Scale.method, held), before=setter(held)),
    "a keyword of partial": Hostile(
        functools.partial(lambda x, given: np.sum(x) * given[0], given=nested[0]),
        before=at_times(lambda number: nested[0].__setitem__(0, number)),
    ),
    "a list in a dict": Hostile(
        lambda x: np.sum(x) * held.table["a"][0],
        before=at_times(lambda number: held.table["a"].__setitem__(0, number)),
    ),
    "another element of a dict": Hostile(
        lambda x: np.sum(x) * held.table["a"][0],
        before=at_times(lambda number: held.table.update(a=LISTS[number])),
    ),
    "a list in a tuple in a dict": Hostile(
        lambda x: np.sum(x) * nested[1]["a"][1][0],
        before=at_times(lambda number: nested[1]["a"][1].__setitem__(0, number)),
    ),
    "a set that grows": Hostile(
        lambda x: np.sum(x) * len(chosen), before=at_times(lambda number: chosen.add(number))
    ),
    "a deque": Hostile(
        lambda x: np.sum(x) * queue[-1], before=at_times(lambda number: queue.append(number))
    ),
    "a class": Hostile(lambda x: np.sum(x) * Scale.shared, before=setter(Scale, "shared")),
    "a class's method": Hostile(Scale.of_class, before=setter(Scale, "shared")),
    "a static method": Hostile(Scale.of_none, before=setter(Scale, "shared")),
    "the class of an object": Hostile(
        lambda x: np.sum(x) * held.shared, before=setter(Scale, "shared")
    ),
    "an attribute instead of that of the class": Hostile(
        lambda x: np.sum(x) * held.shared, before=setter(held, "shared")
    ),
    "a property": Hostile(lambda x: np.sum(x) * held.doubled, before=setter(held)),
    "an object with slots": Hostile(lambda x: np.sum(x) * slots.scale, before=setter(slots)),
    "a method of a held object": Hostile(
        lambda x: np.sum(settings.applied(x)), before=at_times(settings.set_width)
    ),
    "a property of a held object": Hostile(
        lambda x: np.sum(x) * settings.width, before=at_times(settings.set_width)
    ),
    "a cached property": Hostile(
        lambda x: np.sum(x) * settings.kept, before=at_times(settings.set_width)
    ),
    "a module": Hostile(lambda x: np.sum(x) * module.scale, before=setter(module)),
    "an int": Hostile(
        lambda x: np.sum(x[: state.rank]),
        before=at_times(lambda number: setattr(state, "rank", int(number))),
    ),
}


# ------------------------------------------- changes that are seen at the next comparison alone

NAME = "unseen"
variable = contextvars.ContextVar("variable", default=1.0)
file = Path(tempfile.gettempdir()) / f"hostile-{os.getpid()}"
large, many = np.ones(1000), [1.0] * 100
listed = collections.UserList([1.0])


def at_last(change):
    """Changes something long after the model has been compiled."""
    return lambda n: change(NUMBERS[n >= LATE])


def at_place(container, place):
    return at_last(lambda number: container.__setitem__(place, number))


def unseen():
    """A number that the watch does not find."""
    return getattr(state, NAME)


def set_unseen(number):
    setattr(state, NAME, number)


def count():
    """One more at each run of the model."""
    set_unseen(unseen() + 1)
    return unseen()


UNSEEN = {
    "an attribute by name": Hostile(
        lambda x: np.sum(x) * unseen(), ERROR, before=at_last(set_unseen)
    ),
    "a global by name": Hostile(
        lambda x: np.sum(x) * globals()["listed"][0], ERROR, before=at_place(listed, 0)
    ),
    "eval": Hostile(lambda x: np.sum(x) * eval("listed[0]"), ERROR, before=at_place(listed, 0)),
    "a large array": Hostile(lambda x: np.sum(x) * np.sum(large), ERROR, before=at_place(large, 7)),
    "a long list": Hostile(lambda x: np.sum(x) * many[7], ERROR, before=at_place(many, 7)),
    "a container of another kind": Hostile(
        lambda x: np.sum(x) * listed[0], ERROR, before=at_place(listed, 0)
    ),
    "a file": Hostile(
        lambda x: np.sum(x) * float(file.read_text()),
        ERROR,
        before=at_last(lambda number: file.write_text(str(number))),
    ),
    "a context variable": Hostile(
        lambda x: np.sum(x) * variable.get(), ERROR, before=at_last(variable.set)
    ),
    "a counter, late": Hostile(
        lambda x: np.sum(x) * (2.0 if count() > LATE else 1.0), ERROR, before=set_unseen
    ),
}

# ----------------------------------------------------------------- what changes at each call


def seeded(n):
    np.random.seed(n)
    python_random.seed(n)


def cached(x, number):
    if number not in cache:
        cache[number] = np.sin(number)
    return np.sum(x) * cache[number]


def cached_root(x, matrix):
    return np.sum(x) * cache.setdefault("root", np.linalg.cholesky(matrix))[1, 0]


def cached_size(x):
    if x.shape not in sizes:
        sizes[x.shape] = np.eye(*x.shape)
    return np.sum(x @ sizes[x.shape])


@functools.lru_cache
def cached_sine(number):
    return math.sin(number)


def kept(x):
    state.kept = np.sum(x**2)
    return state.kept


def consumed(x):
    return np.sum(x) * state.stream.pop()


cache, sizes = {}, {}

AT_EACH_CALL = {
    "a counter": Hostile(lambda x: np.sum(x) * count(), TAPE, before=set_unseen),
    "NumPy's random numbers": Hostile(
        lambda x: np.sum(x) * np.random.random(), TAPE, before=seeded
    ),
    "Python's random numbers": Hostile(
        lambda x: np.sum(x) * python_random.random(), TAPE, before=seeded
    ),
    "a generator of its own": Hostile(
        lambda x: np.sum(x * np.random.default_rng(3).normal(size=5))
    ),
    "a generator that is held": Hostile(
        lambda x: np.sum(x * state.random.normal(size=5)),
        TAPE,
        before=lambda n: setattr(state, "random", np.random.default_rng(n)),
    ),
    "a list is used up": Hostile(
        consumed, TAPE, before=lambda n: setattr(state, "stream", [1.0, 2.0, 3.0 + n])
    ),
    "an attribute is set": Hostile(kept, TAPE, before=lambda n: setattr(state, "kept", n)),
    "a cache by data": Hostile(cached, TAPE, late(1.0, 2.0)),
    "a cache of data": Hostile(cached_root, PROGRAM, late(np.eye(2), np.eye(2) + 1.0)),
    "a cache by size": Hostile(cached_size),
    "lru_cache": Hostile(lambda x, a: np.sum(x) * cached_sine(a), TAPE, late(1.0, 2.0)),
}
