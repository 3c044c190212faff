"""Models that are compiled without being asked: which, when, and that all others are traced."""

import builtins
import copy
import dataclasses
import functools
import gc
import math
import time
import types
import weakref
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
from daskgrad.autodiff.programs import backend, store
from daskgrad.autodiff.programs.backend import cautious, vouched
from daskgrad.autodiff.programs.store import COLD
from daskgrad.autodiff.programs.watch import References
from daskgrad.scipy import stats

HOT = COLD + 2  # a compilation counts less here
X = np.linspace(0.1, 2.0, 5)
RATES = np.linspace(1.0, 2.0, 5)
WIDE = np.ones(10_000)
FIXED = np.ones(10_000)
FIXED.flags.writeable = False
SHARED_MEMORY = WIDE.view()
SHARED_MEMORY.flags.writeable = False
LISTED: list = []
LONG, ENDLESS = [1.0] * 100, [1.0] * 100_000
MANY = tuple([[n] for n in range(300)])


class Wide:
    rates = WIDE

    def product(self, x):
        return np.sum(x[0] * self.rates)


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


class Held(Model):
    """An object of attributes that are read, set, asked for by name, or too large."""

    __slots__ = ("slot",)

    def __init__(self):
        self.arrays, self.named, self.slot = (RATES, FIXED), {"rate": 2.0, "by": helper}, 1.0
        self.wide, self.calls, self.random = WIDE, 0, np.random.default_rng()

    @property
    def product(self):
        return self.rate * self.slot

    def predict(self, x):
        return super().predict(x * self.arrays[0]) * self.product * self.named["by"](x)

    def of_wide(self, x):
        return np.sum(x[0] * self.wide)

    def marks(self, x):
        self.calls = 1
        return np.sum(x)

    def draws(self, x):
        return np.sum(x) * self.random.normal()


class Dynamic:
    def __getattr__(self, name):
        return 2.0


@dataclasses.dataclass
class Settled:
    rate: float = 2.0
    table: dict = dataclasses.field(default_factory=lambda: {"rates": [1.0, 2.0]})


def helper(x, power=2):
    return np.sum(np.exp(x) ** power) * math.pi


MODEL = dg.delayed(helper)


def noisy(x):
    return np.sum(x) + np.random.rand()


def marked(x):
    marked.calls = 1
    return np.sum(x)


marked.calls = 0


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
    return ENDLESS.append(1) or np.sum(x)


def catches(x):
    try:
        return np.sum(x) * SETTLED.later
    except AttributeError:
        return np.sum(x)


def imports(x):
    import numpy

    return numpy.sum(x)


def imports_time(x):
    import time

    return np.sum(x) * time.time()


def imports_random(x):
    from numpy.random import rand

    return np.sum(x) * rand()


def impurity_of(fun):
    return References(fun).impurity


DYNAMIC = Dynamic()
PURE = {
    "a function": helper,
    "functions of functions": lambda x: helper(x) + helper(x, power=3),
    "small array": lambda x: np.sum(RATES * x),
    "large array": lambda x: np.sum(x[0] * WIDE),
    "view of a large array": lambda x: np.sum(x[0] * SHARED_MEMORY),
    "large array of an object": Held().of_wide,
    "long list": lambda x: np.sum(x) * LONG[7],
    "array that is read-only": lambda x: np.sum(x[0] * FIXED),
    "special functions": lambda x: np.sum(sc.erf(x)) + daskgrad.scipy.special.logsumexp(x),
    "distributions": lambda x: np.sum(stats.norm.logpdf(x)),
    "autograd's NumPy": lambda x: anp.sum(anp.linalg.norm(x)),
    "named tuple": lambda x: Point(x[0], 3).scaled(x[1]),
    "comprehension": lambda x: sum([each**2 for each in x]) + max(len(x), 1),
    "partial": functools.partial(helper, power=3),
    "local counter": local_counter,
    "attribute that is set": Held().marks,
    "exceptions": raises,
    "imports": imports,
    "method": Held().predict,
    "callable object": Model(),
    "class": lambda x: Model.rate * np.sum(x),
    "class with attributes": lambda x: Rated(x[0]).scaled(2.0),
    "object": lambda x: np.sum(x) * SETTLED.rate * SETTLED.table["rates"][0],
    "namespace of attributes": lambda x: np.sum(x) * NAMESPACE.rate,
    "list": lambda x, log=LISTED: np.sum(x),
    "module in a variable": lambda x: (lambda m: m.sum(x))(np),
}
DYNAMIC, SETTLED, NAMESPACE = Dynamic(), Settled(), types.SimpleNamespace(rate=2.0)
IMPURE = {
    "list in a function that bears a name of NumPy's": (named_as_numpys, "more than 256 objects"),
    "attribute that is not there": (catches, "it calls 'AttributeError'"),
    "endless list": (lambda x: np.sum(x) * ENDLESS[7], "it refers to more than 256 objects"),
    "generator of random numbers": (Held().draws, "'random', an object of type Generator"),
    "large array of a class": (Wide().product, "the array 'rates', of 80,000 bytes"),
    "attributes by name": (lambda x: np.sum(x) * DYNAMIC.rate, "'DYNAMIC', an object of"),
    "class that is called": (lambda x: np.sum(x) * Held().rate, "the array 'WIDE', of 80,000"),
    "module in a variable": (lambda x: (lambda m: m.random.rand() * m.sum(x))(np), "'random'"),
    "many objects": (lambda x: np.sum(x) * len(MANY), "it refers to more than 256 objects"),
    "random": (noisy, "it uses numpy.random"),
    "random by another name": (lambda x: np.sum(x) * npr.rand(), "it uses numpy.random.rand"),
    "random that is imported": (imports_random, "it uses numpy.random"),
    "random by a distribution": (lambda x: np.sum(x) * scipy_stats.norm.rvs(), "it uses 'rvs'"),
    "random without a seed": (
        lambda x: np.sum(x) * np.random.default_rng().normal(),
        "it uses numpy.random",
    ),
    "random with no seed": (
        lambda x: np.sum(x) * np.random.default_rng(None).normal(),
        "it uses numpy.random",
    ),
    "attribute of any name": (lambda x, y: getattr(x, y), "it calls 'getattr'"),
    "clock": (lambda x: np.sum(x) * time.time(), "'time.time'"),
    "print": (lambda x: print("called") or np.sum(x), "it calls 'print'"),
    "file": (lambda x: np.sum(x) * np.loadtxt("rates"), "it uses numpy.loadtxt"),
    "attribute by a class": (lambda x: attrgetter("T")(x)[0], "it uses operator.attrgetter"),
    "global": (assigns, "it assigns or deletes 'RATES'"),
    "nonlocal": (counter(), "it assigns or deletes 'calls'"),
    "attribute of the function": (marked, "it assigns or deletes 'calls'"),
    "object that is made again": (lambda x: SETTLED.__init__() or np.sum(x), "'__init__' of"),
    "type of data": (lambda x: np.sum(x) * len(type(x).mro()), "it uses 'mro'"),
    "type that is called": (lambda x: np.sum(x) * len([type(x)]), "it calls 'type'"),
    "identity": (lambda x, y: np.sum(x) if x is y else np.sum(y), "two objects are the same one"),
    "dunders": (lambda x: np.sum(x) * len(helper.__globals__), "it uses '__globals__'"),
    "imports": (imports_time, "it imports 'time'"),
    "loud method": (lambda x: Loud(x[0]).scaled(2.0), "it calls 'print'"),
}


@pytest.mark.parametrize("name", IMPURE)
def test_what_may_change_is_named(name):
    fun, reason = IMPURE[name]
    assert reason in impurity_of(fun)


@pytest.mark.parametrize("name", PURE)
def test_they_are_compiled_once_they_are_hot(name, synchronous):
    fun = PURE[name]
    assert impurity_of(fun) is None
    expected = dg.value_and_grad(dg.delayed(fun, compile=False))(X)
    for number in range(HOT + 3):
        value, gradient = dg.value_and_grad(dg.delayed(fun))(X)
        assert value == expected[0]
        assert_array_equal(gradient, expected[1])
        ways = [way for each in entries_of(fun) for way in each.ways]
        assert bool(ways) == (number + 1 >= HOT)


def entries_of(fun, backend=cautious):
    return list(backend.prepare(fun).programs._entries.values())


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
        assert dg.grad(lambda x: dg.map_sum(use, items, x))(X)[0] == sum(range(2 * HOT))
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


COUNTS = {"a list": [0], "an array": np.zeros(1), "a dict": {0: 0}}
COUNTS["an object"] = types.SimpleNamespace(counts=[0])


@pytest.mark.parametrize("name", COUNTS)
@pytest.mark.parametrize("is_global", [False, True])
def test_a_model_that_changes_what_it_refers_to_is_traced(
    name, is_global, synchronous, monkeypatch
):
    counts = copy.deepcopy(COUNTS[name])
    monkeypatch.setitem(COUNTS, name, copy.deepcopy(counts))  # which the model changes

    def model(x):
        held = COUNTS[name] if is_global else counts
        held = held.counts if name == "an object" else held
        held[0] += 1
        return np.sum(x) * held[0]

    for number in range(5 * HOT):
        assert dg.value_and_grad(dg.delayed(model))(np.ones(1))[0] == number + 1
    assert not any([entry.ways for entry in entries_of(model)])


def test_a_model_that_changes_its_argument_is_traced(synchronous):
    def model(x, item):
        item.counts[0] += 1.0
        return np.sum(x) * item.counts[0]

    for choice in (True, "auto"):
        item = types.SimpleNamespace(counts=[0.0])
        for number in range(3 * HOT):
            gradient = dg.value_and_grad(dg.delayed(model, compile=choice))
            assert gradient(np.ones(1), item)[0] == number + 1.0


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
        if number > 3:
            (entry,) = entries_of(term)
            assert ways.setdefault(rate, entry) is entry
    assert len(set(map(id, ways.values()))) == 2


def test_a_method_that_is_taken_anew_keeps_its_programs_and_no_object(synchronous):
    held, other, before = Held(), Held(), len(backend._here)
    seen = []
    for number in range(2 * HOT):
        for each in (held, other):
            expected = dg.grad(dg.delayed(each.predict, compile=False))(X)
            assert_array_equal(dg.grad(dg.delayed(each.predict, compile=True))(X), expected)
        (entry,) = entries_of(held.predict, vouched)
        seen.append(entry)
        if number == HOT:
            other.slot = 2.0
            other.named["by"] = np.sum
    assert entry.ways
    assert set(map(id, seen)) == {id(entry)}
    assert entries_of(held.predict, vouched) != entries_of(other.predict, vouched)
    seen.clear()
    gone = weakref.ref(held)
    del held, other, each, expected
    gc.collect()
    assert gone() is None
    assert len(backend._here) <= before


@pytest.mark.parametrize("seconds", [1e-5, 1e-3])
def test_a_large_array_is_compared_if_that_takes_little_of_a_call(seconds, clock, synchronous):
    class Held:
        wide = np.ones(10_000)

    @primitive
    def takes_time(x):
        clock.move(seconds)
        return x * 1.0

    defvjp(takes_time, lambda value, x: lambda g: g)

    def model(x):
        return np.sum(takes_time(x)[0] * Held.wide)

    for number in range(3 * HOT):
        Held.wide[7] = number // HOT
        gradient = dg.grad(dg.delayed(model))(X)
        assert gradient[0] == np.sum(Held.wide)
    assert any([entry.ways for entry in entries_of(model)]) is (seconds > 1e-4)


@pytest.mark.parametrize(("choice", "backend"), [(True, vouched), ("auto", cautious)])
def test_a_function_among_the_arguments_goes_with_what_it_holds(choice, backend, synchronous):
    def model(x, weigh):
        return np.sum(weigh(x))

    gradient = dg.value_and_grad(dg.delayed(model, compile=choice))
    alive = []
    for number in range(3):
        weights = np.full(5, 1.0 + number)
        alive.append(weakref.ref(weights))
        weigh = functools.partial(lambda w: lambda x, w=w: x * w, weights)()
        for _ in range(5 * HOT):
            assert gradient(X, weigh)[0] == np.sum(X * (1.0 + number))
        assert [way for entry in entries_of(model, backend) for way in entry.ways]
    del weights, weigh
    gc.collect()
    assert [array() for array in alive] == [None] * 3
    assert entries_of(model, backend) == []


@pytest.mark.parametrize("is_changed", [False, True])
def test_what_a_function_among_the_arguments_reads_is_watched(is_changed, synchronous):
    held = types.SimpleNamespace(scale=2.0, part=types.SimpleNamespace(rate=1.0))

    def weigh(x):
        return held

    def model(x, weigh):
        return np.sum(x) * weigh(x).part.rate * weigh(x).scale

    gradient = dg.value_and_grad(dg.delayed(model))
    for number in range(5 * HOT):
        if number == 4 * HOT:
            assert [way for entry in entries_of(model) for way in entry.ways]
            held.scale, held.part.rate = (3.0, 1.0) if is_changed else (2.0, 5.0)
        assert gradient(X, weigh)[0] == np.sum(X) * held.part.rate * held.scale


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

    def read(*given):
        seen.append(made.watch is None or made.watch.has_changed())
        return References(*given)

    monkeypatch.setattr(store, "References", read)
    made.look_at(model)
    state["scale"] = 2.0
    made.look_at(model)
    assert seen == [True, True]  # another thread would look itself


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


def test_a_builtin_that_is_replaced(monkeypatch, synchronous):
    gradient = dg.value_and_grad(dg.delayed(lambda x: np.sum(x) * abs(-2.0)))
    for _ in range(20):
        gradient(X)
    monkeypatch.setattr(builtins, "abs", lambda number: 3.0)
    assert gradient(X)[0] == 3.0 * np.sum(X)


def test_only_four_words_are_understood():
    with pytest.raises(ValueError, match="'auto', True, False or 'native'; found 'yes'"):
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
