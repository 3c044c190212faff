"""Right-hand sides that jump in time: solved piece by piece, or a warning where a jump moves."""

import autograd.numpy as np
import numpy
import pytest
from numpy.testing import assert_allclose

import daskgrad as dg
from daskgrad.scipy.integrate import solve_ivp

X = numpy.array([0.3, -0.2, 4.321])
FINE = {"rtol": 1e-9, "atol": 1e-12}


def branch(t, y, x):
    return (x[1] if t > x[2] else x[0]) * y


MOVING = {
    "if": branch,
    "where": lambda t, y, x: np.where(t > x[2], x[1], x[0]) * y,
    "heaviside": lambda t, y, x: (x[0] + (x[1] - x[0]) * np.heaviside(t - x[2], 0.5)) * y,
    "sign": lambda t, y, x: (x[0] + (x[1] - x[0]) * (1.0 + np.sign(t - x[2])) / 2) * y,
    "product": lambda t, y, x: (x[0] * (t <= x[2]) + x[1] * (t > x[2])) * y,
    "select": lambda t, y, x: np.select([t <= x[2], t > x[2]], [x[0], x[1]]) * y,
    "a value of y": lambda t, y, x: x[0] + (y > x[2] / 3.0),
    "a fixed value of y": lambda t, y, x: x[0] + (y > 1.5),
}
FIXED = {
    "a fixed time": lambda t, y, x: (x[1] if t > 4.0 else x[0]) * y,
    "a kink": lambda t, y, x: x[0] * np.maximum(t - x[2], 0.0) * y,
    "smooth": lambda t, y, x: x[0] * y * np.cos(t * x[2]),
    "a steep start": lambda t, y, x: 100.0 * (x[0] - y) * np.exp(x[1]),
}


def at_the_end(fun, x, **options):
    return solve_ivp(fun, (0.0, 10.0), np.ones(1), args=(x,), **options).y[0, -1]


@pytest.mark.parametrize("options", [{}, FINE, {"method": "DOP853"}], ids=["", "fine", "DOP853"])
@pytest.mark.parametrize("name", MOVING)
def test_a_jump_that_moves_is_told(name, options):
    model = dg.delayed(lambda x: at_the_end(MOVING[name], x, **options), compile=False)
    message = r"fun jumps at t = \d.*Give the time.*jumps="
    with pytest.warns(RuntimeWarning, match=message) as warned:
        dg.grad(model)(X)
    assert len(warned) == 1, "once for a solution"


def test_a_jump_of_a_vectorized_function_is_told():
    def fun(t, y, x):
        assert np.ndim(y) == 2
        return MOVING["where"](t, y, x)

    model = dg.delayed(lambda x: at_the_end(fun, x, vectorized=True, max_step=0.5))
    with pytest.warns(RuntimeWarning, match="fun jumps at t"):
        dg.grad(model)(X)


@pytest.mark.parametrize("method", ["RK45", "Radau"])
@pytest.mark.parametrize("name", FIXED)
def test_nothing_is_said_of_other_functions(name, method):
    model = dg.delayed(lambda x: at_the_end(FIXED[name], x, method=method))
    dg.grad(model)(X)
    dg.jvp(model, (X,), (X,))


def exact(x):
    return np.exp(x[0] * x[2] + x[1] * (10.0 - x[2]))


@pytest.mark.parametrize("method", ["RK45", "DOP853", "Radau"])
def test_derivatives_of_all_orders_have_the_part_of_a_jump(method):
    model = dg.delayed(lambda x: at_the_end(branch, x, method=method, jumps=[x[2]], **FINE))
    right, direction = dg.delayed(exact), numpy.array([0.5, 1.0, -2.0])
    tolerance = {"rtol": 1e-5 if method == "Radau" else 1e-7}
    assert_allclose(dg.grad(model)(X), dg.grad(right)(X), **tolerance)
    for derivative in (dg.jvp, dg.hvp):
        found, expected = (derivative(of, (X,), (direction,))[1] for of in (model, right))
        assert_allclose(numpy.ravel(found), numpy.ravel(expected), **tolerance)


def differences(fun, x):
    steps = 1e-5 * numpy.eye(len(x))
    return [(fun(x + step) - fun(x - step)) / 2e-5 for step in steps]


def two_jumps(t, y, x):
    return numpy.select([t < x[2], t < 2.0 * x[2]], [x[0], x[1]], 0.4) * y


def level(t, y, x):
    return y[0] - 5.0


level.terminal = True
WAYS = {
    "t_eval": lambda x: np.sum(solved(x, t_eval=numpy.linspace(0.0, 10.0, 7)).y),
    "sol": lambda x: solved(x, dense_output=True).sol(6.0)[0] ** 2,
    "sol of many": lambda x: np.sum(solved(x, dense_output=True).sol(numpy.array([9.0, 1.0]))),
    "times": lambda x: np.sum(solved(x).t[-1] * solved(x).y[0, -1]),
    "backwards": lambda x: solved(x, span=(10.0, 0.0)).y[0, -1],
    "an event": lambda x: solved(x, events=level).t_events[0][0],
    "a jump outside": lambda x: solved(x, jumps=[x[2], 2.0 * x[2], -x[0], 11.0]).y[0, -1],
}


def solved(x, span=(0.0, 10.0), jumps=None, **options):
    jumps = [2.0 * x[2], x[2]] if jumps is None else jumps
    x = np.array([x[0], x[1] + 0.3, x[2]])
    return solve_ivp(two_jumps, span, np.ones(1), args=(x,), jumps=jumps, **FINE, **options)


@pytest.mark.parametrize("name", WAYS)
def test_pieces_are_one_solution(name):
    assert_allclose(dg.grad(dg.delayed(WAYS[name]))(X), differences(WAYS[name], X), rtol=1e-6)


def test_the_result_of_pieces_is_as_that_of_the_whole():
    plain, whole = (solved(X, jumps=jumps, t_eval=[0.0, 5.0, 10.0]) for jumps in (None, []))
    assert_allclose(plain.y, whole.y, rtol=1e-6)
    assert plain.success
    assert plain.status == 0
    assert plain.sol is None
    assert numpy.all(numpy.diff(solved(X).t) > 0.0)
    failing = solve_ivp(lambda t, y: y**2, (0.0, 2.0), np.ones(1), jumps=[0.5])
    assert not failing.success
