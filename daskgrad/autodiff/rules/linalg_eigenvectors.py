"""Eigenvectors and singular vectors, and a guard where their eigenvalues are nearly equal.

The rules divide by the gaps between eigenvalues. For a smooth function of the matrix the dividend
vanishes with the gap; so where the gap is of the size of rounding errors, the quotient is noise.
"""

import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import autograd.numpy as anp
import numpy as np
from autograd.builtins import list as autograd_list
from autograd.builtins import tuple as autograd_tuple
from autograd.core import primitive_vjps
from autograd.extend import primitive
from autograd.numpy import linalg
from autograd.tracer import isbox

from daskgrad.autodiff.rules.declaration import (
    Refusal,
    declare,
    equivalent,
    is_recorded,
    of_one,
    plain,
    shape_of,
)
from daskgrad.autodiff.rules.linalg import conjugate_transposed, transposed

PARTS = {  # of a decomposition: vectors and values, as messages call them
    "eigh": ("eigenvectors", "eigenvalues"),
    "eig": ("eigenvectors", "eigenvalues"),
    "svd": ("u and vh", "singular values"),
}

# --------------------------------------------------------------------------------------- the guard

LOST = 1e-3  # the least relative rounding error that is refused


def notable(epsilon: float) -> float:
    """The least relative rounding error with a warning: half of the digits."""
    return math.sqrt(epsilon)


def guarded(fun: str, values: Any, cotangents: Sequence[Any], pull: Callable[[Any], Any]) -> Any:
    """The cotangent of a matrix, ``pull(values)``, with the vectors' ``cotangents``; a Refusal if
    rounding errors have drowned it. Equal values are pulled apart unless both cotangents are
    zero."""
    sizes = plain(values)
    cotangents = [g for g in map(plain, cotangents) if np.any(g)]
    count = sizes.shape[-1]
    if not cotangents or count < 2:
        return pull(values)
    gaps = gaps_of(sizes)
    epsilon = np.finfo(gaps.dtype).eps
    result = pull(values if np.all(gaps) else values + (apart(sizes) - sizes))
    strength = sum(map(norm, cotangents))
    largest = np.max(np.abs(sizes), -1)
    uncancelled = strength / np.where(largest, largest, 1.0)
    scale = np.where(largest, norm(plain(result)) + uncancelled, 0.0)
    nearest = np.min(gaps, (-2, -1))
    if not np.all(epsilon * count * strength <= notable(epsilon) * nearest * scale):
        lengths = sum([np.linalg.norm(g, axis=-2) for g in cotangents])
        errors = epsilon * (lengths[..., None, :] + lengths[..., :, None])
        require_accurate(fun, gaps, errors, scale)
    return result


def gaps_of(sizes: np.ndarray) -> np.ndarray:
    """The distance of each pair of values; infinity on the diagonal."""
    count = sizes.shape[-1]
    gaps = np.abs(sizes[..., None, :] - sizes[..., :, None])
    gaps[..., range(count), range(count)] = np.inf
    return gaps


def norm(matrix):
    return np.linalg.norm(matrix, axis=(-2, -1))


def require_accurate(fun: str, gaps: np.ndarray, errors: np.ndarray, scale: Any) -> None:
    """Raises if rounding errors over gaps exceed a thousandth of the scale; warns well before.
    Pairs that do not count have no ``errors``."""
    with np.errstate(divide="ignore", invalid="ignore"):
        parts = np.where(errors > 0.0, errors / gaps, 0.0)
        loss = float(np.max(norm(parts) / scale)) if np.any(parts) else 0.0
    if not loss > notable(np.finfo(gaps.dtype).eps):  # NaN: there is one in the cotangent
        return
    gap = float(np.min(np.where(errors > 0.0, gaps, np.inf)))
    kind = "equal" if gap == 0.0 else "nearly equal"
    vectors, values = PARTS[fun]
    subject = f"{vectors} of a matrix a with {kind} {values} (smallest gap {gap:.1e})"
    if loss > LOST:
        raise Refusal(
            f"np.linalg.{fun} has no derivative rule for {subject}, which leave the directions "
            f"open; {advice(values)}"
        )
    warnings.warn(
        f"np.linalg.{fun}: a derivative through the {subject} has about {-math.log10(loss):.0f} "
        f"right digits; if the function is smooth in a, {advice(values)}",
        RuntimeWarning,
        stacklevel=2,
    )


def advice(values: str) -> str:
    return (
        f"take the {values} alone (np.linalg.eigvalsh, eigvals, svdvals), or write the "
        f"function of the matrix: np.linalg.inv, matrix_power, expm of daskgrad.scipy.linalg, a "
        f"series, an equation that it solves (dg.implicit), or the projector on a whole cluster"
    )


def apart(sizes: np.ndarray) -> np.ndarray:
    """The values, with equal ones one unit in the last place apart."""
    sizes = sizes.copy()
    largest = np.max(np.abs(sizes), -1)
    step = np.where(largest, np.spacing(largest), 1.0)
    for n in range(1, sizes.shape[-1]):
        is_equal = (sizes[..., :n] == sizes[..., n : n + 1]).any(-1)
        while np.any(is_equal):
            sizes[..., n] = np.where(is_equal, sizes[..., n] + step, sizes[..., n])
            is_equal = (sizes[..., :n] == sizes[..., n : n + 1]).any(-1)
    return sizes


def warn_of_tangents(fun: str, values: Any) -> None:
    """Forward mode does not know which vectors are used, so it warns if they may be."""
    sizes = plain(values)
    if sizes.shape[-1] < 2:
        return
    gaps = gaps_of(sizes)
    limit = notable(np.finfo(gaps.dtype).eps) * np.max(np.abs(sizes), -1)
    if np.any(np.min(gaps, (-2, -1)) <= limit):
        vectors, values = PARTS[fun]
        warnings.warn(
            f"np.linalg.{fun}: tangents of {vectors} have few right digits, as two {values} are "
            f"nearly equal (smallest gap {np.min(gaps):.1e}); if the function is smooth in a, "
            f"{advice(values)}",
            RuntimeWarning,
            stacklevel=2,
        )


def require_distinct(fun: str, values: Any) -> None:
    """Raises if values are equal whose slopes are differentiated: the curvature has quotients of
    slopes' differences and gaps, which no cotangent tells if the slopes are equal, too. Warns if
    values are nearly equal."""
    if not isbox(values) or is_recorded(values) or shape_of(values)[-1] < 2:
        return
    if np.all(gaps_of(plain(values))):
        return warn_of_tangents(fun, values)
    values = PARTS[fun][1]
    raise Refusal(
        f"np.linalg.{fun} and its {values} have no rule for second derivatives at a matrix a with "
        f"equal {values}; write the function of the matrix: np.sum of squares of its entries, "
        f"np.trace of a power of it, np.linalg.det, or another one"
    )


# ----------------------------------------------------------------------------------- eigenvectors


@of_one
def eigh_adjoint(g, ans, *args, **kwargs):
    def pull(values):
        factors = autograd_tuple((values, ans[1]))
        return primitive_vjps[linalg.eigh]((0,), factors, args, kwargs)(g)[0]

    require_distinct("eigh", ans[0])
    return guarded("eigh", ans[0], [g[1]], pull)


def eigh_tangent(argnums, tangents, ans, args, kwargs):
    """Vectors of equal eigenvalues get NaN, which does no harm to the eigenvalues."""
    is_lower = (args[1] if len(args) > 1 else kwargs.get("UPLO", "L")).upper() == "L"
    values, vectors = ans[0], ans[1]
    require_distinct("eigh", values)
    size = shape_of(values)[-1]
    half = (anp.tril if is_lower else anp.triu)(tangents[0], -1 if is_lower else 1)
    whole = half + conjugate_transposed(half) + anp.real(tangents[0]) * np.eye(size)
    turned = anp.matmul(conjugate_transposed(vectors), anp.matmul(whole, vectors))
    slopes = turned * reciprocal_gaps(values)
    return autograd_tuple((anp.real(diagonal(turned)), anp.matmul(vectors, slopes)))


def diagonal(matrix):
    return anp.diagonal(matrix, 0, -2, -1)


def reciprocal_gaps(values, none=np.nan):
    """One over the gap of each pair, over ``none`` if it is zero; zero on the diagonal."""
    size = shape_of(values)[-1]
    gaps = values[..., None, :] - values[..., :, None] + np.eye(size)
    return (1.0 - np.eye(size)) / anp.where(plain(gaps) == 0.0, none, gaps)


@of_one
def eig_adjoint(g, ans, a):
    def pull(values):
        cotangent = pull_eig(values, ans[1], g)
        return cotangent if anp.iscomplexobj(a) else anp.real(cotangent)

    require_distinct("eig", ans[0])
    steepness = steepness_of(plain(ans[1]))
    result = guarded("eig", ans[0], [g[1]], pull)
    cotangents = plain(g[0]), norm(plain(result))
    require_diagonalizable(plain(ans[0]), plain(ans[1]), steepness, *cotangents)
    return result


def steepness_of(vectors):
    """The condition number of each eigenvalue: the length of its left vector, for right ones of the
    length one."""
    try:
        with np.errstate(all="ignore"):
            return np.linalg.norm(np.linalg.inv(vectors), axis=-1)
    except np.linalg.LinAlgError as error:
        raise Refusal(defective(np.inf)) from error


def defective(condition):
    return (
        f"np.linalg.eig and eigvals have no derivative rule for eigenvalues of a matrix a that is "
        f"nearly defective: its eigenvectors are nearly parallel (condition number "
        f"{condition:.1e}); write the function of the matrix: np.trace of a power of it, "
        f"np.linalg.det, or expm of daskgrad.scipy.linalg"
    )


def require_diagonalizable(values, vectors, steepness, strengths=0.0, scale=0.0):
    """Raises if the eigenvectors are nearly parallel, so that slopes of the eigenvalues, of these
    ``strengths``, have rounding errors of more than a thousandth of the scale; warns well before.
    With no strength, as in forward mode, the scale is the slope of one eigenvalue.

    An error of the matrix moves a slope by both condition numbers over the gap (G. W. Stewart,
    J.-G. Sun, "Matrix perturbation theory", 1990, V.2)."""
    if values.shape[-1] < 2:
        return
    is_one = not np.any(strengths)  # or those of squares, at eigenvalues of zero
    strengths = np.eye(1, values.shape[-1])[0] if is_one else strengths
    epsilon = np.finfo(vectors.dtype).eps
    largest = np.max(np.abs(values), -1)[..., None, None]
    parallel = np.abs(conjugate_transposed(vectors) @ vectors) ** 2
    unequal = np.abs(strengths[..., None, :] - strengths[..., :, None]) * parallel
    with np.errstate(all="ignore"):
        unequal = unequal * largest / np.maximum(gaps_of(values), epsilon * largest)
        errors = np.nan_to_num(unequal) + np.abs(strengths)[..., None, :]
        errors = epsilon * errors * steepness[..., None, :] * steepness[..., :, None]
        errors = np.max(np.nan_to_num(errors, posinf=np.inf), (-2, -1))
        errors = errors / (np.max(steepness, -1) if is_one else scale)
        loss = float(np.max(np.nan_to_num(errors, nan=np.inf if is_one else 0.0, posinf=np.inf)))
    if not loss > notable(epsilon):
        return
    message = defective(np.max(steepness))
    if loss > LOST:
        raise Refusal(message)
    warnings.warn(
        message.replace(
            "no derivative rule", f"derivatives of about {-math.log10(loss):.0f} digits"
        ),
        RuntimeWarning,
        stacklevel=2,
    )


def pull_eig(values, vectors, g):
    """autograd's rule without the 1e-20 that it adds to gaps: too much for small matrices. Values
    are equal only if no vector is used."""
    identity, turned = np.eye(shape_of(values)[-1]), transposed(vectors)
    of_vectors, quotients = anp.matmul(turned, g[1]), reciprocal_gaps(values, 1.0)
    along = anp.matmul(anp.matmul(turned, anp.conj(vectors)), anp.real(of_vectors) * identity)
    inner = identity * g[0][..., None, :] + quotients * of_vectors - quotients * along
    return anp.matmul(anp.matmul(linalg.inv(turned), inner), turned)


def eig_tangent(argnums, tangents, ans, args, kwargs):
    """Vectors keep their length, as LAPACK's do, and their phase, as autograd's do."""
    values, vectors = ans[0], ans[1]
    require_distinct("eig", values)
    steepness = steepness_of(plain(vectors))
    require_diagonalizable(plain(values), plain(vectors), steepness)
    turned = linalg.solve(vectors, anp.matmul(tangents[0] + 0.0 * vectors, vectors))
    slopes = anp.matmul(vectors, turned * reciprocal_gaps(values))
    along = anp.real(anp.sum(anp.conj(vectors) * slopes, axis=-2, keepdims=True))
    return autograd_tuple((diagonal(turned), slopes - vectors * along))


def warning(tangent: Callable) -> Callable:
    """The rule for tangents with a warning, since vectors may be used."""

    def warned(argnums, tangents, ans, args, kwargs):
        warn_of_tangents("eigh" if tangent is eigh_tangent else "eig", ans[0])
        return tangent(argnums, tangents, ans, args, kwargs)

    return warned


declare(linalg.eigh, adjoint=eigh_adjoint, tangent=warning(eigh_tangent), keywords="UPLO")
declare(linalg.eig, adjoint=eig_adjoint, tangent=warning(eig_tangent))


@primitive
def eigh_for_values(a, UPLO="L"):
    """For eigenvalues alone, so that no tangent of a vector is used."""
    return tuple(np.linalg.eigh(a, UPLO))


@primitive
def eig_for_values(a):
    return tuple(np.linalg.eig(a))


declare(eigh_for_values, adjoint=eigh_adjoint, tangent=eigh_tangent)
declare(eig_for_values, adjoint=eig_adjoint, tangent=eig_tangent)

# -------------------------------------------------------------------------------- singular vectors


def svd_adjoint(argnums, ans, args, kwargs):
    pullback = primitive_vjps[linalg.svd](argnums, ans, args, kwargs)
    if not isinstance(plain(ans), tuple | list):
        return pullback
    u, sizes, vh = ans

    def svd_pullback(g):
        require_distinct("svd", sizes)
        if not (np.any(plain(g[0])) or np.any(plain(g[2]))):
            return (anp.matmul(anp.conj(u) * g[1][..., None, :], anp.conj(vh)),)

        cotangents = [g[0], conjugate_transposed(g[2])]
        return (guarded("svd", sizes, cotangents, lambda values: pull_svd(u, values, vh, g)),)

    return svd_pullback


def pull_svd(u, sizes, vh, g):
    """J. Townsend, as the tangent; in products with no more entries than the matrix."""
    v, gu, gv = conjugate_transposed(vh), g[0], conjugate_transposed(g[2])
    rows, columns = sizes[..., None, :], sizes[..., :, None]
    identity = np.eye(shape_of(sizes)[-1])
    quotients = 1.0 / (rows**2 - columns**2 + identity)
    of_u, of_v = anp.matmul(transposed(u), gu), anp.matmul(transposed(v), gv)
    inner = quotients * (of_u - conjugate_transposed(of_u)) * rows + identity * g[1][..., :, None]
    inner = inner + columns * quotients * (of_v - conjugate_transposed(of_v))
    if anp.iscomplexobj(plain(u)):
        inner = inner + 1j * anp.imag(of_u) * identity / rows
    left = anp.matmul(anp.conj(u), inner) + anp.conj(outside(u, anp.conj(gu))) / rows
    beyond = transposed(outside(v, anp.conj(gv)))
    return anp.matmul(left, transposed(v)) + anp.matmul(anp.conj(u) / rows, beyond)


def svd_tangent(argnums, tangents, ans, args, kwargs):
    """J. Townsend, "Differentiating the singular value decomposition", 2016."""
    are_values = not isinstance(plain(ans), tuple | list)
    u, sizes, vh = linalg.svd(args[0], full_matrices=False) if are_values else ans
    require_distinct("svd", sizes)
    t, v = tangents[0], conjugate_transposed(vh)
    turned = anp.matmul(conjugate_transposed(u), anp.matmul(t, v))
    slopes = anp.real(diagonal(turned))
    if are_values:
        return slopes
    warn_of_tangents("svd", sizes)
    quotients = reciprocal_gaps(sizes**2)
    rows, columns = sizes[..., None, :], sizes[..., :, None]
    adjoint = conjugate_transposed(turned)
    of_u = quotients * (turned * rows + columns * adjoint)
    of_v = quotients * (columns * turned + adjoint * rows)
    if anp.iscomplexobj(plain(u)):
        of_u = of_u + 1j * anp.imag(turned) * np.eye(shape_of(sizes)[-1]) / rows
    tangent_u = anp.matmul(u, of_u) + outside(u, anp.matmul(t, v)) / rows
    tangent_v = anp.matmul(v, of_v) + outside(v, anp.matmul(conjugate_transposed(t), u)) / rows
    return autograd_list([tangent_u, slopes, conjugate_transposed(tangent_v)])


def outside(basis, vectors):
    """The parts of vectors that are orthogonal to a basis; zero if the basis is complete."""
    rows, columns = shape_of(basis)[-2:]
    if rows == columns:
        return anp.zeros_like(vectors)
    return vectors - anp.matmul(basis, anp.matmul(conjugate_transposed(basis), vectors))


@equivalent(
    linalg.svd,
    adjoint=svd_adjoint,
    tangent=svd_tangent,
    needed=lambda a, full_matrices=True, compute_uv=True: full_matrices and compute_uv,
    keywords="full_matrices compute_uv",
)
def full_svd(a, full_matrices=True, compute_uv=True):
    """autograd refuses full matrices; square ones are full without more columns."""
    shape = shape_of(a)[-2:]
    if shape[0] != shape[1]:
        raise Refusal(
            f"np.linalg.svd has no derivative rule for full_matrices=True, the default, and a "
            f"matrix of shape {shape}, as its last vectors are any; write full_matrices=False"
        )
    return list(linalg.svd(a, full_matrices=False))
