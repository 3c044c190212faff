"""Lists, keywords, ties and refusals of the functions that arrange and interpolate entries."""

import autograd.numpy as anp
import numpy as np
import pytest
from inputs import MATRIX, C, X, differences
from numpy.testing import assert_allclose

import daskgrad as dg
from daskgrad.backends.autograd import linearize, trace

pytestmark = pytest.mark.usefixtures("synchronous")

MASK = np.array([True, False, True])
RIGHT = {  # traced values in lists and keywords, which autograd's primitives do not see
    "a list to convolve": lambda x: np.sum(np.convolve([x[0], x[1]], C) ** 2),
    "interp by keyword": lambda x: np.interp(x=x[0], xp=C, fp=x) * x[1],
    "interp of lists": lambda x: np.interp(x[0], [0.0, x[0] + 1.0], [x[1], x[2]]),
    "trapezoid by keyword": lambda x: np.trapezoid(C, x=x**2),
    "trapezoid, dx": lambda x: np.trapezoid(y=C, dx=x[1]),
    "trapezoid of a list": lambda x: np.trapezoid([x[0], 2.0, x[1]], x=C),
    "diff, prepend": lambda x: np.sum(np.diff(C, prepend=x[0], append=x) ** 2),
    "linspace by keyword": lambda x: np.sum(np.linspace(start=x[0], stop=x[1], num=4) ** 2),
    "choose": lambda x: np.sum(np.choose([0, 1, 0], [x, x[0] * C]) ** 2),
    "select, default": lambda x: np.sum(np.select([MASK], [C], default=x[1]) ** 2),
    "autograd's select": lambda x: anp.sum(anp.select([MASK], [x**2], x[0])),
    "block": lambda x: np.sum(np.block([[x, 2.0], [C, x[0]]]) ** 3),
    "insert a list": lambda x: np.sum(np.insert(x, [1, 2], [x[0], 3.0]) ** 2),
    "insert": lambda x: np.sum(np.insert(C, 1, values=x[0]) ** 2),
    "meshgrid": lambda x: np.sum(np.meshgrid(x, C)[0] * np.meshgrid(C, x)[1]),
    "piecewise": lambda x: np.sum(np.piecewise(x, [x > 0.4], [np.square, 0.5]) * C),
    "polyval": lambda x: np.polyval([x[0], 1.0, x[1]], 0.3),
    "pad": lambda x: np.sum(np.pad(x, 1, constant_values=x[0]) ** 2),
    "pad a ramp": lambda x: np.sum(np.pad(x, 2, "linear_ramp", end_values=(x[0], 1.0)) ** 2),
    "bincount": lambda x: np.sum(np.bincount([0, 1, 1], weights=x) ** 2),
    "histogram": lambda x: np.sum(np.histogram(C, 2, weights=x)[0] ** 2),
    "density": lambda x: np.histogram(C, 2, density=True, weights=x**2)[0][0],
    "histogram2d": lambda x: np.sum(np.histogram2d(C, C, 2, weights=x)[0] ** 2),
    "histogramdd": lambda x: np.sum(np.histogramdd(MATRIX, 2, weights=x)[0] ** 2),
    "density of several": lambda x: np.sum(
        np.histogramdd(MATRIX, (2, 3, 1), density=True, weights=x)[0] ** 2
    ),
    "places in bins": lambda x: np.sum(np.histogram(x, 2, (0.0, 1.3), weights=x)[0] ** 2),
    "delete by keyword": lambda x: np.sum(np.delete(arr=x, obj=1) ** 2),
    "nan_to_num": lambda x: np.sum(np.nan_to_num(np.where(MASK, x, np.nan), nan=x[0]) ** 2),
    "digitize": lambda x: np.sum(C[np.digitize(x, [0.4]) - 1] * x),
    "apply_along_axis": lambda x: np.sum(np.apply_along_axis(np.cumsum, 0, x) ** 2),
    "apply_over_axes": lambda x: np.sum(np.apply_over_axes(np.sum, x * x[:, None], [0, 1])),
    "fix and isin": lambda x: np.sum((np.fix(10 * x + 0.03) + np.isin(x, [7.0])) * x),
}


@pytest.mark.filterwarnings("ignore:numpy.fix is deprecated:DeprecationWarning")
@pytest.mark.parametrize("usage", RIGHT)
def test_lists_and_keywords_may_be_traced(usage):
    gradient = dg.grad(dg.delayed(RIGHT[usage], name="model"))(X)
    assert_allclose(gradient, differences(RIGHT[usage], X), atol=1e-7)


@pytest.mark.filterwarnings("ignore:numpy.fix is deprecated:DeprecationWarning")
@pytest.mark.parametrize("usage", RIGHT)
def test_lists_and_keywords_may_be_traced_twice(usage):
    fun = RIGHT[usage]
    tangent = np.array([0.3, -1.0, 0.7])

    def slope(x):
        return linearize(lambda a: [fun(a)], [x])[1]([tangent])

    (found,) = trace(slope, [X])[1].pull([1.0])
    step = 1e-5
    near = [trace(lambda a: [fun(a)], [X + s * tangent])[1].pull([1.0])[0] for s in (step, -step)]
    expected = (near[0] - near[1]) / (2 * step)
    assert_allclose(np.zeros(3) if found is None else found, expected, atol=1e-6)


@pytest.mark.parametrize(
    ("fun", "x", "gradient"),
    [
        (lambda x: np.interp(x[1], [0.0, 1.0, 3.0], [0.0, 1.0, 7.0]), [0.0, 1.0, 0.0], 3.0),
        (lambda x: np.interp(x[1], [0.0, 1.0, 3.0], [0.0, 1.0, 7.0]), [0.0, 3.0, 0.0], 3.0),
        (lambda x: np.interp(x[1], [0.0, 1.0, 1.0], [0.0, 1.0, 7.0]), [0.0, 2.0, 0.0], 0.0),
        (lambda x: np.interp(x[1], [0.0, 1.0], x[::2]), [0.0, np.nan, 2.0], 2.0),
        (lambda x: np.sum(np.unique(x)), [3.0, 1.0, 3.0], 1.0),
        (lambda x: np.union1d(x[1:2], x)[-1], [1.0, 3.0, 3.0], 1.0),
    ],
)
def test_where_a_derivative_jumps_it_is_the_documented_one(fun, x, gradient):
    (found,) = trace(lambda a: [fun(a)], [np.array(x)])[1].pull([1.0])
    assert found[1] == gradient


IN_PLACE = {
    "put": lambda x: np.put(np.zeros(3), [0], x),
    "place": lambda x: np.place(np.zeros(3), MASK, x),
    "putmask": lambda x: np.putmask(np.zeros(3), MASK, x),
    "copyto": lambda x: np.copyto(np.zeros(3), x),
    "put_along_axis": lambda x: np.put_along_axis(np.zeros(3), np.array([0]), x[:1], 0),
    "fill_diagonal": lambda x: np.fill_diagonal(x[:, None] * C, 0.0),
}


@pytest.mark.parametrize("name", IN_PLACE)
def test_what_writes_in_place_says_what_to_write_instead(name):
    with pytest.raises(TypeError, match=rf"np.{name} writes into an array.*np.where") as caught:
        dg.grad(dg.delayed(IN_PLACE[name]))(X)
    assert any("np.concatenate, np.where" in note for note in caught.value.__notes__)


REFUSED = {
    "pad by less, several times": lambda x: np.sum(np.pad(x, 3, "reflect", reflect_type="odd")),
    "mode='empty'; concatenate": lambda x: np.sum(np.pad(x, 1, "empty")),
    "edges that depend": lambda x: np.sum(np.histogram(x, 2)[0]),
    "out=": lambda x: np.sum(np.choose([0, 0, 0], [x], out=np.zeros(3))),
    "period=": lambda x: np.sum(np.unwrap(x, period=x[0])),
    "double root": lambda x: np.sum(np.abs(np.roots(np.poly([x[0], x[0], x[1]])))),
    "of more than 20 rows": lambda x: np.sum(np.poly(x[0] * np.eye(21))),
}


@pytest.mark.parametrize("told", REFUSED)
def test_what_has_no_derivative_is_refused(told):
    with pytest.raises(NotImplementedError, match=told):
        dg.grad(dg.delayed(REFUSED[told]))(X)


CONSTANT = {
    "signbit": np.signbit,
    "spacing": np.spacing,
    "digitize": lambda x: np.digitize(x, [0.0, 1.0]),
    "isin": lambda x: np.isin(test_elements=[0.5], element=x),
    "lexsort": lambda x: np.lexsort((x, C[:3] > 5.0)),
    "nanargmax": np.nanargmax,
    "nanargmin": lambda x: np.nanargmin(x, axis=0),
    "matrix_rank": lambda x: np.linalg.matrix_rank(np.diag(x)),
}


@pytest.mark.parametrize("name", CONSTANT)
def test_what_is_constant_between_its_jumps_has_the_derivative_zero(name):
    model = dg.delayed(lambda x: np.sum(CONSTANT[name](x) * x))
    assert_allclose(dg.grad(model)(X), CONSTANT[name](X) * np.ones(3))
    assert_allclose(dg.jvp(model, (X,), (X,))[1], np.sum(CONSTANT[name](X) * X))
