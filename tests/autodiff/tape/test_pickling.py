"""Models keep their derivatives in other processes, whatever they refer to by name."""

import autograd
import autograd.numpy as np
import pytest
from autograd import grad
from autograd.core import primitive_vjps
from autograd.extend import defjvp, defvjp, primitive
from autograd.numpy import sin
from autograd.numpy.linalg import _primitive_norm
from autograd.scipy.special import logsumexp
from lengths import in_short
from numpy.testing import assert_allclose, assert_array_equal
from schedulers import SCHEDULERS

import daskgrad as dg
from daskgrad.autodiff.tape import pickling
from daskgrad.autodiff.tape.pickling import dumps, loads, name_of
from daskgrad.scipy.linalg import expm

X = np.linspace(0.1, 1.0, 4)


def check(model):
    """A model in this module's closure is sent by value; its derivative is that of this process."""
    value, gradient = autograd.value_and_grad(model)(X)
    found = dg.value_and_grad(lambda x: dg.delayed(model)(x))(X)
    assert found[0] == value
    assert_array_equal(found[1], gradient)


ON = in_short("scheduler", SCHEDULERS, "cluster", indirect=True)


@ON
def test_primitives_and_derivatives_that_are_imported_by_name_keep_their_rules(scheduler):
    def model(x):
        slopes = np.array([grad(lambda t: t**3)(entry) for entry in x])
        return logsumexp(sin(x)) + np.sum(np.cos(x)) + np.sum(slopes * x)

    check(model)


@ON
def test_primitives_of_a_script_bring_their_rules_to_models_and_items(scheduler):
    @primitive
    def cube(x):
        return x**3

    @primitive
    def twice(x):
        return 2.0 * x

    defvjp(cube, lambda ans, x: lambda g: twice(g) * 1.5 * x**2)
    defvjp(twice, lambda ans, x: lambda g: twice(g))  # refers to itself

    check(lambda x: np.sum(cube(x) * twice(x)))

    class Item:
        def term(self, x):
            return np.sum(cube(x) * twice(x)) + np.trace(expm(np.diag(x)))

    value, gradient = autograd.value_and_grad(lambda x: np.sum(cube(x) * twice(x)))(X)
    found = dg.value_and_grad(lambda x: dg.map_sum(lambda item, x: item.term(x), [Item()], x))(X)
    assert_allclose(found[0], value + np.sum(np.exp(X)))
    assert_allclose(found[1], gradient + np.exp(X))


def test_a_primitive_arrives_once_and_with_its_newest_rules(monkeypatch):
    monkeypatch.setattr(pickling, "_own", {})  # as in another process
    monkeypatch.setattr(pickling, "token_of", lambda obj: "a token")

    @primitive
    def same(x):
        return x

    defvjp(same, lambda ans, x: lambda g: g)
    defjvp(same, lambda g, ans, x: g)
    first = loads(dumps(same))
    assert grad(first)(1.0) == 1.0
    defvjp(same, lambda ans, x: lambda g: 7.0 * g)
    second = loads(dumps(same))
    assert second is first
    assert grad(second)(1.0) == 7.0


def test_functions_of_autograd_and_daskgrad_are_sent_by_name():
    for fun in (np.sin, np.dot, logsumexp, np.linalg.solve, grad, np.shape):
        assert name_of(fun)[0].partition(".")[0] == "autograd"
        assert loads(dumps(fun)) is fun
    for fun in (expm, _primitive_norm):  # whose own names are SciPy's, and another one
        assert loads(dumps(fun)) is fun


def test_a_primitive_that_comes_back_is_the_one_that_was_sent():
    @primitive
    def same(x):
        return x

    defvjp(same, lambda ans, x: lambda g: g)
    rules = primitive_vjps[same]
    assert loads(dumps(same)) is same
    assert primitive_vjps[same] is rules


def test_a_model_that_cannot_be_loaded_is_an_error_of_its_task(client):
    def model(x):
        return np.sum(x * broken.value)

    class Broken:
        def __reduce__(self):
            return fail, ()

    def fail():
        raise ImportError("no module named gone")

    broken = Broken()
    with pytest.raises(ImportError, match="gone") as caught:
        dg.grad(lambda x: dg.delayed(model)(x))(X)
    assert "forward pass of model 'model'" in "".join(caught.value.__notes__)
