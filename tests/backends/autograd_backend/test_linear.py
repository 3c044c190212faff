"""Our rules for sums, means and products against autograd's, bit by bit."""

import autograd.numpy as anp
import numpy as np
import pytest
from autograd.core import make_vjp

from daskgrad.backends.autograd import reverse, trace
from daskgrad.backends.autograd.rules.declaration import DECLARED
from daskgrad.models.captured import held_nbytes


def bits(value):
    array = np.asarray(value)
    return array.shape, str(array.dtype), array.tobytes()


def assert_autograds_bits(fun, args, random):
    outputs, tape = trace(lambda *boxes: [fun(*boxes)], args)
    value = np.asarray(outputs[0])
    g = random.standard_normal(value.shape)
    g = np.where(g < -1.0, -0.0, g).astype(value.dtype)[()]
    pulled = tape.pull([g])
    for number, (arg, found) in enumerate(zip(args, pulled, strict=True)):
        rest = args[:number], args[number + 1 :]
        pullback, expected = make_vjp(lambda x, r=rest: fun(*r[0], x, *r[1]), arg)
        assert bits(value) == bits(expected)
        assert bits(found) == bits(pullback(g))
        only = trace(lambda x, r=rest: [fun(*r[0], x, *r[1])], [arg])[1]
        assert bits(only.pull([g])[0]) == bits(found)


OPTIONS = [
    {},
    {"axis": None},
    {"axis": 0},
    {"axis": 1},
    {"axis": -1},
    {"axis": -2},
    {"axis": (0, 1)},
    {"axis": np.int64(1)},
    {"keepdims": True},
    {"axis": 0, "keepdims": True},
    {"axis": 1, "keepdims": True},
    {"dtype": np.float64},
]


@pytest.mark.parametrize("shape", [(3, 4), (1, 4), (3, 1), (1, 1), (0, 3), (2, 3, 4)])
@pytest.mark.parametrize("dtype", ["d", "f", "D"])
@pytest.mark.parametrize("fun", [anp.sum, anp.mean])
def test_sums_and_means(fun, dtype, shape, random):
    x = random.standard_normal(shape).astype(dtype)
    for options in OPTIONS:
        if fun is anp.mean and (0 in shape or "dtype" in options):
            continue  # NumPy warns of the one, and autograd's rule does not know the other
        if dtype == "D" and "dtype" in options:
            continue
        assert_autograds_bits(lambda a, o=options: fun(a, **o), [x], random)
    if 0 not in shape:
        assert_autograds_bits(lambda a: fun(a, 0), [x], random)


@pytest.mark.parametrize("fun", [anp.sum, anp.mean])
def test_sums_and_means_of_scalars_lists_and_methods(fun, random):
    assert_autograds_bits(lambda a: fun(a), [np.float64(2.0)], random)
    assert_autograds_bits(lambda a: fun(a), [np.array(2.0)], random)
    assert_autograds_bits(lambda a: a.sum(axis=1) + a.mean(axis=1), [np.ones((2, 3))], random)


@pytest.mark.parametrize("k", [1, 2, 9, 40])
@pytest.mark.parametrize(("m", "n"), [(1, 1), (1, 5), (2, 2), (3, 1), (17, 33), (64, 128)])
@pytest.mark.parametrize("fun", [anp.dot, anp.matmul])
def test_products_of_vectors_and_matrices(fun, m, n, k, random):
    """All layouts, because BLAS may give other bits for a transposed or strided array."""
    for dtype in ("d", "f"):
        a = random.standard_normal((m, n)).astype(dtype)
        b = random.standard_normal((n, k)).astype(dtype)
        for pair in (
            (a, b),
            (a, b[:, 0].copy()),
            (a[0].copy(), b),
            (a[0].copy(), b[:, 0].copy()),
            (np.asfortranarray(a), b),
            (a, np.asfortranarray(b)),
            (a[::-1], b[:, ::-1]),
            (a, b[:, 0]),
            (a[0], b[:, 0]),
        ):
            assert_autograds_bits(fun, list(pair), random)


@pytest.mark.parametrize("fun", [anp.dot, anp.matmul])
@pytest.mark.parametrize(
    ("shapes", "dtypes"),
    [
        (((3, 4), (4, 2)), "df"),
        (((3, 4), (4,)), "fd"),
        (((3, 4), (4, 2)), "DD"),
        (((4,), (4,)), "DD"),
        (((2, 3, 4), (4, 2)), "dd"),
        (((3, 4), (2, 4, 3)), "dd"),
    ],
)
def test_other_products_are_left_to_autograd(fun, shapes, dtypes, random):
    args = [
        random.standard_normal(shape).astype(dtype)
        for shape, dtype in zip(shapes, dtypes, strict=True)
    ]
    assert_autograds_bits(fun, args, random)


def test_a_product_of_one_array_with_itself(random):
    a = random.standard_normal((5, 5))
    assert_autograds_bits(lambda x: anp.dot(x, x), [a], random)
    assert_autograds_bits(lambda x: x @ x.T, [a], random)
    assert_autograds_bits(lambda x: anp.dot(x[0], x[0]), [a], random)


def test_numbers_times_arrays(random):
    assert_autograds_bits(lambda x: anp.dot(x, 2.0), [np.ones((2, 3))], random)
    assert_autograds_bits(lambda x: anp.dot(2.0, x), [np.ones(3)], random)


def test_a_product_keeps_the_other_factor_only():
    features, weights = np.ones((500, 40)), np.ones(40)
    for fun in (anp.dot, anp.matmul):
        _, tape = trace(lambda w, f=fun: [f(features, anp.exp(w))], [weights])
        assert held_nbytes(tape) == features.nbytes + weights.nbytes
        _, tape = trace(lambda w, f=fun: [f(features * 2.0, w * 2.0)], [weights])
        assert held_nbytes(tape) == features.nbytes  # what exp holds is gone


def test_autograds_primitives_are_found(monkeypatch):
    """``anp.mean`` is a wrapper in autograd 1.9; the primitive below it is what a tape sees."""
    calls = []

    def watched(argnums, ans, args, kwargs):
        calls.append(args)
        return DECLARED[mean].adjoint(argnums, ans, args, kwargs)

    (mean,) = [fun for fun in DECLARED if getattr(fun, "fun", None) is np.mean]
    monkeypatch.setitem(reverse.RULES, mean, watched)
    trace(lambda a: [anp.mean(a)], [np.ones(3)])
    assert len(calls) == 1
