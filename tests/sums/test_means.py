"""Means: the bits of sums, divided, over whatever is summed over, and in all derivatives."""

import autograd.numpy as np
import dask
import dask.array
import dask.bag
import numpy
import pytest
from comparisons import bits
from lengths import in_short
from libraries import BACKENDS, arrays_of
from numpy.testing import assert_allclose
from policies import moving
from probes import lines, write
from samples import decades

import daskgrad as dg

pytestmark = pytest.mark.usefixtures("synchronous")

N = 37
X = np.linspace(0.2, 1.3, 4)
V = np.linspace(-1.0, 0.7, 4)
ROWS = numpy.random.default_rng(7).normal(size=(N, 4))
SMALL = ROWS[:5]


def dot(row, x):
    return np.dot(row, np.sin(x))


def weighted(pair, x):
    return np.dot(pair[0], np.cos(x)) * np.sum(pair[1])


def tree(row, x):
    return {"sum": np.sum(row * x), "both": (row * x, np.cos(x) * row[0])}


@dg.delayed
def settled(value):
    return np.tanh(value["sum"]) + np.sum(value["both"][0] * value["both"][1])


@dg.delayed
def plus_one(x):
    return x + 1.0


def bag():
    return dask.bag.from_sequence(list(ROWS), npartitions=5)


MEANS = {  # name -> (a mean, or with ``dg.map_sum`` the sum, and of how many)
    "rows": (lambda over, x: over(dot, ROWS, x), N),
    "a list in blocks": (lambda over, x: over(dot, list(ROWS), x, grainsize=4), N),
    "a range": (lambda over, x: over(lambda n, x: n * np.sum(x), range(7), x), 7),
    "one item": (lambda over, x: over(dot, ROWS[:1], x), 1),
    "compensated": (lambda over, x: over(dot, decades(N, 4), x, summation="compensated"), N),
    "trees": (lambda over, x: over(tree, ROWS, x), N),
    "placed": (lambda over, x: over(dot, dg.place(ROWS, 4), x), N),
    "a zip": (lambda over, x: over(weighted, dg.zip(list(ROWS), ROWS), x), N),
    "a zip with placed items": (lambda over, x: over(weighted, dg.zip(dg.place(ROWS), ROWS), x), N),
    "placed zips": (lambda over, x: over(weighted, dg.place(dg.zip(ROWS, ROWS)), x), N),
    "a variable's items": (lambda over, x: over(lambda a, x: a**3 * np.sum(x), x, x), 4),
    "a zip with a variable": (
        lambda over, x: over(lambda pair, x: pair[0] ** 2 * np.sum(pair[1] * x), dg.zip(x, X), x),
        4,
    ),
    "nodes": (lambda over, x: over(dot, [plus_one(x), x, ROWS[0]], x), 3),
    "one node": (lambda over, x: over(dot, [plus_one(x)], x), 1),
    "a dask Array": (lambda over, x: over(dot, dask.array.from_array(ROWS, chunks=(10, 2)), x), N),
    "a bag": (lambda over, x: over(dot, bag(), x), N),
    "a bag with empty partitions": (
        lambda over, x: over(dot, bag().filter(lambda row: row[0] > 1.0), x),
        int(numpy.sum(ROWS[:, 0] > 1.0)),
    ),
    "a zip of bags": (lambda over, x: over(weighted, dg.zip(bag(), bag()), x), N),
    "a list of Delayed": (lambda over, x: over(dot, list(map(dask.delayed, SMALL)), x), 5),
}


def divided(total, count):
    return {"sum": total["sum"] / count, "both": tuple([each / count for each in total["both"]])}


def mean_and_quotient(name):
    program, count = MEANS[name]
    quotient = dg.delayed(lambda total: divided(total, count))
    if name == "trees":
        return (
            lambda x: settled(program(dg.map_mean, x)),
            lambda x: settled(quotient(program(dg.map_sum, x))),
        )
    return lambda x: program(dg.map_mean, x), lambda x: program(dg.map_sum, x) / count


@pytest.mark.parametrize("name", MEANS)
def test_the_bits_are_those_of_the_sum_divided(name):
    mean, quotient = mean_and_quotient(name)
    expected = bits(dg.value_and_grad(quotient)(X))
    assert bits(dg.value_and_grad(mean)(X)) == expected
    for config in ({"daskgrad.inline.seconds": 60}, {"scheduler": moving}):
        with dask.config.set(config):
            assert bits(dg.value_and_grad(mean)(X)) == expected


@in_short("name", MEANS, "compensated", "placed zips", "a zip of bags")
def test_all_other_derivatives_are_those_of_the_sum_divided(name):
    mean, quotient = mean_and_quotient(name)
    for derive in (
        lambda fun: dg.jvp(fun, (X,), (V,)),
        lambda fun: [each[0] for each in dg.hvp(fun, (X,), (V,))],
        lambda fun: [dg.hessian(fun)(X)],
        lambda fun: dg.vjp(fun, X)[1](0.7),
    ):
        for found, expected in zip(derive(mean), derive(quotient), strict=True):
            assert_allclose(found, expected, rtol=1e-13, atol=1e-15)


def test_integers_and_booleans_have_a_mean_that_is_a_float():
    for terms, mean in (([1, 2], 1.5), ([True, False], 0.5), ([3], 3.0)):
        computed = dg.map_mean(terms.__getitem__, range(len(terms))).compute()
        assert computed == mean
        assert isinstance(computed, float)


def test_a_bag_is_computed_once(tmp_path):
    path = tmp_path / "log"
    items = bag().map(lambda row: write(path, "run") or row)
    dg.value_and_grad(lambda x: dg.map_mean(dot, items, x))(X)
    assert len(lines(path)) == N
    iterators = bag().map_partitions(iter)  # who reads one leaves nothing of it for the other
    mean = dg.map_mean(dot, iterators, dg.variable(X)).compute()
    assert_allclose(mean, np.mean(ROWS @ np.sin(X)), rtol=1e-12)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_mean_of_models_of_each_backend_and_inside_one(backend):
    arrays = arrays_of(backend)

    def term(row, x):
        return arrays.sum(arrays.sin(row * x))

    def inside(rows, x):  # a list: a tensor is none of the items of a sum
        found = dg.map_mean(lambda row, x: {"term": (term(row, x),)}, rows, x)
        zipped = dg.map_mean(lambda pair, x: term(pair[0], x), dg.zip(rows, rows), x)
        return 0.5 * found["term"][0] + 0.5 * zipped

    model, outer = [dg.delayed(fun, backend=backend) for fun in (term, inside)]
    slope = np.mean(SMALL * np.cos(SMALL * X), axis=0)
    tolerance = 1e-6 if backend == "jax" else 1e-12
    for mean in (lambda x: dg.map_mean(model, SMALL, x), lambda x: outer(list(SMALL), x)):
        value, gradient = dg.value_and_grad(mean)(X)
        assert_allclose(value, np.mean(np.sum(np.sin(SMALL * X), axis=1)), rtol=tolerance)
        assert_allclose(gradient, slope, rtol=tolerance)


def test_its_tasks_have_a_name():
    node = dg.map_mean(dot, ROWS, X)
    assert node.name == "mean"
    named = dg.map_mean(dot, ROWS, X, name="fit")
    assert (named.name, named.inputs[0].name) == ("fit", "fit")
