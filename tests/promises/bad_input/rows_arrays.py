"""Rows of the table of bad input: arrays in chunks; see ``test_bad_input``."""

import dask.array as da
import numpy as np
from inputs import MASKED, X, double

import daskgrad as dg

V = dg.variable(X, "v")
LONG = np.arange(12.0).reshape(3, 4)
A = dg.array(LONG, (2, 3))
B = dg.array(LONG, (1, 2))
CLOSED = "is not among the operations of a dg.array, which are differentiated chunk by chunk; use "


def refused(call, told):
    return (call, (TypeError, AttributeError), CLOSED + told)


ROWS = {
    ("array", "x", "a list"): (
        lambda: dg.array([1.0, 2.0]),
        TypeError,
        r"takes NumPy and dask arrays, grids, and variables that are such; found list\(1.0, 2.0\)",
    ),
    ("array", "x", "a node"): (lambda: dg.array(double(V)), TypeError, "found CallNode"),
    ("array", "x", "a masked array"): (lambda: dg.array(MASKED), TypeError, "found float64"),
    ("array", "x", "unknown chunks"): (
        lambda: dg.array(da.from_array(X)[da.from_array(X) > 0.4]),
        ValueError,
        "must be known: call its compute_chunk_sizes",
    ),
    ("array", "x", "a grid of dicts"): (
        lambda: dg.array(dg.grid({"a": LONG, "b": LONG}, (1, 1))),
        TypeError,
        "a grid of single arrays of one dtype",
    ),
    ("array", "chunks", "that do not add up"): (
        lambda: dg.array(LONG, ((2, 2), 4)),
        ValueError,
        r"must be positive and add up to 3; found \(2, 2\)",
    ),
    ("array", "chunks", "zero"): (
        lambda: dg.array(LONG, 0),
        ValueError,
        "one entry or more, or -1 for all; found 0",
    ),
    ("array", "chunks", "for another number of axes"): (
        lambda: dg.array(LONG, (1, 1, 1)),
        ValueError,
        "chunks for 2 axes are needed",
    ),
    ("array", "operators", "other chunks"): (
        lambda: A + B,
        ValueError,
        r"np.add of arrays with other chunks along axis 0: \(1, 1, 1\) and \(2, 1\); rechunk one",
    ),
    ("array", "operators", "a NumPy array of another shape"): (
        lambda: A + X,
        ValueError,
        r"a NumPy array of shape \(3,\) cannot be broadcast to \(3, 4\)",
    ),
    ("array", "operators", "a string"): (lambda: A + "a", TypeError, "add"),
    ("array", "ufuncs", "out"): (
        lambda: np.add(A, 1.0, out=LONG),
        TypeError,
        "np.add of a dg.array takes no 'out'",
    ),
    ("array", "ufuncs", "reduce"): (
        lambda: np.add.reduce(A),
        TypeError,
        r"np.add.reduce of a dg.array is not there; use x.sum\(\)",
    ),
    ("array", "ufuncs", "unknown"): refused(
        lambda: np.floor_divide(A, 2.0), r"x.map_blocks\(model"
    ),
    ("array", "functions", "np.asarray"): (
        lambda: np.asarray(A),
        TypeError,
        r"has no value yet, and NumPy would lose its derivative; compute it \(x.compute\(\)\)",
    ),
    ("array", "functions", "np.cumsum"): refused(lambda: np.cumsum(A), r"x.map_blocks\(model"),
    ("array", "functions", "np.reshape"): refused(
        lambda: np.reshape(A, 12), "rechunk, and reshape"
    ),
    ("array", "functions", "np.var"): refused(lambda: np.var(A), r"\(\(x - x.mean\(\)\)"),
    ("array", "functions", "np.einsum"): refused(lambda: np.einsum("ij->i", A), "np.tensordot"),
    ("array", "functions", "np.sort"): refused(lambda: np.sort(A), r"x.map_blocks\(model"),
    ("array", "methods", "reshape"): refused(lambda: A.reshape(12), "rechunk, and reshape"),
    ("array", "methods", "std"): refused(lambda: A.std(), "np.sqrt"),
    ("array", "index", "a list"): (
        lambda: A[[0, 1]],
        TypeError,
        r"indexed by integers and slices of step one; found list\(0, 1\): rechunk, and let a model",
    ),
    ("array", "index", "a step"): (
        lambda: A[::2],
        TypeError,
        r"slices of step one; found slice\(None, None, 2\)",
    ),
    ("array", "index", "a mask"): (lambda: A[A > 1], TypeError, "found Array"),
    ("array", "index", "out of bounds"): (lambda: A[3], IndexError, "index 3 is out of bounds"),
    ("array", "index", "too many"): (lambda: A[0, 0, 0], IndexError, "too many indices"),
    ("array", "index", "nothing"): (lambda: A[2:2], ValueError, "has no entries"),
    ("array", "index", "assignment"): (
        lambda: A.__setitem__(0, 1.0),
        TypeError,
        "cannot be written to; use np.where",
    ),
    ("array", "branch", "if"): (lambda: bool(A[0] > 1), TypeError, "to branch on; use np.where"),
    ("array", "iteration", "for"): (lambda: list(A), TypeError, "cannot be iterated over"),
    ("array", "products", "other chunks"): (
        lambda: A @ dg.array(LONG.T, (2, 3)),
        ValueError,
        r"contracts axes with other chunks: \(3, 1\) and \(2, 2\); rechunk one",
    ),
    ("array", "products", "three axes"): (
        lambda: np.stack([A, A]) @ A.T,
        TypeError,
        "is for vectors and matrices; found 3 and 2 axes",
    ),
    ("array", "concatenate", "other chunks"): (
        lambda: np.concatenate([A, B]),
        ValueError,
        "needs the same chunks along the other axes",
    ),
    ("array", "axis", "none of its"): (lambda: A.sum(axis=2), ValueError, "axis 2 is none of"),
    ("array", "map_blocks", "other chunks"): (
        lambda: A.map_blocks(np.add, B),
        ValueError,
        "map_blocks of 'add' got arrays with other chunks",
    ),
}
