"""Which models become machine code, when, what falls back, and that a wrong result is an error."""

import sys
from contextlib import nullcontext

import autograd.numpy as np
import dask
import numpy
import pytest
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


def term(row, x):
    return np.sum(np.exp(np.sin(row * x)))


def vector(x):
    return np.exp(x) * np.sin(x[::-1])


def energy(x, y):
    return np.sum((np.exp(x) - y) ** 2)


def native(fun, **options):
    return dg.delayed(fun, compile="native", **options)


def plain(fun, *args):
    return dg.value_and_grad(dg.delayed(fun, compile=False))(*args)


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
    for _ in range(3):  # compared: the first two; the fourth is next
        dg.value_and_grad(model)(X)
    runs += range(4)
    with pytest.raises(NondeterministicModelError, match="machine code of '<lambda>'"):
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
    assert bits(value) == bits(dg.value_and_grad(lambda x: dg.map_sum(native(term), ITEMS, x))(X))


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


def test_items_of_many_lengths_are_one_function(monkeypatch):
    made, function = [], backend.compiled
    monkeypatch.setattr(backend, "compiled", lambda *args: made.append(function(*args)) or made[-1])
    model = native(lambda row, x: np.sum(np.exp(row * x)))
    items = [numpy.linspace(0.0, 1.0, 2 + number % 7) for number in range(50)]
    with dask.config.set(scheduler="sync"):  # two threads may compile one kind at a time
        dg.value_and_grad(lambda x: dg.map_sum(model, items, x))(1.5)
    assert len(made) == 7
    assert len({id(code) for code in made}) == 1


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
