"""A call sees its arguments, its closure and what it refers to as they were when it was called.

``programs/changing`` has the programs; here they run on each way.
"""

import contextlib
import re
import threading
from concurrent.futures import ThreadPoolExecutor

import changing
import dask
import numpy as np
import pytest
from changing import LARGE, NUMBERS, PROGRAMS, Recorded, X, reference, square
from distributed import Client, LocalCluster
from tables import pattern

import daskgrad as dg

AT_ONCE = {"daskgrad.inline.seconds": 60.0}
BY_DASK = {"daskgrad.inline.seconds": 0.0}
EYE = np.eye(3)
WITHOUT = {"jvp": {"closure_of_a_rule"}, "hvp": {"closure_of_a_rule", "closure_of_differences"}}


def gradients(fun, times=1):
    derivative = dg.value_and_grad(fun)
    return [derivative(X.copy()) for _ in range(times)]


def tangents(fun):
    pairs = [dg.jvp(fun, (X.copy(),), (direction,)) for direction in EYE]
    return [(pairs[0][0], np.array([tangent for _, tangent in pairs]))]


def pullback(fun):
    value, pull = dg.vjp(fun, X.copy())
    return [(value, pull(np.float64(1.0))[0])]


def products(fun):
    return [(None, dg.hvp(fun, (X.copy(),), (EYE[0],))[0][0])]


WAYS = {
    "in line, a program at last": (AT_ONCE, lambda fun: gradients(fun, 14)),
    "sync": ({**BY_DASK, "scheduler": "sync"}, gradients),
    "threads": ({**BY_DASK, "scheduler": "threads"}, gradients),
    "jvp": ({**BY_DASK, "scheduler": "sync"}, tangents),
    "vjp": ({**BY_DASK, "scheduler": "sync"}, pullback),
    "hvp": ({**BY_DASK, "scheduler": "sync"}, products),
}


@pytest.fixture(scope="module")
def threads_of_a_cluster():
    options = {"n_workers": 2, "threads_per_worker": 1, "processes": False}
    options["dashboard_address"] = "127.0.0.1:0"
    with LocalCluster(**options) as local, Client(local) as client:
        yield client


def require_right_or_refused(name, evaluate):
    """Values and slopes are NumPy's, or an error has the program's words."""
    fun, words = PROGRAMS[name]
    value, gradient = reference(fun)
    refused = pytest.raises((TypeError, ValueError, AttributeError))
    with refused if words else contextlib.nullcontext() as caught:
        for found, slopes in evaluate(lambda x: fun(Recorded, x)):
            np.testing.assert_allclose(value if found is None else found, value, rtol=1e-9)
            np.testing.assert_allclose(slopes, gradient, rtol=1e-4, atol=1e-5)
    if words:
        notes = getattr(caught.value, "__notes__", [])
        assert re.search(words, "\n".join([str(caught.value), *notes]))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_values_are_those_of_the_line(name, way):
    if name in WITHOUT.get(way, ()):
        pytest.skip("it has no such derivative")
    config, evaluate = WAYS[way]
    with dask.config.set(config):
        require_right_or_refused(name, evaluate)


@pytest.mark.parametrize("name", PROGRAMS)
def test_values_are_those_of_the_line_on_a_cluster(name, threads_of_a_cluster):
    require_right_or_refused(name, gradients)


# ------------------------------------------------------------------------- later than a call


def test_a_held_pullback_sees_what_its_call_saw():
    weights = np.ones(3)
    model = dg.delayed(lambda w, x: np.sum(w * x**2), keep="recompute")
    value, pull = dg.vjp(lambda x: model(weights, x), X)
    weights[:] = 7.0
    np.testing.assert_array_equal(pull(np.float64(1.0))[0], 2.0 * X)
    assert value == square(X)


def test_lazy_derivatives_see_what_the_call_saw():
    k, weights = 2.0, np.ones(3)
    x = dg.variable(X)
    output = dg.delayed(lambda w, x: k * np.sum(w * weights * x**2))(weights, x)
    lazy = dg.differentiate(output, x)
    k, weights[:] = 5.0, 3.0
    value, gradient = dask.compute(*lazy)
    assert value == 2.0 * square(X)
    np.testing.assert_array_equal(gradient, 4.0 * X)
    large = np.ones(LARGE)
    late = dg.delayed(lambda w, x: np.sum(w) * np.sum(x))(large, x)
    large[0] = 2.0
    with pytest.raises(TypeError, match=r"an array among the arguments of a model has changed"):
        late.compute()


def even(n, x):
    return x * SCALE if n == 0 else odd(n - 1, x)


def odd(n, x):
    return even(n - 1, x)


SCALE = 2.0


def test_functions_that_call_each_other_see_what_the_call_saw(monkeypatch):
    late = dg.delayed(lambda x: np.sum(even(2, x)))(X)
    monkeypatch.setitem(globals(), "SCALE", 5.0)
    assert late.compute() == 2.0 * np.sum(X)


def test_long_chains_of_closures_see_what_the_call_saw():
    def within(inner):
        return lambda: inner

    k = deep = 2.0
    for _ in range(10_000):
        deep = within(deep)

    def model(x):
        inner = deep
        while callable(inner):
            inner = inner()
        return np.sum(k * inner * x)

    with dask.config.set({**BY_DASK, "scheduler": "sync"}):
        late = dg.delayed(model)(X)
        k = 5.0
        assert late.compute() == 4.0 * np.sum(X)


def test_other_derivatives_see_what_the_call_saw():
    def residuals(x):
        return sum(dg.delayed(lambda x: k * x**2)(x) for k in NUMBERS)  # noqa: B023

    np.testing.assert_allclose(dg.jacobian(residuals)(X), np.diag(12.0 * X))
    of_lambdas = PROGRAMS["lambda_in_a_loop"][0]
    np.testing.assert_allclose(dg.hessian(lambda x: of_lambdas(Recorded, x))(X), 12.0 * EYE)


def test_functions_that_count_their_calls_go_on_counting():
    calls = []
    count = 0

    def model(x):
        nonlocal count
        count += 1
        calls.append(count)
        return square(x)

    with dask.config.set({**BY_DASK, "scheduler": "sync"}):
        dg.grad(lambda x: dg.delayed(model)(x) + dg.delayed(model)(2.0 * x))(X)
    assert calls == [1, 2] == [1, count]


def test_arrays_are_open_again_after_the_call():
    large, views = np.ones(LARGE), []
    views += [large[1:], large[:5]]

    def objective(x):
        for array in (large, *views):
            total = dg.delayed(lambda a, x: np.sum(a) * np.sum(x))(array, x)
        assert not large.flags.writeable
        return total

    with pytest.raises(KeyError):
        dg.grad(lambda x: [objective(x), {}["its error"]])(X)
    dg.grad(objective)(X)
    assert [array.flags.writeable for array in (large, *views)] == [True, True, True]
    both_record = threading.Barrier(2)

    def meets(x):
        total = objective(x)
        both_record.wait()
        return total

    with ThreadPoolExecutor(2) as threads:
        list(threads.map(dg.grad(meets), [X, X]))
    assert [array.flags.writeable for array in (large, *views)] == [True, True, True]


def test_the_error_names_the_model_the_thing_and_the_line():
    scaled = changing.Scaled(1.0)

    def objective(x):
        value = dg.delayed(scaled.value, name="scaled")(x)
        scaled.scale = 2.0
        return value

    message = pattern(
        f"'scaled.scale', to which model 'scaled' refers, has changed after the call in "
        f"{__file__}, line ..., that uses it, and before that ran: models run when the function "
        f"that calls them has returned; pass it as an argument, scaled(...)"
    )
    with pytest.raises(TypeError, match=message):
        dg.grad(objective)(X)


def test_an_index_that_is_not_there_is_an_error_where_it_stands():
    def objective(x):
        try:
            return x[7]
        except IndexError:
            return x[0]

    assert dg.grad(objective)(X).tolist() == [1.0, 0.0, 0.0]
