"""Warnings of NumPy name the model's file and line, on the tape and compiled."""

import inspect
import warnings

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


def test_numpy_has_the_variable_of_its_state():
    assert numpy_warnings.STATE.get() is numpy_warnings.DEFAULT
    with np.errstate(all="raise"), pytest.raises(FloatingPointError):  # the user's own holds
        trace(lambda x: [np.log(x)], [np.zeros(1)])
    states = []
    trace(lambda x: [states.append(np.geterr()["divide"]) or x], [np.ones(1)])
    assert [*states, np.geterr()["divide"]] == ["call", "warn"]
