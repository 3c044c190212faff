"""What cannot be sent to another process: errors name the task, the model or the item."""

import threading

import autograd.numpy as np
import dask
import pytest

import daskgrad as dg

X = np.ones(3)
LOCK = threading.Lock()
ADVICE = "open files, locks and connections where they are used"


def made():
    """Models that are sent by value, and with it the lock that two of them refer to."""
    lock = threading.Lock()

    def locked(x):
        with lock:
            return np.sum(x**2)

    def locked_term(item, x):
        with lock:
            return np.sum(item * x)

    return locked, locked_term


LOCKED, LOCKED_TERM = made()


def with_argument(lock, x):
    return np.sum(x**2)


def term_with_argument(item, lock, x):
    return np.sum(item * x)


PROGRAMS = {
    "model": (lambda x: dg.delayed(np.sum)(x) * dg.delayed(LOCKED)(x), "forward of 'locked'"),
    "argument": (lambda x: dg.delayed(with_argument)(LOCK, x), "forward of 'with_argument'"),
    "sum": (lambda x: dg.map_sum(LOCKED_TERM, [1.0, 2.0], x), r"\w+ of '(model of )?locked_term'"),
    "items": (lambda x: dg.map_sum(with_argument, [LOCK], x), r"\w+ of 'with_argument'"),
}


def refused(what):
    return pytest.raises(TypeError, match=f"{what} cannot be sent .*cannot pickle.*; {ADVICE}")


@pytest.mark.parametrize("scheduler", ["processes", "cluster"], indirect=True)
@pytest.mark.parametrize("program", PROGRAMS)
def test_a_task_is_named(scheduler, program):
    fun, what = PROGRAMS[program]
    for derivative in (dg.value_and_grad(fun), lambda x: dg.vjp(fun, x)):
        with refused(f"the {what}"):
            derivative(X)


def test_the_model_and_the_argument_of_a_placed_sum_are_named(client):
    with dg.place([1.0, 2.0]) as shards:
        with refused("the model 'locked_term'"):
            dg.value_and_grad(lambda x: dg.map_sum(LOCKED_TERM, shards, x))(X)
        with refused("an argument of 'term_with_argument'"):
            dg.value_and_grad(lambda x: dg.map_sum(term_with_argument, shards, LOCK, x))(X)


def test_an_item_that_cannot_be_placed_is_named(client):
    with refused("item 2"):
        dg.place([1.0, 2.0, LOCK])


def test_within_one_process_nothing_is_sent():
    with dask.config.set(scheduler="threads"):
        for fun, _ in PROGRAMS.values():
            dg.value_and_grad(fun)(X)


def test_a_models_own_error_stays_as_it_is(client):
    def model(x):
        raise TypeError("mine")

    with pytest.raises(TypeError, match=r"^mine\n.*forward pass of model 'model'"):
        dg.value_and_grad(dg.delayed(model))(X)
