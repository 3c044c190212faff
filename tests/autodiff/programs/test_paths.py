"""Paths: a model is compiled if what ran of it is pure; all else that it may do stays as it is."""

import functools
import gc
import itertools
import logging
import sys
import warnings
import weakref

import dask
import numpy as np
import pytest
from hostile_paths import LATE, LOUD, QUIET, UNTIL, Settings, X, prints, raises
from hostile_styles import OF_ORDER, STYLES
from probes import objective_of, whole_programs

import daskgrad as dg
from daskgrad.autodiff.programs.backend import cautious
from daskgrad.autodiff.programs.paths import Path
from daskgrad.autodiff.programs.watch import References

CALLS = UNTIL + 4
KINDS = ("a model", "an objective", "a sum")
ITEMS = [1.0, 2.0, 3.0]


@pytest.fixture(autouse=True)
def _quiet():
    yield
    logging.disable(logging.NOTSET)
    sys.settrace(None)


def gradient_of(kind, model, choice):
    made = dg.delayed(model, compile=choice)
    if kind == "a sum":
        term = dg.delayed(lambda item, x: model(x) * item, compile=choice)
        return dg.value_and_grad(lambda x: dg.map_sum(term, ITEMS, x)), term.model.fun
    is_model = kind == "a model"
    return dg.value_and_grad(made if is_model else lambda x: made(x) * made(1.1 * x)), model


def calls_of(kind, row, choice, capsys):
    """Each call's result and prints, and the number of programs before the loud calls."""
    parts = row.make()
    model, change = parts if isinstance(parts, tuple) else (parts, lambda is_loud: None)
    fun, counted = gradient_of(kind, model, choice)
    outcomes, ways = [], 0
    for n in range(CALLS):
        if n == LATE:
            ways = count_ways(kind, fun, counted)
        if n in (0, LATE, UNTIL):
            change(n == LATE)
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            value, gradient = fun(row.data(n))
        said = capsys.readouterr().out, len(warned)
        outcomes.append((repr(value), gradient.tobytes(), *said))
    change(False)
    return outcomes, ways


def count_ways(kind, fun, counted):
    if kind == "an objective":
        return len(whole_programs(fun)[0])
    entries = cautious.prepare(counted).programs._entries.values()
    return sum([len(entry.ways) for entry in entries])


def require_as_the_tape(kind, row, capsys):
    scheduler = "sync" if kind == "an objective" else dask.get  # by which there are no objectives
    with dask.config.set({"scheduler": scheduler, "daskgrad.inline.seconds": 60}):
        expected, _ = calls_of(kind, row, False, capsys)
        outcomes, ways = calls_of(kind, row, "auto", capsys)
    assert [n for n in range(CALLS) if outcomes[n] != expected[n]] == []
    assert row.is_compiled in (None, bool(ways))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", QUIET)
def test_what_did_not_run_keeps_no_model_from_a_program(name, kind, capsys):
    require_as_the_tape(kind, QUIET[name], capsys)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", LOUD)
def test_what_ran_and_is_impure_runs_at_each_call(name, kind, capsys):
    if kind == "a sum" and "count" in name:
        pytest.skip("the order of terms decides their values")
    require_as_the_tape(kind, LOUD[name], capsys)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", STYLES)
def test_what_changes_beside_a_model_is_seen_at_each_call(name, kind, capsys):
    if kind != "a model" and name in OF_ORDER:
        pytest.skip("the order of calls decides their values")
    require_as_the_tape(kind, STYLES[name], capsys)


@pytest.mark.parametrize("is_there", [True, False])
def test_an_attribute_that_nobody_reads_is_set_as_without_programs(is_there):
    held = Item(1.0)

    def model(x, held=held):
        held.late = 2.0
        return np.sum(x) * held.y

    with dask.config.set({"scheduler": dask.get}):
        for _ in range(30):
            if is_there:
                held.late = 3.0
            else:
                vars(held).pop("late", None)
            for _ in range(30):
                dg.value_and_grad(dg.delayed(model))(X)
                assert held.late == 2.0


class Steps:
    def __init__(self):
        self.steps = 0

    def step(self):
        self.steps += 1


def test_a_method_counts_in_an_object_that_lives_on_and_in_new_ones():
    held = Steps()

    def model(x, held=held):
        Steps().step()
        held.step()
        return np.sum(x)

    with dask.config.set({"scheduler": dask.get}):
        for number in range(40):
            dg.value_and_grad(dg.delayed(model))(X)
            assert held.steps == number + 1


LAST = None


def keeps_in_an_attribute(held):
    def model(x):
        held.y = len(x)
        return np.sum(x)

    return model, lambda: held.y


def keeps_in_a_global(held):
    def model(x):
        global LAST
        LAST = len(x)
        return np.sum(x)

    return model, lambda: LAST


def keeps_in_a_variable(held):
    last = None

    def model(x):
        nonlocal last
        last = len(x)
        return np.sum(x)

    return model, lambda: last


@pytest.mark.parametrize("kept", [keeps_in_an_attribute, keeps_in_a_global, keeps_in_a_variable])
def test_what_a_vouched_model_keeps_is_kept_at_each_call(kept):
    model, last = kept(Item(None))
    gradient = dg.value_and_grad(dg.delayed(model, compile=True))
    for n in range(40):
        size = 2 + n // 3 % 2
        gradient(np.ones(size))
        assert last() == size


def turns_an_element(held):
    held.tag = {"on": False}

    def model(x):
        held.tag["on"] = not held.tag["on"]
        return np.sum(x) * (2.0 if held.tag["on"] else 1.0)

    return model


def turns_by_another_name(held):
    table = {"on": False}

    def model(x):
        names = table
        names["on"] = not names["on"]
        return np.sum(x) * (2.0 if names["on"] else 1.0)

    return model


def turns_an_attribute(held):
    def model(x):
        held.is_done = not held.is_done
        return np.sum(x) * (2.0 if held.is_done else 1.0)

    return model


def turns_an_entry_afterwards(held):
    states = [False]

    def model(x):
        value = np.sum(x) * (2.0 if states[0] else 1.0)
        states.append(not states.pop())
        return value

    return model


TURNS = [turns_an_element, turns_by_another_name, turns_an_attribute, turns_an_entry_afterwards]


@pytest.mark.parametrize("is_vouched", ["auto", True])
@pytest.mark.parametrize("in_objective", [False, True])
@pytest.mark.parametrize("turns", TURNS)
def test_a_state_that_comes_back_at_every_second_call(turns, in_objective, is_vouched):
    plain, model = (turns(Item(1.0)) for _ in range(2))
    fun = dg.delayed(model, compile=is_vouched)
    gradient = dg.value_and_grad((lambda x: fun(x) + 0.0 * np.sum(x)) if in_objective else fun)
    for _ in range(40):
        assert gradient(X)[0] == plain(X)


class Item:
    def __init__(self, y):
        self.y, self.is_done, self.tag = y, False, "new"


def marks_it(item, x):
    item.is_done = True
    return np.sum(x) * item.y


def tags_it(item, x):
    item.tag = "done"
    return np.sum(x) * item.y


def resets_it(item, x):
    y = item.y
    item.y = 2.0
    return np.sum(x) * y


@pytest.mark.parametrize("model", [marks_it, tags_it, resets_it])
@pytest.mark.parametrize("is_sum", [False, True])
@pytest.mark.parametrize("choice", ["auto", True])
def test_what_a_model_sets_in_its_arguments_is_set_at_each_call(model, is_sum, choice):
    def run(choice):
        made, seen = dg.delayed(model, compile=choice), []
        with dask.config.set({"scheduler": dask.get}):
            items = [Item(1.0 + k) for k in range(30)]
            for n in range(12):
                for item in items:
                    item.__init__(1.0 + n)
                if is_sum:
                    seen.append(dg.value_and_grad(lambda x: dg.map_sum(made, items, x))(X)[0])
                for item in () if is_sum else items:
                    seen.append(dg.value_and_grad(functools.partial(made, item))(X)[0])
                seen += [(item.y, item.is_done, item.tag) for item in items]
        return seen

    assert run(choice) == run(False)


def noted(fun, *args):
    with Path() as path:
        fun(*args)
    return path


def lines_that_ran(path, fun):
    code, first = fun.__code__, fun.__code__.co_firstlineno
    lines = {
        offset: line - first
        for start, stop, line in code.co_lines()
        if line
        for offset in range(start, stop, 2)
    }
    return {lines[offset] for offset in path.ran[code]}


def branches(x):
    if x > 0:
        return "positive"
    return "negative"


def test_a_path_has_the_lines_that_ran():
    assert lines_that_ran(noted(branches, 1.0), branches) == {1, 2}
    assert lines_that_ran(noted(branches, -1.0), branches) == {1, 3}


def test_a_path_has_instructions_with_long_arguments():
    model, _ = QUIET["many names"].make()
    impurity = References(model, ran=noted(model, X).ran).impurity
    assert impurity is None
    model.__globals__["VERBOSE"] = True
    assert "'print'" in References(model, ran=noted(model, X).ran).impurity


def test_no_tracer_stays_after_an_error():
    def fails():
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        noted(fails)
    assert sys.gettrace() is None


def test_a_debugger_is_not_disturbed_and_the_text_is_read():
    events = []

    def debugger(frame, event, argument):
        events.append(event)

    sys.settrace(debugger)
    path = noted(branches, 1.0)
    within = sys.gettrace()
    sys.settrace(None)
    assert within is debugger
    assert events
    assert path.ran is None

    def model(x):
        return prints(x)

    gradient = dg.grad(dg.delayed(model))
    with dask.config.set({"scheduler": dask.get, "daskgrad.inline.seconds": 60}):
        sys.settrace(debugger)
        for n in range(CALLS):
            gradient(X + n)
        sys.settrace(None)
        assert not cautious.prepare(model).programs.has_programs()
        for n in range(CALLS):
            gradient(X + n)
    assert cautious.prepare(model).programs.has_programs()


def test_a_call_that_sets_a_tracer_has_no_path():
    def sets():
        sys.settrace(debugger)

    def debugger(frame, event, argument):
        pass

    path = noted(sets)
    within = sys.gettrace()
    sys.settrace(None)
    assert path.ran is None
    assert within is debugger


def test_another_path_is_noted_by_the_outer_one_alone():
    inner = []

    def nested(x):
        inner.append(noted(branches, x))

    path = noted(nested, 1.0)
    assert inner[0].ran is None
    assert branches.__code__ in path.ran


def test_code_that_only_the_machinery_calls_is_not_read_by_what_ran():
    """One code may take another way where the user's code calls it."""
    quiet = logging.Logger("quiet", logging.ERROR)

    def logs():
        quiet.info("no")

    calls = {"quiet": quiet, "__name__": "daskgrad.machinery"}
    exec("def machinery(): quiet.info('no')", calls)
    assert noted(calls["machinery"]).ran[logging.Logger.info.__code__] is None
    assert noted(logs).ran[logging.Logger.info.__code__]


def test_functions_that_did_not_run_here_are_read_whole():
    """They may have run in another thread."""

    def elsewhere(x):
        if x > 0.0:
            print("positive")
        return x

    def model(x):
        return x if x > 0.0 else list(map(elsewhere, [x]))

    ran = noted(model, -1.0).ran
    assert References(model, ran=ran).impurity is None
    assert "'print'" in References(model, ran={model.__code__: ran[model.__code__]}).impurity


def test_explain_judges_the_path_of_its_call():

    def model(x):
        return prints(x)

    assert "will be compiled" in dg.explain(model, X)
    told = dg.explain(model, -X)
    assert "is not compiled unless you vouch for it with compile=True: it calls 'print'" in told
    assert "unless" not in dg.explain(raises, X)


@pytest.fixture
def synchronously():
    with dask.config.set({"scheduler": dask.get, "daskgrad.inline.seconds": 60}):
        yield


def test_each_way_is_judged_and_all_references_are_watched(synchronously, capsys):
    """Each sign of the entries is a way; each has a switch of its own."""
    switches = {"one": False, "other": False}

    class Switches:
        one = other = False

    held = Switches()

    def model(x):
        total = np.sum(x)
        if x[0] > 0.0:
            if held.one:
                print("one")
            total = total + x[0]
        if x[1] > 0.0:
            if held.other:
                print("other")
            total = total + x[1] * 2.0
        return total

    gradient = dg.value_and_grad(dg.delayed(model))
    signs = np.array([[1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]])
    for _ in range(16):
        for sign in signs:
            gradient(sign)
    (entry,) = cautious.prepare(model).programs._entries.values()
    assert len(entry.ways) == 3
    for name in switches:
        capsys.readouterr()
        setattr(held, name, True)
        for sign in signs:
            gradient(sign)
        assert capsys.readouterr().out == f"{name}\n"
        setattr(held, name, False)


class Quiet:
    rate, is_quiet = 2.0, True

    def __init__(self, weight):
        self.weight = weight

    def scaled(self, x):
        return np.sum(x) * self.weight * self.rate


class Loud(Quiet):
    speed, is_quiet = 2.0, False

    def scaled(self, x):
        if self.weight < 0.0:
            print("negative")
        return np.sum(x) * self.weight * self.speed


class Louder(Loud):
    def scaled(self, x):
        if self.weight < 0.0:
            print("negative")
        return super().scaled(x) * 3.0


@pytest.mark.parametrize("kinds", [(Quiet, Loud), (Loud, Quiet), (Loud, Louder), (Louder, Loud)])
@pytest.mark.parametrize(("kind", "name"), [(Quiet, "rate"), (Loud, "speed")])
def test_classes_of_arguments_are_watched_for_all_kinds_of_calls(
    kinds, kind, name, synchronously, monkeypatch
):
    """One kind of items after another: one has pure methods, the other's may print."""

    def model(item, x, case=f"{kinds} {kind} {name}"):  # equal functions share programs
        return item.scaled(x)

    gradient = dg.grad(dg.delayed(model), argnums=1)
    items = [kind(3.0) for kind in kinds]
    for item in [*items, *items]:
        for _ in range(16):
            gradient(item, X)
    assert len([e for e in cautious.prepare(model).programs._entries.values() if e.ways]) == 2
    before = [gradient(item, X) for item in items]
    monkeypatch.setattr(kind, name, 4.0)
    for item, slope in zip(items, before, strict=True):
        factor = 2.0 if getattr(item, "speed" if isinstance(item, Loud) else "rate") == 4.0 else 1.0
        np.testing.assert_array_equal(gradient(item, X), slope * factor)


def test_what_the_text_of_a_pure_kind_refers_to_is_watched(synchronously):
    """A program that was made by the text goes when another kind of calls needs its path."""
    settings = Settings(2.0)

    def model(item, x):
        return item.scaled(x) * (settings.rate if item.is_quiet else 1.0)

    gradient = dg.grad(dg.delayed(model), argnums=1)
    items = [Quiet(3.0), Loud(3.0)]
    for item in [*items, *items]:
        for _ in range(16):
            gradient(item, X)
    before = gradient(items[0], X)
    settings.rate = 4.0
    np.testing.assert_array_equal(gradient(items[0], X), 2.0 * before)


def test_an_impure_way_refuses_itself_alone(synchronously, capsys):
    gradient = dg.value_and_grad(dg.delayed(prints))
    for n in range(40):
        gradient(X if n % 2 else -X)
    programs = cautious.prepare(prints).programs
    (entry,) = programs._entries.values()
    assert len(entry.ways) == 1
    before = programs.calls
    gradient(X)
    assert programs.calls == before + 1
    assert capsys.readouterr().out == 20 * "negative\n"


def test_equal_objectives_watch_what_a_new_way_refers_to(capsys):
    settings = Settings(2.0)
    names = {"np": np, "dg": dg, "SETTINGS": settings, "__name__": "a_module"}
    text = ["def term(x):", "    if x.ndim > 1: print('matrix')"]
    text += ["    if x[0] < 0.0:", "        if SETTINGS.verbose: print('negative')"]
    text += ["    return np.sum(x)", "term = dg.delayed(term)"]
    text += ["def made(): return lambda x: term(x) * 1.5"]
    exec("\n".join(text), names)
    with dask.config.set({"scheduler": "sync", "daskgrad.inline.seconds": 60}):
        gradients = [dg.value_and_grad(names["made"]()) for _ in range(2)]
        for n in range(60):
            for gradient in gradients:
                gradient(X if n % 3 else -X)
        assert all([len(whole_programs(gradient)[0]) == 2 for gradient in gradients])
        settings.verbose = True
        for gradient in gradients:
            gradient(-X)
    assert capsys.readouterr().out == 2 * "negative\n"


@pytest.fixture
def noted_calls(monkeypatch):
    """Whether each call's path was noted."""
    noted_calls, enter = [], Path.__enter__

    def count(path):
        noted_calls.append(path.is_noted)
        return enter(path)

    monkeypatch.setattr(Path, "__enter__", count)
    return noted_calls


def test_equal_objectives_watch_their_own_variables(capsys):
    def made():
        verbose = False

        def change():
            nonlocal verbose
            verbose = True

        def helper(x):
            if verbose:
                print("verbose")
            return np.sum(x)

        def term(x):
            if x.ndim > 1:
                import time

                time.time()
            return helper(x)

        model = dg.delayed(term)
        return lambda x: model(x) * 1.5, change

    with dask.config.set({"scheduler": "sync", "daskgrad.inline.seconds": 60}):
        pairs = [(dg.value_and_grad(objective), change) for objective, change in [made(), made()]]
        for _ in range(60):
            for gradient, _ in pairs:
                gradient(X)
        known = [objective_of(gradient)._known for gradient, _ in pairs]
        others = [own is not watch for _, watch, own in known]
        assert sum(others) == 1
        for gradient, change in [*itertools.compress(pairs, others), *pairs]:
            change()
            gradient(X)
            assert capsys.readouterr().out == "verbose\n"


def test_a_model_that_prints_is_seldom_looked_at(synchronously, noted_calls):
    def model(x):
        print("x")
        return np.sum(x)

    gradient = dg.grad(dg.delayed(model))
    for _ in range(1000):
        gradient(X)
    assert sum(noted_calls) in range(1, 16)
    assert cautious.prepare(model).programs.is_cold


def test_no_path_is_noted_where_the_text_is_pure(synchronously, noted_calls):
    gradient = dg.grad(dg.delayed(lambda x: np.sum(np.exp(x))))
    for _ in range(CALLS):
        gradient(X)
    assert noted_calls
    assert not any(noted_calls)


def test_two_calls_of_a_way_are_noted(synchronously, noted_calls):
    """The first one is judged; the second one shows that it changes nothing, and is recorded."""
    gradient = dg.grad(dg.delayed(lambda x: prints(x) * 2.0))
    for _ in range(CALLS):
        gradient(X)
    assert sum(noted_calls) == 2


def test_code_is_not_kept_alive_with_what_it_refers_to(synchronously):
    big = np.ones(1000)

    def model(x):
        if x.ndim > 1:
            print("matrix")
        return np.sum(x) * big[0]

    gone = weakref.ref(model)
    gradient = dg.grad(dg.delayed(model))
    for _ in range(CALLS):
        gradient(X)
    assert cautious.prepare(model).programs.has_programs()
    del model, gradient
    gc.collect()
    assert gone() is None


class Fails:
    """Counts calls that fail, which none does; one that is recorded may."""

    def __init__(self):
        self.failures = 0

    def __call__(self, x, t):
        try:
            number = t[0].item()
        except Exception:
            self.failures += 1
            raise
        return np.sum(x**2) * number


class Tells(Fails):
    def __call__(self, x, t):
        try:
            number = t[0].item()
        except Exception:
            print("failed")
            raise
        return np.sum(x**2) * number


class Leaves(Fails):
    def __enter__(self):
        return self

    def __exit__(self, kind, error, traceback):
        if kind is not None:
            self.failures += 1

    def __call__(self, x, t):
        with self:
            number = t[0].item()
        return np.sum(x**2) * number


@pytest.mark.parametrize("kind", [Fails, Tells, Leaves])
def test_no_handler_runs_since_a_call_is_recorded(kind, synchronously, capsys):
    thing = kind()
    model = dg.delayed(thing)
    for gradient in (dg.grad(thing), dg.grad(lambda x, t: model(x, t) * 2.0)):
        for _ in range(40):
            gradient(X, np.array([2.0, 3.0]))
    assert thing.failures == 0
    assert capsys.readouterr().out == ""


class Base:
    def __call__(self, x):
        self.count = 1
        return self.total(x)

    def total(self, x):
        print("base")
        return np.sum(x)


class Derived(Base):
    is_loud = False

    def __call__(self, x):
        return self.total(x)

    def total(self, x):
        return super().total(x) if self.is_loud else np.sum(x) * 2.0


def test_methods_that_others_hide_run_where_they_are_called(synchronously, capsys):
    model = Derived()
    gradient = dg.value_and_grad(lambda x: dg.delayed(model)(x) * 1.0)
    for _ in range(40):
        value, _ = gradient(X)
    assert cautious.prepare(model).programs.has_programs()
    Derived.is_loud = True
    try:
        assert gradient(X)[0] == value / 2.0
    finally:
        Derived.is_loud = False
    assert capsys.readouterr().out == "base\n"


def test_models_of_other_backends_trace_their_own_calls():
    """The objective's path is noted, and its models run on tapes then."""
    by_hand = dg.delayed(lambda x: (np.sum(x**2), 2.0 * x), gradient=True)
    total = dg.delayed(np.sum)

    def objective(x):
        if x.shape == (0,):
            print("nothing")
        return by_hand(x) + total(x)

    gradient = dg.value_and_grad(objective)
    with dask.config.set({"daskgrad.inline.seconds": 60}):
        for _ in range(40):
            value, slope = gradient(X)
    assert value == np.sum(X**2) + np.sum(X)
    np.testing.assert_array_equal(slope, 2.0 * X + 1.0)
