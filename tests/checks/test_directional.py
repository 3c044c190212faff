"""Derivatives against differences: what is compared, and what is allowed."""

import autograd.numpy as np
import numpy as onp
import pytest

import daskgrad as dg
from daskgrad.checks.directional import (
    Checked,
    Line,
    Settings,
    first_fault,
    require_order,
    scalar_of,
)

X = np.array([0.3, -0.5, 0.9])

pytestmark = pytest.mark.usefixtures("synchronous")


def settings(order=1, modes=("reverse",)):
    return Settings(order, modes, rtol=1e-6, atol=1e-8, seed=0)


def test_differences_along_a_line_are_exact_to_fourth_order():
    """Of a polynomial of degree four, the extrapolated slope has no truncation error."""
    direction = np.array([1.0, -2.0, 0.5])

    def at(t):
        x = X + t * direction
        return np.sum(x**4 - x**3 + x)

    line = Line(at, epsilon=onp.finfo(float).eps, size=1.0)
    slope = np.sum((4 * X**3 - 3 * X**2 + 1) * direction)
    assert abs(line.slope() - slope) < 1e-11 * abs(slope)


def test_a_program_moves_its_arguments_along_their_directions():
    checked = Checked.of(dg.delayed(lambda x, n, y: n * np.sum(x) * y), (X, 2, 3.0))
    assert checked.numbers == [0, 2]
    assert checked.evaluate(*checked.args) == 6.0 * np.sum(X)
    x, n, y = checked.moved(0.5, {2: 4.0})
    assert (x is X, n, y) == (True, 2, 5.0)
    x, n, y = checked.tangents({2: 4.0})
    assert (x.tolist(), n, y) == ([0.0, 0.0, 0.0], None, 4.0)


def test_reverse_mode_alone_calls_neither_forward_mode_nor_second_derivatives(monkeypatch):
    def never(*_):
        raise AssertionError("called")

    monkeypatch.setattr("daskgrad.checks.directional.jvp", never)
    monkeypatch.setattr("daskgrad.checks.directional.hvp", never)
    checked = Checked.of(dg.delayed(lambda x: np.sum(x**3)), (X,))
    assert first_fault(checked, settings()) is None


def test_a_wrong_tangent_is_a_fault(monkeypatch):
    def jvp(fun, primals, tangents):
        return None, 1.001 * 3.0 * primals[0] ** 2 * tangents[0]

    monkeypatch.setattr("daskgrad.checks.directional.jvp", jvp)
    checked = Checked.of(dg.delayed(lambda x: x**3, name="cube"), (X,))
    assert first_fault(checked, settings()) is None
    fault = first_fault(checked, settings(modes=("forward",)))
    assert "the tangent of 'cube' is wrong for argument 0 (float64[3])" in str(fault)
    assert fault.given == pytest.approx(1.001 * fault.found, rel=1e-6)


@pytest.mark.parametrize("factor", [1.0, 1.001])
@pytest.mark.parametrize("number", [0, 1])
def test_a_wrong_second_derivative_is_a_fault_of_its_argument(number, factor, monkeypatch):
    def hvp(fun, primals, tangents):
        (x, y), (v, w) = primals, tangents
        products = [6.0 * x * v * y + 3.0 * x**2 * w, 3.0 * np.sum(x**2 * v)]
        products[number] = factor * products[number]
        return (3.0 * x**2 * y, np.sum(x**3)), tuple(products)

    monkeypatch.setattr("daskgrad.checks.directional.hvp", hvp)
    checked = Checked.of(dg.delayed(lambda x, y: np.sum(x**3) * y, name="cubes"), (X, 2.0))
    fault = first_fault(checked, settings(order=2))
    if factor == 1.0:
        assert fault is None
    else:
        assert f"the Hessian-vector product of 'cubes' is wrong for argument {number}" in str(fault)


def test_a_value_of_many_numbers_becomes_one():
    value = {"a": X, "n": 3, "b": np.float64(2.0)}
    model = dg.delayed(lambda x: {"a": x, "n": 3, "b": np.sum(x)})
    weights = {"a": np.array([1.0, 2.0, 3.0]), "n": None, "b": 0.5}
    scalar = scalar_of(model, value, weights)
    assert dg.grad(scalar)(X).tolist() == [1.5, 2.5, 3.5]
    assert scalar_of(model, np.float64(2.0), None) is model


@pytest.mark.parametrize("x", [X.astype(np.float32), X + 1j])
def test_second_derivatives_need_real_numbers_in_double_precision(x):
    model = dg.delayed(lambda x: np.sum(x * x), name="model")
    with pytest.raises(TypeError, match=r"need real numbers in double precision; 'model' was"):
        dg.check_grads(model, order=2)(x)
    with pytest.raises(TypeError, match=r"rates need real numbers in double precision; 'model'"):
        dg.taylor_rates(model)(x)


@pytest.mark.parametrize("order", [0, 3, "1", True, None])
def test_orders_are_one_and_two(order):
    with pytest.raises(ValueError, match=r"order must be 1 \(gradients\) or 2 .*; found"):
        require_order(order)
