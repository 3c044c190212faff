"""Integrals of functions, as in ``scipy.integrate.quad``.

SciPy integrates plain numbers, and so finds the intervals on which a rule with fixed nodes is
accurate. The rule's sum over these nodes is taken once more with traced values: so it is
differentiated under the integral sign, with the nodes held fixed, and by the limits as Leibniz has
it.
"""

import math
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import scipy.integrate

from daskgrad.backends.autograd import value
from daskgrad.backends.autograd.functions import PlainFunction, as_array, depth_of, number_at
from daskgrad.scipy.breaks import NEAR, SMALL, require_none_that_moves
from daskgrad.scipy.intervals import Area, Integrand, Panel, joined


def quad(
    func: Callable,
    a: Any,
    b: Any,
    args: Any = (),
    full_output: Any = 0,
    epsabs: float = 1.49e-8,
    epsrel: float = 1.49e-8,
    limit: int = 50,
    points: Any = None,
    weight: str | None = None,
    wvar: Any = None,
    wopts: Any = None,
    maxp1: int = 50,
    limlst: int = 50,
    complex_func: bool = False,
) -> tuple:
    """The integral of ``func(x, *args)`` from a to b, which may be infinite, and its error.

    The integral is differentiated with respect to ``args``, to what ``func`` closes over, to a and
    b, and to ``points``, where func may jump or have a kink, in all orders. Its value is SciPy's,
    and its error SciPy's estimate, a plain number. ``func`` is called with one number at a time, as
    often as SciPy does; then, where it is traced, to see that sums over 21 nodes in each interval
    have its derivatives of the orders that are asked for to the tolerances, too, and what jumps.
    These nodes are one array if func takes SciPy's numbers as an array and returns the same values,
    which is many times faster than a call, with traced values, for each of them.

    NotImplementedError if there is a derivative to take with ``weight``, or by traced values in
    objects. RuntimeError if func jumps at a place that depends on what is differentiated, or, for
    second derivatives, has a kink there, and this is none of the ends and traced ``points``; and if
    the sums do not come to the tolerances: for singularities other than at zero that are stronger
    than a root's, and some that are at none of the ends and ``points``. A jump is taken for none if
    it is a millionth of func there.
    """
    given = (full_output, epsabs, epsrel, limit, points, weight, wvar, wopts, maxp1, limlst)
    if complex_func:
        return complex_quad(func, a, b, args, given)
    args = args if isinstance(args, tuple) else (args,)
    plain = Integrand(func, args)
    begin, end = float(value(a)), float(value(b))
    where = None if points is None else value(as_array(points))
    if any(map(depth_of, wvar if isinstance(wvar, tuple) else (wvar,))):
        require_derivative(weight)
    integral, error, info, *problem = scipy.integrate.quad(
        plain, begin, end, (), 1, epsabs, epsrel, limit, where, weight, wvar, wopts, maxp1, limlst
    )
    if problem and not full_output:
        warnings.warn(problem[0], scipy.integrate.IntegrationWarning, stacklevel=2)
    rest = (info, *problem) if full_output else ()
    moving = [point for point in each_of(points) if depth_of(point)]
    if not (plain.is_traced or depth_of(a) or depth_of(b) or moving):
        return (integral, error, *rest)
    require_derivative(weight)
    total = traced_integral(
        lambda x: func(x, *args), plain, where, (a, b, moving), info, integral, epsabs, epsrel
    )
    return (total, error, *rest)


def traced_integral(
    traced: Callable, plain: Integrand, where: Any, places: tuple, info: dict, *given: float
) -> Any:
    """SciPy's integral with its derivatives: of sums of ``traced`` inside, and of its places."""
    a, b, moving = places
    begin, end = float(value(a)), float(value(b))
    area = Area(begin, end, where)
    integral = total = given[0]
    if plain.is_traced:
        short = math.isclose(begin, end, rel_tol=1e-12) and np.isfinite(begin)
        panels = [] if short else found_panels(plain, info, area, moving, *given)
        if short:
            total = (end - begin) * number_at(traced, begin)
        elif plain.depth == 1:
            total = plain.along(np.sum([panel.sums[1:] for panel in panels], axis=0))
        else:
            total = plain.dot(traced, joined([panel.rule for panel in panels]))
    total = total + (integral - value(total))
    for limit, step in sides(area, a, b, moving):
        total = total - np.sign(step) * area.sign * strip(traced, plain, limit, step)
    return total


def complex_quad(func: Callable, a: Any, b: Any, args: Any, given: tuple) -> tuple:
    parts = [quad(part_of(func, take), a, b, args, *given) for take in (np.real, np.imag)]
    (real, first, *more), (imaginary, second, *others) = parts
    rest = ({"real": tuple(more), "imag": tuple(others)},) if given[0] else ()
    return (real + 1j * imaginary, first + 1j * second, *rest)


def found_panels(
    plain: Integrand, info: dict, area: Area, moving: list, integral: float, *eps: float
) -> list[Panel]:
    """The intervals and rules for a traced function; errors where there are none."""
    if plain.holds_others:
        raise NotImplementedError(
            "integrate.quad has no derivative by traced values that func takes from an object; "
            "pass them as args, or let func close over them"
        )
    panels = area.panels(plain, info, integral, *eps)
    if panels is None:
        raise RuntimeError(
            f"integrate.quad has no derivative here: the integral {integral:.6g}, or that of a "
            f"derivative, is no sum to these tolerances, as the integrand has a singularity, kink "
            f"or jump; split the integral there, or substitute"
        )
    places = area.boundaries(panels) - {float(value(point)) for point in moving}
    require_none_that_moves(plain, area.doubtful(panels), places, area.span)
    return panels


def sides(area: Area, a: Any, b: Any, moving: list) -> Iterator[tuple[Any, float]]:
    """Limits and points that are traced, each with a small step to where it is a limit from."""
    inner = {float(value(point)): point for point in moving if area.has_inside(value(point))}
    if len(inner) < sum([area.has_inside(value(point)) for point in moving]):
        raise RuntimeError(
            f"integrate.quad has no derivative where points= are the same number: they are "
            f"{', '.join([format(value(point), '.6g') for point in moving])}"
        )
    for limit, signs in (
        (a, [area.sign]),
        (b, [-area.sign]),
        *[(c, (1, -1)) for c in inner.values()],
    ):
        for sign in signs:
            yield limit, sign * NEAR * max(abs(value(limit)), area.span)


def part_of(func: Callable, take: Callable) -> Callable:
    return lambda x, *args: take(func(x, *args))


def require_derivative(weight: str | None) -> None:
    if weight is not None:
        raise NotImplementedError(
            f"integrate.quad has no derivative with weight={weight!r}; multiply func by it"
        )


def each_of(points: Any) -> list[Any]:
    """The points, of which some may be traced."""
    if points is None or isinstance(points, list | tuple):
        return list(points or ())
    points = np.ravel(as_array(points))
    return [points[n] for n in range(len(points))]


def strip(fun: Callable, plain: PlainFunction, limit: Any, step: float) -> Any:
    """The integral from a limit's plain number to the limit: zero, with derivatives.

    That of the polynomial through some nodes between, which has as many derivatives as there are
    traces. They are a small step away, so that they are on one side of a jump or kink.
    """
    depth, at = depth_of(limit), float(value(limit))
    if not depth or np.isinf(at):
        return 0.0
    here, beside, beyond = (float(number_at(plain, at + n * step)) for n in (0.0, 1.0, 2.0))
    if not np.isfinite(here):
        raise RuntimeError(
            f"integrate.quad has no derivative by a limit or point at which func is not finite: it "
            f"is {here} at {at:.6g}; substitute, so that this is a plain number"
        )
    is_jump = abs(here - beside) > 10.0 * abs(beyond - beside) + SMALL * abs(beside)
    width, rest = limit - at, 0.0 if is_jump else here - beside
    nodes, weights = np.polynomial.legendre.leggauss((depth + 1) // 2)
    terms = [
        w * (number_at(fun, at + step + 0.5 * (x + 1.0) * width) + rest)
        for x, w in zip(nodes, weights, strict=True)
    ]
    return 0.5 * width * sum(terms)
