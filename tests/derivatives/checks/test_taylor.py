"""Taylor's remainders fall at the rates that right derivatives give them, and at no others."""

import math

import autograd.numpy as np
import pytest
from test_first_wrong_rule import sine

import daskgrad as dg

X = np.array([0.3, -0.5, 0.9])

pytestmark = pytest.mark.usefixtures("synchronous")


def graph(x, y):
    return dg.delayed(np.sin)(x * 2.0) @ dg.delayed(np.exp)(y)


FUNCTIONS = {
    "a number": (dg.delayed(lambda x: np.sum(np.exp(x))), X),
    "an array": (dg.delayed(lambda x: np.sin(x) * np.outer(x, x)), X),
    "a matrix": (dg.delayed(lambda a, b: np.linalg.solve(a, b)), np.eye(3) * 3 + 0.1, X),
    "a pytree": (dg.delayed(lambda p: {"a": p["x"] ** 3 * p["n"], "s": "text"}), {"x": X, "n": 2}),
    "large values": (dg.delayed(lambda x: 1e8 * np.sin(x)), X),
    "a graph": (graph, X, X + 1.0),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_rates_are_one_two_and_three(name):
    fun, *args = FUNCTIONS[name]
    for seed in range(3):
        rates = dg.taylor_rates(fun, seed=seed)(*args)
        assert rates == pytest.approx((1.0, 2.0), abs=0.1)
    assert dg.taylor_rates(fun, order=2)(*args) == pytest.approx((1, 2, 3), abs=0.1)


def test_a_gradient_that_is_off_by_a_thousandth_lowers_the_second_rate():
    right = dg.taylor_rates(dg.delayed(lambda x: sine(x, 1.0)))(X)
    wrong = dg.taylor_rates(dg.delayed(lambda x: sine(x, 1.001)))(X)
    assert right == pytest.approx((1.0, 2.0), abs=0.05)
    assert wrong[0] == right[0]
    assert wrong[1] < 1.9


def test_a_wrong_hessian_lowers_the_third_rate(monkeypatch):
    monkeypatch.setattr(
        "daskgrad.derivatives.checks.taylor.hvp",
        lambda fun, primals, tangents: ((np.exp(X),), (1.01 * np.exp(X) * tangents[0],)),
    )
    rates = dg.taylor_rates(dg.delayed(lambda x: np.sum(np.exp(x))), order=2)(X)
    assert rates[:2] == pytest.approx((1.0, 2.0), abs=0.05)
    assert rates[2] < 2.9


def test_a_remainder_that_vanishes_and_nan_have_no_rate():
    linear = dg.taylor_rates(dg.delayed(lambda x: 3.0 * x))(X)
    assert linear[0] == pytest.approx(1.0, abs=1e-6)
    assert linear[1] == math.inf
    assert dg.taylor_rates(dg.delayed(lambda x: 0.0 * x + 2.0))(X) == (math.inf, math.inf)
    assert all(map(math.isnan, dg.taylor_rates(dg.delayed(lambda x: np.sum(x) * np.nan))(X)))
