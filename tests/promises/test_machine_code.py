"""One set of bits, whoever calls machine code, and wherever."""

import itertools
import threading
from concurrent.futures import ThreadPoolExecutor

import autograd.numpy as np
import dask
import numpy
import pytest
from clusters import client_of, kill, whole_again
from comparisons import bits
from samples import decades

import daskgrad as dg

pytest.importorskip("llvmlite", reason="machine code needs daskgrad[native]")

from daskgrad.autodiff.native.backend import NativeProgram

X = numpy.linspace(0.2, 1.3, 4)
ITEMS = list(decades(300, 4, count=3))
RAGGED = [decades(2 + number % 5, seed=number, count=3) for number in range(60)]


def term(row, x):
    return np.sum(np.exp(np.sin(row * x[: len(row)]))) + np.log1p(x[0] ** 2)


def ragged(row, x):
    return np.sum(np.tanh(row * x[0])) * x[1]


def branching(row, x):
    return np.exp(x[0]) * row[0] if row[1] > 1.0 else np.sum(np.sin(row * x))


def vector(x):
    return np.exp(x) * np.sin(x[::-1])


def energy(x, y):
    return np.sum((np.exp(x) - y) ** 2)


def native(fun, **options):
    return dg.delayed(fun, compile="native", **options)


def objective(x, grainsize="auto", items=ITEMS, fun=term):
    return dg.map_sum(native(fun), items, vectors(x), grainsize=grainsize) + native(energy)(x, X)


vectors = native(vector)


def result(*options, **named):
    return dg.value_and_grad(lambda x: objective(x, *options, **named))(X)


def plain(fun, *args):
    return dg.value_and_grad(dg.delayed(fun, compile=False))(*args)


def mark(put=setattr):
    """Has machine code of this process answer a little more than the tape, so that it shows."""
    forward, rows = NativeProgram.forward, NativeProgram.rows

    def more(values):
        return [x if x is None else x * (1.0 + 2.0**-44) for x in values]

    def one(self, *inputs):
        outputs, residuals = forward(self, *inputs)
        return more(outputs), tuple(more(residuals)) if self.has_gradient else residuals

    put(NativeProgram, "forward", one)
    put(NativeProgram, "rows", lambda *args: more(rows(*args)))


@pytest.fixture
def marked(monkeypatch):
    mark(monkeypatch.setattr)


@pytest.mark.usefixtures("marked")
def test_machine_code_answers():
    assert bits(dg.value_and_grad(native(energy))(X, X)) != bits(plain(energy, X, X))


@pytest.mark.usefixtures("marked")
@pytest.mark.parametrize("items", [ITEMS, RAGGED], ids=["alike", "ragged"])
def test_the_bits_do_not_depend_on_calls_schedulers_and_grains(items):
    fun = term if items is ITEMS else ragged
    first = bits(result(items=items, fun=fun))
    with dask.config.set({"daskgrad.inline.seconds": 10}):
        for _ in range(15):  # so often that an objective becomes a program
            assert bits(result(items=items, fun=fun)) == first
    for scheduler, grainsize in itertools.product(["synchronous", "threads"], [1000, 37, 5, 1]):
        with dask.config.set(scheduler=scheduler):
            assert bits(result(grainsize, items=items, fun=fun)) == first


def test_no_program_takes_over_an_objective(monkeypatch):
    calls, forward = [], NativeProgram.forward
    monkeypatch.setattr(NativeProgram, "forward", lambda *args: calls.append(1) or forward(*args))
    function = dg.value_and_grad(lambda x: exact(x, X) * 2.0)
    with dask.config.set({"daskgrad.inline.seconds": 10}):
        for number in range(30):
            function(X)
            assert len(calls) > number


exact = native(lambda x, y: np.sum((x - y) ** 2 * x))  # a program would be like it


@pytest.mark.usefixtures("marked")
def test_ways_have_the_same_bits_in_any_order():
    forth = native(lambda row, x: branching(row, x))  # equal functions share what is compiled
    back = native(lambda row, x: 1.0 * branching(row, x))
    one = [bits(dg.value_and_grad(forth, argnums=1)(row, X)) for row in ITEMS[:40]]
    other = [bits(dg.value_and_grad(back, argnums=1)(row, X)) for row in ITEMS[:40][::-1]]
    assert one == other[::-1]


@pytest.mark.usefixtures("marked")
def test_workers_and_their_replacements_have_the_same_bits(frail_cluster):
    expected = bits(result(grainsize=30))
    with client_of(frail_cluster) as client, dask.config.set({"daskgrad.inline.seconds": 0}):
        client.restart()  # processes without marks
        whole_again(client)
        before = {*client.run(mark)}
        assert bits(result(grainsize=30)) == expected
        kill(client, next(iter(before)))
        whole_again(client)
        replacements = [*{*client.ncores()} - before]
        assert replacements
        client.run(mark, workers=replacements)
        assert bits(result(grainsize=30)) == expected
        placed = dg.place(ITEMS)
        assert bits(result(items=placed)) == expected
        client.restart()  # other tests' workers have no marks


@pytest.mark.usefixtures("marked")
def test_threads_share_one_kind():
    model, gate = native(lambda x: np.sum(np.exp(x) * np.sin(x))), threading.Barrier(4)

    def run(_):
        gate.wait()
        return [bits(dg.value_and_grad(model)(X)) for _ in range(20)]

    with ThreadPoolExecutor(4) as pool:
        assert len({each for part in pool.map(run, range(4)) for each in part}) == 1
