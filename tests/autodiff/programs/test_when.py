"""When programs are made, compared with the tape, and dropped: by a clock that the test moves."""

import itertools
from concurrent.futures import ThreadPoolExecutor

import dask
import numpy as np
import pytest
from numpy.testing import assert_array_equal

import daskgrad as dg
from daskgrad.autodiff.programs import store, ways
from daskgrad.autodiff.programs.backend import prepare
from daskgrad.autodiff.programs.boxes import Unrecordable
from daskgrad.derivatives.objectives import Objective

X = np.linspace(0.5, 1.5, 4)


@pytest.fixture
def tape(monkeypatch, clock):
    """The calls on the tape, each of which takes a second."""
    calls, plain = [], store.trace

    def trace(call, arrays):
        calls.append(len(arrays[0]))
        clock.move(1.0)
        return plain(call, arrays)

    monkeypatch.setattr(store, "trace", trace)
    monkeypatch.setattr(store, "CALLS", 10)
    monkeypatch.setattr(Objective, "call", lambda self, args, otherwise, out: otherwise())
    with dask.config.set({"scheduler": "sync", "daskgrad.inline.seconds": 60}):
        yield calls


def when_made(monkeypatch, then):
    """Has something happen whenever a program is made."""
    plain = store.make_way

    def make_way(*given):
        then()
        return plain(*given)

    monkeypatch.setattr(store, "make_way", make_way)


def served(fun):
    return [bool(entry.ways) for entry in prepare(fun).programs._entries.values()]


numbers = itertools.count()


def new_model():
    """Functions that refer to the same things share their programs."""
    number = next(numbers)
    return lambda x: np.sum(x**2) + number


@pytest.mark.parametrize(("seconds", "calls"), [(0.5, 1), (4.0, 4), (6.5, 7), (100.0, 10)])
def test_calls_are_compiled_when_they_took_as_long_on_the_tape(
    seconds, calls, tape, clock, monkeypatch
):
    """The tenth call is the last one without a program, whatever the first program took."""
    when_made(monkeypatch, lambda: clock.move(seconds))
    fun = new_model()
    gradient = dg.grad(dg.delayed(fun, compile=True))
    for size, expected in ((4, 10), (3, calls)):
        for number in range(expected):
            assert not any(served(fun)[size == 3 :]), number
            assert_array_equal(gradient(X[:size]), 2.0 * X[:size])
        assert all(served(fun))
        assert tape.count(size) == expected


def halved(x, least):
    """Newton's steps for a square root, half as long; more of them, the larger ``x`` is."""
    root, turns = x * 1.0, 0
    while np.max(root * root - x) > least:
        root = root - 0.25 * (root * root - x) / root
        turns += 1
    return np.sum(root)


@pytest.mark.parametrize("compiles", [True, "auto"])
@pytest.mark.parametrize("is_whole", [False, True])
def test_each_number_of_turns_is_to_pay_for_its_program(compiles, is_whole, monkeypatch):
    monkeypatch.setattr(store, "CALLS", 10)
    made, recorded, plain = [], [], ways.record
    monkeypatch.setattr(ways, "record", lambda *args: recorded.append(1) or plain(*args))
    if not is_whole:
        monkeypatch.setattr(Objective, "call", lambda self, args, otherwise, out: otherwise())
    number = next(numbers)
    fun = lambda x: halved(x, 1e-6) + number  # noqa: E731
    gradient = dg.value_and_grad(dg.delayed(fun, compile=compiles))
    with dask.config.set({"scheduler": "sync"}):
        for turn in range(100):
            gradient(X * 2.0 ** (turn % 25))
        made += recorded
        for _ in range(200):
            gradient(X)
    assert not made
    assert recorded


def test_programs_are_compared_more_and_more_seldom(tape):
    def branches(x):
        return np.sum(x**2) if x[0] > 0.0 else np.sum(np.sin(x))

    gradient, compared = dg.grad(dg.delayed(branches, compile=True)), []

    def count(x, calls):
        for number in range(calls):
            before = len(tape)
            gradient(x)
            compared.extend([number] * (len(tape) > before))

    count(X, 10)
    compared.clear()
    count(X, 4000)
    seldom = [*(2**n - 1 for n in range(11)), 2023, 3023]
    assert compared == seldom
    count(-X, 1)
    compared.clear()
    count(-X, 100)
    assert compared == seldom[:7], "a program with other lines"


def test_terms_of_sums_are_compared_as_other_calls(tape):
    model, items = dg.delayed(lambda item, x: np.sum(item * x), compile=True), [np.ones(4)] * 50
    assert_array_equal(dg.grad(lambda x: dg.map_sum(model, items, x))(X), 50.0)
    assert len(tape) == 10 + 6


def test_a_model_one_of_whose_programs_differs_is_left_to_the_tape(tape):
    drawn = itertools.count()
    model = dg.delayed(lambda x: np.sum(x) * (next(drawn) if len(x) == 3 else 1.0), compile=True)
    for size, traced in ((4, 10 + 5), (3, 30), (4, 30)):
        tape.clear()
        for _ in range(30):
            dg.grad(model)(X[:size])
        assert len(tape) == traced
    assert "is not compiled: its program differs from the model" in dg.explain(model, X)


def test_a_thread_makes_no_program_that_another_one_is_making(tape, monkeypatch):
    fun = new_model()
    gradient, made = dg.grad(dg.delayed(fun, compile=True)), []

    def call_in_another_thread():
        made.append(1)
        if len(made) == 1:
            pool.submit(gradient, X).result()

    when_made(monkeypatch, call_in_another_thread)
    with ThreadPoolExecutor(1) as pool:
        for _ in range(30):
            gradient(X)
    assert len(made) == 1


def test_a_model_whose_tape_is_large_stays_there(tape, monkeypatch):
    """While it is recorded, all arrays of both passes are held."""
    monkeypatch.setattr(store, "MOST_HELD", 100)
    model = dg.delayed(lambda x: np.sum(np.exp(x) * x), compile=True)
    for _ in range(15):
        dg.grad(model)(np.ones(50))
    assert "its tape holds 400 bytes" in dg.explain(model, np.ones(50))


def test_rows_of_a_large_array_do_not_count(tape, monkeypatch):
    """Each row keeps the whole array alive, which is there anyway."""
    monkeypatch.setattr(store, "MOST_HELD", 1000)
    model, rows = dg.delayed(lambda row, p: np.sum(row * p), compile=True), np.ones((99, 5))
    for _ in range(3):
        dg.grad(lambda p: dg.map_sum(model, rows, p))(np.ones(5))
    assert "is compiled to" in dg.explain(model, rows[0], np.ones(5))


def test_the_oldest_programs_go_if_all_keep_too_much(tape, monkeypatch):
    """A number of Python's may decide on an array of the model's own, which is kept with it."""

    def fun(x, number):
        return np.sum(np.full(len(x) * 1000, 1.0 + number) * x[0])

    monkeypatch.setattr(store, "MOST_BYTES", 2**17)
    model = dg.delayed(fun, compile=True)
    gradient = dg.grad(model)
    for _ in range(3):
        for number in range(8):
            for _ in range(12):
                assert gradient(X, number)[0] == 4000 * (1.0 + number)
            assert served(fun)[number]
            assert sum(served(fun)) <= 4
    for _ in range(12):
        gradient(np.ones(20), 1)
    assert "131,072 bytes" in dg.explain(model, np.ones(20), 1)


def test_explain_tells_what_became_of_the_calls(tape, monkeypatch):
    fun = new_model()
    model = dg.delayed(fun, compile=True)
    for calls in range(10):
        told = dg.explain(model, X)
        said = f"will be compiled after 10 calls of a kind, of which there were {calls} "
        assert said in told
        assert "def forward" in told
        dg.grad(model)(X)
    assert "is compiled to" in dg.explain(model, X)
    assert "will be compiled" in dg.explain(model, X[:2])

    def refuse():
        raise Unrecordable("it is another day")

    when_made(monkeypatch, refuse)
    for _ in range(10):
        dg.grad(model)(X[:2])
    monkeypatch.undo()
    assert "is not compiled: it is another day" in dg.explain(model, X[:2])


def test_explain_knows_which_arguments_calls_differentiate(tape):
    """Times that are data may go through functions without a derivative."""
    model = dg.delayed(lambda times, x: np.sum(np.histogram(times, 4)[0] * x), compile=True)
    distinct = dg.delayed(lambda times, x: np.sum(x[: len(np.unique(times))]), compile=True)
    assert "no derivative rule for edges" in dg.explain(model, X, X)
    assert "will be compiled" in dg.explain(distinct, X, X)
    for times in 10 * [X] + 10 * [X[[0, 0, 1, 2]]]:
        assert dg.grad(distinct, 1)(times, X).sum() == len(np.unique(times))
        dg.grad(model, 1)(times, X)
    assert "is compiled to" in dg.explain(model, X, X)
    (entry,) = prepare(distinct.model.fun).programs._entries.values()
    assert len(entry.ways) == 2


@pytest.mark.parametrize("calls", [4, 9])
def test_explain_counts_calls_that_nobody_has_vouched_for(calls, tape):
    fun = new_model()
    for _ in range(calls):
        dg.grad(dg.delayed(fun))(X)
    assert f"of which there were {calls} in this process" in dg.explain(fun, X)
    for _ in range(10 - calls):
        dg.grad(dg.delayed(fun))(X)
    assert "is compiled to" in dg.explain(fun, X)


def test_explain_tells_that_calls_of_another_kind_are_compiled():
    def fun(x):
        return np.sum(np.exp(x))

    gradient = dg.grad(lambda x: dg.delayed(fun)(x))
    assert "other types" not in dg.explain(fun, 1.0)
    for _ in range(30):
        gradient(X)
    assert "(with other types or shapes it is compiled)" in dg.explain(fun, 1.0)


def test_what_another_thread_found_before_a_change_is_not_used(tape):
    def scaled(x):
        return np.sum(x) * state["factor"]

    state = {"factor": 2.0}
    gradient, made = dg.grad(dg.delayed(scaled, compile=True)), prepare(scaled).programs
    for _ in range(12):
        gradient(X)
    ((key, found),) = made._entries.items()
    state["factor"] = 3.0
    made.look_at(scaled)
    made._entries[key] = found
    assert_array_equal(gradient(X), 3.0)
