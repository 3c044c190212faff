"""Python's numbers among differentiated arguments stay Python's: weak beside single precision."""

import operator

import autograd
import numpy as np
import pytest
from numpy.lib.mixins import NDArrayOperatorsMixin
from numpy.testing import assert_allclose

import daskgrad as dg
from daskgrad.autodiff.tape import trace

pytestmark = pytest.mark.usefixtures("synchronous")

TABLE = np.array([0.1, 0.2, 0.3], np.float32)
CALLS = 14  # the last ones are programs


def plus_one(p):
    p += 1
    return p


EXPRESSIONS = {
    "times": lambda p: p,
    "numbers": lambda p: (2.0 - p * 3) / 4 + 1,
    "reflected": lambda p: 1 / p + 2 * p - (1.0 - p),
    "powers": lambda p: p**2 + 2.0**p + p**p,
    "signs": lambda p: abs(-p) + +p,
    "steps": lambda p: p + (5 * p) // 1 + (3 * p) % 1 + divmod(5 * p, 1)[1] + divmod(7.3, p)[0],
    "in place": plus_one,
    "builtins": lambda p: sum([p, max(p, 0.1)]),
    "comparisons": lambda p: p * ((p > 0) + (p > 0.1) + (p != 1)),
    "rounded": lambda p: p + round(p, 1),
    "complex": lambda p: abs((p - 2.0) ** 0.5) + (p * 1j).conjugate().imag,
    "strong": lambda p: np.exp(p),
    "types": lambda p: p * (2.0 if type(p * 2) is float else 3.0) + isinstance(p, np.generic),
    "attributes": lambda p: p * (2.0 if hasattr(p, "shape") else 3.0),
    "in double": lambda p: 1e-50 * p * 1e50,
    "inner derivative": lambda p: autograd.grad(lambda q: q**3 / q)(p),
}
BETWEEN = "between models"
OF_NODES = [name for name in EXPRESSIONS if name not in ("rounded", "inner derivative")]


def shared(weight):
    return lambda p: dg.map_sum(lambda row, p: np.sum(row * weight(p)), [TABLE, 2 * TABLE], p)


def weighted(weight):
    return lambda p: np.sum(TABLE * weight(p))


def between(weight):
    total = dg.delayed(lambda weight: np.sum(TABLE * weight))
    return lambda p: total(weight(p))


WAYS = {
    "tape": lambda weight: dg.delayed(weighted(weight), backend="autograd"),
    "program": lambda weight: dg.delayed(weighted(weight)),
    BETWEEN: between,
    "objective": lambda weight: lambda p: dg.delayed(weighted(weight))(p) * 1.0,
}


def require_same(value, expected):
    assert (value, value.dtype) == (expected, expected.dtype)


CASES = [(way, name) for way in WAYS for name in (OF_NODES if way == BETWEEN else EXPRESSIONS)]


@pytest.mark.parametrize(("way", "name"), CASES)
def test_a_python_float_gives_the_functions_own_value(way, name):
    weight = EXPRESSIONS[name]
    fun, plain = WAYS[way](weight), weighted(weight)
    gradient = dg.value_and_grad(fun)
    double = TABLE.astype(float)
    h = 1e-6
    slope = np.sum(double * (weight(0.7 + h) - weight(0.7 - h)) / (2 * h))
    for _ in range(CALLS):
        value, slope_of_call = gradient(0.7)
        require_same(value, plain(0.7))
        assert type(slope_of_call) is np.float64
        assert_allclose(slope_of_call, slope, 1e-5)
    value, tangent = dg.jvp(fun, (0.7,), (1.0,))
    require_same(value, plain(0.7))
    assert_allclose(tangent, slope, 1e-5)


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_a_python_float_stays_one_in_sums(name):
    weight = EXPRESSIONS[name]
    rows = [TABLE, 2 * TABLE]
    as_shared = dg.value_and_grad(shared(weight))
    as_items = dg.value_and_grad(
        lambda ps: dg.map_sum(lambda p, row: np.sum(row * weight(p)), ps, TABLE)
    )
    for _ in range(CALLS):
        terms = [np.sum(row * weight(0.7)) for row in rows]
        require_same(as_shared(0.7)[0], terms[0] + terms[1])
        require_same(as_items([0.7, 0.7])[0], terms[0] + terms[0])


BESIDE_SINGLE = {  # a function of such a number, where, and its derivative there
    "the largest": (lambda p: np.sum(np.maximum(TABLE, p)), 0.7, 3.0),
    "the smallest": (lambda p: np.sum(np.minimum(p, TABLE)), -0.7, 3.0),
    "a sum of all pairs": (lambda p: np.sum(np.add.outer(TABLE, p)), 0.7, 3.0),
    "more than single precision has": (lambda p: np.sum(TABLE / p), 1e200, 0.0),
}


@pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")
@pytest.mark.parametrize("name", BESIDE_SINGLE)
def test_a_rule_has_the_number_that_numpy_computed_with(name):
    fun, p, slope = BESIDE_SINGLE[name]
    gradient = dg.value_and_grad(dg.delayed(fun))
    for _ in range(CALLS):
        value, slope_of_call = gradient(p)
        require_same(value, fun(p))
        assert slope_of_call == slope
    assert dg.jvp(fun, (p,), (1.0,))[1] == slope


def test_a_complex_number_stays_pythons():
    table = TABLE.astype(np.complex64)

    def size(z):
        return np.sum(abs(table * (z * 2) ** 2)) * (1 if type(z) is complex else 2)

    gradient = dg.value_and_grad(dg.delayed(size))
    for _ in range(CALLS):
        value, slope = gradient(0.7 + 0.2j)
        require_same(value, size(0.7 + 0.2j))
        assert type(slope) is np.complex128


def test_second_derivatives_of_python_floats():
    model = dg.delayed(lambda p: np.sum(TABLE * p) * p**2)
    assert_allclose(dg.hvp(model, (0.7,), (1.0,))[1][0], 0.6 * 6 * 0.7, 1e-6)
    assert_allclose(dg.hessian(model)(0.7), 0.6 * 6 * 0.7, 1e-6)


def test_a_vector_of_python_floats_is_taken_apart_into_these():
    seen = set()

    def model(parameters):
        seen.add(type(parameters["scale"]))
        return np.sum(TABLE * parameters["scale"])

    fun, x0, _ = dg.adapters.flat(dg.delayed(model), {"scale": 0.7})
    value, _ = fun(x0)
    assert seen == {float}
    assert value == model({"scale": 0.7})


@pytest.mark.parametrize("calls", [1, CALLS])
@pytest.mark.parametrize("fun", [lambda p: 1.0 / p, lambda p: p**-1.0])
def test_a_division_by_zero_is_pythons_error(fun, calls):
    gradient = dg.grad(dg.delayed(fun))
    for _ in range(calls):
        gradient(0.5)
    with pytest.raises(ZeroDivisionError):
        gradient(0.0)


def test_the_value_of_an_evaluation_is_numpys():
    model = dg.delayed(lambda p: p * 2.0)
    gradient = dg.value_and_grad(model)
    values = [gradient(0.7)[0] for _ in range(CALLS)]
    values += [dg.jvp(model, (0.7,), (1.0,))[0], dg.vjp(model, 0.7)[0]]
    assert set(map(type, values)) == {np.float64}


TERMS = {  # and how their batches are told
    "a square": (lambda x, p: (x - p) ** 2, "at once, but for pow"),
    "powers": (lambda x, p: x**p + p**x + 2.0**x, "at once, but for pow"),
    "remainders": (lambda x, p: (3 * x * p) % 1.0 + x * p // 0.3, "at once, but for mod, floordiv"),
    "complex roots": (lambda x, p: abs((x - p) ** 0.5), ""),  # of some items
    "single precision": (lambda x, p: np.sum(TABLE * x * p) + np.exp(x), "at once."),
}


@pytest.mark.parametrize("name", TERMS)
def test_batches_take_python_numbers(name):
    term, line = TERMS[name]
    items = [float(x) for x in np.random.default_rng(0).random(400)]

    def gradient_of(**options):
        model = dg.delayed(term, **options)
        return model, dg.value_and_grad(lambda xs, p: dg.map_sum(model, xs, p), (0, 1))

    model, gradient = gradient_of(compile=True)
    expected = gradient_of(compile=False)[1](items, 0.3)
    for _ in range(CALLS):
        assert gradient(items, 0.3) == expected
    assert line in str(dg.explain(model, 0.7, 0.3))


def test_the_value_of_a_sum_is_numpys():
    for count in (1, 2, 100):
        term = dg.delayed(lambda x, p: x * p)
        total = dg.map_sum(term, [1.0] * count, dg.variable(0.7)).compute()
        assert type(total) is np.float64


def test_the_pullback_takes_a_python_number():
    _, tape = trace(lambda p: [p * 2.0], [0.7])
    assert tape.pull([1.0]) == [2.0]


class Table(NDArrayOperatorsMixin):
    """A container of another library, which calls NumPy on its array, as xarray's do."""

    def __init__(self, data):
        self.data, self.dtype, self.shape, self.ndim = data, data.dtype, data.shape, data.ndim

    def __array_ufunc__(self, ufunc, method, *inputs, **kwargs):
        arrays = [x.data if isinstance(x, Table) else x for x in inputs]
        return Table(getattr(ufunc, method)(*arrays, **kwargs))


@pytest.mark.parametrize("number", [0.7, 0.7 + 0.2j])
@pytest.mark.parametrize("operation", [operator.mul, operator.sub, operator.truediv, operator.pow])
def test_a_container_of_another_library_answers_the_operators(operation, number):
    table = np.array([1.0, 2.0, 3.0])

    def summed(p):
        return np.real(np.sum(operation(p, Table(table)).data + operation(Table(table), p).data))

    def plain(p):
        return np.real(np.sum(operation(p, table) + operation(table, p)))

    expected = dg.grad(dg.delayed(plain))(number)
    assert_allclose(dg.grad(dg.delayed(summed))(number), expected, rtol=1e-14)
