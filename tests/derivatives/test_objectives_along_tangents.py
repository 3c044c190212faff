"""Tangents, Hessian-vector products, Hessians, Jacobians and auxiliaries that are programs."""

import dask
import numpy as np
import pytest
from comparisons import assert_same
from numpy.testing import assert_allclose
from test_jacobian import FUNCTIONS, GRID, STRUCTURES
from test_jacobian import X as ENTRIES
from test_objectives import CALLS, WITHOUT, A, X, arrays_in

import daskgrad as dg
from daskgrad.autodiff.values.trees import flatten, map_leaves
from daskgrad.derivatives import hessian, in_line
from daskgrad.tasks import observers

Y = np.linspace(0.5, 1.5, 5)

pytestmark = pytest.mark.usefixtures("whole_programs")


def slope(leaf):
    kind = np.asarray(leaf).dtype.kind
    if leaf is None or kind not in "fc":
        return None
    return (0.5 * leaf + 1.0).astype(leaf.dtype) if isinstance(leaf, np.ndarray) else 0.5 * leaf


def along(args):
    """Tangents of arguments; None for one without derivative."""
    slopes = [map_leaves(slope, arg) for arg in args]
    return tuple([None if is_still(tangent) else tangent for tangent in slopes])


def is_still(tangent):
    return all([leaf is None for leaf in flatten(tangent)[0]])


def pulled(fun, args, argnums):
    """A value, and the cotangents of a pullback that is called twice."""
    value, pullback = dg.vjp(fun, *args)
    return value, pullback(map_leaves(slope, value)), pullback(map_leaves(slope, value))


DERIVATIVES = {
    "vjp": pulled,
    "hvp": lambda fun, args, argnums: dg.hvp(fun, args, along(args)),
    "jvp": lambda fun, args, argnums: dg.jvp(fun, args, along(args)),
    "hessian": lambda fun, args, argnums: dg.hessian(fun, argnums)(*args),
    "jacobian": lambda fun, args, argnums: dg.jacobian(fun, argnums)(*args),
}
MIXED = {("hessian", "complex numbers"), ("jacobian", "complex numbers")}
CASES = [(d, n) for d in DERIVATIVES for n in CALLS if (d, n) not in MIXED]


@pytest.mark.parametrize(("derivative", "name"), CASES)
def test_the_bits_and_types_are_those_of_the_tape(derivative, name, taken):
    fun, args, argnums = CALLS[name]
    derive, model = DERIVATIVES[derivative], dg.delayed(fun, compile=True)
    expected = derive(dg.delayed(fun, compile=False), args, argnums)
    for _ in range(30):
        result = derive(model, args, argnums)
        assert_same(result, expected)
        assert repr(result) == repr(expected)
        for number, array in enumerate(arrays_in(result)):
            others = [*arrays_in(args), *arrays_in(result)[:number]]
            assert array.flags.writeable
            assert not any(np.shares_memory(array, other) for other in others)
            array[...] = np.nan
    if derivative != "jacobian":  # values of one number are pulled back
        without = set() if derivative == "vjp" else WITHOUT  # it copies the arguments
        has_program = name not in without and (derivative, name) != ("hessian", "nothing")
        assert bool(taken()) == has_program


WITHOUT_STRUCTURE = {"fan", "sum", "number", "recomputed"}


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("name", [*FUNCTIONS, *STRUCTURES])
def test_jacobians_have_the_bits_of_the_graph(name, sparse, taken):
    fun, *_ = (FUNCTIONS | STRUCTURES)[name]
    point = ENTRIES if name in FUNCTIONS else GRID

    def arrays(x):
        result = dg.jacobian(fun, sparse=sparse)(x)
        return [result.data, result.indices, result.indptr] if sparse else [result]

    with dask.config.set({"daskgrad.compile": False}):
        points = [point, 0.5 - point, np.zeros_like(point)]
        expected = [arrays(x) for x in points]
    for number in range(60):
        results = arrays(points[number % 3])
        assert_same(results, expected[number % 3])
        for array in results:
            assert array.flags.writeable
            array[...] = 77
    assert bool(taken()) == (name not in WITHOUT_STRUCTURE)


def test_jacobians_of_trees_of_several_arguments(taken):
    def fun(p, y):
        return {"a": model(p["a"], y), "b": [model(y, p["b"]), p["b"]]}

    model = dg.delayed(lambda x, y: np.sin(x) * y)
    args = {"a": X, "b": 0.5, "n": 3}, Y
    with dask.config.set({"daskgrad.compile": False}):
        expected = dg.jacobian(fun, (0, 1))(*args)
    for _ in range(30):
        result = dg.jacobian(fun, (0, 1))(*args)
        assert_same(result, expected)
        assert repr(result) == repr(expected)
    assert taken()
    with pytest.warns(UserWarning, match="does not depend on 'y'"):
        dg.jacobian(lambda x, y: model(x, x), (0, 1))(X, Y)


def decay(x, rate):
    return np.sum(np.exp(-rate * x))


def misfit(pair, x):
    row, y = pair
    return (np.dot(row, x) - y) ** 2


def objective(x, y):
    model = dg.delayed(decay)
    terms = dg.map_sum(misfit, dg.zip(list(A), [1.0, 2.0, 3.0]), x)
    return model(x, 0.5) * 2.0 + model(y, 1.5) ** 2 + terms * y[0] + x[1] * y[2]


def in_both_orders(fun):
    """Derivatives by programs at last, and by graphs alone."""
    args = (X, Y)
    for name in ("hvp", "jvp", "hessian"):
        derive = DERIVATIVES[name]
        results = [derive(fun, args, (0, 1)) for _ in range(30)]
        with dask.config.set({"daskgrad.compile": False}):
            yield results, derive(fun, args, (0, 1))


def test_several_models_and_a_sum(taken):
    for count, (results, expected) in enumerate(in_both_orders(objective)):
        for result in results:
            assert_same(result, expected)
        assert taken() >= 10 * (count + 1)


def test_what_changes_is_seen_at_once(taken):
    rate = 0.5
    model = dg.delayed(decay)

    def fun(x):
        return model(x, rate) * 2.0 + model(x, 2.0)

    for _ in range(30):
        dg.hvp(fun, (X,), (Y,))
    assert taken()
    rate = 0.75
    _, (product,) = dg.hvp(fun, (X,), (Y,))
    assert_allclose(product, Y * (2.0 * 0.75**2 * np.exp(-0.75 * X) + 4.0 * np.exp(-2.0 * X)))


def test_other_tangents_are_checked_as_ever(taken):
    def fun(x):
        return model(x, 0.5) + model(x, 1.5)

    model = dg.delayed(decay)
    for derive in (dg.hvp, dg.jvp):
        for _ in range(30):
            expected = derive(fun, (X,), (Y,))
        assert taken()
        halves = derive(fun, (X,), (np.ones(5, np.float32),))
        assert_same(halves, derive(fun, (X,), (np.ones(5),)))
        assert flatten(halves)[0][-1].dtype == np.float64
        with pytest.raises(ValueError, match="expected shape"):
            derive(fun, (X,), (np.ones(3),))
        with pytest.raises(ValueError, match="one tangent for each primal"):
            derive(fun, (X,), (Y, Y))
        with pytest.raises(TypeError, match="as a tuple"):
            derive(fun, X, Y)
        assert_same(derive(fun, (X,), (Y,)), expected)


def test_an_argument_that_does_not_matter_is_warned_of_at_each_call():
    model = dg.delayed(decay)
    for _ in range(30):
        with pytest.warns(UserWarning, match="does not depend on 'y'"):
            dg.hvp(lambda x, y: model(x, 0.5) + model(x, 1.5), (X, Y), (Y, Y))


def test_errors_are_raised_as_ever(taken):
    def positive(x):
        if x[0] < 0.0:
            raise ArithmeticError("below zero")
        return np.sum(x**3)

    model, point = dg.delayed(positive), np.abs(X)
    for _ in range(30):
        dg.hvp(model, (point,), (Y,))
        dg.hessian(model)(point)
    assert taken()
    for derive in (lambda x: dg.hvp(model, (x,), (Y,)), dg.hessian(model)):
        with pytest.raises(ArithmeticError, match="below zero"):
            derive(-point)


def test_a_hessian_that_gains_from_threads_goes_to_them(taken, monkeypatch):
    """A program with large arrays, and of some time, serves one entry alone."""
    model = dg.delayed(decay)

    def fun(x):
        return model(x, 0.5) + model(x, 1.5)

    expected = dg.hessian(fun)(X)
    for _ in range(30):
        dg.hessian(fun)(X)
    before = taken()
    assert_same(dg.hessian(fun)(X), expected)
    assert taken() == before + len(X)
    monkeypatch.setattr(in_line, "LARGE", 1)
    monkeypatch.setattr(hessian, "TASK_SECONDS", 0.0)
    assert_same(dg.hessian(fun)(X), expected)
    assert taken() == before + len(X) + 1


class Heard(observers.Observer):
    sees_tasks = False

    def __init__(self):
        self.values, self.calls = [], []

    def evaluated(self, evaluation):
        self.values.append(evaluation.value)
        self.calls.append(evaluation.calls)


def test_observers_hear_of_models_and_of_no_value(taken):
    for _ in range(30):
        dg.hvp(objective, (X, Y), (Y, X))
    before, heard = taken(), Heard()
    with observers.observed_by(heard):
        dg.hvp(objective, (X, Y), (Y, X))
    assert taken() == before + 1
    assert heard.values == [None]
    assert heard.calls[0]["decay"] == 2


# -------------------------------------------------------------------------------- auxiliaries


def test_auxiliaries_have_the_bits_and_types_of_the_graph(taken):
    model = dg.delayed(decay)

    def fun(x, y):
        value = model(x, 0.5)
        square = dg.delayed(np.square)(y)
        aux = {"value": value, "text": "fit", 3: None, "list": [square, y, 1.5, (True, 2)]}
        return value * 2.0 + model(y, 1.5), aux

    for options in ({}, {"out": (np.empty(5), np.empty(5))}):
        gradient = dg.value_and_grad(fun, (0, 1), has_aux=True, **options)
        expected = dg.value_and_grad(fun, (0, 1), has_aux=True)(X, Y)
        before = taken()
        for _ in range(30):
            result = gradient(X, Y)
            assert_same(result, expected)
            assert repr(result) == repr(expected)
            for array in arrays_in(result[0]):
                assert not any(np.shares_memory(array, other) for other in (X, Y))
                array[...] = np.nan
            result[0][1]["list"].append("changed")
        assert taken() > before


class Report:
    def __init__(self, value):
        self.value = value


@pytest.mark.parametrize("make", [Report, lambda value: np.ones(2)])
def test_an_auxiliary_that_may_be_changed_is_made_anew(make, taken):
    model = dg.delayed(decay)

    def fun(x):
        return model(x, 0.5) + model(x, 1.5), make(3.0)

    gradient = dg.value_and_grad(fun, has_aux=True)
    objects = [gradient(X)[0][1] for _ in range(30)]
    assert len(set(map(id, objects))) == 30
    assert not taken()


def test_values_of_auxiliaries_are_recorded_in_runs(taken):
    gradient = dg.value_and_grad(lambda x: (objective(x, x), 1), has_aux=True)
    for _ in range(30):
        (expected, _), _ = gradient(X)
    before = taken()
    with dg.record("fit") as run:
        gradient(X)
        dg.hvp(objective, (X, Y), (Y, X))
    assert taken() > before
    assert [row.value for row in run.shown] == [expected]


def test_an_auxiliary_that_is_an_argument_stays_the_argument(taken):
    model = dg.delayed(decay)
    gradient = dg.value_and_grad(lambda x, y: (model(x, 0.5) + model(x, 1.5), y), has_aux=True)
    for _ in range(30):
        (_, aux), _ = gradient(X, Y)
        assert aux is Y
    assert not taken()


def test_results_have_one_order_in_memory(taken):
    model = dg.delayed(decay)
    gradient = dg.value_and_grad(lambda x: (model(x, 0.5) + model(x, 1.5), x * 2.0), has_aux=True)
    point, double = np.asfortranarray(A), dg.delayed(lambda x: 2.0 * x)
    for _ in range(30):
        (_, aux), _ = gradient(point)
        value, tangent = dg.jvp(lambda x: double(double(x)), (point,), (point,))
        assert all([array.flags.c_contiguous for array in (aux, value, tangent)])
    assert taken()


# --------------------------------------------------------------------- what nobody could tell

HUGE = np.array([1e200, 1e200, 0.0, 1.0, 1.0])
OVERFLOWS = {
    "hvp": lambda x: dg.hvp(lambda x: x[0] * x[1] + x[2], (x,), (np.ones(5),)),
    "hessian": lambda x: dg.hessian(lambda x: x[0] * x[1] + x[2])(x),
    "jacobian": lambda x: dg.jacobian(dg.delayed(lambda x: x**2))(x),
    "jacobian of operators": lambda x: dg.jacobian(lambda x: np.sin(x) + x * x[0])(x),
}


@pytest.mark.parametrize("name", OVERFLOWS)
def test_the_warnings_of_a_value_that_nobody_takes(name, taken):
    derive = OVERFLOWS[name]
    for _ in range(30):
        derive(X)
    assert taken()
    with pytest.warns(RuntimeWarning, match="overflow"):
        derive(HUGE)
    with np.errstate(all="raise"), pytest.raises(FloatingPointError):
        derive(HUGE)


class Options:
    """An objective whose missing options are None."""

    def __init__(self, rate):
        self.rate = rate

    def __getattr__(self, name):
        return vars(self).get(name)

    def __call__(self, x):
        return dg.delayed(decay)(x, self.rate) * 2.0 + dg.delayed(decay)(x, 1.0)


def test_objects_that_have_all_attributes():
    slow, quick = Options(0.5), Options(2.0)
    for derive in (lambda fun: dg.hvp(fun, (X,), (Y,)), lambda fun: dg.value_and_grad(fun)(X)):
        for _ in range(30):
            derive(slow)
        with dask.config.set({"daskgrad.compile": False}):
            expected = derive(quick)
        assert_same(derive(quick), expected)


def with_places(a, /, b=1.0, c=1.0):
    return dg.delayed(lambda x, b, c: x**2 * b + c * c * x)(a, b, c)


def test_parameters_that_have_a_place_alone(taken):
    total = dg.delayed(np.sum)
    for derive in (
        dg.jacobian(with_places),
        dg.value_and_grad(lambda *a, **k: total(with_places(*a, **k))),
    ):
        for _ in range(30):
            derive(X, c=1.0)
        with dask.config.set({"daskgrad.compile": False}):
            expected = derive(X, c=3.0)
        assert_same(derive(X, c=3.0), expected)
    assert taken()


def test_a_hessian_takes_keywords(taken):
    def fun(x, b=1.0, c=1.0):
        return dg.delayed(decay)(x, b) * c + dg.delayed(decay)(x, 0.1)

    with dask.config.set({"daskgrad.compile": False}):
        expected = dg.hessian(fun)(X, c=2.0)
    for _ in range(30):
        assert_same(dg.hessian(fun)(X, c=2.0), expected)
    assert taken()


@pytest.mark.parametrize(
    "fun", [np.var, np.linalg.norm, lambda x: np.squeeze(np.sum(x, keepdims=True))]
)
def test_tangents_of_numbers_are_numbers(fun, taken):
    model = dg.delayed(fun)
    for _ in range(30):
        assert type(dg.jvp(model, (X,), (Y,))[1]) is np.float64
    assert taken()
