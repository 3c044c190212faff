"""Programs with rules of their own beside those without: all derivatives, traced and in graphs."""

import autograd
import autograd.numpy as anp
import dask
import numpy as np
import pytest
import scipy.sparse.linalg
from autograd.differential_operators import make_jvp
from numpy.testing import assert_allclose, assert_array_equal
from policies import moving
from solvers import MATRIX, RHS, solve

import daskgrad as dg

pytestmark = pytest.mark.usefixtures("synchronous")


@dg.custom_vjp
def mixed(parameters, count, label, *, scale=1.0):
    """Pytrees in and out, with leaves that have no derivative among them."""
    first = anp.sin(parameters["x"]) * count * scale
    return {"first": first, "rest": [parameters["y"] ** 2, count, label]}


def mixed_forward(parameters, count, label, *, scale=1.0):
    value = mixed(parameters, count, label, scale=scale)
    return value, {"p": parameters, "factor": count * scale}


def mixed_backward(residuals, cotangent):
    assert cotangent["rest"][1:] == [None, None]
    p = residuals["p"]
    x = anp.cos(p["x"]) * residuals["factor"] * cotangent["first"]
    return {"x": x, "y": 2.0 * p["y"] * cotangent["rest"][0], "n": None}, None, None


def mixed_jvp(primals, tangents, *, scale=1.0):
    (p, count, label), (t, *others) = primals, tangents
    assert others == [None, None]
    assert t["n"] is None
    first = anp.cos(p["x"]) * count * scale * t["x"]
    tangent = {"first": first, "rest": [2.0 * p["y"] * t["y"], None, None]}
    return mixed(p, count, label, scale=scale), tangent


mixed.defvjp(mixed_forward, mixed_backward)
mixed.defjvp(mixed_jvp)


def of_mixed(fun):
    def objective(x, y):
        value = fun({"x": x, "y": y, "n": 3}, 2, "label", scale=1.5)
        assert value["rest"][1:] == [2, "label"]
        return anp.sum(value["first"] ** 2) * value["rest"][0] + anp.sum(value["first"])

    return objective


A = np.array([0.5, 0.7, 0.9])
B = {"b": np.array([1.0, 2.0, 3.0]), "name": "text", "n": 3}
RUNS = []


def iterated(a, parameters, numpy):
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


def gmres(product, rhs):
    operator = scipy.sparse.linalg.LinearOperator((len(rhs),) * 2, product, dtype=rhs.dtype)
    return scipy.sparse.linalg.gmres(operator, rhs, rtol=1e-13)[0]


def unrolled(a, parameters):
    return iterated(a, parameters, anp)


fixed_point = dg.implicit(solver, residual)
matrix_free = dg.implicit(solver, residual, linear_solver=gmres)


def of_fixed_point(fun):
    def objective(a, b):
        state = fun(a, {**B, "b": b})
        assert state["steps"] == 80
        return anp.sum(state["x"] ** 2) * state["z"] + anp.sum(anp.exp(state["x"]))

    return objective


def of_solver(fun):
    return lambda matrix, rhs: anp.sum(anp.sin(fun(matrix, rhs)))


PROGRAMS = {  # with rules, without them, their arguments, and how exact the rules are
    "a solver": (of_solver(solve), of_solver(anp.linalg.solve), (MATRIX, RHS), 1e-11),
    "pytrees": (of_mixed(mixed), of_mixed(mixed.fun), (np.array([0.3, 0.7]), 2.0), 1e-11),
    "implicit": (of_fixed_point(fixed_point), of_fixed_point(unrolled), (A, B["b"]), 1e-11),
    "matrix-free": (of_fixed_point(matrix_free), of_fixed_point(unrolled), (A, B["b"]), 1e-9),
}


def slope(fun, at, args, of=None):
    """The derivative along a direction by one argument, as a function of the other one."""
    direction = np.cos(np.arange(1.0, 1.0 + np.size(args[at]))).reshape(np.shape(args[at]))

    def of_other(other):
        both = [other, other]
        by_one = lambda x: fun(*both[:at], x, *both[at + 1 :])  # noqa: E731
        if of is autograd.grad:
            return anp.sum(autograd.grad(by_one)(args[at]) * direction)
        return make_jvp(by_one)(args[at])(direction)[1]

    return of_other


def along(fun, args):
    return lambda t: fun(args[0] * t, args[1] * t**2)


DERIVATIVES = {
    "value": lambda fun, at, *args: fun(*args),
    "gradient": lambda fun, at, *args: autograd.grad(fun, at)(*args),
    "hessian": lambda fun, at, *args: autograd.hessian(fun, at)(*args),
    "mixed": lambda fun, at, *args: autograd.jacobian(autograd.grad(fun, 0), at)(*args),
}


@pytest.mark.parametrize("at", [0, 1])
@pytest.mark.parametrize("name", PROGRAMS)
def test_derivatives_nest(name, at):
    ours, plain, args, rtol = PROGRAMS[name]

    def compare(derivative, right):
        assert_allclose(derivative, right, rtol=rtol, atol=rtol * np.max(np.abs(right)) / 100)
        assert np.any(right), "else this cannot fail"

    for derive in DERIVATIVES.values():
        compare(derive(ours, at, *args), derive(plain, at, *args))
    forward, reverse = slope(ours, at, args), slope(plain, at, args, autograd.grad)
    for derive in (lambda fun: fun, autograd.grad):
        compare(derive(forward)(args[1 - at]), derive(reverse)(args[1 - at]))


@pytest.mark.parametrize("name", ["a solver", "pytrees", "matrix-free"])
def test_forward_mode_nests_in_itself(name):
    ours, plain, args, rtol = PROGRAMS[name]
    first = lambda t: make_jvp(along(ours, args))(t)(1.0)[1]  # noqa: E731
    right = autograd.grad(autograd.grad(along(plain, args)))(1.3)
    assert_allclose(make_jvp(first)(1.3)(1.0)[1], right, rtol=rtol)


VECTORS = {  # functions of a vector whose value is one, and their places
    "a solver": (lambda rhs: solve(MATRIX, rhs), lambda rhs: anp.linalg.solve(MATRIX, rhs), RHS),
    "implicit": (lambda a: fixed_point(a, B)["x"], lambda a: unrolled(a, B)["x"], A),
}
DIRECTION = np.array([0.2, -1.0, 0.4])
OF_GRAPHS = {
    "gradient": lambda fun, x: dg.value_and_grad(total(fun))(x)[1],
    "jvp": lambda fun, x: dg.jvp(total(fun), (x,), (DIRECTION,))[1],
    "hvp": lambda fun, x: dg.hvp(total(fun), (x,), (DIRECTION,))[1][0],
    "hessian": lambda fun, x: dg.hessian(total(fun))(x),
    "forward": lambda fun, x: dg.jacobian(lambda x: dg.delayed(fun)(x), mode="forward")(x),
    "reverse": lambda fun, x: dg.jacobian(lambda x: dg.delayed(fun)(x), mode="reverse")(x),
    "a sum": lambda fun, x: dg.grad(
        lambda x: dg.map_sum(lambda n, x: anp.sum(fun(x * n)), [1.0, 2.0, 3.0], x, grainsize=1)
    )(x),
}


def total(fun):
    return lambda x: dg.delayed(lambda y: anp.sum(anp.sin(y)))(dg.delayed(fun)(x))


@pytest.mark.parametrize("kind", OF_GRAPHS)
@pytest.mark.parametrize("name", VECTORS)
def test_derivatives_of_graphs(name, kind):
    ours, plain, x = VECTORS[name]
    derivative = OF_GRAPHS[kind](ours, x)
    assert_allclose(derivative, OF_GRAPHS[kind](plain, x), rtol=1e-11, atol=1e-14)
    with dask.config.set(scheduler=moving):
        assert_array_equal(OF_GRAPHS[kind](ours, x), derivative)


def test_on_plain_arrays_they_are_the_functions():
    assert_array_equal(solve(MATRIX, RHS), np.linalg.solve(MATRIX, RHS))
    assert solve.__name__ == "solve"
    assert solve.__doc__.startswith("A solver")
    assert repr(solve) == "<custom_vjp solve>"
    assert_array_equal(fixed_point(A, B)["x"], solver(A, B)["x"])
    assert fixed_point.__name__ == "solver"


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


SCRIPT = """
import numpy as np
import daskgrad as dg

@dg.custom_vjp
def cube(x):
    return np.sum(np.asarray(x, dtype=float) ** 3)

def forward(x):
    return cube(x), x

def backward(x, cotangent):
    return (3.0 * x**2 * cotangent,)

cube.defvjp(forward, backward)
root = dg.implicit(lambda t: np.cbrt(t), lambda x, t: x**3 - t)

def objective(x):
    terms = dg.map_sum(lambda item, x: cube(x), [1, 2], x)
    return dg.delayed(cube)(x) + terms + dg.delayed(lambda x: root(x[0]))(x)
"""


def test_rules_of_a_script_reach_a_cluster(client):
    """Also those of lambdas, and of locals of models."""
    script = {"__name__": "__main__"}
    exec(SCRIPT, script)
    gradient = dg.grad(script["objective"])(np.array([8.0, 2.0]))
    assert_allclose(gradient, [9.0 * 64.0 + 1.0 / 12.0, 36.0], rtol=1e-12)
