"""Models that are compiled without being asked: which, when, and that all others are traced."""

import functools
import itertools
import math
import time
from operator import attrgetter
from typing import NamedTuple

import autograd.numpy as anp
import dask
import numpy as np
import numpy.random as npr
import pytest
import scipy.special as sc
import scipy.stats as scipy_stats
from autograd.extend import defvjp, primitive
from numpy.testing import assert_array_equal

import daskgrad as dg
import daskgrad.scipy.special
from daskgrad.autodiff.compiled import programs
from daskgrad.autodiff.compiled.backend import cautious, vouched
from daskgrad.autodiff.compiled.families import SLOW, UNASKED_AT
from daskgrad.autodiff.compiled.programs import COLD
from daskgrad.autodiff.compiled.purity import impurity_of
from daskgrad.scipy import stats

HOT = COLD + UNASKED_AT
X = np.linspace(0.1, 2.0, 5)
RATES = np.linspace(1.0, 2.0, 5)
WIDE = np.ones(10_000)
FIXED = np.ones(10_000)
FIXED.flags.writeable = False
SHARED_MEMORY = WIDE.view()
SHARED_MEMORY.flags.writeable = False
LOG: list = []


class Point(NamedTuple):
    x: float
    count: int

    def scaled(self, by):
        return self.x * by


class Loud(NamedTuple):
    x: float

    def scaled(self, by):
        print("scaled")
        return self.x * by


class LoudSum(NamedTuple):
    x: float

    def __add__(self, by):
        print("added")
        return self.x * by


class Settings(NamedTuple):
    x: float

    def scaled(self, by):
        return self.x * by * RATE

    def __add__(self, by):
        return self.x * by * RATE


class Rated(NamedTuple):
    x: float

    def scaled(self, by):
        return self.x * by * self.rate


Rated.rate = 2.0
RATE = 2.0


class Model:
    rate = 2.0

    def predict(self, x):
        return np.sum(x) * self.rate

    def __call__(self, x):
        return np.sum(x)


def helper(x, power=2):
    return np.sum(np.exp(x) ** power) * math.pi


MODEL = dg.delayed(helper)


def noisy(x):
    return np.sum(x) + np.random.rand()


def counted(x):
    counted.calls += 1
    return np.sum(x)


counted.calls = 0


def assigns(x):
    global RATES
    RATES = RATES + 0.0
    return np.sum(x * RATES)


def counter():
    calls = 0

    def count(x):
        nonlocal calls
        calls += 1
        return np.sum(x)

    return count


def local_counter(x):
    total = 0.0

    def add(y):
        nonlocal total
        total = total + y

    for each in (x[0], x[1]):
        add(each)
    return total


def raises(x):
    if np.ndim(x) > 3:
        raise ValueError("too many axes")
    return np.sum(x) if x is not None else 0.0


@functools.wraps(np.sum)
def named_as_numpys(x):
    return LOG.append(1) or np.sum(x)


def imports(x):
    import numpy

    return numpy.sum(x)


def imports_time(x):
    import time

    return np.sum(x) * time.time()


def imports_random(x):
    from numpy.random import rand

    return np.sum(x) * rand()


PURE = {
    "a function": helper,
    "functions of functions": lambda x: helper(x) + helper(x, power=3),
    "small array": lambda x: np.sum(RATES * x),
    "array that is read-only": lambda x: np.sum(x[0] * FIXED),
    "special functions": lambda x: np.sum(sc.erf(x)) + daskgrad.scipy.special.logsumexp(x),
    "distributions": lambda x: np.sum(stats.norm.logpdf(x)),
    "autograd's NumPy": lambda x: anp.sum(anp.linalg.norm(x)),
    "named tuple": lambda x: Point(x[0], 3).scaled(x[1]),
    "comprehension": lambda x: sum([each**2 for each in x]) + max(len(x), 1),
    "partial": functools.partial(helper, power=3),
    "local counter": local_counter,
    "exceptions": raises,
    "imports": imports,
}
IMPURE = {
    "list": (lambda x: LOG.append(1) or np.sum(x), "it refers to 'LOG', an object of type list"),
    "list in a function that bears a name of NumPy's": (named_as_numpys, "it refers to 'LOG'"),
    "large array": (lambda x: np.sum(x[0] * WIDE), "the array 'WIDE', of 80,000 bytes"),
    "view of a large array": (lambda x: np.sum(x[0] * SHARED_MEMORY), "'SHARED_MEMORY'"),
    "random": (noisy, "it uses numpy.random"),
    "random by another name": (lambda x: np.sum(x) * npr.rand(), "it uses numpy.random.rand"),
    "random that is imported": (imports_random, "it uses numpy.random"),
    "random by a distribution": (lambda x: np.sum(x) * scipy_stats.norm.rvs(), "it uses 'rvs'"),
    "clock": (lambda x: np.sum(x) * time.time(), "'time.time'"),
    "print": (lambda x: print("called") or np.sum(x), "it calls 'print'"),
    "file": (lambda x: np.sum(x) * np.loadtxt("rates"), "it uses numpy.loadtxt"),
    "attribute by a class": (lambda x: attrgetter("T")(x)[0], "it uses operator.attrgetter"),
    "global": (assigns, "it assigns or deletes 'RATES'"),
    "nonlocal": (counter(), "it assigns or deletes 'calls'"),
    "attribute of the function": (counted, "it assigns or deletes 'calls'"),
    "callable object": (Model(), "an object of type Model"),
    "class": (lambda x: Model.rate * np.sum(x), "the class 'Model'"),
    "type of data": (lambda x: np.sum(x) * len(type(x).mro()), "it calls 'type'"),
    "identity": (lambda x, y: np.sum(x) if x is y else np.sum(y), "two objects are the same one"),
    "dunders": (lambda x: np.sum(x) * len(helper.__globals__), "it uses '__globals__'"),
    "imports": (imports_time, "it imports 'time'"),
    "module in a variable": (lambda x: (lambda m: m.sum(x))(np), "'np', an object of type module"),
    "model": (lambda x: MODEL(x), "an object of type DelayedModel"),
    "class with attributes": (lambda x: Rated(x).scaled(2.0), "'Rated' has the attribute 'rate'"),
    "default": (lambda x, log=LOG: np.sum(x), "an object of type list"),
    "loud method": (lambda x: Loud(x[0]).scaled(2.0), "it calls 'print'"),
}


@pytest.mark.parametrize("name", PURE)
def test_functions_of_their_arguments_are_known(name):
    assert impurity_of(PURE[name]) is None


@pytest.mark.parametrize("name", IMPURE)
def test_what_may_change_is_named(name):
    fun, reason = IMPURE[name]
    assert reason in impurity_of(fun)


@pytest.mark.parametrize("name", PURE)
def test_they_are_compiled_once_they_are_hot(name, synchronous):
    fun = PURE[name]
    expected = dg.value_and_grad(dg.delayed(fun, compile=False))(X)
    for number in range(HOT + 3):
        value, gradient = dg.value_and_grad(dg.delayed(fun))(X)
        assert value == expected[0]
        assert_array_equal(gradient, expected[1])
        ways = [way for each in entries_of(fun) for way in each.ways]
        assert bool(ways) == (number + 1 >= HOT)


def entries_of(fun, backend=cautious):
    return list(backend.prepare(fun).programs._entries.values())


@pytest.mark.parametrize("name", ["list", "random", "nonlocal", "callable object", "large array"])
def test_others_run_each_time(name, synchronous):
    fun, _ = IMPURE[name]
    calls = []

    def model(x):
        calls.append(1)
        return fun(x)

    for number in range(2 * HOT):
        dg.grad(dg.delayed(model))(X)
        assert len(calls) == number + 1
    assert not entries_of(model)


@pytest.mark.parametrize(
    ("kind", "use", "are_compiled"),
    [
        (lambda x: Point(x, 3), lambda item, x: np.sum(item.scaled(x)), True),
        (Loud, lambda item, x: np.sum(item.scaled(x)), False),
        (LoudSum, lambda item, x: np.sum(item + x), False),
    ],
)
def test_methods_and_operators_of_containers_are_read(kind, use, are_compiled, synchronous):
    items = [kind(float(n)) for n in range(2 * HOT)]
    for _ in range(2):
        assert dg.grad(lambda x: dg.map_sum(use, items, x))(X)[0] == 190.0
    assert any([bool(entry.ways) for entry in entries_of(use)]) == are_compiled


@pytest.mark.parametrize(("choice", "backend"), [(True, vouched), ("auto", cautious)])
@pytest.mark.parametrize("model", [lambda p, x: np.sum(p.scaled(x)), lambda p, x: np.sum(p + x)])
def test_what_methods_of_containers_refer_to_is_watched(model, choice, backend, monkeypatch):
    gradient = dg.grad(dg.delayed(model, compile=choice), argnums=1)
    for rate in (2.0, 3.0, 2.0):
        monkeypatch.setitem(globals(), "RATE", rate)
        for _ in range(2 * HOT):
            assert_array_equal(gradient(Settings(3.0), X), 3.0 * rate * np.ones(5))
        assert any([entry.ways for entry in entries_of(model, backend)])


def test_a_model_that_changes_what_it_refers_to_is_traced(synchronous):
    totals = np.zeros(1)

    def model(x):
        totals[0] += 1.0
        return np.sum(x)

    for _ in range(2 * HOT):
        dg.grad(dg.delayed(model))(X)
    assert totals[0] >= 2 * HOT
    assert not any([entry.ways for entry in entries_of(model)])


def test_a_function_that_is_defined_anew_keeps_its_programs(synchronous):
    def gradient(rate):
        def term(item, x):
            return np.sum(np.exp(-rate * x)) * item

        return dg.value_and_grad(lambda x: dg.map_sum(term, [1.0, 2.0, 3.0], x))(X), term

    def expected_slope(rate):
        def term(item, x):
            return np.sum(np.exp(-rate * x)) * item

        model = dg.delayed(term, compile=False)
        return dg.grad(lambda x: dg.map_sum(model, [1.0, 2.0, 3.0], x))(X)

    ways = {}
    for number in range(2 * HOT):
        rate = 0.5 + number % 2
        (value, slope), term = gradient(rate)
        assert_array_equal(slope, expected_slope(rate))
        assert value == pytest.approx(6.0 * np.sum(np.exp(-rate * X)))
        (entry,) = entries_of(term)
        assert ways.setdefault(rate, entry) is entry
        assert entry.family.calls == 3 * (number // 2 + 1) - COLD if number > 3 else True
    assert len(set(map(id, ways.values()))) == 2


def test_functions_that_differ_in_a_unit_have_programs_of_their_own(synchronous):
    def in_units(unit):
        return lambda x: np.sum(x) * (unit / np.timedelta64(1, "s"))

    for code, seconds in (("h", 3600.0), ("m", 60.0)):
        gradient = dg.grad(dg.delayed(in_units(np.timedelta64(1, code))))
        for _ in range(2 * HOT):
            assert gradient(X)[0] == seconds


def test_other_threads_compile_nothing_while_the_code_is_read(monkeypatch):
    def model(x):
        return np.sum(x) * state["scale"]

    state, seen = {"scale": 1.0}, []
    made = cautious.prepare(model).programs

    def read(fun):
        seen.append(made.watch is None or made.watch.has_changed())
        return impurity_of(fun)

    monkeypatch.setattr(programs, "impurity_of", read)
    made.look_at(model)
    assert made.impurity is not None
    state["scale"] = 2.0
    made.look_at(model)
    assert seen == [True, True]  # another thread would look itself


@pytest.mark.parametrize(("seconds", "is_compiled"), [(1.1 * SLOW, False), (0.9 * SLOW, True)])
def test_slow_models_are_traced(seconds, is_compiled, clock, synchronous):
    @primitive
    def takes_time(x):
        clock.move(seconds)
        return x * 1.0

    defvjp(takes_time, lambda value, x: lambda g: g)

    def model(x):
        return np.sum(takes_time(x) ** 2)

    for _ in range(2 * HOT):
        dg.grad(dg.delayed(model))(X)
    assert any([entry.ways for entry in entries_of(model)]) is is_compiled


@pytest.mark.parametrize("slower", [1, 3])
def test_comparisons_with_the_tape_take_a_fiftieth_of_the_time(slower, clock, synchronous):
    """By the clock, which the program and the tape move on; at first they are more."""
    clocks, runs = [clock] * 100, itertools.count()  # so many elements are not watched

    @primitive
    def takes_time(x):
        clocks[0].move(0.001)
        return x * 1.0

    defvjp(takes_time, lambda value, x: lambda g: g)

    def model(x):
        next(runs)
        clocks[0].move(0.001 * (slower - 1))
        return np.sum(takes_time(x))

    gradient, often = dg.grad(dg.delayed(model, compile=True)), 50 * slower
    for _ in range(4 * often):
        gradient(X)
    before = next(runs)
    for _ in range(6 * often):
        gradient(X)
    assert next(runs) - before - 1 in (5, 6)


@pytest.mark.parametrize(
    ("said", "setting", "is_compiled"),
    [
        ("auto", "auto", True),
        ("auto", True, True),
        ("auto", False, False),
        (True, False, True),
        (False, True, False),
    ],
)
def test_the_configuration_says_what_auto_means(said, setting, is_compiled):
    with dask.config.set({"daskgrad.compile": setting}):
        model = dg.delayed(helper, compile=said)
    assert (model.model.backend != "autograd") == is_compiled


def test_only_three_words_are_understood():
    with pytest.raises(ValueError, match="compile must be 'auto', True or False; found 'yes'"):
        dg.delayed(helper, compile="yes")
    with dask.config.set({"daskgrad.compile": "never"}), pytest.raises(ValueError, match="'never'"):
        dg.delayed(helper)


def test_explain_tells_why_a_model_is_not_compiled_unasked():
    told = dg.explain(noisy, X)
    assert "is not compiled unless you vouch for it with compile=True: it uses numpy.random" in told
    assert "def backward" in told


@pytest.mark.parametrize("size", [100, 20_000])
def test_what_is_kept_of_a_call_does_not_depend_on_the_program(size, synchronous):
    """The gradient, or the pullback: they have other bits where a cotangent is not one."""
    x, weights = np.linspace(0.1, 0.7, size), np.linspace(1.0, 2.0, size)
    weights.flags.writeable = False  # the tape holds them, and the program need not

    def model(x):
        return np.sum(x * weights) * 3.3

    def gradient(how):
        made = dg.delayed(model, compile=how)
        return dg.value_and_grad(lambda x: made(x) * 0.3 + made(x * 1.1) / 7.0)(x)

    expected = gradient(False)
    for _ in range(HOT + 2):
        for how in (True, "auto"):
            value, slope = gradient(how)
            assert value == expected[0]
            assert_array_equal(slope, expected[1])


def test_a_global_that_hides_a_builtin_function_is_noticed(synchronous, monkeypatch):
    def model(x):
        return max(x[0], x[1])

    for _ in range(2 * HOT):
        assert dg.grad(dg.delayed(model))(X)[1] == 1.0
    assert any([entry.ways for entry in entries_of(model)])
    monkeypatch.setitem(globals(), "max", min)
    assert dg.grad(dg.delayed(model))(X)[0] == 1.0
