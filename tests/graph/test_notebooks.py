"""What nodes, variables and placed items show of themselves in notebooks."""

import xml.etree.ElementTree as xml

import autograd.numpy as np
import dask
import numpy
import pytest
from distributed import wait

import daskgrad as dg

X = numpy.ones((3, 2))
EVIL = "<script>alert(1)</script>"


def total(y):
    return np.sum(y)


def rows(collection):
    """The cells of each row of the tables, which are well-formed."""
    html = collection._repr_html_().replace(" class=number", "")
    return [[cell.text for cell in row] for row in xml.fromstring(f"<div>{html}</div>").iter("tr")]


def test_a_variable_tells_its_leaves():
    x = dg.variable({"a": X, "b": [2.0, numpy.float32(1)]}, name="x")
    assert rows(x) == [
        ["variable x", "dtype", "shape", "bytes"],
        ["x['a']", "float64", "(3, 2)", "48 B"],
        ["x['b'][0]", "float64", "()", "8 B"],
        ["x['b'][1]", "float32", "()", "4 B"],
    ]
    assert rows(x["a"])[1] == ["x['a']", "float64", "(3, 2)", "48 B"]
    many = rows(dg.variable([1.0] * 100, name="x"))  # of many leaves the first ones are shown
    assert len(many) == 22
    assert many[-1] == ["80 more", None, None, "640 B"]


def test_a_node_tells_its_model_and_that_nothing_has_run():
    node = dg.delayed(total, name="loss", keep="tape")(dg.variable(X, name="x"))
    assert rows(node) == [
        ["CallNode", "loss"],
        ["model", "loss"],
        ["backend", 'autograd, compile="auto"'],
        ["keep", "tape"],
        ["takes in", "x"],
        ["state", "recorded; computing it runs its models"],
    ]
    assert ["takes in", "x, x, x, x, x, x, x, x … 50 nodes"] in rows(
        dg.sum([dg.variable(1.0, name="x") for _ in range(50)])
    )


@pytest.mark.parametrize("scheduler", ["sync", "cluster"], indirect=True)
def test_a_persisted_node_tells_its_state(scheduler):
    (held,) = dask.persist(dg.delayed(total)(dg.variable(X)))
    if scheduler == "cluster":
        wait(held)
        assert ["state", "persisted: finished"] in rows(held)
    else:
        assert ["state", "persisted in this process"] in rows(held)
        assert ["total", "float64", "()", "8 B"] in rows(held)


def test_placed_items_tell_their_plan(client):
    with dg.place([X] * 6, grainsize=1) as shards:
        table = rows(shards)
        assert ["items", "6"] in table
        assert ["cut into", "6 blocks of 1"] in table
        assert sum([int(row[2]) for row in table if row[0].startswith("tcp:")]) == 6
        assert table[-1][-1] == "not measured yet"
        with dask.config.set({"daskgrad.inline.seconds": 1.0}):
            dg.grad(lambda x: dg.map_sum(lambda item, x: np.sum(item * x), shards, x))(X)
        assert rows(shards)[-1][-1].endswith("s")
    assert shards._repr_html_() == "&lt;Shards: closed&gt;"


def test_placed_items_without_a_cluster_have_no_plan():
    table = rows(dg.place([X] * 6))
    assert table[0] == ["Shards", "this process"]
    assert table[-1][0] == "size"


@pytest.mark.parametrize(
    "made",
    [
        lambda: dg.variable(X, name=EVIL),
        lambda: dg.variable({EVIL: X}, name="x"),
        lambda: dg.delayed(total, name=EVIL)(dg.variable(X, name=EVIL)),
    ],
)
def test_names_are_escaped(made):
    html = made()._repr_html_()
    assert EVIL not in html
    assert "&lt;script&gt;" in html


def test_a_constant_tells_its_dtype_and_shape():
    (large,) = dg.delayed(total)(numpy.ones((300, 300))).inputs
    assert rows(large)[1] == ["value", "float64", "(300, 300)", "703 kiB"]
    (given,) = dg.delayed(total)(dask.delayed(X)).inputs
    assert rows(given)[1] == ["value", "DelayedLeaf", None, None]
