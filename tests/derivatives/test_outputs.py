"""Odd outputs, arguments and cotangents of derivatives that are right, or that warn."""

import autograd.numpy as anp
import numpy as np
import pytest
from inputs import C, X, double, energy, named
from numpy.testing import assert_allclose, assert_array_equal

import daskgrad as dg

pytestmark = pytest.mark.usefixtures("synchronous")


def test_an_argument_that_is_not_used_gets_zeros_and_a_warning_that_names_it():
    parameters = {"w": X, "n": 3, "name": "text", "b": [1.0, 2]}
    derivative = dg.value_and_grad(named(lambda x, parameters: energy(x), "loss"), argnums=(0, 1))
    ignores = dg.delayed(lambda x, y: anp.sum(x), name="model")
    with pytest.warns(UserWarning, match="does not depend on 'y'"):
        assert_array_equal(dg.grad(ignores, argnums=1)(X, X), np.zeros(3))
    with pytest.warns(UserWarning, match="output of 'loss' does not depend on 'parameters'"):
        value, (first, second) = derivative(X, parameters)
    assert_allclose(value, np.sum(X**2))
    assert_allclose(first, 2 * X)
    assert_array_equal(second["w"], np.zeros(3))
    assert second["n"] is None
    assert second["name"] is None
    assert second["b"] == [0.0, None]


def test_argnums_are_also_numpys_integers():
    assert_allclose(dg.grad(energy, argnums=np.int64(0))(X), 2 * X)
    (gradient,) = dg.grad(energy, argnums=np.array([0]))(X)
    assert_allclose(gradient, 2 * X)


def test_a_variable_of_the_users_own_is_a_constant():
    other = dg.variable(C)
    gradient = dg.grad(lambda x: energy(x * other))(X)
    assert_allclose(gradient, 2 * X * C**2)


def test_differentiate_warns_of_a_variable_that_is_not_used():
    x, y = dg.variable({"a": X, "b": X}, "x"), dg.variable(X, "y")
    for wrt, name in ((y, "'y'"), (x["b"], r"\"x\['b'\]\"")):
        with pytest.warns(UserWarning, match=f"output of 'energy' does not depend on {name}"):
            value, gradient = dg.differentiate(energy(x["a"]), wrt)
        assert_allclose(value.compute(), np.sum(X**2))
        assert_array_equal(gradient.compute(), np.zeros(3))


def test_a_cotangent_for_what_has_no_derivative_is_none():
    _, pullback = dg.vjp(dg.delayed(lambda x: [3, x], name="model"), X)
    with pytest.raises(TypeError, match="cotangent of 'model': 3 has no derivative; pass None"):
        pullback([1.0, X])
    assert_array_equal(pullback([None, X])[0], X)


def test_cotangents_of_narrower_kinds_are_taken():
    _, pullback = dg.vjp(double, X)
    for cotangent in (np.ones(3, dtype=int), np.ones(3, dtype=bool), np.ones(3, dtype=np.float32)):
        (gradient,) = pullback(cotangent)
        assert gradient.dtype == np.float64
        assert_array_equal(gradient, [2.0, 2.0, 2.0])
