"""All programs over placed items, and over items that are sent: no tasks, and the same bits."""

import autograd.numpy as np
import dask
import pytest
from clusters import tasks_run
from comparisons import assert_same
from lengths import in_short
from placed_programs import (
    GRAPHS,
    NEAR,
    PROGRAMS,
    ROWS,
    X,
    everything,
    in_one_thread,
    keeping,
    program_of,
    wave,
)

import daskgrad as dg
from daskgrad.autodiff.programs import blocks
from daskgrad.autodiff.values.trees import flatten
from daskgrad.derivatives import evaluation
from daskgrad.placed import worker_sums

pytestmark = [
    pytest.mark.timeout(120),
    pytest.mark.filterwarnings("ignore:the output of .* does not depend on '[px]'"),
]

SHORT = ["a mean", "a sum that depends on a sum", "only gradients are kept"]
SHORT += ["rows and their prior", "rows beside a large array", "rows and placed items"]
SHORT += ["numbers that are drawn", "effects in slices", "ragged effects"]
WHERE = ["local", pytest.param("client", marks=pytest.mark.long)]


@pytest.mark.parametrize("where", WHERE)
@in_short("name", PROGRAMS, *SHORT)
def test_sums_where_the_items_are_make_no_tasks_and_the_same_bits(name, where, request):
    client = request.getfixturevalue(where)
    expected, place = in_one_thread(everything, name, dg.place), keeping()
    assert_same(everything(name, place), expected)
    before = tasks_run(client)
    for _ in range(2):  # units are chosen, and blocks moved
        assert_same(everything(name, place), expected)
    assert tasks_run(client) == before
    with dask.config.set({"daskgrad.resident.enabled": False}):
        assert_same(everything(name, place), expected)
    assert tasks_run(client) > before


@pytest.mark.parametrize("where", WHERE)
@in_short("name", GRAPHS, "terms that are arrays", "effects whose tapes are kept", "both placed")
def test_other_sums_are_evaluated_by_a_graph(name, where, request):
    client = request.getfixturevalue(where)
    expected, place = in_one_thread(everything, name, dg.place), keeping()
    before = tasks_run(client)
    for _ in range(2):
        assert_same(everything(name, place), expected)
    assert tasks_run(client) > before


@in_short("name", PROGRAMS, "a sum that depends on a sum", "two sums", "slices")
def test_the_bits_are_the_same_where_the_cluster_runs_what_is_around_the_sums(
    name, local, monkeypatch
):
    expected = in_one_thread(everything, name, dg.place)
    monkeypatch.setattr(evaluation, "spares_cluster", lambda *_: False)
    assert_same(everything(name, dg.place), expected)


@in_short("name", PROGRAMS, "rows", "effects", "effects in slices", "ragged effects")
def test_second_derivatives_tangents_and_pullbacks(name, local):
    def derivatives(place):
        program, p = program_of(name, place)
        value, pullback = dg.vjp(program, p, X)
        pushed = dg.jvp(program, (p, X), (p, X)), dg.hvp(program, (p, X), (p, X))
        return flatten((value, pullback(1.5), pushed))[0]

    assert_same(derivatives(keeping()), in_one_thread(derivatives, keeping()))


# -------------------------------------------------------------------------------------- errors

ITEMS = {
    "placed": lambda p: dg.place(ROWS),
    "sent": lambda p: p,
    "zipped": lambda p: dg.zip(dg.place(ROWS), NEAR),
    "beside": lambda p: dg.zip(p, dg.place(ROWS)),
    "a sample": lambda p: dg.place(ROWS).sample(30, 4),
}


@pytest.mark.parametrize("kind", ITEMS)
def test_an_error_names_the_item(kind, local):
    index = dg.place(ROWS).sample(30, 4).indices[7] if kind == "a sample" else 57
    wrong = ROWS[index, 0]

    def fails(item, x):
        row = {"zipped": 0, "beside": 1}.get(kind)
        if float(dg.value((item if row is None else item[row])[0])) == wrong:
            raise ArithmeticError("no")
        return np.sum(x * x)

    with pytest.raises(ArithmeticError) as caught:
        dg.grad(lambda p, x: dg.map_sum(fails, ITEMS[kind](p), x), (0, 1))(ROWS, X)
    (note,) = caught.value.__notes__
    assert f"item {7 if kind == 'a sample' else 57}, called with (" in note


@pytest.mark.parametrize("items", [lambda p: p, lambda p: dg.place(ROWS, grainsize=2)])
def test_terms_that_are_arrays_in_the_place_of_numbers_are_an_error(items, local):
    with pytest.raises(TypeError, match="a gradient needs one real number"):
        dg.grad(lambda p, x: dg.map_sum(wave, items(p), x), (0, 1))(ROWS, X)


@pytest.mark.parametrize("copied", [2**8, 2**20])
@in_short("name", PROGRAMS, "ragged items", "rows and placed items", "effects", "ragged effects")
def test_the_bits_are_the_same_where_blocks_share_batches(name, copied, local, monkeypatch):
    monkeypatch.setattr(blocks, "SERVED", 1)
    monkeypatch.setattr(worker_sums, "COPIED", copied)
    expected, place = in_one_thread(everything, name, dg.place), keeping()
    for _ in range(4):
        assert_same(everything(name, place), expected)


def test_blocks_of_ragged_items_share_batches(local, monkeypatch):
    runs, items = [], [np.linspace(0.0, 1.0, 3 + number % 2) for number in range(1024)]

    def term(item, x):  # its programs are this test's own
        return np.sum(np.exp(-x[0] * item)) + x[1]

    def counted(parts, count):
        runs.extend(parts)
        return side_by_side(parts, count)

    side_by_side = blocks.side_by_side
    monkeypatch.setattr(blocks, "side_by_side", counted)
    shards = dg.place(items, grainsize=16)
    gradient = dg.value_and_grad(lambda x: dg.map_sum(term, shards, x))
    for number in range(5):  # units are chosen; programs get batches
        runs.clear()
        gradient(X + number)
    lanes = sum(local.nthreads().values())
    assert 0 < len(runs) <= 2 * lanes, "each thread has a batch of either size"
