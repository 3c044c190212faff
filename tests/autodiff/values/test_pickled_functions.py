"""A function's pickle is kept only where nothing that it refers to can have changed."""

import math
import types

import autograd.numpy as np
import pytest
from autograd.scipy.special import logsumexp

from daskgrad.autodiff.tape import pickling
from daskgrad.autodiff.values.pickling import MOST_KEPT, are_same, parts_of

FACTOR = 2.0
TABLE = [1.0, 2.0]


def plain(x):
    return np.sum(x) * math.pi


def uses_a_number(x):
    return x * FACTOR


def uses_another(x):
    return uses_a_number(x) + plain(x)


def calls_itself(x):
    return x if x < 1.0 else calls_itself(x / 2.0)


def local(factor, container=None):
    def inner(x, offset=1.0):
        return x * factor + offset + (container[0] if container else 0.0)

    return inner


def uses_a_list(x):
    return x * TABLE[0]


def has_an_attribute(x):
    return x


has_an_attribute.note = [1]

KEPT = [plain, uses_a_number, uses_another, calls_itself, local(3.0), lambda x: np.sin(x)]
NOT_KEPT = [
    uses_a_list,
    has_an_attribute,
    local(3.0, [1.0]),
    local([1.0]),
    lambda x: logsumexp(x),  # rules may be defined for a primitive at any time
    np.sum,
    print,
    TABLE,
]


@pytest.mark.parametrize("fun", KEPT)
def test_a_function_of_fixed_things_is_pickled_once(fun, monkeypatch):
    own, pickled = as_of_a_script(fun), []
    pickles = pickling.dumps.__self__
    pickle = pickles._pickle
    monkeypatch.setattr(pickles, "_pickle", lambda fun: pickled.append(fun) or pickle(fun))
    assert parts_of(own) is not None
    first = pickling.dumps(own)
    assert pickling.dumps(own) is first
    assert len(pickled) == 1


@pytest.mark.parametrize("fun", NOT_KEPT)
def test_what_can_change_in_place_is_pickled_again(fun):
    assert parts_of(fun) is None


def as_of_a_script(fun):
    """The function as if it were not importable, so that cloudpickle sends it by value."""
    other = types.FunctionType(
        fun.__code__, fun.__globals__, fun.__name__, fun.__defaults__, fun.__closure__
    )
    other.__qualname__ = fun.__qualname__
    return other


def test_a_changed_global_default_or_closure_is_seen(monkeypatch):
    own = as_of_a_script(uses_a_number)
    assert pickling.loads(pickling.dumps(own))(1.0) == 2.0
    monkeypatch.setitem(globals(), "FACTOR", 5.0)
    assert pickling.loads(pickling.dumps(own))(1.0) == 5.0
    own.__defaults__ = (4.0,)
    assert pickling.loads(pickling.dumps(own))() == 20.0
    assert pickling.loads(pickling.dumps(local(3.0)))(1.0) == 4.0
    assert pickling.loads(pickling.dumps(local(7.0)))(1.0) == 8.0, "the code is the same"


def test_a_changed_function_that_it_calls_is_seen(monkeypatch):
    outer, inner = as_of_a_script(uses_another), as_of_a_script(uses_a_number)
    inner.__module__ = "__main__"
    monkeypatch.setitem(outer.__globals__, "uses_a_number", inner)
    before = parts_of(outer)
    assert before is not None
    assert are_same(before, parts_of(outer))
    inner.__defaults__ = (1.0,)
    assert not are_same(before, parts_of(outer))


def test_only_so_many_pickles_are_kept():
    for number in range(MOST_KEPT + 9):
        namespace = {"np": np, "__name__": __name__}
        exec(f"def made(x):\n    return np.sum(x) * {number}\n", namespace)
        pickling.dumps(namespace["made"])
    assert len(pickling.dumps.__self__._kept) == MOST_KEPT
