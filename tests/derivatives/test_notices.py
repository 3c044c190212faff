"""Items that travel with every call: one warning, with the bytes and what to write instead."""

import warnings

import autograd.numpy as np
import dask
import numpy
import pytest
from distributed import Client

import daskgrad as dg

HEAVY = [numpy.ones(2000) for _ in range(40)]


@pytest.fixture(scope="module", autouse=True)
def _cluster():
    """Two workers in this process: what is sent is counted as it leaves the client."""
    with Client(processes=False, n_workers=2, threads_per_worker=1, dashboard_address=":0"):
        yield


def fresh(name):
    """A model of its own name: something is said once of each."""
    return dg.delayed(lambda item, x: np.sum(item) * x, name=name)


def test_heavy_items_are_complained_of_at_the_third_call_and_once():
    gradient = dg.grad(lambda x: dg.map_sum(fresh("heavy"), HEAVY, x))
    gradient(1.0)
    gradient(2.0)
    with pytest.warns(UserWarning, match="the 40 items of the sum over 'heavy' were sent") as told:
        gradient(3.0)
    (warning,) = told
    assert "3 times, 1.83 MiB in all" in str(warning.message)
    assert "shards = dg.place(items)" in str(warning.message)
    assert warning.filename == __file__
    gradient(4.0)


def told_of(gradient):
    return told_of_calls([lambda: gradient(2.0)] * 3)


def told_of_calls(calls):
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for call in calls:
            call()
    return [str(each.message) for each in told if "sent to the cluster" in str(each.message)]


@pytest.mark.parametrize("where", ["few bytes", "placed", "no cluster", "a variable"])
def test_nothing_is_said_where_nothing_can_be_done(where):
    items = {"few bytes": [1.0, 2.0], "placed": dg.place(HEAVY)}.get(where, HEAVY)
    model = fresh(where)

    def objective(x):
        return dg.map_sum(model, x["own"] if where == "a variable" else items, x["x"])

    point = {"x": 1.0, "own": [numpy.ones(2000)] * 40}
    config = {"scheduler": "sync"} if where == "no cluster" else {"scheduler": None}
    with dask.config.set(config), warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*does not depend.*")
        for _ in range(4):
            dg.value_and_grad(objective)(point)


OF_BATCHES = {
    "items": lambda batch, x: dg.map_sum(fresh("other items"), batch, x),
    "rows": lambda batch, x: dg.map_sum(fresh("other rows"), np.array(batch), x),
}


@pytest.mark.parametrize("where", OF_BATCHES)
def test_nothing_is_said_of_what_is_another_one_in_every_call(where):
    def calls(batches):
        return [lambda b=b: dg.grad(lambda x: OF_BATCHES[where](b, x))(2.0) for b in batches]

    assert told_of_calls(calls([[row + n for row in HEAVY] for n in range(4)])) == []


def test_other_lists_of_the_same_items_and_the_same_rows_are_the_same():
    rows = numpy.array(HEAVY)
    for name, items in (("made anew", lambda: list(HEAVY)), ("rows", lambda: rows)):
        gradient = dg.grad(lambda x, n=name, i=items: dg.map_sum(fresh(n), i(), x))
        assert len(told_of(gradient)) == 1


def of_pair(pair, x):
    return np.sum(pair[0]) * pair[1] * x


def of_slices(pair, x):
    return sum([of_pair(each, x) for each in zip(*pair, strict=True)])


@pytest.mark.parametrize(
    ("add_up", "term"),
    [(dg.map_sum, of_pair), pytest.param(dg.reduce_sum, of_slices, marks=pytest.mark.long)],
    ids=["items", "slices"],
)
def test_what_is_zipped_with_placed_items_is_to_be_placed_with_them(add_up, term):
    shards, model = dg.place([1.0] * 40), dg.delayed(term, name=f"zipped {term.__name__}")

    def pulled_back(items):
        return lambda x: dg.vjp(lambda x: add_up(model, items, x), x)

    (told,) = told_of(pulled_back(dg.zip(HEAVY, shards)))
    assert "dg.place(dg.zip(a, b))" in told
    assert told_of(pulled_back(dg.place(dg.zip(HEAVY, [1.0] * 40)))) == []


def test_nothing_is_said_while_nans_are_looked_for():
    with dg.debug_nans():
        assert told_of(dg.grad(lambda x: dg.map_sum(fresh("watched"), HEAVY, x))) == []
