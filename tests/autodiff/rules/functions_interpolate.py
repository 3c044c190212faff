"""The table of the sweep: functions of NumPy that interpolate, filter, count or fit."""

import numpy as np
from functions_arrange import LONG
from functions_numpy import STACK, A, B, C, S, V, W
from sweep import Held, function

# ------------------------------------------------------------------------- interpolated

KNOTS = np.array([0.1, 0.33, 0.52, 0.81])
AT = np.array([[0.02, 0.2, 0.26], [0.42, 0.7, 0.97]])  # between the knots, in any period
function(np.interp, [(AT, KNOTS, W), (np.float64(0.2), KNOTS, W), (Held(AT), KNOTS, C[0]),
    (AT, Held(KNOTS), W), (AT, KNOTS[:1], W[:1]), (AT, [0.0, 0.5, 2.05], [1.0, 3.0, 2.0]),
    (AT, KNOTS, W, S, 0.3 * S), (AT, KNOTS, W, None, None, np.float64(0.85))], left=[S, -1.0],
    right=[S, 2.0], period=[0.85, -1.3], also=[dict(left=S, right=2 * S),
    dict(left=1.0, period=0.85)])
function(np.trapezoid, [(V,), (A,), (STACK,), (V, W), (A, V), (A, B), (V[:1],), (Held(V), W),
    (STACK, V[:4])], x=[], dx=[0.3, S], axis=[0, 1, -1],
    also=[dict(x=V), dict(x=V, axis=1), dict(x=np.array([0.0, 0.5, 1.5]), axis=0)])
function(np.unwrap, [(9 * V,), (9 * A,), (9 * STACK,)], discont=[4.0], axis=[0, 1, -1],
    period=[2.5])
function(np.ediff1d, [(V,), (A,), (V[:1],), (V, W, S)], to_end=[W, 2.0, [1.0, 2.0]],
    to_begin=[W, 2.0], also=[dict(to_begin=1.0, to_end=W)])
function(np.cumulative_sum, [(V,)], axis=[0, -1], include_initial=[True],
    reasons={"dtype": "converted", "out": "in place"})

# ------------------------------------------------------------------------- filtered

for name in ("convolve", "correlate"):
    function(getattr(np, name), [(V, W), (LONG, V), (V, LONG), (V, S), (V, C[0]), (C[0], W),
        (V, Held(W)), (V, [1.0, 2.0])], mode=["full", "same", "valid"])

# ------------------------------------------------------------------------- polynomials

function(np.vander, [(V,), (S * np.ones(1),)], N=[3, 1, 0], increasing=[True],
    also=[dict(N=3, increasing=True)])
function(np.polyval, [(V, W), (V, S), (V, A), (V[:1], W), (C[0], W), (V, C)])
for name in ("polyadd", "polysub", "polymul"):
    function(getattr(np, name), [(V, W), (LONG, V), (V, LONG), (S, V), (C[0], V)])
function(np.polydiv, [(LONG, V), (V, W)], reasons={"complex": "rounded otherwise"})
function(np.polyder, [(V,), (LONG,)], m=[0, 2, 3])
function(np.polyint, [(V,), (LONG,)], m=[0, 2], k=[S, 2.0], also=[dict(m=2, k=[1.0, 2.0])])
# ------------------------------------------------------------------------- lines and grids

function(np.logspace, [(S, S + 1.0), (V, W), (0.0, S)], num=[3, 0], endpoint=[False], base=[2.0, S],
    dtype=[np.float64], axis=[-1, 1])
function(np.geomspace, [(S, S + 1.0), (V, W), (1.0, S)], num=[3, 1, 0], endpoint=[False],
    dtype=[np.float64], axis=[-1, 1])

# ------------------------------------------------------------------------- counted

BINS = np.array([0, 2, 2, 1])
function(np.bincount, [(BINS, V)], minlength=[5], names=["x", "weights"])
function(np.histogram, [(Held(V), 3, None, None, W), (Held(V), np.array([0.1, 0.5, 1.0]).tolist(),
    None, None, W)], names=["a", "bins", "range", "density", "weights"],
    adapt=lambda fun: lambda *args: fun(*args)[0],
    reasons={"a": "constant between the edges of the bins", "complex": "NumPy refuses it"})
CONSTANT = "constant between the edges of the bins"
function(np.histogram2d, [(Held(V), Held(W), 2, None, None, A[0]),
    (Held(V), Held(W), 3, None, True, A[0])],
    names=["x", "y", "bins", "range", "density", "weights"],
    adapt=lambda fun: lambda *args: fun(*args)[0],
    reasons={"x": CONSTANT, "y": CONSTANT, "complex": "NumPy refuses it"})
function(np.histogramdd, [(Held(A.T), 2, None, None, A[0]),
    (Held(A.T), (2, 3, 1), None, True, A[0])],
    names=["sample", "bins", "range", "density", "weights"],
    adapt=lambda fun: lambda *args: fun(*args)[0],
    reasons={"sample": CONSTANT, "complex": "NumPy refuses it"})

# ------------------------------------------------------------------------- functions of functions

function(np.apply_along_axis, [(A,), (STACK,), (V,)], names=["arr"],
    adapt=lambda fun: lambda x: fun(lambda v: np.sum(v * v), 0, x),
    reasons=dict.fromkeys("func1d axis args kwargs".split(), "among the calls"))
