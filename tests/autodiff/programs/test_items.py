"""Items that were seen before: looked at once, and each change to them is seen."""

import gc
import pickle
import weakref
from dataclasses import dataclass
from typing import NamedTuple

import autograd.numpy as np
import dask
import numpy
import pytest
from comparisons import assert_same

import daskgrad as dg
from daskgrad.autodiff.programs import blocks, store
from daskgrad.autodiff.programs import items as items_of_sums
from daskgrad.autodiff.programs.items import ItemList, facts_of

COUNT = 80  # a sum of fewer may be one program with what is around it
RANDOM = numpy.random.default_rng(0)
P = RANDOM.normal(size=3)


@pytest.fixture(autouse=True)
def _soon(monkeypatch):
    """Programs at the second call, batches at once, in one run of all items."""
    monkeypatch.setattr(store, "CALLS", 2)
    monkeypatch.setattr(blocks, "SERVED", 1)
    with dask.config.set({"daskgrad.inline.seconds": 60}):
        yield


@dataclass
class Patient:
    doses: numpy.ndarray
    levels: numpy.ndarray


class Pair(NamedTuple):
    doses: numpy.ndarray
    levels: numpy.ndarray


def of_tuple(item, p):
    doses, levels = item
    return np.sum((doses * p[0] - levels) ** 2) / len(doses) + p[1] * np.sum(levels)


def of_dict(item, p):
    return of_tuple((item["doses"], item["levels"]), p)


def of_object(item, p):
    return of_tuple((item.doses, item.levels), p)


KINDS = {
    "tuples": (of_tuple, lambda doses, levels: (doses, levels)),
    "named tuples": (of_object, Pair),
    "dicts": (of_dict, lambda doses, levels: {"doses": doses, "levels": levels}),
    "objects": (of_object, Patient),
}


def pairs(is_ragged):
    sizes = [4 + n % 5 if is_ragged else 6 for n in range(COUNT)]
    return [(RANDOM.normal(size=size), RANDOM.normal(size=size)) for size in sizes]


@pytest.fixture(params=KINDS)
def kind(request):
    return KINDS[request.param]


@pytest.fixture(params=[False, True], ids=["of one size", "ragged"])
def is_ragged(request):
    return request.param


def results(model, items, compile):
    compiled = dg.delayed(model, compile=compile)
    return dg.value_and_grad(lambda p: dg.map_sum(compiled, items, p))(P)


def known_to(model, items):
    """A gradient whose items have gone in batches and are known."""
    compiled = dg.delayed(model, compile=True)
    gradient = dg.value_and_grad(lambda p: dg.map_sum(compiled, items, p))
    for _ in range(6):
        gradient(P)
    return gradient


def change_an_array(items, kind):
    leaf = arrays_of(items[7])[1]
    leaf[2] = 5.0


def exchange_an_item(items, kind):
    items[9] = kind[1](RANDOM.normal(size=5), RANDOM.normal(size=5))


def exchange_two_items(items, kind):
    items[3], items[8] = items[8], items[3]


def shorten(items, kind):
    del items[10:]


def reshape_one(items, kind):
    for array in arrays_of(items[COUNT // 2]):
        reshape(array, 2 - array.size % 2, -1)


def reshape_all(items, kind):
    for item in items:
        for array in arrays_of(item):
            reshape(array, -1, 1)


def change_a_dtype(items, kind):
    leaf = arrays_of(items[COUNT // 2])[1]
    leaf[...] = 0.0
    set_dtype(leaf, numpy.int64)


def reshape(array, *shape):
    array.resize(numpy.empty(array.size).reshape(shape).shape, refcheck=False)


def set_dtype(array, dtype):
    array.__setstate__((1, array.shape, numpy.dtype(dtype), False, array.tobytes()))


def arrays_of(item):
    if isinstance(item, dict):
        return [item["doses"], item["levels"]]
    return [item.doses, item.levels] if isinstance(item, Patient) else list(item)


def set_lengths(items, kind):
    """Two arrays, whose entries together are as many as before."""
    for item, size in ((items[6], 4), (items[7], 8)):
        for array in arrays_of(item):
            data = numpy.resize(array.ravel(), size)
            array.__setstate__((1, (size,), array.dtype, False, data.tobytes()))


CHANGES = [
    set_lengths,
    change_an_array,
    exchange_an_item,
    exchange_two_items,
    shorten,
    reshape_one,
    reshape_all,
    change_a_dtype,
]


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_is_seen_at_the_next_call(kind, is_ragged, change):
    model, make = kind
    items = [make(doses, levels) for doses, levels in pairs(is_ragged)]
    gradient = known_to(model, items)
    change(items, kind)
    expected = results(model, items, False)
    assert_same(gradient(P), expected)
    assert_same(gradient(P), expected)


@pytest.mark.parametrize("change", [reshape_one, reshape_all])
def test_another_shape_is_seen_where_items_go_one_by_one(change, monkeypatch):
    monkeypatch.setattr(blocks, "SERVED", 10**9)
    items = pairs(False)
    gradient = known_to(of_tuple, items)
    change(items, KINDS["tuples"])
    assert_same(gradient(P), results(of_tuple, items, False))


@pytest.mark.parametrize("kind", ["dicts", "objects"], indirect=True)
def test_another_array_in_an_item_is_seen(kind, is_ragged):
    model, make = kind
    items = [make(doses, levels) for doses, levels in pairs(is_ragged)]
    gradient = known_to(model, items)
    other = RANDOM.normal(size=len(arrays_of(items[5])[0]))
    if isinstance(items[5], dict):
        items[5]["doses"] = other
    else:
        items[5].doses = other
    assert_same(gradient(P), results(model, items, False))


def test_dicts_with_other_names_are_seen():
    items = [{"doses": doses, "levels": levels} for doses, levels in pairs(False)]

    def model(item, p):
        return of_dict(item, p) * len(item)

    gradient = known_to(model, items)
    items[3]["more"] = items[3]["doses"]
    assert_same(gradient(P), results(model, items, False))


def test_named_tuples_may_have_methods_of_their_own():
    class Row(NamedTuple):
        doses: numpy.ndarray
        levels: numpy.ndarray

        def __getitem__(self, name):
            return 10.0 * getattr(self, name)

    def model(item, p):
        return np.sum((item["doses"] * p[0] - item["levels"]) ** 2)

    items = [Row(doses, levels) for doses, levels in pairs(False)]
    assert_same(known_to(model, items)(P), results(model, items, False))


def test_a_mask_that_becomes_a_mask_of_bits_is_seen():
    items = [(doses, numpy.ones(6, numpy.int8)) for doses, _ in pairs(False)]

    def model(item, p):
        return np.sum(~item[1]) * p[0] + np.sum(item[0] * p)

    items = [(doses[:3], mask) for doses, mask in items]
    gradient = known_to(model, items)
    set_dtype(items[9][1], numpy.bool_)
    assert_same(gradient(P), results(model, items, False))


def test_data_sets_without_arrays_are_not_kept():
    count = len(items_of_sums._known)
    for _ in range(3):
        items = [(float(n), "x" * 1000) for n in range(COUNT)]
        known_to(lambda item, p: item[0] * p[0] * len(item[1]), items)
    assert len(items_of_sums._known) == count


@pytest.fixture
def keyed(monkeypatch):
    """How many leaves got keys."""
    counts, keys_of = [], items_of_sums.keys_of

    def counted(leaves, looks):
        counts.append(len(leaves))
        return keys_of(leaves, looks)

    monkeypatch.setattr(items_of_sums, "keys_of", counted)
    return counts


def test_known_items_are_looked_at_once(kind, is_ragged, keyed):
    model, make = kind
    items = [make(doses, levels) for doses, levels in pairs(is_ragged)]
    gradient = known_to(model, items)
    keyed.clear()
    gradient(P)
    assert not keyed
    items.append(items[0])
    gradient(P)
    assert keyed


def test_nothing_keeps_items_alive(kind):
    model, make = kind
    items = [make(doses, levels) for doses, levels in pairs(False)]
    gradient = known_to(model, items)
    gradient(P)
    count, one = len(items_of_sums._known), weakref.ref(arrays_of(items[0])[0])
    items.clear()
    gc.collect()
    assert one() is None
    assert len(items_of_sums._known) < count


def test_what_is_known_is_bounded(monkeypatch):
    items_of_sums._known.clear()
    monkeypatch.setattr(items_of_sums, "_held", 0)
    monkeypatch.setattr(items_of_sums, "MOST_KNOWN", 100)
    columns = [[[RANDOM.normal(size=2) for _ in range(30)]] for _ in range(8)]
    for column in 3 * columns:
        facts_of(column)
    held = sum([facts.count for facts in items_of_sums._known.values()])
    assert held == items_of_sums._held <= 100
    assert facts_of(columns[-1]) is facts_of(columns[-1])


def test_leaves_that_may_change_are_not_known():
    class Thing:
        pass

    column = [Thing() for _ in range(3)]
    for _ in range(4):
        facts_of([column])
    assert facts_of([column]) is not facts_of([column])


def test_a_list_of_items_travels_as_a_list():
    items = ItemList(pairs(False))
    assert type(pickle.loads(pickle.dumps(items))) is list
    assert type(items[:3]) is list
