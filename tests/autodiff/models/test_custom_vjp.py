"""Functions with rules of their own: what they are told, what they cost, and what is an error."""

import weakref

import autograd
import autograd.numpy as anp
import numpy as np
import probes
import pytest
from autograd.differential_operators import make_jvp
from numpy.testing import assert_allclose, assert_array_equal
from solvers import MATRIX, RHS, solve

import daskgrad as dg
from daskgrad.autodiff.models.custom_vjp import custom_vjp
from daskgrad.autodiff.models.pullbacks import capture
from daskgrad.autodiff.models.tracing import Active
from daskgrad.autodiff.tape.pickling import dumps, loads

pytestmark = pytest.mark.usefixtures("synchronous")


def test_containers_in_boxes_of_autograd():
    whole = dg.custom_vjp(lambda p: p["a"] * p["b"][0])
    whole.defvjp(lambda p: (whole(p), p), lambda p, g: ({"a": g * p["b"][0], "b": [g * p["a"]]},))
    gradient = autograd.grad(lambda p: anp.sum(whole(p)))({"a": RHS, "b": [2.0 * RHS]})
    assert_array_equal(gradient["a"], 2.0 * RHS)
    assert_array_equal(gradient["b"][0], RHS)
    part = dg.custom_vjp(lambda p: p["a"] * p["n"])
    part.defvjp(lambda p: (part(p), None), lambda _, g: ({"a": 3.0 * g, "n": None},))
    gradient = autograd.grad(lambda p: anp.sum(part({**p, "n": 3})))({"a": RHS})
    assert_array_equal(gradient["a"], 3.0 * np.ones(3))


def test_complex_numbers_follow_autograds_convention_and_single_precision_stays():
    square, x = custom_vjp(lambda z: z * z), RHS.astype(np.float32)
    square.defvjp(lambda z: (square(z), z), lambda z, g: (2.0 * z * g.astype(complex),))
    dg.check_grads(dg.delayed(square), modes=["reverse"])(RHS + 1j)
    twice = custom_vjp(lambda x: 2 * x)
    twice.defvjp(lambda x: (twice(x), None), lambda _, g: (2.0 * g.astype(np.float64),))
    assert dg.grad(dg.delayed(lambda x: anp.sum(twice(x))))(x).dtype == np.float32


def test_the_function_itself_in_a_sum():
    items = [MATRIX * (1.0 + 0.1 * number) for number in range(6)]
    weighted = dg.custom_vjp(lambda matrix, rhs: np.sum(np.linalg.solve(matrix, rhs) ** 2))
    weighted.defvjp(
        lambda matrix, rhs: (weighted(matrix, rhs), (matrix, np.linalg.solve(matrix, rhs))),
        lambda kept, g: (None, 2.0 * g * np.linalg.solve(kept[0].T, kept[1])),
    )
    gradient = dg.grad(lambda rhs: dg.map_sum(weighted, items, rhs, grainsize=2))(RHS)
    terms = autograd.grad(lambda r: sum(anp.sum(anp.linalg.solve(m, r) ** 2) for m in items))
    assert_allclose(gradient, terms(RHS), rtol=1e-12)


# ------------------------------------------------------------------------------------- as models


def test_a_function_of_a_module_is_sent_by_name_only_with_its_rules():
    assert loads(dumps(solve)) is solve
    assert loads(dumps(probes.ruled)) is not probes.ruled, "its rules are of another module"
    assert autograd.grad(loads(dumps(probes.ruled)))(2.0) == 7.0


probes.ruled.defvjp(lambda x: (probes.ruled(x), None), lambda _, g: (7.0 * g,))


# ------------------------------------------------------------------------------------------- cost


def test_forward_runs_once_and_only_where_it_is_differentiated():
    runs = []
    square = dg.custom_vjp(lambda x: runs.append("function") or x * x)
    square.defvjp(
        lambda x: runs.append("forward") or (x * x, x),
        lambda x, g: runs.append("backward") or (2.0 * x * g,),
    )
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
    def sine(factor):
        fun = dg.custom_vjp(lambda x: np.sin(x))
        fun.defvjp(lambda x: (np.sin(x), x), lambda x, g: (factor * np.cos(x) * g,))
        return dg.delayed(fun, name="sine")

    dg.check_grads(sine(1.0), modes=["reverse"])(RHS)
    with pytest.raises(AssertionError, match="the pullback of 'sine' is wrong for argument 0"):
        dg.check_grads(sine(1.001), modes=["reverse"])(RHS)
    with pytest.raises(NotImplementedError, match="has no rule for a derivative in forw") as caught:
        dg.check_grads(sine(1.0))(RHS)
    assert any("modes=('reverse',)" in note for note in caught.value.__notes__)


def product():
    """(a, b, n) ↦ a b n, without rules."""

    @dg.custom_vjp
    def product(a, b, n):
        return a * b * n

    return product


def gradient(fun):
    return dg.grad(dg.delayed(lambda a, b: anp.sum(fun(a, b, 2))), (0, 1))(RHS, RHS)


def pushed(fun):
    return make_jvp(lambda a: fun(a, RHS, 2))(RHS)(RHS)


def test_each_mode_names_the_rule_that_it_misses():
    neither, forward_only, reverse_only = product(), product(), product()
    forward_only.defjvp(lambda p, t: (p[0] * p[1] * 2, (t[0] * p[1] + p[0] * t[1]) * 2))
    reverse_only.defvjp(lambda a, b, n: (a * b * n, 0), lambda kept, g: (g, g, None))
    for ask, message in (
        (lambda: gradient(neither), r"a derivative; .*product.defvjp\(forw"),
        (lambda: gradient(forward_only), r".* reverse mode; .*product.defvjp\(for"),
        (lambda: pushed(reverse_only), r".* forward mode.*defjvp\(jvp\)"),
    ):
        with pytest.raises(NotImplementedError, match=f"'product' has no rule for {message}"):
            ask()
    assert_array_equal(pushed(forward_only)[1], 2 * RHS**2)
    assert_array_equal(neither(RHS, RHS, 2), 2 * RHS**2)


WRONG = {  # what forward, backward and jvp return; the other wrong ones are among the bad input
    "too few": (lambda g: (g, g), ValueError, "returned 2 cotangents for 3 positional arguments"),
    "a structure": (
        lambda g: ({"a": g}, g, None),
        ValueError,
        r"'a' of 'product'.*structure.*found {",
    ),
    "for an integer": (lambda g: (g, g, 1.0), TypeError, "'n' of 'product': 2 has no derivative"),
}


@pytest.mark.parametrize("kind", WRONG)
def test_what_backward_returns_is_checked(kind):
    returned, error, message = WRONG[kind]
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


def test_what_a_jvp_function_returns_is_checked():
    fun = product()
    fun.defjvp(lambda p, t: t[0])
    with pytest.raises(TypeError, match=r"jvp function of 'product' must return a pair \(value"):
        pushed(fun)
    fun.defjvp(lambda p, t: (p[0], [t[0]]))
    with pytest.raises(ValueError, match=r"tangent of the value of 'product': expected the struct"):
        pushed(fun)


def test_differentiated_values_are_positional_arguments():
    fun = product()
    with pytest.raises(TypeError, match=r"keyword argument 'b' of 'product' is differentiated"):
        autograd.grad(lambda b: anp.sum(fun(RHS, b=b, n=2)))(RHS)

    def objective(x):
        inner = dg.custom_vjp(lambda y: x * y)
        inner.defvjp(lambda y: (x * y, None), lambda kept, g: (x * g,))
        return anp.sum(inner(2.0 * x))

    with pytest.raises(TypeError, match="depends on a differentiated value that is not an arg"):
        autograd.grad(objective)(RHS)
    with pytest.raises(TypeError, match=r"'product' was called on Variable.*with dg.delayed"):
        fun(dg.variable(RHS), RHS, 2)


def test_errors_of_the_users_functions_keep_their_type():
    fun = product()

    def forward(a, b, n):
        raise TypeError("an argument that nobody expects")

    fun.defvjp(forward, lambda kept, g: (g, g, None))
    with pytest.raises(TypeError, match=r"^an argument that nobody expects"):
        gradient(fun)


class Solver:
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
