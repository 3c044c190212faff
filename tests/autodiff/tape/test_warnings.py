"""Warnings of NumPy name the model's file and line, on the tape and compiled."""

import functools
import inspect
import warnings

import dask
import numpy as np
import pytest

import daskgrad as dg
from daskgrad.autodiff.tape import numpy_warnings
from daskgrad.autodiff.tape.reverse import trace


def risky(item, x):
    a = np.exp(x[0] * item)
    return np.sum(np.log(a - 1.0))


GOOD, POOR = [np.array([1.0, 2.0])] * 4, [np.array([1.0, 0.0])] * 4
X = np.array([0.5])


@pytest.mark.parametrize("is_compiled", [False, True])
def test_a_warning_names_the_line_of_the_model(is_compiled, synchronous):
    model = dg.delayed(risky, compile=is_compiled)
    gradient = dg.grad(lambda items, x: dg.map_sum(model, items, x), 1)
    for number in range(12 if is_compiled else 1):
        gradient(GOOD, X + 0.01 * number)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        gradient(POOR, X)
    assert {warning.filename for warning in caught} == {__file__}
    _, first = inspect.getsourcelines(risky)
    forward = {w.lineno for w in caught if str(w.message) == "divide by zero encountered in log"}
    assert forward == {first + 2}
    others = [w for w in caught if w.lineno != first + 2]
    assert all(["risky" in str(w.message) or w.lineno == first + 1 for w in others])


def root(x):
    return np.sum(np.sqrt(x))


BETWEEN = {
    "an expression": lambda x: dg.grad(lambda x: np.sum(np.sqrt(x)))(x),
    "an operator": lambda x: dg.grad(lambda x: (dg.delayed(np.sum)(x) ** 0.5) * 2.0)(x),
    "a function": lambda x: dg.grad(lambda x: 2.0 * np.sqrt(dg.delayed(np.sum)(x)))(x),
    "its value": lambda x: dg.grad(lambda x: dg.delayed(np.sum)(np.exp(1e3 * (x + 1.0))))(x),
    "a product": lambda x: dg.hvp(lambda x: np.sum(np.sqrt(x)), (x,), (x + 1.0,)),
}


@pytest.mark.parametrize("where", ["inline", "threads"])
@pytest.mark.parametrize("name", BETWEEN)
def test_a_warning_names_the_line_of_numpy_between_models(name, where):
    settings = {"daskgrad.inline.seconds": 60.0 if where == "inline" else 0.0}
    with dask.config.set(settings), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        BETWEEN[name](np.zeros(2))
    line = BETWEEN[name].__code__.co_firstlineno
    assert {(warning.filename, warning.lineno) for warning in caught} == {(__file__, line)}


def test_a_warning_names_the_model_of_a_tangent(synchronous):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        dg.hvp(dg.delayed(functools.partial(root), compile=False), (np.zeros(2),), (np.ones(2),))
    line = root.__code__.co_firstlineno
    assert {(warning.filename, warning.lineno) for warning in caught} == {(__file__, line)}


def test_a_warning_of_a_value_in_forward_mode_names_the_line_of_the_model(synchronous):
    model = dg.delayed(functools.partial(risky, POOR[0]), compile=False)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        dg.jvp(model, (X,), (X,))
    assert caught[0].filename == __file__


def test_numpy_has_the_variable_of_its_state():
    assert numpy_warnings.STATE.get() is numpy_warnings.DEFAULT
    with np.errstate(all="raise"), pytest.raises(FloatingPointError):  # the user's own holds
        trace(lambda x: [np.log(x)], [np.zeros(1)])
    states = []
    trace(lambda x: [states.append(np.geterr()["divide"]) or x], [np.ones(1)])
    assert [*states, np.geterr()["divide"]] == ["call", "warn"]
