"""The collections that a sum may run over: right, the same bits, and nothing computed twice."""

import autograd
import autograd.extend
import autograd.numpy as np
import dask
import dask.array as da
import dask.bag as db
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from probes import lines, write
from samples import decades

import daskgrad as dg
from daskgrad.sums.cutting import as_block

pytestmark = pytest.mark.usefixtures("synchronous")

N = 37
X = np.linspace(0.2, 1.3, 5)
ROWS = decades(N, 5)
RAGGED = [decades(1 + n % 5, seed=n) for n in range(N)]


def dot(item, x):
    return np.dot(item, np.sin(x))


def ragged(item, x):
    return np.sum(item * x[: len(item)] ** 2)


def wave(item, x):
    return {"sum": np.sum(item) * x, "last": item[-1] * np.cos(x[0])}


def settled(total):
    return np.tanh(1e-9 * np.sum(total["sum"])) + 0.3 * np.log(3.0 + total["last"] ** 2)


def slice_sum(rows, x):
    return sum([dot(row, x) for row in rows])


def frame_sum(frame, x):
    values = np.array(frame.to_numpy().reshape(len(frame), -1), order="C")
    return np.sum(np.dot(values, np.sin(x[: values.shape[1]])))


def bits(objective):
    value, gradient = dg.value_and_grad(objective)(X)
    return np.asarray(value).tobytes(), gradient.tobytes()


def over(model, items, grainsize="auto"):
    """The bits of a sum of scalars, fused, or of trees, where each block has a backward task."""
    if model is wave:
        return bits(lambda x: dg.delayed(settled)(dg.map_sum(wave, items, x, grainsize=grainsize)))
    return bits(lambda x: dg.map_sum(model, items, x, grainsize=grainsize))


ARRAYS = {
    "chunks": lambda: da.from_array(ROWS, chunks=(10, 2)),
    "one chunk": lambda: da.from_array(ROWS, chunks=-1),
    "uneven and empty chunks": lambda: da.from_array(ROWS, chunks=((3, 20, 13, 1), (5,))).rechunk(
        ((3, 0, 20, 14), (5,))
    ),
    "strides": lambda: da.from_array(np.asfortranarray(np.repeat(ROWS, 2, 1)), chunks=(9, 10))[
        :, ::2
    ],
}


@pytest.mark.parametrize("model", [dot, wave])
@pytest.mark.parametrize("name", ARRAYS)
def test_rows_of_a_dask_array_give_the_bits_of_a_numpy_array(name, model):
    expected = over(model, ROWS, 1)
    for grainsize in (1, 3, 64, "auto"):
        assert over(model, ARRAYS[name](), grainsize) == expected, grainsize


@pytest.mark.parametrize("model", [ragged, wave])
def test_delayed_items_give_the_bits_of_a_list(model):
    items = [dask.delayed(item) for item in RAGGED]
    expected = over(model, RAGGED, 1)
    for grainsize in (1, 4, 64, "auto"):
        assert over(model, items, grainsize) == expected, grainsize
    assert over(model, [*items[:5], *RAGGED[5:]], 4) == expected, "some of them are computed"


def test_collections_are_the_plain_loop():
    import dask.dataframe as dd  # takes long
    import pandas

    frame = pandas.DataFrame(ROWS[:, :2])
    table = dd.from_pandas(frame, npartitions=4)
    bag = db.from_sequence(RAGGED, npartitions=6)
    array = da.from_array(ROWS, chunks=(10, 2))
    sums = [
        (lambda x: dg.map_sum(ragged, bag, x), lambda x: sum([ragged(a, x) for a in RAGGED])),
        (lambda x: dg.reduce_sum(frame_sum, table, x), lambda x: frame_sum(frame, x)),
        (lambda x: dg.reduce_sum(frame_sum, table[0], x), lambda x: frame_sum(frame[0], x)),
        (lambda x: dg.reduce_sum(slice_sum, array, x), lambda x: slice_sum(ROWS, x)),
        (
            lambda x: dg.reduce_sum(lambda part, x: sum([ragged(a, x) for a in part]), bag, x),
            lambda x: sum([ragged(a, x) for a in RAGGED]),
        ),
    ]
    for ours, plain in sums:
        value, gradient = dg.value_and_grad(ours)(X)
        assert_allclose(value, plain(X), rtol=1e-12)
        assert_allclose(gradient, autograd.grad(plain)(X), rtol=1e-12)
        assert ours(dg.variable(X)).compute() == value


def test_slices_of_collections():
    array = da.from_array(ROWS, chunks=((10, 20, 7), (2, 3)))

    def sizes(rows, x):
        return x * np.array([1.0, len(rows) ** 2]) if type(rows) is np.ndarray else None

    def squares(counts):
        return [float(len(counts)), float(sum([n**2 for n in counts]))]

    one = dg.variable(1.0)
    assert dg.reduce_sum(sizes, array, one).compute().tolist() == squares([10, 20, 7])
    found = dg.reduce_sum(sizes, array, one, grainsize=15).compute()
    assert found.tolist() == squares([15, 15, 7])
    some = array[array[:, 0] > 0]  # the rows are not counted
    counts = [int(np.sum(part[:, 0] > 0)) for part in (ROWS[:10], ROWS[10:30], ROWS[30:])]
    assert dg.reduce_sum(sizes, some, one).compute().tolist() == squares(counts)
    kinds = dg.reduce_sum(lambda part, x: x * (type(part) is list), db.range(5, 2), one)
    assert kinds.compute() == 2.0


# -------------------------------------------------------------------------- partitions of a bag


@pytest.mark.parametrize("keep", ["auto", "tape", "recompute", "gradient"])
@pytest.mark.parametrize("npartitions", [1, 12])
def test_empty_partitions_add_nothing(keep, npartitions):
    for kept in (0, 1, 2, 35):
        bag = db.from_sequence(range(36), npartitions=npartitions)
        bag = bag.filter(lambda n, kept=kept: n >= kept).map(lambda n: ROWS[n])

        def plain(x, kept=kept):
            return np.sin(1e-9 * sum([dot(ROWS[n], x) for n in range(kept, 36)]))

        def ours(x, bag=bag):
            return dg.delayed(np.sin)(dg.map_sum(dg.delayed(dot, keep=keep), bag, x) * 1e-9)

        value, gradient = dg.value_and_grad(ours)(X)
        assert_allclose(value, plain(X), rtol=1e-11)
        assert_allclose(gradient, autograd.grad(plain)(X), rtol=1e-11)


@pytest.mark.parametrize("npartitions", [1, 3, 20])
@pytest.mark.parametrize("model", [dot, wave])
def test_a_bag_without_items_is_an_error(npartitions, model):
    bag = db.from_sequence(list(ROWS), npartitions=npartitions).filter(lambda row: False)
    for ask in (
        lambda: dg.map_sum(model, bag, dg.variable(X)).compute(),
        lambda: over(model, bag),
        lambda: dg.vjp(lambda x: dg.map_sum(model, bag, x), X),
    ):
        told = f"no partition of the items of model '{model.__name__}' holds an item"
        with pytest.raises(ValueError, match=told):
            ask()


@pytest.mark.parametrize(
    ("reduce", "place"), [(dg.map_sum, "item 1 of partition 2"), (dg.reduce_sum, "partition 2")]
)
def test_an_error_in_a_bag_names_the_partition(reduce, place):
    def failing(item, x):
        if 7 in np.ravel(item):
            raise ArithmeticError("no")
        return x * 1.0

    bag = db.from_sequence(range(9), npartitions=3)
    for run in (
        lambda: dg.grad(lambda x: reduce(failing, bag, x))(1.0),
        lambda: reduce(failing, bag, dg.variable(1.0)).compute(),
    ):
        with pytest.raises(ArithmeticError) as caught:
            run()
        assert any(f"'failing', {place}, called" in note for note in caught.value.__notes__)


def test_an_error_in_the_backward_pass_names_the_partition():
    @autograd.extend.primitive
    def identity(x):
        return x

    def no_vjp(ans, x):
        def failing_pullback(g):
            raise ArithmeticError("no")

        return failing_pullback

    autograd.extend.defvjp(identity, no_vjp)
    bag = db.from_sequence(range(4), npartitions=2)
    _, pullback = dg.vjp(lambda x: dg.map_sum(lambda n, x: identity(x), bag, x), X)
    with pytest.raises(ArithmeticError) as caught:
        pullback(np.ones(5))
    assert any("called with ('partition " in note for note in caught.value.__notes__)


# ----------------------------------------------------------------------------------------- cost


def loaded(number, log):
    write(log, f"item {number}")
    return ROWS[number]


def loaded_block(block, log):
    write(log, f"block {len(block)}")
    return block


def counted(item, x, log):
    write(log, "model")
    return np.sum(item * x)


def counted_wave(item, x, log):
    write(log, "model")
    return item * x


@pytest.mark.parametrize("model", [counted, counted_wave])
@pytest.mark.parametrize("kind", ["delayed", "bag", "array"])
def test_collections_are_computed_once_and_models_run_once(kind, model, log):
    def collection():
        if kind == "delayed":
            return [dask.delayed(loaded)(n, log) for n in range(N)]
        if kind == "bag":
            return db.from_sequence(range(N), npartitions=4).map(loaded, log)
        array = da.from_array(ROWS, chunks=(10, 5))
        return array.map_blocks(loaded_block, log, dtype=float, meta=np.empty((0, 0)))

    def objective(x):
        items = collection()
        twice = [dg.map_sum(model, items, x, log, grainsize=g) for g in ("auto", "auto")]
        return dg.delayed(np.sum)(dg.sum(twice))

    def require_once(runs):
        written = lines(log)
        loads = [line for line in written if line != "model"]
        assert len(set(loads)) == len(loads) or kind == "array"
        assert len(loads) == (4 if kind == "array" else N)
        assert written.count("model") == runs
        log.write_text("")

    dg.value_and_grad(objective)(X)
    require_once(2 * N)
    dask.compute(*dg.differentiate(objective(x := dg.variable(X)), x))
    require_once(2 * N)
    _, pullback = dg.vjp(objective, X)
    pullback(2.0)
    require_once(2 * N)


def test_a_step_that_two_collections_share_is_computed_once(log):
    """Dask's own optimisation would fuse it into the tasks of both."""
    array = da.from_array(ROWS, chunks=(10, 5))
    array = array.map_blocks(loaded_block, log, dtype=float, meta=np.empty((0, 0)))
    bag = db.from_sequence(range(N), npartitions=4).map(loaded, log)
    for first, second, count in ((array, array + 1.0, 4), (bag, bag.map(np.sin), N)):
        pairs = dg.zip(first, second)
        dg.grad(
            lambda x, pairs=pairs: dg.map_sum(lambda ab, x: np.dot(ab[0] + ab[1], x), pairs, x)
        )(X)
        assert len(lines(log)) == count
        log.write_text("")


def test_delayed_items_are_taken_in_blocks():
    items = [dask.delayed(item) for item in RAGGED]
    node = dg.map_sum(ragged, items, X, grainsize=8)
    keys = [key for key in node.__dask_graph__() if str(key).startswith("('value-ragged")]
    assert len(keys) == 5 + 5, "to gather, and to evaluate"


# --------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize("name", ["sync", "threads"])
def test_a_bag_of_iterators_is_for_several_sums(name):
    """Who reads one leaves nothing of it for the others, or half of it on threads."""
    bag = db.from_sequence(list(ROWS), npartitions=4).map_partitions(iter)
    with dask.config.set(scheduler=name):
        gradient = dg.grad(lambda x: dg.map_sum(dot, bag, x) + dg.map_sum(dot, bag, 2.0 * x))(X)
    assert_allclose(gradient, np.sum(ROWS, 0) * (np.cos(X) + 2.0 * np.cos(2.0 * X)), rtol=1e-9)


def test_rows_that_are_not_counted():
    array = da.from_array(ROWS, chunks=(10, 5))
    some = array[array[:, 0] > 0]
    with pytest.raises(ValueError, match=r"rows are not counted; call its compute_chunk_sizes\(\)"):
        dg.map_sum(dot, some, X)
    some.compute_chunk_sizes()
    assert over(dot, some) == over(dot, ROWS[ROWS[:, 0] > 0])


def test_a_sum_over_a_collection_is_a_collection():
    def node():
        return dg.map_sum(dot, da.from_array(ROWS, chunks=10), dg.variable(X), grainsize=8)

    expected = dg.map_sum(dot, ROWS, X).compute()
    assert node().persist().compute() == expected
    assert dask.compute(node(), optimize_graph=False) == (expected,)
    assert (node() * 2.0).compute() == 2.0 * expected


def test_computed_items_are_in_row_order():
    strided = np.ones((4, 6))[:, ::2]
    assert as_block(strided).flags.c_contiguous
    for item in as_block(iter([strided, {"a": [strided]}])):
        (leaf,) = [item] if isinstance(item, np.ndarray) else item["a"]
        assert leaf.flags.c_contiguous
        assert_array_equal(leaf, strided)
