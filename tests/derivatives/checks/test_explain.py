"""Explanations of objectives: a program or not, since which call, and the one reason in the way."""

import dask
import numpy as np
import pytest
from fuzzers import ticking

import daskgrad as dg

X = np.array([1.5, 0.9])
T = np.linspace(0.0, 3.0, 20)


@pytest.fixture(autouse=True)
def in_line(monkeypatch):
    ticking(monkeypatch)
    with dask.config.set({"daskgrad.inline.seconds": 60}):
        yield


def decay(p):
    return np.sum((1.0 - p[0] * np.exp(-p[1] * T)) ** 2)


def objective(p):
    return dg.delayed(decay)(p) + 0.1 * np.sum(p**2)


def prints(p):
    print("called")
    return dg.delayed(decay)(p)


def catches(p):
    try:
        return dg.delayed(decay)(p)
    except ValueError:
        return 0.0


def of_traced(p):
    return dg.delayed(decay, compile=False)(p)


def of_items(p):
    return dg.map_sum(lambda t, p: (t - p[0]) ** 2, list(T) * 5, p)


def test_an_objective_tells_since_when_it_is_a_program():
    said = str(dg.explain(objective)(X))
    assert said.startswith("'objective' will be compiled after ")
    gradient = dg.value_and_grad(objective)
    for _ in range(12):
        gradient(X)
    program = "'objective' is compiled: its value and gradient is one program, since call "
    assert str(dg.explain(gradient)).startswith(program)
    assert dg.explain(dg.grad(objective)) == dg.explain(gradient)
    state, times = str(dg.explain(gradient, X)).split("\n")
    assert state.startswith(program)
    assert "without its program" in times


def test_explanations_repeat_the_effects_of_calls_and_nothing_else():
    values = [dg.value_and_grad(objective)(X)[0] for _ in range(12)]
    dg.explain(dg.value_and_grad(objective), X)
    assert dg.value_and_grad(objective)(X)[0] == values[0]


@pytest.mark.parametrize(
    ("fun", "reason", "advice"),
    [
        (prints, "is not compiled: it calls 'print', in ", "; leave it out, or pass it"),
        (catches, "is not compiled: it catches exceptions", "around the derivative's call"),
        (of_traced, "is not compiled: model 'decay' is not compiled", "dg.explain of that model"),
        (of_items, "need not be: the sum over '<lambda>' has other or many items", "own"),
    ],
)
def test_the_reason_is_the_objectives_own(fun, reason, advice, capsys):
    gradient = dg.value_and_grad(fun)
    for _ in range(40):
        gradient(X)
    said = str(dg.explain(gradient)) + str(dg.explain(fun, X))
    assert said.count(reason) == 2
    assert said.count(advice) == 2
    if fun is prints:
        assert f"{__file__}:{fun.__code__.co_firstlineno + 1}" in said


def test_compile_off_is_the_reason():
    with dask.config.set({"daskgrad.compile": False}):
        assert "daskgrad.compile) says so" in str(dg.explain(dg.value_and_grad(objective), X))
