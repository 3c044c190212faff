"""Rows of the table of bad input: loops; see ``test_bad_input``."""

import numpy as np
import pandas
from inputs import BROADCAST, ITSELF, MASKED, OBJECTS, Unregistered, X, double, energy, used_up

import daskgrad as dg


def step(u, *others):
    return 0.5 * u


def pair(u):
    return u, u


def run(fun, state, n=3, *shared, **options):
    found = dg.scan(fun, state, n, *shared, **options)
    return lambda: (found if "outputs" not in options else found[0]).compute(scheduler="sync")


def within(*args, **options):
    """Inside a model."""
    return dg.delayed(lambda: dg.scan(*args, **options), name="model")().compute


V = dg.variable(X, "v")
NUMBERS = "holds .*; expected float or complex arrays"

ROWS = {
    ("scan", "step", "a string"): (
        lambda: dg.scan("step", X, 3),
        TypeError,
        "the first argument must be a model, which is a function; found 'step'",
    ),
    ("scan", "step", "a model that returns another shape"): (
        lambda: run(lambda u: u[1:], X)(),
        TypeError,
        r"must return a state with the structure, shapes and dtypes of the one that it got; it got "
        r"float64\[3\] and returned float64\[2\].*step 0",
    ),
    ("scan", "step", "a model that returns a node"): (
        lambda: run(lambda u: double(u), X)(),
        TypeError,
        "inside a model, call the plain function",
    ),
    ("scan", "step", "a model that writes into the state"): (
        lambda: run(lambda u: u.sort(), X)(),
        ValueError,
        "may have written into an argument.*copy the array first",
    ),
    ("scan", "step", "a model with another number of arguments"): (
        lambda: run(lambda u: u, X, 3, X)(),
        TypeError,
        r"takes 1 positional argument but 2 were given.*step 0.*float64\[3\], float64\[3\]",
    ),
    ("scan", "state", "a masked array"): (
        lambda: dg.scan(step, MASKED, 3),
        TypeError,
        "the state of the loop 'step'.*holds MaskedArray",
    ),
    ("scan", "state", "objects"): (lambda: dg.scan(step, OBJECTS, 3), TypeError, "holds ndarray"),
    ("scan", "state", "a table"): (
        lambda: dg.scan(step, pandas.DataFrame({"a": X}), 3),
        TypeError,
        NUMBERS,
    ),
    ("scan", "state", "a broadcast array"): (
        lambda: dg.scan(step, BROADCAST, 3),
        ValueError,
        "broadcast from fewer numbers",
    ),
    ("scan", "state", "itself"): (
        lambda: dg.scan(step, ITSELF, 3),
        RecursionError,
        "nested too deep, or holds itself",
    ),
    ("scan", "state", "hides a node"): (
        lambda: dg.scan(step, Unregistered(V), 3),
        TypeError,
        NUMBERS,
    ),
    ("scan", "state", "an integer that becomes a float"): (
        lambda: run(step, 1)(),
        TypeError,
        "it got 1 and returned 0.5",
    ),
    ("scan", "n", "a float"): (
        lambda: dg.scan(step, X, 3.0),
        TypeError,
        r"must be an integer; found 3\.0.*np\.where\(done",
    ),
    ("scan", "n", "a node"): (
        lambda: dg.scan(step, X, energy(V)),
        TypeError,
        "must be an integer; found CallNode: where the state decides",
    ),
    ("scan", "n", "zero"): (lambda: dg.scan(step, X, 0), ValueError, "one step or more; found 0"),
    ("scan", "shared", "an iterator"): (
        lambda: dg.scan(step, X, 3, used_up()),
        TypeError,
        "which one run of the model uses up",
    ),
    ("scan", "shared", "a random generator"): (
        lambda: dg.scan(step, X, 3, {"noise": np.random.default_rng()}),
        TypeError,
        "each would get a copy and draw the same numbers.*pass them as xs",
    ),
    ("scan", "xs", "too few rows"): (
        lambda: dg.scan(step, X, 4, xs=X),
        ValueError,
        r"a row for each of 4 steps; found float64\[3\]",
    ),
    ("scan", "xs", "a number"): (
        lambda: dg.scan(step, X, 3, xs={"a": X, "b": 1.0}),
        ValueError,
        "a row for each of 3 steps; found 1.0",
    ),
    ("scan", "xs", "a node of too few rows"): (
        lambda: run(step, X, 4, xs=double(V))(),
        ValueError,
        r"a row for each of 4 steps; found float64\[3\]",
    ),
    ("scan", "xs", "too few rows, inside a model"): (
        lambda: within(step, X, 4, xs=X)(),
        ValueError,
        "a row for each of 4 steps",
    ),
    ("scan", "outputs", "unknown"): (
        lambda: dg.scan(step, X, 3, outputs="mean"),
        ValueError,
        "outputs must be 'stack', 'sum' or None; found 'mean'",
    ),
    ("scan", "outputs", "none are returned"): (
        lambda: run(step, X, outputs="sum")(),
        TypeError,
        r"must return a pair \(state, output\); found float64\[3\]",
    ),
    ("scan", "outputs", "returned, and not asked for"): (
        lambda: run(pair, X)(),
        TypeError,
        r"it got float64\[3\] and returned tuple",
    ),
    ("scan", "checkpoints", "zero"): (
        lambda: dg.scan(step, X, 3, checkpoints=0),
        ValueError,
        "checkpoints must be 'auto' or a positive integer; found 0",
    ),
    ("scan", "checkpoints", "a word"): (
        lambda: dg.scan(step, X, 3, checkpoints="all"),
        ValueError,
        "checkpoints must be 'auto' or a positive integer; found 'all'",
    ),
    ("scan", "memory", "a word"): (
        lambda: dg.scan(step, X, 3, memory="much"),
        ValueError,
        "memory must be a number of bytes, or a text like '200 MB'; found 'much'",
    ),
    ("scan", "memory", "negative"): (
        lambda: dg.scan(step, X, 3, memory=-5),
        ValueError,
        "memory must be a number of bytes",
    ),
    ("scan", "memory", "beside checkpoints"): (
        lambda: dg.scan(step, X, 3, checkpoints=3, memory="1 MB"),
        ValueError,
        "checkpoints and memory both say how many states are kept; give one",
    ),
    ("scan", "name", "a number"): (
        lambda: dg.scan(step, X, 3, name=3),
        TypeError,
        "must be a string; found 3",
    ),
}
