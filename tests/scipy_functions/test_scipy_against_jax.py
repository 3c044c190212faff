"""Every function of ``daskgrad.scipy`` that JAX has, too: value and derivatives, to 1e-10."""

import importlib
import itertools

import numpy as np
import pytest
from test_integrate import SAMPLES, Y
from test_interpolate import VALUES, grid
from test_linalg_special import LINALG, SPECIAL, M
from test_signal import BY_AXES, CONVOLUTIONS, K
from test_signal import M as WIDE
from test_stats import ALL, CALLS, HELD, METHODS, VECTOR_PROGRAMS, numbers_of, parameters_of

from daskgrad.scipy import linalg
from daskgrad.scipy.distributions import Continuous

pytest.importorskip("jax", reason="values and derivatives are compared with JAX's")
pytestmark = pytest.mark.optional

import jax_compared  # noqa: E402  they import JAX
from jax_compared import Differs, compare, is_taken, without_warnings  # noqa: E402
from jax_twins import twin  # noqa: E402

ROOTS = ("daskgrad.scipy", "jax.scipy")
STATS = importlib.import_module("jax.scipy.stats")
SIGNAL = importlib.import_module("jax.scipy.signal")

# ------------------------------------------------------------------------------------ programs


def convolution(name, mode, **kwargs):
    return lambda s, m: getattr(s, name)(m, m[:2, :3] ** 2 + K, mode, **kwargs)


def along_an_axis(name, mode):
    return lambda s, m: getattr(s, name)(m, m[:, :2] ** 2, mode, axes=1)


RISING = (np.array([0.0, 0.5, 1.3]), np.array([-1.0, 0.7, 1.2, 2.0]))  # JAX takes no others
AT = np.array([[0.1, 0.3], [0.5, 1.9], [1.29, 0.71], [0.9, -0.9]])
OUTSIDE = np.array([[0.1, 0.3], [1.7, 1.9], [-0.4, 2.7]])
COUNTS, PARTS = np.array([1, 2, 3]), np.array([0.2, 0.5, 0.3])
BEYOND = {"bounds_error": False, "points": RISING}
GRIDS = {
    "values": (lambda s, v: grid(s, v, points=RISING)(AT), VALUES),
    "values of more axes": (lambda s, v: grid(s, v[..., None] ** 2, points=RISING)(AT), VALUES),
    "points": (lambda s, at: grid(s, VALUES, points=RISING)(at), AT[:1]),
    "outside": (lambda s, at: grid(s, VALUES, fill_value=None, **BEYOND)(at), OUTSIDE),
    "filled": (lambda s, v: grid(s, v, fill_value=7.0, **BEYOND)(OUTSIDE), VALUES),
    "nearest": (lambda s, v: grid(s, v, "nearest", points=RISING)(AT), VALUES),
    "of one line": (lambda s, v: grid(s, v[0], points=RISING[1:])(AT[:, 1]), VALUES),
}
PROGRAMS = {  # module and name -> a function of the module and of an array, and the array
    **{("linalg", name): (fun, M) for name, fun in LINALG.items()},
    **{("special", name): (fun, M) for name, fun in SPECIAL.items()},
    **{
        ("integrate", name): (fun, Y)
        for name, fun in SAMPLES.items()
        if name.startswith("trapezoid")
    },
    **{("interpolate", name): row for name, row in GRIDS.items()},
    **{("stats", name): row for name, row in VECTOR_PROGRAMS.items()},
    ("stats", "p of a row"): (lambda s, p: s.multinomial.logpmf(COUNTS, 6, p / p.sum()), PARTS),
    **{
        ("signal", f"{name}, {mode}"): (convolution(name, mode), WIDE)
        for name, mode in CONVOLUTIONS
        if hasattr(SIGNAL, name)
    },
    **{
        ("signal", f"{name}, {mode}, axes"): (along_an_axis(name, mode), WIDE)
        for name, mode in BY_AXES
        if hasattr(SIGNAL, name)
    },
    **{
        ("signal", f"{name} by {method}"): (convolution(name, "full", method=method), WIDE)
        for name in ("convolve", "correlate")
        for method in ("direct", "fft")
    },
}
INTEGERS = Differs("derivative", "JAX multiplies by the derivative of a whole number")
BY_SHAPES = Differs("derivative", "JAX has none by the shapes")
TWICE = BY_SHAPES._replace(stage="second")
DIGITS = Differs("value", "JAX's logarithms of beta functions have seven digits")
SCHUR = Differs("derivative", "JAX has no derivative of Schur's decomposition")
PROBABILITIES = ("cdf", "sf", "logcdf", "logsf")
TRIANGLES = Differs("value", "JAX reads both triangles")
DIFFERENT = {
    ("linalg", "expm of a stack"): Differs("derivative", "the program stacks by NumPy"),
    ("linalg", "sqrtm"): SCHUR,
    ("linalg", "solve_sylvester"): SCHUR,
    ("linalg", "solve transposed"): Differs("call", "JAX has no such argument"),
    ("linalg", "solve symmetric"): TRIANGLES,
    ("linalg", "solve symmetric, lower"): TRIANGLES,
    ("linalg", "solve_banded"): Differs("call", "JAX has no such function"),
    ("integrate", "trapezoid of a list"): Differs("call", "JAX takes no lists"),
    ("stats", "p"): Differs("value", "JAX adds up the counts of all rows"),
    **dict.fromkeys(
        itertools.product(("gumbel_r", "gumbel_l"), ("logpdf", "pdf", "ppf")), INTEGERS
    ),
    **dict.fromkeys(itertools.product(("gamma", "chi2"), PROBABILITIES), TWICE),
    **dict.fromkeys(itertools.product(("beta",), PROBABILITIES), BY_SHAPES),
    **dict.fromkeys(itertools.product(("betabinom",), ("logpmf", "pmf")), DIGITS),
}


@pytest.fixture(scope="module", autouse=True)
def in_double_precision(request):
    with jax_compared.in_double_precision(request):
        yield


def check(key, ours, theirs, arrays):
    """What JAX takes is as JAX's; what is said to differ does."""
    told, jaxs = DIFFERENT.get(key), twin(theirs)
    with without_warnings():
        if told is not None and told.stage == "call":
            assert not is_taken(jaxs, arrays), f"JAX takes {key}: it needs no reason"
            return
        compare(str(key), lambda *xs: [ours(*xs)], lambda *xs: [jaxs(*xs)], arrays, differs=told)


@pytest.mark.parametrize(("module", "name"), PROGRAMS)
def test_programs(module, name):
    fun, x = PROGRAMS[module, name]
    ours, theirs = (importlib.import_module(f"{root}.{module}") for root in ROOTS)
    check((module, name), lambda x: fun(ours, x), lambda x: fun(theirs, x), [x])


# ------------------------------------------------------------------------------- distributions

OF_JAX = [call for call in CALLS if hasattr(getattr(STATS, call[0], None), call[1])]
CONTINUOUS = [call for call in OF_JAX if isinstance(ALL[call[0]], Continuous)]
DISCRETE = [call for call in OF_JAX if call not in CONTINUOUS]


def methods_of(name, method):
    return [getattr(each, method) for each in (ALL[name], getattr(STATS, name))]


def numbers_inside(name, method):
    """The numbers inside the support, and the parameters."""
    x, parameters = numbers_of(name, method), [np.float64(each) for each in parameters_of(name)]
    if method == "ppf":
        return x, parameters
    density = METHODS[type(ALL[name])][0]
    return x[np.isfinite(getattr(ALL[name], density)(x, *parameters))], parameters


@pytest.mark.parametrize(("name", "method"), CONTINUOUS)
def test_continuous_distributions(name, method):
    """By all numbers; and by the others where JAX has no derivative by the shapes."""
    ours, theirs = methods_of(name, method)
    x, parameters = numbers_inside(name, method)
    check((name, method), ours, theirs, [x, *parameters])
    if DIFFERENT.get((name, method)) in (BY_SHAPES, TWICE):
        *shapes, loc, scale = parameters
        of_held = [lambda x, *rest, f=fun: f(x, *shapes, *rest) for fun in (ours, theirs)]
        check((name, method, "of held shapes"), *of_held, [x, loc, scale])


@pytest.mark.parametrize(("name", "method"), DISCRETE)
def test_discrete_distributions(name, method):
    x, parameters = numbers_inside(name, method)
    held, free = [x, *parameters[: name in HELD]], parameters[name in HELD :]
    of_held = [lambda *shapes, f=fun: f(*held, *shapes) for fun in methods_of(name, method)]
    check((name, method), *of_held, free)


def test_a_rule_that_is_wrong_is_found(monkeypatch):
    monkeypatch.setitem(PROGRAMS, ("linalg", "expm"), (lambda la, m: 0.5 * la.expm(m), M))
    test_programs("linalg", "expm")
    wrong = lambda la, m: (1.0 + 1e-8 * (la is linalg)) * la.expm(m)  # noqa: E731
    monkeypatch.setitem(PROGRAMS, ("linalg", "expm"), (wrong, M))
    with pytest.raises(AssertionError, match=r"value of .*expm"):
        test_programs("linalg", "expm")
    monkeypatch.setitem(DIFFERENT, ("special", "softmax"), Differs("derivative", "said in vain"))
    with pytest.raises(AssertionError, match="needs no reason"):
        test_programs("special", "softmax")
