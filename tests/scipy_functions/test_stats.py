"""``daskgrad.scipy.stats``: SciPy's values, inside, outside and at the bounds; differences."""

import itertools
import pickle

import numpy as np
import pytest
import scipy.stats
from functions_checked import check_against_scipy, checking
from lengths import in_short
from numpy.testing import assert_allclose

import daskgrad as dg
from daskgrad.scipy import stats
from daskgrad.scipy.distributions import Continuous, Discrete, Distribution

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

SHAPES = {"t": (4.5,), "skewnorm": (1.5,), "loggamma": (2.2,), "gamma": (2.3,), "chi2": (3.4,)}
SHAPES |= {"invgamma": (2.1,), "f": (3.3, 7.1), "lognorm": (0.8,), "weibull_min": (1.7,)}
SHAPES |= {"fisk": (2.2,), "nakagami": (1.4,), "invgauss": (0.9,), "beta": (2.2, 1.6)}
SHAPES |= {"powerlaw": (1.8,), "pareto": (2.4,), "truncnorm": (-0.7, 1.9), "bernoulli": (0.3,)}
SHAPES |= {"binom": (7.0, 0.35), "poisson": (2.6,), "nbinom": (3.2, 0.4), "geom": (0.3,)}
SHAPES |= {"betabinom": (7.0, 2.1, 1.4)}
HELD = ("binom", "betabinom")  # the number of trials, the first shape, has no derivative
ALL = {name: each for name, each in vars(stats).items() if isinstance(each, Distribution)}
LOGS = ("logcdf", "logsf")
METHODS = {
    Continuous: ("logpdf", "pdf", "cdf", "sf", "ppf", *LOGS),
    Discrete: ("logpmf", "pmf", "cdf", "sf", *LOGS),
}
X = np.array([-1.3, -0.2, 0.15, 0.3, 0.55, 0.8, 1.37, 2.6])
COUNTS = np.array([-1.0, 0.0, 1.0, 2.0, 5.0, 7.0, 8.0, 2.5])
QUANTILES = np.array([0.01, 0.2, 0.45, 0.9])


def has(distribution, method):
    functions = distribution._functions
    density = {"pdf": "logpdf", "pmf": "logpmf", "logcdf": "cdf", "logsf": "sf"}.get(method, "")
    return method in functions or density in functions


CALLS = [
    (name, method)
    for name, each in ALL.items()
    for method in METHODS[type(each)]
    if has(each, method)
]


def numbers_of(name, method):
    if method == "ppf":
        return QUANTILES
    return COUNTS if isinstance(ALL[name], Discrete) else X


def parameters_of(name):
    loc_and_scale = (0.1, 1.3) if isinstance(ALL[name], Continuous) else ()
    return np.array([*SHAPES.get(name, ()), *loc_and_scale])


@in_short(("name", "method"), CALLS, *[call for call in CALLS if call[1] in ("logpdf", "logpmf")])
def test_values_and_derivatives(name, method):
    ours, theirs = (getattr(each, method) for each in (ALL[name], getattr(scipy.stats, name)))
    x, parameters = numbers_of(name, method), parameters_of(name)
    expected = theirs(x, *parameters)
    assert_allclose(ours(x, *parameters), expected, rtol=1e-9, atol=1e-13)
    x = x[np.isfinite(expected)]
    held = parameters[: name in HELD]

    def of_all(fun):
        return lambda p: fun(x, *held, *[p[n] for n in range(len(p))])

    check_against_scipy(of_all(ours), of_all(theirs), parameters[len(held) :], rtol=1e-8)
    if isinstance(ALL[name], Continuous):
        fixed = list(parameters)
        check_against_scipy(lambda y: ours(y, *fixed), lambda y: theirs(y, *fixed), x, rtol=1e-8)


@pytest.mark.parametrize("name", ALL)
def test_at_the_bounds_values_are_scipys(name):
    distribution, theirs = ALL[name], getattr(scipy.stats, name)
    shapes = SHAPES.get(name, ())
    bounds = np.array([0.0, 1.0, *shapes, np.inf, -np.inf])
    density = METHODS[type(distribution)][0]
    expected = getattr(theirs, density)(bounds, *shapes)
    expected[np.isinf(bounds)] = -np.inf  # SciPy has NaN for some
    assert_allclose(getattr(distribution, density)(bounds, *shapes), expected)


SCALES, TRIALS = np.array([0.5, 2.0, -1.0]), np.array([3.0, 7.0, 0.0])
PLACES = {  # values that are SciPy's: of the module, ours or SciPy's
    "a scale that is none": lambda s: s.norm.logpdf(X[:, None], scale=SCALES),
    "by name": lambda s: s.gamma.logpdf(X[:, None], loc=-2.0, a=2.0, scale=SCALES[:2]),
    "a far tail": lambda s: s.norm.logsf(40.0),
    "a far tail, truncated": lambda s: s.truncnorm.logpdf(31.0, 30.0, 40.0),
    "a far tail of waiting times": lambda s: s.invgauss.logsf(80.0, 0.9),
    "far quantiles": lambda s: s.truncnorm.ppf(QUANTILES, 30.0, 40.0, 0.1, 1.3),
    "far quantiles on the left": lambda s: s.truncnorm.ppf(QUANTILES, -40.0, -30.0, 0.1, 1.3),
    "several numbers of trials": lambda s: s.betabinom.cdf(2.0, TRIALS, 2.1, 1.4),
}


@pytest.mark.parametrize("place", PLACES)
def test_parameters_of_arrays_and_far_tails_are_scipys(place):
    assert_allclose(PLACES[place](stats), PLACES[place](scipy.stats), rtol=1e-9)


def test_derivatives_at_odd_places():
    slope = dg.grad(dg.delayed(lambda x: stats.norm.logcdf(x)))(-40.0)
    assert_allclose(slope, 40.0249688, rtol=1e-8)  # the hazard, by its continued fraction
    # where Student's t is zero the incomplete beta function has none
    slope = dg.grad(dg.delayed(lambda x: stats.t.cdf(x, 4.5)))(0.0)
    assert_allclose(slope, scipy.stats.t.pdf(0.0, 4.5))
    hessian = dg.hessian(dg.delayed(lambda p: stats.t.cdf(p[0], p[1])))(np.array([0.0, 4.5]))
    by_differences = (stats.t.pdf(0.0, 4.5 + 1e-4) - stats.t.pdf(0.0, 4.5 - 1e-4)) / 2e-4
    assert_allclose(hessian[0, 1], by_differences, rtol=1e-6)
    assert_allclose(hessian[1, 0], hessian[0, 1])


WRONG = {
    "gamma.logpdf: missing.*'a'": lambda: stats.gamma.logpdf(1.0),
    "norm.cdf: .*'sigma'": lambda: stats.norm.cdf(1.0, sigma=2.0),
    "norm.cdf: too many": lambda: stats.norm.cdf(1.0, 2.0, 3.0, 4.0),
    r"stats\.skewnorm has no ppf; it has logpdf": lambda: stats.skewnorm.ppf(0.5, 2.0),
}


@pytest.mark.parametrize("message", WRONG)
def test_wrong_parameters_are_errors_that_name_the_distribution(message):
    with pytest.raises((TypeError, NotImplementedError), match=message):
        WRONG[message]()


def test_distributions_are_pickled_by_name():
    assert pickle.loads(pickle.dumps(stats.norm)) is stats.norm


MEAN, FACTOR = np.array([0.2, -0.4, 1.0]), np.array([[1.0, 0, 0], [0.3, 1.2, 0], [-0.5, 0.1, 0.8]])
VECTORS = np.random.default_rng(5).normal(size=(4, 3))
PARTS = np.array([0.2, 0.5, 0.3])
VECTOR_PROGRAMS = {
    "x": (lambda s, x: s.multivariate_normal.logpdf(x, MEAN, FACTOR @ FACTOR.T), VECTORS),
    "mean": (lambda s, m: s.multivariate_normal.logpdf(VECTORS, m, FACTOR @ FACTOR.T), MEAN),
    "cov": (lambda s, f: s.multivariate_normal.pdf(VECTORS, MEAN, f @ f.T), FACTOR),
    "a variance": (lambda s, v: s.multivariate_normal.logpdf(VECTORS[0], MEAN, v[0] ** 2), PARTS),
    "alpha": (lambda s, a: s.dirichlet.logpdf(PARTS, a), np.array([1.5, 2.5, 0.7])),
    "p": (
        lambda s, p: s.multinomial.logpmf(np.array([[1, 2, 3], [3, 0, 3]]), 6, p / p.sum()),
        PARTS,
    ),
}


@pytest.mark.parametrize("name", VECTOR_PROGRAMS)
def test_distributions_of_vectors(name):
    checking(stats, scipy.stats)(*VECTOR_PROGRAMS[name])


MATRIX, SINGULAR = FACTOR @ FACTOR.T, np.ones((3, 3))
VECTOR_CALLS = {  # method -> arguments: points, supports, shapes
    "multivariate_normal.logpdf": [
        [(X, 0.1, 2.0), (X, None, 2.0), (X[:1], None), (0.3, [0.1]), (X[:, None], 0.1, [[2.0]])],
        [(X[:3], MEAN), (X[:3], MEAN, PARTS), (VECTORS, MEAN, 2.0), (VECTORS, None, MATRIX)],
        [(VECTORS[:1], MEAN), (VECTORS[:, None], MEAN), (0.3, MEAN), ([0.1, 0.2, 0.3], MEAN)],
        [(VECTORS, MEAN[:2]), (VECTORS, MEAN[None]), (VECTORS, None, PARTS), (VECTORS, 0.1)],
        [(VECTORS, MEAN, PARTS[:1]), (VECTORS, MEAN, MATRIX[:2]), (VECTORS, MEAN, MATRIX[None])],
        [(VECTORS, MEAN, SINGULAR), (VECTORS, MEAN, -1.0), (VECTORS[:, :2], None, MATRIX)],
    ],
    "dirichlet.logpdf": [
        [
            (PARTS, X[3:6]),
            (PARTS[:2], X[3:6]),
            (PARTS.tolist(), [1, 2, 3]),
            (PARTS[:, None], X[5:]),
        ],
        [(np.stack([PARTS, PARTS[::-1]], 1), X[5:]), ([0.0, 0.4, 0.6], [1, 1, 1])],
        [(PARTS * 1.1, X[5:]), ([-0.1, 0.5, 0.6], X[5:]), ([1.2, -0.1, -0.1], X[5:])],
        [(PARTS, X[:3]), (PARTS, X[None, 5:]), (PARTS, X[4:]), ([0.0, 0.4, 0.6], X[3:6])],
    ],
    "multinomial.logpmf": [
        [([1, 2, 3], 6, PARTS), ([[1, 2, 3], [6, 0, 0]], 6, PARTS), ([[1, 1, 2]], [4], PARTS)],
        [([1, 1, 1], 6, PARTS), ([-1, 5, 2], 6, PARTS), ([1.5, 2.5, 2.0], 6, PARTS)],
        [([1, 2, 3], [6, 5], PARTS), ([1, 2, 3], 6, [PARTS, PARTS[::-1]]), ([0, 0, 0], 0, PARTS)],
        [([1, 2, 3], -6, PARTS), ([1, 2, 3], 6, [-0.1, 0.5, 0.6]), (3, 6, PARTS)],
        [([1, 2], 3, PARTS), ([3, 3, 0], 6, [0.5, 0.5, 0.0])],
    ],
}


def outcome(module, call, args):
    name, method = call.split(".")
    try:
        return np.asarray(getattr(getattr(module, name), method)(*args))
    except (ValueError, np.linalg.LinAlgError):
        return "an error"


@pytest.mark.parametrize("call", VECTOR_CALLS)
def test_points_of_vectors_have_scipys_numbers_or_are_an_error(call):
    for args in itertools.chain(*VECTOR_CALLS[call]):
        ours, theirs = (outcome(module, call, args) for module in (stats, scipy.stats))
        if isinstance(theirs, str) or isinstance(ours, str):
            assert ours is theirs, args
        else:
            assert_allclose(ours, theirs, rtol=1e-9, err_msg=str(args), strict=True)


@pytest.mark.parametrize(
    ("call", "args", "message"),
    [
        ("multivariate_normal.logpdf", (VECTORS, MEAN[:2]), r"2 dimensions takes x .* \(4, 3\)"),
        ("multivariate_normal.logpdf", (X, VECTORS), r"a vector as mean.*\(4, 3\) and \(\)"),
        ("dirichlet.logpdf", (PARTS[:2], X[4:]), "of 4 parts takes x with 4 or 3 parts"),
        ("dirichlet.logpdf", (PARTS * 1.1, X[5:]), r"add up to 1.*divide it by its sum"),
        ("dirichlet.logpdf", (PARTS, X[:3]), r"positive alpha; it is \[-1.3"),
        ("multinomial.logpmf", ([1, 2], 3, PARTS), r"as many counts x.*\(2,\) and \(3,\)"),
        ("multinomial.logpmf", ([1, 2, 3], 6, PARTS * 1.1), r"p that add up to 1.*by its sum"),
        ("multinomial.logpmf", ([1, 2, 3], 6.5, PARTS), r"whole number n.*6\.5"),
    ],
)
def test_errors_of_distributions_of_vectors_tell_what_they_take(call, args, message):
    name, method = call.split(".")
    with pytest.raises(ValueError, match=message):
        getattr(getattr(stats, name), method)(*args)


def test_counts_that_are_impossible_have_no_slope():
    def log(p):
        return np.sum(stats.multinomial.pmf(np.array([[1.0, 1.0, 1.0], [-1.0, 4.0, 3.0]]), 6, p))

    assert_allclose(dg.grad(dg.delayed(log))(PARTS), 0.0)


SKEWED = {  # x and a -> the logarithm of cdf, its slopes by x and by a: with fifty digits (mpmath)
    (-3.0, 3.0): (-51.77641966434414, 30.645296688846265, -27.913339295002412),
    (-2.5, 3.0): (-37.675667240605264, 25.76417561796472, -19.655402988394794),
    (-1.0, 3.0): (-9.785803478009532, 11.614866865359657, -3.8132753782858386),
    (-40.0, 0.5): (-1008.0559657715182, 50.04982692814856, -802.7893368255476),
    (-40.0, -3.0): (-803.9152948331977, 40.024968847361, -0.0),
    (-8.0, 50.0): (-80049.0401006501, 20008.249995412865, -3200.0599832726493),
    (-0.01, 1000000.0): (-50000033.38097122, 10000000200.060637, -100.00000300050637),
    (0.01, 1000000.0): (-4.830978205188375, 99.99666671111089, -0.0),
    (-5.0, -0.5): (-14.37674817282427, 5.179599800487687, -0.07308550189845646),
    (2.0, 3.0): (-0.04656791228705844, 0.11312934811282319, -6.873606666885322e-11),
}


@pytest.mark.parametrize("at", SKEWED)
def test_tails_of_the_skew_normal_distribution_have_their_digits(at):
    log, *slopes = SKEWED[at]
    for method, sign in (("logcdf", 1.0), ("logsf", -1.0)):
        fun = getattr(stats.skewnorm, method)
        total = dg.delayed(lambda v: fun(v[0], v[1]))  # noqa: B023
        x = sign * np.array(at)
        assert_allclose(fun(*x), log, rtol=1e-12)
        assert_allclose(sign * dg.grad(total)(x), slopes, rtol=1e-9)
        tangents = [dg.jvp(total, (x,), (sign * unit,))[1] for unit in np.eye(2)]
        assert_allclose(tangents, slopes, rtol=1e-9)
        with np.errstate(under="ignore"):
            assert_allclose(getattr(stats.skewnorm, method[3:])(*x), np.exp(log), rtol=1e-10)


INVALID = {"binom": (6.5, 0.3), "poisson": (-1.0,), "nbinom": (3.2, 1.2), "bernoulli": (1.2,)}
INVALID |= {"betabinom": (7.5, 2.0, 1.0), "skewnorm": (np.inf,), "truncnorm": (1.9, -0.7)}


@pytest.mark.parametrize("name", SHAPES)
def test_invalid_shapes_give_nan(name):
    """Outside of the support, too, and beside valid ones in arrays."""
    invalid = INVALID.get(name, tuple(-each for each in SHAPES[name]))
    pairs = [np.array([[good], [bad]]) for good, bad in zip(SHAPES[name], invalid, strict=True)]
    x = np.array([-3.0, 0.3, 1.0, 30.0, np.nan])
    for method in METHODS[type(ALL[name])]:
        if has(ALL[name], method):
            at = QUANTILES if method == "ppf" else x
            found = getattr(ALL[name], method)(at, *pairs)
            assert np.all(np.isnan(found[1]))
            expected = getattr(getattr(scipy.stats, name), method)(at, *SHAPES[name])
            assert_allclose(found[0], expected, rtol=1e-9, atol=1e-15)


@pytest.mark.parametrize("name", [name for name, each in ALL.items() if has(each, "ppf")])
def test_quantiles_of_what_is_no_probability_and_at_the_ends(name):
    q = np.array([-0.5, 0.0, 0.3, 1.0, 1.5, np.nan])
    shapes = SHAPES.get(name, ())
    expected = getattr(scipy.stats, name).ppf(q, *shapes, loc=0.5, scale=2.0)
    assert_allclose(ALL[name].ppf(q, *shapes, loc=0.5, scale=2.0), expected, rtol=1e-9)


def test_cauchy_quantiles_in_the_tails_and_in_the_middle():
    """A tangent of nearly a right angle has no digits, and of one no second derivative."""
    q = np.array([1e-200, 1e-10, 0.3, 0.5])
    for name in ("cauchy", "halfcauchy"):
        ours, theirs = (getattr(module, name).ppf(q) for module in (stats, scipy.stats))
        assert_allclose(ours, theirs, rtol=1e-13, atol=1e-16)
    slope = dg.grad(dg.delayed(lambda q: stats.cauchy.ppf(q)))(1e-10)
    assert_allclose(slope, np.pi / np.sin(np.pi * 1e-10) ** 2, rtol=1e-12)
    q = np.array([0.5, 0.5 + 1e-9, 0.4])
    slope = np.pi / np.cos(np.pi * (q - 0.5)) ** 2
    curvature = 2.0 * np.pi * slope * np.tan(np.pi * (q - 0.5))
    hessian = dg.hessian(dg.delayed(lambda q: np.sum(stats.cauchy.ppf(q))))(q)
    assert_allclose(hessian, np.diag(curvature), rtol=1e-12, atol=1e-12)
