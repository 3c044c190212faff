"""Every function of the sweep that JAX has, too: value and derivatives as JAX's, to 1e-10."""

import importlib
import itertools
import warnings

import autograd.numpy as anp
import autograd.scipy.linalg
import autograd.scipy.special
import numpy as np
import pytest
import scipy.linalg
import scipy.special
from autograd.tracer import trace_primitives_map
from functions_all import HANDED_ON, TABLE
from sweep import Call, calls_of, drawn, in_kind_of, pulled

from daskgrad.backends.autograd import linearize, trace
from daskgrad.backends.autograd.reverse import RULES

jax = pytest.importorskip("jax", reason="values and derivatives are compared with JAX's")
pytestmark = pytest.mark.optional

from jax_twins import twin  # noqa: E402  it imports JAX

MODULES = {  # JAX's -> NumPy's or SciPy's, and autograd's
    "jax.numpy": (np, anp),
    "jax.numpy.linalg": (np.linalg, anp.linalg),
    "jax.numpy.fft": (np.fft, anp.fft),
    "jax.scipy.special": (scipy.special, autograd.scipy.special),
    "jax.scipy.linalg": (scipy.linalg, autograd.scipy.linalg),
}
TOLERANCE = 1e-10

SORTED = "JAX takes the derivative of what its unique sorts for zero"
SCHUR = "JAX has no derivative of Schur's decomposition"
DIFFERENT = {  # what is not as in JAX, from which stage on ("call": JAX takes none), and why
    "unique": ("derivative", SORTED),
    "unique_values": ("derivative", SORTED),
    "unique_counts": ("derivative", SORTED),
    "unique_inverse": ("derivative", SORTED),
    "unique_all": ("derivative", SORTED),
    "union1d": ("derivative", SORTED),
    "setdiff1d": ("derivative", SORTED),
    "setxor1d": ("derivative", SORTED),
    "polydiv": ("value", "JAX's remainder keeps leading zeros"),
    "histogram": ("call", "JAX takes no list of edges"),
    "histogram2d": ("call", "JAX takes no list of edges"),
    "histogramdd": ("call", "JAX takes no list of edges"),
    "eig": ("derivative", "JAX has none of eigenvectors of matrices that are not symmetric"),
    "sqrtm": ("derivative", SCHUR),
    "solve_sylvester": ("derivative", SCHUR),
    "special.betainc": ("derivative", "JAX has none by the parameters"),
    "beta.cdf": ("derivative", "JAX has none by the parameters"),
    "nextafter": ("call", "ours is refused"),
    "frexp": ("call", "ours is refused"),
}
SMOOTH = set(
    """
    sinc inv det slogdet solve pinv cholesky eigh svd qr norm matrix_power cond einsum prod std var
    cumprod fft rfft irfft convolve gammaln psi erf expit logsumexp
    """.split()
)


def jax_functions():
    """JAX's functions by NumPy's, SciPy's and autograd's."""
    found = {}
    for jax_name, modules in MODULES.items():
        theirs = importlib.import_module(jax_name)
        for module, name in itertools.product(modules, dir(theirs)):
            fun = getattr(module, name, None)
            if name.startswith("_") or not callable(fun) or isinstance(fun, type):
                continue
            for each in (fun, HANDED_ON.get(fun), trace_primitives_map.get(fun)):
                found.setdefault((each, name), getattr(theirs, name))
                found.setdefault(each, getattr(theirs, name))
    return found


JAXS = jax_functions()


def jax_function(entry):
    distribution = getattr(entry.raw, "__self__", None)
    if hasattr(distribution, "name"):
        theirs = getattr(importlib.import_module("jax.scipy.stats"), distribution.name, None)
        return getattr(theirs, entry.raw_name, None)
    return JAXS.get((entry.fun, entry.raw_name), JAXS.get(entry.fun))


def entries_by_function():
    found = {}
    for entry in TABLE:
        if jax_function(entry) is not None:
            found.setdefault(entry.name, []).append(entry)
    return found


ENTRIES = entries_by_function()


def pairs_of_calls(name):
    """Calls of ours and of JAX's that JAX takes."""
    for entry in ENTRIES[name]:
        theirs = entry.adapt(twin(jax_function(entry)))
        for call in calls_of(entry):
            jaxs = Call(call.name, theirs, call._args, call.kwargs)
            arrays = call.arrays("d")
            if arrays and not call.by_position and is_taken(jaxs, arrays):
                yield entry, call, jaxs, arrays


def is_taken(call, arrays):
    try:
        call(*arrays)
    except (TypeError, ValueError, NotImplementedError, IndexError):
        return False
    return True


def stages_of(call, arrays, like):
    """Value, derivatives in both modes, and second derivatives; ``like`` is the value."""
    random = np.random.default_rng(len(call.name))
    gs, tangents = ([drawn(each, random) for each in some] for some in (like, arrays))

    def gradient(*xs):
        _, tape = trace(call, xs)
        return [in_kind_of(x, c) for x, c in zip(xs, tape.pull(gs), strict=True)]

    def derivative():
        return [*pulled(call, arrays, gs), *linearize(call, arrays)[1](tangents)]

    return {
        "value": lambda: call(*arrays),
        "derivative": derivative,
        "second": lambda: linearize(gradient, arrays)[1](tangents),
    }


def difference(ours, theirs, stage):
    """How they differ at a stage; nothing if they do not."""
    found = ours[stage]()
    try:
        expected = theirs[stage]()
    except Exception as error:  # JAX has none
        return repr(error)
    if len(found) != len(expected) or any(map(are_apart, found, expected)):
        return f"{found}, not {expected}"
    return None


def are_apart(found, expected):
    if np.shape(found) != np.shape(expected):
        return True
    with np.errstate(all="ignore"):
        gaps = np.where(np.equal(found, expected), 0.0, np.abs(np.subtract(found, expected)))
    return not np.max(gaps, initial=0.0) <= TOLERANCE * (1e-3 + np.max(np.abs(expected), initial=0))


def has_second(entry):
    return entry.name in SMOOTH or (
        isinstance(entry.raw, np.ufunc) and entry.raw in vars(np).values()
    )


@pytest.fixture(scope="module", autouse=True)
def in_double_precision(request):
    if "optional" not in request.config.getoption("markexpr"):
        pytest.skip("takes minutes: run with -m optional")
    quick = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", True)  # compiling takes most of the time
    with jax.enable_x64(True):
        yield
    jax.config.update("jax_disable_most_optimizations", quick)


@pytest.mark.parametrize("name", ENTRIES)
def test_values_and_derivatives_are_jaxs(name):
    """Of the first call that JAX takes; what is said to differ has to."""
    differs, _ = DIFFERENT.get(name, ("", ""))
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for entry, call, jaxs, arrays in itertools.islice(pairs_of_calls(name), 1):
            like = call(*arrays)
            ours, theirs = (stages_of(each, arrays, like) for each in (call, jaxs))
            for stage in ("value", "derivative", "second")[: 2 + has_second(entry)]:
                told = difference(ours, theirs, stage)
                if stage == differs:
                    assert told, f"{stage} of {call.name} is as JAX's: {name!r} needs no reason"
                    return
                assert not told, f"{stage} of {call.name}: {told}"
            assert not differs, f"{call.name} is as JAX's: {name!r} needs no reason"
            return
    assert differs == "call", f"JAX takes no call of {name!r}"


def test_a_rule_that_is_wrong_is_found(monkeypatch):
    def twice_as_steep(argnums, ans, args, kwargs):
        return lambda g: (2.0 * g * anp.cosh(args[0]),)

    monkeypatch.setitem(RULES, anp.sinh, twice_as_steep)
    with pytest.raises(AssertionError, match="derivative of sinh"):
        test_values_and_derivatives_are_jaxs("sinh")
    monkeypatch.setitem(DIFFERENT, "cosh", ("derivative", "said in vain"))
    with pytest.raises(AssertionError, match="'cosh' needs no reason"):
        test_values_and_derivatives_are_jaxs("cosh")
