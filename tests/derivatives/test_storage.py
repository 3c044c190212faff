"""Gradients that are written into arrays of the caller's."""

import dask
import numpy as np
import pytest
from comparisons import assert_same
from probes import peak_bytes
from test_objectives import (
    A,
    X,
    assert_written,
    energy,
    regression,
    single,
    storage_like,
)

import daskgrad as dg

PROGRAMS = {
    "one model": (lambda x: dg.delayed(energy)(x), (X,), 0),
    "a sum": (lambda x: dg.map_sum(lambda row, x: np.sum(np.sin(row * x)), A, x), (X,), 0),
    "a tree and a number": (
        lambda p, b: dg.delayed(regression)(p["w"], b, A) + dg.delayed(single)(p["n"]),
        ({"w": X, "n": 0.5, "name": "p"}, 0.3),
        (1, 0),
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_graph_writes(name, synchronous):
    fun, args, argnums = PROGRAMS[name]
    expected = dg.value_and_grad(fun, argnums)(*args)
    out = storage_like(expected[1])
    assert_written(dg.value_and_grad(fun, argnums, out=out)(*args), expected, out)


def test_strided_storage_and_an_auxiliary(synchronous):
    table = np.full((5, 3), np.nan)
    both = dg.value_and_grad(
        lambda x: (dg.delayed(energy)(x), dg.delayed(np.sin)(x)), has_aux=True, out=table[:, 1]
    )
    (value, aux), gradient = both(X)
    assert np.shares_memory(gradient, table)
    assert_same((value, table[:, 1].copy()), dg.value_and_grad(dg.delayed(energy))(X))
    assert_same(aux, np.sin(X))
    assert np.isnan(table[:, [0, 2]]).all()


def test_what_does_not_matter_is_zero(synchronous):
    out = (np.full(5, np.nan), np.full(5, np.nan))
    model = dg.delayed(lambda x, y: np.sum(x), compile=True)
    with dask.config.set({"daskgrad.inline.seconds": 60}):
        for _ in range(10):
            with pytest.warns(UserWarning, match="does not depend on 'y'"):
                dg.value_and_grad(model, (0, 1), out=out)(X, X)
            assert_same(out, (np.ones(5), np.zeros(5)))


WRONG = {
    "a list for an array": ([np.zeros(5)], ValueError, r"structure of the gradient, float64\[5\]"),
    "no array": (0.0, TypeError, "out of 'model': expected a NumPy array; found 0.0"),
    "a masked array": (np.ma.zeros(5), TypeError, "expected a NumPy array"),
    "another shape": (np.zeros((5, 1)), ValueError, r"expected shape \(5,\), found \(5, 1\)"),
    "another dtype": (np.zeros(5, "f"), TypeError, "expected dtype float64, found float32"),
    "a read-only array": (np.zeros(5), ValueError, "the array is read-only"),
    "a broadcast array": (
        np.lib.stride_tricks.as_strided(np.zeros(1), (5,), (0,)),
        ValueError,
        "it is broadcast",
    ),
}
WRONG["a read-only array"][0].flags.writeable = False


@pytest.mark.parametrize("is_compiled", [True, False])
@pytest.mark.parametrize("name", WRONG)
def test_wrong_storage(name, is_compiled):
    out, kind, message = WRONG[name]
    with dask.config.set({"daskgrad.inline.seconds": 60}):
        gradient = dg.value_and_grad(dg.delayed(energy, name="model", compile=is_compiled), out=out)
        for _ in range(8 if is_compiled else 1):
            with pytest.raises(kind, match=message):
                gradient(X)


@pytest.mark.parametrize("is_compiled", [True, False])
def test_storage_that_shares_memory(is_compiled):
    memory = np.ones(12)
    model = dg.delayed(regression, compile=is_compiled)
    rows = np.ones((3, 5))
    cases = [
        (memory[:5], np.zeros(()), memory[2:7], r"out\[0\] .* shares memory with an argument"),
        (memory[:5], np.zeros(()), memory[:5], r"out\[0\] .* shares memory with an argument"),
        (rows[0], np.zeros(()), X, r"out\[0\] .* shares memory with an argument"),
        (memory[:5], memory[3:4].reshape(()), X, r"out\[\d\] .* shares memory with out\[\d\]"),
    ]
    with dask.config.set({"daskgrad.inline.seconds": 60}):
        for first, second, x, message in cases:
            gradient = dg.value_and_grad(model, (0, 1), out=(first, second))
            for _ in range(8):
                with pytest.raises(ValueError, match=message):
                    gradient(x, 0.5, rows)
        out = (memory[0:10:2], np.zeros(()))
        for _ in range(10):  # between the entries there is room for the argument
            dg.value_and_grad(model, (0, 1), out=out)(memory[1:11:2], 0.5, rows)


def test_storage_may_be_wrong_at_a_later_call():
    x, out = X.copy(), np.zeros(5)
    gradient = dg.value_and_grad(dg.delayed(energy, compile=True), out=out)
    with dask.config.set({"daskgrad.inline.seconds": 60}):
        for _ in range(30):
            gradient(x)
        with pytest.raises(ValueError, match="shares memory with an argument"):
            gradient(out)
        out.flags.writeable = False
        with pytest.raises(ValueError, match="read-only"):
            gradient(x)


def test_a_shortcut_saves_an_array():
    x = np.linspace(1.0, 2.0, 100_000)

    def most_bytes(gradient):
        with dask.config.set({"daskgrad.inline.seconds": 60}):
            for _ in range(10):
                gradient(x)
            return peak_bytes(lambda: gradient(x))

    out = np.zeros_like(x)
    model = dg.delayed(lambda x: np.sum(x * x), compile=True)
    without = most_bytes(dg.value_and_grad(model))
    assert most_bytes(dg.value_and_grad(model, out=out)) <= without - 0.9 * x.nbytes
