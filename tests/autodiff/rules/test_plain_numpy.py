"""Plain NumPy in a model gives the right derivatives or an error; ``test_functions`` has the calls
of single functions with arrays, and here are operators, lists, keywords, casts and programs."""

import copy
import json
import math
import operator
import pickle

import autograd
import autograd.numpy as anp
import numpy as np
import pytest
from autograd.extend import defvjp, primitive
from functions_checked import check_against_scipy
from inputs import MATRIX, C, X, energy, notes
from numpy.testing import assert_allclose

import daskgrad as dg

pytestmark = pytest.mark.usefixtures("synchronous")

POLYNOMIAL = np.polynomial
MASK = np.array([True, False, True])
W = np.array([[0.5, -1.0, 2.0], [1.5, 0.3, -0.7], [-0.2, 0.9, 0.4]])


def slopes_of_log_ndtr(x):
    return autograd.grad(lambda y: np.sum(scipy_of("special").log_ndtr(y)))(x)


def scipy_of(name):
    """A module of SciPy, which takes long to import."""
    return pytest.importorskip(f"scipy.{name}")


def assigned(z, index, value):
    z[index] = value
    return anp.sum(z**2)


def assigned_objects(x):
    array = np.empty(2, dtype=object)
    array[0], array[1] = x[0] ** 2, x[1]
    return array


RIGHT = {
    # operators and Python
    "matmul": lambda x: anp.sum((MATRIX @ x) ** 2),
    "array on the left": lambda x: anp.sum(C / x - C**x),
    "np.float64 on the left": lambda x: np.float64(2.0) ** x[0] - np.float64(3.0) / x[1],
    "floor division": lambda x: np.sum((x // 0.4) * x + (0.7 // x) * x),
    "divmod": lambda x: np.sum(divmod(x, 0.4)[1] + divmod(0.7, x)[1] ** 2) + divmod(x[0], 0.2)[0],
    "a plus sign": lambda x: np.sum((+x) ** 2),
    "round of a number": lambda x: round(x[0], 1) * x[1],
    "an operator in place": lambda x: anp.sum(operator.imul(x * 1.0, C) ** 2),
    "a loop": lambda x: sum([v * v for v in x]),
    "math.prod": lambda x: math.prod(x),
    "max": lambda x: max(x) ** 2,
    "branches": lambda x: x[1] ** 2 if x[0] > 0.1 and not np.isnan(x).any() else 0.0,
    "shapes": lambda x: x[0] * len(x) * np.size(x) * x.shape[0],
    "copy.copy": lambda x: anp.sum(copy.copy(x) ** 2),
    "a masked array on the left": lambda x: anp.sum(np.ma.masked_array(C, [0, 1, 0]) * x),
    "np.random of no variable": lambda x: x[0] * np.random.default_rng(0).normal(),
    # at an edge: no entries, numbers along an axis, no repeats, lists as operands
    "row_stack": lambda x: np.sum(np.row_stack((x, 2.0 * x)) ** 2),
    "vstack, dtype": lambda x: np.sum(np.vstack((x, C), dtype=float) ** 2),
    "no tiles": lambda x: np.sum(np.tile(x, 0)) + np.sum(np.tile(x, (2, 0))) + x[0],
    "tiles of a number": lambda x: np.sum(np.tile(x[0], (2, 2))) ** 2,
    "cumsum of a number": lambda x: np.sum(np.cumsum(x[0], axis=-1)) ** 2,
    "take of a number": lambda x: np.sum(np.take(x[0], [0, 0], axis=-1) ** 2),
    "median of no rows": lambda x: np.sum(np.median(np.outer(x[:0], x), axis=1)) + x[0] ** 2,
    "max of nothing": lambda x: np.max(x[:0], initial=-9.0) + x[:0].min(initial=2.0) + x[0] ** 2,
    "prod of nothing": lambda x: np.sum(np.prod(x[:0], axis=(), where=MASK[:0])) + x[0] ** 2,
    "lstsq of less rank": lambda x: np.sum(np.linalg.lstsq(np.ones((3, 2)), x**2)[0] * C[:2]),
    "lists as operands": lambda x: np.dot([1.0, 2.0, 3.0], x) + np.sum([1.0, 2.0, 3.0] @ x * x),
    "a list to arctan2": lambda x: np.sum(np.arctan2([1.0, 2.0, 3.0], x)),
    "a list to outer": lambda x: np.sum(np.outer([1.0, 2.0], x) ** 2),
    "a list to concatenate": lambda x: np.sum(np.concatenate([[x[0]], x]) ** 2),
    "clip, compress, transpose": lambda x: np.sum(
        x.clip(0.4) * x.compress([True, True, True]) * np.outer(x, C).transpose(1, 0)
    ),
    # polynomials of traced coefficients
    "chebval": lambda x: np.sum((x[0] * C - POLYNOMIAL.chebyshev.chebval(C, x)) ** 2),
    "polyval of polynomial": lambda x: np.sum(x[0] - POLYNOMIAL.polynomial.polyval(C, x) / x[1]),
    "hermval, legval": lambda x: np.sum(
        x * POLYNOMIAL.hermite.hermval(C, x) + POLYNOMIAL.legendre.legval(C, x) * x
    ),
    "Polynomial": lambda x: np.sum((x[0] * C + POLYNOMIAL.Polynomial(x)(C)) ** 2),
    "a derivative": lambda x: np.sum((x + POLYNOMIAL.Chebyshev(x).deriv()(C)) ** 2),
    "poly1d": lambda x: np.sum((x + np.poly1d(x)(C)) ** 2),
    # arrays that are made
    "np.array of a list": lambda x: np.sum(np.array([x[0], x[1]]) ** 2),
    "np.array of x": lambda x: np.array(x).sum(),
    "np.asarray": lambda x: anp.sum(np.asarray(x) ** 2),
    "an object array": lambda x: np.sum(assigned_objects(x)),
    "np.vectorize": lambda x: anp.sum(np.vectorize(lambda v: v * v)(x)),
    # places of entries
    "np.argmax": lambda x: x[np.argmax(x)] ** 2,
    "np.argsort": lambda x: anp.sum(x[np.argsort(x)] * C),
    "np.sign as an index": lambda x: np.sum(C[np.sign(x).astype(int)] * x**2),
    "anp.sign as a number": lambda x: float(anp.sign(x[0])) * x[1] ** 2,
    "digitize": lambda x: np.sum(C[np.digitize(x, [0.4]) - 1] * x),
    # methods of ufuncs
    "np.add.reduce": np.add.reduce,
    "add.reduce of an axis": lambda x: np.add.reduce(x[:, None] * C, axis=1)[0],
    "add.reduce of rows": lambda x: np.sum(np.add.reduce(np.outer(x, C)) ** 2),
    "multiply.reduce": lambda x: np.multiply.reduce(x),
    "maximum.reduce": lambda x: np.maximum.reduce(x * C),
    "minimum.reduce": lambda x: np.minimum.reduce(x * C, keepdims=True)[0],
    "add.accumulate": lambda x: np.sum(np.add.accumulate(x) ** 2),
    "multiply.accumulate": lambda x: np.sum(np.multiply.accumulate(x) ** 2),
    "maximum.accumulate": lambda x: np.sum(np.maximum.accumulate(x * C[::-1]) * C),
    "minimum.accumulate": lambda x: np.sum(np.minimum.accumulate(np.outer(x, C), axis=1) ** 2),
    "multiply.outer": lambda x: np.sum(np.multiply.outer(x, C) ** 2),
    "subtract.outer": lambda x: np.sum(np.subtract.outer(C, x) ** 2),
    # traced values by keyword and in lists, which autograd's primitives do not see
    "sum by name": lambda x: np.sum(a=x * x),
    "clip by name": lambda x: np.sum(np.clip(C, a_min=x[0], a_max=2.0)),
    "dot by name": lambda x: np.dot(a=x, b=C),
    "tile by name": lambda x: np.sum(np.tile(A=x, reps=2) ** 2),
    "linalg.solve by name": lambda x: np.sum(np.linalg.solve(a=np.diag(C), b=x)),
    "select of the default": lambda x: np.sum(np.select([C > 1.0], [C], default=x[0])),
    "autograd's select": lambda x: anp.sum(anp.select([MASK], [x**2], x[0])),
    "a list to convolve": lambda x: np.sum(np.convolve([x[0], x[1]], C) ** 2),
    "interp by keyword": lambda x: np.interp(x=x[0], xp=C, fp=x) * x[1],
    "interp of lists": lambda x: np.interp(x[0], [0.0, x[0] + 1.0], [x[1], x[2]]),
    "trapezoid by keyword": lambda x: np.trapezoid(C, x=x**2),
    "trapezoid, dx": lambda x: np.trapezoid(y=C, dx=x[1]),
    "trapezoid of a list": lambda x: np.trapezoid([x[0], 2.0, x[1]], x=C),
    "diff, prepend": lambda x: np.sum(np.diff(C, prepend=x[0], append=x) ** 2),
    "linspace by keyword": lambda x: np.sum(np.linspace(start=x[0], stop=x[1], num=4) ** 2),
    "insert a list": lambda x: np.sum(np.insert(x, [1, 2], [x[0], 3.0]) ** 2),
    "insert": lambda x: np.sum(np.insert(C, 1, values=x[0]) ** 2),
    "polyval": lambda x: np.polyval([x[0], 1.0, x[1]], 0.3),
    "pad": lambda x: np.sum(np.pad(x, 1, constant_values=x[0]) ** 2),
    "pad a ramp": lambda x: np.sum(np.pad(x, 2, "linear_ramp", end_values=(x[0], 1.0)) ** 2),
    "bincount": lambda x: np.sum(np.bincount([0, 1, 1], weights=x) ** 2),
    "histogram": lambda x: np.sum(np.histogram(C, 2, weights=x)[0] ** 2),
    "density": lambda x: np.histogram(C, 2, density=True, weights=x**2)[0][0],
    "places in bins": lambda x: np.sum(np.histogram(x, 2, (0.0, 1.3), weights=x)[0] ** 2),
    "delete by keyword": lambda x: np.sum(np.delete(arr=x, obj=1) ** 2),
    "nan_to_num": lambda x: np.sum(np.nan_to_num(np.where(MASK, x, np.nan), nan=x[0]) ** 2),
    "average": lambda x: np.average(C, axis=-1, weights=x) + np.average(x, weights=C),
    "cov": lambda x: np.sum(np.cov(C**2, y=x, ddof=0)) + np.sum(np.cov(W, aweights=x)),
    "corrcoef": lambda x: np.corrcoef(x, y=C**2)[0, 1],
    "quantile": lambda x: np.quantile(C * x, q=x[0]) + np.nanpercentile(x * C, q=x[1] * 50.0),
    "multi_dot": lambda x: np.sum(np.linalg.multi_dot((W, x[:, None] * W, MATRIX, x))),
    # values that are unpacked or taken from named tuples
    "lstsq": lambda x: unpacked(*np.linalg.lstsq(W[:, :2] * x[:, None], C)),
    "matrix_rank": lambda x: np.linalg.matrix_rank(np.diag(x)) * x[0],
    "scipy.special.sici": lambda x: np.sum(scipy_of("special").sici(x)[1] * C),
    "scipy.special.zeta": lambda x: np.sum(scipy_of("special").zeta(x + 2.0, x)),
    "scipy.special in autograd's grad": lambda x: np.sum(slopes_of_log_ndtr(x) ** 2),
    # keywords that autograd's own rules do not know, or have wrong
    "dtype": lambda x: anp.sum(anp.sum(x * W, 1, float) * C),
    "where of a method": lambda x: x.sum(where=C > 1),
    "traced mean of var": lambda x: np.var(x, mean=x[0]) + np.var(C, mean=x[1]) + x.var(mean=x[2]),
    "traced mean of std": lambda x: np.std(x[:, None] * W, axis=0, ddof=1, mean=x[:1]).sum(),
    # constant between its jumps: the derivative of a cast is zero
    "astype float": lambda x: anp.sum(x.astype(float) ** 2),
    "astype": lambda x: anp.sum((x * 10 + 0.1).astype(int) * x),
    "astype bool": lambda x: anp.sum((x + 1.0).astype(bool) * x),
    "array with a dtype": lambda x: anp.sum(anp.array(x * 10 + 0.1, dtype=int) * x),
    "list with a dtype": lambda x: anp.sum(anp.array([x[0] * 9, x[1]], dtype=int) * x[:2]),
    "sum with a dtype": lambda x: anp.sum(anp.sum(x[None] * 9, axis=0, dtype=int) * x),
    "floor": lambda x: anp.sum(anp.floor(x * 10 + 0.1) * x),
    "autograd's integer": lambda x: anp.int64(x[0] * 9) * x[1],
    "fix and isin": lambda x: np.sum((np.fix(10 * x + 0.03) + np.isin(x, [7.0])) * x),
    "isin by keyword": lambda x: np.sum(np.isin(test_elements=[0.5], element=x + 1.0) * x),
    "signbit and spacing": lambda x: np.sum((np.signbit(x) + np.spacing(x)) * x),
    "lexsort": lambda x: np.sum(np.lexsort((x, C > 5.0)) * x),
    "nanargmax": lambda x: np.nanargmax(x) * x[0] + np.nanargmin(-x, axis=0) * x[1],
}


def unpacked(x, residuals, rank, singular):
    return np.sum(rank * x) + residuals[0]


@pytest.mark.filterwarnings("ignore:numpy.fix is deprecated:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:`row_stack` alias:DeprecationWarning")
@pytest.mark.parametrize("usage", RIGHT)
def test_plain_numpy_that_works_has_the_right_derivatives(usage):
    """In both modes, and twice."""
    check_against_scipy(RIGHT[usage], RIGHT[usage], X)


def test_multi_dot_takes_the_order_with_the_fewest_multiplications():
    wide, tall = np.ones((2, 500)), np.ones((500, 2))
    product = dg.grad(dg.delayed(lambda x: np.sum(np.linalg.multi_dot([x, wide, tall]))))
    assert_allclose(product(np.ones((500, 2))), 1000.0)


class Theirs:
    """An array of another library, which has its own answer."""

    def __array_function__(self, fun, types, args, kwargs):
        return "theirs"


def test_arrays_of_other_libraries_are_asked_too():
    answers = []

    def model(x):
        answers.append(np.concatenate([x, Theirs()]))
        return np.sum(x)

    dg.grad(dg.delayed(model))(X)
    assert answers == ["theirs"]


# ------------------------------------------------------------------------------ what is refused


UNTRACED = {  # what does not take traced values: the error has a hint
    "np.asarray with a dtype": lambda x: anp.sum(np.asarray(x, dtype=float)),
    "np.array of numbers with a dtype": lambda x: anp.sum(np.array([x[0], x[1]], dtype=float)),
    "np.float64": lambda x: np.float64(x[0]) * 2.0,
    "float": lambda x: float(x[0]) * x[1],
    "int": lambda x: int(x[0] * 10) * x[1],
    "complex": lambda x: complex(x[0]).real,
    "math.sin": lambda x: math.sin(x[0]),
    "math.floor": lambda x: math.floor(x[0]) * x[1],
    "math.fsum": math.fsum,
    "round": lambda x: round(x[0]) * x[1],
    "tolist": lambda x: sum(x.tolist()),
    "assignment into zeros": lambda x: assigned(np.zeros(3), 0, x[0]),
    "assignment of a slice": lambda x: assigned(np.zeros(3), slice(None), x),
    "assignment into x": lambda x: assigned(x, 0, 1.0),
    "adding in place to an array": lambda x: anp.sum(operator.iadd(C.copy(), x)),
    "np.add.at": lambda x: np.add.at(np.zeros(3), [0, 1, 2], x),
    "logaddexp.reduce": lambda x: np.logaddexp.reduce(x),
    "add.reduceat": lambda x: np.sum(np.add.reduceat(x, [0, 1])),
    "np.frompyfunc": lambda x: np.sum(np.frompyfunc(lambda u: u * u, 1, 1)(x)),
    "np.put": lambda x: np.put(np.zeros(3), [0], x),
    "out=": lambda x: np.multiply(x, C, out=np.zeros(3)),
    "np.exp of an object array": lambda x: np.sum(np.exp(np.array([x[0], x[1]]))),
    "np.nditer": lambda x: sum([float(v) for v in np.nditer(x)]),
    "np.fromiter": lambda x: anp.sum(np.fromiter(x, float)),
    "np.random of x": lambda x: np.random.default_rng(0).normal(x[0], 1.0),
    "a masked array on the right": lambda x: anp.sum(x * np.ma.masked_array(C, [0, 1, 0])),
    "np.matrix": lambda x: anp.sum(np.matrix(MATRIX, copy=False) * x[:, None]),
    "pandas": lambda x: (pytest.importorskip("pandas").Series(C) * x).sum(),
    "logsumexp": lambda x: scipy_of("special").logsumexp(x),
    "scipy.linalg": lambda x: anp.sum(scipy_of("linalg").solve(MATRIX, x)),
    "scipy.sparse": lambda x: scipy_of("sparse").csr_array(MATRIX).multiply(x).sum(),
    "scipy.interpolate": lambda x: scipy_of("interpolate").CubicSpline([0, 1, 2], x)(0.5),
    "scipy.integrate": lambda x: scipy_of("integrate").quad(lambda u: u * x[0], 0, 1)[0],
    "solve_ivp": lambda x: scipy_of("integrate").solve_ivp(lambda u, y: -y * x[0], (0, 1), [1.0]),
    "json": lambda x: json.loads(json.dumps(x[0])),
    "str": lambda x: float(str(x[0])),
    "formatting": lambda x: float(f"{x[0]:.17g}"),
    "pickle": lambda x: anp.sum(pickle.loads(pickle.dumps(x))),
    "copy.deepcopy": lambda x: anp.sum(x) + anp.sum(copy.deepcopy(x)),
    "memoryview": lambda x: anp.sum(np.array(memoryview(x))),
    "an integer scalar": lambda x: (x * 10).astype(int)[0] * x[0],
}


@pytest.mark.parametrize("usage", UNTRACED)
@pytest.mark.filterwarnings("ignore:the matrix subclass")
def test_plain_numpy_that_does_not_work_is_an_error_with_a_hint(usage):
    model = dg.delayed(UNTRACED[usage], name="model")
    with pytest.raises((TypeError, ValueError, AttributeError)) as caught:
        dg.grad(lambda x: energy(x) + model(x))(X)
    for told in (
        "forward pass of model 'model', called with (float64[3])",
        "Functions of numpy and scipy.special take them",
        "instead of the rest of scipy",
        "daskgrad.scipy.linalg",
        "custom_vjp",
    ):
        assert told in notes(caught.value)


@primitive
def ruleless(x):
    return np.sin(x)


@primitive
def half_ruled(x, y):
    return x * y


defvjp(half_ruled, lambda ans, x, y: lambda g: g * y, argnums=[0])

TWO_ROWS = np.array([1.0, 2.0])
OWN = "autograd.grad has no"
REFUSED = {  # what the error says -> a model that raises it
    # matrices, padding, roots
    "lstsq.*no derivative rule for a matrix a": lambda x: np.linalg.lstsq(x[:, None] * TWO_ROWS, C),
    "qr.*no derivative rule for a matrix a": lambda x: np.linalg.qr(x[:, None] * TWO_ROWS),
    "slogdet.*singular matrix a.*np.linalg.det": lambda x: np.linalg.slogdet(x * np.ones((3, 3))),
    "eigh.*eigenvectors.*equal eigenvalues": lambda x: np.sum(np.linalg.eigh(x[0] * np.eye(3))[1]),
    "svd.*equal singular values": lambda x: np.linalg.svd(x[0] * np.eye(3))[0][0, 0],
    "svd.*full_matrices=True": lambda x: np.sum(np.linalg.svd(x[0] * MATRIX[:, :2])[1]),
    "pad by less, several times": lambda x: np.sum(np.pad(x, 3, "reflect", reflect_type="odd")),
    "mode='empty'; concatenate": lambda x: np.sum(np.pad(x, 1, "empty")),
    "edges that depend": lambda x: np.sum(np.histogram(x, 2)[0]),
    "period=": lambda x: np.sum(np.unwrap(x, period=x[0])),
    "double root": lambda x: np.sum(np.abs(np.roots(np.poly([x[0], x[0], x[1]])))),
    "of more than 20 rows": lambda x: np.sum(np.poly(x[0] * np.eye(21))),
    "'jv'.*the order": lambda x: scipy_of("special").jv(x[0], 1.0),
    # arguments
    "choose.* out=": lambda x: np.sum(np.choose([0, 0, 0], [x], out=np.zeros(3))),
    "sum.*does not look at.* out=": lambda x: anp.sum(x[None], axis=0, out=np.zeros(3))[0],
    "multiply.*does not look at.* out=": lambda x: anp.sum(anp.multiply(x, C, out=np.zeros(3))),
    "add.*does not look at dtype=": lambda x: anp.sum(anp.add(x, x, dtype=np.float64)),
    f"{OWN}.*where=": lambda x: autograd_grad(x, where=C > 1),
    f"{OWN}.*correction=": lambda x: autograd_grad(x, anp.var, correction=1),
    f"{OWN}.*initial=": lambda x: autograd_grad(x, anp.min, initial=-1.0),
    # primitives without rules
    "'ruleless' has no derivative rule for its argument 0.*defvjp": lambda x: anp.sum(ruleless(x)),
    "'half_ruled' has no .* argument 1.*defvjp": lambda x: anp.sum(half_ruled(C, x)),
    "'half_ruled' .* its argument .*1": lambda x: anp.sum(half_ruled(x, x)),
    "'polyfit' has no .* argument 1.*defvjp": lambda x: anp.sum(anp.polyfit(C, x, 1)),
    "'pinv' has no .* argument 1.*defvjp": lambda x: anp.sum(anp.linalg.pinv(MATRIX, x[0])),
}


def autograd_grad(x, fun=anp.sum, **keywords):
    return anp.sum(autograd.grad(lambda y: fun(y, **keywords))(x) ** 2)


@pytest.mark.parametrize("told", REFUSED)
def test_what_has_no_derivative_is_refused(told):
    with pytest.raises(NotImplementedError, match=told) as caught:
        dg.grad(dg.delayed(REFUSED[told], name="model"))(X)
    assert "forward pass of model 'model', called with (float64[3])" in notes(caught.value)


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
    assert "np.concatenate, np.where" in notes(caught.value)


WRONG = {  # of NumPy's own, and of results
    "an array of boxes": (
        lambda x: np.array([x[0], x[1]]),
        TypeError,
        r"'model' returned an array of Python objects.*write np.stack",
    ),
    "too many positions": (
        lambda x: anp.sum(x, None, None, None, True)[0],
        TypeError,
        "rule of the primitive 'sum' does not take all arg",
    ),
    "lists of other lengths": (
        lambda x: np.sum(np.select([C > 1.0], [x, x])),
        ValueError,
        "length",
    ),
}


@pytest.mark.parametrize("usage", WRONG)
def test_mistakes_are_errors(usage):
    model, kind, told = WRONG[usage]
    with pytest.raises(kind, match=told):
        dg.grad(dg.delayed(model, name="model"))(X)


def test_a_primitive_with_half_a_rule_works_where_it_is_enough():
    assert_allclose(dg.grad(dg.delayed(lambda x: anp.sum(half_ruled(x, C))))(X), C)


JUMPS = [  # a function with the derivative that is documented where it jumps, by the second entry
    (lambda x: np.interp(x[1], [0.0, 1.0, 3.0], [0.0, 1.0, 7.0]), [0.0, 1.0, 0.0], 3.0),
    (lambda x: np.interp(x[1], [0.0, 1.0, 3.0], [0.0, 1.0, 7.0]), [0.0, 3.0, 0.0], 3.0),
    (lambda x: np.interp(x[1], [0.0, 1.0, 1.0], [0.0, 1.0, 7.0]), [0.0, 2.0, 0.0], 0.0),
    (lambda x: np.interp(x[1], [0.0, 1.0], x[::2]), [0.0, np.nan, 2.0], 2.0),
    (lambda x: np.sum(np.unique(x)), [3.0, 1.0, 3.0], 1.0),
    (lambda x: np.union1d(x[1:2], x)[-1], [1.0, 3.0, 3.0], 1.0),
]


@pytest.mark.parametrize(("fun", "x", "slope"), JUMPS)
def test_where_a_derivative_jumps_it_is_the_documented_one(fun, x, slope):
    assert dg.grad(dg.delayed(fun))(np.array(x))[1] == slope
