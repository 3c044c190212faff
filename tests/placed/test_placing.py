"""Placed columns: several collections, placed together, are items that are tuples."""

import threading
from contextlib import nullcontext

import autograd.numpy as np
import dask
import dask.array as da
import dask.bag as db
import numpy
import pytest
from clusters import cluster, tasks_run
from comparisons import assert_close, assert_same
from lengths import in_short
from placed_programs import keeping
from probes import lines, write

import daskgrad as dg

pytestmark = pytest.mark.timeout(120)

COUNT = 45
GENERATOR = numpy.random.default_rng(7)
Y = GENERATOR.poisson(2.0, COUNT)
ROWS = GENERATOR.standard_normal((COUNT, 4))
GROUPS = GENERATOR.integers(0, 5, COUNT).astype(np.int32)
RAGGED = [GENERATOR.standard_normal(2 + number % 5) for number in range(COUNT)]
X = numpy.linspace(-0.5, 1.0, 4)
Z = GENERATOR.standard_normal(5)
P = GENERATOR.standard_normal((COUNT, 3))
DTYPES = (Y.dtype, ROWS.dtype, GROUPS.dtype)


def require(condition):
    """Models assert nothing themselves: in tests that would refer to pytest's modules, all of which
    a compiled model would follow."""
    if not condition:
        raise TypeError


def item(columns, x, z):
    require(type(columns) is tuple)
    y, row, group = columns
    require((np.result_type(y), row.dtype, np.result_type(group)) == DTYPES)
    eta = np.dot(row, x) + z[group]
    return y * eta - np.exp(eta)


def slices(columns, x, z):
    require(type(columns) is tuple)
    y, rows, groups = columns
    require((y.dtype, rows.dtype, groups.dtype) == DTYPES and not rows.flags.writeable)
    eta = np.dot(rows, x) + z[groups]
    return np.sum(y * eta - np.exp(eta))


def vector(columns, x, z):
    y, row, group = columns
    return y * np.sin(row * x) + z[group]


def of_item(pair, x, z):
    p, columns = pair
    return item(columns, x, z) * np.sum(np.cos(p))


def of_slice(pair, x, z):
    p, (y, rows, groups) = pair
    return np.sum(np.cos(p) @ np.ones(3) * y * (np.dot(rows, x) + z[groups]))


def flat(pair, x, z):
    """The model of the same items where nothing is placed: the parameter is beside the columns."""
    return of_item((pair[0], pair[1:]), x, z)


def flat_slice(pair, x, z):
    return of_slice((pair[0], pair[1:]), x, z)


def ragged(columns, x, z):
    part, row = columns
    return np.sum(np.sin(part * x[0])) + np.sum(row * x) * z[0]


def settled(total):
    return np.sum(np.sin(total))


def data(place=None, *grainsize):
    columns = dg.zip(Y, ROWS, GROUPS)
    return columns if place is None else place(columns, *grainsize)


# placed, and the same without; what is placed is made by ``place``, and None says not to
PROGRAMS = {
    "items": lambda place, p, x, z: dg.map_sum(item, data(place), x, z),
    "slices": lambda place, p, x, z: dg.reduce_sum(slices, data(place), x, z),
    "several slices": lambda place, p, x, z: dg.reduce_sum(
        slices, data(place, 11), x, z, grainsize=11
    ),
    "both": lambda place, p, x, z: (
        dg.map_sum(item, data(place), x, z) * dg.reduce_sum(slices, data(place), x, z)
    ),
    "arrays": lambda place, p, x, z: dg.delayed(settled)(dg.map_sum(vector, data(place), x, z)),
    "compensated": lambda place, p, x, z: dg.map_sum(
        item, data(place), x, z, summation="compensated"
    ),
    "a parameter of each": lambda place, p, x, z: (
        dg.map_sum(of_item, dg.zip(p, data(place)), x, z)
        if place
        else dg.map_sum(flat, dg.zip(p, Y, ROWS, GROUPS), x, z)
    ),
    "a parameter of each in slices": lambda place, p, x, z: (
        dg.reduce_sum(of_slice, dg.zip(p, data(place, 4)), x, z)
        if place
        else dg.reduce_sum(flat_slice, dg.zip(p, Y, ROWS, GROUPS), x, z, grainsize=4)
    ),
    "lists": lambda place, p, x, z: dg.map_sum(
        ragged, (place or (lambda columns: columns))(dg.zip(RAGGED, ROWS)), x, z
    ),
}


def unused(fun):
    return lambda place: lambda p, x, z: fun(place, p, x, z) + dg.delayed(nothing)(p, x, z)


def nothing(p, x, z):
    return 0.0 * (np.sum(p) + np.sum(x) + np.sum(z))


DERIVATIVES = {
    "gradient": lambda fun: dg.value_and_grad(fun, (0, 1, 2))(P, X, Z),
    "tangent": lambda fun: dg.jvp(fun, (P, X, Z), (np.cos(P), np.sin(X), Z)),
    "second": lambda fun: dg.hvp(fun, (P, X, Z), (np.cos(P), np.sin(X), Z)),
    "value": lambda fun: fun(P, dg.variable(X), Z).compute(),
}


@in_short("name", PROGRAMS, "a parameter of each in slices")
def test_placed_columns_have_the_bits_of_the_zip(name, local):
    program, place = unused(PROGRAMS[name]), keeping()
    for derive in DERIVATIVES.values():
        with dask.config.set(scheduler="sync"):
            expected = derive(program(None))
            assert_same(derive(program(dg.place)), expected)
        assert_same(derive(program(place)), expected)
        with dask.config.set({"daskgrad.resident.enabled": False}):
            assert_same(derive(program(place)), expected)


def test_they_are_evaluated_where_they_are(local):
    for name in ("items", "slices", "a parameter of each in slices"):
        place, program = keeping(), PROGRAMS[name]
        gradient = dg.grad(lambda x, place=place, program=program: program(place, P, x, Z))
        gradient(X)
        before = tasks_run(local)
        gradient(X)
        assert tasks_run(local) == before


def test_each_items_gradient(local):
    expected = dg.per_item(item, data(), gradient="full")(X, Z)
    assert_same(dg.per_item(item, data(dg.place), gradient="full")(X, Z), expected)


COMPUTED = {
    "arrays": lambda: dg.zip(
        da.from_array(Y, chunks=7), da.from_array(ROWS, chunks=(10, 2)), GROUPS
    ),
    "Delayed": lambda: dg.zip(
        Y, [dask.delayed(row) for row in ROWS], da.from_array(GROUPS, chunks=45)
    ),
    "bags": lambda: dg.zip(
        *[db.from_sequence(list(column), npartitions=4) for column in (Y, ROWS, GROUPS)]
    ),
}


@pytest.mark.parametrize("name", COMPUTED)
def test_dask_collections_are_computed(name, synchronous):
    shards = dg.place(COMPUTED[name]())
    result = dg.value_and_grad(lambda x: dg.map_sum(item, shards, x, Z))(X)
    assert_same(result, dg.value_and_grad(lambda x: dg.map_sum(item, data(), x, Z))(X))


def test_bags_of_several_lengths():
    numbers = db.range(9, 3)
    with pytest.raises(ValueError, match="the same length; found lengths 9 and 8"):
        dg.place(dg.zip(numbers, numbers.filter(lambda n: n != 7)))


def of_frame(frame, x):
    require(frame.shape[1] == 4)
    values = frame.to_numpy(copy=True)
    return np.sum(np.sin(np.dot(values, x)))


def table(npartitions):
    import dask.dataframe as dd
    import pandas

    return dd.from_pandas(pandas.DataFrame(ROWS), npartitions=npartitions)


@pytest.mark.parametrize("workers", [0, 2])
def test_partitions_of_a_dataframe_are_items_and_slices(workers):
    """With the bits of the table that is not placed, and of the partitions as a list."""
    frames = dask.compute(*table(5).to_delayed())
    with cluster(processes=False, host=None, n_workers=workers) if workers else nullcontext():
        shards = dg.place(table(5))
        sums = [
            lambda x: dg.reduce_sum(of_frame, table(5), x),
            lambda x: dg.reduce_sum(of_frame, shards, x),
            lambda x: dg.map_sum(of_frame, shards, x),
            lambda x: dg.map_sum(of_frame, list(frames), x),
            lambda x: dg.reduce_sum(lambda fields, x: of_frame(fields[0], x), pairs, x),
        ]
        pairs = dg.place(dg.zip(table(5), table(5)))
        first, *others = [dg.value_and_grad(each)(X) for each in sums]
        for other in others:
            assert_same(other, first)
        delayed = dask.delayed(X)
        gradient = dg.grad(
            lambda x: dg.reduce_sum(lambda f, x, y: of_frame(f, x), shards, x, delayed)
        )
        assert_same(gradient(X), first[1])
        few = dg.grad(lambda x, s: dg.reduce_sum(of_frame, s, x))(X, shards.sample(2, seed=1))
        assert few.shape == X.shape
        shards.close()


# ---------------------------------------------------------------------------------------- slices


MANY = 2**17  # rows in four slices


def sizes(rows, x):
    return np.array([1.0, float(len(rows)) ** 2]) * x


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_the_slices_do_not_depend_on_the_workers(workers):
    rows = np.zeros((MANY, 2))

    def summed(rows):
        return dg.reduce_sum(sizes, rows, dg.variable(1.0)).compute().tolist()

    def placed():
        shards = dg.place(rows)
        result = summed(shards)
        assert "4 slices of 32768" in repr(shards)
        return result

    expected = [4.0, 4.0 * (MANY / 4) ** 2]
    assert summed(rows) == expected
    if workers:
        with cluster(n_workers=workers, processes=False, host=None):
            assert placed() == expected
    else:
        with dask.config.set(scheduler="sync"):
            assert placed() == expected


@pytest.mark.parametrize(("workers", "size"), [(2, 15), (3, 10)])
def test_few_rows_are_evaluated_by_all_workers_if_place_is_told(workers, size, tmp_path):
    """In slices of just this size, with the bits of equal slices here."""

    def errors(columns, x):
        write(tmp_path / str(workers), str(threading.get_ident()))
        rain, flow = columns
        return np.sum((flow - x * np.cumsum(rain, axis=1)) ** 2)

    def evaluate(series, **options):
        return dg.value_and_grad(lambda x: dg.reduce_sum(errors, series, x, **options))(0.5)

    series = dg.zip(*GENERATOR.standard_normal((2, 30, 40)))
    with cluster(n_workers=workers, processes=False, host=None), dg.place(series, size) as shards:
        found = evaluate(shards)
        assert [plan.items for plan in shards.plan] == [size] * workers
    assert len({*lines(tmp_path / str(workers))}) == workers
    with dask.config.set(scheduler="sync"):
        assert_same(found, evaluate(series, grainsize=size))


def keys(client):
    return sum([len(held) for held in client.has_what().values()])


def test_items_are_on_the_workers_as_they_are_used(local):
    """In blocks of items or in slices, and in both only where both are used."""
    before = keys(local)
    with dg.place(np.zeros((MANY, 2))) as shards:
        blocks = len(shards.blocks)
        assert keys(local) - before == blocks
        assert blocks >= 64
        dg.zip(shards, np.zeros(MANY))
        assert len(shards.plan) == 2, "a zip as such asks for no slices"
        by_slices = dg.reduce_sum(sizes, shards, dg.variable(1.0))
        for _ in range(2):
            by_slices.compute()
            assert sum([plan.blocks for plan in shards.plan]) == 4
        dg.map_sum(np.sum, shards).compute()
        assert sum([plan.blocks for plan in shards.plan]) == 4 + blocks
        by_slices.compute()
        assert sum([plan.blocks for plan in shards.plan]) == 4 + blocks
    assert shards.plan == []
    with pytest.raises(RuntimeError, match="these shards are closed"):
        dg.reduce_sum(sizes, shards, 1.0)


def test_placed_columns_inside_a_model(synchronous):
    shards = dg.place(dg.zip(Y, ROWS, GROUPS))
    for add_up, term in ((dg.map_sum, item), (dg.reduce_sum, slices)):
        inside = dg.delayed(lambda x, f=add_up, t=term: f(t, shards, x, Z))
        result = dg.value_and_grad(inside)(X)
        expected = dg.value_and_grad(lambda x, f=add_up, t=term: f(t, data(), x, Z))(X)
        assert_close(result, expected, 1e-13)
