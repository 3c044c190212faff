"""What is no output, no argument and no cotangent of a derivative is an error that says so."""

import autograd.numpy as anp
import dask
import numpy as np
import pytest
from inputs import C, Unregistered, X, double, energy, named
from numpy.testing import assert_allclose, assert_array_equal

import daskgrad as dg

pytestmark = pytest.mark.usefixtures("synchronous")

# ------------------------------------------------------------------- what is no real number


NOT_REAL_NUMBERS = {
    "an array": (lambda x: 2.0 * x, r"float64\[3\]"),
    "one entry": (lambda x: x[:1], r"float64\[1\]"),
    "an integer": (lambda x: 3, "its value is 3"),
    "a complex number": (lambda x: 1j * anp.sum(x), r"complex128\[\]"),
    "a dict": (lambda x: {"a": anp.sum(x)}, "'a': float64"),
    "multiplied by i": (lambda x: energy(x) * 1j, r"complex128\[\]"),
    "a sum of arrays": (lambda x: dg.sum([double(x), x]), r"float64\[3\]"),
    "the variable": (lambda x: x, r"float64\[3\]"),
    "twice the variable": (lambda x: dg.sum([x, x]), r"float64\[3\]"),
    "terms": (lambda x: dg.map_sum(lambda a, x: a * x, [1.0, 2.0], x), r"float64\[3\]"),
}
OF_NODES = list(NOT_REAL_NUMBERS)[5:]


@pytest.mark.parametrize("kind", NOT_REAL_NUMBERS)
def test_a_gradient_needs_one_real_number(kind):
    fun, found = NOT_REAL_NUMBERS[kind]
    whole = fun if kind in OF_NODES else dg.delayed(fun, name="model")
    model = "" if kind in OF_NODES else "gradient of 'model' was asked for.*"
    with pytest.raises(TypeError, match=f"{model}{found}.*use vjp"):
        dg.grad(lambda x: whole(x))(X)
    v = dg.variable(X)
    if kind in OF_NODES:
        with pytest.raises(TypeError, match=f"{found}.*use vjp"):
            dask.compute(dg.differentiate(whole(v), v))


@pytest.mark.parametrize(
    ("output", "found"),
    [
        (None, "None"),
        ("text", "'text'"),
        (np.ones(3), r"float64\[3\]"),
        (True, "True"),
        (2j, "2j"),
        (object(), "object"),
        (dask.delayed(1.0), "Delayed"),
    ],
)
def test_a_function_must_return_a_node(output, found):
    with pytest.raises(TypeError, match=f"'objective' must return a node.*found {found}"):
        dg.grad(named(lambda x: output, "objective"))(X)
    with pytest.raises(TypeError, match=f"'objective' must return a node or a pytree.*{found}"):
        dg.vjp(named(lambda x: output, "objective"), X)


def test_a_list_of_nodes_is_no_output_of_a_gradient_and_has_aux_needs_a_pair():
    with pytest.raises(TypeError, match=r"found list\(CallNode\): add the nodes up, or use vjp"):
        dg.grad(lambda x: [energy(x)])(X)
    for output in (lambda x: energy(x), lambda x: [energy(x), 1], lambda x: (energy(x), 1, 2)):
        with pytest.raises(TypeError, match=r"must return a pair .*has_aux=True; found"):
            dg.value_and_grad(output, has_aux=True)(X)


# --------------------------------------------------------------- what the output does not use


def test_an_argument_that_is_not_used_gets_zeros_and_a_warning_that_names_it():
    parameters = {"w": X, "n": 3, "name": "text", "b": [1.0, 2]}
    derivative = dg.value_and_grad(named(lambda x, parameters: energy(x), "loss"), argnums=(0, 1))
    ignores = dg.delayed(lambda x, y: anp.sum(x), name="model")
    with pytest.warns(UserWarning, match="does not depend on 'y'"):
        assert_array_equal(dg.grad(ignores, argnums=1)(X, X), np.zeros(3))
    with pytest.warns(UserWarning, match="output of 'loss' does not depend on 'parameters'"):
        value, (first, second) = derivative(X, parameters)
    assert_allclose(value, np.sum(X**2))
    assert_allclose(first, 2 * X)
    assert_array_equal(second["w"], np.zeros(3))
    assert second["n"] is None
    assert second["name"] is None
    assert second["b"] == [0.0, None]


# --------------------------------------------------------------------------- what models return


RETURNED = {
    "None": (lambda x: None, "None"),
    "a string": (lambda x: "text", "'text'"),
    "a generator": (lambda x: (v for v in x), "generator"),
    "an unregistered dataclass": (lambda x: Unregistered(1.0), "Unregistered"),
    "a node": (lambda x: double(x), "CallNode; .*inside a model, call the plain function"),
    "nodes": (lambda x: [double(2.0)], "CallNode; .*inside a model, call the plain function"),
}


@pytest.mark.parametrize("kind", RETURNED)
@pytest.mark.parametrize("keep", ["auto", "recompute"])
def test_a_model_returns_numbers(kind, keep):
    fun, found = RETURNED[kind]
    found, _, told = found.partition("; ")
    model = dg.delayed(fun, name="model", keep=keep)
    with pytest.raises(TypeError, match=f"model 'model' returned {found}; expected.*{told}"):
        dg.grad(model)(X)
    with pytest.raises(TypeError, match=f"model 'model' returned {found}; expected.*{told}"):
        dg.vjp(lambda x: model(x), X)


def test_keep_gradient_needs_one_real_number():
    model = dg.delayed(lambda x: 2.0 * x, name="model", keep="gradient")
    with pytest.raises(ValueError, match=r"keep='gradient' needs .*'model' returned float64\[3\]"):
        dg.grad(lambda x: energy(model(x)))(X)


def test_terms_of_different_shapes_are_an_error():
    terms = lambda x: dg.map_sum(lambda i, x: x[:i], [1, 2], x)  # noqa: E731
    with pytest.raises(
        ValueError, match=r"one structure and shape; found float64\[1\] and float64"
    ):
        dg.grad(lambda x: energy(terms(x)))(X)


# ----------------------------------------------------------------------------------- argnums


@pytest.mark.parametrize("argnums", [True, "x", 0.5, None, (0, "x"), X, np.ones((2, 2)), ()])
@pytest.mark.parametrize("of", [dg.value_and_grad, dg.grad, dg.jacobian, dg.hessian])
def test_argnums_are_numbers_and_arguments_go_in_a_second_call(of, argnums):
    with pytest.raises(ValueError, match=r"argnums=.* must be numbers.* go in a second call"):
        of(energy, argnums)


@pytest.mark.parametrize("of", [dg.value_and_grad, dg.grad, dg.jacobian, dg.hessian, dg.vjp])
def test_a_function_comes_first(of):
    with pytest.raises(
        TypeError, match=r"the first argument of dg\..* must be a function.* found float64"
    ):
        of(X, energy)


@pytest.mark.parametrize("of", [dg.jvp, dg.hvp])
def test_functions_come_before_primals_and_tangents(of):
    with pytest.raises(TypeError, match=r"the first argument of dg\..* must be a function"):
        of((X,), energy, (X,))


@pytest.mark.parametrize("argnums", [1, -1, (0, 1), [2]])
def test_argnums_are_numbers_of_arguments(argnums):
    with pytest.raises(ValueError, match=r"argnums=.* of 'energy' must be numbers.* called with 1"):
        dg.grad(energy, argnums=argnums)(X)
    with pytest.raises(ValueError, match=r"argnums=\(0, 0\) of 'energy' names an argument twice"):
        dg.grad(energy, argnums=(0, 0))(X)


def test_argnums_are_also_numpys_integers():
    assert_allclose(dg.grad(energy, argnums=np.int64(0))(X), 2 * X)
    (gradient,) = dg.grad(energy, argnums=np.array([0]))(X)
    assert_allclose(gradient, 2 * X)


WITHOUT_DERIVATIVE = {
    "an integer": (3, "3"),
    "integers": (np.arange(3), r"int64\[3\]"),
    "a boolean": (True, "True"),
    "None": (None, "None"),
    "an empty dict": ({}, "{}"),
    "an object array": (np.array([1.0, None], dtype=object), r"object\[2\]"),
    "a set": ({1.0}, "set"),
    "an unregistered dataclass": (Unregistered(1.0), "Unregistered"),
    "a Dask collection": (dask.delayed(1.0), "Delayed"),
}


@pytest.mark.parametrize("kind", WITHOUT_DERIVATIVE)
def test_an_argument_without_derivative_is_an_error_that_names_it(kind):
    value, found = WITHOUT_DERIVATIVE[kind]
    with pytest.raises(TypeError, match=f"argument 'x' of 'energy' is .*{found}.*leave it out"):
        dg.grad(energy)(value)


@pytest.mark.parametrize(
    ("value", "found"),
    [
        (np.ma.masked_array(X, [0, 1, 0]), r"MaskedArray float64\[3\]; convert it to a plain"),
        ([1.0, np.ma.masked_array(X)], r"MaskedArray float64\[3\]; convert it to a plain"),
        ([1.0, np.array([1.0, None], dtype=object)], r"ndarray object\[2\]; convert it"),
        ([1.0, {2.0}], "set; expected float or complex arrays"),
        ([1.0, Unregistered(1.0)], "Unregistered; expected .* registered dataclasses"),
        ([1.0, dask.delayed(1.0)], "a Dask collection; compute it first"),
    ],
)
def test_a_variable_holds_plain_arrays(value, found):
    with pytest.raises(TypeError, match=f"'x' holds {found}"):
        dg.grad(energy)(value)
    with pytest.raises(TypeError, match=f"'weights' holds {found}"):
        dg.variable(value, name="weights")


@pytest.mark.filterwarnings("ignore:the matrix subclass")
def test_a_variable_is_no_matrix_and_no_table():
    pandas = pytest.importorskip("pandas")
    with pytest.raises(TypeError, match=r"'x' holds matrix float64\[1, 3\]; convert it"):
        dg.grad(energy)(np.asmatrix(X))
    with pytest.raises(TypeError, match="argument 'x' of 'energy' is Series"):
        dg.grad(energy)(pandas.Series(X))
    with pytest.raises(TypeError, match="'variable' holds Series"):
        dg.variable(pandas.Series(X))


# ------------------------------------------------------------------- derivatives of derivatives


@pytest.mark.parametrize(
    "objective",
    [
        lambda x: energy(dg.grad(energy)(x)),
        lambda x: energy(dg.value_and_grad(lambda y: energy(y))({"a": x})),
        lambda x: energy(dg.grad(lambda y: energy(y + x))(X)),
        lambda x: energy(dg.grad(lambda y, z: energy(y + z))(X, x)),
        lambda x: dg.vjp(energy, x)[0],
        lambda x: energy(dg.vjp(lambda y: double(x), X)[0]),
        lambda x: energy(dg.variable([x])),
    ],
)
def test_a_gradient_of_a_gradient_is_an_error_that_names_hvp(objective):
    with pytest.raises(
        TypeError, match=r"<.*x>, which depends on the variables of another.*dg\.hvp"
    ):
        dg.grad(objective)(X)


def test_a_variable_of_the_users_own_is_a_constant():
    other = dg.variable(C)
    gradient = dg.grad(lambda x: energy(x * other))(X)
    assert_allclose(gradient, 2 * X * C**2)


# --------------------------------------------------------------------------------- differentiate


def test_differentiate_needs_a_node_and_variables():
    v = dg.variable(X)
    with pytest.raises(TypeError, match=r"differentiate needs a node.* found 3\.0"):
        dg.differentiate(3.0, v)
    for wrt, found in ((X, r"float64\[3\]"), (energy(v), "CallNode"), ([v, 1.0], r"1\.0")):
        with pytest.raises(TypeError, match=f"wrt must be a variable.* found {found}"):
            dg.differentiate(energy(v), wrt)


def test_differentiate_warns_of_a_variable_that_is_not_used():
    x, y = dg.variable({"a": X, "b": X}, "x"), dg.variable(X, "y")
    for wrt, name in ((y, "'y'"), (x["b"], r"\"x\['b'\]\"")):
        with pytest.warns(UserWarning, match=f"output of 'energy' does not depend on {name}"):
            value, gradient = dg.differentiate(energy(x["a"]), wrt)
        assert_allclose(value.compute(), np.sum(X**2))
        assert_array_equal(gradient.compute(), np.zeros(3))


# ----------------------------------------------------------------------------------- cotangents


WRONG_COTANGENTS = {
    "a shape": (np.ones(2), ValueError, r"expected shape \(3,\).* found \(2,\)"),
    "a number": (1.0, ValueError, r"expected shape \(3,\).* found \(\)"),
    "a list": ([1.0, 1.0, 1.0], ValueError, r"expected the structure of the value, float64\[3\]"),
    "complex": (1j * np.ones(3), TypeError, "expected dtype float64.* found complex128"),
    "objects": (np.ones(3, dtype=object), TypeError, "expected dtype float64.* found object"),
}


@pytest.mark.parametrize("kind", WRONG_COTANGENTS)
def test_a_cotangent_has_the_shape_and_dtype_of_the_value(kind):
    cotangent, error, told = WRONG_COTANGENTS[kind]
    _, pullback = dg.vjp(double, X)
    with pytest.raises(error, match=f"cotangent of 'double': {told}"):
        pullback(cotangent)
    v = dg.variable(X, "double")
    for output in (double(v), v, dg.sum([v, v])):
        output.name = "double"
        with pytest.raises(error, match=f"cotangent of 'double': {told}"):
            dask.compute(dg.differentiate(output, v, cotangent=cotangent))


@pytest.mark.parametrize(
    "cotangent", [{"a": X}, {"a": X, "c": X}, (X, X), X, {"a": X, "b": X, "c": X}]
)
def test_a_cotangent_has_the_structure_of_the_value(cotangent):
    model = dg.delayed(lambda x: {"a": x, "b": 2.0 * x}, name="model")
    told = "cotangent of 'model': expected the structure of the value, {'a': float64"
    _, pullback = dg.vjp(model, X)
    with pytest.raises(ValueError, match=told):
        pullback(cotangent)
    v = dg.variable(X)
    with pytest.raises(ValueError, match=told):
        dask.compute(dg.differentiate(model(v), v, cotangent=cotangent))


def test_a_cotangent_for_what_has_no_derivative_is_none():
    _, pullback = dg.vjp(dg.delayed(lambda x: [3, x], name="model"), X)
    with pytest.raises(TypeError, match="cotangent of 'model': 3 has no derivative; pass None"):
        pullback([1.0, X])
    assert_array_equal(pullback([None, X])[0], X)


def test_cotangents_of_narrower_kinds_are_taken():
    _, pullback = dg.vjp(double, X)
    for cotangent in (np.ones(3, dtype=int), np.ones(3, dtype=bool), np.ones(3, dtype=np.float32)):
        (gradient,) = pullback(cotangent)
        assert gradient.dtype == np.float64
        assert_array_equal(gradient, [2.0, 2.0, 2.0])
