"""Every differentiated function and every parameter of it, in both modes: the sweep.

The modules ``functions_...`` are the table, ``sweep`` has what is checked. A function or argument
of which nothing is tested fails here.
"""

import dataclasses
import importlib
import inspect
import itertools
import pkgutil
import warnings

import autograd
import autograd.numpy as anp
import numpy as np
import pytest
import scipy.special
from autograd.core import primitive_jvps, primitive_vjps
from autograd.numpy import numpy_vjps, numpy_wrapper
from autograd.tracer import trace_primitives_map
from functions_all import HANDED_ON, TABLE, in_runs
from sweep import (
    DOMAIN_ERRORS,
    Held,
    by_keyword,
    calls_of,
    check,
    check_second,
    gaps,
    refusal_calls,
    require_dependence,
    some_calls_of,
)

import daskgrad as dg
from daskgrad.autodiff.rules.declaration import DECLARED, declare, settle
from daskgrad.autodiff.tape import linearize, trace
from daskgrad.autodiff.tape.forward import RULES as TANGENT_RULES
from daskgrad.autodiff.tape.reverse import RULES

SOME = 3  # calls of each function that are checked in all dtypes, in short


def random_of(call):
    return np.random.default_rng(len(call.name))


def is_taken(call, arrays):
    """Whether NumPy takes the arrays, without a warning that it drops imaginary parts."""
    try:
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("error", np.exceptions.ComplexWarning)
            call(*arrays)
    except (*DOMAIN_ERRORS, np.exceptions.ComplexWarning):
        return False
    return True


def checked(call, dtype):
    arrays = call.arrays(dtype)
    if not is_taken(call, arrays):
        return False
    try:
        check(call, dtype, random_of(call))
    except (NotImplementedError, TypeError):
        if not call.by_position:
            raise
    return True


def dtypes_of(entry, call):
    """All three for one keyword, to save time with several."""
    if call.by_position:
        return "d"
    several = len(call.kwargs) > 1
    singles = "f" * (not several and "single" not in entry.reasons)
    return "d" + singles + "D" * ("complex" not in entry.reasons)


at_length = pytest.mark.parametrize(
    "at_length", [False, pytest.param(True, marks=pytest.mark.long)], ids=["in short", "at length"]
)


@in_runs
@at_length
def test_both_modes_agree_with_differences(entries, at_length):
    """Every input and every value of a parameter; all calls, in all dtypes, at length."""
    for entry in entries:
        for number, call in enumerate(calls_of(entry) if at_length else some_calls_of(entry)):
            with np.errstate(all="ignore"):
                taken = (checked(call, dtype) for dtype in dtypes_of(entry, call))
                if at_length or number < SOME:
                    taken = list(taken)  # otherwise up to the first that NumPy takes
                assert any(taken), call.name


@in_runs
@at_length
def test_entries_depend_on_no_others_than_the_structure_says(entries, at_length):
    for entry in entries:
        for call in calls_of(entry) if at_length else some_calls_of(entry):
            arrays = call.arrays("d")
            if call.by_position or not is_taken(call, arrays):
                continue
            with np.errstate(all="ignore"):
                require_dependence(call, arrays, random_of(call))


@in_runs
@at_length
def test_second_derivatives_agree_with_differences(entries, at_length):
    for entry in entries:
        for call in itertools.islice(second_calls_of(entry), None if at_length else 1):
            with np.errstate(all="ignore"):
                check_second(call, random_of(call))


def second_calls_of(entry):
    for call in calls_of(entry):
        several = len(call.kwargs) > 1 and "axis" in call.kwargs
        if not call.by_position and not several:
            yield call


@in_runs
@at_length
def test_a_plain_call_has_the_bits_of_autograds(entries, at_length):
    for entry in entries:
        if entry.name in NOT_ASKED or (twin := plain_twin(entry)) is None:
            continue
        plain_entry = dataclasses.replace(entry, fun=twin)
        pairs = zip(calls_of(entry), calls_of(plain_entry), strict=True)
        for traced, plain in itertools.islice(pairs, 12 if at_length else 2):
            arrays = traced.arrays("d")
            for one, other in zip(pulled(traced, arrays), pulled(plain, arrays), strict=True):
                np.testing.assert_array_equal(one, other, err_msg=plain.name, strict=True)


NOT_ASKED = ("array", "full", "full_like")  # NumPy asks no list and no fill value
SPACES = ((np, anp), (np.linalg, anp.linalg), (np.fft, anp.fft))


def plain_twin(entry):
    """NumPy's or SciPy's own function, where an entry of the table has autograd's."""
    for plain, traced in SPACES:
        if getattr(traced, entry.name, None) is entry.fun:
            return getattr(plain, entry.name, None)
    twin = getattr(scipy.special, entry.name, None)
    return twin if isinstance(twin, np.ufunc) else None


def test_many_functions_have_a_plain_twin():
    assert sum(plain_twin(entry) is not None for entry in TABLE) > 200


def pulled(call, arrays):
    """Values and cotangents, or the kind of the error."""
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            outputs, tape = trace(call, arrays)
        except (NotImplementedError, TypeError) as error:
            return [type(error)]
        return outputs + tape.pull([np.ones_like(output) for output in outputs])


@in_runs
@pytest.mark.filterwarnings("ignore:'where' used without")
def test_what_is_refused_is_an_error_that_names_function_and_parameter(entries):
    for entry in entries:
        for parameter, call in refusal_calls(entry):
            arrays = call.arrays("d")
            with pytest.raises((NotImplementedError, TypeError)) as reverse:
                trace(call, arrays)
            with pytest.raises((NotImplementedError, TypeError)) as forward:
                linearize(call, arrays)[1](arrays)
            for caught in (reverse, forward):
                assert parameter in str(caught.value), call.name
                assert entry.raw_name in str(caught.value), call.name


def test_every_value_of_a_parameter_is_used_by_some_call():
    for entry in TABLE:
        named = [call.kwargs for call in calls_of(entry)]
        for parameter, values in entry.parameters.items():
            for value in values:
                is_used = any(kwargs.get(parameter, ()) is value for kwargs in named)
                assert is_used, (entry.name, parameter, value)


@in_runs
def test_what_is_differentiated_by_keyword_is_right_or_an_error(entries):
    for call in itertools.chain.from_iterable(map(by_keyword, entries)):
        arrays = call.arrays("d")
        try:
            with np.errstate(all="ignore"), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                outputs, _ = trace(call, arrays)
                has_boxes = any(np.asarray(output).dtype == object for output in outputs)
        except Exception:  # NumPy's and SciPy's, which meet a box
            continue
        if has_boxes or len(outputs) < len(call(*arrays)):
            continue  # an array of boxes, which is an error as the value of a model
        check(call, "d", random_of(call))


# ------------------------------------------------------------------------- nothing is left out

INTERNAL = "autograd's own: no user calls it"
DASKGRADS = "daskgrad.scipy's: tests/scipy_functions"
ELSEWHERE = {  # differentiated functions that the table does not have
    "expm": DASKGRADS,
    "lu_packed": DASKGRADS,
    "conjugate": DASKGRADS,
    **dict.fromkeys(["convolution", "lfilter", "lagged"], DASKGRADS),
    "sign": "the table has np.sign, of which it is the part for complex numbers",
    **dict.fromkeys(["constant_product", "product", "sampled", "dense", "solution"], DASKGRADS),
    **dict.fromkeys(
        ["_make_dict", "container_take", "container_untake", "make_sequence"], INTERNAL
    ),
    **dict.fromkeys(["sequence_extend_left", "sequence_extend_right", "add", "covector"], INTERNAL),
    **dict.fromkeys(["inner_prod", "mut_add", "scalar_mul", "sparse_add", "untake"], INTERNAL),
    **dict.fromkeys(["dot_adjoint_0", "dot_adjoint_1", "truncate_pad"], INTERNAL),
    **dict.fromkeys(["tensordot_adjoint_0", "tensordot_adjoint_1"], INTERNAL),
    "fixed_point": "its arguments are functions; users have dg.implicit",
    "odeint": "its arguments are functions: tests of its own",
    "rvs": "draws random numbers",
    "histogram_counts": "the counts of np.histogram",
    "share": "the slopes of np.logaddexp",
    "share2": "the slopes of np.logaddexp2",
    "fitted": "the arrays of np.polyfit",
    **dict.fromkeys(
        ["least_squares_solution", "squares_of_gaps", "known_sizes"],
        "the arrays of np.linalg.lstsq",
    ),
    "eigh_for_values": "np.linalg.eigvalsh",
    "eig_for_values": "np.linalg.eigvals",
    "call_rule": "functions of the user's own: test_custom_vjp",
}


def differentiated():
    """The primitives of autograd's tables and ours, all modules of autograd imported."""
    for module in pkgutil.walk_packages(autograd.__path__, "autograd."):
        importlib.import_module(module.name)
    settle()
    found = [*primitive_vjps, *primitive_jvps, *DECLARED]
    return [fun for fun in dict.fromkeys(found) if is_librarys(fun)]


def is_librarys(fun):
    """Primitives that tests of other modules define have no module of NumPy's, SciPy's or ours."""
    module = getattr(getattr(fun, "fun", fun), "__module__", None) or "numpy"
    return module.split(".")[0] in ("numpy", "scipy", "autograd", "daskgrad")


def test_every_differentiated_function_has_an_entry_or_a_reason():
    named = {trace_primitives_map.get(entry.fun, entry.fun) for entry in TABLE}
    missing = [fun.__name__ for fun in differentiated() if fun not in named]
    assert sorted(set(missing) - ELSEWHERE.keys()) == []


def composed():
    """The functions of NumPy's names that autograd composes of primitives."""
    for module, numpys in ((anp, np), (anp.linalg, np.linalg), (anp.fft, np.fft)):
        for name, fun in vars(module).items():
            twin = getattr(numpys, name, None)
            is_own = inspect.isfunction(fun) and fun.__module__.startswith("autograd.")
            is_composed = is_own and callable(twin) and not hasattr(fun, "fun")
            if is_composed and twin not in numpy_wrapper.notrace_functions:
                yield fun


def test_every_function_that_autograd_composes_has_an_entry():
    named = {entry.fun for entry in TABLE} | HANDED_ON.keys()
    assert [fun.__name__ for fun in composed() if fun not in named] == []
    assert {fun.fun for fun in HANDED_ON.values()} == {np.mean, np.std, np.var, np.linalg.norm}


def test_every_argument_has_a_derivative_a_value_a_refusal_or_a_reason():
    assert list(gaps(TABLE)) == []


def entry_of(name):
    (entry,) = [entry for entry in TABLE if entry.name == name]
    return entry


def with_another_argument(entry, name):
    """The entry as it is when the function has got an argument since."""

    def fun(*args, **kwargs):
        return entry.fun(*args, **kwargs)

    parameters = inspect.signature(entry.raw).parameters
    more = inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None)
    fun.__signature__ = inspect.Signature([*parameters.values(), more])
    return dataclasses.replace(entry, fun=fun)


def test_a_new_or_forgotten_argument_leaves_a_gap():
    entry = entry_of("cumsum")
    assert list(gaps([entry])) == []
    forgotten = dataclasses.replace(entry, parameters={"dtype": [np.float64]})
    assert list(gaps([forgotten])) == ["cumsum: nothing is tested of 'axis'"]
    unrefused = dataclasses.replace(entry, refused={})
    assert list(gaps([unrefused])) == ["cumsum: nothing is tested of 'out'"]
    newer = with_another_argument(entry, "skipna")
    assert list(gaps([newer])) == ["cumsum: nothing is tested of 'skipna'"]
    held = dataclasses.replace(entry, inputs=[(Held(np.ones(3)),)])
    assert "cumsum: nothing is tested of 'a'" in gaps([held])
    needless = dataclasses.replace(entry, reasons={"axis": "said in vain", "axes": "misspelt"})
    assert list(gaps([needless])) == [
        "cumsum: 'axis' is tested, and needs no reason",
        "cumsum has no argument 'axes'",
    ]


@pytest.mark.filterwarnings("ignore:numpy.fix is deprecated:DeprecationWarning")
def test_functions_without_derivative_are_constant_where_they_are_numbers():
    """Zero is a derivative, too: they do not change between their jumps."""
    settle()
    x = np.array([0.3, 1.7, -0.6])
    ours = {fun for fun, rules in DECLARED.items() if rules.adjoint}
    for fun in set(numpy_vjps.nograd_functions) - ours - {anp.empty_like, anp.argwhere}:
        for arguments in ([x], [x, x + 0.2]):
            try:
                values = [fun(*[a + step for a in arguments]) for step in (0.0, 1e-3)]
            except DOMAIN_ERRORS:
                continue
            assert np.array_equal(*map(np.asarray, values)), fun.__name__


# ------------------------------------------------------------- where it is decided what is right


TIES = {  # function of an array whose derivative jumps there, and the gradient that is chosen
    "max": (lambda x: anp.max(x), [1.0, 2.0, 2.0], [0.0, 0.5, 0.5]),
    "min, axis": (lambda x: anp.min(x[None], axis=(-1, -2)), [3.0, 3.0, 5.0], [0.5, 0.5, 0.0]),
    "maximum": (lambda x: anp.sum(anp.maximum(x, 2.0)), [1.0, 2.0, 3.0], [0.0, 0.5, 1.0]),
    "abs": (lambda x: anp.sum(anp.abs(x)), [-1.0, 0.0, 2.0], [-1.0, 0.0, 1.0]),
    "clip": (lambda x: anp.sum(anp.clip(x, 0.0, 1.0)), [0.0, 0.5, 1.0], [0.5, 1.0, 0.5]),
    "clip, a bound": (lambda x: anp.sum(anp.clip(1.0, x, 2.0)), [1.0, 0.5, 1.5], [0.5, 0.0, 1.0]),
    "clip, lower": (lambda x: anp.sum(anp.clip(x, 1.0, None)), [1.0, 0.5, 2.0], [0.5, 0.0, 1.0]),
    "minimum": (lambda x: anp.sum(anp.minimum(x, 2.0)), [1.0, 2.0, 3.0], [1.0, 0.5, 0.0]),
    "fmax": (lambda x: anp.sum(anp.fmax(x, 2.0)), [1.0, 2.0, 3.0], [0.0, 0.5, 1.0]),
    "fmin": (lambda x: anp.sum(anp.fmin(x, 2.0)), [1.0, 2.0, np.nan], [1.0, 0.5, 0.0]),
    "sort": (lambda x: anp.sort(x)[0], [1.0, 2.0, 1.0], [1.0, 0.0, 0.0]),
    "partition": (lambda x: anp.partition(x, 1)[0], [2.0, 1.0, 3.0], [0.0, 1.0, 0.0]),
    "std": (lambda x: anp.std(x), [2.0, 2.0, 2.0], [0.0, 0.0, 0.0]),
    "std, axis": (lambda x: anp.sum(anp.std(x[:2] * np.eye(2) * 0.0, 1)), [1.0, 2.0, 0.0], [0] * 3),
    "std, where": (lambda x: anp.std(x, where=x > 1.0), [0.0, 2.0, 2.0], [0.0, 0.0, 0.0]),
    "nanstd": (lambda x: anp.nanstd(x), [2.0, 2.0, np.nan], [0.0, 0.0, 0.0]),
    "complex abs": (lambda x: anp.sum(anp.abs(x + 0j)), [-1.0, 0.0, 2.0], [-1.0, 0.0, 1.0]),
    "fabs": (lambda x: anp.sum(anp.fabs(x)), [-1.0, 0.0, 2.0], [-1.0, 0.0, 1.0]),
    "norm of ones": (lambda x: anp.linalg.norm(x, 1), [-1.0, 0.0, 2.0], [-1.0, 0.0, 1.0]),
    "matrix norm": (lambda x: anp.linalg.norm(x[:, None]), [0.0, 0.0, 0.0], [0.0, 0.0, 0.0]),
    "heaviside": (lambda x: anp.sum(x * anp.heaviside(x, 0.5)), [0.0, 1.0, -1.0], [0.5, 1.0, 0.0]),
    "mod": (lambda x: anp.sum(x % 1.0), [0.0, 1.0, 0.5], [1.0, 1.0, 1.0]),
    "floor": (lambda x: anp.sum(anp.floor(x) * x), [0.0, 1.0, 1.5], [0.0, 1.0, 1.0]),
    "sign": (lambda x: anp.sum(anp.sign(x) * x), [0.0, 1.0, -2.0], [0.0, 1.0, -1.0]),
    "where": (lambda x: anp.sum(anp.where(x > 0.0, x, 0.0)), [0.0, 1.0, -2.0], [0.0, 1.0, 0.0]),
    "interp": (
        lambda x: anp.sum(anp.interp(x, [0.0, 1.0, 2.0], [0.0, 1.0, 4.0])),
        [0.0, 1.0, 2.0],
        [1.0, 3.0, 3.0],
    ),
    "quantile by q": (
        lambda x: anp.sum(anp.quantile(np.array([1.0, 2.0, 4.0]), x)),
        [0.0, 0.5, 1.0],
        [2.0, 4.0, 4.0],
    ),
    "prod": (lambda x: anp.prod(x), [0.0, 2.0, 3.0], [6.0, 0.0, 0.0]),
    "sinc": (lambda x: anp.sum(anp.sinc(x)), [0.0, 1e-12, 1.0], [0.0, -(np.pi**2) / 3e12, -1.0]),
    "largest": (lambda x: anp.linalg.norm(x, np.inf), [1.0, -3.0, 2.0], [0.0, -1.0, 0.0]),
    "median": (lambda x: anp.median(x), [2.0, 2.0, 1.0], [1.0, 0.0, 0.0]),
    "quantile": (lambda x: anp.quantile(x, 0.75), [2.0, 2.0, 1.0], [0.5, 0.5, 0.0]),
    "several smallest": (lambda x: anp.ptp(x), [1.0, 1.0, 2.0], [-0.5, -0.5, 1.0]),
    "cumprod": (lambda x: anp.cumprod(x)[-1], [0.0, 2.0, 0.0], [0.0, 0.0, 0.0]),
    "nanmax": (lambda x: anp.nanmax(x), [2.0, 2.0, np.nan], [0.5, 0.5, 0.0]),
    "nanmean": (lambda x: anp.nanmean(x), [2.0, 4.0, np.nan], [0.5, 0.5, 0.0]),
    "nanmedian": (lambda x: anp.nanmedian(x), [2.0, 4.0, np.nan], [0.5, 0.5, 0.0]),
    "nanprod": (lambda x: anp.nanprod(x), [2.0, 4.0, np.nan], [4.0, 2.0, 0.0]),
    "nansum of none": (
        lambda x: anp.sum(anp.nansum(x[:, None], axis=1)),
        [1.0, np.nan, 3.0],
        [1.0, 0.0, 1.0],
    ),
    "nanstd of one": (lambda x: anp.nanstd(x), [np.nan, 4.0, np.nan], [0.0, 0.0, 0.0]),
    "norm of zeros": (lambda x: anp.linalg.norm(x), [0.0, 0.0, 0.0], [0.0, 0.0, 0.0]),
    "norm of zeros, ord": (lambda x: anp.linalg.norm(x, 3), [0.0, 0.0, 0.0], [0.0, 0.0, 0.0]),
    "hypot of zeros": (lambda x: anp.sum(anp.hypot(x[:2], x[0])), [0.0, 3.0, 1.0], [0.0, 1.0, 0.0]),
    "power of zero": (lambda x: x[0] ** x[1] + x[0] ** x[2], [0.0, 0.0, 1.0], [1.0, 0.0, 0.0]),
    "several largest": (lambda x: anp.linalg.norm(x, np.inf), [1.0, -2.0, 2.0], [0.0, -0.5, 0.5]),
}


@pytest.mark.parametrize("name", TIES)
def test_derivatives_where_they_jump_are_the_same_in_both_modes(name):
    fun, x, gradient = TIES[name]
    x = np.array(x)
    _, tape = trace(lambda a: [fun(a)], [x])
    np.testing.assert_allclose(tape.pull([1.0])[0], gradient, rtol=1e-10, atol=1e-14)
    _, push = linearize(lambda a: [fun(a)], [x])
    tangents = [push([unit])[0] for unit in np.eye(3)]
    np.testing.assert_allclose(tangents, gradient, rtol=1e-10, atol=1e-14)


@pytest.mark.parametrize("name", TIES)
def test_programs_and_batches_choose_where_derivatives_jump_as_the_tape_does(name):
    fun, x, gradient = TIES[name]
    x = np.array(x)
    model = dg.delayed(lambda s, a: s * fun(a), compile=True)
    one = dg.grad(lambda a: model(1.0, a))
    several = dg.grad(lambda a: dg.map_sum(model, [1.0, 2.0, -1.0], a))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for at in (*[0.8 * x + np.array([0.01, 0.02, 0.03])] * 3, x, x):
            found = one(at), several(at)
    np.testing.assert_allclose(found[0], gradient, rtol=1e-10, atol=1e-14)
    np.testing.assert_allclose(found[1] / 2.0, gradient, rtol=1e-10, atol=1e-14)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        product = dg.hvp(dg.delayed(fun), (x,), (np.array([0.3, 0.5, 0.7]),))[1][0]
    assert np.all(np.isfinite(product)) or caught


def test_the_sweep_finds_a_rule_that_is_wrong_in_either_mode(monkeypatch):
    call = next(calls_of(entry_of("sinh")))
    check(call, "d", random_of(call))
    with monkeypatch.context() as patch:
        patch.setitem(RULES, anp.sinh, lambda *call: lambda g: (1.001 * g,))
        with pytest.raises(AssertionError, match="⟨g, Jv⟩"):
            check(call, "d", random_of(call))
    with monkeypatch.context() as patch:
        patch.setitem(TANGENT_RULES, anp.sinh, lambda argnums, gs, *rest: 1.001 * gs[0])
        with pytest.raises(AssertionError, match="tangent: off by"):
            check(call, "d", random_of(call))


def test_the_rules_of_a_primitive_stand_in_one_place():
    with pytest.raises(ValueError, match="the rules of 'sinc' are declared twice"):
        declare(anp.sinc, keywords="x")
