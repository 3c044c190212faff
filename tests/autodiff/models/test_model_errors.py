"""Errors of models arrive with their type and name the model; options and NaN."""

import threading

import autograd.numpy as anp
import dask
import numpy as np
import pytest
from autograd.extend import defvjp, primitive
from inputs import X, double, energy, notes
from numpy.testing import assert_allclose, assert_array_equal

import daskgrad as dg

pytestmark = pytest.mark.usefixtures("synchronous")

# -------------------------------------------------------------------------- errors from models


@primitive
def fragile(x):
    return 1.0 * x


def fragile_vjp(ans, x):
    def fragile_pullback(g):
        raise FloatingPointError("the pullback failed")

    return fragile_pullback


defvjp(fragile, fragile_vjp)


class ReactorError(Exception):
    """One whose ``__init__`` does not take its ``args``."""

    def __init__(self, temperature, *, pressure):
        super().__init__(f"{temperature} K at {pressure} bar")
        self.temperature = temperature


class LockedError(ValueError):
    pass


def raise_value(x, flag=False):
    raise ValueError("the model failed")


def raise_reactor(x, flag=False):
    raise ReactorError(300, pressure=2)


def raise_linalg(x, flag=False):
    np.linalg.inv(np.zeros((2, 2)))


def raise_by_item(item, x):
    item = item[0] if isinstance(item, list) else item
    if item == 5.0:
        raise KeyError("item five")
    return item * anp.sum(x)


def raise_in_the_pullback(x):
    return fragile(x)


@pytest.mark.parametrize(
    ("fun", "kind", "text"),
    [
        (raise_value, ValueError, "the model failed"),
        (raise_reactor, ReactorError, "300 K at 2 bar"),
        (raise_linalg, np.linalg.LinAlgError, "Singular matrix"),
    ],
)
def test_an_exception_keeps_its_type_and_names_the_model(fun, kind, text, scheduler):
    model = dg.delayed(fun, name="model")
    where = "called with (float64[3], flag=True)"
    with pytest.raises(kind, match=text) as caught:
        dg.grad(lambda x: energy(x) + model(x, flag=True))(X)
    assert f"in the forward pass of model 'model', {where}" in notes(caught.value)
    assert kind is not ReactorError or caught.value.temperature == 300
    with pytest.raises(kind, match=text) as caught:
        model(X, flag=True).compute()
    assert f"in the value pass of model 'model', {where}" in notes(caught.value)


def test_an_exception_in_a_pullback_names_the_model(scheduler):
    model = dg.delayed(raise_in_the_pullback, name="model")
    with pytest.raises(FloatingPointError, match="the pullback failed") as caught:
        dg.grad(lambda x: energy(model(x)))(X)
    assert "in the backward pass of model 'model', called with (float64[3])" in notes(caught.value)


@pytest.mark.parametrize("add_up", ["map_sum", "nodes"])
def test_an_exception_in_a_sum_names_the_item(add_up, scheduler):
    def total(x):
        items = [float(i) for i in range(8)]
        if add_up == "nodes":
            items = [[dg.delayed(float)(i), 1.0] for i in items]
        return dg.map_sum(raise_by_item, items, x, grainsize=4)

    message = "pass of model 'raise_by_item'" + (", item 5" if add_up == "map_sum" else "")
    with pytest.raises(KeyError, match="item five") as caught:
        dg.grad(total)(X)
    assert f"in the forward {message}, called with (" in notes(caught.value)
    with pytest.raises(KeyError, match="item five") as caught:
        total(X).compute()
    assert f"in the value {message}, called with (" in notes(caught.value)


def test_an_exception_that_holds_a_lock_does_not_take_its_process_along(pool):
    def model(x):
        error = LockedError("locked", threading.Lock())
        error.lock = threading.Lock()
        raise error

    with dask.config.set(scheduler="processes", pool=pool):
        with pytest.raises(LockedError, match="locked") as caught:
            dg.grad(dg.delayed(model, name="model"))(X)
        assert "forward pass of model 'model'" in notes(caught.value)
        assert_allclose(dg.grad(energy)(X), 2 * X)


@pytest.mark.parametrize("linked", ["itself", "its cause", "one of a group"])
@pytest.mark.parametrize("where", ["a call", "a sum", "placed items"])
def test_an_exception_that_holds_a_lock_keeps_its_type_on_a_cluster(linked, where, client):
    def model(*args):
        error = LockedError("locked", threading.Lock())
        error.lock = threading.Lock()
        error.number = 3
        if linked == "its cause":
            raise KeyError("why") from error
        raise error if linked == "itself" else ExceptionGroup("both", [error, KeyError("why")])

    model = dg.delayed(model, name="model")

    def objective(x):
        if where == "a call":
            return model(x)
        items = [1.0, 2.0]
        return dg.map_sum(model, dg.place(items) if where == "placed items" else items, x)

    kind = {"itself": LockedError, "its cause": KeyError, "one of a group": ExceptionGroup}[linked]
    with pytest.raises(kind) as caught:
        dg.grad(objective)(X)
    error = caught.value
    assert "forward pass of model 'model'" in notes(error)
    if linked != "itself":
        error = error.__cause__ if linked == "its cause" else error.exceptions[0]
    assert type(error) is LockedError
    assert error.args[0] == "locked"
    assert error.number == 3
    assert "lock object" in error.args[1]
    assert "lock object" in error.lock


def recurse(x, depth=0):
    return recurse(x, depth + 1)


def recurse_for_a_reason(x):
    try:
        recurse(x)
    except RecursionError as error:
        raise ValueError("too deep") from error


@pytest.mark.parametrize(
    ("fun", "kind"), [(recurse, RecursionError), (recurse_for_a_reason, ValueError)]
)
def test_an_endless_recursion_is_an_error_and_not_a_hang(fun, kind, scheduler):
    """Pickle is recursive, too, and its tracebacks are nested."""
    model = dg.delayed(fun, name="model")
    with dask.config.set({"daskgrad.wait.evaluation": 20}):
        with pytest.raises(kind, match=r"recursion|too deep") as caught:
            dg.grad(lambda x: energy(model(x)))(X)
        error = caught.value
        assert "forward pass of model 'model'" in notes(error)
        deep = error if kind is RecursionError else error.__cause__
        if scheduler != "processes":  # Dask sends no causes from there
            assert isinstance(deep, RecursionError)
            assert "frames were removed from this long traceback" in notes(deep)
        with pytest.raises(kind, match=r"recursion|too deep"):
            dg.grad(lambda x: dg.map_sum(lambda i, x: fun(x), dg.place([1.0, 2.0]), x))(X)


@pytest.mark.parametrize("name", ["sync", "threads"])
def test_a_keyboard_interrupt_is_not_swallowed(name):
    def model(x):
        raise KeyboardInterrupt

    with dask.config.set(scheduler=name), pytest.raises(KeyboardInterrupt) as caught:
        dg.grad(dg.delayed(model))(X)
    assert not notes(caught.value)


def test_a_users_own_error_gets_no_hint_about_autograd():
    with pytest.raises(ValueError, match="the model failed") as caught:
        dg.grad(dg.delayed(raise_value))(X)
    assert "autograd" not in notes(caught.value)


# ------------------------------------------------------------------------------- NaN and inf


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_nan_and_infinity_pass_through():
    x = np.array([np.nan, np.inf, -np.inf, 1.0])
    value, gradient = dg.value_and_grad(lambda x: energy(double(x)))(x)
    assert np.isnan(value)
    assert_array_equal(gradient, 8 * x)
    total = dg.value_and_grad(lambda x: dg.map_sum(lambda i, x: i * anp.sum(x), [1.0, 2.0], x))
    value, gradient = total(np.array([np.inf, 1.0]))
    assert value == np.inf
    assert_array_equal(gradient, [3.0, 3.0])


@pytest.mark.parametrize("special", [np.nan, np.inf, -np.inf])
def test_a_cotangent_may_be_nan_or_infinite(special):
    _, pullback = dg.vjp(double, X)
    (gradient,) = pullback(np.array([special, 1.0, 2.0]))
    assert_array_equal(gradient, [special, 2.0, 4.0])
