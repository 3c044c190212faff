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
from inputs import named

from daskgrad.autodiff.tape import linearize, trace

V = np.random.default_rng(2).uniform(0.2, 0.9, 4)


def test_a_push_runs_nothing_again_and_what_has_no_derivative_has_no_tangent(random):
    runs = []

    def fun(a, b):
        runs.append(1)
        return [anp.sin(a) * b, anp.sum(b), a.size, "name", None, anp.floor(a), 2.0, a > 0.5]

    outputs, push = linearize(fun, [V, V[::-1].copy()])
    assert outputs[2:5] == [4, "name", None]
    for _ in range(3):
        t = random.standard_normal(4)
        tangents = push([t, None])
        np.testing.assert_array_equal(tangents[0], t * np.cos(V) * V[::-1])
        assert tangents[2:5] == [None] * 3
        assert tangents[1] == tangents[6] == 0.0
        assert np.shape(tangents[1]) == ()
        assert not np.any(tangents[5])
        assert tangents[7] is None
    assert len(runs) == 1


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


def test_a_primitive_without_rule_for_tangents_uses_that_for_cotangents_or_is_named():
    @primitive
    def cube(x):
        return x**3

    defvjp(cube, lambda ans, x: lambda g: 3.0 * g * x**2)
    assert cube not in primitive_jvps
    _, push = linearize(lambda a: [cube(a)], [V])
    np.testing.assert_allclose(push([np.ones(4)])[0], 3.0 * V**2, rtol=1e-14)
    odd = primitive(named(lambda x: x, "odd"))
    _, push = linearize(lambda a: [odd(a)], [V])
    with pytest.raises(NotImplementedError, match="primitive 'odd' has no derivative rule"):
        push([V])


def test_a_copied_box_is_an_error_and_no_zero():
    for fun in (lambda a: [copy.deepcopy(a) * 2.0], lambda a: [copy.deepcopy(a) * a]):
        with pytest.raises(TypeError, match="was copied"):
            linearize(fun, [V])


def test_a_derivative_within_a_model_is_pushed_through():
    def fun(a):
        return [autograd.elementwise_grad(anp.sin)(a) * a]

    _, push = linearize(fun, [V])
    np.testing.assert_allclose(push([np.ones(4)])[0], np.cos(V) - V * np.sin(V), rtol=1e-14)


def test_what_a_push_holds_is_freed_with_it():
    constant = V.copy()
    constant.flags.writeable = False  # it is not copied
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
