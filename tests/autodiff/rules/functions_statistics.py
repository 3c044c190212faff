"""The table of the sweep: cumulation, what ignores NaNs, and statistics."""

import autograd.numpy.numpy_wrapper as anp
import numpy as np
from functions_numpy import (
    ARRAYS,
    AXES,
    FLIPPED,
    MOST,
    SIGNED,
    SQUARE,
    STACK,
    A,
    B,
    C,
    S,
    V,
    W,
    spaced,
)
from sweep import Held, Wrt, function

OUT = {"out": np.zeros(())}
ORDERED = {"complex": "ordered"}
FEW = [(V,), (A,), (STACK,), (FLIPPED,)]
ZEROS = np.array([[0.0, 2.0, 3.0, 0.5], [0.5, 0.0, 0.0, 0.3]])

# ---------------------------------------------------------------------------------- cumulation

function(anp.cumprod, [*ARRAYS, *SIGNED, (ZEROS,)], axis=[0, 1, -2], dtype=[np.float64],
    refused={"out": lambda a: np.zeros(np.size(a))})
for name in ("cumulative_sum", "cumulative_prod"):
    if hasattr(anp, name):
        function(getattr(anp, name), [(V,), (A,), (STACK,)], axis=[0, 1, -1], dtype=[np.float64],
            include_initial=[True], refused={"out": Wrt((V,), {"out": np.zeros(4)})})

# ---------------------------------------------------------------------------------------- NaNs


def with_nans(fun):
    """Of arrays some of whose entries are NaNs."""

    def adapted(a, *args, **kwargs):
        hidden = (np.arange(np.size(a)) % 5 == 1).reshape(np.shape(a))
        return fun(anp.where(hidden, np.nan, a), *args, **kwargs)

    return adapted


for name in ("nansum", "nanprod"):
    function(getattr(anp, name), [*FEW, (S,)], axis=AXES, keepdims=[True], dtype=[np.float64],
        initial=[3.0], where=[MOST], refused=OUT, adapt=with_nans)
for name in ("nanmax", "nanmin"):
    function(getattr(anp, name), FEW, axis=AXES[:-1], keepdims=[True], initial=[0.6375],
        also=[dict(where=MOST, initial=0.6375)], refused=OUT, reasons=ORDERED, adapt=with_nans)
for name in ("nancumsum", "nancumprod"):
    function(getattr(anp, name), FEW, axis=[0, 1, -2], dtype=[np.float64],
        refused={"out": lambda a: np.zeros(np.size(a))}, adapt=with_nans)
MANY = [(spaced(31, 6, 6),), (spaced(32, 2, 6, 6) - 0.5,)]
SOME = np.arange(36).reshape(6, 6) % 7 != 3
function(anp.nanmean, MANY, axis=AXES[:-2], keepdims=[True], dtype=[np.float64],
    also=[dict(where=SOME), dict(where=SOME, axis=-1)], refused=OUT, adapt=with_nans)
for name in ("nanvar", "nanstd"):
    function(getattr(anp, name), MANY, axis=[1, -1, (0, 1), (-1, -2)], keepdims=[True],
        dtype=[np.float64], ddof=[1, 0.5], where=[SOME], correction=[1], mean=[0.41], refused=OUT,
        adapt=with_nans)

# ---------------------------------------------------------------------------- order statistics

ORDER = {"axis": [0, -1, (0, 1), (2, 0)], "keepdims": [True]}
IN_PLACE = OUT | {"overwrite_input": Wrt((A,), {"overwrite_input": True})}
function(anp.median, [*FEW, (S,), (SQUARE,)], **ORDER, refused=IN_PLACE, reasons=ORDERED)
function(anp.nanmedian, FEW, **ORDER, refused=IN_PLACE, reasons=ORDERED, adapt=with_nans)

METHODS = [*("linear", "hazen", "weibull", "median_unbiased", "normal_unbiased"),
    *("interpolated_inverted_cdf", "inverted_cdf", "averaged_inverted_cdf", "closest_observation"),
    *("lower", "higher", "midpoint", "nearest")]
Q = np.array([0.21, 0.58, 0.83])
for name in ("quantile", "percentile", "nanquantile", "nanpercentile"):
    unit = 100.0 if "percent" in name else 1.0
    function(getattr(anp, name), [(V, np.float64(0.44 * unit)), (A, 0.61 * unit),
        (STACK, Held(Q * unit)), (FLIPPED, Held(Q[:2].reshape(2, 1) * unit))],
        **(ORDER if name == "quantile" else {"axis": [(0, 1)], "keepdims": [True]}),
        method=METHODS if name == "quantile" else METHODS[1:4:2],
        refused={"out": Wrt((A, 0.3), {"out": np.zeros(())}),
        "overwrite_input": Wrt((A, 0.3), {"overwrite_input": True}),
        "weights": Wrt((V, 0.3), {"weights": W, "method": "inverted_cdf"})}, reasons=ORDERED,
        adapt=with_nans if "nan" in name else lambda fun: fun)
function(anp.ptp, [*ARRAYS, *SIGNED], axis=AXES[:-1], keepdims=[True], refused=OUT, reasons=ORDERED)

# --------------------------------------------------------------------- averages, covariances


def weighted(fun):
    def adapted(a, weights=None, **kwargs):
        return fun(a, kwargs.pop("axis", None), weights, **kwargs)

    return adapted


function(anp.average, [(V, W), (A, B), (A,), (STACK, W), (STACK, B), (STACK, B.T), (C, B),
    (A, Held(W))], names=["a", "weights"], axis=[0, 1, -1, (1, 2), (-1, 1)], returned=[True],
    keepdims=[True], adapt=weighted)
function(anp.cov, [(A,), (V, W), (A, B), (V,), (C, A)], rowvar=[False], bias=[True], ddof=[0, 2],
    fweights=[np.array([1, 2, 1, 3])], aweights=[W],
    also=[dict(fweights=np.array([1, 2, 1, 3]), aweights=W, ddof=0)])
function(anp.cov, [(SQUARE, SQUARE[:1]), (SQUARE, V[:3].copy())], rowvar=[False],
    dtype=[np.float64], name="joint cov")
function(anp.cov, [(A, None, True, False, None, None, W), (V, W, True, True, None, None, B[0])],
    name="weighted cov")
function(anp.corrcoef, [(A,), (V, W), (A, B), (V,), (SQUARE, SQUARE[:1])], rowvar=[False],
    dtype=[np.float64], reasons={"complex": "NumPy clips real and imaginary parts"})
