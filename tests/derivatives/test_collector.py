"""Full collections of Python's garbage collector are rare during an evaluation, others are not."""

import gc
import threading
import weakref

import dask
import numpy as np
import pytest

import daskgrad as dg
from daskgrad.derivatives.evaluation import RARE

pytestmark = pytest.mark.usefixtures("synchronous")

X = np.array([1.0, 2.0])


@pytest.fixture(autouse=True)
def _usual():
    own = gc.get_threshold()
    gc.set_threshold(700, 10, 10)
    yield
    gc.set_threshold(*own)


def thresholds_within(derivative):
    """Those that a model sees, with the ones that are left."""
    seen = []

    @dg.delayed(compile=False)
    def look(x):
        seen.append(gc.get_threshold())
        return np.sum(x * 1.0)

    derivative(look)
    return [*dict.fromkeys(seen), gc.get_threshold()]


@pytest.mark.parametrize(
    "derivative",
    [
        lambda model: dg.grad(model)(X),
        lambda model: dg.grad(lambda x: model(x) + model(2.0 * x))(X),
        lambda model: dg.vjp(model, X)[1](1.0),
        lambda model: dg.jvp(model, (X,), (X,)),
        lambda model: dg.hvp(model, (X,), (X,)),
        lambda model: dg.jacobian(model)(X),
    ],
)
def test_the_threshold_is_another_while_models_run(derivative):
    assert thresholds_within(derivative) == [(700, 10, RARE), (700, 10, 10)]


def test_it_is_put_back_after_an_error():
    @dg.delayed
    def fails(x):
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        dg.grad(fails)(X)
    assert gc.get_threshold() == (700, 10, 10)


@pytest.mark.parametrize("own", [0, RARE, 1000])
def test_a_threshold_of_the_users_that_is_higher_or_zero_stays(own):
    gc.set_threshold(700, 10, own)
    assert thresholds_within(lambda model: dg.grad(model)(X)) == [gc.get_threshold()] * 2


def test_a_threshold_that_is_set_meanwhile_stays():
    @dg.delayed(compile=False)
    def sets(x):
        gc.set_threshold(500, 5, 50)
        return np.sum(x * 1.0)

    dg.grad(sets)(X)
    assert gc.get_threshold() == (500, 5, 50)


def test_the_last_of_several_evaluations_puts_it_back():
    begun, may_end = threading.Event(), threading.Event()

    @dg.delayed(compile=False)
    def waits(x):
        begun.set()
        assert may_end.wait(60)
        return np.sum(x * 1.0)

    thread = threading.Thread(target=dg.grad(waits), args=(X,))
    thread.start()
    assert begun.wait(60)
    dg.grad(dg.delayed(np.sum))(X)
    within = gc.get_threshold()
    may_end.set()
    thread.join(60)
    assert [within, gc.get_threshold()] == [(700, 10, RARE), (700, 10, 10)]


def test_cycles_that_models_leave_behind_are_collected_during_an_evaluation():
    class Cycle:
        def __init__(self):
            self.itself = self

    alive, most = weakref.WeakSet(), []

    @dg.delayed(compile=False)
    def leaves_one_behind(x):
        alive.add(Cycle())
        most.append(len(alive))
        return np.sum(x * 1.0)

    with dask.config.set({"daskgrad.inline.seconds": 60}):
        dg.grad(lambda x: dg.sum([leaves_one_behind(x) for _ in range(3000)]))(X)
    assert len(most) == 3000
    assert max(most) < 1000
