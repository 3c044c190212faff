"""The intervals and nodes with which an integral and its derivatives are a sum."""

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from daskgrad.backends.autograd.corrections import derivatives_along
from daskgrad.backends.autograd.functions import PlainFunction, as_array, number_at, number_in

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
SURE = 1e-9  # the part of a sum by which that of halves may differ where no break is looked for
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


class Integrand(PlainFunction):
    """A function that SciPy calls with one number at a time, and that may take arrays of them."""

    def __init__(self, fun: Callable, args: Iterable):
        super().__init__(fun, args)
        self._calls: list[tuple] = []

    def __call__(self, x: float) -> Any:
        found = super().__call__(x)
        self._calls.append((x, found))
        return found

    @functools.cached_property
    def takes_arrays(self) -> bool:
        """Whether one call with all numbers that SciPy chose has the values that SciPy found."""
        x = np.array([x for x, _ in self._calls])
        expected = np.ravel([value for _, value in self._calls])
        try:
            with np.errstate(all="ignore"):
                found = np.asarray(number_in(as_array(self.unchanged(x.copy()))))
            gaps = np.abs(found - expected) if found.shape == x.shape else np.inf
            return bool(np.max(gaps) <= SAME * np.max(np.abs(expected)))
        except Exception:  # the user's function met an array where it asks for a number
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
    """What is integrated over, mapped from finite intervals.

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

        SciPy's last intervals are halved where the sums of halves differ; next to an end or a point
        nodes are drawn towards it, where that does. None if there is no end to that.
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
        found = np.concatenate(self._branches(ends[(ends > 0.0) | (not self._is_infinite)]))
        return {x for x in found.tolist() if self.has_inside(x)}

    def doubtful(self, panels: list[Panel]) -> Iterator[Interval]:
        """Where the integrand may be not smooth between boundaries, but for ends and points."""
        for low, high in [panel.interval for panel in panels if panel.is_doubtful]:
            margin = MARGIN * (high - low)
            inner = low + margin * (low in self._ends), high - margin * (high in self._ends)
            for branch in self._branches(np.array(inner)):
                yield min(branch), max(branch)

    def _panel(
        self, fun: Integrand, low: float, high: float, tolerances: np.ndarray
    ) -> Panel | None:
        """An interval with the rule that gives the same on its halves; None if there is none."""
        for is_drawn in (False, True):
            if is_drawn and not self._is_next_to_end(low, high):
                break
            rule = self._rule(low, high, is_drawn)
            if not is_drawn and len(rule[0]) < self._count:
                return None  # the interval is too short for so many numbers
            ((found, finer),) = self._sums(fun, [(low, high)], is_drawn)
            gaps = np.abs(found - finer)
            if np.all(gaps <= tolerances) or np.all(
                gaps <= np.maximum(tolerances, fun.rounding(rule))
            ):
                return Panel(rule, (low, high), found, bool(np.any(gaps > SURE * np.abs(found))))
        return None

    def _sums(
        self, fun: Integrand, intervals: Sequence[Interval], is_drawn: bool = False
    ) -> list[np.ndarray]:
        """The integrals over intervals, and their derivatives, by their rules and their halves'."""
        new = [each for each in intervals if (*each, is_drawn) not in self._known]
        step = TOGETHER if fun.takes_arrays else 1
        for start in range(0, len(new), step):
            some = new[start : start + step]
            rules = [rule for each in some for rule in self._both(*each, is_drawn)]
            ends = np.cumsum([len(nodes) for nodes, _ in rules])
            weights = np.zeros((len(rules), ends[-1]))
            for row, rule, end in zip(weights, rules, ends, strict=True):
                row[end - len(rule[1]) : end] = rule[1]
            joint = np.concatenate([nodes for nodes, _ in rules]), weights
            found = derivatives_along(fun, functools.partial(fun.dot, rule=joint), fun.depth)
            pairs = np.reshape(found, (len(some), 2, -1))
            self._known |= zip([(*each, is_drawn) for each in some], pairs, strict=True)
        return [self._known[(*each, is_drawn)] for each in intervals]

    def _both(self, low: float, high: float, is_drawn: bool) -> tuple[Rule, Rule]:
        """An interval's rule, and its halves' as one."""
        first, second = [self._rule(*half, is_drawn) for half in halves_of(low, high)]
        return self._rule(low, high, is_drawn), joined([first, second])

    def _is_next_to_end(self, low: float, high: float) -> bool:
        """Whether an interval ends at just one of the ends and points."""
        return (low in self._ends) != (high in self._ends)

    def _rule(self, low: float, high: float, is_drawn: bool = False) -> Rule:
        """The nodes and weights of an interval; next to an end those for a singularity there."""
        rule, is_last = SMOOTH, high in self._ends
        if is_drawn and self._is_next_to_end(low, high):
            rule = towards_zero(self._depth(high if is_last else low, high - low))
        distances, weights = (high - low) * rule[0], (high - low) * rule[1]
        t = high - distances if is_last else low + distances
        is_inside = (low < t) & (t < high)
        return self._at(t[is_inside], weights[is_inside])

    def _depth(self, end: float, width: float) -> float:
        """How far nodes are drawn to an end: near others than zero numbers are not that fine."""
        if end == 0.0:
            return 20.0 if self._is_infinite else 650.0
        return max(0.0, np.log(width / (1e-10 * abs(end))))

    def _at(self, t: np.ndarray, weights: np.ndarray) -> Rule:
        """The nodes x and the weights of nodes t."""
        if not self._is_infinite:
            return t, self.sign * weights
        branches = self._branches(t)
        return np.concatenate(branches), np.tile(self.sign * weights / t**2, len(branches))

    def _branches(self, t: np.ndarray) -> list[np.ndarray]:
        """The numbers x at t."""
        if not self._is_infinite:
            return [t]
        out = (1.0 - t) / t
        if np.isinf(self._low) and np.isinf(self._high):
            return [out, -out]
        return [self._low + out if np.isinf(self._high) else self._high - out]


def sizes_of(fun: PlainFunction, whole: np.ndarray) -> np.ndarray:
    """For an integral and its derivatives the largest of that order, and of those below it."""
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
