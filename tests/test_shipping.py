"""Items that travel with every call: one warning, with the bytes and what to write instead."""

import warnings

import autograd.numpy as np
import dask
import numpy
import pytest

import daskgrad as dg

HEAVY = [numpy.ones(2000) for _ in range(40)]


def fresh(name):
    """A model of its own name: something is said once of each."""
    return dg.delayed(lambda item, x: np.sum(item) * x, name=name)


def test_heavy_items_are_complained_of_at_the_third_call_and_once(client):
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


def test_pullbacks_too(client):
    for _ in range(2):
        dg.vjp(lambda x: dg.map_sum(fresh("pulled"), HEAVY, x), 1.0)
    with pytest.warns(UserWarning, match="over 'pulled' were sent"):
        dg.vjp(lambda x: dg.map_sum(fresh("pulled"), HEAVY, x), 1.0)


@pytest.mark.parametrize("where", ["few bytes", "placed", "no cluster", "a variable"])
def test_nothing_is_said_where_nothing_can_be_done(where, client):
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
