"""Variables in Fortran's order have the same bits wherever they are differentiated."""

import autograd.numpy as np
import dask
import numpy
import pytest
from samples import askew

import daskgrad as dg
from daskgrad.values.memory import canonical, of_its_own

GENERATOR = numpy.random.default_rng(0)
W = numpy.asfortranarray(GENERATOR.normal(size=(24, 37)))
Y = GENERATOR.normal(size=37)


def energy(W):
    return np.sum(np.tanh(W @ Y) ** 2) + np.sum(np.exp(0.1 * W))


def term(row):
    return np.sum(np.tanh(row) * Y) + np.dot(row, row)


def step(state, row):
    return np.tanh(state + 0.1 * row * np.sum(row * Y))


def smooth(block):
    inner = block[1:-1, 1:-1]
    return inner + 0.1 * np.sin(block[2:, 1:-1] - block[:-2, 1:-1]) * np.sum(block)


def of_a_sum(W):
    return dg.map_sum(term, W)


def of_slices(W):
    return dg.reduce_sum(lambda rows: np.sum(np.tanh(rows @ Y)), W, grainsize=7)


def of_entries(W):
    return dg.delayed(term)(W[3]) + dg.delayed(energy)(W[::2] @ numpy.ones((37, 37)))


def of_a_loop(W):
    return dg.delayed(np.sum)(dg.scan(step, numpy.zeros(37), 24, xs=W))


def of_a_state(W):
    loop = dg.scan(lambda W: np.tanh(W + 0.01 * np.sum(W @ Y)), W, 20, checkpoints=4)
    return dg.delayed(energy)(loop)


def of_a_domain(W):
    blocks = dg.map_overlap(smooth, dg.grid(W, (3, 2)), depth=1, steps=3, boundary="reflect")
    return dg.sum([dg.delayed(np.sum)(block) for block in blocks])


PROGRAMS = {
    "a model": lambda W: dg.delayed(energy)(W),
    "items": of_a_sum,
    "slices": of_slices,
    "entries": of_entries,
    "a loop's rows": of_a_loop,
    "a loop's state": of_a_state,
    "a domain": of_a_domain,
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_bits_are_the_same_on_every_scheduler(name, every_scheduler):
    def compute():
        value, gradient = dg.value_and_grad(PROGRAMS[name])(W)
        return float(value).hex(), gradient.tobytes()

    found = set()
    for seconds in (0, 60):
        with dask.config.set({"daskgrad.inline.seconds": seconds}):
            found |= set(every_scheduler(compute).values())
    assert len(found) == 1


def test_copies_stay_in_it():
    for found in (canonical(askew_in_order(W)), of_its_own(W), of_its_own(askew_in_order(W))):
        assert found.flags.fnc
        assert found.flags.aligned
        numpy.testing.assert_array_equal(found, W)


def askew_in_order(array):
    return askew(numpy.ascontiguousarray(array.T)).T
