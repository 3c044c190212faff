"""The table of the sweep: functions of NumPy that arrange, select, join or interpolate entries.

They are called as plain NumPy's, whose calls with traced values become those of our rules.
"""

import numpy as np
from functions_numpy import COLUMN, STACK, A, B, C, S, V, W
from sweep import function

LONG = np.concatenate([V, W + 1.0, [0.05, 0.4]])


def of_list(fun):
    """With the arrays in a list, as these functions take them."""
    return lambda *arrays, **kwargs: fun(list(arrays), **kwargs)


def after(*given):
    """The function with arguments before the arrays, which have no derivative."""
    return lambda fun: lambda *args, **kwargs: fun(*given, *args, **kwargs)


# ------------------------------------------------------------------------- in other places

function(np.flip, [(V,), (A,), (STACK,), (S,)], axis=[0, 1, -1, (0, 1), None])
function(np.matrix_transpose, [(A,), (STACK,)])
function(np.permute_dims, [(A,), (STACK,)], axes=[(1, 0), (-1, 0, 1)])
function(np.resize, [(V, 7), (A, (2, 3)), (A, (5, 4)), (S, (2, 2)), (V, (0, 3))])
function(np.diagflat, [(V,), (A,), (S,)], k=[1, -1])
function(np.unstack, [(A,), (STACK,), (V,)], axis=[0, 1, -1])
function(np.broadcast_arrays, [(A, V), (COLUMN, V), (S, A), (A, C[0])], names=["args"] * 2,
    subok=[True])
function(np.meshgrid, [(V, W), (V, W[:3]), (V, S), (V[:2], W[:3], A[0])], names=["xi"] * 3,
    copy=[False], sparse=[True], indexing=["ij", "xy"], also=[dict(sparse=True, indexing="ij")])
for name in ("atleast_1d", "atleast_2d", "atleast_3d"):
    function(getattr(np, name), [(A, V), (S, V), (STACK, S)], names=["arys"] * 2, name=f"np.{name}")

# ------------------------------------------------------------------------- selected

PICKED = np.array([[2, 0, 0, 1], [1, 1, 0, 2], [0, 2, 1, 1]])
function(np.take_along_axis, [(A, PICKED), (STACK, np.argsort(STACK, -1)), (STACK, PICKED[None]),
    (V, PICKED[0])], axis=[0, 1, -1, None])
function(np.delete, [(A, 1), (A, [0, -1]), (V, slice(None, None, 2)), (STACK, 1), (V, V > 0.5),
    (A, [])], axis=[0, 1, -1])
function(np.insert, [(A, 1, V), (V, 2, S), (V, [0, 2], W[:2]), (V, slice(0, 2), W[:2]), (V, -1, W),
    (V, [1, 1], 5.0), (A, 1, S), (V, [0, 2, 2], np.ones(3)), (A, [0, 3], B[:2]), (V, V > 0.5, S)],
    axis=[0, 1, -1])
function(np.choose, [(V, W), (A, B), (A, V), (V, S)], names=["choices"] * 2,
    adapt=lambda fun: lambda x, y, **kwargs: fun(np.array([0, 1, 1, 0]), [x, y], **kwargs),
    mode=["clip", "wrap"], refused={"out": np.zeros(4)},
    reasons={"a": "numbers of the choices have no derivative"})
function(np.select, [(V, W, S), (A, V, 2.0), (A, B, COLUMN), (V, C[0], S)],
    names=["choicelist", "choicelist", "default"], adapt=lambda fun: lambda x, y,
    z: fun([A > 0.5, A < 0.3], [x, y], z), name="np.select",
    reasons={"condlist": "conditions have no derivative"})
function(np.compress, [(V > 0.5, V), ([True, False], A), ([False, True, True], STACK),
    (V[:2] > 0.0, STACK)], axis=[0, 1, -1],
    refused={"out": lambda condition, a: np.zeros(np.shape(np.compress(condition, a)))})
function(np.extract, [(V > 0.5, V), (A > 0.5, A), ([1, 0, 1], V)])
function(np.piecewise, [(V, W), (A, S), (S, W)], names=["x", "args"],
    adapt=lambda fun: (lambda x, y: (fun(x, [x < 0.4, x > 0.6],
    [lambda v, c: v**2 + c[0] * v, 0.5, square], y) if np.ndim(y) else fun(x, [x < 0.4],
    [lambda v, c: c * v**2, lambda v, c: v * c], y))),
    reasons={"condlist": "conditions have no derivative",
    "funclist": "functions and numbers: among the calls", "kw": "handed on to the functions"})


def square(x, *args):
    return x * x * args[0][1]


ZEROS = np.concatenate([np.zeros(2), V, np.zeros(3)])
function(np.trim_zeros, [(V,), (A,)], adapt=lambda fun: lambda x,
    **kwargs: fun(np.pad(x, 1), **kwargs), names=["filt"], trim=["f", "b"], axis=[0, -1])
function(np.unique, [(V,), (A,), (STACK,)], return_index=[True], return_inverse=[True],
    return_counts=[True], axis=[0, 1, -1], equal_nan=[False], sorted=[True],
    also=[dict(return_index=True, return_counts=True)])
for name in ("unique_values", "unique_counts", "unique_inverse", "unique_all"):
    function(getattr(np, name), [(V,), (A,)],
        adapt=lambda fun: lambda x: fun(x) if fun.__name__ == "unique_values" else tuple(fun(x)),
        reasons={"complex": "in the order of a table of hashes"} if "values" in name else {})
function(np.union1d, [(V, W), (A, V + 1.0)])
for name in ("intersect1d", "setdiff1d", "setxor1d"):
    function(getattr(np, name), [(V, W), (A, V)], names=["ar1", "ar2"], adapt=lambda fun: lambda x,
        y, **kwargs: fun(x, np.concatenate([y, [7.0]]), **kwargs), assume_unique=[True],
        reasons={"return_indices": "whole numbers"} if name == "intersect1d" else {})
function(np.ix_, [(V, W)], names=["args"] * 2)

# ------------------------------------------------------------------------- joined

function(np.append, [(V, W), (A, B), (V, S), (A, S), (V, C[0])], axis=[0, -1], name="np.append")
function(np.block, [(A, B, V[:3, None]), (V, W, V), (S, S, S)], names=["arrays"] * 3,
    adapt=lambda fun: lambda x, y, z: fun([[x, y, z], [y, z, x]]))
function(np.concat, [(V, W), (A, B)], names=["arrays"] * 2, adapt=of_list, axis=[0, -1, None],
    name="np.concat", reasons=dict.fromkeys(["out", "dtype", "casting"], "those of concatenate"))
function(np.dstack, [(V, W), (A, B), (STACK, STACK), (S, S)], names=["tup"] * 2, adapt=of_list)

# ------------------------------------------------------------------------- padded

function(np.pad, [(V, 2), (A, ((1, 0), (0, 2))), (A, {0: 1, -1: (0, 2)})], name="np.pad",
    mode=["mean", "median", "maximum", "minimum", "linear_ramp"],
    also=[*[dict(mode=mode, stat_length=2) for mode in ("mean", "median", "maximum")],
    dict(mode="mean", stat_length=((1, 2),)), dict(mode="reflect", reflect_type="odd"),
    dict(mode="symmetric", reflect_type="odd"), dict(mode="linear_ramp", end_values=((0.3, 2.0),)),
    dict(mode="constant", constant_values=((0.3, 2.0),))], refused={"mode": "empty"},
    reasons={"complex": "ordered, in some modes", "kwargs": "those of the modes: among the calls"})
