"""What cannot be sent to another process: errors name the task, the model or the item."""

import re
import sys
import threading
import types

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


def times_item(item, x):
    return np.sum(x) * (item if isinstance(item, float) else item.factor)


def of_pair(pair, x):
    return times_item(pair[0], x) * pair[1]


def of_shared(item, shared, x):
    return times_item(shared, x) * item


UNREADABLE = {  # of an object whose class no worker can import: the sum or graph, and what is named
    "an item": (lambda odd, x: dg.map_sum(times_item, [1.0, odd], x), "item 1 .* 'times_item'"),
    "an item beside the variable": (
        lambda odd, x: dg.map_sum(of_pair, dg.zip([1.0, 2.0, odd], x), np.ones(3)),
        "item 2 .* 'of_pair'",
    ),
    "an argument": (lambda odd, x: dg.delayed(times_item)(odd, x), "an argument of 'times_item'"),
    "what a sum shares": (
        lambda odd, x: dg.map_sum(of_shared, [1.0, 2.0], odd, x),
        "an argument of 'of_shared'",
    ),
    "what a placed sum shares": (
        lambda odd, x: dg.map_sum(of_shared, dg.place([1.0, 2.0]), odd, x),
        "an argument of 'of_shared'",
    ),
    "a placed item": (lambda odd, x: dg.map_sum(times_item, dg.place([1.0, odd]), x), "item 1"),
}


@pytest.mark.parametrize("program", UNREADABLE)
def test_what_a_worker_cannot_import_is_named(program, client, monkeypatch):
    module = types.ModuleType("only_here")
    exec("class Odd: factor = 2.0", module.__dict__)
    monkeypatch.setitem(sys.modules, "only_here", module)
    fun, what = UNREADABLE[program]
    with pytest.raises(ModuleNotFoundError, match="No module named 'only_here'") as caught:
        dg.value_and_grad(lambda x: fun(module.Odd(), x))(X)
    told = "has no module 'only_here'; .*client.upload_file\\('only_here.py'\\)"
    assert re.search(f"{what} .*cannot be read there: .*{told}", "\n".join(caught.value.__notes__))


def test_within_one_process_nothing_is_sent():
    with dask.config.set(scheduler="threads"):
        for fun, _ in PROGRAMS.values():
            dg.value_and_grad(fun)(X)


def test_a_models_own_error_stays_as_it_is(client):
    def model(x):
        raise TypeError("mine")

    with pytest.raises(TypeError, match=r"^mine\n.*forward pass of model 'model'"):
        dg.value_and_grad(dg.delayed(model))(X)
