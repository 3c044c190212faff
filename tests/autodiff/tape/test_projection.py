"""Real values in complex models: what arrives at them is real, whatever a rule returns."""

import autograd.numpy as anp
import numpy as np
import pytest
from autograd.core import make_vjp
from autograd.extend import defjvp, defvjp, primitive

import daskgrad as dg
from daskgrad.autodiff.models.travel import seal
from daskgrad.autodiff.tape import linearize, trace
from daskgrad.autodiff.tape.pickling import TapePickler

pytestmark = pytest.mark.usefixtures("synchronous")

Z, V, W = np.random.default_rng(0).standard_normal((3, 3, 2)) @ [1.0, 1.0j]
WW = np.concatenate([W, V])


def real_sum(weights, value):
    return anp.sum(anp.real(weights * value))


def twice_shifted(z):
    radii = anp.abs(z) * 2.0
    return real_sum(W[:2], anp.stack([radii[1:] + radii[:2], z[1:]])) + anp.sum(radii**2)


MODELS = {  # rules of autograd's hand complex cotangents to the real arguments of these
    "stack": lambda z: real_sum(W, anp.stack([anp.abs(z), z])),
    "stack twice the modulus": lambda z: real_sum(W, anp.stack([2.0 * anp.abs(z), z])),
    "stack a sum": lambda z: real_sum(W, anp.stack([anp.abs(z) + anp.abs(z) ** 2, z])),
    "concatenate": lambda z: real_sum(WW, anp.concatenate([anp.abs(z) ** 2, z])),
    "append": lambda z: real_sum(WW, anp.append(anp.abs(z) * 2.0, z)),
    "array": lambda z: real_sum(W, anp.array([anp.abs(z[0]), z[1], anp.abs(z[2]) * 2.0])),
    "where": lambda z: real_sum(W, anp.where([True, False, True], anp.abs(z) * 2.0, z)),
    "real and imaginary": lambda z: real_sum(W, anp.stack([anp.imag(z) * anp.real(z), z])),
    "slices": twice_shifted,
    "norm": lambda z: real_sum(W[:2], anp.stack([anp.linalg.norm(z) * 2.0, z[0]])),
    "gradient of a norm": lambda z: real_sum(W, make_vjp(anp.linalg.norm, z)[0](1.0)),
    "real root, used twice": lambda z: real_sum(W, anp.stack([z, anp.exp(1j * z)]) + z),
}


def difference(model, x, v):
    return (model(x + 1e-6 * v) - model(x - 1e-6 * v)) / 2e-6


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(("x", "v"), [(Z, V), (Z.real, V.real)], ids=["complex", "real"])
def test_both_modes_and_second_derivatives_say_what_differences_say(name, x, v):
    model = dg.delayed(MODELS[name])
    slope = difference(MODELS[name], x, v)
    gradient = dg.grad(model)(x)
    assert gradient.dtype == x.dtype
    np.testing.assert_allclose(np.real(np.sum(gradient * v)), slope, rtol=1e-7)
    np.testing.assert_allclose(dg.jvp(model, (x,), (v,))[1], slope, rtol=1e-7)
    _, (product,) = dg.hvp(model, (x,), (v,))
    np.testing.assert_allclose(product, difference(dg.grad(model), x, v), rtol=1e-6, atol=1e-8)


@primitive
def forgetful(x):
    """x², whose rules leave an imaginary part."""
    return x**2


defvjp(forgetful, lambda ans, x: lambda g: (2.0 * x + 3.0j) * g)
defjvp(forgetful, lambda g, ans, x: (2.0 * x + 3.0j) * g)


@pytest.mark.parametrize("x", [2.0, np.float64(2.0), np.float32(2.0), np.array(2.0)], ids=repr)
def test_a_rule_that_leaves_an_imaginary_part_does_so_for_complex_values_alone(x):
    for number, slope in ((x, 4.0), (x + 0.0j, 4.0 + 3.0j)):
        _, tape = trace(lambda a: [forgetful(a)], [number])
        assert tape.pull([1.0]) == [slope]
        _, push = linearize(lambda a: [forgetful(a)], [number])
        assert push([1.0]) == [slope]


def test_a_tape_that_travelled_projects_too():
    _, tape = trace(lambda a: [forgetful(a) * 1.0], [2.0])
    assert seal(tape, TapePickler).load().pull([1.0]) == [4.0]
