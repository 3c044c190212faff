"""Containers of autograd's (``autograd.builtins``) within models: their cotangents are added."""

import autograd
import autograd.numpy as anp
import numpy as np
import pytest
from autograd.builtins import dict as boxed_dict
from autograd.builtins import list as boxed_list
from autograd.builtins import tuple as boxed_tuple
from numpy.testing import assert_allclose

import daskgrad as dg
from daskgrad.autodiff.tape import trace

pytestmark = pytest.mark.usefixtures("synchronous")

X, V = np.array([0.5, -0.7]), np.array([0.3, 1.1])
ONE, TWO = (1.0,), (2.0,)


def tuples(x):
    pair = boxed_tuple((x, x * 2.0))
    first, second = pair + ONE, pair + TWO
    return anp.sum(first[0] ** 3 + first[1] + second[0] * 5.0 + second[1] * 7.0 + pair[1])


def lists(x):
    pair = boxed_list([anp.sin(x), x * 2.0])
    first, second = pair + list(ONE), list(TWO) + pair
    return anp.sum(first[0] * second[1] + second[2] ** 2 + pair[0] + pair[1])


def slices(x):
    three = boxed_tuple((x, x**2, anp.exp(x)))
    return anp.sum(three[:2][1] * three[1:][1] + three[1] * three[2])


def nested(x):
    pair = boxed_dict({"a": x, "b": boxed_tuple((x * 2.0, x**2))})
    inner = pair["b"] + (1.0,)
    return anp.sum(pair["a"] * inner[1] + inner[0] ** 2 + pair["b"][1])


def decay(y, t, rate, force):
    return -rate * y + force * anp.sin(t)


def differential_equation(x):
    """Its rule returns the cotangent of all parameters as one tuple."""
    from autograd.scipy.integrate import odeint  # SciPy takes long to import

    times = np.linspace(0.0, 1.0, 4)
    path = odeint(decay, np.array([1.0, 2.0]), times, boxed_tuple((x, x * 2.0)))
    return anp.sum(path**2)


MODELS = [tuples, lists, slices, nested]


@pytest.mark.parametrize("model", [*MODELS, differential_equation])
def test_a_container_that_is_used_twice_gets_the_sum_of_its_cotangents(model):
    assert_allclose(dg.grad(dg.delayed(model))(X), autograd.grad(model)(X), rtol=1e-7)
    if model in MODELS:
        product = dg.hvp(dg.delayed(model), (X,), (V,))[1][0]
        assert_allclose(product, autograd.make_hvp(model)(X)[0](V), rtol=1e-6)


@pytest.mark.long
def test_second_derivatives_go_through_a_differential_equation():
    product = dg.hvp(dg.delayed(differential_equation), (X,), (V,))[1][0]
    assert_allclose(product, autograd.make_hvp(differential_equation)(X)[0](V), rtol=1e-6)


def test_two_dicts_as_cotangents_of_one_are_added():
    pair = {"a": np.array([1.0]), "b": 2.0}
    _, tape = trace(lambda box: [box, box], [pair])
    (found,) = tape.pull([pair, pair])
    assert found == {"a": np.array([2.0]), "b": 4.0}
    assert pair == {"a": np.array([1.0]), "b": 2.0}  # nothing was added into what was given
