"""Rows of the table of bad input: adapters; see ``test_bad_input``."""

import numpy as np
from inputs import X, double, energy

import daskgrad as dg

FLAT, X0, _ = dg.adapters.flat(energy, X)
TREE, _, _ = dg.adapters.flat(lambda p: energy(p["w"]), {"w": X, "n": 1})
REAL = "the parameters of 'energy' must be real floating-point numbers and arrays of them"

ROWS = {
    ("adapters", "flat", "no function"): (
        lambda: dg.adapters.flat(X, X),
        TypeError,
        "first argument of dg.adapters.flat must be a function that calls models; found float64",
    ),
    ("adapters", "flat", "complex parameters"): (
        lambda: dg.adapters.flat(energy, {"w": X * 1j}),
        TypeError,
        REAL + r".*found \{'w': complex128",
    ),
    ("adapters", "flat", "no float at all"): (
        lambda: dg.adapters.flat(energy, [1, "a"]),
        TypeError,
        REAL + r".*found list\(1, 'a'\)",
    ),
    ("adapters", "flat", "a function with many values"): (
        lambda: dg.adapters.flat(double, X)[0](X0),
        TypeError,
        "the gradient of 'double' was asked for, but its value is",
    ),
    ("adapters", "flat", "a vector of another size"): (
        lambda: FLAT(np.ones(9)),
        ValueError,
        r"the parameters of 'energy' are a vector of 3 numbers; found float64\[9\]",
    ),
    ("adapters", "flat", "bounds of another structure"): (
        lambda: TREE.bounds({"w": 0.0}),
        ValueError,
        r"parameters of '<lambda>' have the structure .*; found \{'w': 0.0\}",
    ),
    ("adapters", "flat", "bounds of another shape"): (
        lambda: FLAT.bounds(np.ones(2)),
        ValueError,
        "could not be broadcast",
    ),
    ("adapters", "flat_residuals", "no node"): (
        lambda: dg.adapters.flat_residuals(lambda x: 1.0, X)[0](X0),
        TypeError,
        "must return a node or a pytree of nodes; found 1.0",
    ),
    ("adapters", "an adapter", "that there is not"): (
        lambda: dg.adapters.as_tensorflow,
        AttributeError,
        "module 'daskgrad.adapters' has no attribute 'as_tensorflow'",
    ),
}
