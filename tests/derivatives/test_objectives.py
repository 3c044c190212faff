"""Shortcuts: one compiled model, called alone, with all that is promised."""

from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import dask
import numpy as np
import pytest
from autograd.extend import defvjp, primitive
from comparisons import assert_same
from dask.callbacks import Callback
from numpy.testing import assert_array_equal
from probes import functions_run

import daskgrad as dg
from daskgrad.autodiff.programs import recording
from daskgrad.autodiff.values.descriptions import NondeterministicModelError
from daskgrad.autodiff.values.trees import flatten, map_leaves
from daskgrad.derivatives.objectives import RecordedObjective
from daskgrad.tasks import clients

random = np.random.default_rng(4)
X = random.normal(size=5)
A = random.normal(size=(3, 5))

pytestmark = pytest.mark.usefixtures("whole_programs")


def energy(x):
    return np.sum(np.exp(-x)) - 1.3 * np.sqrt(np.sum(x**2))


def regression(w, b, rows, name="none"):
    return np.sum(np.tanh(rows @ w + b) ** 2)


def in_dict(p):
    return np.sum(np.sin(p["w"])) * p["b"] + p["n"] * np.sum(p["list"][0])


def shared(x):
    return np.sum(x)


def reshaped(x):
    return np.sum(x.reshape(5, 1) * A.T)


def twice(x, y):
    return np.sum(x + y)


def squared(x, y):
    return np.sum((x + y) ** 2)


def joined(x, y):
    return np.sum(np.concatenate((x, y)) ** 2)


def scatter(x):
    return np.sum(x[[0, 0, 1]] ** 2) + x[2]


def branches(x):
    return np.sum(x**2) if x[0] > 0 else np.sum(np.sin(x))


def masked(p):
    return np.sum(p["used"] ** 3)


def chosen(x, mask):
    return np.sum(np.where(mask, x, 2.0 * x))


def single(x):
    return np.sum(x**2)


def passed(x, y):
    return np.dot(x, y)


def complex_model(z):
    return np.sum(np.abs(z) ** 2)


class Pair(NamedTuple):
    a: np.ndarray
    b: float


def in_pair(p):
    return np.sum(p.a) * p.b


TREE = {"w": X, "b": 0.5, "n": 3, "list": [X[:2].copy(), None]}
CALLS = {  # model, arguments, argnums
    "an array": (energy, (X,), 0),
    "several": (regression, (X, 0.3, A), (0, 1)),
    "in another order": (regression, (X, 0.3, A), (1, 0)),
    "a string": (regression, (X, 0.3, A, "name"), [0]),
    "a tree": (in_dict, (TREE,), 0),
    "an ordered tree": (in_dict, (OrderedDict(reversed(TREE.items())),), 0),
    "a named tuple": (in_pair, (Pair(X, 0.5),), 0),
    "a constant gradient": (shared, (X,), 0),
    "a matrix": (single, (A,), 0),
    "a reshaped array": (reshaped, (X,), 0),
    "one gradient for two": (twice, (X, X), (0, 1)),
    "one array for two": (squared, (X, X), (0, 1)),
    "halves of an array": (joined, (X, X), (0, 1)),
    "an argument as gradient": (passed, (X, X + 1.0), (0, 1)),
    "rows that are added": (scatter, (X,), 0),
    "a branch": (branches, (np.abs(X),), 0),
    "an unused leaf": (masked, ({"used": X, "other": X, "n": 2},), 0),
    "a number": (single, (0.7,), 0),
    "NumPy's number": (single, (np.float64(0.7),), 0),
    "a mask": (chosen, (X, X > 0.0), 0),
    "integers": (passed, (X, np.arange(5)), 0),
    "no axes": (single, (np.array(0.7),), 0),
    "complex numbers": (complex_model, (X + 1j,), 0),
    "single precision": (single, (X.astype("f"),), 0),
    "Fortran's order": (single, (np.asfortranarray(A),), 0),
    "every other entry": (energy, (np.arange(1.0, 11.0)[::2],), 0),
    "read-only": (energy, (np.broadcast_to(X, (5,)),), 0),
    "nothing": (single, (np.zeros(0),), 0),
}
WITHOUT = {"every other entry"}


def arrays_in(tree):
    return [leaf for leaf in flatten(tree)[0] if isinstance(leaf, np.ndarray)]


@pytest.mark.parametrize("name", CALLS)
def test_the_bits_and_types_are_those_of_the_tape(name, taken):
    fun, args, argnums = CALLS[name]
    found = dg.value_and_grad(dg.delayed(fun, compile=True), argnums)
    expected = dg.value_and_grad(dg.delayed(fun), argnums)(*args)
    for _ in range(30):
        result = found(*args)
        assert_same(result, expected)
        assert repr(result) == repr(expected)  # which has the order of dicts
        for number, one in enumerate(arrays_in(result[1])):
            assert one.flags.writeable
            assert one.flags.c_contiguous
            assert one.base is None or one.base.nbytes == one.nbytes
            others = [*arrays_in(args), *arrays_in(result[1])[:number]]
            assert not any(np.shares_memory(one, other) for other in others)
            one[...] = np.nan  # of which a later call must see nothing
    assert bool(taken()) == (name not in WITHOUT)


@pytest.mark.parametrize("name", CALLS)
def test_the_bits_are_written_into_arrays_of_the_callers(name, taken):
    fun, args, argnums = CALLS[name]
    expected = dg.value_and_grad(dg.delayed(fun), argnums)(*args)
    out = storage_like(expected[1])
    gradient = dg.value_and_grad(dg.delayed(fun, compile=True), argnums, out=out)
    for _ in range(30):
        assert_written(gradient(*args), expected, out)
        for array in arrays_in(out):
            array[...] = np.nan
    assert bool(taken()) == (name not in WITHOUT)


def storage_like(gradient):
    """Arrays for a gradient, full of what must not be left in them."""
    return map_leaves(
        lambda x: None if x is None else np.full_like(np.asarray(x), np.nan), gradient
    )


def assert_written(result, expected, out):
    assert result[1] is out
    assert repr(result[0]) == repr(expected[0])
    for one, other in zip(flatten(out)[0], flatten(expected[1])[0], strict=True):
        assert one is other is None or one.tobytes() == np.asarray(other).tobytes()


def test_other_data_takes_other_shortcuts_also_in_threads(taken, quick_switches):
    gradient = dg.value_and_grad(dg.delayed(branches, compile=True))
    expected = dg.value_and_grad(lambda x: dg.delayed(branches)(x))
    points = [X, -X, X[:3], -X[:3], np.abs(X), *[X + n / 10 for n in range(-5, 5)]]
    right = [expected(point) for point in points]

    def all_points(times):
        for _ in range(times):
            for point, each in zip(points, right, strict=True):
                assert_same(gradient(point), each)

    with ThreadPoolExecutor(4) as pool:  # in which programs are made, too
        list(pool.map(all_points, [12] * 4))
    assert taken() > 200


def test_a_long_program_has_no_shortcut(taken):
    def steps(x, count):
        for _ in range(count):
            x = np.sin(x)
        return np.sum(x)

    model = dg.delayed(steps, compile=True)
    gradient, expected = dg.value_and_grad(model), dg.value_and_grad(lambda *args: model(*args))
    for count, takes in ((10, True), (recording.MOST_STEPS, False)):
        before = taken()
        for _ in range(12):
            assert_same(gradient(X, count), expected(X, count))
        assert (taken() > before) == takes


def test_a_long_function_without_models_has_a_shortcut(taken):
    def steps(x):
        for _ in range(recording.MOST_STEPS // 2):
            x = np.sin(x)
        return np.sum(x)

    gradient, expected = dg.value_and_grad(steps), dg.value_and_grad(lambda x: steps(x))
    for _ in range(12):
        assert_same(gradient(X), expected(X))
    assert taken()


def misfit(pair, x):
    y, a = pair
    return np.sum((np.dot(a, x) - y) ** 2)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("add", [dg.map_sum, dg.reduce_sum])
def test_the_data_of_a_sum_may_be_arguments(add, order, taken):
    def total(x, y, rows):
        return add(misfit, dg.zip(y, rows), x, grainsize=16)

    rows = np.asarray(random.normal(size=(40, 5)), order=order)
    gradient = dg.value_and_grad(total)
    for number in range(30):
        y = np.arange(40.0) + number
        assert_same(gradient(X, y, rows), dg.value_and_grad(lambda x: total(x, y, rows))(X))  # noqa: B023
    assert bool(taken()) == (order == "C")  # rows of other orders are copied first


def test_an_argument_that_does_not_matter_is_warned_of_at_each_call():
    gradient = dg.grad(dg.delayed(lambda x, y: np.sum(x**2), compile=True), (0, 1))
    for _ in range(30):
        with pytest.warns(UserWarning, match="does not depend on 'y'"):
            assert_array_equal(gradient(X, X)[1], np.zeros(5))


@primitive
def writes(x):
    if x[0] > 5.0:
        x[0] = 0.0
    return np.sum(x)


defvjp(writes, lambda value, x: lambda g: g * np.ones(5))


ruled = dg.custom_vjp(writes.fun)
ruled.defvjp(lambda x: (writes.fun(x), None), lambda _, g: (g * np.ones(5),))


@pytest.mark.parametrize("fun", [writes, ruled])
@pytest.mark.parametrize("argnum", [0, 1])
def test_arguments_are_protected_from_functions_of_the_users(fun, argnum):
    gradient = dg.grad(dg.delayed(lambda x, y: fun(x) * np.sum(y), compile=True), argnum)
    for _ in range(30):
        gradient(X, X)
    large = X + 100.0
    with pytest.raises(ValueError, match="read-only"):
        gradient(large, X)
    assert_array_equal(large, X + 100.0)


def test_arguments_by_name_are_arguments_by_position(taken):
    def scaled(x, rows=None, power=2, *, shift=0.0):
        return np.sum((rows @ x) ** power) + shift

    def objective(x, rows, power=2):
        return model(x, rows, power=power)

    model, gradient = dg.delayed(scaled), dg.value_and_grad(objective)
    for _ in range(30):
        gradient(X, A)
    before = taken()
    assert before
    assert_same(gradient(X, rows=A), dg.value_and_grad(dg.delayed(scaled, compile=False))(X, A))
    assert taken() == before + 1
    whole_model = dg.value_and_grad(model)
    for n in range(30):
        options = {"power": 3, "rows": A} if n % 2 else {"rows": A, "power": 3}
        assert_same(whole_model(X, **options), whole_model(X, A, 3))
    before = taken()
    assert_same(whole_model(X, rows=A, power=3), whole_model(X, A, 3))
    assert taken() == before + 2
    value = whole_model(X, A, shift=1.0)[0]  # by name alone
    assert value == whole_model(X, A)[0] + 1.0
    for wrong in ({"rows": A, "x": X}, {"power": 3, "other": 1}, {}):
        with pytest.raises(TypeError):
            gradient(X, **wrong)
    with pytest.raises(ValueError, match="argnums"):
        dg.value_and_grad(objective, argnums=1)(X, rows=A)


def test_who_watches_tasks_sees_them(taken):
    gradient = dg.value_and_grad(dg.delayed(energy, compile=True))
    for _ in range(30):
        expected = gradient(X)
    before = taken()
    assert before
    seen = []
    with Callback(pretask=lambda *_: seen.append(1)):
        assert_same(gradient(X), expected)
    assert seen
    for name in ("sync", "threads", "processes"):  # which would not be asked either
        with dask.config.set(scheduler=name):
            assert_same(gradient(X), expected)
    assert taken() == before + 3
    others = [
        lambda: dask.config.set(scheduler=dask.get),
        lambda: dask.config.set({"daskgrad.inline.seconds": 0}),
        lambda: dask.config.set({"daskgrad": {}}),
        lambda: dask.annotate(priority=1),
        dg.debug_nans,
    ]
    for other in others:
        with other():
            assert_same(gradient(X), expected)
    assert taken() == before + 3
    with dg.debug_nans(), pytest.raises(FloatingPointError, match="energy"):
        gradient(np.full(5, np.nan))


def test_a_client_gets_a_graph(client, taken):
    gradient = dg.value_and_grad(dg.delayed(energy, compile=True))
    for _ in range(30):
        gradient(X)
    assert not taken()


def test_how_many_calls_a_shortcut_costs(monkeypatch):
    for question in ("has_client", "current_worker"):  # some of an earlier test may be left
        monkeypatch.setattr(clients, question, lambda: False)
    gradient = dg.value_and_grad(dg.delayed(lambda x: np.sum(np.exp(-x)), compile=True))
    for _ in range(30):
        gradient(X)
    names = functions_run(gradient, X)
    assert len(names) <= 20, names  # some are of the watch


@pytest.mark.parametrize("count", [64, 65])
def test_objectives_with_many_items_are_not_recorded(count, monkeypatch):
    """Their models go in batches, and a recording would run each item on the tape."""
    recordings, evaluated = [], RecordedObjective.evaluated

    def counted(self, *args):
        recordings.append(args)
        return evaluated(self, *args)

    monkeypatch.setattr(RecordedObjective, "evaluated", counted)
    items = list(random.normal(size=(count, 5)))
    gradient = dg.value_and_grad(lambda x: dg.map_sum(squared, items, x))
    for _ in range(40):
        gradient(X)
    assert bool(recordings) == (count == 64)
    del items[1:]
    for _ in range(40):
        gradient(X)
    assert recordings


def test_one_sum_of_many_items_leaves_the_programs_of_few(taken):
    small, large = [list(random.normal(size=(count, 5))) for count in (3, 200)]
    gradient = dg.value_and_grad(
        lambda x, is_large: dg.map_sum(squared, large if is_large else small, x)
    )
    for _ in range(40):
        gradient(X, False)
    gradient(X, True)
    for _ in range(1200):  # a comparison becomes due
        gradient(X, False)
    before = taken()
    for _ in range(20):
        gradient(X, False)
    assert taken() == before + 20


def test_a_pullback_that_runs_its_forward_pass_again_tells_of_another_value(taken):
    held = Scale()
    model = dg.delayed(lambda x: np.exp(x) * held.by)
    for _ in range(60):
        _, pullback = dg.vjp(lambda x: model(x), np.ones(2))
    assert taken()
    held.by = 3.0
    assert_same(pullback(np.ones(2)), (np.exp(np.ones(2)),))
    with pytest.raises(NondeterministicModelError, match="refers to something that has changed"):
        pullback(np.array([1.7e308, 1.0]))  # NumPy warns: the ordinary way says so


class Scale:
    by = 1.0
