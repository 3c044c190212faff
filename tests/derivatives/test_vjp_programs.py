"""Forward passes that are programs, and their pullbacks."""

import dask
import numpy as np
import pytest
from comparisons import assert_same
from test_jacobian import FUNCTIONS, GRID, STRUCTURES
from test_jacobian import X as ENTRIES
from test_objectives import A, X

import daskgrad as dg
from daskgrad.autodiff.values.trees import map_leaves
from daskgrad.derivatives import eager
from daskgrad.derivatives.vjp import ForwardPassOfProgram

pytestmark = pytest.mark.usefixtures("whole_programs")

wave = dg.delayed(lambda x: np.sin(x) * x)
energy = dg.delayed(lambda x: np.sum(np.exp(-x) * x))
root = dg.delayed(lambda x: np.sqrt(x))


def cotangent_of(value, factor):
    return map_leaves(lambda leaf: (factor * leaf + 1.0).astype(np.asarray(leaf).dtype), value)


def terms(x):
    total = dg.map_sum(lambda row, x: np.dot(row, x) ** 2, list(A), x)
    return {"state": wave(wave(x)) * total, "both": [total, energy(x)], "x": x}


ALONG = {
    "a chain": lambda x: wave(wave(wave(x))),
    "a forked chain": lambda x: wave(x) * energy(wave(x)) + wave(x),
    "a sum": lambda x: dg.map_sum(lambda row, x: np.sin(row * x), list(A), x),
    "a tree": terms,
    "NumPy between models": lambda x: np.outer(wave(x), x)[1:].T * 2.0,
    "an array in a closure": lambda x: wave(x) * A[0] + x,
    "halves": lambda x: np.concatenate([wave(x[:2]), x[2:], wave(x)[::2]]),
}


def pulled(fun, point):
    """A value, and cotangents for several; one is taken twice, and several at once."""
    value, pullback = dg.vjp(fun, point)
    one, other = cotangent_of(value, 0.5), cotangent_of(value, -1.5)
    stacked = map_leaves(lambda *leaves: np.stack(leaves), one, other)
    return value, pullback(one), pullback(other), pullback(one), pullback(stacked)


@pytest.mark.parametrize("name", ALONG)
def test_pullbacks_have_the_bits_of_the_graph(name, taken):
    fun, points = ALONG[name], [X, 0.5 - X, np.zeros_like(X)]
    with dask.config.set({"daskgrad.compile": False}):
        expected = [pulled(fun, point) for point in points]
    for number in range(60):
        result = pulled(fun, points[number % 3])
        assert_same(result, expected[number % 3])
        map_leaves(lambda leaf: leaf.fill(np.nan) if isinstance(leaf, np.ndarray) else 0, result)
    assert taken()


@pytest.mark.parametrize("name", [*FUNCTIONS, *STRUCTURES])
def test_more_of_them(name):
    fun, *_ = (FUNCTIONS | STRUCTURES)[name]
    point = ENTRIES if name in FUNCTIONS else GRID
    with dask.config.set({"daskgrad.compile": False}):
        expected = pulled(fun, point)
    for _ in range(30):
        assert_same(pulled(fun, point), expected)


def held_program(fun, *primals):
    """A forward pass of a program, after so many calls that there is one."""
    for _ in range(30):
        dg.vjp(fun, *primals)
    return dg.vjp(fun, *primals)


def test_the_primals_are_copied(taken):
    point = X.copy()
    for _ in range(30):
        value, pullback = dg.vjp(wave, point)
        expected = pullback(np.ones(5))
        point[:] = np.nan
        assert_same(pullback(np.ones(5)), expected)
        assert np.isfinite(value).all()
        point[:] = X
    assert taken()


def test_a_cotangent_that_the_program_does_not_take_goes_the_ordinary_way(taken):
    def both(x):
        return {"first": wave(x), "second": energy(x)}

    point = X.copy()
    _, pullback = held_program(both, point)
    point[:] = np.nan
    assert taken()
    assert_same(pullback({"first": None, "second": 1.0}), dg.vjp(energy, X)[1](1.0))


def test_a_pullback_warns_as_the_model_does(taken):
    _, pullback = held_program(root, np.abs(X))
    _, of_zero = held_program(root, np.zeros(5))
    assert taken()
    assert np.isfinite(pullback(np.ones(5))[0]).all()
    with pytest.warns(RuntimeWarning, match="divide by zero"):
        assert np.isinf(of_zero(np.ones(5))[0]).all()


@pytest.mark.parametrize("size", [5, 1000])
def test_an_array_in_a_closure_may_change_between_calls(size, taken):
    point, weights = np.linspace(0.5, 1.5, size), np.linspace(1.0, 2.0, size)

    def weighted(x):
        return wave(x) * weights

    for _ in range(60):
        _, pullback = dg.vjp(weighted, point)
        before = dg.vjp(lambda x, y: wave(x) * y, point, weights.copy())[1](np.ones(size))[0]
        weights += 1.0
        assert_same(pullback(np.ones(size)), (before,))
    assert taken()


def test_a_pullback_is_compared_now_and_then(monkeypatch):
    held_program(wave, X)
    monkeypatch.setattr(eager.Sweep, "pull", lambda *_: {})
    monkeypatch.setattr(eager, "warn_of_independent", lambda *_: None)
    with pytest.raises(dg.NondeterministicModelError, match="different values or gradients"):
        held_program(wave, X)


def test_an_output_that_depends_on_no_primal_has_no_program():
    def fun(x, y):
        return wave(x)

    for _ in range(30):
        _, pullback = dg.vjp(fun, X, X)
        with pytest.warns(UserWarning, match="does not depend on 'y'"):
            pullback(np.ones(5))


def test_no_program_serves_rows():
    for _ in range(30):
        _, pullback = dg.vjp(dg.delayed(lambda w: w[1]), A, sparse=True)
        assert isinstance(pullback(np.ones(5))[0], dg.Rows)


def test_programs_are_made_for_pullbacks_alone():
    *_, program = [dg.vjp(wave, X)[1] for _ in range(31)]
    (held,) = [c.cell_contents for c in program.__closure__ if hasattr(c.cell_contents, "pull")]
    assert type(held) is ForwardPassOfProgram
