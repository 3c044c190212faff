"""Places at which an integrand or its derivative jumps, and whether they depend on parameters.

A sum over fixed nodes does not see that such a place moves: of an integrand that jumps it has not
even the first derivative, of one with a kink not the second.
"""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from daskgrad.backends.autograd.corrections import derivatives_along, direction
from daskgrad.backends.autograd.functions import PlainFunction, as_array, number_at

NEAR = 64.0 * np.finfo(float).eps  # to one side of a place, as part of its size
MOVE = 1e-7  # of a parameter, as part of it
SMALL, NOISE = 1e-6, 1e-12  # jumps that are none, as part of what jumps, and of all that is sampled


def require_none_that_moves(
    fun: PlainFunction, doubtful: Iterable, places: Iterable, span: float
) -> None:
    """RuntimeError if a derivative is asked for that needs to know how such a place moves.

    Looked for at ``places`` and within ``doubtful``, of an integral over a length of ``span``.
    """

    def vector_at(twin: Callable, x: float) -> Any:
        return as_array([number_at(twin, x)])

    def sample(x: float) -> np.ndarray:
        """The integrand and its derivatives of all orders but the last."""
        with np.errstate(all="ignore"):
            found = derivatives_along(fun, lambda twin: vector_at(twin, x), fun.depth - 1)
        return np.nan_to_num(found[0], nan=0.0, posinf=0.0, neginf=0.0)

    within = [narrowed(sample, low, high, span) for low, high in doubtful]
    for x in [*places, *[x for x in within if x is not None]]:
        step = NEAR * max(abs(x), span)
        jumps = are_jumps(*[sample(x + n * step) for n in (-2.0, -1.0, 1.0, 2.0)])
        if jumps[0] and is_moving(fun, x - step, x + step):
            raise RuntimeError(message(x, "derivative", "jumps"))
        if not jumps[0] and np.any(jumps):
            raise RuntimeError(message(x, "second derivative", "has a kink"))


def message(x: float, derivative: str, does: str) -> str:
    return (
        f"integrate.quad has no {derivative} here: func {does} at {x:.6g}, a place that depends on "
        f"what is differentiated; give it among points=, or split the integral there"
    )


def narrowed(sample: Callable, low: float, high: float, span: float) -> float | None:
    """Where in an interval a function is least smooth; None if it is smooth."""
    while high - low > 0.1 * NEAR * max(abs(low), abs(high), span):
        places = np.linspace(low, high, 9)
        found = np.array([sample(x) for x in places])
        bends = np.abs(found[2:] - 2.0 * found[1:-1] + found[:-2])
        part = np.max(bends / smallest_jump(found), axis=1)
        if not np.max(part) > 1.0:
            return None
        low, high = places[np.argmax(part)], places[np.argmax(part) + 2]
    return 0.5 * (low + high)


def are_jumps(far_left: Any, left: Any, right: Any, far_right: Any) -> np.ndarray:
    """Where numbers differ between two sides, and not within one: that would be a singularity."""
    across = np.abs(right - left)
    within = np.maximum(np.abs(left - far_left), np.abs(far_right - right))
    return (across > 10.0 * within) & (across > smallest_jump(np.array([left, right])))


def smallest_jump(found: np.ndarray) -> np.ndarray:
    """For each number that is sampled; ``found`` has the samples along its first axis."""
    sizes = np.max(np.abs(found), axis=0)
    return SMALL * sizes + NOISE * np.max(sizes, axis=-1, keepdims=True) + np.finfo(float).tiny


def is_moving(fun: PlainFunction, left: float, right: float) -> bool:
    """Whether a jump between two numbers is elsewhere when the parameters are changed."""

    def height(move: float) -> float:
        twin = fun.bound_to(moved(fun.numbers, move))
        return abs(float(number_at(twin, right)) - float(number_at(twin, left)))

    return min(height(MOVE), height(-MOVE)) < 0.5 * height(0.0)


def moved(numbers: Iterable, move: float) -> list[Any]:
    """Parameters, changed by a part of their size, each in a direction of its own."""
    pairs = [(n, np.abs(n) + (n == 0.0)) for n in numbers]
    return [n + move * size * direction(np.shape(n)) for n, size in pairs]
