"""Machine code answers from the first call on, wherever and however often a model runs."""

import itertools
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext

import autograd.numpy as np
import dask
import numpy
import pytest
from clusters import client_of, kill, whole_again
from comparisons import bits
from samples import decades

import daskgrad as dg
from daskgrad.autodiff.libraries import registry
from daskgrad.autodiff.values.descriptions import NondeterministicModelError

pytest.importorskip("llvmlite", reason="machine code needs daskgrad[native]")

from daskgrad.autodiff.native import backend
from daskgrad.autodiff.programs import store

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


def test_it_is_not_the_tape():
    """So the other tests see who answers."""
    assert bits(dg.value_and_grad(native(term))(X, X)) != bits(plain(term, X, X))


@pytest.mark.parametrize("items", [ITEMS, RAGGED], ids=["alike", "ragged"])
def test_the_bits_do_not_depend_on_calls_schedulers_and_grains(items):
    fun = term if items is ITEMS else ragged
    first = bits(result(items=items, fun=fun))
    for _ in range(3):  # calls
        assert bits(result(items=items, fun=fun)) == first
    for scheduler, grainsize in itertools.product(["synchronous", "threads"], [1000, 37, 5, 1]):
        with dask.config.set(scheduler=scheduler):
            assert bits(result(grainsize, items=items, fun=fun)) == first


def test_ways_have_the_same_bits_in_any_order():
    forth, back = (native(lambda row, x: branching(row, x)) for _ in range(2))
    one = [bits(dg.value_and_grad(forth, argnums=1)(row, X)) for row in ITEMS[:40]]
    other = [bits(dg.value_and_grad(back, argnums=1)(row, X)) for row in ITEMS[:40][::-1]]
    assert one == other[::-1]


def test_workers_and_their_replacements_have_the_same_bits(frail_cluster):
    expected = bits(result(grainsize=30))
    with client_of(frail_cluster) as client, dask.config.set({"daskgrad.inline.seconds": 0}):
        whole_again(client)
        assert bits(result(grainsize=30)) == expected
        kill(client, next(iter(client.ncores())))
        whole_again(client)
        assert bits(result(grainsize=30)) == expected
        placed = dg.place(ITEMS)
        assert bits(result(items=placed)) == expected


def test_threads_share_one_kind():
    model, gate = native(lambda x: np.sum(np.exp(x) * np.sin(x))), threading.Barrier(4)

    def run(_):
        gate.wait()
        return [bits(dg.value_and_grad(model)(X)) for _ in range(20)]

    with ThreadPoolExecutor(4) as pool:
        assert len({each for part in pool.map(run, range(4)) for each in part}) == 1


def test_derivatives_are_right():
    model = native(vector)
    expected = dg.delayed(vector, compile=False)
    for derivative in (dg.jacobian, lambda m: lambda x: dg.jvp(m, (x,), (x,))[1]):
        numpy.testing.assert_allclose(derivative(model)(X), derivative(expected)(X), rtol=1e-12)
    numpy.testing.assert_allclose(
        dg.hessian(native(energy))(X, X), dg.hessian(dg.delayed(energy))(X, X), rtol=1e-12
    )


# ------------------------------------------------------------------------------ what falls back


def test_without_machine_code_a_model_is_a_program():
    def sorted_sum(x):
        return np.sum(np.real(np.exp(1j * x)) * np.cumsum(np.sort(x)))

    model = native(sorted_sum)
    expected = bits(plain(sorted_sum, X))
    assert [bits(dg.value_and_grad(model)(X)) for _ in range(12)] == [expected] * 12
    assert "has no machine code" in dg.explain(model, X)


def test_a_model_that_cannot_be_recorded_is_left_to_the_tape():
    def odd(x):
        return np.sum(np.exp(x)) * float(str(len(X))) if repr(numpy.asarray(dg.value(x))) else 0.0

    model = native(odd)
    assert [bits(dg.value_and_grad(model)(X)) for _ in range(5)] == [bits(plain(odd, X))] * 5


def test_an_error_of_floating_point_is_the_models():
    model, lines = native(lambda x: np.sum(np.log(x))), []
    zero = numpy.array([0.0, *X[1:]])
    for x in (zero, X, zero, X):
        with nullcontext() if x is X else pytest.warns(RuntimeWarning, match="divide by zero"):
            lines.append(bits(dg.value_and_grad(model)(x)))
    assert lines[0] == lines[2]
    assert lines[1] == lines[3]


def test_an_objective_of_machine_code_is_no_program():
    function = dg.value_and_grad(lambda x: native_energy(x, X) * 2.0)
    with dask.config.set({"daskgrad.inline.seconds": 1}):
        assert len({bits(function(X)) for _ in range(30)}) == 1
        assert "machine code" in dg.explain(function, X)


native_energy = native(energy)


# --------------------------------------------------------------------------------- comparisons


def test_machine_code_that_is_wrong_is_an_error(monkeypatch):
    plain_forward = backend.NativeProgram.forward

    def wrong(self, *inputs):
        (value,), gradient = plain_forward(self, *inputs)
        return [value * (1.0 + 1e-9 * (len(runs) > 3))], gradient

    runs = []
    monkeypatch.setattr(backend.NativeProgram, "forward", wrong)
    model = native(lambda x: np.sum(np.exp(x)))
    for _ in range(3):
        dg.value_and_grad(model)(X)
    runs += range(4)
    with pytest.raises(NondeterministicModelError, match="machine code of '<lambda>'"):
        for _ in range(5):  # until the next comparison
            dg.value_and_grad(model)(X)


def test_a_gradient_that_vanishes_is_right():
    """Its entries are nothing but rounding, on the tape, too."""
    model = native(lambda x, y: np.sum((np.exp(x) - y) ** 2 + np.sin(x) * 1e3))
    y = numpy.exp(X) + 0.5e3 * numpy.cos(X) / numpy.exp(X)
    for _ in range(9):
        gradient = dg.grad(model)(X, y)
        assert numpy.abs(gradient).max() < 1e-9


def test_random_numbers_are_an_error():
    model = native(lambda x: np.sum(np.exp(x)) * numpy.random.default_rng().normal())
    with pytest.raises(NondeterministicModelError, match="machine code"):
        dg.value_and_grad(model)(X)


# ------------------------------------------------------------------------------- the user's word


def test_the_configuration_asks_for_it():
    with dask.config.set({"daskgrad.compile": "native"}):
        assert dg.delayed(term).model.backend == "native"
        assert dg.delayed(term, compile=False).model.backend == "autograd"
        value = dg.value_and_grad(lambda x: dg.map_sum(term, ITEMS, x))(X)
    assert bits(value) == bits(
        dg.value_and_grad(lambda x: dg.map_sum(native(term), ITEMS, x))(X)
    )


def test_nobody_gets_it_unasked():
    for mode in ("auto", True, False):
        assert dg.delayed(term, compile=mode).model.backend != "native"


@pytest.mark.parametrize("library", ["llvmlite", "scipy"])
def test_without_the_extra_the_error_names_it(library, monkeypatch):
    monkeypatch.delitem(registry._loaded, "native", raising=False)
    for name in [name for name in sys.modules if name.startswith("daskgrad.autodiff.native")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(ModuleNotFoundError, match=rf"needs {library}.*daskgrad\[native\]"):
        dg.delayed(term, compile="native")


def test_explain_tells_of_machine_code():
    model = native(lambda x: np.sum(np.exp(x)))
    assert "will be machine code from its first call" in dg.explain(model, X)
    dg.value_and_grad(model)(X)
    text = dg.explain(model, X)
    assert "is machine code since its first call" in text
    assert "Calls that go back to NumPy: none" in text
    assert "s of processor time" in text


def test_a_kind_is_compiled_at_its_first_call(monkeypatch):
    made, compiled = [], backend.compiled
    monkeypatch.setattr(backend, "compiled", lambda *args: made.append(1) or compiled(*args))
    model = native(lambda x: np.sum(np.exp(x)))
    counts = []
    for x in (X, X, X[:3], X, X[:3]):
        dg.value_and_grad(model)(x)
        counts.append(len(made))
    assert counts == [1, 1, 2, 2, 2]
    assert store.CALLS > 1
