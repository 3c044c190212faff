"""Integrals of functions, as in ``scipy.integrate.quad``.

SciPy integrates plain numbers, and so finds the intervals on which a rule with fixed nodes is
accurate. The rule's sum over these nodes is taken once more with traced values: so it is
differentiated under the integral sign, with the nodes held fixed, and by the limits as Leibniz has
it.
"""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.integrate

from daskgrad.backends.autograd import value
from daskgrad.backends.autograd.corrections import number_and_slopes
from daskgrad.backends.autograd.functions import PlainFunction, as_array, depth_of

# The rule of Gauss and Kronrod with 21 nodes, from zero on, and its weights (R. Piessens, E. de
# Doncker-Kapenga, C. Überhuber and D. Kahaner, QUADPACK, 1983).
HALF_NODES = (
    0.0,
    0.148874338981631210,
    0.294392862701460198,
    0.433395394129247190,
    0.562757134668604683,
    0.679409568299024406,
    0.780817726586416897,
    0.865063366688984510,
    0.930157491355708226,
    0.973906528517171720,
    0.995657163025808080,
)
HALF_WEIGHTS = (
    0.149445554002916905,
    0.147739104901338491,
    0.142775938577060080,
    0.134709217311473325,
    0.123491976262065851,
    0.109387158802297641,
    0.093125454583697605,
    0.075039674810919952,
    0.054755896574351996,
    0.032558162307964727,
    0.011694638867371874,
)
LIMIT = 200  # intervals beside SciPy's
Rule = tuple[list[float], np.ndarray]  # nodes and weights
NODES = np.array([*[-x for x in HALF_NODES[:0:-1]], *HALF_NODES])
WEIGHTS = np.array([*HALF_WEIGHTS[:0:-1], *HALF_WEIGHTS])


U, UNIT_WEIGHTS = SMOOTH = 0.5 * (NODES + 1.0), 0.5 * WEIGHTS


def towards_zero(depth: float) -> tuple[np.ndarray, np.ndarray]:
    """Nodes and weights from 0 to 1 for functions that may be singular at zero.

    With x = exp(-s) integrals over s up to ``depth`` are added up, and one over what is left with
    x = u², after which roots are smooth.
    """
    cuts = np.array([0.0, *[cut for cut in (5.0, 20.0, 80.0, 320.0) if cut < depth], depth])
    widths = np.diff(cuts)[:, np.newaxis]
    nodes = np.exp(-np.ravel(cuts[:-1, np.newaxis] + widths * U))
    rest = np.exp(-depth)
    weights = np.ravel(widths * UNIT_WEIGHTS) * nodes
    return (
        np.concatenate([nodes, rest * U**2]),
        np.concatenate([weights, rest * 2.0 * U * UNIT_WEIGHTS]),
    )


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

    The integral is differentiated with respect to ``args``, to what ``func`` closes over, and to a
    and b, in all orders. Its value is SciPy's, and its error SciPy's estimate, a plain number.
    ``func`` is called with one number at a time: first as often as SciPy does; then, where it is
    traced, to see that sums over 21 nodes in each interval have its first derivatives to the
    tolerances, too (three times, or more often where they have not), and at last with traced values
    in the nodes. Second derivatives are as accurate as these nodes are for them. Not seen: jumps
    of the integrand whose place depends on what is differentiated; split the integral there.

    NotImplementedError if there is a derivative to take with ``weight``, by ``points``, or by
    traced values in objects. RuntimeError if the sums do not come to the tolerances: for kinks and
    jumps of integrand or derivative that are not among the ends and ``points``, and singularities
    other than at zero that are stronger than a root's.
    """
    given = (full_output, epsabs, epsrel, limit, points, weight, wvar, wopts, maxp1, limlst)
    if complex_func:
        parts = [quad(part_of(func, take), a, b, args, *given) for take in (np.real, np.imag)]
        (real, first, *more), (imaginary, second, *others) = parts
        rest = ({"real": tuple(more), "imag": tuple(others)},) if full_output else ()
        return (real + 1j * imaginary, first + 1j * second, *rest)
    args = args if isinstance(args, tuple) else (args,)
    plain = PlainFunction(func, args)
    begin, end = float(value(a)), float(value(b))
    where = None if points is None else value(as_array(points))
    if any(map(depth_of, wvar if isinstance(wvar, tuple) else (wvar,))):
        require_derivative(weight, points)
    integral, error, info, *problem = scipy.integrate.quad(
        plain, begin, end, (), 1, epsabs, epsrel, limit, where, weight, wvar, wopts, maxp1, limlst
    )
    if problem and not full_output:
        warnings.warn(problem[0], scipy.integrate.IntegrationWarning, stacklevel=2)
    rest = (info, *problem) if full_output else ()
    if not (plain.is_traced or depth_of(a) or depth_of(b) or is_traced(points)):
        return (integral, error, *rest)
    require_derivative(weight, points)

    def traced(x: Any) -> Any:
        return func(x, *args)

    total = integral
    if plain.is_traced and np.isclose(begin, end, rtol=1e-12, atol=0.0) and np.isfinite(begin):
        total = (end - begin) * number_at(traced, begin)  # too short for nodes
    elif plain.is_traced:
        nodes, weights = found_rule(plain, info, Area(begin, end, where), integral, epsabs, epsrel)
        total = dot(traced, (nodes, weights))
    total = total + (integral - value(total))
    total = total + strip(traced, b, end) - strip(traced, a, begin)
    return (total, error, *rest)


def found_rule(plain: PlainFunction, info: dict, area: "Area", integral: float, *eps: float) -> Any:
    """The nodes and weights for a traced function; errors where there are none."""
    if plain.holds_others:
        raise NotImplementedError(
            "integrate.quad has no derivative by traced values that func takes from an object; "
            "pass them as args, or let func close over them"
        )
    rule = area.rule(plain, info, integral, *eps)
    if rule is None:
        raise RuntimeError(
            f"integrate.quad has no derivative here: the integral {integral:.6g}, or that of a "
            f"derivative, is no sum to these tolerances, as the integrand has a singularity, kink "
            f"or jump; split the integral there, or substitute"
        )
    return rule


def dot(fun: Callable, rule: Rule) -> Any:
    nodes, weights = rule
    return np.dot(weights, as_array([number_at(fun, x) for x in nodes]))


def rounding_of(fun: Callable, rule: Rule) -> float:
    nodes, weights = rule
    return 1e-13 * float(np.dot(np.abs(weights), np.abs([fun(x) for x in nodes])))


def number_at(fun: Callable, x: Any) -> Any:
    found = as_array(fun(x))
    return np.reshape(found, ()) if np.ndim(found) else found


def halves_of(low: float, high: float) -> list[tuple[float, float]]:
    middle = 0.5 * (low + high)
    return [(low, middle), (middle, high)]


def part_of(func: Callable, take: Callable) -> Callable:
    return lambda x, *args: take(func(x, *args))


def require_derivative(weight: str | None, points: Any) -> None:
    if weight is not None:
        raise NotImplementedError(
            f"integrate.quad has no derivative with weight={weight!r}; multiply func by it"
        )
    if is_traced(points):
        raise NotImplementedError(
            "integrate.quad has no derivative by points=; split the integral there"
        )


def is_traced(points: Any) -> bool:
    return points is not None and depth_of(as_array(points)) > 0


def strip(fun: Callable, limit: Any, plain: float) -> Any:
    """The integral from a limit's plain number to the limit: zero, with derivatives.

    That of the polynomial through some nodes between, which has as many derivatives as there are
    traces.
    """
    depth = depth_of(limit)
    if not depth or np.isinf(plain):
        return 0.0
    width, found = limit - plain, number_at(fun, plain)
    if not np.isfinite(value(found)):
        raise RuntimeError(
            f"integrate.quad has no derivative by a limit at which func is not finite: it is "
            f"{value(found)} at {plain:.6g}; substitute, so that the limit is a plain number"
        )
    if depth == 1:
        return width * found
    nodes, weights = np.polynomial.legendre.leggauss((depth + 1) // 2)
    terms = [
        w * number_at(fun, plain + 0.5 * (x + 1.0) * width)
        for x, w in zip(nodes, weights, strict=True)
    ]
    return 0.5 * width * sum(terms)


class Area:
    """What is integrated over, mapped from finite intervals.

    An infinite one is x = bound ± (1 - t) / t for t from 0 to 1, as in QUADPACK.
    """

    def __init__(self, begin: float, end: float, points: Any):
        self._sign = 1.0 if begin <= end else -1.0
        self._low, self._high = sorted((begin, end))
        self._is_infinite = np.isinf(self._low) or np.isinf(self._high)
        is_doubled = np.isinf(self._low) and np.isinf(self._high)
        self._count = len(NODES) * (2 if is_doubled else 1)
        inner = () if points is None else np.ravel(points).tolist()
        self._ends = (0.0, 1.0) if self._is_infinite else (self._low, self._high, *inner)

    def rule(
        self, fun: PlainFunction, info: dict, integral: float, epsabs: float, epsrel: float
    ) -> Rule | None:
        """Nodes and weights with which the integral and its first derivatives are sums.

        SciPy's last intervals are halved where the sums of halves differ; next to an end or a point
        nodes are drawn towards it, where that does. None if there is no end to that.
        """
        count = info["last"]
        waiting = list(zip(info["alist"][:count], info["blist"][:count], strict=True))
        whole = np.sum([self._sums(fun, self._rule(*each)) for each in waiting], axis=0)
        tolerance = max(epsabs, epsrel * np.max(np.abs(whole)))
        done: list[Rule] = []
        total = 0.0 * whole
        while waiting:
            low, high = waiting.pop()
            halves = halves_of(low, high)
            rule = self._smooth(fun, low, high, halves, 0.1 * tolerance)
            if rule is None and len(waiting) + len(done) > LIMIT + count:
                return None
            if rule is None:
                waiting += halves
            else:
                done.append(rule)
                total = total + self._sums(fun, rule)
        parts, weights = zip(*done, strict=True)
        rule = [x for part in parts for x in part], np.concatenate(weights)
        away = abs(total[0] - integral)
        return rule if away <= max(tolerance, rounding_of(fun, rule)) else None

    def _smooth(
        self, fun: PlainFunction, low: float, high: float, halves: list, tolerance: float
    ) -> Rule | None:
        """The rule on an interval that gives the same as on its halves; None if there is none."""
        for is_drawn in (False, True):
            if is_drawn and not self._is_next_to_end(low, high):
                break
            rule = self._rule(low, high, is_drawn)
            if not is_drawn and len(rule[0]) < self._count:
                return None  # the interval is too short for so many numbers
            parts = [self._sums(fun, self._rule(half[0], half[1], is_drawn)) for half in halves]
            found = self._sums(fun, rule)
            if np.max(np.abs(found - sum(parts))) <= max(tolerance, rounding_of(fun, rule)):
                return rule
        return None

    def _sums(self, fun: PlainFunction, rule: Rule) -> np.ndarray:
        """The integral by a rule, and its derivatives."""
        number, slopes = number_and_slopes(fun, lambda traced: dot(traced, rule))
        return np.array([number, *slopes])

    def _is_next_to_end(self, low: float, high: float) -> bool:
        """Whether an interval ends at just one of the ends and points."""
        return (low in self._ends) != (high in self._ends)

    def _rule(self, low: float, high: float, is_drawn: bool = False) -> Rule:
        """The nodes and weights of an interval; next to an end those for a singularity there."""
        rule, is_last = SMOOTH, high in self._ends
        if is_drawn and self._is_next_to_end(low, high):
            rule = towards_zero(self._depth(high if is_last else low, high - low))
        distances = (high - low) * rule[0]
        t = high - distances if is_last else low + distances
        is_inside = (low < t) & (t < high)
        return self._at(t[is_inside], (high - low) * rule[1][is_inside])

    def _depth(self, end: float, width: float) -> float:
        """How far nodes are drawn to an end: near others than zero numbers are not that fine."""
        if end == 0.0:
            return 20.0 if self._is_infinite else 650.0
        return max(0.0, np.log(width / (1e-10 * abs(end))))

    def _at(self, t: np.ndarray, weights: np.ndarray) -> Rule:
        """The nodes x and the weights of nodes t."""
        if not self._is_infinite:
            return t.tolist(), self._sign * weights
        out, weights = (1.0 - t) / t, self._sign * weights / t**2
        if np.isinf(self._low) and np.isinf(self._high):
            return [*out.tolist(), *(-out).tolist()], np.concatenate([weights, weights])
        return (self._low + out if np.isinf(self._high) else self._high - out).tolist(), weights
