"""Items of sums that take ways of their own through a model, more than a model usually has."""

import itertools
from dataclasses import dataclass

import dask
import numpy as np
import pytest
from numpy.testing import assert_array_equal

import daskgrad as dg
from daskgrad.autodiff.programs import blocks, store

P = np.array([0.9, 0.3])
STEPS = 12


@pytest.fixture(autouse=True)
def in_this_thread():
    with dask.config.set({"scheduler": "sync", "daskgrad.inline.seconds": 60}):
        yield


@dataclass
class Patient:
    """``times``: steps before which it gets a dose."""

    times: list
    observations: np.ndarray


numbers = itertools.count()


def new_loss():
    """A model; functions that refer to the same things would share their programs."""
    number = next(numbers)

    def loss(patient, p):
        amount, total = 0.0, number
        for step in range(STEPS):
            for time in patient.times:
                if abs(time - step) < 0.5:
                    amount = amount + p[1]
            amount = amount * p[0]
            total = total + (patient.observations[step] - amount) ** 2
        return total

    return loss


def patients(count):
    rng = np.random.default_rng(count)
    pairs = [(first, second) for first in range(STEPS) for second in range(first, STEPS)]
    return [
        Patient([float(first), float(second)], rng.normal(size=STEPS))
        for first, second in pairs[:count]
    ]


@pytest.fixture
def taped(monkeypatch, clock):
    """The calls on the tape, each of which takes a second."""
    calls, trace = [], store.trace

    def count(call, arrays):
        calls.append(call)
        clock.move(1.0)
        return trace(call, arrays)

    monkeypatch.setattr(store, "trace", count)
    return calls


@pytest.fixture(autouse=True)
def made(monkeypatch, clock):
    """The ways that get programs, each in five seconds."""
    ways, make_way = [], store.make_way

    def make(*args):
        clock.move(5.0)
        ways.append(make_way(*args))
        return ways[-1]

    monkeypatch.setattr(store, "make_way", make)
    return ways


def evaluations(objective, taped, count, at=lambda n: P + 0.001 * n):
    """The calls on the tape of so many evaluations; each has the value and the gradient of models
    that are not compiled."""
    numbers = []
    for number in range(count):
        begin = len(taped)
        value, gradient = dg.value_and_grad(objective[0])(at(number))
        numbers.append(len(taped) - begin)
        expected_value, expected_gradient = dg.value_and_grad(objective[1])(at(number))
        assert value == expected_value
        assert_array_equal(gradient, expected_gradient)
    return numbers


def sums_of(model, items):
    """A sum, and the sum that is not compiled."""
    on_tape = dg.delayed(model, compile=False)
    return (
        lambda p: dg.map_sum(model, items, p),
        lambda p: dg.map_sum(on_tape, items, p),
    )


def test_each_item_gets_a_program_for_its_own_way(taped):
    items = patients(40)
    numbers = evaluations(sums_of(new_loss(), items), taped, 60)
    assert numbers[0] >= 10
    assert sum(numbers[-10:]) <= 10  # comparisons


def test_an_item_that_changes_takes_its_new_way_at_once(taped):
    items = patients(40)
    objective = sums_of(new_loss(), items)
    evaluations(objective, taped, 60)
    for number, patient in enumerate(items):
        patient.times[0] = float(number % STEPS)
    evaluations(objective, taped, 2)
    items.reverse()
    evaluations(objective, taped, 2)
    items[3] = Patient([0.0, 1.0], items[3].observations)
    evaluations(objective, taped, 2)


def test_ways_that_are_not_taken_again_do_not_add_up(taped, made):
    """Programs for them would cost more than they bring."""

    def model(item, p):
        total, code = p[0] * 0.0, item + p[1] * 1000
        for _ in range(40):
            code = (code * 1.37) % 1.0
            total = total + (p[0] if code > 0.5 else p[0] ** 2)
        return total

    items = [np.float64(number) for number in range(20)]
    evaluations(sums_of(model, items), taped, 30, at=lambda n: P + 0.0123 * n)
    assert len(made) == store.FIRST_WAYS


def test_known_ways_take_few_bytes(taped, monkeypatch):
    monkeypatch.setattr(blocks, "MOST_HINTS", 8)
    numbers = evaluations(sums_of(new_loss(), patients(20)), taped, 60)
    assert sum(numbers[-10:]) <= 10


def test_batches_serve_ways_that_many_items_take(taped, monkeypatch):
    monkeypatch.setattr(blocks, "SERVED", 16)
    items = patients(12)
    items += [Patient([0.0, 1.0], np.full(STEPS, 0.1 * number)) for number in range(40)]
    batches, plain = [], store.make_batch
    monkeypatch.setattr(store, "make_batch", lambda *args: batches.append(args) or plain(*args))
    numbers = evaluations(sums_of(new_loss(), items), taped, 60)
    assert sum(numbers[-10:]) <= 10
    assert batches
