"""Black boxes: differences as tasks, in sums, in models, and where they are moved."""

import pickle

import autograd
import autograd.numpy as anp
import dask
import numpy as np
import pytest
from autograd.differential_operators import make_jvp
from dask.callbacks import Callback
from dask.sizeof import sizeof
from numpy.testing import assert_allclose, assert_array_equal
from probes import lines, write

import daskgrad as dg
from daskgrad.models.captured import Captured
from daskgrad.rules.differences import Jacobian, Product, pullback_of
from daskgrad.values.vectors import Kind

pytestmark = pytest.mark.usefixtures("synchronous")

X = np.array([0.5, -0.7, 0.9])
METHODS = {"central": 1e-9, "complex-step": 1e-15}


@pytest.fixture(params=METHODS)
def method(request):
    return request.param


@pytest.fixture
def log(tmp_path):
    """A file that models in any process can write lines to."""
    path = tmp_path / "log"
    path.touch()
    return path


def plain(x, pair, count, numpy=np):
    """Pytrees in and out, with leaves that have no derivative among them."""
    return {"a": numpy.sin(x) * pair[0] * count, "n": count, "c": [numpy.exp(pair[1])]}


def smooth(x, pair, count):
    return plain(x, pair, count, anp)


@dg.delayed
def head(value):
    return anp.sum(value["a"] ** 2) * value["c"][0]


def compared(objective, expected, args, method):
    """Value and gradient of both, which agree."""
    argnums = tuple(range(len(args)))
    value, gradients = dg.value_and_grad(objective, argnums)(*args)
    other, others = dg.value_and_grad(expected, argnums)(*args)
    assert value == other
    for found, reference in zip(flat(gradients), flat(others), strict=True):
        assert_allclose(found, reference, rtol=METHODS[method], atol=METHODS[method])


def flat(gradients):
    return dask.core.flatten(list(map(list, gradients)), container=(list, tuple))


# ----------------------------------------------------------------------------------- they are right


def test_differences_agree_with_autograd(method, scheduler):
    box = dg.finite_difference(plain, method)
    compared(
        lambda x, pair: head(box(x, pair, 2)),
        lambda x, pair: head(dg.delayed(smooth)(x, pair, 2)),
        (X, (2.0, 0.3)),
        method,
    )


def test_also_where_the_sizes_of_the_arguments_are_not_known(method):
    """More entries than tasks, and fewer."""
    box = dg.finite_difference(plain, method)
    for x in (np.linspace(0.1, 1.0, 70), X):
        compared(
            lambda x: head(box(dg.delayed(anp.cos)(x), (2.0, 0.3), 2)),
            lambda x: head(dg.delayed(smooth)(dg.delayed(anp.cos)(x), (2.0, 0.3), 2)),
            (x,),
            method,
        )


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


def test_in_a_sum_the_differences_of_a_term_are_in_the_task_of_its_block(method, scheduler):
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


def test_terms_that_are_arrays():
    box = dg.finite_difference(lambda item, x: np.sin(item * x))
    _, pullback = dg.vjp(lambda x: dg.map_sum(box, [1.0, 2.0], x), X)
    assert_allclose(pullback(np.ones(3))[0], np.cos(X) + 2.0 * np.cos(2.0 * X), rtol=1e-9)


def test_over_placed_items(method, client):
    box = dg.finite_difference(lambda item, x: np.sum(np.sin(item * x)), method)
    items = [1.0, 2.0, 3.0, 4.0]
    with dg.place(items) as shards:
        gradient = dg.grad(lambda x: dg.map_sum(box, shards, x))(X)
    assert_array_equal(gradient, dg.grad(lambda x: dg.map_sum(box, items, x))(X))


def test_within_a_model(method):
    box = dg.finite_difference(plain, method)

    def model(x):
        return anp.sum(box(x, (2.0, 0.3), 2)["a"] ** 2)

    compared(
        dg.delayed(model),
        dg.delayed(lambda x: anp.sum(smooth(x, (2.0, 0.3), 2)["a"] ** 2)),
        (X,),
        method,
    )


def test_in_line(method):
    with dask.config.set({"daskgrad.inline.seconds": 60}):
        compared(
            dg.finite_difference(lambda x: np.sum(np.exp(x)), method),
            dg.delayed(lambda x: anp.sum(anp.exp(x))),
            (X,),
            method,
        )


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


def test_the_step_is_relative_to_large_arguments():
    large = 1e8 * np.array([1.0, -2.0])
    assert_allclose(
        dg.grad(dg.finite_difference(lambda x: np.sum(x**2)))(large), 2 * large, rtol=1e-9
    )


def test_so_it_is_in_forward_mode():
    def fun(x, y):
        return np.sin(x) * y

    point, tangents = (X, 1e6 * np.ones(3)), (np.array([1.0, 0.0, 2.0]), np.zeros(3))
    wanted = make_jvp(lambda x: fun(x, point[1]))(X)(tangents[0])[1]
    box = dg.finite_difference(fun)
    assert_allclose(dg.jvp(box, point, tangents)[1], wanted, rtol=1e-9, atol=1e-3)
    single = dg.finite_difference(lambda x: np.sin(x.astype(np.float32)))
    assert_allclose(dg.jvp(single, (X,), (3.0 * X,))[1], 3.0 * X * np.cos(X), atol=2e-4)


def test_a_step_may_be_given():
    cube = dg.finite_difference(lambda x: x**3, step=0.5)
    assert dg.grad(cube)(1.0) == pytest.approx(3.0 + 0.25, rel=1e-12)
    assert dg.grad(cube)(2.0) == pytest.approx(12.0 + 1.0, rel=1e-12)


def test_forward_mode_is_one_directional_difference(method):
    runs = []

    def fun(x, n):
        runs.append(n)
        return {"y": np.sin(x) * n, "n": n}

    box = dg.finite_difference(fun, method).model.fun
    value, tangent = make_jvp(lambda x: box(x, 3)["y"])(X)(3.0 * X)
    assert_allclose(value, 3 * np.sin(X))
    assert_allclose(tangent, 9.0 * X * np.cos(X), rtol=METHODS[method])
    assert len(runs) == 1 + {"central": 2, "complex-step": 1}[method]
    assert_array_equal(make_jvp(lambda x: box(x, 3)["y"])(X)(0.0 * X)[1], np.zeros(3))


def test_forward_mode_of_a_graph(method, log):
    box = dg.finite_difference(logged(log), method)
    value, tangent = dg.jvp(lambda x: box(x, np.ones(2)), (X,), (3.0 * X,))
    assert_allclose(value, 2 * np.sin(X))
    assert_allclose(tangent, 6 * X * np.cos(X), rtol=METHODS[method])
    assert len(lines(log)) == 1 + {"central": 2, "complex-step": 1}[method]
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
    kind = (Kind.of(X + 1j),)
    jacobian = Jacobian(random, kind, kind)
    c, v = np.array([1 + 2j, 3, 4j]), np.array([0.3j, 1.0, -2.0])
    pulled, pushed = [Product(jacobian, "box", transposed) for transposed in (True, False)]
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


@pytest.mark.parametrize(("size", "expected"), [(5, 5), (1000, 64)])
def test_the_tasks_are_one_an_entry_up_to_64(size, expected):
    variable = dg.variable(np.ones(size))
    node = dg.finite_difference(lambda x: np.sum(x))(variable)
    value, gradient = dg.differentiate(node, variable)
    names = [key[0].split("-")[0] for key in gradient.__dask_graph__() if isinstance(key, tuple)]
    assert names.count("forward") == expected + 1, "and one that collects"
    value, gradient = dask.compute(value, gradient)
    assert_allclose(gradient, np.ones(size), rtol=1e-7)


def test_where_the_size_is_not_known_there_are_32_tasks():
    variable = dg.variable(X)
    node = dg.finite_difference(lambda x: np.sum(x))(dg.delayed(anp.sin)(variable))
    _, gradient = dg.differentiate(node, variable)
    keys = [key[0] for key in gradient.__dask_graph__() if isinstance(key, tuple)]
    assert len([key for key in keys if key.startswith("forward-lambda")]) == 32 + 1


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


def test_a_jacobian_is_data_that_moves_and_nothing_is_evaluated_again(log, pool):
    """Dask's process scheduler moves every result."""
    box, total = dg.finite_difference(logged(log)), dg.delayed(anp.sum)
    with dask.config.set(scheduler="processes", pool=pool):
        gradient = dg.grad(lambda x: total(box(x, 2.0 * x)))(X)
    assert_allclose(gradient, 2.0 * np.cos(X) * np.sum(X) + 2.0 * np.sum(np.sin(X)), rtol=1e-8)
    assert len(lines(log)) == 1 + 2 * 6


def test_a_jacobian_tells_its_size():
    value, parts = np.ones(50), [np.ones((50, 25)), np.ones((50, 25)), np.zeros((0, 0))]
    pullback = pullback_of(value, [np.ones(49), 1.0, "text"], parts, "model")
    captured = Captured(value, pullback, ())
    assert 50 * 51 * 8 <= sizeof(captured) < 50 * 51 * 8 + 500
    moved = pickle.loads(pickle.dumps(pullback))
    first, second, third = moved((np.ones(50),))
    assert_array_equal(first, 50.0 * np.ones(49))
    assert (second, third) == (50.0, None)


# ------------------------------------------------------------------------------- what is not right


def test_a_complex_step_needs_a_function_of_complex_numbers(scheduler):
    box = dg.finite_difference(lambda x: np.sum(np.abs(x) ** 2), "complex-step")
    message = (
        r"'<lambda>' cannot take a complex step: for complex arguments it returned real float64\[\]"
    )
    with pytest.raises(TypeError, match=message):
        dg.grad(box)(X)


def test_what_does_not_depend_on_the_arguments_may_be_real():
    box = dg.finite_difference(lambda x: {"y": x**2, "grid": np.arange(3.0)}, "complex-step")
    _, pullback = dg.vjp(box, X)
    assert_allclose(pullback({"y": np.ones(3), "grid": np.ones(3)})[0], 2 * X, rtol=1e-15)
    dropped = dg.finite_difference(lambda x: {"y": x**2, "d": np.diff(x.real)}, "complex-step")
    with pytest.raises(TypeError, match=r"returned real float64\[2\]"):
        dg.vjp(dropped, X)


def test_a_complex_step_is_not_for_complex_arguments():
    box = dg.finite_difference(lambda z: z**2, "complex-step")
    with pytest.raises(TypeError, match=r"with respect to complex complex128\[3\]; use met"):
        dg.vjp(box, X + 1j)


def test_second_derivatives_are_an_error_that_says_so():
    box = dg.finite_difference(lambda x: np.sum(x**3)).model.fun
    assert_allclose(autograd.grad(box)(X), 3 * X**2, rtol=1e-8)
    for second in (autograd.hessian(box), autograd.grad(lambda x: anp.sum(autograd.grad(box)(x)))):
        with pytest.raises(TypeError, match="finite differences have first derivatives only"):
            second(X)


def test_second_derivatives_of_a_graph_are_an_error_that_says_so():
    box = dg.finite_difference(lambda x: np.sum(x**3))
    with pytest.raises(TypeError, match="'<lambda>' has no second derivative"):
        dg.hvp(box, (X,), (X,))


def test_a_value_of_changing_size_is_an_error():
    box = dg.finite_difference(lambda x: x[: 2 + (x[0] > 0.5)])
    with pytest.raises(ValueError, match="has 3 real numbers at displaced arguments, and 2"):
        dg.vjp(box, X)


def test_an_error_of_the_function_names_the_model_and_its_arguments(scheduler):
    def fails(x, limit):
        if x[1] > limit:
            raise OSError("the program failed")
        return np.sum(x)

    box = dg.finite_difference(fails)
    with pytest.raises(OSError, match="the program failed") as error:
        dg.grad(lambda x: box(x, -0.7))(X)
    notes = " ".join(error.value.__notes__)
    assert "in the forward pass of model 'fails', called with (float64[3], -0.7)" in notes


def test_a_name_is_in_keys_notes_and_errors():
    def fails(x):
        raise OSError("the program failed")

    keys = []
    with Callback(pretask=lambda key, *_: keys.append(key[0])):
        dg.grad(dg.finite_difference(lambda x: np.sum(x), name="solver"))(X)
    assert {"value-solver", "forward-solver", "backward-solver"} <= {
        key.rpartition("-")[0] for key in keys
    }
    box = dg.finite_difference(fails, name="solver")
    with pytest.raises(OSError, match="failed") as error:
        dg.grad(box)(X)
    assert "model 'solver'" in " ".join(error.value.__notes__)
    second = dg.finite_difference(lambda x: np.sum(x**3), name="solver")
    for fun in (second, dg.delayed(second)):
        with pytest.raises(TypeError, match="'solver' has no second derivative"):
            dg.hvp(fun, (X,), (X,))


@pytest.mark.parametrize(
    ("args", "error", "message"),
    [
        ((3,), TypeError, r"argument of dg.finite_difference must be a function; found 3"),
        (
            (plain, "forward"),
            ValueError,
            r"method must be one of 'central', 'complex-step'; foun",
        ),
        ((plain, "central", 0.0), ValueError, r"step must be a positive number.*found 0.0"),
        ((plain, "central", "1e-3"), ValueError, r"step must be a positive number.*found '1e-3'"),
        ((plain, "central", np.inf), ValueError, r"step must be a positive number.*found inf"),
    ],
)
def test_bad_arguments(args, error, message):
    with pytest.raises(error, match=message):
        dg.finite_difference(*args)
