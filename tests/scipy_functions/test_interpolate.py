"""``daskgrad.scipy.interpolate``: SciPy's values; derivatives in both modes and of second order."""

import numpy as np
import pytest
import scipy.interpolate
from functions_checked import checking
from lengths import in_short
from numpy.testing import assert_allclose

import daskgrad as dg
from daskgrad.scipy import interpolate

check = checking(interpolate, scipy.interpolate)
random = np.random.default_rng(7)
KNOTS = np.array([0.0, 0.4, 1.1, 1.5, 2.3, 3.1])
Y = random.normal(size=6)
ROWS = random.normal(size=(2, 6))
AT = np.array([[-0.3, 0.2], [0.4, 1.37], [3.1, 3.7]])

ENDS = {
    "not-a-knot": "not-a-knot",
    "clamped": "clamped",
    "natural": "natural",
    "a slope and a bend": ((1, 0.3), (2, -0.8)),
    "a bend and a slope": ((2, 0.3), (1, -0.8)),
    "one named": ("not-a-knot", (2, 0.5)),
    "the other named": ((1, 0.5), "not-a-knot"),
}


def closed(y):
    return np.concatenate([y, y[:1]])


@in_short("name", ENDS, "not-a-knot", "a slope and a bend", "the other named")
def test_splines(name):
    check(lambda s, y: s.CubicSpline(KNOTS, y, bc_type=ENDS[name])(AT), Y)
    check(lambda s, x: s.CubicSpline(np.cumsum(x**2), Y, bc_type=ENDS[name])(x), 0.5 + KNOTS)
    check(lambda s, at: s.CubicSpline(KNOTS, Y, bc_type=ENDS[name])(at), AT + 0.05)


def with_knots(s, x, y, kind):
    return s.CubicSpline(np.cumsum(x**2), y, bc_type=kind)(AT)


COUNTS = [(name, count) for name in ENDS for count in (2, 3, 4)]


@in_short(("name", "count"), COUNTS, ("not-a-knot", 3), ("not-a-knot", 2), ("natural", 2))
def test_splines_of_few_knots(name, count):
    check(lambda s, x: with_knots(s, x, Y[:count] + x, ENDS[name]), 0.5 + KNOTS[:count])


@in_short("count", [2, 3, 4, 6], 4)
def test_periodic_splines(count):
    y, knots = Y[: count - 1], KNOTS[:count]
    check(lambda s, y: s.CubicSpline(knots, closed(y), bc_type="periodic")(AT * 3.0), y)
    check(lambda s, x: with_knots(s, x, closed(y), "periodic"), 0.5 + knots)


USES = {
    "a derivative": lambda s, y: s.CubicSpline(KNOTS, y)(AT, 1),
    "of a high order": lambda s, y: s.CubicSpline(KNOTS, y)(AT, nu=3),
    "of too high an order": lambda s, y: s.CubicSpline(KNOTS, y)(AT, 4),
    "of a derivative": lambda s, y: s.CubicSpline(KNOTS, y).derivative(2)(AT + y[0]),
    "an antiderivative": lambda s, y: s.CubicSpline(KNOTS, y).antiderivative()(AT + y[0]),
    "two": lambda s, y: s.CubicSpline(KNOTS, y).derivative(-2)(AT),
    "an integral": lambda s, y: s.CubicSpline(KNOTS, y).integrate(y[0], 3.0 + y[1]),
    "backwards": lambda s, y: s.CubicSpline(KNOTS, y).integrate(3.0 + y[0], y[1]),
    "over periods": lambda s, y: s.CubicSpline(
        KNOTS, y * closed(0 * y[1:] + 1) * [0, 1, 1, 1, 1, 0], bc_type="periodic"
    ).integrate(y[0] - 2.0, 7.0 + y[1]),
    "within a period": lambda s, y: s.CubicSpline(KNOTS, y).integrate(
        y[0] + 3.2, y[1] + 3.9, extrapolate="periodic"
    ),
    "rows": lambda s, y: s.CubicSpline(KNOTS, ROWS * y, axis=1)(AT),
    "rows of clamped ends": lambda s, y: s.CubicSpline(
        KNOTS, ROWS * y, axis=-1, bc_type=((1, y[:2]), (2, y[1:3]))
    )(AT, 1),
    "with NaN outside": lambda s, y: np.nan_to_num(s.CubicSpline(KNOTS, y, extrapolate=False)(AT)),
    "Hermite's": lambda s, y: s.CubicHermiteSpline(KNOTS, y, y**2)(AT),
    "Hermite's rows": lambda s, y: s.CubicHermiteSpline(KNOTS, ROWS * y, ROWS, 1)(AT, 1),
    "of complex values": lambda s, y: np.abs(s.CubicSpline(KNOTS, y * np.exp(1j * Y))(AT)) ** 2,
    "of a number": lambda s, y: s.CubicSpline(KNOTS, y)(y[0] ** 2),
}


@in_short("name", USES, "a derivative", "an integral", "over periods", "rows of clamped ends")
def test_what_splines_do(name):
    check(USES[name], Y)


def test_outside_there_are_numbers_only_where_splines_extrapolate():
    y = np.append(Y[:-1], Y[0])
    for how in (True, False, "periodic"):
        ours, theirs = (
            s.CubicSpline(KNOTS, y, bc_type="periodic", extrapolate=how)
            for s in (interpolate, scipy.interpolate)
        )
        assert_allclose(ours(AT), theirs(AT))
        assert_allclose(ours.integrate(-1.0, 2.0), theirs.integrate(-1.0, 2.0))
        assert_allclose(ours.integrate(9.0, 2.0, True), theirs.integrate(9.0, 2.0, True))
        assert_allclose(ours.antiderivative(2)(AT), theirs.antiderivative(2)(AT), rtol=1e-12)


def test_attributes_are_scipys():
    ours, theirs = (s.CubicSpline(KNOTS, ROWS, axis=1) for s in (interpolate, scipy.interpolate))
    assert_allclose(ours.c, theirs.c, rtol=1e-11, atol=1e-11)
    assert_allclose(ours.x, theirs.x)
    assert (ours.axis, ours.extrapolate) == (theirs.axis, theirs.extrapolate)
    one, other = (s.PPoly(theirs.c, theirs.x)(AT) for s in (interpolate, scipy.interpolate))
    assert_allclose(one, other)


# ------------------------------------------------------------------------------------ grids

GRID = (np.array([0.0, 0.5, 1.3]), np.array([2.0, 1.2, 0.7, -1.0]))
VALUES = random.normal(size=(3, 4))
POINTS = np.array([[0.1, 0.3], [0.5, 1.9], [1.29, 0.71], [0.9, -0.9]])
OUTSIDE = np.array([[0.1, 0.3], [1.7, 1.9], [-0.4, 2.7]])


def grid(s, values, *args, points=GRID, **kwargs):
    return s.RegularGridInterpolator(points, values, *args, **kwargs)


GRIDS = {
    "values": (lambda s, v: grid(s, v)(POINTS), VALUES),
    "values of more axes": (lambda s, v: grid(s, v[..., None] * [1.0, 2.0])(POINTS), VALUES),
    "points": (lambda s, at: grid(s, VALUES)(at), POINTS[:1]),
    "outside": (lambda s, at: grid(s, VALUES, bounds_error=False, fill_value=None)(at), OUTSIDE),
    "filled": (lambda s, v: grid(s, v, bounds_error=False, fill_value=7.0)(OUTSIDE), VALUES),
    "nearest": (lambda s, v: grid(s, v, "nearest")(POINTS), VALUES),
    "nearest, later": (lambda s, v: grid(s, v)(POINTS, "nearest"), VALUES),
    "the grid": (
        lambda s, x: grid(s, VALUES, points=(np.cumsum(x**2), GRID[1]))(POINTS),
        np.array([0.01, 0.8, 0.9]),
    ),
    "of one line": (lambda s, v: grid(s, v[0], points=GRID[1:])(POINTS[:, 1]), VALUES),
    "of one point": (
        lambda s, v: grid(s, v[:1], points=([0.0], GRID[1]))(POINTS * [0.0, 1.0]),
        VALUES,
    ),
    "a tuple": (lambda s, v: grid(s, v)((0.1 * v[0, 0] ** 2, POINTS[:, 1])), VALUES),
    "interpn": (lambda s, v: s.interpn(GRID, v, POINTS), VALUES),
}


@in_short("name", GRIDS, "values of more axes", "points", "outside", "nearest", "the grid")
def test_grids(name):
    check(*GRIDS[name])


@pytest.mark.parametrize("method", ["linear", "nearest"])
def test_nan_is_interpolated_to_nan(method):
    at = np.array([[0.1, np.nan], [0.5, 0.3]])
    modules = (interpolate, scipy.interpolate)
    ours, theirs = (grid(s, VALUES, method, bounds_error=False)(at) for s in modules)
    assert_allclose(ours, theirs)


def spline(*args, **kwargs):
    return interpolate.CubicSpline(KNOTS, *args, **kwargs)


REFUSED = {
    "no derivative for method='cubic'; use": lambda: grid(interpolate, VALUES, "cubic"),
    "method is 'any'": lambda: grid(interpolate, VALUES)(POINTS, "any"),
    "out of the bounds 0.0 and 1.3 of the axis 0": lambda: grid(interpolate, VALUES)(OUTSIDE),
    "its last axis must have 2": lambda: grid(interpolate, VALUES)(VALUES),
    "3 lines of points, and 2 axes": lambda: grid(interpolate, VALUES, points=(*GRID, [0.0])),
    r"axis 0 have the shape \(4,\)": lambda: grid(interpolate, VALUES, points=GRID[::-1]),
    "axis 0 must increase or": lambda: grid(interpolate, VALUES, points=([0, 1, 1], [0] * 4)),
    "bc_type is 'odd'": lambda: spline(Y, bc_type="odd"),
    "goes with no other": lambda: spline(Y, 0, ("periodic", "natural")),
    "must be equal for bc_type='periodic'": lambda: spline(Y, 0, "periodic"),
    "the order 3 and the shape": lambda: spline(Y, 0, ((3, 0.0), (1, 0.0))),
    "a pair for both ends": lambda: spline(Y, 0, ("natural",)),
    "axis 1 is out of bounds": lambda: spline(Y, axis=1),
    "along the axis 0 it must have 6": lambda: spline(Y[1:]),
    "a vector of at least two": lambda: interpolate.CubicSpline(KNOTS[:1], Y[:1]),
    "x must increase strictly": lambda: interpolate.CubicSpline(KNOTS[::-1], Y),
    "must be finite": lambda: spline(Y * np.nan),
    "dydx has the shape": lambda: interpolate.CubicHermiteSpline(KNOTS, Y, Y[:, None]),
    "extrapolate is 'linear'": lambda: spline(Y)(AT, extrapolate="linear"),
    "must not be negative": lambda: spline(Y)(AT, -1),
    r"must be \(k \+ 1, m": lambda: interpolate.PPoly(VALUES, KNOTS),
    "breakpoints x must increase": lambda: interpolate.PPoly(VALUES, [0.0, 1.0, 1.0, 2.0, 3.0]),
}


@pytest.mark.parametrize("message", REFUSED)
def test_errors(message):
    with pytest.raises((ValueError, NotImplementedError), match=message):
        REFUSED[message]()


def test_interpolants_of_plain_numbers_have_no_derivative():
    def model(y):
        spline = dg.value(interpolate.CubicSpline(KNOTS, y))
        table = dg.value(interpolate.RegularGridInterpolator((KNOTS,), y))
        return np.sum(spline(AT)) + table([1.0])[0] + y[0]

    np.testing.assert_array_equal(dg.grad(dg.delayed(model))(Y), np.arange(6) == 0)
