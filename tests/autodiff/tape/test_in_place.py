"""``a += b`` in models: right where nobody else holds the array, and an error elsewhere."""

import autograd.numpy as np
import numpy
import pytest
from numpy.testing import assert_allclose

import daskgrad as dg

X = numpy.array([0.5, 2.0, 3.0, 1.0])


class Holder:
    pass


def accumulated(x):
    total = 0.0 * x
    for n in range(3):
        total += n * x**2
    total *= x
    return np.sum(total)


def scalars(x):
    total = other = x[0]
    total += x[1]
    return total * other


def views_that_are_gone(x):
    u = 1.0 * x
    rises = u[1:] * u[:-1]
    u += 2.0
    return np.sum(u**2) + np.sum(rises)


def a_view_of_nothing_else(x):
    table = np.exp(x).reshape(2, 2).T
    table -= 1.0
    return np.sum(table[0] ** 2)


def halves(x):
    left, right = np.split(2.0 * x, 2)
    left += 1.0
    return np.sum(left * right)


def an_attribute_and_an_entry(x):
    holder, entries = Holder(), [2.0 * x]
    holder.total = 1.0 * x
    holder.total += x
    entries[0] *= x
    return np.sum(holder.total * entries[0])


def a_copy(x):
    y = 1.0 * x
    z = np.array(y)
    y += 1.0
    return np.sum(y * z)


RIGHT = [
    accumulated,
    scalars,
    views_that_are_gone,
    a_view_of_nothing_else,
    halves,
    an_attribute_and_an_entry,
    a_copy,
]


@pytest.mark.parametrize("compile", [False, True])
@pytest.mark.parametrize("fun", RIGHT)
def test_an_array_that_nobody_else_holds_is_added_to(fun, compile):
    model = dg.delayed(fun, compile=compile)
    differences = [(fun(X + 1e-6 * e) - fun(X - 1e-6 * e)) / 2e-6 for e in numpy.eye(4)]
    for _ in range(3):
        value, gradient = dg.value_and_grad(model)(X)
        assert value == fun(X)
        assert_allclose(gradient, differences, rtol=1e-7)
    assert_allclose(dg.jvp(model, (X,), (X,))[1], differences @ X, rtol=1e-7)
    assert_allclose(dg.hvp(model, (X,), (X,))[0][0], gradient, rtol=1e-12)


def through_a_view(x):
    u = 1.0 * x
    inner = u[1:-1]
    inner += 0.1 * u[:-2]
    return np.sum(u**2)


def below_a_view(x):
    y = 2.0 * x
    table = y.reshape(2, 2)
    y *= x
    return np.sum(table[0])


def beside_a_view(x):
    y = (2.0 * x).reshape(2, 2)
    first, second = y[0], y.T[0]
    del y
    first -= x[:2]
    return np.sum(second)


def by_another_name(x):
    y = z = 1.0 * x
    y += 1.0
    return np.sum(z**2)


def in_a_list(x):
    rows = [1.0 * x, 2.0 * x]
    for row in rows:
        row += 1.0
    return np.sum(rows[0])


def an_argument(x):
    x += 1.0
    return np.sum(x)


WRONG = [through_a_view, below_a_view, beside_a_view, by_another_name, in_a_list, an_argument]


@pytest.mark.parametrize("compile", [False, True])
@pytest.mark.parametrize("fun", WRONG)
def test_an_array_that_somebody_else_holds_is_not(fun, compile):
    model = dg.delayed(fun, compile=compile)
    calls = [
        lambda: dg.grad(model)(X),
        lambda: dg.jvp(model, (X,), (X,)),
        lambda: dg.hvp(model, (X,), (X,)),
    ]
    for call in calls:
        message = r"[+*-]= changes a traced array .* in .*test_in_place.py:\d+, .* Write a = a . b"
        with pytest.raises(TypeError, match=message):
            call()
