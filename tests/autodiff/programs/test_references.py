"""Large arrays to which a function refers are inputs of its programs; ``fuzz_references`` changes
everything to which models refer."""

import gc
import types
import typing
import weakref

import autograd.numpy as np
import dask
import numpy
import pytest
from comparisons import assert_same
from numpy.testing import assert_array_equal
from probes import whole_programs

import daskgrad as dg
from daskgrad.autodiff.programs import backend, store
from daskgrad.autodiff.programs.boxes import RecordingBox

ROWS = 3000
X = numpy.array([0.5, -1.5])
CALLS = 30


@pytest.fixture(autouse=True)
def at_once(soon):
    with dask.config.set({"daskgrad.inline.seconds": 60}):
        yield


def table(number):
    return numpy.random.default_rng(number).normal(size=(ROWS, 2))


def squares(x, rows):
    return np.sum((rows @ x) ** 2)


def with_plain(fun, *args):
    with dask.config.set({"daskgrad.compile": False}):
        return fun(*args)


def assert_right(model, calls=CALLS):
    """All derivatives of a model have the bits of the ordinary way, call by call."""
    gradient = dg.value_and_grad(dg.delayed(model))
    objective = dg.value_and_grad(lambda x: 2.0 * dg.delayed(model)(x))
    total = dg.value_and_grad(lambda x: dg.map_sum(lambda n, x: n * model(x), [1.0, 2.0] * 8, x))
    product = lambda x: dg.hvp(dg.delayed(model), (x,), (numpy.ones(2),))  # noqa: E731
    for fun in (gradient, objective, total, product):
        for _ in range(calls):
            assert_same(fun(X), with_plain(fun, X))


class Held:
    def __init__(self):
        self.rows, self.runs, self.parts = table(0), 0, [{"rows": table(1)}]

    def loss(self, x):
        return squares(x, self.rows) + squares(x, self.parts[0]["rows"])

    def counts(self, x):
        self.runs += 1
        return squares(x, self.rows)


def ways_of(fun):
    entries = backend.prepare(fun, False).programs._entries.values()
    return [way for entry in entries for way in entry.ways]


def test_a_program_holds_no_large_array_and_reads_it_anew():
    held = Held()
    gradient = dg.value_and_grad(dg.delayed(held.loss))
    for _ in range(CALLS):
        gradient(X)
    ways, _ = whole_programs(gradient)
    assert ways
    assert max([getattr(x, "nbytes", 0) for x in ways[0].program.constants.values()]) < 1000
    gone = weakref.ref(held.rows)
    for number in range(3):
        held.rows, held.parts[0]["rows"][number] = table(number + 5), 7.0
        assert_same(gradient(X), with_plain(gradient, X))
        assert whole_programs(gradient)[0] == ways
    gc.collect()
    assert gone() is None


def test_nothing_that_a_recording_makes_anew_stays():
    held = Held()
    gc.collect()
    boxes = {id(x) for x in gc.get_objects() if type(x) is RecordingBox}
    before = dict(vars(held)), list(held.parts), dict(held.parts[0])
    assert_right(held.loss)
    after = dict(vars(held)), list(held.parts), dict(held.parts[0])
    assert after[0].keys() == before[0].keys()
    assert all(x is y for x, y in zip(before[0].values(), after[0].values(), strict=True))
    assert after[2]["rows"] is before[2]["rows"]
    gc.collect()
    assert {id(x) for x in gc.get_objects() if type(x) is RecordingBox} <= boxes


def test_an_object_with_large_arrays_counts_its_calls():
    held = Held()
    model = dg.delayed(held.counts)
    gradient = dg.value_and_grad(lambda x: model(x) + 1.0)
    for number in range(1, 3 * CALLS):
        assert_same(gradient(X)[0], numpy.sum((held.rows @ X) ** 2) + 1.0)
        assert (type(held.runs), held.runs) == (int, number)
    assert whole_programs(gradient)[0]


def test_functions_that_differ_in_their_data_share_a_program(monkeypatch):
    made = []
    monkeypatch.setattr(store, "make_way", lambda *args: made.append(0) or make_way(*args))
    for number in range(20):
        rows, scale = table(number), 1.0 + number
        gradient = dg.value_and_grad(lambda x, r=rows, k=scale: dg.delayed(squares)(x, r) * k)
        for _ in range(5):
            assert_same(gradient(X), with_plain(gradient, X))
    assert 0 < len(made) < 10


make_way = store.make_way


def test_functions_that_share_a_program_and_lose_it_again():
    """One of them gets other data, another one something that is no input."""
    settings = types.SimpleNamespace(rows=table(0))

    def make(number):
        rows = table(number)

        def model(x):
            return squares(x, rows) + squares(x, settings.rows) * (number % 2)

        return rows, dg.value_and_grad(dg.delayed(model))

    models = [make(number) for number in range(6)]
    for turn in range(8):
        for rows, gradient in models:
            assert_same(gradient(X), with_plain(gradient, X))
            rows[turn] = 2.0
        settings.rows = table(turn) if turn % 3 else settings.rows


class Mode:
    pass


class Network:
    default = Mode()

    def __init__(self):
        self.mode, self.mode.rows = Network.default, table(0)
        self.rows = table(1)

    def loss(self, x):
        scale = 1.0 if self.mode == Network.default else 3.0
        return squares(x, self.rows) * scale + squares(x, self.mode.rows)


def test_a_thing_that_is_reached_by_two_ways_is_the_same_thing():
    network = Network()
    assert_right(network.loss)
    network.mode.rows[3] = 5.0
    assert_right(network.loss)


def test_what_is_computed_from_references_alone_is_kept():
    matrix = numpy.eye(60) * 2.0

    def model(x):
        return np.sum(np.linalg.inv(matrix)[:2, :2] @ x)

    gradient = dg.value_and_grad(dg.delayed(model))
    with dask.config.set({"daskgrad.compile": True}):
        for number in range(CALLS):
            assert_same(gradient(X), with_plain(gradient, X))
            matrix[0, 0] += number > CALLS // 2


@pytest.mark.parametrize("repeats", [1, 50])
def test_a_pullback_keeps_what_its_model_refers_to(repeats):
    """A small array is copied; nobody writes into a large one."""
    rows = numpy.repeat(table(0), repeats, 0)
    model = dg.delayed(lambda x: rows @ x)
    for _ in range(CALLS):
        value, pull = dg.vjp(model, X)
    expected = pull(value)
    value, pull = dg.vjp(model, X)
    if repeats == 1:
        rows[0] = 1.0
    else:
        with pytest.raises(ValueError, match="read-only"):
            rows[0] = 1.0
    assert_same(pull(value), expected)
    del pull
    rows[0] = 2.0
    assert_array_equal(rows[0], 2.0)


class Closing:
    closed = 0

    def __init__(self):
        self.rows = table(0)

    def loss(self, x):
        return squares(x, self.rows)

    def __del__(self):
        Closing.closed += 1


def test_an_object_that_ends_something_is_not_made_anew():
    held = Closing()
    gradient = dg.value_and_grad(dg.delayed(held.loss, compile=True))
    for _ in range(CALLS):
        assert_same(gradient(X), with_plain(gradient, X))
    gc.collect()
    assert Closing.closed == 0


def test_a_float_of_an_object_becomes_an_input_when_it_has_changed():
    held = types.SimpleNamespace(rate=0.5)
    gradient = dg.value_and_grad(dg.delayed(lambda x: np.sum(x**2) * held.rate))
    for number in range(3 * CALLS):
        held.rate = 0.5 + max(number - CALLS, 0)
        assert_same(gradient(X), with_plain(gradient, X))
    ways, _ = whole_programs(gradient)
    assert len(ways) == 1
    held.rate = None
    with pytest.raises(TypeError):
        gradient(X)
    held.rate = 3
    assert_same(gradient(X), with_plain(gradient, X))


def with_helper(rows):
    def model(x, n=2):
        return squares(x, rows) + (helper(x, n) if n else 0.0)

    def helper(x, n):
        return model(x, n - 1)

    return model


class Calling:
    def __init__(self, fun):
        self.fun = fun

    def call(self, x, n):
        return self.fun(x, n)


def with_object(rows):
    def model(x, n=2):
        return squares(x, rows) + (calling.call(x, n - 1) if n else 0.0)

    calling = Calling(model)
    return model


def with_method(rows):
    class Caller:
        def call(self, x, n):
            return model(x, n)

    def model(x, n=2):
        return squares(x, rows) + (caller.call(x, n - 1) if n else 0.0)

    caller = Caller()
    return model


@pytest.mark.parametrize("make", [with_helper, with_object, with_method])
def test_a_function_that_is_called_again_by_what_it_calls(make):
    rows = table(0)
    gradient = dg.value_and_grad(dg.delayed(make(rows)))
    for number in range(2 * CALLS):
        rows[0] = number // CALLS
        assert_same(gradient(X), with_plain(gradient, X))


def test_functions_that_share_a_variable_of_which_one_does_not_run():
    rows, flags = table(0), [False]

    def a_helper(x):
        return squares(x, rows)

    def model(x):
        if flags[0]:
            print(rows)
        return a_helper(x)

    gradient = dg.value_and_grad(dg.delayed(model))
    for number in range(3 * CALLS):
        rows[0] = number // CALLS
        assert_same(gradient(X), with_plain(gradient, X))


def test_residuals_in_a_structure_of_the_user_s_stay_a_vector():
    rows = table(0)
    model = dg.delayed(lambda x: rows @ x)
    flat, start, *_ = dg.adapters.flat_residuals(lambda p: {"a": model(p["x"])}, {"x": X})
    for _ in range(CALLS):
        assert flat(start).shape == (ROWS,)


class Doubled(typing.NamedTuple):
    rows: numpy.ndarray
    rate: float

    def __getitem__(self, number):
        return 2.0 * (self.rows, self.rate)[number]


def test_elements_that_a_class_computes_are_no_inputs():
    doubled = Doubled(table(0), 0.5)
    assert_right(lambda x: squares(x, doubled[0]) * doubled.rate)


def test_a_recording_that_fails_has_counted():
    held = Held()

    def loss(self, x):
        self.runs += 1
        return squares(x, self.rows) * float(self.rows[0, 0])

    model = dg.delayed(types.MethodType(loss, held))
    gradient = dg.value_and_grad(lambda x: model(x) + 1.0)
    for number in range(1, 2 * CALLS):
        gradient(X)
        assert (type(held.runs), held.runs) == (int, number)
    dg.explain(model, X)
    assert held.runs == 2 * CALLS


def test_a_name_that_was_missing_is_looked_for_again():
    held = types.SimpleNamespace()
    gradient = dg.value_and_grad(dg.delayed(lambda x: squares(x, held.rows)))
    for number in range(3 * CALLS):
        if number % CALLS == CALLS // 2:
            del held.rows
            with pytest.raises(AttributeError):
                gradient(X)
        if number % (CALLS // 2) == 0:
            held.rows = table(number)
        assert_same(gradient(X), with_plain(gradient, X))
