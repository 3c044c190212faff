"""The table of the sweep: functions of ``numpy.linalg`` that are composed of others."""

import autograd.numpy.linalg as la
import numpy as np
from autograd.numpy import numpy_wrapper as anp
from functions_linalg import POSITIVES, RIGHT, SPREAD, TALL, TALLS, WIDE, M, N, Z, of_hermitian
from functions_numpy import STACK, A, B, C, V, W, spaced
from sweep import Held, Wrt, function

RANKLESS = np.array([[1.0, 2.0], [2.0, 4.0], [3.0, 6.0]])


function(la.lstsq, [(Held(TALL), Held(V))],
    reasons=dict.fromkeys(["a", "b", "rcond"], "refused; NumPy's is right"))
function(np.linalg.lstsq, [(TALL, V), (TALL, A.T), (WIDE, V[:2].copy()), (M, RIGHT), (Z, RIGHT)],
    rcond=[1e-10], adapt=lambda fun: (lambda a, b, *args,
    **kwargs: [fun(a, b, *args, **kwargs)[n] for n in (0, 1, 3)]),
    refused={"a": Wrt((RANKLESS, V[:3].copy()))})
function(la.tensorinv, [(spaced(42, 2, 3, 6) + np.eye(6).reshape(2, 3, 6),)])
function(la.tensorinv, [(spaced(42, 6, 2, 3) + np.eye(6).reshape(6, 2, 3),)], ind=[1],
    adapt=lambda fun: lambda a, ind=1: fun(a, ind))
TENSOR = spaced(43, 2, 3, 6) + np.eye(6).reshape(2, 3, 6)
function(la.tensorsolve, [(TENSOR, spaced(44, 2, 3))])
function(la.tensorsolve, [(np.moveaxis(TENSOR, 2, 1), spaced(44, 2, 3))], axes=[(1,), [1]],
    name="tensorsolve of other axes")
function(la.matrix_power, [(M, n) for n in (0, 1, 2, 3, 7, -1, -3)] + [(N, 5), (Z, 3)])
function(la.qr, [(TALL,), (M,), (WIDE,), (TALLS,), (N,)], mode=["reduced", "r"],
    refused={"mode": Wrt((TALL,), {"mode": "complete"}), "a": Wrt((RANKLESS,))})
function(la.qr, [(M,), (WIDE,)], mode=["complete"], name="complete qr")
function(la.svdvals, [(TALL,), (WIDE,), (SPREAD,), (TALLS,)])
function(la.eigvals, [(SPREAD,), (N + np.diag([0.0, 1.0, 3.0]),)])
function(la.eigvalsh, [(SPREAD,), (POSITIVES,)], UPLO=["L", "U"], adapt=of_hermitian)
function(la.cond, [(M,), (N,), (SPREAD,)], p=[2, -2, 1, -1, "fro", "nuc"],
    also=[dict(p=np.inf), dict(p=-np.inf)], reasons={"complex": "sums of equal sizes"})
# -------------------------------------------------------------------------- the array API's names

function(la.vector_norm, [(V,), (A,), (STACK,), (C,)], axis=[0, -1, (0, 1), (0, 2)],
    keepdims=[True], ord=[1, 2, 3, 0.5], refused={"ord": 0})
function(la.matrix_norm, [(A,), (STACK,)], keepdims=[True], ord=["fro", "nuc", 2, -2])
function(la.matrix_norm, [(A,), (STACK,)], ord=[1, -1, np.inf, -np.inf],
    reasons={"complex": "sums of equal sizes"})
function(la.diagonal, [(A,), (STACK,)], offset=[1, -1])
function(la.trace, [(A,), (STACK,)], offset=[1, -1], dtype=[np.float64])
function(la.matrix_transpose, [(A,), (STACK,)])
function(anp.matrix_transpose, [(A,), (STACK,)])
THREE, FOUR = A[:, :3].copy(), B[:, :3].copy()
function(la.cross, [(THREE, FOUR), (THREE, V[:3].copy()), (V[:3].copy(), W[:3].copy())],
    axis=[0, -1])
function(la.outer, [(V, W), (V, A[0]), (V, W[:3].copy())])
function(la.matmul, [(A, B.T), (A, V), (STACK, B.T), (C, B.T)])
function(la.tensordot, [(A, B.T), (STACK, STACK), (A, B)], axes=[0, 1, 2, ([0, 1], [0, 1])])
function(la.vecdot, [(V, W), (A, B), (A, V), (C, B)], axis=[0, -1])
