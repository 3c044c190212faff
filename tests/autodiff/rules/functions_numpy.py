"""The table of the sweep: NumPy's functions, save those of its subpackages."""

from inspect import signature

import autograd.numpy.numpy_wrapper as anp
import numpy as np
from autograd.tracer import trace_primitives_map
from sweep import Held, Wrt, function

from daskgrad.autodiff.rules.declaration import ArrayBox


def spaced(seed, *shape):
    """Numbers between 0.2 and 0.9 of which no two are close."""
    size = int(np.prod(shape))
    places = np.random.default_rng(seed).permutation(size) + 0.1 * (seed % 7)
    return (0.2 + 0.7 * places / size).reshape(shape)


A, B = spaced(1, 3, 4), spaced(2, 3, 4)
V, W = spaced(3, 4), spaced(4, 4)
S = np.float64(0.71)
STACK = spaced(5, 2, 3, 4)
COLUMN = spaced(6, 3, 1)
POINT = np.array(0.6)
SQUARE = spaced(8, 3, 3)
FLIPPED = np.where(np.arange(12).reshape(3, 4) % 3, A, -A)  # of both signs
C = A + 0.3j * B

ARRAYS = [(S,), (V,), (A,), (STACK,), (COLUMN,), (POINT,)]
SIGNED = [(-S,), (FLIPPED,)]
PAIRS = [(A, B), (A, V), (V, A), (S, A), (A, S), (COLUMN, V), (V, COLUMN), (S, S + 0.2), (STACK, A)]
MIXED = [(C, B), (A, C), (V, C), (C, S), (S, C[0])]
AXES = [0, 1, -1, (0, 1), (-1, -2), (0,), (2, 0), ()]


def out_of(*args):
    return np.zeros(np.broadcast_shapes(*[np.shape(getattr(a, "value", a)) for a in args]))


UFUNC = {"out": out_of, "where": lambda *args: out_of(*args) == 0.0, "casting": "unsafe",
    "order": "C", "dtype": np.float64, "subok": False}
UFUNC_REASONS = {"signature": "another way to write dtype"}


def ufunc(name, inputs, **options):
    reasons = UFUNC_REASONS | options.pop("reasons", {})
    function(getattr(anp, name), inputs, refused=UFUNC, reasons=reasons, **options)


for name in (
    *("negative", "rad2deg", "degrees", "deg2rad", "radians", "reciprocal", "exp", "exp2", "expm1"),
    *("log", "log2", "log10", "log1p", "sin", "cos", "tan", "arcsin", "arccos", "arctan", "sinh"),
    *("cosh", "tanh", "arcsinh", "arctanh", "square", "sqrt", "absolute", "fabs", "conjugate"),
    "cbrt",
):
    signed = name not in ("log", "log2", "log10", "sqrt")
    ufunc(name, ARRAYS + SIGNED * signed)
function(np.sign, [*ARRAYS, *SIGNED, (C,)], refused=UFUNC, reasons=UFUNC_REASONS)
ufunc("arccosh", [(array + 1.2,) for (array,) in ARRAYS])

for name in ("add", "subtract", "multiply", "divide"):
    ufunc(name, PAIRS + MIXED)
ufunc("power", [*PAIRS, *MIXED, (A, 2), (A, 3.0), (FLIPPED, Held(2.0)), (2, A),
    (FLIPPED, Held(-1.0))])
for name in ("maximum", "minimum", "fmax", "fmin", "logaddexp", "logaddexp2", "arctan2", "hypot"):
    ufunc(name, [*PAIRS, (FLIPPED, B)], reasons={"complex": "ordered, or of real numbers only"})
ufunc("remainder", [(A, B + 0.03), (V + 1.0, 0.37 * S), (S, 0.27 * V), (COLUMN, V + 1.0),
    (FLIPPED, B + 0.03), (B, FLIPPED - 0.03)])

# ------------------------------------------------------------------------- elementwise, no ufunc

function(anp.real, [*ARRAYS, *SIGNED])
function(anp.imag, [*ARRAYS, *SIGNED])
function(anp.angle, [*ARRAYS, *SIGNED], deg=[True])
function(anp.sinc, [*ARRAYS, *SIGNED, (np.array([0.0, 0.3]),)])
function(anp.real_if_close, ARRAYS, tol=[50])
function(anp.nan_to_num, ARRAYS, nan=[1.0], posinf=[2.0], neginf=[3.0],
    refused={"copy": Wrt((A,), {"copy": False})})
function(anp.clip, [(A, 0.3, 0.6), (V, None, 0.6), (V, 0.4, None), (S, 0.1, 0.9), (A, Held(V), 0.9),
    (A, np.float64(0.41), np.full(4, 0.7))],
    refused={"out": lambda *args: np.zeros(np.shape(args[0]))},
    reasons={"kwargs": "those of ufuncs", "complex": "ordered", "min": "another name of a_min",
    "max": "another name of a_max"})
function(trace_primitives_map[np.where], [(A > 0.5, A, B), (A > 0.5, V, S), (V > 0.5, A, V),
    (V > 0.5, C, A), (True, A, B), (COLUMN > 0.5, V, COLUMN)])
function(anp.astype, [(A, np.float64), (S, np.float64), (A, np.float32), (A, np.complex128)],
    copy=[False], refused={"device": "cpu"})

# ------------------------------------------------------------------------------- reductions

REDUCED = {"out": np.zeros(())}
MOST = np.arange(12).reshape(3, 4) % 5 != 1
CHOSEN = [dict(where=MOST, axis=axis) for axis in (None, 1, -1, (0, 1))]
function(anp.sum, ARRAYS + SIGNED, axis=AXES, keepdims=[True, False], initial=[3.0],
    dtype=[np.float64], where=[MOST, True], refused=REDUCED)
function(anp.prod, [*ARRAYS, *SIGNED, (np.array([[0.0, 2.0, 3.0], [0.5, 0.0, 0.0]]),)], axis=AXES,
    keepdims=[True], initial=[3.0], dtype=[np.float64], where=[MOST, True], refused=REDUCED)
function(anp._primitive_mean, ARRAYS + SIGNED, axis=AXES, keepdims=[True, False],
    dtype=[np.float64], also=CHOSEN, refused=REDUCED)
for spread in (anp._primitive_var, anp._primitive_std):
    function(spread, [(V,), (A,), (STACK,), (FLIPPED,)], axis=AXES[:-1], keepdims=[True],
        ddof=[1, 0.5], dtype=[np.float64], correction=[1], mean=[0.41], refused=REDUCED,
        also=[dict(axis=0, ddof=1, keepdims=True), *CHOSEN])
for name in ("max", "min", "amax", "amin"):
    function(getattr(anp, name), ARRAYS + SIGNED, axis=AXES, keepdims=[True], initial=[0.6375],
        also=[dict(where=MOST, initial=0.6375), dict(where=MOST, initial=-9.0, axis=0)],
        refused=REDUCED, reasons={"complex": "ordered"})
function(anp.cumsum, ARRAYS + SIGNED, axis=[*AXES[:3], -2], dtype=[np.float64],
    refused={"out": lambda a: np.zeros(np.size(a))})
function(anp.trace, [(A,), (STACK.reshape(8, 3),), (SQUARE,), (STACK,)], offset=[1, -1],
    axis1=[1, -1], axis2=[0], dtype=[np.float64], refused={"out": lambda a: np.zeros(())},
    also=[dict(axis1=1, axis2=2), dict(axis1=-1, axis2=0, offset=1)])

# ------------------------------------------------------------------------------ sorting

function(anp.sort, ARRAYS + SIGNED, axis=[0, 1, -1, -2, None], kind=["stable"], stable=[True],
    **({"descending": [True]} if "descending" in signature(np.sort).parameters else {}), refused={},
    reasons={"order": "of structured arrays, which have no derivative"})
function(anp.partition, [(V, 2), (A, 1), (STACK, 1), (FLIPPED, (0, 2))], axis=[0, 1, -1, -2, None],
    kind=["introselect"], reasons={"order": "of structured arrays, which have no derivative"})

# --------------------------------------------------------------------------- arrangements

function(anp.reshape, [(A, (4, 3)), (A, -1), (STACK, (6, 4)), (S, (1, 1)), (A, (2, -1))],
    order=["F", "C", "A"], copy=[True])
function(anp.ravel, ARRAYS, order=["F", "C", "A", "K"])
function(anp.expand_dims, [(A, 1), (A, -1), (V, (0, 2)), (S, 0)])
function(anp.squeeze, [(COLUMN,), (COLUMN[None],), (A,)], axis=[0, 1, -1, (0, 2)])
function(anp.transpose, [*ARRAYS, (STACK, (1, 0, 2)), (STACK, (-1, 0, 1)), (STACK, (2, 0, 1))],
    axes=[(1, 0), (2, 0, 1), (-1, 0, -2), None])
function(anp.swapaxes, [(A, 0, 1), (STACK, -1, 0), (STACK, 1, 1)])
function(anp.moveaxis, [(A, 0, 1), (STACK, -1, 0), (STACK, (0, 1), (-1, 0))])
function(anp.rollaxis, [(A, 1), (STACK, 2), (STACK, 1), (STACK, -1), (STACK, 0)],
    start=[1, 2, 3, -1])
function(anp.flipud, [(V,), (A,), (STACK,)])
function(anp.fliplr, [(A,), (STACK,)])
function(anp.rot90, [(A,), (STACK,)], k=[0, 2, -1, 3], axes=[(1, 0), (0, 2), (-1, 0)],
    also=[dict(k=3, axes=(1, 2))])
function(anp.roll, [(V, 1), (A, 2), (STACK, -1), (A, (1, 2)), (S, 1)],
    axis=[0, 1, -1, (0, 1), (0, 0)])
function(anp.repeat, [(S, 3), (V, 2), (A, 2), (COLUMN, 3), (STACK, 2), (A, [1, 2, 0]),
    (V, [0, 2, 1, 1]), (A, [2]), (A, np.int64(2))], axis=[0, 1, -1, -2])
function(anp.tile, [(V, 2), (A, (2, 2)), (A, 2), (V, (2, 3)), (A, (2, 1, 2)), (S, 3),
    (STACK, (2, 1)), (A, [1, 2])])
function(anp.broadcast_to, [(COLUMN, (3, 4)), (V, (3, 4)), (S, (2, 2)), (A, (2, 3, 4)), (V, 4)],
    subok=[True])
function(anp.pad, [(V, 1), (A, 1), (A, (1, 2)), (A, ((1, 0), (0, 2))), (STACK, 1), (V, (2,)),
    (V, ((1, 2),)), (A, np.array([[1, 0], [2, 1]])), (A, 0)],
    mode=["constant", "edge", "reflect", "symmetric", "wrap"],
    also=[dict(mode="constant", constant_values=2.0),
    dict(mode="constant", constant_values=((1.0, 2.0),))], refused={"mode": "empty"},
    reasons={"kwargs": "those of the modes: functions_arrange"})
function(anp.diag, [(V,), (A,), (SQUARE,)], k=[1, -1, 2])
function(anp.diagonal, [(A,), (SQUARE,), (STACK,)], offset=[1, -1], axis1=[1, -1], axis2=[0, 2],
    also=[dict(axis1=-1, axis2=-2), dict(axis1=1, axis2=2), dict(axis1=2, axis2=0, offset=1)])
function(
    anp.make_diagonal,
    [(V, 0, -1, -2), (A, 0, -1, -2)],  # autograd's own function, which refuses others
)
function(anp.triu, [(A,), (SQUARE,), (STACK,), (V,)], k=[1, -1])
function(anp.tril, [(A,), (SQUARE,), (STACK,), (V,)], k=[1, -1])
for name in ("array_split", "split"):
    function(getattr(anp, name), [(V, 2), (A, 3), (A, [1, 2]), (STACK, [1])], axis=[0, 1, -1])
function(anp.array_split, [(V, 3)], axis=[0, -1])
function(anp.vsplit, [(A, 3), (STACK, [1])])
function(anp.hsplit, [(A, 2), (V, 2), (STACK, [1, 2])])
function(anp.dsplit, [(STACK, 2), (STACK, [1, 3])])
function(anp.atleast_1d, [(S,), (V,), (A,)], refused={})
function(anp.atleast_2d, [(S,), (V,), (A,)])
function(anp.atleast_3d, [(S,), (V,), (A,), (STACK,)])
function(anp.concatenate_args, [(0, V, W), (0, A, B), (1, A, COLUMN), (-1, A, B, COLUMN),
    (0, V, C[0]), (None, A, V)], name="concatenate")
function(anp.array_from_args, [((), {}, S, S), ((), {}, V, W), ((), {}, V, C[0]),
    ((), {"ndmin": 3}, V, W), ((), {"dtype": np.float64}, V, W), ((), {}, S, 1.0, 2)],
    name="array of a list")
function(anp._array_from_scalar_or_array, [((), {}, S), ((), {}, A), ((), {"ndmin": 3}, A),
    ((), {"dtype": np.float64}, A), ((), {"order": "F"}, A)], name="array")
function(ArrayBox.__getitem__, [(A, 1), (A, -1), (A, (slice(None), 2)),
    (A, (slice(1, None), slice(None, None, 2))), (A, [0, 2, 2]), (A, A > 0.5),
    (A, (Ellipsis, None, 0)), (A, ([0, 1, 1], [2, 2, 2])), (A, slice(None, None, -1)),
    (STACK, (0, [0, 0], slice(None))), (V, np.array([1, 1, -1]))], name="indexing")
function(anp.take, [*[(A, [0, 2, 2]), (V, 1), (V, [[0, 1], [1, 1]]), (STACK, [1, 1]), (A, -1),
    (V, np.int64(2))], *[(A, [-1, -12, 3]), (A, np.array([], dtype=int)), (A, [-3, 5, 40, 29])]],
    axis=[0, 1, -1, -2], mode=["wrap", "clip", "raise"],
    also=[dict(axis=1, mode="wrap"), dict(axis=1, mode="clip"), dict(axis=0, mode="wrap")],
    refused={"out": lambda a, i: np.zeros(np.shape(np.take(a, i, mode="wrap")))})
function(anp.full, [((2, 3), S), (4, S), ((3, 4), V), ((3, 4), COLUMN), ((), S), ((2, 4), Held(V))],
    dtype=[np.float64], order=["F"], refused={"device": "cpu"},
    reasons={"like": "for other libraries' arrays"})
function(anp.full_like, [(Held(A), S), (A, S), (A, V), (A, COLUMN)], dtype=[np.float64],
    order=["F"], subok=[False], shape=[(2, 4)], device=["cpu"])
function(anp.linspace, [(S, S + 1.0), (S, S + 1.0, 5), (S, Held(2.0), 4), (V, W, 3), (S, V, 3),
    (V, S, 4), (0.0, S, 3)], num=[3, 1, 0], endpoint=[False], retstep=[True], dtype=[np.float64],
    axis=[-1, 1], refused={"device": "cpu"}, also=[dict(num=4, endpoint=False),
    dict(num=3, axis=1)])
function(anp.diff, [(V,), (A,), (STACK,), (COLUMN,)], n=[0, 2, 3], axis=[0, 1, -2],
    prepend=[5.0, np.float64(2.0), COLUMN], append=[5.0, A],
    also=[dict(prepend=1.0, append=A, n=2), dict(prepend=1.0, append=2.0),
    dict(axis=0, prepend=V[None], append=1.0)])
function(anp.gradient, [(V,), (A,), (STACK + 0.1,), (np.tile(A, (2, 1)),), (V, 0.5),
    (V, Held(np.array([0.0, 0.3, 0.7, 1.5]))), (A, 0.5, 2.0), (np.tile(V, 2),), (V[:2],), (V[:3],),
    (V, S), (A, S, np.cumsum(V)), (Held(A), Held(0.5), np.cumsum(W))],
    axis=[0, 1, -1, (0, 1), (1,)], edge_order=[2])

# ------------------------------------------------------------------------------- products

NO_OUT = {"out": lambda a, b: np.zeros(np.shape(anp_dot(a, b)))}


def anp_dot(a, b):
    return np.dot(getattr(a, "value", a), getattr(b, "value", b))


function(anp.dot, [(A, B.T), (A, V), (V, A.T), (V, W), (S, V), (A, S), (STACK, B.T), (STACK, V),
    (STACK, STACK[:, 0, :, None] * np.ones((2, 4, 3))), (C, B.T), (A, C.T), (C[0], V), (S, S)],
    refused=NO_OUT)
function(anp.matmul, [(A, B.T), (A, V), (V, A.T), (V, W), (STACK, np.swapaxes(STACK, 1, 2)),
    (A, np.swapaxes(STACK, 1, 2)), (STACK, B.T), (STACK, V), (V, B.T),
    (STACK[:1], np.swapaxes(STACK, 1, 2)), (C, B.T), (A, C.T), (A.T[:, :1], COLUMN.T)],
    refused={"out": lambda a, b: np.zeros(np.shape(np.matmul(a, b))), "casting": "unsafe",
    "order": "C", "dtype": np.float64, "subok": False, "axes": [(-2, -1), (-2, -1), (-2, -1)]},
    reasons={"signature": "another way to write dtype", "axis": "for the loops of other ufuncs",
    "keepdims": "for the loops of other ufuncs"})
function(anp.inner, [(A, B), (V, W), (A, V), (V, A), (S, A), (A, S), (STACK, A), (C, B)])
function(anp.outer, [(V, W), (V, A[0]), (V, W[:3]), (A, V), (V, A), (S, V), (C[0], V), (V, C[0])],
    refused={"out": lambda a, b: np.zeros((np.size(a), np.size(b)))})
function(anp.tensordot, [(A, B.T), (STACK, STACK), (A, B), (V, W), (C, B), (A, V)],
    axes=[0, 1, 2, ([0, 1], [0, 1]), ([1, 0], [1, 0]), (1, 1), ([0], [0]), (-1, -1), ([-1], [1]),
    ([], [])])
function(anp.kron, [(A, B), (V, W), (A, V), (V, A), (S, A), (STACK, A), (A, STACK),
    (STACK[:, :1], STACK[:1, :, :2]), (STACK[None, :, :2, :1], V), (C[0], V)])
function(anp.cross, [(A[:, :3].copy(), B[:, :3].copy()), (V[:3].copy(), W[:3].copy()),
    (A[:, :3].copy(), V[:3].copy()), (V[:3].copy(), A[:, :3].copy())], axisa=[0], axisb=[0],
    axisc=[0], axis=[0, 1, -1], also=[dict(axisa=0, axisb=0, axisc=0),
    dict(axisa=0, axisb=1, axisc=0)])
function(anp.einsum, [("ij,kj->ik", A, B), ("ij,kj", A, B), ("...j,j->...", A, V), ("ij->", A),
    ("ij->j", A), ("i,i", V, W), ("ij,ij->", A, B), ("ii->i", SQUARE), ("ii", SQUARE),
    ("ijk,kl,l->i", STACK, A.T, V[:3]), ("i,j->ij", V, W), ("ij,kj->ik", C, B),
    ("...,...->...", V, A), ("ij,j->ij", COLUMN, V), ("i,ij->j", V[:1], A),
    ("ij,kj->ik", COLUMN, B), (A, [0, 1], B, [2, 1], [0, 2]), (A, [0, 1], B, [2, 1]),
    (A, [Ellipsis, 1], V, [1], [Ellipsis]), ("i...->...", A), ("ij...,j->i...", STACK, V[:3]),
    ("i,ij,j->", V[:3], A, W)], optimize=[True],
    refused={"out": lambda *args: np.zeros(np.shape(np.einsum(*args)))},
    reasons={"kwargs": "dtype, order and casting"})
