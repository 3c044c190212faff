"""Sums over placed items beside others: these go out with the point, and nothing becomes a task."""

import autograd.numpy as np
import dask
import numpy
import optree
import pytest
from clusters import kill, kill_when, tasks_run
from distributed import Client, LocalCluster
from lengths import in_short
from numpy.testing import assert_array_equal
from probes import write

import daskgrad as dg
from daskgrad.derivatives import in_line
from daskgrad.values.trees import flatten

pytestmark = [
    pytest.mark.timeout(120),
    pytest.mark.filterwarnings("ignore:the output of .* does not depend on '[px]'"),
]

COUNT = 45
GENERATOR = numpy.random.default_rng(3)
ROWS = GENERATOR.standard_normal((COUNT, 4))
RAGGED = [GENERATOR.standard_normal(2 + number % 5) for number in range(COUNT)]
NEAR = GENERATOR.standard_normal(COUNT)
X = numpy.linspace(-0.5, 1.0, 4)
OF_ROWS = GENERATOR.standard_normal((COUNT, 4))
OF_ITEMS = [
    {"a": GENERATOR.standard_normal(), "b": GENERATOR.standard_normal(1 + number % 3)}
    for number in range(COUNT)
]
LARGE = GENERATOR.standard_normal((COUNT, 400))  # a parcel where it is not differentiated
HUGE = GENERATOR.standard_normal((COUNT, 1000))  # passed on from worker to worker, as the point is


def weighted(pair, x):
    return np.sum(np.sin(pair[0] * x)) * pair[1]


def effect(pair, x):
    of_item, row = pair
    return np.sum(np.tanh(of_item * row) * x)


def ragged_effect(pair, x):
    of_item, item = pair
    return np.sum(np.exp(0.1 * item * of_item["a"])) * x[0] + np.sum(of_item["b"] ** 2) * x[1]


def slice_effect(pair, x):
    of_items, rows = pair
    return np.sum(np.cos(of_items * rows) @ x)


def wide(pair, x):
    return np.sum(np.sin(pair[0] * x[0])) * np.sum(pair[1])


def noisy(pair, x):
    return np.sum(np.sin(pair[0] * x)) * pair[1].normal()


def both(triple, x):
    return np.sum(triple[0] * triple[2] * x) + np.sum(np.sin(triple[0] * triple[1]))


def alone(pair):
    return np.sum(pair[0] ** 2 * pair[1])


def prior(p):
    return -0.5 * np.sum(p**2)


def single(x):
    return x.astype(np.float32)


# one placed collection; each takes (place, p, x), and p is what ``GIVEN`` says
PROGRAMS = {
    "weights": lambda place, p, x: dg.map_sum(weighted, dg.zip(place(ROWS), NEAR), x),
    "a large array": lambda place, p, x: dg.map_sum(wide, dg.zip(LARGE, place(ROWS)), x),
    "a large array behind": lambda place, p, x: dg.map_sum(wide, dg.zip(place(ROWS), LARGE), x),
    "a list of rows": lambda place, p, x: dg.map_sum(effect, dg.zip(list(OF_ROWS), place(ROWS)), x),
    "numbers that are drawn": lambda place, p, x: dg.map_sum(
        noisy, dg.zip(place(ROWS), dg.random.generators(7, COUNT)), x
    ),
    "slices": lambda place, p, x: dg.reduce_sum(
        slice_effect, dg.zip(OF_ROWS, place(ROWS, 4)), x, grainsize=4
    ),
    "beside a sum that is evaluated here": lambda place, p, x: (
        dg.map_sum(weighted, dg.zip(place(ROWS), NEAR), x)
        + dg.map_sum(effect, dg.zip(OF_ROWS, ROWS), x)
    ),
    "beside another one there": lambda place, p, x: (
        dg.map_sum(weighted, dg.zip(place(ROWS), NEAR), x)
        * dg.map_sum(effect, dg.zip(OF_ROWS, place(ROWS)), x)
    ),
    "effects": lambda place, p, x: dg.map_sum(effect, dg.zip(p, place(ROWS)), x),
    "effects and their prior": lambda place, p, x: (
        dg.map_sum(effect, dg.zip(p, place(ROWS)), x) + dg.delayed(prior)(p)
    ),
    "effects in a function of the sum": lambda place, p, x: dg.delayed(np.exp)(
        dg.map_sum(effect, dg.zip(p, place(ROWS)), x) * 0.01
    ),
    "effects twice": lambda place, p, x: (
        dg.map_sum(effect, dg.zip(p, place(ROWS)), x)
        - dg.map_sum(effect, dg.zip(place(ROWS), p), x)
    ),
    "effects side by side": lambda place, p, x: dg.map_sum(both, dg.zip(p, place(ROWS), p), x),
    "effects that are all": lambda place, p, x: (
        dg.map_sum(alone, dg.zip(p, place(NEAR))) + dg.delayed(prior)(x)
    ),
    "effects in slices": lambda place, p, x: dg.reduce_sum(
        slice_effect, dg.zip(p, place(ROWS, 4)), x, grainsize=4
    ),
    "effects in single precision": lambda place, p, x: dg.delayed(np.exp)(
        dg.map_sum(effect, dg.zip(p, place(ROWS.astype(np.float32))), dg.delayed(single)(x)) * 0.01
    ),
    "effects in exact sums": lambda place, p, x: dg.map_sum(
        effect, dg.zip(p, place(ROWS)), x, summation="compensated"
    ),
    "effects with their gradients kept": lambda place, p, x: (
        dg.map_sum(dg.delayed(effect, keep="gradient"), dg.zip(p, place(ROWS)), x) * 2.0
    ),
    "large effects": lambda place, p, x: dg.map_sum(wide, dg.zip(p, place(ROWS)), x),
    "ragged effects": lambda place, p, x: dg.map_sum(ragged_effect, dg.zip(p, place(RAGGED)), x),
}
GIVEN = {
    "large effects": HUGE,
    "ragged effects": OF_ITEMS,
    "effects in single precision": OF_ROWS.astype(np.float32),
}
TASKS = {
    "both placed": lambda place, p, x: dg.map_sum(weighted, dg.zip(place(ROWS), place(NEAR)), x),
    "terms that are arrays": lambda place, p, x: dg.delayed(prior)(
        dg.map_sum(lambda pair, x: pair[0] * pair[1] * x, dg.zip(p, place(ROWS)), x)
    ),
    "a model that keeps tapes": lambda place, p, x: dg.delayed(np.log)(
        dg.map_sum(dg.delayed(alone, keep="tape"), dg.zip(p, place(NEAR**2)))
    ),
    "a list of Delayed": lambda place, p, x: dg.map_sum(
        weighted, dg.zip(place(ROWS), [dask.delayed(float)(number) for number in NEAR]), x
    ),
}


def everything(program, place, p):
    """The value and the gradients of a program with respect to ``p`` and ``x``."""
    value, gradients = dg.value_and_grad(lambda p, x: program(place, p, x), (0, 1))(p, X)
    return value, flatten(gradients)[0]


def in_one_thread(name, p):
    with dask.config.set({"scheduler": "sync", "daskgrad.inline.seconds": 0.0}):
        return everything({**PROGRAMS, **TASKS}[name], dg.place, p)


def assert_same(found, expected):
    assert found[0] == expected[0]
    for one, other in zip(found[1], expected[1], strict=True):
        assert_array_equal(one, other)
        assert getattr(one, "dtype", None) == getattr(other, "dtype", None)


def keeping():
    """``place``, which places a collection only once."""
    kept = {}

    def place(items, grainsize="auto"):
        if id(items) not in kept:
            kept[id(items)] = items, dg.place(items, grainsize)
        return kept[id(items)][1]

    return place


SHORT = {  # the other programs run at length
    "slices",
    "effects and their prior",
}


@in_short("name", PROGRAMS, *SHORT)
def test_what_is_zipped_with_placed_items_makes_no_tasks_and_the_same_bits(
    name, client, monkeypatch
):
    monkeypatch.setattr(in_line, "CLUSTER_SECONDS", 60.0)  # what is late on a busy machine is tasks
    p = GIVEN.get(name, NEAR if name == "effects that are all" else OF_ROWS)
    expected, place = in_one_thread(name, p), keeping()
    assert_same(everything(PROGRAMS[name], place, p), expected)
    before = tasks_run(client)
    for _ in range(2):  # units are chosen, and blocks moved
        assert_same(everything(PROGRAMS[name], place, p), expected)
    assert tasks_run(client) == before
    with dask.config.set({"daskgrad.resident.enabled": False}):
        assert_same(everything(PROGRAMS[name], place, p), expected)
    assert tasks_run(client) > before


@in_short("name", TASKS, *list(TASKS)[:1])
def test_other_zips_of_placed_items_are_evaluated_by_a_graph(name, client):
    p = NEAR if name == "a model that keeps tapes" else OF_ROWS
    before = tasks_run(client)
    assert_same(everything(TASKS[name], keeping(), p), in_one_thread(name, p))
    assert tasks_run(client) > before


@pytest.mark.parametrize("name", ["effects", "effects in slices", "ragged effects"])
def test_second_derivatives_and_tangents(name, client):
    p = GIVEN.get(name, OF_ROWS)
    place = keeping()

    def pushed():
        def fun(p, x):
            return PROGRAMS[name](place, p, x)

        return flatten((dg.jvp(fun, (p, X), (p, X)), dg.hvp(fun, (p, X), (p, X))))[0]

    with dask.config.set({"scheduler": "sync", "daskgrad.inline.seconds": 0.0}):
        expected = pushed()
    place = keeping()
    for one, other in zip(pushed(), expected, strict=True):
        assert_array_equal(one, other)


def test_what_is_zipped_may_change_from_call_to_call(client):
    """Also what travels only once as long as it is the same."""
    shards = dg.place(ROWS)
    for number in range(3):
        changed = LARGE * (number + 1.0)
        assert_same(of_pairs(wide, dg.zip(changed, shards)), of_pairs(wide, dg.zip(changed, ROWS)))


def sign(pair, x):
    return numpy.sign(float(pair[0][0] * x[0]))  # autograd's boxes are no numbers


def signs(row, x):
    return numpy.array([sign((row, row), x), 1.0])


BESIDE = {
    "a zip that is stopped": lambda sum_, shards, p, x: (
        sum_ * dg.stop_gradient(dg.map_sum(sign, dg.zip(p, shards), x)),
        (),
    ),
    "a zip beside the output": lambda sum_, shards, p, x: (
        sum_,
        dg.map_sum(sign, dg.zip(p, shards), x),
    ),
    "arrays beside the output": lambda sum_, shards, p, x: (sum_, dg.map_sum(signs, shards, x)),
}


@pytest.mark.parametrize("name", BESIDE)
def test_a_sum_that_no_derivative_is_asked_of_is_not_traced(name, client):
    def found(items):
        def fun(p, x):
            return BESIDE[name](dg.map_sum(effect, dg.zip(p, items), x), items, p, x)

        (value, aux), gradients = dg.value_and_grad(fun, (0, 1), has_aux=True)(OF_ROWS, X)
        return value, [*flatten(aux)[0], *gradients]

    with dask.config.set({"scheduler": "sync", "daskgrad.inline.seconds": 0.0}):
        expected = found(ROWS)
    shards = dg.place(ROWS)
    before = tasks_run(client)
    assert_same(found(shards), expected)
    assert tasks_run(client) == before


def of_either(item, x):
    return np.sum(getattr(item, "value", item) * x)


def test_classes_that_are_registered_later_are_known_to_the_workers(client):
    """Also where a sum over the same model was sent before: a cell of a notebook that ran again."""

    class Own:
        def __init__(self, value):
            self.value = value

    def gradients(items, x):
        summed = dg.grad(lambda p, x: dg.map_sum(of_pair, dg.zip(p, shards), x), (0, 1))
        return flatten(summed(items, x))[0]

    def of_pair(pair, x):
        return of_either(pair[0], pair[1]) * of_either(x, 1.0)

    shards = dg.place(ROWS)
    expected = gradients(list(OF_ROWS), X)
    optree.register_pytree_node(
        Own,
        lambda own: ((own.value,), None, None),
        lambda _, leaves: Own(*leaves),
        namespace="daskgrad",
    )
    try:
        found = gradients(list(map(Own, OF_ROWS)), Own(X))
    finally:
        optree.unregister_pytree_node(Own, namespace="daskgrad")
    for one, other in zip(found, expected, strict=True):
        assert_array_equal(one, other)


@pytest.mark.parametrize("where", ["zipped", "shared"])
def test_workers_in_this_process_keep_what_was_sent_when_the_array_changes(where):
    """Also what is kept for an array that was like it, and is in another place of the memory."""
    first, second = LARGE.copy(), LARGE.copy()

    def summed(items, array):
        if where == "zipped":
            return lambda x: dg.map_sum(wide, dg.zip(items, array), x)
        return lambda x: dg.map_sum(lambda row, x, all: wide((row, all), x), items, x, array)

    expected = dg.value_and_grad(summed(ROWS, LARGE))(X)
    with (
        LocalCluster(n_workers=1, processes=False, dashboard_address="127.0.0.1:0") as local,
        Client(local),
    ):
        shards = dg.place(ROWS)
        assert_same(dg.value_and_grad(summed(shards, first))(X), expected)
        first[:] = 7.0
        assert_same(dg.value_and_grad(summed(shards, second))(X), expected)


def of_pairs(model, pairs):
    value, gradient = dg.value_and_grad(lambda x: dg.map_sum(model, pairs, x))(X)
    return value, [gradient]


def test_one_model_with_the_placed_items_in_other_parts(client):
    """The summands differ in nothing else."""
    shards = dg.place(ROWS)
    assert_same(of_pairs(uneven, dg.zip(shards, OF_ROWS)), of_pairs(uneven, dg.zip(ROWS, OF_ROWS)))
    assert_same(of_pairs(uneven, dg.zip(OF_ROWS, shards)), of_pairs(uneven, dg.zip(OF_ROWS, ROWS)))


def uneven(pair, x):
    return np.sum(np.sin(pair[0]) * pair[1] * x)


def test_an_error_names_the_item(client):
    def fails(pair, x):
        if pair[1] == NEAR[23]:
            raise ArithmeticError("no")
        return np.sum(pair[0] * x)

    with pytest.raises(ArithmeticError) as raised:
        dg.grad(lambda x: dg.map_sum(fails, dg.zip(dg.place(ROWS), NEAR), x))(X)
    assert "item 23" in " ".join(raised.value.__notes__)


def test_a_model_that_writes_into_what_is_zipped_is_an_error(client):
    def writes(pair, x):
        pair[1][0] = 1.0
        return np.sum(pair[0] * x)

    with pytest.raises(ValueError, match="read-only"):
        dg.grad(lambda x: dg.map_sum(writes, dg.zip(dg.place(ROWS), OF_ROWS.copy()), x))(X)


def test_threads_of_one_process_as_workers():
    with (
        LocalCluster(
            n_workers=2, threads_per_worker=2, processes=False, dashboard_address="127.0.0.1:0"
        ) as local,
        Client(local),
    ):
        for name in ("effects", "ragged effects"):
            p, place = GIVEN.get(name, OF_ROWS), keeping()
            for _ in range(3):
                assert_same(everything(PROGRAMS[name], place, p), in_one_thread(name, p))


@pytest.mark.long
def test_a_worker_killed_between_and_in_calls_costs_only_time(tmp_path, frail):
    path = tmp_path / "log"
    path.touch()
    name = "effects"
    expected = in_one_thread(name, OF_ROWS)

    def slow(pair, x):
        import os
        import time

        if pair[1][0] == ROWS[30, 0]:
            write(path, f"term {os.getpid()}")
            time.sleep(0.3)
        return effect(pair, x)

    place = keeping()
    assert_same(everything(PROGRAMS[name], place, OF_ROWS), expected)
    kill(frail, place(ROWS).plan[0].worker)
    assert_same(everything(PROGRAMS[name], place, OF_ROWS), expected)
    frail.wait_for_workers(2, timeout=60)
    killer = kill_when(path, "term", 0.05)
    shards = place(ROWS)
    found = dg.value_and_grad(lambda p, x: dg.map_sum(slow, dg.zip(p, shards), x), (0, 1))
    value, gradients = found(OF_ROWS, X)
    killer.join()
    assert_same((value, list(gradients)), expected)
