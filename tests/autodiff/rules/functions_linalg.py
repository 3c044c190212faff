"""The table of the sweep: linear algebra and Fourier transforms, of NumPy and SciPy."""

from inspect import signature

import autograd.numpy.fft as fft
import autograd.numpy.linalg as la
import autograd.scipy.linalg as sla
import autograd.scipy.signal as signal
import numpy as np
import scipy.linalg
from autograd.numpy import numpy_wrapper as anp
from functions_numpy import STACK, A, C, V, W, spaced
from sweep import Wrt, function

M = spaced(11, 3, 3) + 3.0 * np.eye(3)
N = spaced(12, 2, 3, 3) + 3.0 * np.eye(3)  # a stack
TALL, WIDE = spaced(13, 4, 2), spaced(14, 2, 3)
TALLS = spaced(15, 2, 4, 2)
RIGHT = spaced(16, 3, 2)
POSITIVE = M @ M.T
POSITIVES = N @ np.swapaxes(N, -1, -2)
SPREAD = np.diag([1.0, 2.0, 4.0]) + 0.1 * M
Z = M + 0.3j * spaced(17, 3, 3)


def hermitian(a):
    return (a + anp.conj(anp.swapaxes(a, -1, -2))) / 2.0


def of_hermitian(fun):
    return lambda a, *args, **kwargs: fun(hermitian(a), *args, **kwargs)


# What of eigenvectors does not depend on their phases.


def of_eigenpairs(fun):
    def values_and_products(a, *args, **kwargs):
        w, v = fun(hermitian(a), *args, **kwargs)
        return [w, v * anp.conj(v[..., :1, :])]

    return values_and_products


def of_eigenvalues(fun):
    def values_and_vectors(a):
        w, v = fun(a)
        return [w, v / anp.einsum("...ii->...i", v)[..., None, :]]  # where none is small

    return values_and_vectors


def of_singular(fun):
    def products(a, full_matrices=False, compute_uv=True, **kwargs):
        if not compute_uv:
            return fun(a, full_matrices=full_matrices, compute_uv=False, **kwargs)
        u, s, vh = fun(a, full_matrices=full_matrices, **kwargs)
        return [u * anp.conj(u[..., :1, :]), s, u[..., :1, :] * anp.swapaxes(vh, -1, -2)]

    return products


def of_sign(fun):
    def sign_and_log(a):
        sign, log = fun(a)
        return [sign, log]

    return sign_and_log


function(la.inv, [(M,), (N,), (M[:1, :1].copy(),)])
function(la.det, [(M,), (N,), (Z,)])
SINGULAR = np.array([[1.0, 2.0, 3.0], [2.0, 4.0, 6.0], [0.5, 0.3, 0.1]])
RANK1 = SINGULAR[:1].T @ SINGULAR[1:2]
function(la.det, [(SINGULAR,), (RANK1,), (np.zeros((3, 3)),), (np.zeros((1, 1)),),
    (np.array([M, SINGULAR]),)], name="det of singular matrices",
    reasons={"single": "rounding leaves no matrix singular"})
function(la.slogdet, [(M,), (-M,), (N,)], adapt=of_sign)
function(la.solve, [(M, RIGHT), (M, V[:3].copy()), (N, RIGHT), (N, spaced(18, 2, 3, 2)),
    (M, spaced(18, 2, 3, 2)), (Z, RIGHT), (M, Z)])
function(la.pinv, [(TALL,), (WIDE,), (M,), (TALLS,)], rcond=[1e-10], hermitian=[False],
    rtol=[1e-10])
function(la.pinv, [(POSITIVE,), (POSITIVES,)], hermitian=[True], rcond=[1e-10], adapt=of_hermitian,
    name="pinv of a Hermitian matrix")
function(la.cholesky, [(POSITIVE,), (POSITIVES,)], upper=[True], adapt=of_hermitian)
function(la.eigh, [(SPREAD,), (POSITIVES,)], UPLO=["L", "U"], adapt=of_eigenpairs)
function(la.eig, [(SPREAD,), (N + np.diag([0.0, 1.0, 3.0]),)], adapt=of_eigenvalues)
function(la.svd, [(TALL,), (WIDE,), (SPREAD,), (TALLS,)], compute_uv=[False], full_matrices=[False],
    adapt=of_singular, refused={"full_matrices": Wrt((TALL,), {"full_matrices": True}),
    "hermitian": Wrt((POSITIVE,), {"hermitian": True})})
function(la.svd, [(SPREAD,), (N,)], full_matrices=[True], adapt=of_singular,
    name="full svd of squares")
function(la._primitive_norm, [(V,), (A,), (STACK,), (-V,), (C[0],)],
    ord=[2, 3, 1, 0.5, "fro", "nuc", 2.5], axis=[0, 1, -1, (0, 1), (1, 0), (-1, -2), (0, 2),
    (2, 0)], keepdims=[True], also=[dict(axis=1, keepdims=True, ord=3),
    dict(axis=(0, 2), keepdims=True, ord="nuc"), dict(axis=(2, 0), ord="fro", keepdims=True)],
    refused={"ord": 0})

function(la._primitive_norm, [(V,), (A,), (-STACK,)], ord=[np.inf, -np.inf, 1, -1, -2],
    axis=[0, (0, 1), (-1, -2)], keepdims=[True], reasons={"complex": "the largest of equal sizes"})
function(la._primitive_norm, [(np.array([0.3, 0.0, -0.5]),)], ord=[2])

FFT_INPUTS = [(V,), (STACK,), (C,), (spaced(21, 5),)]
NORMS = ["ortho", "forward", "backward"]
for name in ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft"):
    function(getattr(fft, name), FFT_INPUTS, n=[3, 6, 5], axis=[0, 1, -2], norm=NORMS,
        also=[dict(n=6, norm=norm) for norm in NORMS[:2]] + [dict(n=3, axis=0)],
        refused={"out": Wrt((V,), {"out": np.empty_like(getattr(np.fft, name)(V))})})
for name in ("fft2", "ifft2", "rfft2", "irfft2"):
    function(getattr(fft, name), [*FFT_INPUTS[1:3], (A[:, :3].copy(),)], s=[(4, 6), (2, 3), (3, 4)],
        axes=[(0, 1), (1, 0), (-1, -2)], norm=NORMS,
        also=[dict(s=(4, 6), axes=(1, 0), norm="ortho"), dict(s=(4, 2), axes=(0, 1))],
        refused={"out": Wrt((A,), {"out": np.empty_like(getattr(np.fft, name)(A))})})
for name in ("fftn", "ifftn", "rfftn", "irfftn"):
    function(getattr(fft, name), FFT_INPUTS[:3], axes=[(0,), (-1, 0), (1, 0), None, (0, 0)],
        norm=NORMS, also=[dict(s=(4, 6), axes=(1, 0), norm="ortho"), dict(s=(4,), axes=(0,))],
        refused={"out": Wrt((A,), {"out": np.empty_like(getattr(np.fft, name)(A))})})
for name in ("fftshift", "ifftshift"):
    function(getattr(fft, name), FFT_INPUTS, axes=[0, -1, (0, 1)])

# ------------------------------------------------------------------------------------- SciPy

function(sla.solve_triangular, [(M, V[:3].copy()), (M, RIGHT), (Z, RIGHT), (M, Z)],
    trans=[0, 1, 2, "N", "T", "C"], lower=[True], unit_diagonal=[True], check_finite=[False],
    overwrite_b=[], also=[dict(trans=t, lower=True, unit_diagonal=u) for t in (0, 1,
    2) for u in (False, True)], refused={"overwrite_b": True})
function(sla.solve_banded, [((1, 1), spaced(22, 3, 4) + np.array([[0.0], [3.0], [0.0]]), V),
    ((1, 1), spaced(22, 3, 4) + np.array([[0.0], [3.0], [0.0]]), spaced(23, 4, 2)),
    ((2, 1), spaced(24, 4, 5) + np.array([[0.0], [4.0], [0.0], [0.0]]), spaced(25, 5)),
    ((0, 1), spaced(22, 2, 4) + np.array([[0.0], [3.0]]), V)], check_finite=[False],
    refused={"overwrite_ab": True, "overwrite_b": True})
function(sla.sqrtm, [(POSITIVE,), (M,)],
    reasons=dict.fromkeys({"disp", "blocksize"} & {*signature(scipy.linalg.sqrtm).parameters},
    "deprecated"))
function(sla.solve_sylvester, [(M, POSITIVE, RIGHT @ WIDE), (M, N[0], spaced(26, 3, 3)),
    (M, POSITIVE[:2, :2].copy(), RIGHT), (Z, N[0] + 0.0j, Z)])
function(signal.convolve, [(V, W[:2].copy()), (A, spaced(27, 2, 2)), (W[:2].copy(), V), (V, W)],
    mode=["full", "valid", "same"], also=[dict(axes=([1], [1]), dot_axes=([0], [0])),
    dict(axes=([1], [1]))], axes=[([0], [0])])
