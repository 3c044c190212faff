"""The table of the sweep: roots, fits, and other functions of plain NumPy that autograd lacks."""

import numpy as np
from autograd.numpy import numpy_wrapper as anp
from functions_linalg import M
from functions_numpy import ARRAYS, SIGNED, STACK, A, B, C, S, V, W, ufunc
from sweep import Held, Wrt, function

PLACES = np.array([-1.0, -0.2, 0.3, 0.9, 1.7])
CUBIC = np.array([1.0, -0.4, 2.0, 0.7])
DOUBLE = np.poly([0.5, 0.5, 2.0])

function(anp.roots, [(CUBIC,), (np.poly([-1.0, 0.3, 2.0]),), (np.append(CUBIC, 0.0),),
    (V[:2].copy(),)], refused={"p": Wrt((DOUBLE,))})
function(anp.poly, [(V,), (M,), (C[0],), (np.eye(3),)], reasons={"single": "its value is double"})
function(np.polyfit, [(PLACES, np.sin(PLACES), 2),
    (PLACES, STACK[0, 0, 0] + np.outer(PLACES, V) ** 2, 1)], rcond=[1e-12], full=[True],
    w=[np.array([1.0, 2.0, 0.5, 0.7, 1.2])], cov=[True, "unscaled"],
    also=[dict(w=np.array([1.0, 2.0, 0.5, 0.7, 1.2]), cov=True)], adapt=lambda fun: lambda *args,
    **kwargs: first_of(fun(*args, **kwargs)),
    reasons={"complex": "the places are real", "single": "its condition"})


def first_of(found):
    """The coefficients, and what has a derivative beside them."""
    return [found[0], found[1]] if isinstance(found, tuple) else found


function(anp.i0, [*ARRAYS, *SIGNED, (20.0 * V,), (np.array([0.0, 1e-9, 30.0]),)])
function(np.kaiser, [(5, S), (4, np.float64(7.0))],
    reasons={"complex": "real", "single": "NumPy's value is double"})
ufunc("positive", ARRAYS + SIGNED)
function(anp.copy, [(V,), (A,), (STACK,)], order=["C", "F"], subok=[True])
function(anp.sort_complex, [(V,), (A,), (STACK,), (C,)])
function(anp.vdot, [(V, W), (A, B), (S, S + 0.2), (C, B), (A, C), (V, Held(W))])
function(np.apply_over_axes, [(A,), (STACK,)], names=["a"],
    adapt=lambda fun: lambda x: fun(np.sum, x * x, [0, 1]),
    reasons=dict.fromkeys(["func", "axes"], "among the calls"))
function(np.histogram_bin_edges, [(V, 3), (A, 2), (Held(A), 3, (S, S + 1.0))], names=["a", "bins"],
    reasons={"range": "its ends are", "weights": "it does not look at them", "complex": "ordered"})
function(np.linalg.multi_dot, [(A, B.T), (A, B.T, A), (V, B.T, A, W),
    (A, B.T, A, B.T, V[:3].copy()), (C, B.T, V[:3].copy())], names=["arrays"] * 5,
    adapt=lambda fun: lambda *arrays, **kwargs: fun(list(arrays), **kwargs),
    refused={"out": np.zeros((3, 3))})
function(np.fft.fftfreq, [(5, S), (4, S)], reasons={"device": "of plain arrays"})
function(np.fft.rfftfreq, [(5, S), (4, S)], reasons={"device": "of plain arrays"})
