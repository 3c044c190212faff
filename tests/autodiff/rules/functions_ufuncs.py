"""The table of the sweep: ufuncs that autograd has no rule for."""

import autograd.numpy.numpy_wrapper as anp
import numpy as np
from functions_numpy import (
    ARRAYS,
    COLUMN,
    FLIPPED,
    MIXED,
    PAIRS,
    SIGNED,
    STACK,
    UFUNC,
    UFUNC_REASONS,
    A,
    B,
    C,
    S,
    V,
    W,
    out_of,
    ufunc,
)
from sweep import Held, Wrt, function

DIVIDED = [(A, B + 0.03), (V + 1.0, 0.37 * S), (COLUMN, V + 1.0), (FLIPPED, B + 0.03)]
OF_REALS = {"complex": "of real numbers only"}
ufunc("fmod", [*DIVIDED, (B, FLIPPED - 0.03)], reasons=OF_REALS)
ufunc("float_power", [*PAIRS, *MIXED, (FLIPPED, Held(2.0))])
ufunc("copysign", [*PAIRS, (FLIPPED, B), (B, FLIPPED)], reasons=OF_REALS)
ufunc("heaviside", [(FLIPPED, B), (-V, S), (Held(np.array([0.0, 1.0])), S)], reasons=OF_REALS)
ufunc("ldexp", [(A, 3), (V, np.array([1, 2, -1, 0])), (-S, 2)], reasons=OF_REALS)
ANY = dict.fromkeys([*UFUNC, *UFUNC_REASONS], "the derivative is refused, whatever it is")
function(anp.nextafter, [(Held(A), Held(B))], refused={"x1": Wrt((A, Held(B))),
    "x2": Wrt((Held(A), B))}, reasons=ANY)
function(anp.frexp, [(Held(A),)], refused={"x": Wrt((A,))}, reasons=ANY)
TWO_OUTS = {"out": lambda *args: (out_of(*args), out_of(*args)), "dtype": np.float64}
IN_PARTS = {name: UFUNC[name] for name in UFUNC if name not in TWO_OUTS} | TWO_OUTS
for name, inputs in (("divmod", DIVIDED), ("modf", ARRAYS + SIGNED)):
    function(getattr(anp, name), inputs, refused=IN_PARTS, reasons=OF_REALS | UFUNC_REASONS)
CORES = {"axes": "another way to write axis", "signature": UFUNC_REASONS["signature"]}
OF_VECTORS = {name: UFUNC[name] for name in UFUNC if name not in ("out", "where")}
function(anp.vecdot, [(V, W), (A, B), (A, V), (STACK, A), (C, B), (C, C[0])], axis=[-1, 0],
    keepdims=[True], refused=OF_VECTORS | {"out": lambda a, b: np.zeros(np.shape(np.vecdot(a, b)))},
    reasons=CORES)
if hasattr(anp, "matvec"):
    PRODUCT = {**CORES, "axis": "of ufuncs with one core axis", "keepdims": "of these, too"}
    for name, inputs in (
        ("matvec", [(A, V), (STACK, V), (STACK, STACK[:, 0]), (A, STACK[:, 0]), (C, V)]),
        (
            "vecmat",
            [(V[:3].copy(), A), (V[:3].copy(), STACK), (A.T.copy(), A), (C[:, 0].copy(), A)],
        ),
    ):
        product = getattr(np, name)
        outs = {"out": lambda *args, product=product: np.zeros(np.shape(product(*args)))}
        function(getattr(anp, name), inputs, refused=OF_VECTORS | outs, reasons=PRODUCT)
