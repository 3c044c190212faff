"""Zips: collections of one length side by side."""

import re

import autograd
import autograd.numpy as np
import dask
import dask.array as da
import dask.bag as db
import pytest
from comparisons import bits
from lengths import in_short
from numpy.testing import assert_allclose
from samples import decades

import daskgrad as dg

pytestmark = pytest.mark.usefixtures("synchronous")

N = 21
X = np.linspace(0.2, 1.3, 4)
ROWS = decades(N, 4)
NUMBERS = decades(N, seed=1)
TREES = [{"a": decades(1 + n % 3, seed=n), "n": n} for n in range(N)]


def term(item, x):
    row, number, tree = item
    assert type(item) is tuple
    return np.dot(row, np.sin(x)) * number + np.sum(tree["a"]) * x[0] ** tree["n"]


def wave(item, x):
    row, number, tree = item
    return {"a": row * x, "b": number * np.sum(tree["a"]) * np.cos(x[0])}


def settled(total):
    return np.sum(np.sin(1e-12 * total["a"])) + 0.3 * np.log(3.0 + total["b"] ** 2)


def plain(model, x):
    terms = [model(item, x) for item in zip(ROWS, NUMBERS, TREES, strict=True)]
    if model is term:
        return sum(terms)
    return settled({"a": sum([t["a"] for t in terms]), "b": sum([t["b"] for t in terms])})


def value_and_gradient(model, zipped, grainsize="auto"):
    def objective(x):
        total = dg.map_sum(model, zipped, x, grainsize=grainsize)
        return total if model is term else dg.delayed(settled)(total)

    return dg.value_and_grad(objective)(X)


ARRAYS = [(10, 2), 4]
ZIPS = {
    "arrays and lists": lambda: (ROWS, NUMBERS, TREES),
    "tuples": lambda: (tuple(ROWS), tuple(NUMBERS), tuple(TREES)),
    "dask arrays": lambda: (*map(da.from_array, (ROWS, NUMBERS), ARRAYS), TREES),
    "delayed": lambda: (ROWS, list(NUMBERS), [dask.delayed(tree) for tree in TREES]),
    "placed": lambda: (dg.place(ROWS, 8), dg.place(NUMBERS, 8), TREES),
    "variables": lambda: (dg.variable(ROWS), NUMBERS, dg.variable(TREES)),
    "NumPy on variables": lambda: (0.5 * dg.variable(2.0 * ROWS), dg.variable(NUMBERS)[:], TREES),
}


@pytest.mark.parametrize("model", [term, wave])
@in_short("name", ZIPS, "tuples", "placed")
def test_a_zip_is_the_plain_loop_with_the_same_bits(name, model):
    expected = bits(value_and_gradient(model, dg.zip(*ZIPS["tuples"]()), 1))
    for grainsize in ("auto",) if name == "placed" else (1, 3, 8, 64, "auto"):
        found = value_and_gradient(model, dg.zip(*ZIPS[name]()), grainsize)
        assert bits(found) == expected, grainsize
    value, gradient = found
    assert_allclose(value, plain(model, X), rtol=1e-12)
    assert_allclose(gradient, autograd.grad(plain, 1)(model, X), rtol=1e-12)
    assert dg.map_sum(model, dg.zip(*ZIPS[name]()), dg.variable(X)).compute() is not None


def test_a_zip_of_one():
    value, _ = dg.value_and_grad(lambda x: dg.map_sum(lambda a, x: a[0] @ x, dg.zip(ROWS), x))(X)
    assert value == dg.map_sum(lambda a, x: np.dot(a, x), ROWS, X).compute()


def test_bags_and_dataframes_side_by_side():
    import dask.dataframe as dd
    import pandas

    rows = db.from_sequence(list(ROWS), npartitions=3)
    numbers = db.from_sequence(list(NUMBERS), npartitions=3)
    frame = dd.from_pandas(pandas.DataFrame(ROWS), npartitions=3, sort=False)

    def product(item, x):
        return np.dot(item[0], x) * item[1]

    def sliced(slices, x):
        assert type(slices) is tuple
        table, numbers = slices
        return sum([product(pair, x) for pair in zip(table.to_numpy(), numbers, strict=True)])

    right = np.sum(ROWS * NUMBERS[:, None], axis=0)
    for total in (
        lambda x: dg.map_sum(product, dg.zip(rows, numbers), x),
        lambda x: dg.reduce_sum(sliced, dg.zip(frame, numbers), x),
    ):
        gradient = dg.grad(total)(X)
        assert_allclose(gradient, right, rtol=1e-9, atol=1e-12 * np.max(np.abs(right)))


def test_slices_of_a_zip():
    rows, numbers = da.from_array(ROWS, chunks=((5, 16), (4,))), list(NUMBERS)
    placed = dg.place(ROWS, 4)

    def sizes(slices, x):
        rows, numbers = slices
        assert len(rows) == len(numbers)
        assert type(numbers) is list
        return x * np.array([1.0, len(rows) ** 2])

    one = dg.variable(1.0)
    for first, grainsize, expected in (
        (ROWS, 15, [15, 6]),
        (rows, "auto", [5, 16]),
        (rows, 15, [15, 6]),
        (placed, "auto", [4, 4, 4, 4, 4, 1]),
        (dg.variable(ROWS), 20, [20, 1]),
    ):
        found = dg.reduce_sum(sizes, dg.zip(first, numbers), one, grainsize=grainsize).compute()
        assert found.tolist() == [len(expected), sum([n**2 for n in expected])]


def test_items_that_numpy_makes_of_variables():
    def product(item, x):
        return item[0] ** 2 * np.sum(np.sin(item[1] * x))

    def objective(x, zipped, total):
        scales = np.exp(x)
        parts = scales[::-1].reshape(12, 2)
        pairs = total(product, zipped(scales[1:], x[:-1]), x)
        return pairs + total(lambda row, x: np.prod(row) * x[0], parts, x) + np.sum(scales**3)

    def plain(x):
        def total(model, items, x):
            return sum([model(item, x) for item in items])

        return objective(x, zip, total)

    def fun(x):
        return objective(x, dg.zip, dg.map_sum)

    some = np.linspace(0.2, 1.3, 24)
    right = autograd.grad(plain)(some)
    assert_allclose(dg.grad(fun)(some), right, rtol=1e-12)
    assert_allclose(dg.hessian(fun)(some), autograd.hessian(plain)(some), rtol=1e-11)
    assert_allclose(dg.jvp(fun, (some,), (some,)), [plain(some), right @ some], rtol=1e-12)
    for mode in ("forward", "reverse"):
        rows = dg.jacobian(lambda x: [fun(x), fun(2.0 * x)], mode=mode)(some)
        assert_allclose(rows[1], 2.0 * autograd.grad(plain)(2.0 * some), rtol=1e-12)
    large = np.linspace(0.1, 1.0, 20_000)  # too large to be computed in the calling thread
    found = dg.grad(lambda z: dg.reduce_sum(lambda pair: pair[0] @ pair[1], dg.zip(z**2, z)))(large)
    assert_allclose(found, 3.0 * large**2, rtol=1e-12)
    with pytest.raises(TypeError, match=r"which is float64.*; the variables that have items"):
        dg.map_sum(np.sin, dg.variable(X)[0])


def test_nodes_side_by_side_are_one_node_an_item():
    def product(item, x):
        return item[0] * np.dot(item[1], x)

    def objective(p, x):
        nodes = [dg.delayed(np.sin)(p[n]) for n in range(N)]
        pairs = dg.zip(nodes, ROWS)
        sliced = dg.reduce_sum(
            lambda pair, x: sum([b * np.dot(a, x) for b, a in zip(*pair, strict=True)]),
            pairs,
            x,
            grainsize=5,
        )
        return dg.map_sum(product, pairs, x) + sliced

    def plain(p, x):
        return 2.0 * sum([np.sin(p[n]) * np.sum(ROWS[n] * x) for n in range(N)])

    p = np.linspace(0.0, 1.0, N)
    for found, number in zip(dg.grad(objective, (0, 1))(p, X), (0, 1), strict=True):
        right = autograd.grad(plain, number)(p, X)
        assert_allclose(found, right, rtol=1e-9, atol=1e-12 * np.max(np.abs(right)))


# --------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize("reduce", [dg.map_sum, dg.reduce_sum])
def test_bags_whose_partitions_are_not_of_one_length(reduce):
    numbers = db.range(9, 3)
    pairs = dg.zip(numbers, numbers.filter(lambda n: n != 7))

    def never(item, x):
        return x

    for ask in (
        lambda: reduce(never, pairs, dg.variable(1.0)).compute(),
        lambda: dg.grad(lambda x: reduce(never, pairs, x))(1.0),
    ):
        message = "zipped items of model 'never' must .*; .*partition 2 has 3 and 2 items"
        with pytest.raises(ValueError, match=message):
            ask()


def test_zips_that_are_split_at_different_places():
    chunks = [da.from_array(ROWS, chunks=(size, 4)) for size in (5, 7)]
    nodes, places = [dg.variable(n) for n in NUMBERS], [dg.place(ROWS, size) for size in (4, 8)]
    placed = "placed in blocks of 4, and grainsize=8"
    for items, error, message in (
        (dg.zip(places[0], ROWS), ValueError, placed),
        (dg.zip(*places), ValueError, "are split at different places; place them"),
        (dg.zip(nodes, places[0]), TypeError, "one node an item, and cannot be zipped with"),
        (dg.zip(nodes, chunks[0]), TypeError, "one node an item, and cannot be zipped with"),
    ):
        with pytest.raises(error, match=message):
            dg.map_sum(term, items, X, grainsize=8 if message == placed else "auto")
    with pytest.raises(ValueError, match="rechunk them alike, or give a grainsize"):
        dg.reduce_sum(term, dg.zip(*chunks), X)


def test_an_error_names_the_item_of_a_zip():
    def failing(item, x):
        raise ArithmeticError("no")

    with pytest.raises(ArithmeticError) as caught:
        dg.grad(lambda x: dg.map_sum(failing, dg.zip(ROWS, NUMBERS), x))(1.0)
    message = r"'failing', item \d+, called with \(tuple\(float64\[4\], float64\[\]\)"
    assert any(re.search(message, note) for note in caught.value.__notes__)
    assert repr(dg.zip([1.0], [2.0])) == "<Zip of 2 collections>"
