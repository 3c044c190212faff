"""A class of a script stays as it is where it is defined, and changes where it was sent."""

import enum
import functools

import cloudpickle
import cloudpickle.cloudpickle as private
import dask
import numpy as np
import pytest
from clusters import cluster
from numpy.testing import assert_array_equal
from schedulers import SCHEDULERS

import daskgrad as dg
from daskgrad.autodiff.programs import store
from daskgrad.autodiff.values import pickling

SOURCE = """
import dataclasses, enum
import numpy as np

class Plain:
    factor = 2.0
    def __init__(self, item):
        self.item = item
    def term(self, x):
        return np.sum(self.item * self.factor * np.sin(x))

@dataclasses.dataclass
class Data(Plain):
    item: float

class Listed(enum.Enum):
    ONE = 1.0
    def term(self, x):
        return np.sum(self.value * x)

calls = []
def noted(x):
    calls.append(x)
    return len(calls)

KEPT = Plain(2.0)
def helped(item, x):
    return item * KEPT.term(x)
"""
X = np.linspace(0.1, 1.0, 4)


@pytest.fixture
def script():
    namespace = {"__name__": "__main__"}
    exec(SOURCE, namespace)
    return namespace


def attributes(kind):
    return {**vars(kind)}


def are_untouched(kind, before):
    """Pickle itself notes in a class which slots it has."""
    now = attributes(kind)
    return before.keys() == now.keys() - {"__slotnames__"} and all(
        now[name] is before[name] for name in before
    )


def objects(script):
    return [script["Plain"](3.0), script["Data"](2.0), script["Listed"].ONE]


@pytest.mark.parametrize("number", range(3))
def test_a_pickle_that_comes_back_leaves_the_class_as_it_is(script, number):
    thing = objects(script)[number]
    before = attributes(type(thing))
    result = cloudpickle.loads(cloudpickle.dumps(thing))
    assert type(result) is type(thing)
    assert are_untouched(type(thing), before)


@pytest.mark.parametrize("scheduler", SCHEDULERS, indirect=True)
def test_items_and_results_leave_their_classes_as_they_are(script, scheduler):
    items = objects(script)
    before = [attributes(type(item)) for item in items]
    expected = sum(item.term(X) for item in items)
    value, _ = dg.value_and_grad(lambda x: dg.map_sum(lambda item, x: item.term(x), items, x))(X)
    assert value == expected
    returned = dg.delayed(lambda item, x: [item, np.sum(x)])(items[0], X).compute()[0]
    assert type(returned) is type(items[0])
    assert all(map(are_untouched, map(type, items), before))


@pytest.mark.parametrize("model", ["helped", "method"])
def test_programs_of_a_script_outlive_calls_on_a_cluster(script, client, monkeypatch, model):
    """Its scheduler unpickles what is sent, in this process."""
    made, make = [], store.make_way
    monkeypatch.setattr(store, "make_way", lambda *args: (made.append(args), make(*args))[1])
    fun = script["KEPT"].term if model == "method" else functools.partial(script["helped"], 2.0)
    gradient = dg.grad(dg.delayed(fun, compile=True))

    def here():
        with dask.config.set({"daskgrad.inline.seconds": 10.0, "scheduler": dask.get}):
            return [gradient(X) for _ in range(store.CALLS)][-1]  # the first ones are on the tape

    expected = here()
    assert len(made) == 1
    for _ in range(2):
        assert_array_equal(gradient(X), expected)
        returned = dask.compute(dask.delayed(script["KEPT"]), dask.delayed(script["helped"]))
        assert type(returned[0]) is script["Plain"]
        assert_array_equal(here(), expected)
    assert len(made) == 1


def test_a_function_that_arrives_in_this_process_is_a_copy_with_globals_of_its_own(script):
    with cluster(n_workers=1, processes=False, host=None):
        assert dg.delayed(script["noted"])(1.0).compute() == 1
        assert dask.delayed(script["noted"])(1.0).compute() == 1
    assert script["calls"] == []


def test_where_it_was_sent_a_class_becomes_what_it_is_now(script, monkeypatch):
    kind = script["Plain"]
    first = cloudpickle.dumps(kind)
    kind.factor = 5.0
    second = cloudpickle.dumps(kind)
    for name in ("_DYNAMIC_CLASS_TRACKER_BY_CLASS", "_DYNAMIC_CLASS_TRACKER_BY_ID"):
        monkeypatch.setattr(private, name, type(getattr(private, name))())  # another process
    monkeypatch.setattr(pickling, "_own", set())
    arrived = cloudpickle.loads(first)
    assert arrived is not kind
    assert arrived.factor == 2.0
    assert cloudpickle.loads(second) is arrived
    assert arrived.factor == 5.0


def test_cloudpickle_still_has_what_is_replaced():
    assert private._class_setstate.__wrapped__.__module__ == "cloudpickle.cloudpickle"
    assert private._get_or_create_tracker_id.__wrapped__.__name__ == "_get_or_create_tracker_id"
    assert enum.Enum not in pickling._own
