"""What forward mode within a model promises; ``test_functions`` has the functions."""

import copy
import gc
import weakref

import autograd
import autograd.numpy as anp
import numpy as np
import pytest
from autograd.core import primitive_jvps
from autograd.extend import defvjp, primitive

from daskgrad.backends.autograd import linearize, trace

V = np.random.default_rng(2).uniform(0.2, 0.9, 4)


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
