"""Functions with rules of their own: right in every mode and nesting, everywhere, or an error."""

import os
import pathlib
import pickle
import subprocess
import sys
import weakref

import autograd
import autograd.numpy as anp
import numpy as np
import probes
import pytest
from autograd.differential_operators import make_jvp
from numpy.testing import assert_allclose, assert_array_equal
from policies import Never, captured_under

import daskgrad as dg
from daskgrad.backends.autograd.pickling import dumps, loads
from daskgrad.models.pullbacks import capture
from daskgrad.models.tracing import Active
from daskgrad.rules.custom_vjp import custom_vjp

pytestmark = pytest.mark.usefixtures("synchronous")

MATRIX = 4.0 * np.eye(3) + np.arange(9.0).reshape(3, 3) / 9.0
RHS = np.array([1.0, -2.0, 0.5])


@dg.custom_vjp
def solve(matrix, rhs):
    """A solver that autograd cannot trace, as NumPy's own is."""
    return np.linalg.solve(matrix, rhs)


def solve_forward(matrix, rhs):
    x = solve(matrix, rhs)
    return x, (matrix, x)


def solve_backward(residuals, cotangent):
    matrix, x = residuals
    w = solve(matrix.T, cotangent)
    return -anp.outer(w, x), w


def solve_jvp(primals, tangents):
    x = solve(*primals)
    return x, solve(primals[0], tangents[1] - anp.dot(tangents[0], x))


solve.defvjp(solve_forward, solve_backward)
solve.defjvp(solve_jvp)


def ours(matrix, rhs):
    return anp.sum(anp.sin(solve(matrix, rhs)))


def autograds(matrix, rhs):
    return anp.sum(anp.sin(anp.linalg.solve(matrix, rhs)))


# --------------------------------------------------------------------------- in traces of autograd


def test_on_plain_arrays_it_is_the_function():
    assert_array_equal(solve(MATRIX, RHS), np.linalg.solve(MATRIX, RHS))
    assert solve.__name__ == "solve"
    assert solve.__doc__.startswith("A solver")
    assert repr(solve) == "<custom_vjp solve>"


@pytest.mark.parametrize("argnum", [0, 1])
def test_derivatives_nest(argnum):
    args = MATRIX, RHS
    for of in (autograd.grad, autograd.hessian):
        assert_allclose(of(ours, argnum)(*args), of(autograds, argnum)(*args), rtol=1e-12)
    mixed = autograd.jacobian(autograd.grad(ours, 0), argnum)(*args)
    assert_allclose(
        mixed, autograd.jacobian(autograd.grad(autograds, 0), argnum)(*args), rtol=1e-11
    )


def test_forward_mode_and_reverse_over_forward():
    direction = np.array([0.3, 0.1, -1.0])

    def slope(matrix):
        return make_jvp(lambda rhs: ours(matrix, rhs))(RHS)(direction)[1]

    gradient = autograd.grad(autograds, 1)
    assert_allclose(slope(MATRIX), gradient(MATRIX, RHS) @ direction, rtol=1e-12)
    expected = autograd.grad(lambda matrix: anp.dot(gradient(matrix, RHS), direction))(MATRIX)
    assert_allclose(autograd.grad(slope)(MATRIX), expected, rtol=1e-11)


def test_forward_over_forward():
    def curve(t):
        return ours(MATRIX * t, RHS * t**2)

    second = make_jvp(lambda t: make_jvp(curve)(t)(1.0)[1])(1.3)(1.0)[1]
    flat = autograd.grad(autograd.grad(lambda t: autograds(MATRIX * t, RHS * t**2)))(1.3)
    assert_allclose(second, flat, rtol=1e-11)


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

PARAMETERS = {"x": np.array([0.3, 0.7]), "y": 2.0, "n": 3}


def of_mixed(fun):
    def objective(x, y):
        value = fun({"x": x, "y": y, "n": 3}, 2, "label", scale=1.5)
        assert value["rest"][1:] == [2, "label"]
        return anp.sum(value["first"] ** 2) * value["rest"][0] + anp.sum(value["first"])

    return objective


@pytest.mark.parametrize("argnum", [0, 1])
def test_pytrees_keyword_arguments_and_leaves_without_derivative(argnum):
    args = PARAMETERS["x"], PARAMETERS["y"]
    for of in (autograd.grad, autograd.hessian):
        expected = of(of_mixed(mixed.fun), argnum)(*args)
        assert_allclose(of(of_mixed(mixed), argnum)(*args), expected, rtol=1e-12)
    slope = make_jvp(lambda x: of_mixed(mixed)(x, 2.0))(PARAMETERS["x"])(np.ones(2))[1]
    assert_allclose(slope, np.sum(autograd.grad(of_mixed(mixed))(*args)), rtol=1e-12)


def test_containers_in_boxes_of_autograd():
    def objective(fun):
        return lambda p: anp.sum(fun({**p, "n": 3}, 2, "label")["first"]) * p["y"]

    def nested(fun):
        return lambda p: anp.sum(fun(p["a"][0], p["a"][1]))

    p = {"x": PARAMETERS["x"], "y": 2.0}
    found, expected = [autograd.grad(objective(f))(p) for f in (mixed, mixed.fun)]
    assert_allclose(found["x"], expected["x"])
    assert_allclose(found["y"], expected["y"])
    whole = custom_vjp(lambda p: p["a"] * p["b"][0])
    whole.defvjp(lambda p: (whole(p), p), lambda p, g: ({"a": g * p["b"][0], "b": [g * p["a"]]},))
    found = autograd.grad(lambda p: anp.sum(whole(p)))({"a": RHS, "b": [2.0 * RHS]})
    assert_array_equal(found["a"], 2.0 * RHS)
    assert_array_equal(found["b"][0], RHS)


def test_complex_numbers_follow_autograds_convention():
    square = custom_vjp(lambda z: z * z)
    square.defvjp(lambda z: (square(z), z), lambda z, g: (2.0 * z * g,))
    dg.check_grads(dg.delayed(square), modes=["reverse"])(RHS + 1j)


def test_single_precision_stays():
    x = RHS.astype(np.float32)
    twice = custom_vjp(lambda x: 2 * x)
    twice.defvjp(lambda x: (twice(x), None), lambda _, g: (2.0 * g.astype(np.float64),))
    assert dg.grad(dg.delayed(lambda x: anp.sum(twice(x))))(x).dtype == np.float32


# ------------------------------------------------------------------------------------- as models


def test_a_model_with_rules_on_every_scheduler(every_scheduler):
    def objective(matrix, rhs):
        return dg.delayed(anp.sum)(dg.delayed(solve)(matrix, rhs)) + dg.delayed(ours)(matrix, rhs)

    expected = autograd.grad(lambda m, r: anp.sum(anp.linalg.solve(m, r)) + autograds(m, r))
    results = every_scheduler(lambda: dg.value_and_grad(objective, (0, 1))(MATRIX, RHS))
    for value, (first, second) in results.values():
        assert value == results["sync"][0]
        assert_array_equal(first, results["sync"][1][0])
        assert_array_equal(second, results["sync"][1][1])
    assert_allclose(results["sync"][1][0], expected(MATRIX, RHS), rtol=1e-12)


def test_all_derivatives_of_a_graph(scheduler):
    """Forward mode, reverse over forward, and Jacobians in both modes."""
    vector, direction = np.array([0.3, 0.1, -1.0]), np.array([1.0, 0.5, -0.2])

    def program(solved):
        return lambda rhs: dg.delayed(lambda x: anp.sum(anp.sin(x)))(solved(MATRIX, rhs))

    own, reference = dg.delayed(solve), dg.delayed(anp.linalg.solve)
    for derivative in (
        lambda solved: dg.jvp(program(solved), (vector,), (direction,))[1],
        lambda solved: dg.hvp(program(solved), (vector,), (direction,))[1][0],
        lambda solved: dg.hessian(program(solved))(vector),
        lambda solved: dg.jacobian(lambda rhs: solved(MATRIX, rhs), mode="forward")(vector),
        lambda solved: dg.jacobian(lambda rhs: solved(MATRIX, rhs), mode="reverse")(vector),
    ):
        assert_allclose(derivative(own), derivative(reference), rtol=1e-11, atol=1e-15)


def test_rules_of_locals_and_lambdas_are_sent_along(scheduler):
    cube = dg.custom_vjp(lambda x: x**3)
    cube.defvjp(lambda x: (cube(x), x), lambda x, g: (3.0 * x**2 * g,))
    items = [1.0, 2.0, 3.0]

    def model(item, x):
        return np.sum(item) * anp.sum(cube(x))

    assert_allclose(dg.grad(lambda x: dg.map_sum(model, items, x))(RHS), 18.0 * RHS**2)


def test_the_function_itself_in_a_sum(scheduler):
    items = [MATRIX * (1.0 + 0.1 * number) for number in range(6)]
    weighted = dg.custom_vjp(lambda matrix, rhs: np.sum(np.linalg.solve(matrix, rhs) ** 2))
    weighted.defvjp(
        lambda matrix, rhs: (weighted(matrix, rhs), (matrix, np.linalg.solve(matrix, rhs))),
        lambda kept, g: (None, 2.0 * g * np.linalg.solve(kept[0].T, kept[1])),
    )
    found = dg.grad(lambda rhs: dg.map_sum(weighted, items, rhs, grainsize=2))(RHS)
    terms = autograd.grad(lambda r: sum(anp.sum(anp.linalg.solve(m, r) ** 2) for m in items))
    assert_allclose(found, terms(RHS), rtol=1e-12)


def test_a_pullback_that_moved_is_traced_again():
    fresh = dg.custom_vjp(lambda x: np.sin(x))
    fresh.defvjp(lambda x: (fresh(x), x), lambda x, g: (np.cos(x) * g,))
    captured = captured_under(Never(), fresh, RHS)
    assert pickle.loads(pickle.dumps(captured)).pullback.is_empty
    again = loads(dumps(fresh))
    assert_array_equal(autograd.grad(lambda x: anp.sum(again(x)))(RHS), np.cos(RHS))


SCRIPT = """
import numpy as np
from distributed import Client, LocalCluster
import daskgrad as dg

@dg.custom_vjp
def cube(x):
    return np.sum(np.asarray(x, dtype=float) ** 3)

def forward(x):
    return cube(x), x

def backward(x, cotangent):
    return (3.0 * x**2 * cotangent,)

cube.defvjp(forward, backward)

if __name__ == "__main__":
    own = {"host": "127.0.0.1", "dashboard_address": "127.0.0.1:0"}
    with LocalCluster(1, threads_per_worker=1, **own) as cluster, Client(cluster):
        def objective(x):
            return dg.delayed(cube)(x) + dg.map_sum(lambda item, x: cube(x), [1, 2], x)

        print(*dg.grad(objective)(np.array([1.0, 2.0])))
"""


def test_rules_of_a_script_reach_a_cluster(tmp_path):
    path = tmp_path / "script.py"
    path.write_text(SCRIPT)
    root = str(pathlib.Path(dg.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, str(path)],
        env={**os.environ, "PYTHONPATH": root},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["9.0", "36.0"]


def test_a_function_of_a_module_is_sent_by_name_only_with_its_rules():
    assert loads(dumps(solve)) is solve
    assert loads(dumps(probes.ruled)) is not probes.ruled, "its rules are of another module"
    slope = autograd.grad(loads(dumps(probes.ruled)))(2.0)
    assert slope == 7.0


probes.ruled.defvjp(lambda x: (probes.ruled(x), None), lambda _, g: (7.0 * g,))


# ------------------------------------------------------------------------------------------- cost


def counted():
    """x ↦ x², and how often the function and its rules ran."""
    runs = []

    @dg.custom_vjp
    def square(x):
        runs.append("function")
        return x * x

    def forward(x):
        runs.append("forward")
        return x * x, x

    def backward(x, cotangent):
        runs.append("backward")
        return (2.0 * x * cotangent,)

    square.defvjp(forward, backward)
    return square, runs


def test_forward_runs_once_and_only_where_it_is_differentiated():
    square, runs = counted()
    model = dg.delayed(square)
    assert dg.value_and_grad(model)(3.0) == (9.0, 6.0)
    assert runs == ["forward", "backward"]
    runs.clear()
    assert model(3.0).compute() == 9.0
    assert dg.delayed(lambda x: 0.0 * x + square(2.0))(1.0).compute() == 4.0
    assert runs == ["function", "function"]


def test_dask_is_told_of_residuals():
    keep = dg.custom_vjp(lambda x: x)
    keep.defvjp(lambda x: (x, {"kept": np.ones(100_000)}), lambda kept, g: (g,))
    node = dg.delayed(keep)(dg.variable(RHS))
    captured = capture(node.model, node.call, (Active(0, watched=False),), [RHS])
    assert 8e5 < captured.__sizeof__() < 8.1e5


def test_arguments_are_kept_only_as_residuals():
    seen = []

    def forward(x):
        seen.append(weakref.ref(x))
        return np.sum(x), x.shape

    total = dg.custom_vjp(np.sum)
    total.defvjp(forward, lambda shape, g: (g * np.ones(shape),))
    node = dg.delayed(lambda x: total(anp.exp(anp.sin(x))[:2] + x[:2]))(dg.variable(RHS))
    captured = capture(node.model._replace(keep="tape"), node.call, (Active(0, False),), [RHS])
    assert seen[0]() is None
    assert not captured.pullback.is_empty


# ------------------------------------------------------------------------------- what is not right


def test_a_rule_that_is_off_by_a_thousandth_is_caught():
    wrong = dg.custom_vjp(lambda x: np.sin(x))
    wrong.defvjp(lambda x: (wrong(x), x), lambda x, g: (1.001 * np.cos(x) * g,))
    with pytest.raises(AssertionError, match="the pullback of 'wrong' is wrong for argument 0"):
        dg.check_grads(dg.delayed(wrong, name="wrong"), modes=["reverse"])(RHS)
    right = dg.custom_vjp(lambda x: np.sin(x))
    right.defvjp(lambda x: (right(x), x), lambda x, g: (np.cos(x) * g,))
    dg.check_grads(dg.delayed(right), modes=["reverse"])(RHS)
    with pytest.raises(
        NotImplementedError, match="has no rule for a derivative in forward mode"
    ) as caught:
        dg.check_grads(dg.delayed(right))(RHS)
    assert any("modes=('reverse',)" in note for note in caught.value.__notes__)


def product():
    """(a, b, n) ↦ a b n, without rules."""

    @dg.custom_vjp
    def product(a, b, n):
        return a * b * n

    return product


def gradient(fun):
    return dg.grad(dg.delayed(lambda a, b: anp.sum(fun(a, b, 2))), (0, 1))(RHS, RHS)


def test_without_rules_a_derivative_is_an_error_that_names_them():
    with pytest.raises(
        NotImplementedError, match=r"'product' has no rule for a derivative; .*product.defvjp\(forw"
    ):
        gradient(product())
    assert_array_equal(product()(RHS, RHS, 2), 2 * RHS**2)


def test_each_mode_names_the_rule_that_it_misses():
    forward_only, reverse_only = product(), product()
    forward_only.defjvp(lambda p, t: (p[0] * p[1] * 2, (t[0] * p[1] + p[0] * t[1]) * 2))
    reverse_only.defvjp(lambda a, b, n: (a * b * n, 0), lambda kept, g: (g, g, None))
    with pytest.raises(
        NotImplementedError,
        match=r"'product' has no rule for .* reverse mode; .*product.defvjp\(for",
    ):
        gradient(forward_only)
    with pytest.raises(
        NotImplementedError, match=r"'product' has no rule for .* forward mode.*defjvp\(jvp\)"
    ):
        make_jvp(lambda a: reverse_only(a, RHS, 2))(RHS)(RHS)
    assert_array_equal(make_jvp(lambda a: forward_only(a, RHS, 2))(RHS)(RHS)[1], 2 * RHS**2)


WRONG_RULES = {
    "one array": (
        lambda g: g,
        TypeError,
        r"must return a tuple .* each of 3 .*; found float64\[3\]",
    ),
    "two of three": (
        lambda g: (g, g),
        ValueError,
        "returned 2 cotangents for 3 positional arguments",
    ),
    "a shape": (lambda g: (g, g[:2], None), ValueError, r"'b' of 'product': expected shape \(3,\)"),
    "a structure": (
        lambda g: ({"a": g}, g, None),
        ValueError,
        r"'a' of 'product'.*structure.*found {",
    ),
    "for an integer": (lambda g: (g, g, 1.0), TypeError, "'n' of 'product': 2 has no derivative"),
    "complex": (lambda g: (g, 1j * g, None), TypeError, "'b' of 'product': expected dtype float64"),
}


@pytest.mark.parametrize("kind", WRONG_RULES)
def test_what_backward_returns_is_checked(kind):
    returned, error, message = WRONG_RULES[kind]
    fun = product()
    fun.defvjp(lambda a, b, n: (a * b * n, None), lambda kept, g: returned(g))
    with pytest.raises(error, match=message):
        gradient(fun)


def test_none_is_a_zero_cotangent():
    fun = product()
    fun.defvjp(lambda a, b, n: (a * b * n, b * n), lambda kept, g: (kept * g, None, None))
    first, second = gradient(fun)
    assert_array_equal(first, 2 * RHS)
    assert_array_equal(second, np.zeros(3))


def test_what_forward_and_jvp_return_is_checked():
    fun = product()
    fun.defvjp(lambda a, b, n: a * b * n, lambda kept, g: (g, g, None))
    with pytest.raises(
        TypeError, match=r"forward function of 'product' must return a pair \(value"
    ):
        gradient(fun)
    fun = product()
    fun.defjvp(lambda p, t: t[0])
    with pytest.raises(TypeError, match=r"jvp function of 'product' must return a pair \(value"):
        make_jvp(lambda a: fun(a, RHS, 2))(RHS)(RHS)


def test_a_tangent_has_the_structure_of_the_value():
    fun = product()
    fun.defjvp(lambda p, t: (p[0], [t[0]]))
    with pytest.raises(ValueError, match=r"tangent of the value of 'product': expected the struct"):
        make_jvp(lambda a: fun(a, RHS, 2))(RHS)(RHS)


def test_a_differentiated_keyword_argument_is_an_error():
    with pytest.raises(TypeError, match=r"keyword argument 'rhs' of 'solve' is differentiated"):
        autograd.grad(lambda r: anp.sum(solve(MATRIX, rhs=r)))(RHS)


def test_a_differentiated_value_in_a_closure_is_an_error():
    def objective(x):
        inner = dg.custom_vjp(lambda y: x * y)
        inner.defvjp(lambda y: (x * y, None), lambda kept, g: (x * g,))
        return anp.sum(inner(2.0 * x))

    with pytest.raises(TypeError, match="depends on a differentiated value that is not an arg"):
        autograd.grad(objective)(RHS)


def test_errors_of_the_users_functions_keep_their_type():
    fun = product()

    def forward(a, b, n):
        raise TypeError("an argument that nobody expects")

    fun.defvjp(forward, lambda kept, g: (g, g, None))
    with pytest.raises(TypeError, match=r"^an argument that nobody expects"):
        gradient(fun)


def test_a_subclass_of_arrays_is_an_error_that_says_how_to_convert_it():
    fun = dg.custom_vjp(lambda x: x)
    fun.defvjp(lambda x: (np.ma.masked_array(x), None), lambda kept, g: (g,))
    with pytest.raises(TypeError, match=r"returned a MaskedArray, .*convert it with np.asarray"):
        dg.vjp(dg.delayed(fun), RHS)


class Solver:
    """A callable that has a model, which is none of ours."""

    model = "an ellipse"

    def __call__(self, x):
        return 2.0 * x


def test_objects_are_functions_too():
    fun = dg.custom_vjp(Solver())
    fun.defvjp(lambda x: (fun(x), None), lambda kept, g: (2.0 * g,))
    assert fun.name == "Solver"
    assert_array_equal(
        autograd.grad(lambda x: anp.sum(loads(dumps(fun))(x)))(RHS), 2.0 * np.ones(3)
    )


def test_only_plain_functions_are_decorated_and_only_arrays_passed():
    with pytest.raises(TypeError, match=r"argument of dg.custom_vjp must be a function; found 3"):
        dg.custom_vjp(3)
    with pytest.raises(TypeError, match=r"plain function; found <model sum>; apply dg.delayed to"):
        dg.custom_vjp(dg.delayed(anp.sum, name="sum"))
    with pytest.raises(TypeError, match=r"'solve' was called on Variable.*with dg.delayed"):
        solve(MATRIX, dg.variable(RHS))
    with pytest.raises(TypeError, match=r"defvjp of 'product' must be functions; found None"):
        product().defvjp(lambda *args: None, None)
