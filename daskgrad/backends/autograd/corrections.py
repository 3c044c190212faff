"""Corrections: solutions of equations that were found with plain numbers, traced.

A root x of F(x, θ) = 0 is a number that does not know θ. A step of Newton's method with traced θ,
``x - J⁻¹ (F(x, θ) - F(x))`` where the Jacobian J and the second F(x) are plain numbers, leaves its
value, and gives it the first derivatives of the implicit function theorem. As J is exact at x, each
further step makes one more order right: the error after a step is the product of the error before
and of J's, which is of first order. Nested traces differentiate once each, so there are as many
steps as traces. Sources: A. Griewank and A. Walther, Evaluating Derivatives, 2008, chapter 15; P.
Deuflhard, Newton Methods for Nonlinear Problems, 2004, section 2.1, of steps with a fixed Jacobian.
"""

from collections.abc import Callable, Sequence
from typing import Any

import autograd.numpy as anp
import numpy as np

from daskgrad.backends.autograd.functions import PlainFunction, as_array, depth_of
from daskgrad.backends.autograd.reverse import trace
from daskgrad.backends.autograd.unboxing import unboxed


def corrected(
    fun: Callable[[Any], Any],
    x: np.ndarray,
    jacobian_at: Callable[[np.ndarray], np.ndarray],
    what: str,
    near: float = np.inf,
) -> Any:
    """The vector x at which ``fun`` is zero, with derivatives, and with the value that it has.

    ``jacobian_at`` is plain. LinAlgError that names ``what`` if it is singular; RuntimeError if the
    root is further away than ``near``, as part of x and one. x itself if ``fun`` is not traced.
    """
    residual = as_array(fun(x))
    steps, start = depth_of(residual), unboxed(residual)
    if not steps:
        return x
    if np.shape(start) != np.shape(x):
        raise ValueError(
            f"{what} has no derivative: it needs as many equations as x has numbers, {np.size(x)}; "
            f"found {np.size(start)}"
        )
    inverse = regular_inverse(jacobian_at(x), what)
    away = np.abs(inverse @ start) / (1.0 + np.abs(x))
    if not np.max(away) <= near:
        raise RuntimeError(
            f"{what} has no derivative: what was found is no root, as a step of Newton's method is "
            f"{np.max(away):.1e} of its size"
        )
    found = x
    for step in range(steps):
        found = found - anp.dot(inverse, residual - start)
        if step + 1 < steps:
            residual = as_array(fun(found))
    return found


def jacobian(fun: Callable[[Any], Any], x: np.ndarray) -> np.ndarray:
    """The plain Jacobian of a function of a vector, by a pullback for each of its results."""
    (found,), tape = trace(lambda box: [as_array(fun(box))], [x])
    unit = np.eye(np.size(unboxed(found)))
    rows = [tape.pull([row])[0] for row in unit]
    return np.array([np.zeros(len(x)) if row is None else unboxed(row) for row in rows])


def block_jacobians(fun: Callable[[Any], Any], points: np.ndarray) -> np.ndarray:
    """The plain Jacobians of a function of rows, each of whose rows depends on its own alone."""
    _, tape = trace(lambda box: [fun(box)], [points])
    jacobians = np.zeros((*points.shape, points.shape[1]))
    for column in range(points.shape[1]):
        cotangent = np.zeros(points.shape)
        cotangent[:, column] = 1.0
        (pulled,) = tape.pull([cotangent])
        if pulled is not None:
            jacobians[:, column] = unboxed(pulled)
    return jacobians


def gradient(fun: Callable[[Any], Any], x: Any) -> Any:
    """The gradient of a function that returns a number; traced where x or the function is."""
    _, tape = trace(lambda box: [anp.reshape(as_array(fun(box)), ())], [x])
    (pulled,) = tape.pull([np.ones(())])
    return np.zeros(np.shape(unboxed(x))) if pulled is None else pulled


def derivatives_along(
    function: PlainFunction, numbers_of: Callable[[Callable], Any], order: int
) -> np.ndarray:
    """Numbers made of calls of a function, and their derivatives by what that closes over.

    A row for each number. Derivatives of first order are by each of the numbers closed over, those
    of a higher one are the slopes of the order before in one direction.
    """
    found: list[np.ndarray] = []

    def gradients(inner: Sequence, order: int) -> list[list[Any]]:
        (vector,), tape = trace(lambda *boxes: [numbers_along(boxes, order - 1)], inner)
        rows = []
        for unit in np.eye(np.size(unboxed(vector))):
            pairs = zip(tape.pull([unit]), function.numbers, strict=True)
            rows.append([np.zeros(np.shape(n)) if g is None else g for g, n in pairs])
        flat = [[np.ravel(unboxed(g)) for g in row] for row in rows]
        found.append(np.array([np.concatenate([np.zeros(0), *row]) for row in flat]))
        return rows

    def numbers_along(inner: Sequence, order: int) -> Any:
        """The derivatives of an order in one direction."""
        if order:
            slopes = [
                anp.real(sum([anp.sum(g * direction(np.shape(unboxed(g)))) for g in row]))
                for row in gradients(inner, order)
            ]
            return as_array(slopes)
        vector = numbers_of(function.bound_to(inner))
        found.append(np.reshape(unboxed(vector), (-1, 1)))
        return vector

    (gradients if order else numbers_along)(function.numbers, order)
    return np.concatenate(found, axis=1)


def direction(shape: tuple[int, ...]) -> np.ndarray:
    """One of no particular symmetry."""
    return 1.0 + 0.5 * np.cos(1.0 + np.arange(np.prod(shape, dtype=int))).reshape(shape)


def regular_inverse(matrix: np.ndarray, what: str) -> np.ndarray:
    condition = np.linalg.cond(matrix, 1) if np.all(np.isfinite(matrix)) else np.inf
    if not condition < 1.0 / np.finfo(float).eps:
        raise np.linalg.LinAlgError(
            f"{what} has no derivative: the Jacobian at the solution is singular or not finite "
            f"(condition number {condition:.1e}, shape {matrix.shape})"
        )
    return np.linalg.inv(matrix)
