"""Implicit functions: unknowns of any kind, and errors; see ``test_programs_with_rules``."""

import math

import autograd
import autograd.numpy as anp
import numpy as np
import pytest
from autograd.differential_operators import make_jvp
from numpy.testing import assert_allclose

import daskgrad as dg

pytestmark = pytest.mark.usefixtures("synchronous")

A = np.array([0.5, 0.7, 0.9])


def test_unknowns_of_any_shape():
    """X with X X = M: a matrix that is not linear in its argument."""

    def root(matrix):
        values, vectors = np.linalg.eigh(matrix)
        return vectors * np.sqrt(values) @ vectors.T

    square_root = dg.implicit(root, lambda x, matrix: anp.dot(x, x) - matrix)
    matrix = np.array([[4.0, 1.0], [1.0, 3.0]])
    dg.check_grads(dg.delayed(lambda t: square_root(matrix * t)))(1.5)
    number = dg.implicit(lambda t: math.sqrt(t), lambda x, t: x * x - t)  # takes no boxes
    dg.check_grads(dg.delayed(number))(0.25)
    assert autograd.grad(autograd.grad(autograd.grad(number)))(0.25) == pytest.approx(12.0)


def test_no_unknowns_are_a_root_of_no_equations():
    root = dg.implicit(np.sqrt, lambda x, a: x**2 - a)

    def loss(a):
        return dg.map_sum(lambda a, b: anp.sum(root(a * b)), [np.zeros(0), A], a)

    value, gradient = dg.value_and_grad(loss)(2.0)
    wanted = np.sum(np.sqrt(A * 2.0))
    assert_allclose((value, gradient), (wanted, wanted / 4.0))
    assert_allclose(dg.jvp(loss, (2.0,), (1.0,)), (wanted, wanted / 4.0))
    _, (product,) = dg.hvp(loss, (2.0,), (1.0,))
    assert_allclose(product, -wanted / 16.0)


def test_single_precision_and_keyword_arguments():
    def root(t, power=2):
        return t ** np.float32(1 / power)

    number = dg.implicit(root, lambda x, t, power=2: x**power - t)
    t = np.array([8.0, 27.0], np.float32)
    gradient = dg.grad(dg.delayed(lambda t: anp.sum(number(t, power=3))))(t)
    assert gradient.dtype == np.float32
    assert_allclose(gradient, [1 / 12, 1 / 27], rtol=1e-5)


def test_an_argument_that_the_residual_does_not_use_has_no_derivative():
    root = dg.implicit(lambda t, unused: np.sqrt(t), lambda x, t, unused: x * x - t)
    assert autograd.grad(root, 1)(4.0, 5.0) == 0.0
    assert make_jvp(lambda unused: root(4.0, unused))(5.0)(1.0)[1] == 0.0


# ------------------------------------------------------------------------------- what is not right


def lines(t):
    """Two lines that meet in x, or are parallel where t is zero."""
    return np.array([[1.0, 2.0], [2.0, 4.0 + t]])


@pytest.mark.parametrize("matrix", [lines(0.0), lines(1e-17), np.full((2, 2), np.nan)])
def test_a_singular_jacobian_is_an_error_that_names_it(matrix):
    def origin(t):
        return np.zeros(2)

    def meeting(x, t):
        return anp.dot(matrix, x) * t

    fun = dg.implicit(origin, meeting)
    message = r"derivative of 'origin' does not exist: the Jacobian of the residual 'meeting'.*sing"
    with pytest.raises(np.linalg.LinAlgError, match=message):
        dg.grad(dg.delayed(lambda t: anp.sum(fun(t))))(1.0)
    with pytest.raises(np.linalg.LinAlgError, match=message):
        make_jvp(fun)(1.0)(1.0)


def test_an_ill_conditioned_jacobian_is_not_refused():
    matrix = lines(1e-6)
    fun = dg.implicit(
        lambda t: np.linalg.solve(matrix, t * np.ones(2)),
        lambda x, t: anp.dot(matrix, x) - t * anp.ones(2),
    )
    slope = dg.grad(dg.delayed(lambda t: anp.sum(fun(t))))(1.0)
    assert_allclose(slope, np.sum(np.linalg.solve(matrix, np.ones(2))), rtol=1e-6)
