"""Plain NumPy in a model gives the right gradient or an error; so do autograd's wrong rules."""

import copy
import json
import math
import operator
import pickle

import autograd
import autograd.numpy as anp
import autograd.scipy.special
import numpy as np
import pytest
import scipy.integrate
import scipy.interpolate
import scipy.linalg
import scipy.sparse
import scipy.special
from autograd.extend import defvjp, primitive
from inputs import MATRIX, C, X, differences, energy, notes
from numpy.testing import assert_allclose

import daskgrad as dg

pytestmark = pytest.mark.usefixtures("synchronous")

# ----------------------------------------------------------- plain NumPy where autograd's is due


def assigned(z, index, value):
    z[index] = value
    return anp.sum(z**2)


RIGHT = {
    "np.sin": lambda x: np.sum(np.sin(x)),
    "np.dot": lambda x: np.dot(C, x),
    "matmul": lambda x: anp.sum((MATRIX @ x) ** 2),
    "array on the left": lambda x: anp.sum(C / x - C**x),
    "np.float64 on the left": lambda x: np.float64(2.0) ** x[0] - np.float64(3.0) / x[1],
    "np.linalg.norm": lambda x: np.linalg.norm(x),
    "np.concatenate": lambda x: anp.sum(np.concatenate([x, C]) ** 2),
    "np.stack": lambda x: anp.sum(np.stack([x, x]) ** 2),
    "np.where": lambda x: anp.sum(np.where(C > 1, x, 0.0) ** 2),
    "np.where on x": lambda x: anp.sum(np.where(x > 0.4, x, 0.0) ** 2),
    "np.array of a list": lambda x: np.sum(np.array([x[0], x[1]]) ** 2),
    "np.array of x": lambda x: np.array(x).sum(),
    "np.asarray": lambda x: anp.sum(np.asarray(x) ** 2),
    "np.full": lambda x: anp.sum(np.full(3, x[0])),
    "np.maximum": lambda x: np.sum(np.maximum(x, 0.4)),
    "np.clip": lambda x: anp.sum(np.clip(x, 0.4, 0.8)),
    "np.cumsum": lambda x: anp.sum(np.cumsum(x) ** 2),
    "np.prod": lambda x: np.prod(x),
    "np.var": lambda x: np.var(x),
    "np.max": lambda x: np.max(x),
    "np.argmax": lambda x: x[np.argmax(x)] ** 2,
    "np.argsort": lambda x: anp.sum(x[np.argsort(x)] * C),
    "np.sort": lambda x: np.sort(x)[0],
    "np.sign as an index": lambda x: np.sum(C[np.sign(x).astype(int)] * x**2),
    "anp.sign as a number": lambda x: float(anp.sign(x[0])) * x[1] ** 2,
    "np.einsum": lambda x: np.einsum("i,i->", C, x),
    "np.outer": lambda x: anp.sum(np.outer(x, x)),
    "np.diff": lambda x: anp.sum(np.diff(x) ** 2),
    "np.copy": lambda x: anp.sum(np.copy(x) ** 2),
    "np.real": lambda x: anp.sum(np.real(x) ** 2),
    "np.vectorize": lambda x: anp.sum(np.vectorize(lambda v: v * v)(x)),
    "np.linalg.solve by autograd": lambda x: anp.sum(anp.linalg.solve(MATRIX, x) ** 2),
    "an object array": lambda x: np.sum(assigned_objects(x)),
    "an operator in place": lambda x: anp.sum(operator.imul(1.0 * x, C) ** 2),
    "a loop": lambda x: sum([v * v for v in x]),
    "math.prod": lambda x: math.prod(x),
    "max": lambda x: max(x) ** 2,
    "branches": lambda x: x[1] ** 2 if x[0] > 0.1 and not np.isnan(x).any() else 0.0,
    "shapes": lambda x: x[0] * len(x) * np.size(x) * x.shape[0],
    "astype": lambda x: anp.sum(x.astype(float) ** 2),
    "copy.copy": lambda x: anp.sum(copy.copy(x) ** 2),
    "a masked array on the left": lambda x: anp.sum(np.ma.masked_array(C, [0, 1, 0]) * x),
    "np.random of no variable": lambda x: x[0] * np.random.default_rng(0).normal(),
    "autograd's full_like": lambda x: anp.sum(anp.full_like(C, x[0]) * x),
    "full_like of x": lambda x: anp.sum(anp.full_like(x, 2.0) * x),
    "np.interp at x": lambda x: anp.sum(np.interp(x, [0.0, 1.0], [0.0, 2.0])),
    "np.interp in x": lambda x: np.interp(0.5, [0.0, 1.0, 2.0], x),
    "np.add.reduce": np.add.reduce,
    "np.clip between x": lambda x: anp.sum(np.clip(C, x[0], x[2])),
    "np.linalg.solve": lambda x: anp.sum(np.linalg.solve(MATRIX, x)),
    "np.linalg.det": lambda x: np.linalg.det(x[:, None] * MATRIX),
    "np.fft.fft": lambda x: anp.sum(anp.abs(np.fft.fft(x))),
    "np.linspace": lambda x: anp.sum(np.linspace(0.0, x[0], 3)),
    "np.where of a scalar": lambda x: np.where(C[0] > 0, x[0], 0.0),
    "np.tensordot": lambda x: np.tensordot(C, x, 1),
    "np.multiply.outer": lambda x: np.sum(np.multiply.outer(x, C) * MATRIX),
    "np.add.accumulate": lambda x: np.sum(np.add.accumulate(x) * C),
    "scipy.special.gammaln": lambda x: np.sum(scipy.special.gammaln(x)),
    "scipy.special.xlogy": lambda x: np.sum(scipy.special.xlogy(x, 1.0 - 0.1 * x)),
    "scipy.special.sici": lambda x: np.sum(scipy.special.sici(x)[1] * C),
    "scipy.special.zeta": lambda x: np.sum(scipy.special.zeta(x + 2.0, x)),
    "scipy.special in autograd's grad": lambda x: np.sum(slopes_of_log_ndtr(x) ** 2),
    "np.linalg.eigh": lambda x: np.sum(np.linalg.eigh(np.diag(x) + 1.0)[0] * C),
    "a full_like of arrays": lambda x: anp.sum(anp.full_like(MATRIX, x) * MATRIX),
}

REFUSED = {
    "np.asarray with a dtype": lambda x: anp.sum(np.asarray(x, dtype=float)),
    "np.array of numbers with a dtype": lambda x: anp.sum(np.array([x[0], x[1]], dtype=float)),
    "np.float64": lambda x: np.float64(x[0]) * 2.0,
    "float": lambda x: float(x[0]) * x[1],
    "int": lambda x: int(x[0] * 10) * x[1],
    "complex": lambda x: complex(x[0]).real,
    "math.sin": lambda x: math.sin(x[0]),
    "math.floor": lambda x: math.floor(x[0]) * x[1],
    "math.fsum": math.fsum,
    "round": lambda x: round(x[0], 1) * x[1],
    "tolist": lambda x: sum(x.tolist()),
    "item": lambda x: x[0].item() * 2.0,
    "assignment into zeros": lambda x: assigned(np.zeros(3), 0, x[0]),
    "assignment of a slice": lambda x: assigned(np.zeros(3), slice(None), x),
    "assignment into x": lambda x: assigned(x, 0, 1.0),
    "adding in place to an array": lambda x: anp.sum(operator.iadd(C.copy(), x)),
    "np.add.at": lambda x: np.add.at(np.zeros(3), [0, 1, 2], x),
    "np.put": lambda x: np.put(np.zeros(3), [0], x),
    "np.copyto": lambda x: np.copyto(np.zeros(3), x),
    "out=": lambda x: np.multiply(x, C, out=np.zeros(3)),
    "np.exp of an object array": lambda x: np.sum(np.exp(np.array([x[0], x[1]]))),
    "np.nditer": lambda x: sum([float(v) for v in np.nditer(x)]),
    "np.fromiter": lambda x: anp.sum(np.fromiter(x, float)),
    "np.random of x": lambda x: np.random.default_rng(0).normal(x[0], 1.0),
    "a masked array on the right": lambda x: anp.sum(x * np.ma.masked_array(C, [0, 1, 0])),
    "np.matrix": lambda x: anp.sum(np.matrix(MATRIX, copy=False) * x[:, None]),
    "pandas": lambda x: (pandas_series(C) * x).sum(),
    "scipy.special.logsumexp": scipy.special.logsumexp,
    "scipy.linalg": lambda x: anp.sum(scipy.linalg.solve(MATRIX, x)),
    "scipy.sparse": lambda x: scipy.sparse.csr_array(MATRIX).multiply(x).sum(),
    "scipy.interpolate": lambda x: scipy.interpolate.CubicSpline([0, 1, 2], x)(0.5),
    "scipy.integrate": lambda x: scipy.integrate.quad(lambda u: u * x[0], 0, 1)[0],
    "solve_ivp": lambda x: scipy.integrate.solve_ivp(lambda u, y: -y * x[0], (0, 1), [1.0]).y[0, 1],
    "json": lambda x: json.loads(json.dumps(x[0])),
    "str": lambda x: float(str(x[0])),
    "formatting": lambda x: float(f"{x[0]:.17g}"),
    "pickle": lambda x: anp.sum(pickle.loads(pickle.dumps(x))),
    "copy.deepcopy": lambda x: anp.sum(x) + anp.sum(copy.deepcopy(x)),
    "memoryview": lambda x: anp.sum(np.array(memoryview(x))),
    "an integer scalar": lambda x: (x * 10).astype(int)[0] * x[0],
}


def slopes_of_log_ndtr(x):
    return autograd.grad(lambda y: np.sum(scipy.special.log_ndtr(y)))(x)


def pandas_series(values):
    return pytest.importorskip("pandas").Series(values)


def assigned_objects(x):
    array = np.empty(2, dtype=object)
    array[0], array[1] = x[0] ** 2, x[1]
    return array


@pytest.mark.parametrize("usage", RIGHT)
def test_plain_numpy_that_works_gives_the_right_gradient(usage):
    gradient = dg.grad(dg.delayed(RIGHT[usage], name="model"))(X)
    assert_allclose(gradient, differences(RIGHT[usage], X), atol=1e-8)


@pytest.mark.parametrize("usage", REFUSED)
@pytest.mark.filterwarnings("ignore:the matrix subclass")
def test_plain_numpy_that_does_not_work_is_an_error_with_a_hint(usage):
    model = dg.delayed(REFUSED[usage], name="model")
    with pytest.raises((TypeError, ValueError, AttributeError)) as caught:
        dg.grad(lambda x: energy(x) + model(x))(X)
    assert "forward pass of model 'model', called with (float64[3])" in notes(caught.value)
    assert "Functions of numpy and scipy.special take them" in notes(caught.value)


def test_the_hint_names_what_takes_the_place_of_scipy():
    with pytest.raises(TypeError) as caught:
        dg.grad(dg.delayed(scipy.special.logsumexp))(X)
    for told in ("instead of the rest of scipy", "daskgrad.scipy.linalg", "custom_vjp"):
        assert told in notes(caught.value)
    right = dg.grad(dg.delayed(lambda x: anp.sum(autograd.scipy.special.gammaln(x))))(X)
    assert_allclose(right, scipy.special.digamma(X))


def test_an_array_of_boxes_is_no_result():
    def fun(x):
        return np.array([x[0], x[1]])

    with pytest.raises(TypeError, match=r"'model' returned an array of Python objects.*autograd"):
        dg.grad(dg.delayed(fun, name="model"))(X)


# ------------------------------------------------------- where autograd's own rules are wrong


W = np.array([[0.5, -1.0, 2.0], [1.5, 0.3, -0.7], [-0.2, 0.9, 0.4]])
CASTS = {  # piecewise constant: between its jumps the derivative of a cast is zero
    "astype": lambda x: anp.sum((x * 10).astype(int) * x),
    "astype bool": lambda x: anp.sum((x + 1.0).astype(bool) * x),
    "array with a dtype": lambda x: anp.sum(anp.array(x * 10, dtype=int) * x),
    "list with a dtype": lambda x: anp.sum(anp.array([x[0] * 10, x[1]], dtype=int) * x[:2]),
    "sum with a dtype": lambda x: anp.sum(anp.sum(x[None] * 10, axis=0, dtype=int) * x),
    "floor": lambda x: anp.sum(anp.floor(x * 10) * x),
    "autograd's integer": lambda x: anp.int64(x[0] * 10) * x[1],
}


@pytest.mark.parametrize("cast", CASTS)
def test_a_cast_to_integers_has_no_derivative(cast):
    x = X + 0.013  # away from the jumps
    gradient = dg.grad(dg.delayed(CASTS[cast], name="model"))(x)
    assert_allclose(gradient, differences(CASTS[cast], x), atol=1e-8)


UNSEEN = {
    "out of sum": lambda x: anp.sum(x[None], axis=0, out=np.zeros(3))[0],
    "out of multiply": lambda x: anp.sum(anp.multiply(x, C, out=np.zeros(3))),
}


@pytest.mark.parametrize("kind", UNSEEN)
def test_an_argument_that_autograds_rule_does_not_look_at_is_an_error(kind):
    argument = kind.split()[0]
    with pytest.raises(NotImplementedError, match=rf"does not look at.* {argument}=") as caught:
        dg.grad(dg.delayed(UNSEEN[kind], name="model"))(X)
    assert "forward pass of model 'model'" in notes(caught.value)


SEEN = {
    "ddof": lambda x: anp.var(x, ddof=1),
    "keepdims": lambda x: anp.sum(anp.mean(x[None] * W, axis=1, keepdims=True) * W),
    "dtype": lambda x: anp.sum(anp.sum(x * W, 1, float) * C),
    "initial of sum": lambda x: anp.sum(x * x, initial=3.0),
    "initial of prod": lambda x: anp.prod(x, initial=3.0),
    "where": lambda x: anp.sum(x, where=C > 1),
    "where of a method": lambda x: x.sum(where=C > 1),
    "where of mean": lambda x: anp.mean(x, where=C > 1),
    "where of prod": lambda x: anp.prod(x, where=C > 1),
    "where of max": lambda x: anp.max(x, where=C > 1, initial=0.0),
    "where of plain NumPy": lambda x: np.sum(x, where=C > 1),
    "correction of var": lambda x: anp.var(x, correction=1),
    "correction of std": lambda x: anp.std(x, correction=1),
    "initial of min": lambda x: anp.min(x, initial=-1.0),
    "dtype of cumsum": lambda x: anp.sum(anp.cumsum(x, dtype=float)),
    "mean of var": lambda x: anp.var(x, mean=0.1),
    "traced mean of var": lambda x: np.var(x, mean=x[0]) + np.var(C, mean=x[1]) + x.var(mean=x[2]),
    "traced mean of std": lambda x: np.std(x[:, None] * W, axis=0, ddof=1, mean=x[:1]).sum(),
}


@pytest.mark.parametrize("kind", SEEN)
def test_the_other_arguments_of_a_reduction_are_right(kind):
    gradient = dg.grad(dg.delayed(SEEN[kind]))(X)
    assert_allclose(gradient, differences(SEEN[kind], X), atol=1e-8)


@pytest.mark.parametrize("kind", ["where", "where of mean", "correction of var", "initial of min"])
def test_autograds_own_derivatives_refuse_what_they_ignore(kind):
    model = dg.delayed(lambda x: anp.sum(autograd.grad(SEEN[kind])(x) ** 2))
    with pytest.raises(NotImplementedError, match=f"autograd.grad has no.*{kind.split()[0]}="):
        dg.grad(model)(X)


def test_arguments_by_position_that_a_rule_does_not_take_are_an_error_that_names_the_primitive():
    model = dg.delayed(lambda x: anp.sum(x, None, None, None, True)[0])
    with pytest.raises(TypeError, match="rule of the primitive 'sum' does not take all arg"):
        dg.grad(model)(X)


# --------------------------------------------------------------------- primitives without rules


@primitive
def ruleless(x):
    return np.sin(x)


@primitive
def half_ruled(x, y):
    return x * y


defvjp(half_ruled, lambda ans, x, y: lambda g: g * y, argnums=[0])


@pytest.mark.parametrize(
    ("fun", "name", "argument"),
    [
        (lambda x: anp.sum(ruleless(x)), "ruleless", "0"),
        (lambda x: anp.sum(half_ruled(C, x)), "half_ruled", "1"),
        (lambda x: anp.sum(anp.polyfit(C, x, 1)), "polyfit", "1"),
    ],
)
def test_a_primitive_without_a_rule_is_named(fun, name, argument):
    told = f"primitive '{name}' has no derivative rule for its argument {argument}.*defvjp"
    with pytest.raises(NotImplementedError, match=told) as caught:
        dg.grad(dg.delayed(fun, name="model"))(X)
    assert "forward pass of model 'model', called with (float64[3])" in notes(caught.value)


def test_a_primitive_with_half_a_rule_works_where_it_is_enough():
    assert_allclose(dg.grad(dg.delayed(lambda x: anp.sum(half_ruled(x, C))))(X), C)
