"""No derivative is wrong without a word: all rules at degenerate, tied, empty, huge, tiny inputs.

Both modes agree with each other, and with differences of values within what these resolve; or there
is an error or a warning, NumPy's own of an overflow among them. ``KNOWN`` has the exceptions.
"""

import functools
import itertools
import warnings
from collections.abc import Callable
from typing import NamedTuple

import autograd.numpy as anp
import numpy as np
import pytest
from functions_all import TABLE
from functions_linalg import SPREAD
from sweep import DOMAIN_ERRORS, Call, drawn, inner, moved, pulled, some_calls_of
from test_integrate import SAMPLES, Y
from test_linalg_special import LINALG, SPECIAL, M
from test_stats import ALL, CALLS, HELD, numbers_of, parameters_of

from daskgrad.autodiff.rules import linalg_eigenvectors, scipy_linalg, special_distributions
from daskgrad.autodiff.tape import linearize
from daskgrad.scipy import integrate, linalg, special

pytestmark = [
    pytest.mark.long,
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),  # of SciPy's
]
EPSILON = np.finfo(float).eps

# -------------------------------------------------------------------------------- the extremes


class Extreme(NamedTuple):
    change: Callable  # of an array; None if it has no such form
    size: float = 1.0  # of the steps of differences


def all_as_first(a):
    return np.full_like(a, a.flat[0]) if a.size else a


def up_to_rounding(a):
    return all_as_first(a) * (1.0 + EPSILON * (np.arange(a.size).reshape(a.shape) % 7))


def every_second(a):
    return np.where(np.arange(a.size).reshape(a.shape) % 2, a, 0.0)


def with_values(change):
    """The matrix with other singular values."""

    def changed(a):
        if a.ndim < 2 or min(a.shape[-2:]) < 2:
            return None
        u, sizes, vh = np.linalg.svd(a, full_matrices=False)
        return (u * change(sizes)[..., None, :]) @ vh

    return changed


def equal(sizes):
    return sizes[..., :1] * (1.0 + 2.0 * EPSILON * np.arange(sizes.shape[-1]))


def dropped(sizes):
    return sizes * (np.arange(sizes.shape[-1]) < sizes.shape[-1] - 1)


EXTREMES = {
    "zero": Extreme(lambda a: 0.0 * a),
    "half of them zero": Extreme(every_second),
    "tied": Extreme(all_as_first),
    "tied up to rounding": Extreme(up_to_rounding),
    "whole numbers": Extreme(lambda a: np.round(4.0 * a) - 2.0),
    "empty": Extreme(lambda a: a[:0] if a.ndim else None),
    "huge": Extreme(lambda a: 1e140 * a, 1e140),  # squares are numbers with all digits
    "large": Extreme(lambda a: 1e4 * a, 1e4),
    "small": Extreme(lambda a: 1e-9 * a, 1e-9),
    "tiny": Extreme(lambda a: 1e-140 * a, 1e-140),
    "equal singular values": Extreme(with_values(equal)),
    "singular": Extreme(with_values(dropped)),
}

# ---------------------------------------------------------------------------------- the calls


def by_eigh(la, a):
    values, vectors = anp.linalg.eigh((a + a.T) / 2.0)
    return anp.dot(vectors * anp.exp(values), vectors.T)


def by_eig(la, a):
    values, vectors = anp.linalg.eig(a)
    return anp.real(anp.dot(vectors * anp.exp(values), anp.linalg.inv(vectors)))


def by_svd(la, a):
    u, sizes, vh = anp.linalg.svd(a)
    return anp.dot(u * sizes / (1.0 + sizes**2), vh)


def by_eigvals(la, a):
    return anp.real(anp.sum(anp.linalg.eigvals(a) ** 3))


SMOOTH = {"exp by eigh": by_eigh, "exp by eig": by_eig, "quotient by svd": by_svd}
SMOOTH |= {"trace by eigvals": lambda la, a: by_eigvals(la, anp.eye(3) + a)}


@functools.cache
def calls():
    """All of them; rows of ``test_functions`` and of this folder's tests."""
    found = list(itertools.chain.from_iterable(map(some_calls_of, TABLE)))
    for module, table, array in (
        (linalg, SMOOTH, SPREAD),
        (linalg, LINALG, M),
        (special, SPECIAL, M),
        (integrate, SAMPLES, Y),
    ):
        for name, fun in table.items():
            found.append(Call(f"scipy, {name}", functools.partial(fun, module), (array,), {}))
    for name, method in CALLS:
        args = [numbers_of(name, method), *parameters_of(name)]
        held = 1 + (name in HELD)
        args = [np.asarray(arg) if n >= held else arg for n, arg in enumerate(args)]
        found.append(Call(f"stats.{name}.{method}", getattr(ALL[name], method), args, {}))
    return found


# --------------------------------------------------------------------------------- the checks

STEPS = [2.0**-n for n in (6, 10, 14, 18)]
LEVELS = 5


def largest(array):
    return np.max(abs(array), initial=0.0)


class Place:
    """A call at arrays, where its value is finite."""

    def __init__(self, call, arrays, size):
        self.call, self.arrays, self.size = call, arrays, size
        self.value = [np.asarray(part) for part in call(*arrays)]
        self.is_finite = all(np.all(np.isfinite(part)) for part in self.value)

    def moved(self, step, tangents):
        """Or NaN, where there is no value of the shapes."""
        try:
            parts = self.call(*moved(self.arrays, step, tangents))
        except DOMAIN_ERRORS:
            parts = []
        if list(map(np.shape, parts)) != list(map(np.shape, self.value)):
            return [np.full_like(part, np.nan) for part in self.value]
        return parts

    def is_resolved(self):
        """Whether rounding errors of the arrays change a value but little."""
        rounding = [
            (self.size + abs(a)) * np.cos(np.arange(np.size(a))).reshape(np.shape(a))
            for a in self.arrays
        ]
        others = [self.moved(sign * 4.0 * EPSILON, rounding) for sign in (1.0, -1.0)]
        self.noise = [
            abs(one - part) + abs(other - part) + EPSILON * largest(part) + 5e-324
            for one, other, part in zip(*others, self.value, strict=True)
        ]
        pairs = zip(self.noise, self.value, strict=True)
        return all(np.all(noise <= 1e-6 * largest(part) + 1e-300) for noise, part in pairs)

    def one_sided(self, tangents, step):
        """Slopes and bounds on their errors, by Romberg's extrapolation."""
        table, best = [], [(np.nan, np.inf)] * len(self.value)
        for level in range(LEVELS):
            h = step / 2.0**level
            ahead = zip(self.moved(h, tangents), self.value, strict=True)
            row = [[(a - b) / h for a, b in ahead]]
            for order in range(1, level + 1):
                pairs = list(zip(row[-1], table[-1][order - 1], strict=True))
                row.append([a + (a - b) / (2.0**order - 1.0) for a, b in pairs])
                for n, (slope, (a, b)) in enumerate(zip(row[-1], pairs, strict=True)):
                    error = abs(slope - a) + abs(slope - b) + 8.0 * self.noise[n] / abs(h)
                    best[n] = nearer((slope, error), best[n])
            table.append(row)
        return best

    def slopes(self, tangents, step):
        """From both sides."""
        sides = [self.one_sided(tangents, sign * step * self.size) for sign in (1.0, -1.0)]
        return [joined(*pair) for pair in zip(*sides, strict=True)]

    def settled(self, tangents):
        """Slopes on which steps of two sizes agree, and smaller steps do not grow."""
        found = [self.slopes(tangents, step) for step in STEPS]
        for n in range(len(self.value)):
            of_part = [each[n] for each in found]
            slope, bound = functools.reduce(nearer, map(joined, of_part, of_part[1:]))
            (one, e1), (other, e2) = of_part[-2:]
            is_settled = abs(one - other) <= e1 + e2 + 1e-3 * abs(slope)
            is_settled &= bound <= 1e-3 * abs(slope) + 1e2 * self.noise[n] / (STEPS[-1] * self.size)
            is_settled &= (slope != 0.0) | (self.size == 1.0)  # else they are rounded off
            yield slope, np.where(is_settled, bound, np.inf)

    def derivative(self, tangents):
        """So, with wide bounds where slopes are not linear: at a kink."""
        found, random = list(self.settled(tangents)), np.random.default_rng(1)
        for _ in range(8):
            others = [drawn(t, random) for t in tangents]
            sums = moved(tangents, 1.0, others)
            pairs = zip(found, self.settled(others), self.settled(sums), strict=True)
            found = [
                (slope, bound + one[1] + whole[1] + abs(slope + one[0] - whole[0]))
                for (slope, bound), one, whole in pairs
            ]
        return found


def nearer(one, other):
    """Of two slopes with bounds, entry by entry, the one with the smaller bound."""
    is_first = one[1] < other[1]
    return tuple(np.where(is_first, a, b) for a, b in zip(one, other, strict=True))


def joined(one, other):
    return 0.5 * (one[0] + other[0]), one[1] + other[1] + abs(one[0] - other[0])


def are_near(found, slopes):
    """Whether tangents are what the slopes allow, entry by entry."""
    for one, (slope, bound) in zip(found, slopes, strict=True):
        near = abs(one - slope) <= 1e-5 * abs(slope) + 10.0 * bound
        yield np.where(
            np.isfinite(one), near | np.isnan(bound), ~(bound < 1e-3 * abs(slope) + 1e-6)
        )


def tangent_fault(place, tangents, pushed):
    """A tangent that is another one than that of differences, where there is a derivative."""
    if all(map(np.all, are_near(pushed, place.slopes(tangents, STEPS[0])))):
        return None
    found = place.derivative(tangents)
    for one, (slope, bound), is_near in zip(pushed, found, are_near(pushed, found), strict=True):
        if not np.all(is_near):
            first = tuple(np.argwhere(~np.asarray(is_near))[0])
            told = [np.asarray(each)[first] for each in (one, slope, bound)]
            return "the tangent is {:.6g}, by differences {:.6g} ± {:.1g}".format(*told)
    return None


def cotangent_fault(place, tangents, gs, cotangents):
    """The same of cotangents, which no tangent is compared with, as there is a word about it."""
    found = place.derivative(tangents)
    left, right = inner(gs, [slope for slope, _ in found]), inner(cotangents, tangents)
    pairs = zip(gs, found, strict=True)
    slack = sum([np.sum(abs(g) * (1e-5 * abs(s) + 10.0 * bound)) for g, (s, bound) in pairs])
    if abs(left - right) > slack:
        return f"⟨Jᵀg, v⟩ = {right:.6g}, by differences {left:.6g}"
    return None


def told(run):
    """What it returns; None after an error or a warning."""
    with warnings.catch_warnings(), np.errstate(all="warn", under="ignore"):
        warnings.simplefilter("error")
        try:
            return run()
        except Exception:
            return None


def fault(call, extreme):
    """What is wrong without a word with a call at an extreme, if anything."""
    arrays = [extreme.change(np.asarray(a)) for a in call.arrays("d")]
    if not arrays or any(a is None for a in arrays):
        return None
    try:
        place = Place(call, [a[()] for a in arrays], extreme.size)
    except (*DOMAIN_ERRORS, ZeroDivisionError):
        return None
    if not place.value or not place.is_finite or not place.is_resolved():
        return None
    random = np.random.default_rng(0)
    tangents = [drawn(a, random) for a in place.arrays]
    pushed = told(lambda: linearize(call, place.arrays)[1](tangents))
    gs, scale = [], 0.0
    for part, slope in zip(place.value, pushed or place.value, strict=True):
        least = 1e-6 * largest(slope) + 1e-8 * largest(part) / place.size
        size = np.maximum(abs(slope), np.maximum(least, 1e-300))
        gs.append(drawn(part, random) / size)
        scale += float(np.sum(abs(gs[-1]) * size))
    cotangents = told(lambda: pulled(call, place.arrays, gs))
    if pushed is None or cotangents is None:
        if cotangents is not None:
            return cotangent_fault(place, tangents, gs, cotangents)
        return None if pushed is None else tangent_fault(place, tangents, pushed)
    left, right = inner(gs, pushed), inner(cotangents, tangents)
    if np.isfinite(left) and not abs(left - right) <= 1e-6 * scale:
        return f"⟨g, Jv⟩ = {left:.6g}, ⟨Jᵀg, v⟩ = {right:.6g}"
    return tangent_fault(place, tangents, pushed)


# ---------------------------------------------------------------------------------- the tests

WHOLE = "beyond 2**53 all numbers are whole"
CANCELS = "its slope is the difference of two numbers that are nearly equal far out"
SCIPYS = "SciPy's own value is inaccurate there"
KNOWN = {  # of an extreme: the beginning of a call -> why it is wrong without a word
    "zero": {
        "poly(#2": "the value of complex numbers is real there, and its tangent, too",
        "scipy, exp by eig": "cotangents of vectors cancel exactly, as of vectors without use",
    },
    "half of them zero": {"interp": "NumPy takes knots that do not increase"},
    "tied": {"setdiff1d(#0, assume_unique": "that was said of numbers that are not unique"},
    "tied up to rounding": {"corrcoef(#1": "of rows that are constant up to rounding"},
    "whole numbers": dict.fromkeys(("special.modfresnel", "special.itairy"), SCIPYS),
    "singular": {"scipy, lu_solve transposed": "the system has a solution, and others"},
    "large": {
        "special.modfresnel": CANCELS,
        "special.besselpoly": "overflows in sums of powers",
        "special.itstruve0": SCIPYS,
    },
    "huge": {
        **dict.fromkeys(("unwrap", "special.round", "modf"), WHOLE),
        **dict.fromkeys(("special.wofz", "special.k0e", "special.k1e"), CANCELS),
        **dict.fromkeys(("special.i0e", "special.i1e", "special.log_wright_bessel"), CANCELS),
        **dict.fromkeys(("t.cdf", "t.logcdf", "stats.t.logpdf", "stats.t.pdf"), CANCELS),
        "logsumexp": "its weights are of the difference from the value, which is rounded",
        "cond(#0, p=fro": "products of three entries overflow or underflow",
        "special.struve": "overflows in the difference of two neighbours",
        "special.besselpoly": "overflows in sums of powers",
        "special.it2struve0": SCIPYS,
    },
    "small": {"special.hyperu": f"{SCIPYS}: a neighbour is NaN"},
    "tiny": {
        "stats.pareto.ppf": "its value rounds 1 - q, and its slope does not",
        "cond(#0, p=fro": "products of three entries overflow or underflow",
    },
}
LOOPS = {("tiny", "polyfit")}  # LAPACK never ends: columns of powers of tiny numbers are zero


def faults(extreme, chosen=""):
    """What is wrong at an extreme, by calls."""
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for call in calls():
            if chosen in call.name and (extreme, call.name.partition("(")[0]) not in LOOPS:
                if (found := fault(call, EXTREMES[extreme])) is not None:
                    yield call.name, found


@pytest.mark.parametrize("extreme", EXTREMES)
def test_no_derivative_is_wrong_without_a_word(extreme):
    found, known = dict(faults(extreme)), KNOWN.get(extreme, {})
    expected = {name for name in found if name.startswith(tuple(known))}
    assert {name: found[name] for name in found.keys() - expected} == {}
    assert [start for start in known if not any(e.startswith(start) for e in expected)] == []


def unguarded(factors, values, parts, pull):
    return pull(values)


GUARDS = {  # a call, an extreme -> a guard, and what is in its place where there is none
    ("exp by eigh", "equal singular values"): (linalg_eigenvectors, "guarded", unguarded),
    ("quotient by svd", "equal singular values"): (linalg_eigenvectors, "guarded", unguarded),
    ("exp by eigh", "zero"): (linalg_eigenvectors, "warn_of_tangents", lambda *args: None),
    ("sqrtm(#0", "tied"): (scipy_linalg, "require_regular", lambda root: None),
    ("special.betainc(#0", "small"): (special_distributions, "CUT", 1e-9),
}


@pytest.mark.parametrize(("call", "extreme"), GUARDS)
def test_a_guard_that_is_missing_is_found(call, extreme, monkeypatch):
    assert dict(faults(extreme, call)) == {}
    monkeypatch.setattr(*GUARDS[call, extreme])
    assert dict(faults(extreme, call))
