"""``daskgrad.scipy.integrate.solve_ivp``: SciPy's values, and derivatives of its discrete solution.

Where a program has fixed steps, SciPy's solution is smooth, and its differences are those of ours.
"""

import math

import numpy as np
import pytest
import scipy.integrate
import scipy.optimize
from functions_checked import check_against_scipy, check_error, checking, counted
from lengths import in_short
from numpy.testing import assert_allclose, assert_array_equal
from tables import rows_of

import daskgrad as dg
from daskgrad.autodiff.tape import trace
from daskgrad.scipy import integrate, optimize

check = checking(integrate, scipy.integrate)
P = np.array([1.3, 0.7])
FIXED = {"rtol": 1e3, "atol": 1e3, "first_step": 0.3, "max_step": 0.3}
TIGHT = {"method": "Radau", "rtol": 1e-10, "atol": 1e-12}
EXPLICIT = ("RK23", "RK45", "DOP853")
TIMES = np.array([0.0, 0.1, 0.3, 0.35, 0.9])


def prey(t, y, a, b):
    return [a * y[0] - y[0] * y[1] * math.cos(t), -b * y[1] + y[0] * y[1]]


def solve(m, p, begin=(1.0, 0.5), span=(0.0, 0.9), **kwargs):
    if kwargs.get("method") != "Radau":
        kwargs = {**FIXED, **kwargs}
    return m.solve_ivp(prey, span, np.array(begin), args=(p[0], p[1]), **kwargs)


def by_columns(t, y, a, b):
    return np.stack([a * y[0] - y[0] * y[1], -b * y[1] + y[0] * y[1]])


def decay(t, y, p):
    return -p * y * np.cos(t)


def of_closure(m, p):
    return m.solve_ivp(lambda t, y: prey(t, y, *p), (0.0, 0.9), [1.0, 0.5], **FIXED).y


def of_start(m, p):
    return m.solve_ivp(prey, (0.0, 0.9), [p[0], p[1] ** 2], args=(1.0, 2.0), **FIXED).y


def of_span(m, p, **kwargs):
    """To a time that is traced; its last step is."""
    return m.solve_ivp(decay, (0.0, p[0]), [p[1]], args=(p[1],), **{**FIXED, **kwargs}).y[:, -1]


def of_begin(m, p, **kwargs):
    kwargs = {"rtol": 1e-11, "atol": 1e-12, **kwargs}
    return m.solve_ivp(decay, [p[0], 2.0], [0.9], args=(p[1],), **kwargs).y[:, -1]


def of_times(m, p):
    times = np.array([0.1, 0.4]) * p[0]
    return m.solve_ivp(decay, (0.0, 0.9), [0.9], args=(p[1],), t_eval=times, **FIXED).y


def at_end(m, p):
    end = m.solve_ivp(decay, (0.0, p[0]), [0.9], args=(p[1],), **FIXED)
    return end.t[-1] * end.y[0, -1]


def fall(t, y, gravity, drag):
    return [y[1], -gravity - drag * y[1]]


def falls(m, p, **kwargs):
    """A ball that is thrown up: what was found until it is down, and all events."""

    def down(t, y, gravity, drag):
        return y[0] - 0.1 * p[0]

    def top(t, y, gravity, drag):
        return y[1]

    down.terminal, down.direction = True, -1.0
    kwargs = {"rtol": 1e-8, "atol": 1e-8, **kwargs}
    found = m.solve_ivp(
        fall, (0, 9.0), [0.0, 2.0 + p[1]], args=(9.8 * p[0], p[1]), events=[top, down], **kwargs
    )
    rows = np.concatenate([np.reshape(found.t, (1, -1)), found.y])
    return rows, found.t_events, found.y_events


PROGRAMS = {
    **{f"{name}, end": lambda m, p, name=name: solve(m, p, method=name).y for name in EXPLICIT},
    **{
        f"{name}, times": lambda m, p, name=name: solve(m, p, method=name, t_eval=TIMES).y
        for name in EXPLICIT
    },
    "Radau, end": lambda m, p: solve(m, p, **TIGHT, span=(0.0, 0.1)).y[:, -1],
    "Radau, times": lambda m, p: solve(m, p, **TIGHT, span=(0, 0.2), t_eval=[0.0, 0.05, 0.1]).y,
    "a closure": of_closure,
    "a start": of_start,
    "an end": of_span,
    "an end, Radau": lambda m, p: of_span(m, p, **TIGHT, first_step=0.1),
    "a begin": of_begin,
    "traced times": of_times,
    "returned times": at_end,
    "backwards": lambda m, p: solve(m, p, span=(0.9, 0.0), t_eval=TIMES[::-1]).y,
    "a polynomial": lambda m, p: solve(m, p, dense_output=True).sol(TIMES[[2, 0, 4, 3]]),
    "a polynomial at a number": lambda m, p: solve(m, p, dense_output=True).sol(0.2),
    "a polynomial and times": lambda m, p: solve(
        m, p, dense_output=True, t_eval=[0.5], method="DOP853"
    ).sol(0.2),
    "a polynomial of Radau": lambda m, p: solve(
        m, p, **TIGHT, span=(0, 0.2), dense_output=True
    ).sol(0.1),
    "in columns": lambda m, p: (
        m.solve_ivp(by_columns, (0, 0.9), [1, 2], args=p, vectorized=True, **FIXED).y
    ),
    "in columns, Radau": lambda m, p: m.solve_ivp(
        by_columns, (0, 0.9), [1, 2], args=p, vectorized=True, **TIGHT
    ).y[:, -1],
    "with a Jacobian": lambda m, p: (
        m.solve_ivp(
            decay, (0, 0.9), [1.0], args=(p[1],), jac=lambda t, y, q: [[-q * np.cos(t)]], **TIGHT
        ).y[:, -1]
        * p[0]
    ),
    "complex": lambda m, p: np.real(
        m.solve_ivp(lambda t, y: 1j * p * y, (0, 0.9), np.array([1.0 + 0j, 2j]), **FIXED).y
    ),
    "events": lambda m, p: np.concatenate(
        [np.ravel(each) for found in falls(m, p)[1:] for each in found]
    ),
    "a terminal event": lambda m, p: falls(m, p, dense_output=True)[0][:, -1],
    "a terminal event and times": lambda m, p: falls(m, p, t_eval=np.array([0.1, 0.2, 0.3, 5.0]))[
        0
    ][0],
    "a terminal event, Radau": lambda m, p: falls(m, p, **TIGHT, max_step=0.2)[0][:, -1],
    "one number": lambda m, p: m.solve_ivp(lambda t, y: -p[0] * y[0], (0, 0.9), [p[1]], **FIXED).y,
    "a list of traced numbers": lambda m, p: (
        m.solve_ivp(decay, (0, 0.9), np.array([p[1], 1.0]), args=(p[0],), **FIXED).y
    ),
    "no time": lambda m, p: m.solve_ivp(decay, (1.0, 1.0), p, args=(p[0],)).y,
}
SHORT = ("Radau, times", "events")


@in_short("name", PROGRAMS, *SHORT)
def test_values_and_derivatives(name):
    check(PROGRAMS[name], P, 1e-8, 1e-6)


@in_short("name", PROGRAMS, "RK23, times", "DOP853, end", "a polynomial")
def test_traced_values_are_scipys(name):
    program = PROGRAMS[name]
    value, _ = dg.vjp(dg.delayed(lambda p: program(integrate, p)), P)
    assert_allclose(value, program(scipy.integrate, P), rtol=1e-14, atol=1e-15)


@pytest.mark.parametrize("method", [*EXPLICIT, "Radau"])
def test_derivatives_are_those_of_the_equation(method):
    """Of dy/dt = p y: y(1) = exp(p), by the start, by p, and by the end."""

    def program(x):
        found = integrate.solve_ivp(
            lambda t, y: x[1] * y, (0.0, x[2]), [x[0]], method=method, rtol=1e-5, atol=1e-8
        )
        return found.y[0, -1]

    x = np.array([1.0, 1.5, 1.0])
    y = np.exp(1.5)
    assert_allclose(dg.grad(dg.delayed(program))(x), [y, y, 1.5 * y], rtol=1e-3)
    hessian = dg.hessian(dg.delayed(program))(x)
    expected = [[0.0, y, 1.5 * y], [y, y, 2.5 * y], [1.5 * y, 2.5 * y, 2.25 * y]]
    assert_allclose(hessian, expected, rtol=5e-3, atol=1e-8)


def test_stiff_equations():
    """The solution follows cos(p t), whatever it starts from."""

    def program(m, p):
        def slope(t, y):
            return -1e6 * (y - np.cos(p[0] * t)) * p[1]

        return m.solve_ivp(slope, (0, 1.0), [p[1]], method="Radau", rtol=1e-7, atol=1e-9).y[0, -1]

    found = dg.value_and_grad(dg.delayed(lambda p: program(integrate, p)))(P)
    assert_allclose(found[0], np.cos(P[0]), rtol=1e-5)
    assert_allclose(found[1], [-np.sin(P[0]), 0.0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "kwargs",
    [
        {},
        {"method": "BDF"},
        {"method": "LSODA", "t_eval": [0.2]},
        {"method": scipy.integrate.Radau},
        {"events": lambda t, y, a, b: y[0] - 1.1},
    ],
)
def test_plain_results_are_scipys(kwargs):
    ours, theirs = (
        m.solve_ivp(prey, (0.0, 0.9), [1.0, 0.5], args=P, **kwargs)
        for m in (integrate, scipy.integrate)
    )
    assert_array_equal(ours.y, theirs.y)
    assert_array_equal(ours.t, theirs.t)
    for name in ("nfev", "status", "message"):
        assert ours[name] == theirs[name]


def test_what_was_found_before_a_failure_is_differentiated():
    """dy/dt = y² ends at t = 1 / y(0)."""

    def program(m, p):
        found = m.solve_ivp(lambda t, y: y**2, (0.0, 2.0), [p], t_eval=[0.25, 0.5, 1.5])
        assert not found.success
        return found.y[0, -1]

    with np.errstate(all="ignore"):
        value, slope = dg.value_and_grad(dg.delayed(lambda p: program(integrate, p)))(1.0)
        assert_allclose(value, program(scipy.integrate, 1.0), rtol=1e-12)
    assert_allclose(slope, 4.0, rtol=1e-2)


class OwnMethod(scipy.integrate.RK45):
    pass


def jumps(t, y, p):
    return np.sign(t - 1.0) + 0.0 * p


RANDOM = np.random.default_rng(1)


def solved(p, slope=lambda t, y, p: p + 0.0 * y, **kwargs):
    return integrate.solve_ivp(slope, (0.0, 2.0), [1.0], **{"args": (p,), **kwargs}).y[0, -1]


ERRORS = """
solved(p, method="BDF") -> NotImplementedError: method='BDF'; use method='Radau'
solved(p, method="LSODA") -> NotImplementedError: method='LSODA'; use method='Radau'
solved(p, method=OwnMethod)
  -> NotImplementedError: solve_ivp has no derivative with method='OwnMethod'
solved(p, events=jumps)
  -> np.linalg.LinAlgError: the time of an event ... has no derivative
solved(p, args=1.0) -> TypeError: solve_ivp takes args as a tuple
solved(p, lambda t, y, p: p * y * RANDOM.normal())
  -> RuntimeError: other values when it was called again
"""


@pytest.mark.parametrize(("call", "error"), rows_of(ERRORS))
def test_what_has_no_derivative_is_an_error(call, error):
    check_error(call, error, globals(), 1.0)


def test_a_root_of_a_solution():
    """The slope with which a pendulum starts that is at one when the time is one."""

    def program(i, o, p):
        def miss(slope):
            pendulum = i.solve_ivp(
                lambda t, y: [y[1], -p * np.sin(y[0])],
                (0, 1),
                np.array([0.0, 1.0]) * slope,
                **FIXED,
            )
            return pendulum.y[0, -1] - 1.0

        return o.brentq(miss, 0.1, 5.0)

    check_against_scipy(
        lambda p: program(integrate, optimize, p),
        lambda p: program(scipy.integrate, scipy.optimize, p),
        2.0,
    )


def test_the_record_grows_with_the_number_of_steps():

    def steps(count):
        def program(p):
            h = {"rtol": 1e3, "atol": 1e3, "first_step": 1.0 / count, "max_step": 1.0 / count}
            return [integrate.solve_ivp(decay, (0.0, 1.0), [1.0], args=(p,), **h).y]

        return trace(program, [np.float64(1.0)])[1].steps

    few, many = steps(8), steps(16)
    assert many < 2.2 * few


# ------------------------------------------------------------------------------ steps in one call


RATES = np.array([0.8, 1.3, 0.4])


def cycle(t, y, k):
    flow = k * y / (1.0 + y)
    return np.concatenate([flow[-1:] * np.cos(t) - flow[:1], flow[:-1] - flow[1:]])


def shares(t, y, k):
    """Of columns the sum is another one."""
    return k * (np.sum(y) - 2.0 * y)


def guarded(t, y, k):
    return k * y if y[0] > -1.0 else y


def with_constants(t, y, k):
    return k * np.array([1.0, 2.0, 0.5]) * y


def reactions(t, y, k):
    return np.stack([-k[0] * y[0], k[0] * y[0] - k[1] * y[1] ** 2, k[1] * y[1] ** 2 * k[2] * t])


@pytest.mark.parametrize("fun", [cycle, reactions], ids=lambda fun: fun.__name__)
def test_a_function_of_columns_is_called_a_few_times_for_all_jacobians(fun):
    traced, plain = counted(fun), counted(fun)

    def end(k):
        return np.sum(integrate.solve_ivp(traced, (0.0, 2.0), RATES, args=(k,), **TIGHT).y[:2, -1])

    steps = len(scipy.integrate.solve_ivp(plain, (0.0, 2.0), RATES, args=(RATES,), **TIGHT).t)
    dg.grad(dg.delayed(end))(RATES)
    assert traced.count <= plain.count + steps + 10


@pytest.mark.parametrize(
    "fun", [cycle, reactions, shares, guarded, with_constants], ids=lambda fun: fun.__name__
)
def test_functions_of_columns_and_others_have_right_derivatives(fun):
    def end(m, k):
        found = m.solve_ivp(fun, (0.0, 0.6), RATES, args=(k,), **{**TIGHT, "rtol": 1e-12})
        return np.sum(found.y[:, -1] * np.array([1.0, -2.0, 0.3]))

    gradient = dg.grad(dg.delayed(lambda k: end(integrate, k)))(RATES)
    steps = 1e-4 * np.eye(3)
    expected = [
        (end(scipy.integrate, RATES + h) - end(scipy.integrate, RATES - h)) / 2e-4 for h in steps
    ]
    assert_allclose(gradient, expected, rtol=1e-5, atol=1e-7)
