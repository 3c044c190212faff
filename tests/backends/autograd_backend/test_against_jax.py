"""Every function of the sweep that JAX has, too: value and derivatives as JAX's, to 1e-10."""

import functools
import importlib
import itertools
import re

import autograd.numpy as anp
import jax_compared
import pytest
from autograd.tracer import trace_primitives_map
from functions_all import HANDED_ON, RUNS, TABLE
from jax_compared import STAGES, Differs, compare, is_taken, without_warnings
from sweep import Call, calls_of

from daskgrad.backends.autograd.reverse import RULES

pytestmark = pytest.mark.optional

MODULES = {  # JAX's -> NumPy's or SciPy's, and autograd's
    "jax.numpy": ("numpy", "autograd.numpy"),
    "jax.numpy.linalg": ("numpy.linalg", "autograd.numpy.linalg"),
    "jax.numpy.fft": ("numpy.fft", "autograd.numpy.fft"),
    "jax.scipy.special": ("scipy.special", "autograd.scipy.special"),
    "jax.scipy.linalg": ("scipy.linalg", "autograd.scipy.linalg"),
}

SORTED = Differs("derivative", "JAX takes the derivative of what its unique sorts for zero")
SCHUR = Differs("derivative", "JAX has no derivative of Schur's decomposition")
EDGES = Differs("call", "JAX takes no list of edges")
BY_SHAPES = Differs("derivative", "JAX has none by the parameters")
TWICE = Differs("second", "JAX has none of the first derivative by the parameter")
REFUSED = Differs("call", "ours is refused")
OF_VECTORS = Differs(
    "second", "JAX has no derivative of vectors of matrices that are not symmetric"
)
ZERO = Differs("derivative", "JAX has zero by a power that is zero", "#1")
EQUAL = Differs("second", "JAX's is wrong where both parameters are equal", r"#1\)")
DIFFERENT = {  # of several, the first whose pattern is in a call's name
    **dict.fromkeys(["unique_values", "unique_counts", "unique_inverse", "unique_all"], (SORTED,)),
    **dict.fromkeys(["unique", "union1d"], (SORTED,)),
    **dict.fromkeys(["setdiff1d", "setxor1d"], (SORTED._replace(calls=r"#\d\)"),)),
    **dict.fromkeys(["histogram", "histogram2d", "histogramdd"], (EDGES,)),
    **dict.fromkeys(["sqrtm", "solve_sylvester"], (SCHUR,)),
    **dict.fromkeys(["special.betainc", "beta.cdf"], (BY_SHAPES,)),
    **dict.fromkeys(["special.gammainc", "special.gammaincc"], (TWICE,)),
    "gamma.cdf": [TWICE],
    "chi2.cdf": [TWICE._replace(calls=r"#[0-8]\)")],
    **dict.fromkeys(["nextafter", "frexp"], (REFUSED,)),
    **dict.fromkeys(["special.boxcox", "special.boxcox1p"], (ZERO,)),
    **dict.fromkeys(["beta.pdf", "beta.logpdf"], (EQUAL,)),
    "sign": [Differs("derivative", "JAX takes that of a complex sign for constant", "#8")],
    "partition": [
        Differs("value", "the order within the parts is open", r"#[12](, axis=-1)?\)|#1, axis=1\)")
    ],
    "reshape": [Differs("derivative", "JAX has no order=A", "order=A")],
    "polydiv": [Differs("value", "JAX's remainder keeps leading zeros")],
    "eig": [OF_VECTORS._replace(stage="derivative")],
    "eigvals": [OF_VECTORS],
    "poly": [OF_VECTORS._replace(calls="#[13]")],
    "roots": [Differs("value", "JAX has the roots that are zero first", "#2"), OF_VECTORS],
    "lstsq": [Differs("value", "JAX has residuals of few equations, too: zeros", "#[234]")],
    "polyfit": [Differs("value", "JAX returns what NumPy has in a list", "full")],
    "corrcoef": [Differs("second", "JAX clips what is one, of equal rows", r"#4(\)|, d)")],
    "logsumexp": [Differs("value", "JAX keeps no axis of a number", "#0, keepdims=True")],
    "median": [Differs("value", "JAX makes an axis of a number", r"#4, keepdims=True\)")],
    "special.poch": [Differs("value", "JAX has NaN for whole numbers below zero", "#1")],
    "special.exp1": [Differs("second", "JAX differentiates it once")],
    "special.expn": [
        Differs("derivative", "JAX has NaN for the order zero", "#1"),
        Differs("second", "JAX differentiates it once"),
    ],
    "special.spence": [Differs("derivative", "JAX has zero and NaN at one and near it")],
    "special.log_ndtr": [Differs("second", "JAX's has seven digits in the far tail", "#1")],
}


@functools.cache
def jax_functions():
    """JAX's functions by NumPy's, SciPy's and autograd's."""
    found = {}
    for jax_name, modules in MODULES.items():
        theirs = importlib.import_module(jax_name)
        for module, name in itertools.product(map(importlib.import_module, modules), dir(theirs)):
            fun = getattr(module, name, None)
            if name.startswith("_") or not callable(fun) or isinstance(fun, type):
                continue
            for each in (fun, HANDED_ON.get(fun), trace_primitives_map.get(fun)):
                found.setdefault((each, name), getattr(theirs, name))
                found.setdefault(each, getattr(theirs, name))
    return found


def jax_function(entry):
    distribution = getattr(entry.raw, "__self__", None)
    if hasattr(distribution, "name"):
        theirs = getattr(importlib.import_module("jax.scipy.stats"), distribution.name, None)
        return getattr(theirs, entry.raw_name, None)
    jaxs = jax_functions()
    return jaxs.get((entry.fun, entry.raw_name), jaxs.get(entry.fun))


@functools.cache
def entries_by_function():
    found = {}
    for entry in TABLE:
        if jax_function(entry) is not None:
            found.setdefault(entry.name, []).append(entry)
    return found


def pairs_of_calls(name):
    """Calls of ours and of JAX's that JAX takes, each once."""
    from jax_twins import twin

    for entry in entries_by_function()[name]:
        theirs = entry.adapt(twin(jax_function(entry)))
        for call in calls_of(entry):
            jaxs = Call(call.name, theirs, call._args, call.kwargs)
            arrays = call.arrays("d")
            if arrays and not call.by_position and is_taken(jaxs, arrays):
                yield call, jaxs, arrays


def stages_for(call):
    """Second derivatives have no more to do with an axis beside another parameter than first."""
    return STAGES[: 2 if len(call.kwargs) > 1 and "axis" in call.kwargs else 3]


@pytest.fixture(scope="module", autouse=True)
def in_double_precision(request):
    with jax_compared.in_double_precision(request):
        yield


@pytest.mark.parametrize("run", range(RUNS))
def test_values_and_derivatives_are_jaxs(run):
    for name in list(entries_by_function())[run::RUNS]:
        compare_with_jax(name)


def compare_with_jax(name):
    """All calls that JAX takes; what is said to differ has to."""
    said = DIFFERENT.get(name, [])
    seen, count = [], 0
    with without_warnings():
        for call, jaxs, arrays in pairs_of_calls(name):
            told = next((each for each in said if re.search(each.calls, call.name)), None)
            compare(call.name, call, jaxs, arrays, stages_for(call), told)
            seen, count = [*seen, told], count + 1
    takes_none = [each for each in said if each.stage == "call"]
    assert bool(takes_none) == (count == 0), f"JAX takes {count} calls of {name!r}"
    assert set(said) == {*seen, *takes_none} - {None}, f"no call of {name!r} has one of {said}"


def test_a_rule_that_is_wrong_is_found(monkeypatch):
    def twice_as_steep(argnums, ans, args, kwargs):
        return lambda g: (2.0 * g * anp.cosh(args[0]),)

    with without_warnings():
        compare_with_jax("sinh")
    monkeypatch.setitem(RULES, anp.sinh, twice_as_steep)
    with pytest.raises(AssertionError, match="derivative of sinh"):
        compare_with_jax("sinh")
    monkeypatch.setitem(DIFFERENT, "cosh", [Differs("derivative", "said in vain")])
    with pytest.raises(AssertionError, match=r"cosh.* is as JAX's: it needs no reason"):
        compare_with_jax("cosh")
    monkeypatch.setitem(DIFFERENT, "cosh", [Differs("derivative", "said in vain", "axis")])
    with pytest.raises(AssertionError, match="no call of 'cosh' has"):
        compare_with_jax("cosh")
    monkeypatch.delitem(DIFFERENT, "histogram")
    with pytest.raises(AssertionError, match="takes 0 calls of 'histogram'"):
        compare_with_jax("histogram")
