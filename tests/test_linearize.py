"""Forward mode within a model: against the tape, for autograd's functions and their arguments."""

import copy
import functools
import gc
import weakref

import autograd
import autograd.numpy as anp
import autograd.scipy.linalg
import autograd.scipy.special as special
import autograd.scipy.stats as stats
import numpy as np
import pytest
from autograd.core import primitive_jvps
from autograd.extend import defvjp, primitive

from daskgrad.backends.autograd import linearize, trace

A, B = np.random.default_rng(1).uniform(0.2, 0.9, (2, 3, 4))
V = np.random.default_rng(2).uniform(0.2, 0.9, 4)
S = np.float64(0.7)
M = np.random.default_rng(3).uniform(0.2, 0.9, (3, 3)) + 3.0 * np.eye(3)
POSITIVE = M @ M.T
C = A + 1j * B
STACK = np.random.default_rng(4).uniform(0.2, 0.9, (2, 3, 4))

CALLS = {}  # name -> (function, its arguments)

for operation in (
    *("add", "subtract", "multiply", "divide", "maximum", "minimum", "fmax", "fmin", "logaddexp"),
    *("logaddexp2", "true_divide", "mod", "remainder", "power", "arctan2"),
):
    for shapes, pair in {
        "alike": (A, B),
        "row": (A, V),
        "row first": (V, A),
        "number first": (S, A),
        "number": (A, S),
        "column": (A[:, :1], V),
    }.items():
        CALLS[f"{operation}, {shapes}"] = (getattr(anp, operation), pair)

for operation in (
    *("negative", "rad2deg", "degrees", "deg2rad", "radians", "ravel", "squeeze", "flipud"),
    *("fliplr", "triu", "tril", "abs", "absolute", "fabs", "reciprocal", "exp", "exp2", "expm1"),
    *("log", "log2", "log10", "log1p", "sin", "cos", "tan", "arcsin", "arccos", "arctan", "sinh"),
    *("cosh", "tanh", "arcsinh", "arctanh", "square", "sqrt", "sinc", "real", "conj", "conjugate"),
    *("real_if_close", "nan_to_num", "transpose", "cumsum", "prod", "sum", "mean", "var", "std"),
    *("max", "min", "atleast_1d", "atleast_2d", "atleast_3d", "diff", "trace", "rot90"),
):
    CALLS[operation] = (getattr(anp, operation), (A,))

for operation in ("negative", "exp", "sqrt", "abs", "prod", "sum", "mean", "var", "max", "ravel"):
    CALLS[f"{operation} of a number"] = (getattr(anp, operation), (S,))

for operation in ("sum", "mean", "prod", "var", "std", "max", "min"):
    for axis in (0, 1, -1, (0, 1)):
        for keepdims in (False, True):
            reduction = functools.partial(getattr(anp, operation), axis=axis, keepdims=keepdims)
            CALLS[f"{operation}, axis={axis}, keepdims={keepdims}"] = (reduction, (A,))

for operation in ("abs", "real", "imag", "conj", "angle", "exp", "log", "sin", "square", "prod"):
    CALLS[f"{operation} of complex"] = (getattr(anp, operation), (C,))

for operation in ("gammaln", "gamma", "digamma", "erf", "erfc", "erfinv", "logit", "expit", "j0"):
    CALLS[operation] = (getattr(special, operation), (A,))

CALLS |= {
    "arccosh": (lambda a: anp.arccosh(a + 1.0), (A,)),
    "gradient": (anp.gradient, (V,)),
    "std, ddof": (lambda a: anp.std(a, axis=0, ddof=1), (A,)),
    "cumsum, axis": (lambda a: anp.cumsum(a, axis=0), (A,)),
    "diff twice": (lambda a: anp.diff(a, n=2, axis=1), (A,)),
    "sort": (anp.sort, (V,)),
    "partition": (lambda a: anp.partition(a, 2), (V,)),
    "dot, matrices": (anp.dot, (A, B.T)),
    "dot, matrix and vector": (anp.dot, (A, V)),
    "dot, vector and matrix": (anp.dot, (V, A.T)),
    "dot, vectors": (anp.dot, (V, V + 1.0)),
    "dot, number": (anp.dot, (S, V)),
    "dot, stack": (anp.dot, (STACK, B.T)),
    "matmul, matrices": (anp.matmul, (A, B.T)),
    "matmul, vector": (anp.matmul, (A, V)),
    "matmul, stacks": (anp.matmul, (STACK, np.swapaxes(STACK, 1, 2))),
    "matmul, stack and matrix": (anp.matmul, (A, np.swapaxes(STACK, 1, 2))),
    "inner": (anp.inner, (A, B)),
    "outer": (anp.outer, (V, A[0])),
    "tensordot": (lambda a, b: anp.tensordot(a, b, 1), (A, B.T)),
    "tensordot, axes": (lambda a, b: anp.tensordot(a, b, ([0, 1], [0, 1])), (A, B)),
    "kron": (anp.kron, (A, B)),
    "einsum": (lambda a, b: anp.einsum("ij,kj->ik", a, b), (A, B)),
    "einsum, ellipsis": (lambda a, b: anp.einsum("...j,j->...", a, b), (A, V)),
    "where": (lambda a, b: anp.where(A > 0.5, a, b), (A, B)),
    "where, row and number": (lambda a, b: anp.where(A > 0.5, a, b), (V, S)),
    "where, matrix and row": (lambda a, b: anp.where(V > 0.5, a, b), (A, V)),
    "clip": (lambda a: anp.clip(a, 0.3, 0.6), (A,)),
    "concatenate": (lambda a, b: anp.concatenate([a, b], axis=1), (A, B)),
    "stack": (lambda a, b: anp.stack([a, b], axis=-1), (A, B)),
    "vstack": (lambda a, b: anp.vstack([a, b]), (A, V)),
    "append": (anp.append, (V, V)),
    "array": (lambda a, b: anp.array([a, b, 1.0]), (S, S + 1.0)),
    "array, nested": (lambda a: anp.array([[a, 2.0], [a * a, 3.0]]), (S,)),
    "reshape": (lambda a: anp.reshape(a, (4, 3)), (A,)),
    "reshape, F": (lambda a: anp.reshape(a, (4, 3), order="F"), (A,)),
    "roll": (lambda a: anp.roll(a, 2, axis=1), (A,)),
    "split": (lambda a: anp.split(a, 2, axis=1)[1], (A,)),
    "expand_dims": (lambda a: anp.expand_dims(a, 1), (A,)),
    "diag": (anp.diag, (V,)),
    "diag of a matrix": (anp.diag, (M,)),
    "swapaxes": (lambda a: anp.swapaxes(a, 0, 1), (A,)),
    "moveaxis": (lambda a: anp.moveaxis(a, 0, 1), (A,)),
    "repeat": (lambda a: anp.repeat(a, 2, axis=0), (A,)),
    "tile": (lambda a: anp.tile(a, (2, 2)), (A,)),
    "pad": (lambda a: anp.pad(a, 1, "constant"), (A,)),
    "linspace": (lambda a, b: anp.linspace(a, b, 5), (S, S + 1.0)),
    "full": (lambda a: anp.full((2, 3), a), (S,)),
    "full_like": (lambda a: anp.full_like(A, a), (S,)),
    "take": (lambda a: anp.take(a, [0, 2, 2], axis=1), (A,)),
    "integers": (lambda a: a[[0, 2, 2]], (A,)),
    "slices": (lambda a: a[1:, ::2], (A,)),
    "mask": (lambda a: a[A > 0.5], (A,)),
    "astype": (lambda a: a.astype(np.float64) * 2.0, (A,)),
    "inv": (anp.linalg.inv, (M,)),
    "det": (anp.linalg.det, (M,)),
    "slogdet": (lambda a: anp.linalg.slogdet(a)[1], (M,)),
    "solve": (anp.linalg.solve, (M, A)),
    "solve, vector": (anp.linalg.solve, (M, V[:3])),
    "cholesky": (lambda a: anp.linalg.cholesky((a + a.T) / 2.0), (POSITIVE,)),
    "eigh": (lambda a: anp.linalg.eigh((a + a.T) / 2.0)[0], (POSITIVE,)),
    "eigh, vectors": (lambda a: anp.linalg.eigh((a + a.T) / 2.0)[1] ** 2, (POSITIVE,)),
    "norm": (anp.linalg.norm, (V,)),
    "norm, axis": (lambda a: anp.linalg.norm(a, axis=1), (A,)),
    "pinv": (anp.linalg.pinv, (A,)),
    "svd": (lambda a: anp.linalg.svd(a, full_matrices=False)[1], (A,)),
    "sqrtm": (lambda a: autograd.scipy.linalg.sqrtm((a + a.T) / 2.0), (POSITIVE,)),
    "solve_triangular": (
        lambda a, b: autograd.scipy.linalg.solve_triangular(a, b, lower=True),
        (np.tril(M), V[:3]),
    ),
    "fft": (lambda a: anp.real(anp.fft.fft(a)), (V,)),
    "rfft": (lambda a: anp.abs(anp.fft.rfft(a)) ** 2, (V,)),
    "irfft": (lambda a: anp.fft.irfft(a * (1.0 + 0.5j)), (V,)),
    "fft2": (lambda a: anp.imag(anp.fft.fft2(a)), (A,)),
    "logsumexp": (lambda a: special.logsumexp(a, axis=1), (A,)),
    "normal": (lambda a, b: stats.norm.logpdf(a, b, 1.3), (A, B)),
    "normals": (
        lambda x, m, c: stats.multivariate_normal.logpdf(x, m, (c + c.T) / 2.0),
        (V[:3], V[1:], POSITIVE),
    ),
    "complex times real": (anp.multiply, (C, A)),
    "real times complex": (anp.multiply, (A, C)),
    "complex dot real": (anp.dot, (C, B.T)),
    "real over complex": (anp.divide, (A, C)),
    "real plus complex": (anp.add, (A, C)),
    "complex where": (lambda a, b: anp.where(A > 0.5, a, b), (A, C)),
    "fft of complex": (anp.fft.fft, (C[0],)),
    "complex concatenate": (lambda a, b: anp.concatenate([a, b]), (A, C)),
    "inv of complex": (anp.linalg.inv, (M + 0.3j,)),
}


def drawn(like, random):
    like = np.asarray(like)
    entries = random.standard_normal(like.shape)
    if like.dtype.kind == "c":
        entries = entries + 1j * random.standard_normal(like.shape)
    return entries.astype(like.dtype)[()]


def inner(a, b):
    return np.sum(np.real(np.asarray(a) * np.asarray(b)))


def single(value):
    kind = np.complex64 if np.iscomplexobj(value) else np.float32
    return np.asarray(value).astype(kind)[()]


def outputs_of(fun):
    return lambda *arrays: [fun(*arrays)]


@pytest.mark.filterwarnings("ignore::numpy.exceptions.ComplexWarning")  # autograd's, of np.dot
@pytest.mark.parametrize("name", CALLS)
def test_tangents_and_cotangents_obey_the_law_of_the_transpose(name, random):
    fun, arguments = CALLS[name]
    (value,), push = linearize(outputs_of(fun), arguments)
    _, tape = trace(outputs_of(fun), arguments)
    g = drawn(value, random)
    pulled = tape.pull([g])
    for number, argument in enumerate(arguments):
        tangents = [None] * len(arguments)
        tangents[number] = drawn(argument, random)
        (tangent,) = push(tangents)
        assert np.shape(tangent) == np.shape(value)
        expected = inner(pulled[number], tangents[number])
        np.testing.assert_allclose(inner(g, tangent), expected, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("name", CALLS)
def test_tangents_are_what_differences_say_in_the_values_dtype(name, random):
    fun, arguments = CALLS[name]
    tangents = [drawn(argument, random) for argument in arguments]
    _, push = linearize(outputs_of(fun), arguments)
    step = 1e-6
    ahead, behind = [
        fun(*[a + sign * step * t for a, t in zip(arguments, tangents, strict=True)])
        for sign in (1.0, -1.0)
    ]
    np.testing.assert_allclose(push(tangents)[0], (ahead - behind) / (2 * step), 1e-4, 1e-5)
    (value,), push = linearize(outputs_of(fun), list(map(single, arguments)))
    assert push(list(map(single, tangents)))[0].dtype == value.dtype


@pytest.mark.parametrize("name", [name for name in CALLS if "complex" not in name])
def test_pulling_back_through_a_push_is_the_second_derivative(name, random):
    fun, arguments = CALLS[name]
    first, *others = arguments
    direction = drawn(first, random)
    g = drawn(fun(*arguments), random)

    def slope(x):
        _, push = linearize(lambda a: [fun(a, *others)], [x])
        return [anp.sum(push([direction])[0] * g)]

    def gradient(x):
        _, tape = trace(lambda a: [fun(a, *others)], [x])
        pulled = tape.pull([g])[0]
        return np.zeros_like(x) if pulled is None else pulled

    _, tape = trace(slope, [first])
    pulled = tape.pull([1.0])[0]
    step = 1e-6
    expected = (gradient(first + step * direction) - gradient(first - step * direction)) / 2 / step
    found = np.zeros_like(first) if pulled is None else pulled
    np.testing.assert_allclose(found, expected, 1e-4, 1e-4)


# -------------------------------------------------------------------------------- promises


def test_a_push_may_be_called_any_number_of_times_and_runs_nothing_again(random):
    runs = []

    def fun(a, b):
        runs.append(1)
        return [anp.sin(a) * b, anp.sum(b)]

    (value, total), push = linearize(fun, [V, V[::-1].copy()])
    for _ in range(3):
        t = random.standard_normal(4)
        first, second = push([t, None])
        np.testing.assert_array_equal(first, t * np.cos(V) * V[::-1])
        assert second == 0.0
        assert np.shape(second) == ()
    assert len(runs) == 1
    np.testing.assert_array_equal(value, np.sin(V) * V[::-1])
    assert total == np.sum(V[::-1])


def test_outputs_without_derivative_have_no_tangent():
    outputs, push = linearize(lambda a: [a.size, "name", None, anp.floor(a), 2.0, a > 0.5], [V])
    tangents = push([V])
    assert outputs[0] == 4
    assert [t is None for t in tangents] == [True, True, True, False, False, True]
    assert not np.any(tangents[3])
    assert tangents[4] == 0.0


def test_second_derivatives_that_autograd_has_wrong_or_not_at_all():
    """Of x ** y at y = 0, and of tanh where cosh overflows."""

    def mixed(y):
        _, push = linearize(lambda x: [x**y], [np.float64(2.0)])
        return push([1.0])

    _, tape = trace(mixed, [np.float64(0.0)])
    np.testing.assert_allclose(tape.pull([1.0])[0], 0.5)

    def slope(x):
        _, push = linearize(lambda x: [anp.tanh(x)], [x])
        return push([np.ones(3)])

    (value,), tape = trace(slope, [np.array([0.5, -40.0, 800.0])])
    np.testing.assert_allclose(value, [np.cosh(0.5) ** -2, np.cosh(40.0) ** -2, 0.0], rtol=1e-14)
    right = [-2 * np.tanh(0.5) * np.cosh(0.5) ** -2, 2 * np.cosh(40.0) ** -2, 0.0]
    np.testing.assert_allclose(tape.pull([np.ones(3)])[0], right, rtol=1e-14)


def test_a_cast_to_integers_stops_tangents():
    _, push = linearize(lambda a: [a.astype(int) * 2.0 + a], [V])
    np.testing.assert_array_equal(push([V])[0], V)


def test_a_primitive_without_rule_for_tangents_uses_that_for_cotangents():
    @primitive
    def cube(x):
        return x**3

    defvjp(cube, lambda ans, x: lambda g: 3.0 * g * x**2)
    assert cube not in primitive_jvps
    _, push = linearize(lambda a: [cube(a)], [V])
    np.testing.assert_allclose(push([np.ones(4)])[0], 3.0 * V**2, rtol=1e-14)


def test_a_primitive_without_any_rule_is_named():
    @primitive
    def odd(x):
        return x

    _, push = linearize(lambda a: [odd(a)], [V])
    with pytest.raises(NotImplementedError, match="primitive 'odd' has no derivative rule"):
        push([V])


def test_a_copied_box_is_an_error_and_no_zero():
    with pytest.raises(TypeError, match="was copied"):
        linearize(lambda a: [copy.deepcopy(a) * 2.0], [V])
    with pytest.raises(TypeError, match="was copied"):
        linearize(lambda a: [copy.deepcopy(a) * a], [V])


def test_a_derivative_within_a_model_is_pushed_through():
    def fun(a):
        return [autograd.elementwise_grad(anp.sin)(a) * a]

    _, push = linearize(fun, [V])
    np.testing.assert_allclose(push([np.ones(4)])[0], np.cos(V) - V * np.sin(V), rtol=1e-14)


def test_what_a_push_holds_is_freed_with_it():
    constant = V.copy()
    held = weakref.ref(constant)
    _, push = linearize(lambda a, b=constant: [a * b], [V])
    del constant
    gc.disable()
    try:
        assert held() is not None
        del push
        assert held() is None, "there is a cycle"
    finally:
        gc.enable()
