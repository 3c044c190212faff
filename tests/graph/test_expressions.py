"""NumPy between models: what it records, what it costs, and what needs a value."""

import math

import autograd
import autograd.numpy as anp
import dask
import numpy as np
import pytest
import scipy.special
from comparisons import bits
from inputs import X, energy

import daskgrad as dg
from daskgrad.graph.activity import Graph
from daskgrad.graph.backward import backward_tasks
from daskgrad.graph.expressions import MOST_INPUTS, ExpressionNode
from daskgrad.graph.nodes import CallNode
from daskgrad.graph.operators import MOST_MODELS, model_of

MATRIX = np.array([[2.0, 0.3, 0.1], [0.3, 1.5, 0.2], [0.1, 0.2, 1.2]])
WAVE = dg.delayed(lambda x: anp.sin(x) * x, name="wave")


def plain_wave(x):
    return anp.sin(x) * x


PROGRAMS = {  # of a model's value or a variable
    "a prior": lambda x: 0.1 * np.sum(x**2),
    "functions": lambda x: np.log(np.sum(np.exp(x))) + np.mean(np.tanh(x)),
    "arrays of nodes": lambda x: np.sum(np.concatenate([x, np.exp(x)]) * np.arange(6.0)),
    "stacked": lambda x: np.linalg.det(np.stack([x, x**2, np.cos(x)])),
    "methods": lambda x: (x.reshape(3, 1) * x).T.sum(axis=0).max() + x.mean(),
    "linear algebra": lambda x: np.linalg.solve(MATRIX, x) @ x + np.linalg.norm(x),
    "SciPy": lambda x: np.sum(scipy.special.gammaln(x + 2.0) * scipy.special.expit(x)),
    "a ufunc's method": lambda x: np.multiply.reduce(x) + np.add.reduce(x),
    "keywords": lambda x: np.sum(x, keepdims=True)[0] * np.std(x, ddof=1),
    "operators": lambda x: np.sum(abs(x) % 0.3 + 2.0**x - (-x) @ MATRIX / x),
    "choices": lambda x: np.sum(np.where(np.greater(x, 0.7), x**2, np.clip(x, 0.3, 0.6))),
    "Fourier": lambda x: np.sum(np.abs(np.fft.rfft(x)) ** 2),
    "several arrays": lambda x: (
        np.linalg.slogdet(np.outer(x, x) + MATRIX)[1] * np.split(x, 3)[1][0]
    ),
    "parts": lambda x: x[0] * np.exp(x[1:]).sum() + np.outer(x, x)[1, 2],
}


def of_a_value(name):
    return lambda x: PROGRAMS[name](WAVE(x) + 0.5) * np.cos(x[0])


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_has_the_derivatives_of_the_program_within_a_model(name, scheduler):
    fun = PROGRAMS[name]
    one = dg.delayed(lambda x: fun(plain_wave(x) + 0.5) * np.cos(x[0]), compile=False)
    for program, model in ((fun, dg.delayed(fun, compile=False)), (of_a_value(name), one)):
        value, gradient = dg.value_and_grad(program)(X)
        expected, expected_gradient = dg.value_and_grad(model)(X)
        np.testing.assert_allclose(value, expected, rtol=1e-14)
        np.testing.assert_allclose(gradient, expected_gradient, rtol=1e-12)


@pytest.mark.parametrize("name", ["a prior", "functions", "linear algebra", "parts"])
def test_other_derivatives(name):
    program, fun = of_a_value(name), PROGRAMS[name]

    def one(x):
        return fun(plain_wave(x) + 0.5) * np.cos(x[0])

    hessian = autograd.hessian(one)(X)
    tangent = np.array([1.0, -0.5, 2.0])
    np.testing.assert_allclose(dg.hessian(program)(X), hessian, rtol=1e-11)
    slope = autograd.grad(one)(X)
    np.testing.assert_allclose(dg.jvp(program, (X,), (tangent,))[1], slope @ tangent)
    pair = lambda x: [program(x), np.exp(x)]  # noqa: E731
    first, second = dg.jacobian(pair)(X)
    np.testing.assert_allclose(first, slope, rtol=1e-12)
    np.testing.assert_allclose(second, np.diag(np.exp(X)), rtol=1e-12)
    x = dg.variable(X)
    value, gradient = dask.compute(dg.differentiate(program(x), x))[0]
    assert bits([value, gradient]) == bits(list(dg.value_and_grad(program)(X)))


# ------------------------------------------------------------------------------- what it costs


def nodes_of(fun, *args):
    x = dg.variable(X)
    return Graph(fun(x, *args), [x], output_is_scalar=True)


def test_calls_that_hang_together_are_one_node():
    graph = nodes_of(lambda x: np.log(np.sum(np.exp(energy(x) + energy(2.0 * x)) ** 2)))
    calls = [node.name for node in graph.order if node.inputs]
    assert calls == ["energy", "multiply", "energy", "log"]
    assert [node.name for node in graph.here] == ["multiply"]


def test_a_value_that_a_model_takes_in_is_computed_once():
    def fun(x):
        y = np.exp(WAVE(x))
        return energy(y) + np.sum(y**2)

    calls = [node.name for node in nodes_of(fun).order if node.inputs]
    assert calls == ["wave", "exp", "energy", "add"]


def test_an_expression_takes_in_few_values_at_once():
    graph = nodes_of(lambda x: np.sum(sum([WAVE(x * n) for n in range(40)])))
    expressions = [node for node in graph.order if type(node) is ExpressionNode]
    assert max(len(node.inputs) for node in expressions) <= MOST_INPUTS
    assert len([node for node in expressions if node not in graph.here]) == 3


def test_annotated_calls_are_tasks():
    with dask.annotate(priority=1):
        graph = nodes_of(lambda x: energy(np.exp(x)))
    assert not graph.here


def test_functions_that_are_made_for_one_call_are_not_kept():
    for _ in range(2 * MOST_MODELS):
        np.frompyfunc(abs, 1, 1)(WAVE(X))
    assert model_of.cache_info().currsize <= MOST_MODELS


def test_a_jacobian_pulls_numpy_on_variables_back_in_batches(monkeypatch, synchronous):
    pulled = []
    backward = backward_tasks.registry[CallNode]
    monkeypatch.setattr(
        "daskgrad.graph.backward.backward_tasks",
        lambda node, *args: pulled.append(node) or backward(node, *args),
    )
    x = np.linspace(0.1, 2.0, 12)
    jacobian = dg.jacobian(lambda x: WAVE(np.exp(x)), mode="reverse")(x)
    expected = autograd.jacobian(lambda x: plain_wave(anp.exp(x)))(x)
    np.testing.assert_allclose(jacobian, expected, rtol=1e-12)
    assert len(pulled) < len(x)


@pytest.mark.parametrize("of", [lambda x: x, WAVE], ids=["a variable", "a model"])
def test_an_array_has_the_numbers_that_it_had_in_the_call(of):
    def fun(x):
        weights, total, places = np.zeros(3), 0.0, np.array([0, 0])
        for number in range(3):
            weights[number], places[1] = 1.0, number
            total = total + np.sum(np.sin(of(x)) * weights) + np.sum(of(x)[places])
        return total

    y = of(dg.variable(X)).compute()
    expected = np.sin(y) @ [3.0, 2.0, 1.0] + y @ [4.0, 1.0, 1.0]
    for _ in range(20):  # by a program, too
        np.testing.assert_allclose(dg.value_and_grad(fun)(X)[0], expected)
    weights = np.ones((60, 3))
    calls = [(of(dg.variable(X)) * weights).call.leaves[1] for _ in range(3)]
    assert calls[0] is calls[1] is calls[2]


def test_values_that_the_caller_wants_stay_nodes():
    def fun(x):
        y = np.exp(WAVE(x))
        return np.sum(y), [y]

    (value, (middle,)), gradient = dg.value_and_grad(fun, has_aux=True)(X)
    np.testing.assert_allclose(middle, np.exp(np.sin(X) * X))
    assert value == np.sum(middle)
    assert gradient.shape == X.shape


# --------------------------------------------------------------------------- what needs a value


def test_variables_and_numpy_on_variables_may_be_compared():
    def fun(x):
        if x[0] > 0 and np.sum(x) < 100.0 and not np.allclose(x, 0.0):
            return np.sum(x * energy(x)) + len(x) + x.size
        return energy(x)

    np.testing.assert_allclose(dg.grad(fun)(X), dg.grad(lambda x: np.sum(x * energy(x)))(X))
    np.testing.assert_allclose(dg.grad(fun)(-X), dg.grad(energy)(-X))


def test_layout_and_items_of_variables_are_known():
    x = dg.variable(np.ones((2, 3)))
    assert (x.shape, x.ndim, x.size, x.dtype, len(x)) == ((2, 3), 2, 6, np.dtype(float), 2)
    first, second = x
    assert (first + second).shape == np.shape(x[0]) == (3,)
    total = dg.grad(lambda x: sum(n * v for n, v in enumerate(x)))(X)
    np.testing.assert_array_equal(total, np.arange(3.0))


def test_iteration_over_a_dict_gives_its_keys():
    def fun(p):
        return sum([key * np.sum(p[key]) for key in p])

    gradient = dg.grad(fun)({2: X, 0: X, 1: X})
    assert {key: leaf[0] for key, leaf in gradient.items()} == {0: 0.0, 1: 1.0, 2: 2.0}
    assert list(dg.variable({"b": 1.0, "a": 2.0})) == ["b", "a"]


def test_what_was_persisted_has_a_value_to_look_at():
    x = dg.variable(X)
    (y,) = dask.persist(np.exp(x))
    assert y[0] > 1.0
    assert np.size(y) == len(y) == 3
    assert np.array_equal(y, np.exp(X))
    assert (y == np.exp(x)).all()


def test_nans_and_wrong_rules_are_found_in_numpy_between_models():
    with dg.debug_nans(), pytest.raises(FloatingPointError, match="log"), np.errstate(all="ignore"):
        dg.grad(lambda x: energy(np.log(x)) + np.sum(x))(np.array([-1.0, 2.0]))
    wrong = dg.custom_vjp(lambda x: np.sin(x))
    wrong.defvjp(lambda x: (np.sin(x), x), lambda x, cotangent: (cotangent * np.sin(x),))
    with pytest.raises(AssertionError, match="first wrong rule is that of model 'wrong'"):
        dg.check_grads(lambda x: np.sum(np.exp(dg.delayed(wrong, name="wrong")(x * 2.0))))(X)


def test_a_number_is_made_of_what_has_no_derivative():
    x, count = dg.variable(X, "x"), dg.variable(3)
    assert float(dg.stop_gradient(x[0])) == X[0]
    assert [1, 2, 3, 4][count] == 4
    for convert in (float, int, math.sin):
        with pytest.raises(TypeError, match=r"constant of <.*>, whose.*np\.exp.*stop_gradient"):
            convert(x[0])


@pytest.mark.parametrize("of", ["a variable", "a model"])
def test_an_error_names_the_line_of_the_call(of):
    def fun(x):
        return np.sum(np.dot(x if of == "a variable" else WAVE(x), np.ones(5)))  # this line

    line = fun.__code__.co_firstlineno + 1
    with pytest.raises(ValueError, match="not aligned") as caught:
        dg.grad(fun)(X)
    assert f"{__file__}, line {line}" in "\n".join(caught.value.__notes__)


def test_an_operator_on_a_sum_leaves_the_sum_to_direct_evaluation():
    graph = nodes_of(lambda x: dg.map_sum(lambda n, x: n * np.sum(x), [1.0, 2.0], x) - np.sum(x))
    assert graph.output.model.operator.signs == (1, -1)


def test_functions_without_a_rule_and_arrays_to_write_into_are_errors():
    with pytest.raises(TypeError, match="out="):
        np.add(WAVE(X), 1.0, out=np.ones(3))
    with pytest.raises(TypeError, match="out="):
        np.sum(WAVE(X), out=np.array(1.0))
    buffer = np.zeros(3)
    for of in (dg.variable(X), WAVE(X)):
        with pytest.raises(TypeError, match="out="):
            np.cumsum(of, 0, None, buffer)
        with pytest.raises(TypeError, match="out="):
            of.cumsum(0, None, buffer)
    for write in (np.add.at, np.copyto, np.put, np.place, np.fill_diagonal, np.savetxt):
        args = ("file", X) if write is np.savetxt else (X, [0], 1.0)
        args = [dg.variable(X) if each is X else each for each in args]
        with pytest.raises(TypeError, match="makes a constant"):
            write(*args[: 2 if write in (np.copyto, np.fill_diagonal, np.savetxt) else 3])
    with pytest.raises(AttributeError):
        dg.variable({"a": X}).shape  # noqa: B018
    with pytest.raises(Exception, match="abs"):
        dg.grad(lambda x: np.sum(np.frompyfunc(abs, 1, 1)(x)))(X)
    np.testing.assert_array_equal(dg.grad(lambda x: np.sum(x // 0.2 + x))(X), np.ones(3))
