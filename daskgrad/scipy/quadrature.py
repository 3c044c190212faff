"""Integrals of functions, as in ``scipy.integrate.quad``.

SciPy integrates plain numbers, and so finds the intervals on which a rule with fixed nodes is
accurate. The rule's sum over these nodes is taken once more with traced values: so it is
differentiated under the integral sign, with the nodes held fixed, and by the limits as in
Leibniz's rule.
"""

import functools
import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy.integrate

from daskgrad.autodiff.tape import value
from daskgrad.autodiff.tape.implicit import (
    PlainFunction,
    as_array,
    depth_of,
    derivatives_along,
    direction,
    number_at,
    number_in,
)
from daskgrad.scipy.dispatch import dispatched

# -------------------------------------------------------------------------------------------------
# The intervals and nodes with which an integral and its derivatives are a sum.

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
MARGIN = 2e-3  # of an interval, next to an end, before its first node
SAME = 1e-12  # by which values of one call and of many may differ, as part of the largest
TOGETHER = 16  # intervals that are summed in one call
SURE = 1e-9  # the part of a sum by which its halves' may differ without a search for breaks
Interval = tuple[float, float]
Rule = tuple[np.ndarray, np.ndarray]  # nodes and weights


class Panel(NamedTuple):
    """An interval and its rule; ``is_doubtful`` where sums do not have all digits."""

    rule: Rule
    interval: Interval
    sums: np.ndarray
    is_doubtful: bool


NODES = np.array([*[-x for x in HALF_NODES[:0:-1]], *HALF_NODES])
WEIGHTS = np.array([*HALF_WEIGHTS[:0:-1], *HALF_WEIGHTS])
U, UNIT_WEIGHTS = SMOOTH = 0.5 * (NODES + 1.0), 0.5 * WEIGHTS


def towards_zero(depth: float) -> tuple[np.ndarray, np.ndarray]:
    """Nodes and weights from 0 to 1 for functions that may be singular at zero.

    With x = exp(-s) integrals over s up to ``depth`` are added up, and an integral over the
    remaining interval with x = u², after which roots are smooth.
    """
    cuts = np.array([0.0, *[cut for cut in (5.0, 20.0, 80.0, 320.0) if cut < depth], depth])
    widths = np.diff(cuts)[:, np.newaxis]
    nodes = np.exp(-np.ravel(cuts[:-1, np.newaxis] + widths * U))
    left = np.exp(-depth)
    weights = np.ravel(widths * UNIT_WEIGHTS) * nodes
    return (
        np.concatenate([nodes, left * U**2]),
        np.concatenate([weights, left * 2.0 * U * UNIT_WEIGHTS]),
    )


class Integrand(PlainFunction):
    """A function that SciPy calls with one number at a time, and that may take arrays."""

    def __init__(self, fun: Callable, args: Iterable):
        super().__init__(fun, args)
        self._calls: list[tuple] = []

    def __call__(self, x: float) -> Any:
        y = super().__call__(x)
        self._calls.append((x, y))
        return y

    @functools.cached_property
    def takes_arrays(self) -> bool:
        """Whether one call with all of SciPy's numbers returns the values of SciPy's calls."""
        x = np.array([x for x, _ in self._calls])
        expected = np.ravel([value for _, value in self._calls])
        try:
            with np.errstate(all="ignore"):
                y = np.asarray(number_in(as_array(self.unchanged(x.copy()))))
            gaps = np.abs(y - expected) if y.shape == x.shape else np.inf
            return bool(np.max(gaps) <= SAME * np.max(np.abs(expected)))
        except Exception:  # the user's function got an array instead of a number
            return False

    def dot(self, twin: Callable, rule: Rule) -> Any:
        """The sum of a rule, or the sums of a matrix of weights, for the function or a twin."""
        nodes, weights = rule
        if self.takes_arrays:
            return np.dot(weights, as_array(twin(nodes.copy())))
        return np.dot(weights, as_array([number_at(twin, x) for x in nodes.tolist()]))

    def rounding(self, rule: Rule) -> float:
        nodes, weights = rule

        def size(x: Any) -> Any:
            return np.abs(number_in(as_array(self.unchanged(x))))

        return 1e-13 * float(self.dot(size, (nodes, np.abs(weights))))


class Area:
    """The domain of an integral, mapped from finite intervals.

    An infinite one is x = bound ± (1 - t) / t for t from 0 to 1, as in QUADPACK.
    """

    def __init__(self, begin: float, end: float, points: Any):
        self.sign = 1.0 if begin <= end else -1.0
        self._low, self._high = sorted((begin, end))
        self._is_infinite = np.isinf(self._low) or np.isinf(self._high)
        is_doubled = np.isinf(self._low) and np.isinf(self._high)
        self._count = len(NODES) * (2 if is_doubled else 1)
        inner = () if points is None else np.ravel(points).tolist()
        self._ends = (0.0, 1.0) if self._is_infinite else (self._low, self._high, *inner)
        self._known: dict[tuple, np.ndarray] = {}
        self.span = 1.0 if self._is_infinite else self._high - self._low

    def has_inside(self, x: float) -> bool:
        return self._low < x < self._high

    def panels(
        self, fun: Integrand, info: dict, integral: float, epsabs: float, epsrel: float
    ) -> list[Panel] | None:
        """Intervals, each with a rule, so that the integral and its derivatives are sums.

        SciPy's last intervals are halved while the sums of halves differ; next to an end or a point
        nodes are drawn towards it, if that suffices. None if too many intervals come of it.
        """
        count = info["last"]
        waiting = list(zip(info["alist"][:count], info["blist"][:count], strict=True))
        whole = np.sum([sums for sums, _ in self._sums(fun, waiting)], axis=0)
        tolerances = np.maximum(epsabs, epsrel * sizes_of(fun, np.abs(whole)))
        done: list[Panel] = []
        total = 0.0 * whole
        while waiting:
            low, high = waiting.pop()
            panel = self._panel(fun, low, high, 0.1 * tolerances)
            if panel is None and len(waiting) + len(done) > LIMIT + count:
                return None
            if panel is None:
                waiting += halves_of(low, high)
            else:
                done.append(panel)
                total = total + panel.sums
        away, rules = abs(total[0] - integral), [panel.rule for panel in done]
        return done if away <= tolerances[0] or away <= fun.rounding(joined(rules)) else None

    def boundaries(self, panels: list[Panel]) -> set[float]:
        """The numbers x inside the area at which panels meet, or its halves."""
        if len(panels) == 1 and not self._is_infinite:
            return set()
        ends = np.unique([panel.interval for panel in panels])
        places = np.concatenate(self._branches(ends[(ends > 0.0) | (not self._is_infinite)]))
        return {x for x in places.tolist() if self.has_inside(x)}

    def doubtful(self, panels: list[Panel]) -> Iterator[Interval]:
        """Intervals between boundaries in which the integrand may not be smooth."""
        for low, high in [panel.interval for panel in panels if panel.is_doubtful]:
            margin = MARGIN * (high - low)
            inner = low + margin * (low in self._ends), high - margin * (high in self._ends)
            for branch in self._branches(np.array(inner)):
                yield min(branch), max(branch)

    def _panel(
        self, fun: Integrand, low: float, high: float, tolerances: np.ndarray
    ) -> Panel | None:
        """An interval with the rule that its halves confirm; None if there is none."""
        for is_drawn in (False, True):
            if is_drawn and not self._is_next_to_end(low, high):
                break
            rule = self._rule(low, high, is_drawn)
            if not is_drawn and len(rule[0]) < self._count:
                return None  # the interval is too short for so many numbers
            ((sums, finer),) = self._sums(fun, [(low, high)], is_drawn)
            gaps = np.abs(sums - finer)
            if np.all(gaps <= tolerances) or np.all(
                gaps <= np.maximum(tolerances, fun.rounding(rule))
            ):
                return Panel(rule, (low, high), sums, bool(np.any(gaps > SURE * np.abs(sums))))
        return None

    def _sums(
        self, fun: Integrand, intervals: Sequence[Interval], is_drawn: bool = False
    ) -> list[np.ndarray]:
        """The integrals over intervals, and their derivatives, by their rules and their halves'."""
        keys = [(*interval, is_drawn) for interval in intervals]
        new = [key for key in keys if key not in self._known]
        step = TOGETHER if fun.takes_arrays else 1
        for start in range(0, len(new), step):
            some = new[start : start + step]
            rules = []
            for low, high, _ in some:  # an interval's rule, and its halves' as one
                halves = [self._rule(*half, is_drawn) for half in halves_of(low, high)]
                rules += [self._rule(low, high, is_drawn), joined(halves)]
            ends = np.cumsum([len(nodes) for nodes, _ in rules])
            weights = np.zeros((len(rules), ends[-1]))
            for row, rule, end in zip(weights, rules, ends, strict=True):
                row[end - len(rule[1]) : end] = rule[1]
            joint = np.concatenate([nodes for nodes, _ in rules]), weights
            sums = derivatives_along(fun, functools.partial(fun.dot, rule=joint), fun.depth)
            self._known |= zip(some, np.reshape(sums, (len(some), 2, -1)), strict=True)
        return [self._known[key] for key in keys]

    def _is_next_to_end(self, low: float, high: float) -> bool:
        """Whether an interval ends at just one of the ends and points."""
        return (low in self._ends) != (high in self._ends)

    def _rule(self, low: float, high: float, is_drawn: bool = False) -> Rule:
        """The nodes and weights of an interval; next to an end, for a singularity there."""
        rule, is_last = SMOOTH, high in self._ends
        if is_drawn and self._is_next_to_end(low, high):
            rule = towards_zero(self._depth(high if is_last else low, high - low))
        distances, weights = (high - low) * rule[0], (high - low) * rule[1]
        t = high - distances if is_last else low + distances
        is_inside = (low < t) & (t < high)
        t, weights = t[is_inside], weights[is_inside]
        if not self._is_infinite:
            return t, self.sign * weights
        branches = self._branches(t)
        return np.concatenate(branches), np.tile(self.sign * weights / t**2, len(branches))

    def _depth(self, end: float, width: float) -> float:
        """The depth to which nodes are drawn to an end; numbers are finest near zero."""
        if end == 0.0:
            return 20.0 if self._is_infinite else 650.0
        return max(0.0, np.log(width / (1e-10 * abs(end))))

    def _branches(self, t: np.ndarray) -> list[np.ndarray]:
        """The numbers x at t."""
        if not self._is_infinite:
            return [t]
        out = (1.0 - t) / t
        if np.isinf(self._low) and np.isinf(self._high):
            return [out, -out]
        return [self._low + out if np.isinf(self._high) else self._high - out]


def sizes_of(fun: PlainFunction, whole: np.ndarray) -> np.ndarray:
    """For an integral and its derivatives, the largest one of that and lower orders."""
    width = sum(map(np.size, fun.numbers))
    sizes = np.repeat(np.max(whole[: 1 + width], initial=0.0), len(whole))
    for start in range(1 + width, len(whole), width):
        sizes[start:] = max(sizes[start], np.max(whole[start : start + width]))
    return sizes


def joined(rules: Sequence[Rule]) -> Rule:
    """Several rules as one."""
    nodes, weights = zip(*rules, strict=True)
    return np.concatenate(nodes), np.concatenate(weights)


def halves_of(low: float, high: float) -> list[Interval]:
    middle = 0.5 * (low + high)
    return [(low, middle), (middle, high)]


# -------------------------------------------------------------------------------------------------
# Places at which an integrand or its derivative jumps, and whether they depend on parameters.
#
# A sum over fixed nodes does not see such a place move: it lacks the first derivative of an
# integrand that jumps, and the second derivative of one with a kink.

NEAR = 64.0 * np.finfo(float).eps  # to one side of a place, as part of its size
MOVE = 1e-7  # of a parameter, as part of it
SMALL, NOISE = 1e-6, 1e-12  # jumps that are none, as part of the number, and of all samples


def require_none_that_moves(
    fun: PlainFunction, doubtful: Iterable, places: Iterable, span: float
) -> None:
    """RuntimeError if a derivative needs to know how such a place moves.

    The search is at ``places`` and within ``doubtful``, of an integral over a length of ``span``.
    """

    def sample(x: float) -> np.ndarray:
        """The integrand and its derivatives of all orders but the last."""
        with np.errstate(all="ignore"):
            samples = derivatives_along(
                fun, lambda twin: as_array([number_at(twin, x)]), fun.depth - 1
            )
        return np.nan_to_num(samples[0], nan=0.0, posinf=0.0, neginf=0.0)

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
    """The place in an interval where a function is least smooth; None if it is smooth."""
    while high - low > 0.1 * NEAR * max(abs(low), abs(high), span):
        places = np.linspace(low, high, 9)
        samples = np.array([sample(x) for x in places])
        bends = np.abs(samples[2:] - 2.0 * samples[1:-1] + samples[:-2])
        part = np.max(bends / smallest_jump(samples), axis=1)
        if not np.max(part) > 1.0:
            return None
        low, high = places[np.argmax(part)], places[np.argmax(part) + 2]
    return 0.5 * (low + high)


def are_jumps(far_left: Any, left: Any, right: Any, far_right: Any) -> np.ndarray:
    """Whether numbers differ between two sides, and not within one, as near a singularity."""
    across = np.abs(right - left)
    within = np.maximum(np.abs(left - far_left), np.abs(far_right - right))
    return (across > 10.0 * within) & (across > smallest_jump(np.array([left, right])))


def smallest_jump(samples: np.ndarray) -> np.ndarray:
    """The smallest jump of each number; the samples are along the first axis."""
    sizes = np.max(np.abs(samples), axis=0)
    return SMALL * sizes + NOISE * np.max(sizes, axis=-1, keepdims=True) + np.finfo(float).tiny


def is_moving(fun: PlainFunction, left: float, right: float) -> bool:
    """Whether a jump between two numbers moves when the parameters are changed."""

    def height(move: float) -> float:
        twin = fun.bound_to(moved(fun.numbers, move))
        return abs(float(number_at(twin, right)) - float(number_at(twin, left)))

    return min(height(MOVE), height(-MOVE)) < 0.5 * height(0.0)


def moved(numbers: Iterable, move: float) -> list[Any]:
    """Parameters, changed by a part of their size, each in a direction of its own."""
    pairs = [(n, np.abs(n) + (n == 0.0)) for n in numbers]
    return [n + move * size * direction(np.shape(n)) for n, size in pairs]


# -------------------------------------------------------------------------- integrals of functions


@dispatched
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

    The integral is differentiated with respect to ``args``, to closures of ``func``, to a and b,
    and to ``points``, at which func may jump or have a kink, in all orders. Its value is SciPy's,
    and its error SciPy's estimate, a plain number. ``func`` is called with one number at a time, as
    SciPy does. If it is traced, it is called again, to see that sums over 21 nodes in each interval
    have the derivatives to the tolerances, too, and to find jumps. The nodes are one array if func
    takes SciPy's numbers as an array and returns the same values, which is many times faster than
    a traced call for each node.

    NotImplementedError if there is a derivative to take with ``weight``, or by traced values in
    objects. RuntimeError if func jumps at a place that depends on traced values (for second
    derivatives, if it has a kink there) and that is none of the ends and traced ``points``. And
    RuntimeError if the sums do not meet the tolerances: for singularities, other than at zero, that
    are stronger than a root's, and for some that are at none of the ends and ``points``. Jumps of
    less than a millionth of func are ignored.
    """
    if complex_func:
        options = (full_output, epsabs, epsrel, limit, points, weight, wvar, wopts, maxp1, limlst)
        parts = [quad(part_of(func, take), a, b, args, *options) for take in (np.real, np.imag)]
        (real, first, *more), (imaginary, second, *others) = parts
        further = ({"real": tuple(more), "imag": tuple(others)},) if full_output else ()
        return (real + 1j * imaginary, first + 1j * second, *further)
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
    outputs = (info, *problem) if full_output else ()
    moving = [point for point in each_of(points) if depth_of(point)]
    if not (plain.is_traced or depth_of(a) or depth_of(b) or moving):
        return (integral, error, *outputs)
    require_derivative(weight)
    area = Area(begin, end, where)
    total, traced = integral, lambda x: func(x, *args)
    if plain.is_traced and math.isclose(begin, end, rel_tol=1e-12) and np.isfinite(begin):
        total = (end - begin) * number_at(traced, begin)
    elif plain.is_traced:
        panels = panels_of(plain, info, area, moving, integral, epsabs, epsrel)
        if plain.depth == 1:
            total = plain.along(np.sum([panel.sums[1:] for panel in panels], axis=0))
        else:
            total = plain.dot(traced, joined([panel.rule for panel in panels]))
    total = total + (integral - value(total))
    for limit, step in sides(area, a, b, moving):
        total = total - np.sign(step) * area.sign * strip(traced, plain, limit, step)
    return (total, error, *outputs)


def panels_of(
    plain: Integrand, info: dict, area: Area, moving: list, integral: float, *eps: float
) -> list[Panel]:
    """The intervals and rules for a traced function; an error if there are none."""
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
    """Traced limits and points, each with a small step into the interval that it bounds."""
    inner = {float(value(point)): point for point in moving if area.has_inside(value(point))}
    if len(inner) < sum([area.has_inside(value(point)) for point in moving]):
        raise RuntimeError(
            f"integrate.quad has no derivative where points= are the same number: they are "
            f"{', '.join([format(value(point), '.6g') for point in moving])}"
        )
    inward = [(point, sign) for point in inner.values() for sign in (1, -1)]
    for limit, sign in ((a, area.sign), (b, -area.sign), *inward):
        yield limit, sign * NEAR * max(abs(value(limit)), area.span)


def part_of(func: Callable, take: Callable) -> Callable:
    return lambda x, *args: take(func(x, *args))


def require_derivative(weight: str | None) -> None:
    if weight is not None:
        raise NotImplementedError(
            f"integrate.quad has no derivative with weight={weight!r}; multiply func by it"
        )


def each_of(points: Any) -> list[Any]:
    """The points; some may be traced."""
    if points is None or isinstance(points, list | tuple):
        return list(points or ())
    points = np.ravel(as_array(points))
    return [points[n] for n in range(len(points))]


def strip(fun: Callable, plain: PlainFunction, limit: Any, step: float) -> Any:
    """The integral from a limit's plain number to the limit: zero, with derivatives.

    It is the integral of the polynomial through some nodes between, with a derivative for each
    trace. The nodes are a small step away, so that they are on one side of a jump or kink.
    """
    depth, at = depth_of(limit), float(value(limit))
    if not depth or np.isinf(at):
        return 0.0
    height, beside, beyond = (float(number_at(plain, at + n * step)) for n in (0.0, 1.0, 2.0))
    if not np.isfinite(height):
        raise RuntimeError(
            f"integrate.quad has no derivative by a limit or point at which func is not finite: it "
            f"is {height} at {at:.6g}; substitute, so that this is a plain number"
        )
    is_jump = abs(height - beside) > 10.0 * abs(beyond - beside) + SMALL * abs(beside)
    width, shift = limit - at, 0.0 if is_jump else height - beside
    nodes, weights = np.polynomial.legendre.leggauss((depth + 1) // 2)
    terms = [
        w * (number_at(fun, at + step + 0.5 * (x + 1.0) * width) + shift)
        for x, w in zip(nodes, weights, strict=True)
    ]
    return 0.5 * width * sum(terms)
