"""Implicit functions: the derivatives of iterations that are run to their end, without them."""

import math

import autograd
import autograd.numpy as anp
import numpy as np
import pytest
import scipy.sparse.linalg
from autograd.differential_operators import make_jvp
from numpy.testing import assert_allclose, assert_array_equal

import daskgrad as dg

pytestmark = pytest.mark.usefixtures("synchronous")

A = np.array([0.5, 0.7, 0.9])
B = {"b": np.array([1.0, 2.0, 3.0]), "name": "text", "n": 3}
RUNS = []


def iterated(a, parameters, numpy):
    """A fixed point that is a pytree, and the number of steps."""
    x, z = np.ones(3), 0.5
    for _ in range(80):
        x, z = update({"x": x, "z": z}, a, parameters, numpy)
    return {"x": x, "z": z, "steps": 80}


def update(state, a, parameters, numpy):
    x, z = state["x"], state["z"]
    new = 0.3 * numpy.cos(x) * a + 0.1 * parameters["b"] * z
    return new, 0.2 * numpy.sin(z) + 0.1 * numpy.sum(x)


def solver(a, parameters):
    RUNS.append("solver")
    return iterated(a, parameters, np)


def residual(state, a, parameters):
    x, z = update(state, a, parameters, anp)
    return [x - state["x"], z - state["z"]]


fixed_point = dg.implicit(solver, residual)


def unrolled(a, parameters):
    return iterated(a, parameters, anp)


def objective(fun):
    def of_fixed_point(a, b):
        state = fun(a, {**B, "b": b})
        assert state["steps"] == 80
        return anp.sum(state["x"] ** 2) * state["z"] + anp.sum(anp.exp(state["x"]))

    return of_fixed_point


ARGS = A, B["b"]


@pytest.mark.parametrize("argnum", [0, 1])
def test_it_agrees_with_the_differentiated_iterations(argnum):
    for of in (autograd.grad, autograd.hessian):
        expected = of(objective(unrolled), argnum)(*ARGS)
        assert_allclose(of(objective(fixed_point), argnum)(*ARGS), expected, rtol=1e-12)
    mixed, expected = [
        autograd.jacobian(autograd.grad(objective(fun)), argnum)(*ARGS)
        for fun in (fixed_point, unrolled)
    ]
    assert_allclose(mixed, expected, rtol=1e-12, atol=1e-15)


def test_forward_mode_and_reverse_over_forward():
    direction = np.array([0.2, -1.0, 0.4])

    def slope(fun):
        return lambda b: make_jvp(lambda a: objective(fun)(a, b))(A)(direction)[1]

    assert_allclose(slope(fixed_point)(B["b"]), slope(unrolled)(B["b"]), rtol=1e-12)
    found, expected = [autograd.grad(slope(fun))(B["b"]) for fun in (fixed_point, unrolled)]
    assert_allclose(found, expected, rtol=1e-11, atol=1e-15)


def gmres(product, rhs):
    operator = scipy.sparse.linalg.LinearOperator((len(rhs),) * 2, product, dtype=rhs.dtype)
    return scipy.sparse.linalg.gmres(operator, rhs, rtol=1e-13)[0]


matrix_free = dg.implicit(solver, residual, linear_solver=gmres)


def test_a_linear_solver_of_the_users_own(scheduler):
    model = dg.delayed(lambda a: objective(matrix_free)(a, B["b"]))
    expected = autograd.grad(objective(unrolled))(*ARGS)
    assert_allclose(dg.grad(model)(A), expected, rtol=1e-9)


def test_a_linear_solver_of_the_users_own_in_all_derivatives():
    def slope(fun):
        return lambda b: make_jvp(lambda a: objective(fun)(a, b))(A)(A)[1]

    assert_allclose(slope(matrix_free)(B["b"]), slope(unrolled)(B["b"]), rtol=1e-9)
    found, expected = [autograd.grad(slope(fun))(B["b"]) for fun in (matrix_free, unrolled)]
    assert_allclose(found, expected, rtol=1e-9, atol=1e-12)
    found, expected = [autograd.hessian(objective(fun))(*ARGS) for fun in (matrix_free, unrolled)]
    assert_allclose(found, expected, rtol=1e-9, atol=1e-12)


def test_on_plain_arrays_it_is_the_solver():
    assert_array_equal(fixed_point(A, B)["x"], solver(A, B)["x"])
    assert fixed_point.__name__ == "solver"


def test_a_model_of_an_implicit_function_on_every_scheduler(every_scheduler):
    def of_sum(a):
        terms = dg.map_sum(term, [1.0, 2.0, 3.0], a, grainsize=1)
        return terms + dg.delayed(anp.sum)(dg.delayed(fixed_point)(a, B)["x"])

    def expected(a):
        terms = [anp.sum(unrolled(a * item, B)["x"] ** 2) for item in (1.0, 2.0, 3.0)]
        return sum(terms) + anp.sum(unrolled(a, B)["x"])

    results = every_scheduler(lambda: dg.grad(of_sum)(A))
    assert_allclose(results["sync"], autograd.grad(expected)(A), rtol=1e-12)
    for gradient in results.values():
        assert_array_equal(gradient, results["sync"])


def term(item, a):
    return anp.sum(fixed_point(a * item, B)["x"] ** 2)


def test_all_derivatives_of_a_graph():
    def program(fun):
        return lambda a: dg.delayed(lambda state: anp.sum(state["x"] ** 2))(dg.delayed(fun)(a, B))

    direction = np.array([0.2, -1.0, 0.4])
    for derivative in (
        lambda fun: dg.jvp(program(fun), (A,), (direction,))[1],
        lambda fun: dg.hvp(program(fun), (A,), (direction,))[1][0],
        lambda fun: dg.hessian(program(fun))(A),
        lambda fun: dg.jacobian(lambda a: dg.delayed(fun)(a, B)["x"], mode="forward")(A),
        lambda fun: dg.jacobian(lambda a: dg.delayed(fun)(a, B)["x"], mode="reverse")(A),
    ):
        assert_allclose(derivative(fixed_point), derivative(unrolled), rtol=1e-11, atol=1e-15)


def test_locals_and_lambdas(scheduler):
    root = dg.implicit(lambda t: np.cbrt(t), lambda x, t: x**3 - t)
    assert_allclose(dg.grad(dg.delayed(root))(8.0), 1 / 12, rtol=1e-12)


def test_the_solver_runs_once_for_a_value_and_its_gradient():
    RUNS.clear()
    model = dg.delayed(lambda a: anp.sum(fixed_point(a, B)["x"] ** 2))
    dg.value_and_grad(model)(A)
    assert RUNS == ["solver"]
    _, pullback = dg.vjp(dg.delayed(lambda a: fixed_point(a, B)["x"]), A)
    for row in np.eye(3):
        pullback(row)
    assert RUNS == ["solver"] * 2
    make_jvp(lambda a: fixed_point(a, B)["x"])(A)(A)
    assert RUNS == ["solver"] * 3
    autograd.hessian(lambda a: fixed_point(a, B)["z"])(A)
    assert RUNS == ["solver"] * 4


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


def test_a_residual_that_is_off_is_caught():
    wrong = dg.implicit(lambda t: np.cbrt(t), lambda x, t: x**3 - 1.001 * t)
    with pytest.raises(AssertionError, match="the pullback of 'root' is wrong"):
        dg.check_grads(dg.delayed(wrong, name="root"))(8.0)


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
    fun = dg.implicit(lambda t: np.linalg.solve(lines(1e-6), t * np.ones(2)), of_lines)
    slope = dg.grad(dg.delayed(lambda t: anp.sum(fun(t))))(1.0)
    assert_allclose(slope, np.sum(np.linalg.solve(lines(1e-6), np.ones(2))), rtol=1e-6)


def of_lines(x, t):
    return anp.dot(lines(1e-6), x) - t * anp.ones(2)


@pytest.mark.parametrize(
    ("x", "residual", "error", "message"),
    [
        (np.ones(3), lambda x, t: x[:2] * t, ValueError, "as many numbers .* x has; found 2 for 3"),
        (
            np.ones(2),
            lambda x, t: 1j * x,
            TypeError,
            r"residual '<lambda>' of 'root' must be of re",
        ),
        (
            1j * np.ones(2),
            lambda x, t: x,
            TypeError,
            r"value of 'root' must be of real.*complex128",
        ),
        (np.ones(2), lambda x, t: [x, "t"], TypeError, r"of 'root' must be of real.*found 't'"),
    ],
)
def test_unknowns_and_residuals_are_as_many_real_numbers(x, residual, error, message):
    def root(t):
        return x

    fun = dg.implicit(root, residual)
    with pytest.raises(error, match=message):
        dg.vjp(dg.delayed(fun), 1.0)


def test_a_linear_solver_returns_a_vector():
    fun = dg.implicit(solver, residual, linear_solver=lambda product, rhs: rhs[:2])
    with pytest.raises(ValueError, match=r"linear_solver of 'solver' must .* shape \(4,\)"):
        dg.vjp(dg.delayed(lambda a: fun(a, B)["x"]), A)[1](A)


def test_it_takes_two_functions():
    with pytest.raises(TypeError, match=r"argument of dg.implicit must be a function; found 3"):
        dg.implicit(3, residual)
    with pytest.raises(TypeError, match=r"residual of 'solver' must be a function; found None"):
        dg.implicit(solver, None)
    with pytest.raises(TypeError, match=r"linear_solver of 'solver' must be a function; found 'gm"):
        dg.implicit(solver, residual, "gmres")
