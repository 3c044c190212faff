"""Eager evaluations: what recorded ones give, to the bit, and Python between models."""

import contextlib
import functools
import gc
import weakref
from concurrent.futures import ThreadPoolExecutor

import autograd.numpy as np
import dask
import numpy
import pytest
from fuzz_graphs import graph
from numpy.testing import assert_allclose
from probes import forget_evaluations
from programs import flat

import daskgrad as dg
from daskgrad.autodiff.models import as_called, blas
from daskgrad.autodiff.values.trees import flatten, map_leaves
from daskgrad.derivatives import eager
from daskgrad.graph.eager import NotEagerError

X = numpy.array([0.5, 1.2, -0.3])


@pytest.fixture(autouse=True)
def alone(monkeypatch):
    """No evaluation of another test is known."""
    forget_evaluations(monkeypatch)
    with dask.config.set({"daskgrad.inline.seconds": 60.0, "daskgrad.compile": False}):
        yield


@pytest.fixture
def eagerly(monkeypatch):
    """For each eager evaluation that began, whether it gave the result."""
    results = []
    evaluate = eager.EagerFunction._run

    def noted(self, *args):
        place = len(results)
        results.append(False)
        result = evaluate(self, *args)
        results[place] = result is not None
        return result

    monkeypatch.setattr(eager.EagerFunction, "_run", noted)
    return results


def bits(result):
    value, gradient = result
    return flat(value).tobytes(), flat(gradient).tobytes()


@pytest.mark.filterwarnings("ignore:the output of")
@pytest.mark.parametrize("first", range(0, 60, 10))
def test_random_graphs_have_the_bits_of_tasks(first, eagerly):
    for seed in range(first, first + 10):
        program = graph(seed)
        both = dg.value_and_grad(program, argnums=(0, 1, 2))
        expected = bits(both(*program.arguments))
        assert bits(both(*program.arguments)) == expected, seed
    assert sum(eagerly) >= 6


summed = dg.delayed(lambda a, k=1.0: np.sum(np.sin(k * a)), name="summed")
doubled = dg.delayed(lambda a: a * 2.0 + np.sin(a), name="doubled")
product = dg.delayed(lambda a, k: np.sin(a * k) * k, name="product")
total = dg.delayed(np.sum)
pair = dg.delayed(lambda a: {"a": a * 2.0, "b": np.sum(a)}, name="pair")


def closures(x):
    result = 0.0
    for k in (1.0, 2.0, 3.0):
        result = result + dg.delayed(lambda a: np.sum(a * k))(x)  # noqa: B023
    return result


def work_array(x):
    buffer, result = numpy.zeros(3), 0.0
    for k in range(3):
        buffer[:] = k + 1.0
        result = result + total(product(x, buffer)) + summed(x * buffer)
    return result


def large_array(x):
    large = numpy.full((300, 300), 0.1)
    return total(product(total(x), large)) + summed(x, total(large))


def in_place(x):
    y = doubled(x)
    y += 1.0
    return summed(y)


def own_arrays(x):
    """NumPy's arrays of numbers, operators of a sum."""
    y = numpy.array([x[0], x[1] * 2.0, numpy.max(x)])
    z = dg.sum([summed(y), summed(y, 2.0), summed(x)]) * 0.5 - 1.0
    return z / 3.0 + summed(x * 2.0 + y)


def items(x):
    y = doubled(x)
    of_nodes = dg.map_sum(lambda i, a: np.sum(i * a), [y[0], y[1], x[2]], x)
    arrays = dg.map_sum(lambda i, a: i * np.sin(a), [1.0, 2.0, 3.0], y)
    slices = dg.reduce_sum(lambda i, a: np.sum(i) * np.sum(a), numpy.arange(9.0), y, grainsize=2)
    pairs = dg.zip([1.0, 2.0], numpy.array([3.0, 4.0]))
    zipped = dg.map_mean(lambda ij, a: np.sum(ij[0] * ij[1] * a), pairs, x)
    return of_nodes + summed(arrays) + slices + zipped


def stopped(x):
    y = doubled(x)
    return summed(y * dg.stop_gradient(y)) + summed(dg.stop_gradient(x)) * total(x)


def container(x):
    value = pair(x)
    return summed(value["a"]) * value["b"]


def generator(x):
    draws = dg.delayed(lambda a, r: np.sum(a * r.standard_normal(3)))
    rng = numpy.random.default_rng(0)
    return draws(x, rng) + draws(x, rng)


def alike(x):
    """A container that is used in parts, in lists, by keyword."""
    p = {"a": x[:2] * 1.5, "b": [x[2], 2]}
    model = dg.delayed(lambda p, k=2.0: np.sum(p["a"]) * p["b"][0] ** p["b"][1] + k)
    return model(p) + model(p, k=x[0]) + dg.delayed(lambda p: p[0] ** 2)([x[1]])


def unread(x):
    product(x, 1.0)
    return summed(x, 2.0)


def inner(x):
    return summed(x * dg.grad(summed)(numpy.ones(3)))


EAGER = [closures, work_array, large_array, in_place, own_arrays, items, stopped, container]
EAGER += [generator, alike, unread, inner]


@pytest.mark.parametrize("fun", EAGER, ids=lambda fun: fun.__name__)
def test_python_between_models(fun, eagerly):
    both = dg.value_and_grad(fun)
    with dask.config.set({"daskgrad.inline.seconds": 0.0}):
        expected = bits(both(X))
    assert [bits(both(X)) for _ in range(3)] == [expected] * 3
    assert eagerly[-2:] == [True, True]


def whole_and_parts(p):
    return summed(p["a"]) + dg.delayed(lambda p: np.sum(p["a"]) * p["b"])(p)


def twice(x):
    value = dg.delayed(lambda a: (a * 2.0, np.sum(a)))(x)
    return summed(value[0]) + summed(value[0], 2.0) * value[1]


def looped(x):
    return total(dg.scan(lambda state: state * 2.0, x, 3))


def elsewhere(x):
    return summed(x, dask.delayed(float)(2.0))


def recomputed(x):
    return dg.delayed(lambda a: np.sum(a**2), keep="recompute")(x)


def own_items(x):
    return dg.map_sum(lambda i: i**2, x)


def annotated(x):
    with dask.annotate(priority=1):
        return summed(x)


def looks(x):
    y = summed(x)
    return y * y.compute()


kept = []


def keeps(x):
    y = doubled(x)
    kept[:] = [y]
    return summed(y)


def strided(x):
    y = doubled(numpy.stack([x, x * 2.0]))
    return summed(y[:, 0] * 2.0) + summed(numpy.sum(y.T * 1.5, axis=1))


def branches(x):
    """Handles the error of a node that an eager evaluation refuses."""
    try:
        return looped(x)
    except TypeError:
        return summed(x)


RECORDED = [(whole_and_parts, {"a": X, "b": 2.0}), (own_items, list(X))]
RECORDED += [(fun, X) for fun in (twice, looped, elsewhere, recomputed, annotated, looks)]
RECORDED += [(fun, X) for fun in (keeps, strided, branches)]


@pytest.mark.parametrize(("fun", "x"), RECORDED, ids=[fun.__name__ for fun, _ in RECORDED])
def test_what_is_for_recorded_graphs(fun, x, eagerly):
    """It is known before, or found out once."""
    both = dg.value_and_grad(fun)
    results = [bits(both(x)) for _ in range(4)]
    assert results == results[:1] * 4
    assert eagerly in ([], [False])
    if fun is keeps:
        assert_allclose(kept[0].compute(), X * 2.0 + np.sin(X))


P = {"a": X, "b": 2.0}
with_b = dg.delayed(lambda a, b: np.sum(a) * b)
whole = dg.delayed(lambda p, k: np.sum(np.sin(k * p["a"])))
of_both = dg.delayed(lambda p, b: np.sum(p["a"]) * p["b"] * b)


def parts(p):
    return with_b(p["a"], p["b"])


def often(p):
    return parts(p) + summed(p["a"]) * summed(p["a"], 2.0)


def in_a_sum(p):
    return dg.map_sum(lambda item, p, b: np.sum(p["a"] * item) * b, [1.0, 2.0], p, p["b"])


def of_one(p):
    return summed(p["a"]) + whole(p, 1.0) * whole(p, 2.0) * summed(p["a"], 2.0)


LIKE = {  # functions of one code: usual ones, and others that use a container whole and in parts
    "a value": (X, lambda x: parts(pair(x)), lambda x: often(pair(x))),
    "an argument": (P, parts, lambda p: of_both(p, 1.0) + often(p)),
    "an argument of one array": ({"a": X}, lambda p: summed(p["a"]), of_one),
    "an argument with a number": ({"a": X, "n": 3}, lambda p: summed(p["a"]), of_one),
    "an argument, twice in a call": (P, parts, lambda p: of_both(p, p["b"])),
    "an argument, twice in a sum": (P, parts, in_a_sum),
}


@pytest.mark.parametrize("name", LIKE)
def test_what_is_known_of_one_function_does_not_hold_for_another_of_its_code(name, eagerly):
    x, usual, apart = LIKE[name]

    def gradient_of(fun):
        return dg.value_and_grad(lambda x: fun(x))

    expected = bits(gradient_of(apart)(x))
    for fun, is_eager in ((usual, True), (usual, True), (apart, False), (apart, False)):
        eager._refused.clear()
        gradient = gradient_of(usual)
        gradient(x)
        eagerly.clear()
        results = bits(gradient(x)), bits(gradient_of(fun)(x))
        assert eagerly == [True, is_eager]
        assert fun is usual or results[1] == expected


class Misfit:
    def misfit(self, p, scale=1.0):
        return often(p) * scale


MISFIT, SCALES = Misfit(), [2.0]
ANEW = {
    "a method": lambda: MISFIT.misfit,
    "a partial": lambda: functools.partial(MISFIT.misfit, scale=2.0),
    "a list": lambda: lambda p, scales=SCALES: often(p) * scales[0],
    "models": lambda: lambda p, models=(parts, often): models[0](p) * models[1](p),
}


@pytest.mark.parametrize("name", ANEW)
def test_functions_that_are_made_anew_run_eagerly(name, eagerly):
    results = [bits(dg.value_and_grad(ANEW[name]())(P)) for _ in range(4)]
    assert results == results[:1] * 4
    assert eagerly == [True] * 3


def test_another_branch_that_uses_a_container_apart_is_recorded(eagerly):
    is_apart = [False]

    def fun(x):
        values = pair(x)
        return often(values) + of_both(values, 1.0) if is_apart[0] else parts(values)

    gradient = dg.grad(fun)
    gradient(X)
    is_apart[0] = True
    gradient(X)
    assert eagerly == [False]


def test_another_use_of_a_container_by_the_same_models_is_recorded(eagerly):
    model = dg.delayed(lambda v, k: np.sum(np.sin(k * (v["a"] if isinstance(v, dict) else v))))
    is_apart = [False]

    def fun(p):
        second = p["a"] if is_apart[0] else p
        return model(p, 1.0) * model(second, 2.0) * model(p, 3.0) * model(second, 4.0)

    gradient = dg.grad(fun)
    for is_apart[0] in (False, False, True):
        gradient(P)
    assert eagerly == [True, False]


def test_what_only_a_later_call_does_is_recorded(eagerly):
    """Whatever handles the refusal, and in whichever thread a model is called."""
    later = [None]

    def other_thread(x):
        with ThreadPoolExecutor(1) as executor:
            return executor.submit(doubled, x).result()

    def objective(x):
        y = x
        if later[0] is not None:
            try:
                y = later[0](x)
            except NotEagerError:
                y = x
        return summed(y)

    gradient = dg.grad(objective)
    changes = [lambda x: doubled(x) + looped(x), other_thread]
    changes += [lambda x: summed(x, dask.delayed(float)(2.0))]
    for change in changes:
        later[0] = None
        eager._refused.clear()
        gradient(X)
        gradient(X)
        assert eagerly[-1]
        later[0] = change
        result = gradient(X)
        assert not eagerly[-1]
        with dask.config.set({"daskgrad.inline.seconds": 0.0}):
            assert result.tobytes() == gradient(X).tobytes()


def test_nobody_writes_into_a_value_that_a_pullback_needs(eagerly):
    looks = [False]

    def objective(x):
        y = doubled(x)
        result = total(product(y, 2.0))
        for value in (x, y) if looks[0] else ():
            dg.value(value)[0] = 9.0
        return result

    gradient = dg.grad(objective)
    expected = gradient(X)
    looks[0] = True
    assert gradient(X).tobytes() == expected.tobytes()
    assert eagerly == [True]


@pytest.mark.parametrize("size", [3, 20_000])
def test_items_of_a_sum_that_has_run_are_kept_if_its_pullback_needs_them(size, eagerly):
    items = [numpy.full(size, 0.1 * n) for n in range(70)]
    square = dg.delayed(lambda y: np.sum(y**2))

    def objective(x, changes):
        sines = dg.map_sum(lambda item, x: np.sin(item[:3] * x), items, x)
        if changes:
            items[5] += 1.0  # the pullback reads it later
        return square(sines)

    gradient = dg.value_and_grad(objective)
    assert bits(gradient(X, False)) == bits(gradient(X, False))
    assert eagerly == [True]
    with pytest.raises((TypeError, ValueError), match=r"changed after the call|read-only"):
        gradient(X, True)


@pytest.mark.parametrize("as_items", [list, np.array, tuple], ids=["list", "rows", "tuple"])
def test_a_buffer_of_items_may_be_filled_anew_for_each_sum(as_items, eagerly):
    """Few items are copied: the pullback of values that are no numbers reads them later."""
    term = dg.delayed(lambda row, x: row * np.sin(x))
    total = dg.delayed(np.sum)

    def objective(x):
        value, rows = 0.0, np.zeros((2, 3))
        items = as_items(list(rows)) if as_items is tuple else rows
        items = list(rows) if as_items is list else items
        for number in range(3):
            for item in items:
                item[:] = number + 1.0
            value = value + total(dg.map_sum(term, items, x))
        return value

    gradient = dg.grad(objective)
    expected = 12.0 * np.cos(X[:3])
    for _ in range(4):
        assert_allclose(gradient(X[:3]), expected)


def test_items_of_a_sum_of_numbers_are_free_once_it_has_run(eagerly, monkeypatch):
    items = [numpy.full(3, 0.1 * n) for n in range(70)]

    def objective(x, changes):
        total = dg.map_sum(lambda item, x: np.sum(np.sin(item * x)), items, x)
        if changes:
            items[5][:] = numpy.nan
        return total

    gradient = dg.value_and_grad(objective)
    expected = gradient(X, False)
    monkeypatch.setattr(as_called, "LargeArrays", None)  # nobody looks at the items again
    assert bits(gradient(X, True)) == bits(expected)
    assert eagerly == [True]


def test_pairs_storage_and_several_arguments(eagerly):
    def objective(p, k, y):
        value = summed(p["a"], y) * k
        return value, {"again": value * 2.0, "own": p["a"], "text": "t", "plain": k}

    out = {"a": numpy.empty(3), "n": None}, numpy.empty(())
    both = dg.value_and_grad(objective, (0, 2), has_aux=True)
    stored = dg.value_and_grad(lambda *args: objective(*args)[0], (0, 2), out=out)
    args = {"a": X, "n": 3}, 2.0, 1.5
    (value, _), gradient = expected = both(*args)
    for _ in range(2):
        (again, other), slopes = both(*args)
        assert bits((again, slopes)) == bits((value, gradient))
        assert other["again"] == 2.0 * value
        assert other["own"] is not X
        assert other["own"].tobytes() == X.tobytes()
        assert (other["text"], other["plain"], slopes[0]["n"]) == ("t", 2.0, None)
        again, slopes = stored(*args)
        assert slopes is out
        assert bits((again, slopes)) == bits((value, gradient))
    assert eagerly == [True] * 3
    assert expected[1][0]["a"].flags.owndata
    with pytest.raises(ValueError, match="shares memory"):
        dg.value_and_grad(lambda x: objective({"a": x}, 1.0, 1.0)[0], out=X)(X)


def test_an_argument_without_influence_is_warned_of(eagerly):
    gradient = dg.grad(lambda x, y: summed(x), (0, 1))
    for _ in range(2):
        with pytest.warns(UserWarning, match="does not depend on 'y'"):
            assert not numpy.any(gradient(X, X)[1])
    with pytest.warns(UserWarning, match="does not depend on 'x'"):
        dg.grad(lambda x: 3.0)(X)
    assert eagerly == [True]


FAILURES = {
    "a model": (
        lambda x: dg.delayed(lambda a: np.sum(a) + 1 // 0, name="odd")(x),
        "model 'odd', called",
    ),
    "an item": (lambda x: dg.map_sum(lambda i, a: 1 / i, [1, 0], x), "item 1, called with (0,"),
    "between models": (lambda x: summed(x @ numpy.ones(5)), "model 'matmul', called with"),
    "a sum": (lambda x: total(dg.sum([doubled(x), doubled(x[:2])])), "in the sum over 'sum'"),
}


@pytest.mark.parametrize("name", FAILURES)
def test_errors_have_the_notes_of_tasks(name, eagerly):
    fun, note = FAILURES[name]
    fails = [False]
    gradient = dg.grad(lambda x: fun(x) if fails[0] else summed(doubled(x)))
    gradient(X)
    fails[0] = True
    with pytest.raises((ZeroDivisionError, ValueError, TypeError)) as error:
        gradient(X)
    assert len(eagerly) == 1
    assert note in "\n".join(error.value.__notes__)


def test_blas_has_the_threads_that_it_has_in_tasks(monkeypatch, eagerly):
    """All of them, unless a model runs beside another: the bits of a product depend on that."""
    seen = []

    class Context:
        def __enter__(self):
            seen.append("one")

        def __exit__(self, *_):
            pass

    monkeypatch.setattr(blas, "ONE_THREAD", Context())
    beside = [False]

    def objective(x):
        y = doubled(doubled(x))
        return summed(y) + summed(y, 2.0) if beside[0] else summed(y)

    gradient = dg.grad(objective)
    for _ in range(3):
        gradient(X)
    assert eagerly == [True, True]
    assert not seen
    beside[0] = True
    gradient(X)
    assert eagerly[2:] == [False], "it is no chain any more"
    assert seen


@pytest.fixture
def kept_objective():
    """An objective, and weak references to arrays that its models return."""
    arrays = []

    def noted(a):
        constant = numpy.ones(3)
        arrays.append(weakref.ref(constant))
        return a * 2.0, constant

    node = dg.delayed(noted)
    gc.disable()
    yield (lambda x: summed(node(x)[0] + node(x)[0])), arrays
    gc.enable()


def test_nothing_is_kept(eagerly, kept_objective):
    """Calls and the nodes of their values refer to each other."""
    objective, arrays = kept_objective
    gradient = dg.grad(objective)
    gradient(X)
    arrays.clear()
    gradient(X)
    assert eagerly == [True]
    assert [reference() for reference in arrays] == [None, None]


# ------------------------------------------------------------------- pullbacks that are held


def several(x):
    y = doubled(x)
    return {"y": y, "sum": summed(y * x), "x": x * 2.0, "both": [pair(y)["a"], y + 1.0], "n": 3}


def whole_container(x):
    return pair(doubled(x))


@pytest.mark.parametrize("fun", [*EAGER, several, whole_container, doubled, stopped])
def test_pullbacks_have_the_bits_of_recorded_ones(fun, eagerly):
    def results():
        value, pullback = dg.vjp(fun, X)
        seeds = map_leaves(lambda v: None if isinstance(v, int) else np.cos(v) + 1.0, value)
        stacked = map_leaves(lambda v: v if v is None else np.stack([v, v * 2.0]), seeds)
        (one,), (again,), (both,) = pullback(seeds), pullback(seeds), pullback(stacked)
        assert one.tobytes() == again.tobytes() == both[0].tobytes()
        return list(map(type, flatten(value)[0])), flat(value).tobytes(), both.tobytes()

    expected = results()
    assert [results() for _ in range(2)] == [expected] * 2
    assert eagerly[-2:] == [True, True]


def test_a_held_pullback_of_several_arguments_and_threads(eagerly):
    """Primals are copied, integers have no cotangent, an argument may have no influence."""
    weights, data = {"w": X.copy(), "n": 2}, [X.copy(), "text"]

    def objective(p, n, d, unused):
        return summed(p["w"], n) + total(product(d[0], p["w"]))

    _, recorded = dg.vjp(objective, weights, 2, data, 1.0)
    value, pullback = dg.vjp(objective, weights, 2, data, 1.0)
    assert eagerly == [True]
    weights["w"][:] = data[0][:] = 9.0
    with pytest.warns(UserWarning, match="does not depend on 'unused'"):
        expected = recorded(value)
    with pytest.warns(UserWarning, match="does not depend on 'unused'"), ThreadPoolExecutor(4) as e:
        results = list(e.map(lambda _: pullback(value), range(32)))
    assert {flat(result).tobytes() for result in results} == {flat(expected).tobytes()}
    (p, n, d, unused) = results[0]
    assert (p["n"], n, d[1], unused) == (None, None, None, 0.0)
    assert not numpy.shares_memory(results[0][0]["w"], results[1][0]["w"])


def test_a_held_pullback_tells_that_a_large_array_has_changed(eagerly):
    large = numpy.full(60_000, 0.1)
    view = large[:]  # which no lock reaches
    value, pullback = [dg.vjp(lambda x: total(product(total(x), large)), X) for _ in range(2)][1]
    assert eagerly == [True]
    pullback(value)
    view[0] = 2.0
    with pytest.raises(TypeError, match="model 'product' has changed after the call"):
        pullback(value)


def test_nothing_is_kept_of_a_pullback(eagerly, kept_objective):
    objective, arrays = kept_objective
    dg.vjp(objective, X)
    arrays.clear()
    value, pullback = dg.vjp(objective, X)
    assert eagerly == [True]
    pullback(value)
    assert [reference() is None for reference in arrays] == [False, False]
    del pullback
    assert [reference() for reference in arrays] == [None, None]


@pytest.mark.parametrize("derivative", [dg.vjp, lambda fun, x: dg.grad(fun)(x)])
def test_nothing_is_kept_after_an_error_of_a_model(derivative, eagerly, kept_objective):
    objective, arrays = kept_objective
    fails = []
    fail = dg.delayed(lambda a: [a][len(fails)])

    def failing(x):
        return fail(objective(x))

    derivative(failing, X)
    arrays.clear()
    fails.append(True)
    with contextlib.suppress(IndexError):
        derivative(failing, X)
    assert eagerly == [False]
    assert [reference() is None for reference in arrays] == [True, True]
