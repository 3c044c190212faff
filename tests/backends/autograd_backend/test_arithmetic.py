"""Our rules of arithmetic against autograd's, for every way to broadcast: bit by bit, but for what
they compute in another way."""

import operator

import autograd.numpy as anp
import numpy as np
import pytest
from autograd.core import make_vjp
from numpy.testing import assert_allclose

from daskgrad.backends.autograd import trace
from daskgrad.backends.autograd.rules.declaration import DECLARED
from daskgrad.models.captured import Pullback

OPERATORS = (operator.add, operator.sub, operator.mul, operator.truediv, operator.pow)

SHAPES = [
    ((3, 4), (3, 4)),
    ((3, 4), (4,)),
    ((4,), (3, 4)),
    ((3, 4), (3, 1)),
    ((3, 1), (1, 4)),
    ((3, 4), (1, 1)),
    ((2, 3, 4), (3, 1)),
    ((2, 3, 4), ()),
    ((), (4,)),
    ((), ()),
    ((1,), (1,)),
    ((1, 1), (2, 1, 1)),
    ((0, 3), (3,)),
]


def bits(value):
    array = np.asarray(value)
    return array.shape, str(array.dtype), array.tobytes()


def assert_autograds(fun, args, g):
    """Of a quotient, and of sums over several axes, the last bits differ."""
    outputs, tape = trace(lambda *boxes: [fun(*boxes)], args)
    for number, (arg, found) in enumerate(zip(args, tape.pull([g]), strict=True)):
        rest = args[:number], args[number + 1 :]
        pullback, value = make_vjp(lambda x, r=rest: fun(*r[0], x, *r[1]), arg)
        expected = pullback(g)
        assert bits(outputs[0]) == bits(value)
        assert bits(found)[:2] == bits(expected)[:2]
        precision = np.finfo(np.asarray(value).dtype).eps
        scale = np.max(np.abs(expected), initial=0.0)
        assert_allclose(found, expected, 0.0, 40.0 * precision * scale)


def is_exact(operate, arg, value):
    """Whether the gradient of an argument has autograd's bits."""
    dtypes = {np.asarray(arg).dtype, np.asarray(value).dtype}
    is_summed_at_once = np.ndim(value) - np.ndim(arg) + np.shape(arg).count(1) > 1
    if dtypes > {np.asarray(value).dtype} or np.iscomplexobj(value):
        return True
    return operate is not operator.truediv and not is_summed_at_once


def assert_autograds_bits(fun, args, g):
    outputs, tape = trace(lambda *boxes: [fun(*boxes)], args)
    for number, (arg, found) in enumerate(zip(args, tape.pull([g]), strict=True)):
        rest = args[:number], args[number + 1 :]
        pullback, value = make_vjp(lambda x, r=rest: fun(*r[0], x, *r[1]), arg)
        assert bits(outputs[0]) == bits(value)
        assert bits(found) == bits(pullback(g))


@pytest.mark.parametrize("dtypes", ["dd", "ff", "df", "fd", "DD", "dD", "Dd"])
@pytest.mark.parametrize("shapes", SHAPES, ids=str)
@pytest.mark.parametrize("operate", OPERATORS)
def test_two_arrays(operate, shapes, dtypes, random):
    args = [
        random.uniform(0.5, 1.5, shape).astype(dtype)[()]
        for shape, dtype in zip(shapes, dtypes, strict=True)
    ]
    value = operate(*args)
    g = random.standard_normal(np.shape(value)).astype(value.dtype)[()]
    are_exact = [is_exact(operate, arg, value) for arg in args]
    (assert_autograds_bits if all(are_exact) else assert_autograds)(operate, args, g)
    for number in (0, 1):  # the other one constant

        def fun(x, n=number):
            return operate(x, args[1]) if n == 0 else operate(args[0], x)

        compare = assert_autograds_bits if are_exact[number] else assert_autograds
        compare(fun, [args[number]], g)


@pytest.mark.parametrize("number", [2.0, 3, -1, 0, 0.5, 1, np.float32(2.0), np.int64(3), True])
@pytest.mark.parametrize("dtype", ["d", "f", "D"])
@pytest.mark.parametrize("operate", OPERATORS)
def test_arrays_and_numbers(operate, dtype, number, random):
    if operate is operator.sub and number is True:
        pytest.skip("NumPy has no such minus")
    for shape in ((3, 4), (3, 1), ()):
        x = random.uniform(0.5, 1.5, shape).astype(dtype)[()]
        if number == 0 and operate is operator.truediv:
            assert_autograds_bits(lambda a: operate(number, a), [x], np.ones(shape)[()])
            continue
        assert_autograds_bits(lambda a: operate(a, number), [x], random.standard_normal(shape)[()])
        is_quotient = operate is operator.truediv
        compare = assert_autograds if is_quotient else assert_autograds_bits
        compare(lambda a: operate(number + 1.0, a), [x], random.standard_normal(shape)[()])


def test_a_quotient_by_a_tiny_number_does_not_overflow():
    """Its derivative is finite, though the square of the denominator is zero."""
    x, y = np.array([1e-200]), np.array([1e-170])
    _, tape = trace(lambda b: [x / b], [y])
    (found,) = tape.pull([np.array([1e-150])])
    assert_allclose(found, -1e-10)


def test_zeros_keep_autograds_signs():
    x, g = np.array([[1.0, -1.0]]), np.array([[-0.0, 0.0]])
    for fun in (lambda a: a + 1.0, lambda a: 1.0 - a, lambda a: a * 2.0, lambda a: a + a[0]):
        assert_autograds_bits(fun, [x], g)


@pytest.mark.parametrize("power", [0, 1, 2, 2.5, 0.0, 1.0])
def test_powers_of_zero(power):
    """autograd takes x ** 1 in the place of x ** -1 where the power is zero."""
    assert_autograds_bits(lambda a: a**power, [np.array([0.0, 2.0])], np.array([3.0, 5.0]))


@pytest.mark.parametrize("fun", [anp.add, anp.subtract, anp.multiply, anp.divide, anp.power])
def test_calls_that_autograds_rule_refuses_are_refused(fun):
    """Ours must not take the place of its error."""
    assert DECLARED[fun].adjoint
    with pytest.raises(NotImplementedError, match="does not look at dtype="):
        trace(lambda a: [fun(a, a, dtype=np.float64)], [np.ones(2)])


def test_a_complex_cotangent_of_a_real_product_arrives_as_real():
    """A rule above may pass one on; autograd takes the real part, and so does ``project``."""
    x = np.ones(2)
    _, tape = trace(lambda a: [a * a + a], [x])
    (found,) = Pullback(tape, (x,), (0,))((np.array([1.0 + 5.0j, 2.0]),))
    assert bits(found) == bits(np.array([3.0, 6.0]))


def test_only_what_is_needed_is_kept():
    """A sum keeps nothing, a product with a constant the constant."""
    x, constant = np.ones(1000), np.ones(1000)
    for fun, kept in (
        (lambda a: anp.sin(a) + anp.cos(a), 0),
        (lambda a: a - constant, 0),
        (lambda a: a / constant, constant.nbytes),
    ):
        _, tape = trace(lambda a, f=fun: [f(a)], [x])
        held = [array for array in tape.held_arrays() if array is not x]
        assert sum(array.nbytes for array in held) == kept
