"""laplace: effects integrated out of a density, by Laplace's approximation."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from daskgrad.autodiff.tape import value
from daskgrad.autodiff.tape.curvature import gradient_and_hessian
from daskgrad.autodiff.values.descriptions import describe, function_name
from daskgrad.autodiff.values.trees import map_leaves

ROUNDS = 30  # of Newton's method, of which most are at rest
QUICK = 0.25  # lengths of steps, in the Hessian's norm, that are not shortened
AT_REST = 1e-4  # such a length at the mode
FLAT = 1e-14  # of the largest eigenvalue: less is rounding


def laplace(joint: Callable, effects: Any) -> Callable:
    """The logarithm of ∫ exp(``joint(b, *args)``) db over effects b, by Laplace's approximation.

    ::

        def joint(b, patient, p):                     # log density of data and effects
            return log_likelihood(patient, p["typical"] * np.exp(b)) + log_prior(b, p["scales"])

        marginal = dg.laplace(joint, np.zeros(2))
        total = dg.map_sum(marginal, patients, p)     # the marginal log likelihood

    With the mode b̂ of ``joint`` and its Hessian H by b there, the value is joint(b̂) + (q / 2)
    log(2π) - ½ log det(-H), for q effects: exact if ``joint`` is a parabola in b, else an
    approximation, which is better the more data an effect has.

    Parameters
    ----------
    joint:
        a plain function of the effects and any arguments, written as a model; twice differentiable
        by the effects, and it uses them at all places near ``effects``.
    effects:
        the point at which the search for the mode begins: a float, or an array of one axis.

    Returns
    -------
    function
        A model with the other arguments of ``joint``, for ``dg.map_sum`` and ``dg.delayed``. It has
        derivatives of first and second order by all of them, that of the determinant included.

        The mode is found by Newton's method, 30 steps that are shortened where needed, from the
        same point at each call: so the value has the same bits on every scheduler. It is the mode
        that this finds; others are not looked for. A call takes some 30 Hessians of ``joint``, and
        as a program all items of a sum go together.

        Sources: L. Tierney and J. B. Kadane, Journal of the American Statistical Association 81,
        1986; K. Kristensen et al., TMB, Journal of Statistical Software 70(5), 2016.

    Raises
    ------
    LinAlgError
        if ``joint`` has no maximum near where the search ends: -H is not positive definite, or the
        slope is not zero. The error of a sum names the item.
    TypeError
        if ``joint`` is no function or returns no number, or the effects are no real vector.

    See Also
    --------
    implicit, map_sum

    Examples
    --------
    >>> joint = lambda b, y, m: -0.5 * np.sum((y - m - b[0]) ** 2) - 0.5 * b[0] ** 2
    >>> marginal = dg.delayed(dg.laplace(joint, np.zeros(1)))
    >>> value, slope = dg.value_and_grad(marginal, argnums=1)(np.array([1.0, 2.0, 3.0]), 0.5)
    >>> round(float(value), 6), round(float(slope), 6)
    (-1.617959, 1.125)
    """
    if not callable(joint):
        raise TypeError(f"laplace takes a function of effects first; found {describe(joint)}")
    start = np.asarray(effects, float) if np.isrealobj(effects) else np.zeros((0, 0))
    if start.ndim > 1 or not start.size:
        raise TypeError(
            f"the effects of laplace must be a real number or a vector of them, where the search "
            f"for the mode begins; found {describe(effects)}"
        )
    name = function_name(joint)

    @functools.wraps(joint)
    def marginal(*args: Any) -> Any:
        density = of_effects(joint, args, start.ndim)
        plain = of_effects(joint, map_leaves(value, args), start.ndim)
        b = np.atleast_1d(start)
        height = plain(b)
        if np.shape(height) != ():
            raise TypeError(
                f"laplace's {name!r} must return a number, the logarithm of a density; found "
                f"{describe(height)}"
            )
        b = mode(plain, b, height)
        for polish in (True, True, False):  # by which derivatives of two orders are the mode's
            slope, hessian = gradient_and_hessian(density, b)
            eigenvalues = np.linalg.eigvalsh(value(hessian))
            if not np.max(eigenvalues) < FLAT * np.min(eigenvalues):
                raise np.linalg.LinAlgError(
                    f"the Hessian of {name!r} by its effects is not negative definite where the "
                    f"search for their mode ended; its effects need a prior, another start, or "
                    f"fewer of them"
                )
            b = b - np.linalg.solve(hessian, slope) if polish else b
        plain_slope = value(slope)
        if not -plain_slope @ np.linalg.solve(value(hessian), plain_slope) < AT_REST**2:
            raise np.linalg.LinAlgError(
                f"no mode of {name!r} by its effects was found in {ROUNDS} steps of Newton's "
                f"method; begin nearer to it, or scale the effects"
            )
        half = np.sum(np.log(np.diag(np.linalg.cholesky(-hessian))))
        return density(b) + 0.5 * b.size * np.log(2.0 * np.pi) - half

    return marginal


def of_effects(joint: Callable, args: Sequence[Any], axes: int) -> Callable:
    return lambda b: joint(b if axes else b[0], *args)


def mode(density: Callable, b: Any, height: Any) -> Any:
    """A maximum by Newton's method with eigenvalues made positive; steps are shortened if they are
    long, or if the density would fall. All calls take the same steps, whatever the data."""
    factor: Any = 1.0
    for _ in range(ROUNDS):
        slope, hessian = gradient_and_hessian(density, b)
        eigenvalues, vectors = np.linalg.eigh(hessian)
        sizes = np.abs(eigenvalues)
        parts = (slope @ vectors) / np.maximum(sizes, 1e-8 * np.max(sizes) + 1e-300)
        step = vectors @ parts
        length = np.sqrt(np.abs(slope @ step))
        trial = b + factor * np.where(length > QUICK, 1.0 / (1.0 + length), 1.0) * step
        there = density(trial)
        is_higher = there >= height - 1e-12 * np.abs(height)
        b, height = np.where(is_higher, trial, b), np.where(is_higher, there, height)
        factor = np.where(is_higher, np.minimum(2.0 * factor, 1.0), factor / 8.0)
    return b
