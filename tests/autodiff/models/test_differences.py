"""Black boxes: differences as tasks, in sums, in models, and where they are moved."""

import autograd
import autograd.numpy as anp
import dask
import numpy as np
import optree
import pytest
from autograd.differential_operators import make_jvp
from dask.callbacks import Callback
from numpy.testing import assert_allclose, assert_array_equal
from policies import moving
from probes import lines, write

import daskgrad as dg
from daskgrad.autodiff.models.differences import Jacobian, product
from daskgrad.autodiff.values.vectors import NumberKind

pytestmark = pytest.mark.usefixtures("synchronous")

X = np.array([0.5, -0.7, 0.9])
METHODS = {"central": 1e-9, "complex-step": 1e-15}


@pytest.fixture(params=METHODS)
def method(request):
    return request.param


def plain(x, pair, count, numpy=np):
    """Pytrees in and out, with leaves that have no derivative among them."""
    return {"a": numpy.sin(x) * pair[0] * count, "n": count, "c": [numpy.exp(pair[1])]}


def smooth(x, pair, count):
    return plain(x, pair, count, anp)


@dg.delayed
def head(value):
    return anp.sum(value["a"] ** 2) * value["c"][0]


def cosine(x):
    return dg.delayed(anp.cos)(x)


PROGRAMS = {  # by a box of plain, or a model of smooth, and the arguments
    "in a graph": (lambda box: lambda x, pair: head(box(x, pair, 2)), (X, (2.0, 0.3))),
    "sizes that are not known": (lambda box: lambda x: head(box(cosine(x), (2.0, 0.3), 2)), (X,)),
    "more entries than tasks": (
        lambda box: lambda x: head(box(cosine(x), (2.0, 0.3), 2)),
        (np.linspace(0.1, 1.0, 70),),
    ),
    "within a model": (
        lambda box: dg.delayed(lambda x: anp.sum(box.model.fun(x, (2.0, 0.3), 2)["a"] ** 2)),
        (X,),
    ),
    "an integer": (lambda box: lambda x: head(box(x, (2.0, 0.3), 3)) * 2.0, (X,)),
}


@pytest.mark.parametrize("config", [{}, {"scheduler": moving}, {"daskgrad.inline.seconds": 60}])
@pytest.mark.parametrize("name", PROGRAMS)
def test_differences_agree_with_autograd(name, config, method):
    program, args = PROGRAMS[name]
    argnums = tuple(range(len(args)))
    with dask.config.set(config):
        value, gradients = dg.value_and_grad(program(dg.finite_difference(plain, method)), argnums)(
            *args
        )
    other, others = dg.value_and_grad(program(dg.delayed(smooth)), argnums)(*args)
    assert value == other
    pairs = zip(optree.tree_leaves(gradients), optree.tree_leaves(others), strict=True)
    for gradient, right in pairs:
        assert_allclose(gradient, right, rtol=METHODS[method], atol=METHODS[method])


# ----------------------------------------------------------------------------------- they are right


def test_a_box_that_returns_one_number_and_one_whose_value_is_used_twice(method):
    def norm(x):
        return np.sqrt(np.sum(x**2))

    box = dg.finite_difference(norm, method)
    assert_allclose(dg.grad(box)(X), X / norm(X), rtol=METHODS[method])

    def twice(x):
        y = box(x)
        return y * dg.delayed(anp.exp)(y) + 3.0 * y

    expected = (1 + norm(X)) * np.exp(norm(X)) + 3.0
    assert_allclose(dg.grad(twice)(X), expected * X / norm(X), rtol=METHODS[method])


def test_complex_arguments_and_values_follow_autograds_convention():
    box = dg.finite_difference(lambda z: z * np.conj(z) * z + 1j * z.real)
    dg.check_grads(box)(X + 0.3j)
    dg.check_grads(dg.finite_difference(lambda x: np.exp(1j * x)))(X)
    dg.check_grads(dg.finite_difference(lambda z: np.abs(z) ** 2))(X + 0.3j)


def test_in_a_sum_the_differences_of_a_term_are_in_the_task_of_its_block(method):
    def term(item, x):
        return np.sum(np.sin(item * x))

    items, box = [1.0, 2.0, 3.0, 4.0], dg.finite_difference(term, method)
    expected = sum(item * np.cos(item * X) for item in items)
    value, gradient = dg.value_and_grad(lambda x: dg.map_sum(box, items, x, grainsize=2))(X)
    assert value == sum(term(item, X) for item in items)
    assert_allclose(gradient, expected, rtol=METHODS[method], atol=METHODS[method])
    node = dg.map_sum(box, items, dg.variable(X), grainsize=2)
    (wrt,) = node.inputs
    _, found = dg.differentiate(node, wrt)
    assert len(found.__dask_graph__()) < 12


def test_a_value_without_derivative_and_one_that_depends_on_nothing():
    _, pullback = dg.vjp(dg.finite_difference(lambda x: {"n": 3}), X)
    with pytest.warns(UserWarning, match="does not depend on"):
        gradient = pullback({"n": None})[0]
    assert_array_equal(gradient, np.zeros(3))
    assert_array_equal(dg.grad(dg.finite_difference(lambda x: 2.0))(X), np.zeros(3))


# -------------------------------------------------------------------------------------------- steps


def test_the_step_is_that_of_the_coarser_dtype():
    """The errors are of the order of ε^(2/3): 4e-11 for double, 2e-5 for single precision."""

    def double(x):
        return np.sum(np.sin(x))

    def single(x):
        return np.sum(np.sin(x.astype(np.float32)))

    for x, fun in ((X.astype(np.float32), double), (X, single)):
        gradient = dg.grad(dg.finite_difference(fun))(x)
        assert gradient.dtype == x.dtype
        assert_allclose(gradient, np.cos(X), atol=2e-4)
        assert np.max(np.abs(gradient - np.cos(X))) > 1e-9
    assert_allclose(dg.grad(dg.finite_difference(double))(X), np.cos(X), atol=1e-9)


def test_the_step_is_relative_to_large_arguments_or_given():
    large = 1e8 * np.array([1.0, -2.0])
    square = dg.finite_difference(lambda x: np.sum(x**2))
    assert_allclose(dg.grad(square)(large), 2 * large, rtol=1e-9)
    cube = dg.finite_difference(lambda x: x**3, step=0.5)
    assert dg.grad(cube)(1.0) == pytest.approx(3.0 + 0.25, rel=1e-12)
    assert dg.grad(cube)(2.0) == pytest.approx(12.0 + 1.0, rel=1e-12)
    for step in ("1e-3", np.inf):
        with pytest.raises(ValueError, match=f"step must be a positive number.*found {step!r}"):
            dg.finite_difference(plain, "central", step)


def test_the_step_is_that_of_the_argument_that_is_moved_in_forward_mode():
    point, tangents = (X, 1e6 * np.ones(3)), (np.array([1.0, 0.0, 2.0]), np.zeros(3))
    box = dg.finite_difference(lambda x, y: np.sin(x) * y)
    expected = np.cos(X) * tangents[0] * point[1]
    assert_allclose(dg.jvp(box, point, tangents)[1], expected, rtol=1e-9, atol=1e-3)
    single = dg.finite_difference(lambda x: np.sin(x.astype(np.float32)))
    assert_allclose(dg.jvp(single, (X,), (3.0 * X,))[1], 3.0 * X * np.cos(X), atol=2e-4)


def test_forward_mode_is_one_directional_difference(method, log):
    box, count = dg.finite_difference(logged(log), method), {"central": 2, "complex-step": 1}
    for value, tangent in (
        make_jvp(lambda x: box.model.fun(x, np.ones(2)))(X)(3.0 * X),
        dg.jvp(lambda x: box(x, np.ones(2)), (X,), (3.0 * X,)),
    ):
        assert_allclose(value, 2 * np.sin(X))
        assert_allclose(tangent, 6 * X * np.cos(X), rtol=METHODS[method])
    assert len(lines(log)) == 2 * (1 + count[method])
    zero = make_jvp(lambda x: box.model.fun(x, np.ones(2)))(X)(0.0 * X)[1]
    assert_array_equal(zero, np.zeros(3))
    jacobian = dg.jacobian(lambda x: box(x, np.ones(2)), mode="reverse")(X)
    assert_allclose(jacobian, np.diag(2 * np.cos(X)), rtol=METHODS[method], atol=1e-15)


def test_the_gauss_newton_product_of_a_black_box(method):
    """It has first derivatives of the residuals alone, and Jacobians on both sides."""

    def residuals(x, numpy=np):
        return numpy.sin(x) * x[0]

    def loss(r):
        return dg.delayed(lambda r: anp.sum(r**2) + r[0] * r[1])(r)

    box, own = dg.finite_difference(residuals, method), dg.delayed(lambda x: residuals(x, anp))
    direction = np.array([0.3, -1.0, 0.2])
    found = dg.gnvp(box, loss, (X,), (direction,))
    for ours, expected in zip(found, dg.gnvp(own, loss, (X,), (direction,)), strict=True):
        assert_allclose(ours[0], expected[0], rtol=METHODS[method], atol=METHODS[method])


def test_derivatives_with_respect_to_cotangents_and_tangents_are_of_all_orders():
    """Both are linear, and one is the transpose of the other; in complex numbers, too."""
    random = np.random.default_rng(0).normal(size=(6, 6))
    kind = (NumberKind.of(X + 1j),)
    jacobian = Jacobian(random, kind, kind)
    c, v = np.array([1 + 2j, 3, 4j]), np.array([0.3j, 1.0, -2.0])
    pulled, pushed = [product(jacobian, "box", transposed) for transposed in (True, False)]
    dg.check_grads(dg.delayed(lambda c: pulled(c)[0]))(c)
    dg.check_grads(dg.delayed(lambda v: pushed(v)[0]))(v)
    assert np.sum(np.real(c * pushed(v)[0])) == pytest.approx(np.sum(np.real(pulled(c)[0] * v)))


# --------------------------------------------------------------------------------------------- cost


def logged(log):
    def fun(x, y):
        write(log, "ran")
        return np.sin(x) * np.sum(y)

    return fun


def test_only_active_entries_are_displaced_and_the_value_is_computed_once(method, log):
    box = dg.finite_difference(logged(log), method)
    total = dg.delayed(anp.sum)
    dg.grad(lambda x: total(box(x, np.ones(1000))))(X)
    assert len(lines(log)) == 1 + {"central": 2, "complex-step": 1}[method] * 3
    log.write_text("")
    assert box(X, np.ones(2)).compute().shape == (3,)
    assert len(lines(log)) == 1


def forward_tasks(node, variable):
    _, gradient = dg.differentiate(node, variable)
    keys = [key[0] for key in gradient.__dask_graph__() if isinstance(key, tuple)]
    return len([key for key in keys if key.startswith("forward-box")])


def test_the_tasks_are_one_an_entry_up_to_64_and_32_where_the_size_is_not_known():
    box = dg.finite_difference(lambda x: np.sum(x), name="box")
    for size, count in ((5, 5), (1000, 64)):
        variable = dg.variable(np.ones(size))
        assert forward_tasks(box(variable), variable) == count + 1, "and one that collects"
        assert_allclose(dg.grad(box)(np.ones(size)), np.ones(size), rtol=1e-7)
    variable = dg.variable(X)
    assert forward_tasks(box(cosine(variable)), variable) == 32 + 1


def test_consumers_do_not_wait_for_the_differences():
    variable = dg.variable(X)
    node = head(dg.finite_difference(plain)(variable, (2.0, 0.3), 2))
    value, _ = dg.differentiate(node, variable)
    needed = value.__dask_graph__().cull({value.key})
    assert len([key for key in needed if key[0].startswith("forward-plain")]) == 0


def test_annotations_are_those_of_the_call():
    variable = dg.variable(X)
    with dask.annotate(resources={"license": 1}):
        node = dg.finite_difference(lambda x: np.sum(x), "central")(variable)
    _, gradient = dg.differentiate(node, variable)
    (layer,) = gradient.__dask_graph__().layers.values()
    keys = [key for key in layer if key[0].startswith("forward-")]
    assert len(keys) == 4
    assert all(layer.annotations["resources"](key) == {"license": 1} for key in keys)


def test_a_jacobian_is_data_that_moves_and_nothing_is_evaluated_again(log):
    box, total = dg.finite_difference(logged(log)), dg.delayed(anp.sum)
    with dask.config.set(scheduler=moving):
        gradient = dg.grad(lambda x: total(box(x, 2.0 * x)))(X)
    assert_allclose(gradient, 2.0 * np.cos(X) * np.sum(X) + 2.0 * np.sum(np.sin(X)), rtol=1e-8)
    assert len(lines(log)) == 1 + 2 * 6


# ------------------------------------------------------------------------------- what is not right


def test_a_complex_step_needs_a_function_of_complex_numbers_and_real_arguments():
    real = r"'<lambda>' cannot take a complex step: for complex arguments it returned real "
    for fun, x, message in (
        (lambda x: np.sum(np.abs(x) ** 2), X, real + r"float64\[\]"),
        (lambda x: {"y": x**2, "d": np.diff(x.real)}, X, real + r"float64\[2\]"),
        (lambda z: z**2, X + 1j, r"with respect to complex complex128\[3\]; use met"),
    ):
        with pytest.raises(TypeError, match=message):
            dg.vjp(dg.finite_difference(fun, "complex-step"), x)
    box = dg.finite_difference(lambda x: {"y": x**2, "grid": np.arange(3.0)}, "complex-step")
    _, pullback = dg.vjp(box, X)  # what does not depend on the arguments may be real
    assert_allclose(pullback({"y": np.ones(3), "grid": np.ones(3)})[0], 2 * X, rtol=1e-15)


def test_second_derivatives_are_an_error_that_says_so():
    box = dg.finite_difference(lambda x: np.sum(x**3)).model.fun
    assert_allclose(autograd.grad(box)(X), 3 * X**2, rtol=1e-8)
    for second in (autograd.hessian(box), autograd.grad(lambda x: anp.sum(autograd.grad(box)(x)))):
        with pytest.raises(TypeError, match="finite differences have first derivatives only"):
            second(X)


def test_a_name_is_in_keys_notes_and_errors():
    def fails(x, limit):
        if x[1] > limit:
            raise OSError("the program failed")
        return np.sum(x)

    keys = []
    with Callback(pretask=lambda key, *_: keys.append(key[0].rpartition("-")[0])):
        dg.grad(dg.finite_difference(lambda x: np.sum(x), name="solver"))(X)
    assert {"value-solver", "forward-solver", "backward-solver"} <= set(keys)
    for options, name in (({}, "fails"), ({"name": "solver"}, "solver")):
        box = dg.finite_difference(fails, **options)
        with pytest.raises(OSError, match="the program failed") as error:
            dg.grad(lambda x, box=box: box(x, -0.7))(X)
        notes = " ".join(error.value.__notes__)
        assert f"in the forward pass of model '{name}', called with (float64[3], -0.7)" in notes
    second = dg.finite_difference(lambda x: np.sum(x**3), name="solver")
    for fun in (second, dg.delayed(second)):
        with pytest.raises(TypeError, match="'solver' has no second derivative"):
            dg.hvp(fun, (X,), (X,))
