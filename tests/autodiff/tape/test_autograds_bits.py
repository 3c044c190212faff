"""Values and cotangents against autograd's, bit by bit, but for what we compute in another way."""

import autograd
import autograd.numpy as anp
import numpy as np
import pytest
from autograd.core import make_vjp
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from daskgrad.autodiff.models.captured import Pullback, held_nbytes
from daskgrad.autodiff.rules.declaration import DECLARED
from daskgrad.autodiff.rules.linalg_products import contract, plan_of
from daskgrad.autodiff.tape import reverse, trace

N = 4


def bits(value):
    array = np.asarray(value)
    return array.shape, str(array.dtype), array.tobytes()


def drawn(random, like):
    """A cotangent that nobody may write to; among its entries are zeros with a sign."""
    like = np.asarray(like)
    g = random.standard_normal(like.shape)
    g = np.where(g < -1.0, -0.0, g)
    if like.dtype.kind == "c":
        g = g + 1j * random.standard_normal(like.shape)
    g = np.array(g, like.dtype)
    g.flags.writeable = False
    return g[()]


def compare(fun, arrays, g, precision=0.0, label=""):
    """Cotangents of all arguments together and of each alone: by their bits at precision zero."""
    (value,), tape = trace(lambda *boxes: [fun(*boxes)], arrays)
    g = drawn(g, value) if isinstance(g, np.random.Generator) else g
    rows = zip(arrays, tape.pull([g]), tape.pull([g]), strict=True)
    for n, (array, together, again) in enumerate(rows):

        def of_one(x, n=n):
            return fun(*arrays[:n], x, *arrays[n + 1 :])

        pullback, same = make_vjp(of_one, array)
        assert bits(value) == bits(same), label
        assert bits(together) == bits(again), label
        expected = pullback(g)
        for cotangent in (together, trace(lambda x: [of_one(x)], [array])[1].pull([g])[0]):
            assert bits(cotangent)[:2] == bits(expected)[:2], label
            if precision:
                scale = precision * (1e-3 + np.max(np.abs(expected), initial=0.0))
                assert_allclose(cotangent, expected, 0.0, scale, err_msg=label)
            else:
                assert bits(cotangent) == bits(expected), label


# ----------------------------------------------------------------------------------- arithmetic


@pytest.mark.parametrize("power", [0, 1, 2, 2.5, 0.0, 1.0])
def test_powers_of_zero(power):
    """autograd takes x ** 1 in the place of x ** -1 where the power is zero."""
    compare(lambda a: a**power, [np.array([0.0, 2.0])], np.array([3.0, 5.0]))


def test_a_quotient_by_a_tiny_number_does_not_overflow():
    """Its derivative is finite, though the square of the denominator is zero."""
    _, tape = trace(lambda b: [np.array([1e-200]) / b], [np.array([1e-170])])
    assert_allclose(tape.pull([np.array([1e-150])])[0], -1e-10)


def test_a_complex_cotangent_of_a_real_product_arrives_as_real():
    """A rule above may pass one on; autograd takes the real part, and so does ``project``."""
    x = np.ones(2)
    _, tape = trace(lambda a: [a * a + a], [x])
    (cotangent,) = Pullback(tape, (x,), (0,))((np.array([1.0 + 5.0j, 2.0]),))
    assert bits(cotangent) == bits(np.array([3.0, 6.0]))


def test_a_product_keeps_the_other_factor_only():
    features, weights = np.ones((500, 40)), np.ones(40)
    for fun in (anp.dot, anp.matmul):
        _, tape = trace(lambda w, f=fun: [f(features, anp.exp(w))], [weights])
        assert held_nbytes(tape) == features.nbytes + weights.nbytes
        _, tape = trace(lambda w, f=fun: [f(features * 2.0, w * 2.0)], [weights])
        assert held_nbytes(tape) == features.nbytes  # what exp holds is gone


def test_a_sum_keeps_nothing_and_a_quotient_the_constant():
    x, constant = np.ones(1000), np.ones(1000)
    for fun, kept in (
        (lambda a: anp.sin(a) + anp.cos(a), 0),
        (lambda a: a - constant, 0),
        (lambda a: a / constant, constant.nbytes),
    ):
        _, tape = trace(lambda a, f=fun: [f(a)], [x])
        assert sum(array.nbytes for array in tape.held_arrays() if array is not x) == kept


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


# ------------------------------------------------------- adjoints through products of matrices


def test_an_axis_of_length_one_may_stand_for_none():
    """autograd's cotangent of an empty operand would have the other one's entries."""
    arrays = [np.ones((0, 5)), np.ones((1, 5))]
    _, tape = trace(lambda *args: [anp.einsum("ij,ij->", *args)], arrays)
    first, second = tape.pull([np.float64(1.0)])
    assert first.shape == (0, 5)
    assert_array_equal(second, np.zeros((1, 5)))


def test_operands_that_are_cheapest_together_come_first():
    """A vector is taken before two matrices are multiplied, whatever their order."""
    a, b, g = np.ones((50, 60)), np.ones((60, 70)), np.ones(70)
    plan = plan_of("i,ij,jk->k", 0, (50,), a.shape, b.shape)
    assert [places for places, _ in plan] == [(2, 0), (1, 0)]
    assert [product.__name__ for _, product in plan] == ["by_matrices", "by_matrices"]
    assert_array_equal(contract(plan, g, a, b), a @ (b @ g))


# ------------------------------------------------------------------------------------ indexing


MASK = np.array([[1, 0, 0, 1, 0], [0, 0, 0, 0, 0], [1, 1, 1, 0, 1], [0, 1, 0, 0, 0]], dtype=bool)
ROWS = np.array([True, False, True, True])
COLUMNS = np.array([True, False, True, True, False])
INDICES = [  # of an array of shape (4, 5)
    *[2, -1, np.int64(3), np.array(1), (1, -2), (np.int64(1), 2), True, False, None, Ellipsis, ()],
    *[slice(1, 3), slice(None), slice(2, None), slice(None, None, 2), slice(None, None, -1)],
    *[slice(3, 0, -2), slice(3, 3), slice(2, 100), (slice(1, None), slice(None, -1))],
    *[(slice(None, None, -1), slice(1, None, 3)), (Ellipsis, 1), (1, Ellipsis)],
    *[(Ellipsis, slice(1, 3)), (None, slice(1, 3)), (slice(None), None, 2), (1, None, 2)],
    *[np.array([2, 0, 3]), np.array([1, 1, 3, 1]), np.array([-1, 3, -4]), np.array([], dtype=int)],
    *[np.array([[0, 1], [1, 3]]), np.array([2, 2], np.int32), np.array([2, 2], np.uint8)],
    *[[0, 2], [2, 2, 2, 0], [[0, 1], [1, 0]], [], [np.int64(1), np.int64(1)]],
    *[([0, 1, 1], [4, 2, 2]), (np.array([0, 1, 1]), np.array([4, 2, 2]))],
    *[(np.array([[0], [3]]), np.array([1, 1, 4])), np.ix_([0, 0, 3], [1, 4])],
    *[(np.array([3, 3, 0]), slice(1, 4)), (slice(None, None, 2), np.array([0, 0, 4]))],
    *[(np.array([3, 3, 0]), 2), (2, np.array([0, 0, 4])), (np.array([1, 1]), None, slice(2))],
    *[(Ellipsis, np.array([0, 0, 2])), (slice(None), [1, 1]), MASK, np.zeros((4, 5), dtype=bool)],
    *[ROWS, (ROWS, slice(1, None)), (slice(1, None), COLUMNS), (ROWS, 3), (None, MASK)],
    *[(ROWS & ROWS[::-1], np.array([2, 2])), (ROWS & ROWS[::-1], COLUMNS & COLUMNS[::-1])],
    np.nonzero(MASK),
]


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.complex128])
def test_every_form_of_index(dtype, random):
    for index in INDICES:
        x = random.standard_normal((4, 5)).astype(dtype)
        compare(lambda a, i=index: anp.sin(a)[i], [x], random, label=str(index))
        compare(lambda a, i=index: a[i] + a[i], [x], random, label=str(index))


# ------------------------------------------------------------------------------------ programs


STEPS = (  # each makes of two vectors of length N one more
    lambda a, b: a + b,
    lambda a, b: a - b,
    lambda a, b: a * b,
    lambda a, b: a / (1.5 + b * b),
    lambda a, b: 2.0 - a,
    lambda a, b: 3 * a,
    lambda a, b: -a,
    lambda a, b: a**2,
    lambda a, b: (1.0 + a * a) ** -0.5,
    lambda a, b: (1.1 + anp.tanh(a)) ** b,
    lambda a, b: anp.tanh(a),
    lambda a, b: anp.exp(anp.sin(a)),
    lambda a, b: anp.log1p(anp.abs(a)),
    lambda a, b: anp.where(a > b, a, 0.1 * b),
    lambda a, b: anp.maximum(a, 0.2),
    lambda a, b: anp.concatenate([a[1:], b[:1]]),
    lambda a, b: a[::-1],
    lambda a, b: a[np.array([0, 2, 2, 1])],
    lambda a, b: a[1] + b,
    lambda a, b: a[0] * anp.sum(a[1:]) - a[::-1] * a[2],
    lambda a, b: a * anp.sum(b),
    lambda a, b: anp.mean(a) - b,
    lambda a, b: anp.dot(a, b) * a,
    lambda a, b: anp.dot(anp.outer(a, b), anp.cos(a)),
    lambda a, b: anp.outer(a, b) @ b,
    lambda a, b: anp.reshape(a, (2, 2)).T.ravel() + b,
    lambda a, b: anp.sum(a[:, None] * b, axis=0),
    lambda a, b: anp.mean(a[:, None] - b[None, :], axis=1),
    lambda a, b: anp.sum(a[:, None] + b, axis=1, keepdims=True)[:, 0],
    lambda a, b: anp.cumsum(a),
    lambda a, b: anp.stack([a, b])[1],
    lambda a, b: anp.real(anp.exp(1j * a) * b),
    lambda a, b: anp.einsum("i,j->i", a, b),
    lambda a, b: anp.floor(a) + b,
    lambda a, b: a,
)
ROUNDED = {3, 12}  # whose adjoints are computed in another way: a quotient, abs


place = st.integers(0, 100)
steps = st.lists(st.tuples(st.integers(0, len(STEPS) - 1), place, place), min_size=1, max_size=12)


def interpreted(program):
    def fun(x):
        values = [x]
        for step, first, second in program:
            # the latest values come first, so that the output depends on most of them
            a, b = values[-1 - first % len(values)], values[-1 - second % len(values)]
            values.append(STEPS[step](a, b))
        return values[-1] + 0.5 * values[len(values) // 2]

    return fun


@settings(max_examples=400)
@given(steps, st.integers(0, 1000))
def test_random_programs_have_autograds_bits(program, seed):
    random = np.random.default_rng(seed)
    fun, x = interpreted(program), random.uniform(-1.0, 1.0, N)
    is_rounded = not ROUNDED.isdisjoint([step for step, *_ in program])
    with np.errstate(all="ignore"):
        assume(np.max(np.abs(fun(x))) < 1e50)
        compare(fun, [x], random, 1e-10 * is_rounded)


def test_a_slice_with_a_plain_cotangent_is_added_to_one_that_is_differentiated(random):
    u, v = random.standard_normal((2, 3, 3))

    def fun(a):
        return anp.sum(a**3) + anp.sum(a[1:]) + anp.sum(a**2)

    def slope(a):
        return anp.sum(trace(lambda a: [fun(a)], [a])[1].pull([1.0])[0] * v)

    for found in (autograd.grad(slope)(u), trace(lambda a: [slope(a)], [u])[1].pull([1.0])[0]):
        assert_allclose(found, (6.0 * u + 2.0) * v, rtol=1e-12, atol=1e-12)


def test_differentiating_a_pull_with_respect_to_its_cotangent(random):
    """<g, J v> is linear in g, and its derivative with respect to g is J v."""
    u, v = random.standard_normal((2, 3, 3))

    def fun(a):
        return anp.sin(a)[1:] * a[:-1] + anp.dot(a, a)[[0, 2]] / (2.0 + a[0] ** 2)

    _, tape = trace(lambda a: [fun(a)], [u])
    slope = autograd.grad(lambda g: anp.sum(tape.pull([g])[0] * v))(np.zeros((2, 3)))
    expected = autograd.grad(lambda g: anp.sum(make_vjp(fun, u)[0](g) * v))(np.zeros((2, 3)))
    assert_allclose(slope, expected, rtol=1e-12, atol=1e-12)
