"""Hostile models that are not functions of their arguments: what they refer to changes."""

import collections
import functools
import math
import os
import tempfile
import types
from pathlib import Path

import numpy as np
from hostile_models import ERROR, LATE, PROGRAM, TAPE, Hostile, late

NUMBERS = [1.0, 2.0, 3.0, 4.0]  # the same objects at each call

# ------------------------------------------------------ changes that are seen at the next call

state = types.SimpleNamespace(scale=1.0)
FACTOR = 2.0


def at_times(change):
    """Changes something to another number after every tenth call."""
    return lambda n: change(NUMBERS[n // 10])


class Scale:
    def __init__(self):
        self.scale = 1.0

    def __call__(self, x):
        return np.sum(x) * self.scale

    def method(self, x, power=1.0):
        return np.sum(x**power) * self.scale


held = Scale()


def setter(thing):
    return at_times(lambda number: setattr(thing, "scale", number))


@functools.wraps(np.sum)
def named_as_numpys(x):
    return np.sum(x) * FACTOR


class Summed:
    scale = 1.0

    def sum(self, axis=None, out=None):
        return self.scale


reduction, summed = np.sum, Summed()


def scale_of(thing):
    return thing.scale


def by_defaults(x, scale=1.0):
    return np.sum(x) * scale


SEEN = {  # as models; what models refer to is in the kinds of ``fuzz_references``
    "a method that NumPy calls": Hostile(lambda x: x[0] * reduction(summed), before=setter(summed)),
    "an attribute that a helper reads": Hostile(
        lambda x: np.sum(x) * scale_of(state), before=setter(state)
    ),
    "a global of a function that bears a name of NumPy's": Hostile(
        named_as_numpys, before=at_times(lambda number: globals().update(FACTOR=number))
    ),
    "its defaults": Hostile(  # set at each call
        by_defaults,
        TAPE,
        before=at_times(lambda number: setattr(by_defaults, "__defaults__", (number,))),
    ),
    "a callable object": Hostile(held, before=setter(held)),
    "a method": Hostile(held.method, before=setter(held)),
    "partial": Hostile(functools.partial(Scale.method, held, power=2.0), before=setter(held)),
}


# ------------------------------------------- changes that are seen at the next comparison alone

NAME = "unseen"
file = Path(tempfile.gettempdir()) / f"hostile-{os.getpid()}"
large, many = np.ones(2**20), [1.0] * 100_000
listed = collections.UserList([1.0])


class Wide:
    large = large


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


def times_unseen(number):
    return number * unseen()


ufunc, over_entries = np.frompyfunc(times_unseen, 1, 1), np.vectorize(times_unseen)
X = np.linspace(1.0, 2.0, 5)


def count():
    """One more at each run of the model."""
    set_unseen(unseen() + 1)
    return unseen()


SEEN |= {
    "a long list": Hostile(lambda x: np.sum(x) * many[7], before=at_place(many, 7)),
    "a large array": Hostile(lambda x: np.sum(x) * large[7], before=at_place(large, 7)),
    "a large array of a class": Hostile(
        lambda x: np.sum(x) * Wide.large[7], before=at_place(large, 7)
    ),
}
UNSEEN = {
    "an attribute by name": Hostile(
        lambda x: np.sum(x) * unseen(), ERROR, before=at_last(set_unseen)
    ),
    "a container of another kind": Hostile(
        lambda x: np.sum(x) * listed[0], ERROR, before=at_place(listed, 0)
    ),
    "a ufunc of a function": Hostile(
        lambda x: np.sum(x * ufunc(X).astype(float)), ERROR, before=at_last(set_unseen)
    ),
    "a function over entries": Hostile(
        lambda x: np.sum(x * over_entries(X)), ERROR, before=at_last(set_unseen)
    ),
    "a file": Hostile(
        lambda x: np.sum(x) * float(file.read_text()),
        ERROR,
        before=at_last(lambda number: file.write_text(str(number))),
    ),
}

# ----------------------------------------------------------------- what changes at each call


def cached(x, number):
    if number not in cache:
        cache[number] = np.sin(number)
    return np.sum(x) * cache[number]


def cached_root(x, matrix):
    return np.sum(x) * cache.setdefault("root", np.linalg.cholesky(matrix))[1, 0]


@functools.lru_cache
def cached_sine(number):
    return math.sin(number)


def kept(x):
    state.kept = np.sum(x**2)
    return state.kept


cache = {}

AT_EACH_CALL = {
    "a counter": Hostile(lambda x: np.sum(x) * count(), TAPE, before=set_unseen),
    "a counter, late": Hostile(
        lambda x: np.sum(x) * (2.0 if count() > LATE else 1.0), TAPE, before=set_unseen
    ),
    "NumPy's random numbers": Hostile(
        lambda x: np.sum(x) * np.random.random(), TAPE, before=np.random.seed
    ),
    "a generator of its own": Hostile(
        lambda x: np.sum(x * np.random.default_rng(3).normal(size=5))
    ),
    "an attribute is set": Hostile(kept, TAPE, before=lambda n: setattr(state, "kept", n)),
    "a cache by data": Hostile(cached, TAPE, late(1.0, 2.0)),
    "a cache of data": Hostile(cached_root, PROGRAM, late(np.eye(2), np.eye(2) + 1.0)),
    "lru_cache": Hostile(lambda x, a: np.sum(x) * cached_sine(a), TAPE, late(1.0, 2.0)),
}
