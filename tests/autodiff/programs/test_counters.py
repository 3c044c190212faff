"""Models and objectives that count their calls: programs count, too, by exactly as much."""

import functools
import types

import autograd.numpy as np
import dask
import numpy
import pytest
from comparisons import assert_same
from fuzzers import ticking
from probes import objective_of

import daskgrad as dg
from daskgrad.autodiff.libraries import registry
from daskgrad.autodiff.programs.counters import counting
from daskgrad.autodiff.programs.watch import References
from daskgrad.graph.delayed import as_model

X = numpy.array([1.5, 0.9])
T = numpy.linspace(0.0, 3.0, 20)
ITEMS = [T + n for n in range(40)]
CALLS = 60  # with several comparisons


@pytest.fixture(autouse=True)
def in_line(monkeypatch):
    ticking(monkeypatch)
    with dask.config.set({"daskgrad.inline.seconds": 60}):
        yield


def decay(x, t):
    return np.sum((1.0 - x[0] * np.exp(-x[1] * t)) ** 2)


def programs_of(model):
    made = as_model(model)
    return registry.load(made.backend).prepare(made.fun).programs


def assert_counted(count, call, a_call, calls=CALLS):
    """Each call adds so much, and leaves a plain whole number."""
    for number in range(1, calls + 1):
        call()
        assert type(count()) is int
        assert count() == a_call * number, f"call {number}"


class Fit:
    calls = 0

    def __init__(self):
        self.t, self.runs, self.stats = T, 0, types.SimpleNamespace(count=0)

    def __call__(self, x):
        self.runs += 1
        return decay(x, self.t)

    def of_item(self, t, x):
        self.runs += 1
        return decay(x, t)

    def of_class(self, x):
        Fit.calls += 1
        return decay(x, self.t)

    def twice(self, x):
        for _ in range(2):
            self.runs += 3
        self.runs -= 1
        return decay(x, self.t)

    def by_helper(self, x):
        note(self)
        return decay(x, self.t)

    def objective(self, x):
        self.runs += 1
        return dg.delayed(decay)(x, self.t) + 0.1 * dg.delayed(np.sum)(x**2)

    def on_a_way(self, x):
        if x[0] > 0.0:
            self.runs += 1
        return decay(x, self.t)


class Slots:
    __slots__ = ("__weakref__", "runs", "t")

    def __init__(self):
        self.runs, self.t = 0, T

    def __call__(self, x):
        self.runs += 1
        return decay(x, self.t)


def note(fit):
    fit.runs += 1


@pytest.mark.parametrize(
    ("method", "a_call", "has_program"),
    [("__call__", 1, True), ("twice", 5, True), ("objective", 1, True), ("by_helper", 1, False)],
)
def test_counts_of_an_object_are_right_at_each_call(method, a_call, has_program):
    fit = Fit()
    gradient = dg.value_and_grad(getattr(fit, method))
    assert_counted(lambda: fit.runs, lambda: gradient(X), a_call)
    model = programs_of(getattr(fit, method))
    assert (objective_of(gradient).programs().has_programs() or model.has_programs()) == has_program


def test_counts_of_slots_of_classes_and_of_objects_in_objects():
    """They are left to Python."""
    slots, fit = Slots(), Fit()
    assert_counted(lambda: slots.runs, lambda: dg.grad(lambda x: dg.delayed(slots)(x))(X), 1)
    Fit.calls = 0
    of_class = dg.delayed(fit.of_class)
    assert_counted(lambda: Fit.calls, lambda: dg.grad(lambda x: of_class(x) * 2.0)(X), 1)

    def model(x):
        fit.stats.count += 2
        return decay(x, T)

    assert_counted(lambda: fit.stats.count, lambda: dg.grad(dg.delayed(model))(X), 2)


COUNT = 0


def counts_in_a_global(x):
    global COUNT
    COUNT += 1
    return decay(x, T)


def test_counts_of_a_global(monkeypatch):
    monkeypatch.setitem(globals(), "COUNT", 0)
    gradient = dg.grad(lambda x: dg.delayed(counts_in_a_global)(x) * 2.0)
    assert_counted(lambda: COUNT, lambda: gradient(X), 1)
    assert programs_of(counts_in_a_global).has_programs()


def test_each_way_counts_what_it_counts():
    fit = Fit()
    gradient, plus = dg.grad(dg.delayed(fit.on_a_way)), 0
    for number in range(CALLS):
        sign = 1.0 if number % 3 else -1.0
        gradient(sign * X)
        plus += sign > 0.0
        assert fit.runs == plus


@pytest.mark.parametrize("grainsize", ["auto", 1, 8])
def test_items_of_a_sum_count_each(grainsize):
    fit = Fit()
    term = dg.delayed(fit.of_item)
    gradient = dg.value_and_grad(lambda x: dg.map_sum(term, ITEMS, x, grainsize=grainsize))
    expected = gradient(X)
    fit.runs = 0
    assert_counted(lambda: fit.runs, lambda: assert_same(gradient(X), expected), len(ITEMS))
    assert programs_of(fit.of_item).has_programs()


DERIVATIVES = {
    "hvp": lambda fun: lambda: dg.hvp(fun, (X,), (X,)),
    "jvp": lambda fun: lambda: dg.jvp(fun, (X,), (X,)),
    "vjp": lambda fun: lambda: [pull(1.0) for pull in dg.vjp(fun, X)[1:] * 2],
    "hessian": lambda fun: lambda: dg.hessian(fun)(X),
    "auxiliary": lambda fun: lambda: dg.value_and_grad(lambda x: (fun(x), 1), has_aux=True)(X),
}


@pytest.mark.parametrize("name", DERIVATIVES)
def test_other_derivatives_count_as_without_programs(name):
    counts = {}
    for compiles in (False, "auto"):
        fit, seen = Fit(), []
        model = dg.delayed(fit)
        call = DERIVATIVES[name](lambda x, model=model: model(x) * 2.0 + model(x * 1.5))
        with dask.config.set({"daskgrad.compile": compiles}):
            for _ in range(30):
                before = fit.runs
                call()
                seen.append(fit.runs - before)
        counts[compiles] = seen
    runs = 2 if name in ("hvp", "hessian") else 1  # of a model, whose recorded call is one
    assert runs * counts["auto"][-1] == counts[False][-1] > 0
    assert set(counts["auto"]) <= {counts[False][-1], counts["auto"][-1]}


def test_a_call_that_a_program_gives_up_counts_once():
    class Logarithm(Fit):
        def __call__(self, x):
            self.runs += 1
            return np.sum(np.log(x))

    fit = Logarithm()
    gradient = dg.grad(lambda x: dg.delayed(fit)(x) * 2.0)
    assert_counted(lambda: fit.runs, lambda: gradient(X), 1)
    with pytest.warns(RuntimeWarning):
        gradient(-X)
    assert fit.runs == CALLS + 1


class Odd:
    """Counters that are read, or no plain whole numbers."""

    def __init__(self):
        self.runs, self.weight, self.number, self.printed = 0, 1.0, numpy.int64(0), []
        self._hidden = 0

    def every_third(self, x):
        self.runs += 1
        return decay(x, T) * (2.0 if self.runs % 3 else 1.0)

    def anneals(self, x):
        self.weight += 1
        return decay(x, T) * self.weight

    def of_numpy(self, x):
        self.number += 1
        return decay(x, T)

    @property
    def hidden(self):
        return self._hidden

    @hidden.setter
    def hidden(self, value):
        self.printed.append(value)
        self._hidden = value

    def by_property(self, x):
        self.hidden += 1
        return decay(x, T)

    def told(self, x):
        self.runs += 1
        if self.runs % 10 == 0:
            self.printed.append(self.runs)
        return decay(x, T)


@pytest.mark.parametrize("name", ["every_third", "anneals", "of_numpy", "by_property", "told"])
def test_what_is_read_or_no_plain_number_is_left_to_python(name):
    states = []
    for compiles in (False, "auto"):
        odd = Odd()
        model = dg.delayed(getattr(odd, name))
        gradient = dg.value_and_grad(lambda x, model=model: model(x) * 2.0)
        with dask.config.set({"daskgrad.compile": compiles}):
            results = [gradient(X) for _ in range(CALLS)]
        states.append((results, odd.runs, odd.weight, odd.number, odd.hidden, odd.printed))
    assert_same(states[0], states[1])


def test_an_object_among_the_arguments_counts_by_python():
    def model(fit, x):
        fit.runs += 1
        return decay(x, fit.t)

    fit = Slots()
    gradient = dg.grad(lambda x: dg.delayed(model)(fit, x) * 2.0)
    assert_counted(lambda: fit.runs, lambda: gradient(X), 1)


# ------------------------------------------------------------------- what somebody may see of it


class Clamped:
    """Sees that its counter is set."""

    def __init__(self):
        self.seen = []
        self.runs = 0

    def __setattr__(self, name, value):
        object.__setattr__(self, name, min(value, 5) if name == "runs" else value)
        if name == "runs":
            self.seen.append((type(value), value))

    def __call__(self, x):
        self.runs += 1
        return decay(x, T)


class OfClass:
    calls = 0

    @classmethod
    def bump(cls):
        cls.calls += 1

    def by_bump(self, x):
        self.bump()
        return decay(x, T)

    def by_name(self, x):
        OfClass.calls += 1
        return decay(x, T)


class Two:
    """Two objects of one class count."""

    def __init__(self, other=None):
        self.runs, self.other = 0, other

    def count(self):
        self.runs += 1

    def __call__(self, x):
        self.other.count()
        self.count()
        return decay(x, T)


def state_after(make, count):
    thing, call = make()
    model = dg.delayed(call)
    for number in range(count):
        dg.value_and_grad(lambda x: model(x) * 2.0)(X + 0.01 * number)
        dg.value_and_grad(model)(X)
    return thing


def of_clamped():
    thing = Clamped()
    return thing, thing


def of_two():
    thing = Two(Two())
    return thing, thing


def of_partial():
    held = functools.partial(decay, t=T)
    held.runs = 0

    def model(x):
        held.runs += 1
        return held(x)

    return held, model


def by(name):
    thing = OfClass()
    OfClass.calls = 0
    return thing, getattr(thing, name)


ODD = {"setattr": of_clamped, "two objects": of_two, "a partial": of_partial}
ODD |= {name: functools.partial(by, name) for name in ("by_bump", "by_name")}


@pytest.mark.parametrize("name", ODD)
def test_nobody_sees_that_it_is_recorded(name):
    states = []
    for compiles in (False, "auto"):
        with dask.config.set({"daskgrad.compile": compiles}):
            thing = state_after(ODD[name], 40)
        others = [vars(each) for each in vars(thing).values() if hasattr(each, "runs")]
        states.append((str(vars(thing).get("seen")), vars(thing).get("runs"), others))
        states[-1] += (OfClass.calls, sorted(vars(thing)))
    assert states[0] == states[1]


def test_a_counter_that_becomes_something_else():
    fit = Fit()
    gradient = dg.grad(lambda x: dg.delayed(fit)(x) * 2.0)
    for _ in range(30):
        gradient(X)
    array = fit.runs = numpy.array([1, 2])
    gradient(X)
    assert fit.runs is array
    assert array.tolist() == [2, 3]


def test_explaining_runs_a_model_once():
    fit = Fit()
    dg.explain(fit, X)
    assert fit.runs == 1


def test_while_another_thread_records_nothing_is_refused_for_good():
    fit = Fit()
    gradient = dg.grad(dg.delayed(fit))
    counters = References(fit).counters()
    with counting(counters):
        for _ in range(30):
            gradient(X)
    assert not programs_of(fit).has_programs()
    before = fit.runs
    assert_counted(lambda: fit.runs - before, lambda: gradient(X), 1)
    assert programs_of(fit).has_programs()


def test_a_counter_of_nobody_known_may_be_vouched_for_and_explained():
    fit = Fit()
    assert "it counts in 'runs'" in dg.explain(fit.by_helper, X)
    vouched = dg.delayed(fit.by_helper, compile=True)
    gradient = dg.grad(lambda x: vouched(x) * 2.0)
    for _ in range(30):
        gradient(X)
    assert registry.load("compiled").prepare(fit.by_helper).programs.has_programs()
