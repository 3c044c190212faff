"""Objectives that are no functions of their arguments, and what nobody may tell of a program."""

import collections
import gc
import itertools
import math
import random as python_random
import sys
import threading
import time
import types
import warnings
import weakref

import cloudpickle
import dask
import numpy as np
import pytest
from autograd.extend import defvjp, primitive
from captured_calls import is_same, overwrite
from fuzz_references import KINDS, Names
from fuzzers import ticking
from hostile_models import CALLS, ERROR, TAPE, unchanged
from lengths import in_short
from probes import objective_of, whole_programs
from test_hostile_models import MODELS, SHORT

import daskgrad as dg
from daskgrad.autodiff.models import blas
from daskgrad.autodiff.programs import store
from daskgrad.derivatives import objectives

X = np.linspace(-1.0, 1.0, 5)


@pytest.fixture(autouse=True)
def in_line(monkeypatch):
    """Programs are made at the third call that is looked at."""
    ticking(monkeypatch)
    with dask.config.set({"daskgrad.inline.seconds": 60}):
        yield


def by_graph(fun):
    """The same gradient function, which never takes a program of the whole."""
    gradient = dg.value_and_grad(fun)
    objective = objective_of(gradient)
    if objective is not None:
        objective.call = lambda args, otherwise, out: otherwise()
    return gradient


def outcome(gradient, given):
    """Value and gradient, or the error."""
    try:
        return gradient(*given)
    except dg.NondeterministicModelError:
        raise
    except Exception as error:
        return type(error)


def twice(model, choice):
    compiled = dg.delayed(model, compile=choice)
    return lambda *given: 0.5 * compiled(*given) + compiled(*given)


# ------------------------------------------------------------------------- what models refer to


@pytest.mark.filterwarnings("ignore")
@in_short("name", MODELS, *SHORT)
@pytest.mark.parametrize("choice", [True, "auto"])
def test_an_objective_over_a_hostile_model_is_right_or_an_error(name, choice):
    model, becomes, arguments, before = MODELS[name]
    if choice is True and becomes is TAPE and before is not unchanged:
        return  # recording the first of two calls in an objective changes what the second one is
    is_told = choice is True and becomes is ERROR  # by a comparison, after wrong results
    gradient, expected = dg.value_and_grad(twice(model, choice)), by_graph(twice(model, False))
    random = np.random.default_rng(5)
    for n in range(3 * CALLS if is_told else CALLS):
        given = arguments(n, random)
        before(n)
        right = outcome(expected, given)
        before(n)
        try:
            found = outcome(gradient, given)
        except dg.NondeterministicModelError:
            assert is_told
            return
        assert is_told or is_same(found, right), n
        if not isinstance(found, type):
            overwrite(found[1])
    assert not is_told


# ----------------------------------------------------------------- what objectives refer to


@pytest.mark.parametrize("name", [name for name, kind in KINDS.items() if kind.changes])
@pytest.mark.parametrize("where", ["objective", "model", "item"])
def test_a_change_of_what_an_objective_refers_to_is_seen(name, where):
    kind = KINDS[name]
    for use, change in itertools.product(range(len(kind.uses)), range(len(kind.changes))):
        names = Names(np.random.default_rng(1))
        uses, changes = names.define(kind, "thing", "1.0")
        names.globals["dg"] = dg
        names.execute(
            {
                "objective": f"""
square = dg.delayed(lambda x: np.sum(np.sin(x)) ** 2)
def objective(x): return square(x) + square(x * {uses[use]})
""",
                "model": f"""
def square(x): return np.sum(np.sin(x)) * {uses[use]}
square = dg.delayed(square)
def objective(x): return square(x) + square(2.0 * x)
""",
                "item": f"""
term = dg.delayed(lambda item, x: np.sum(x * item()))
items = [lambda: {uses[use]}, lambda: 2.0]
def objective(x): return dg.map_sum(term, items, x)
""",
            }[where]
        )
        objective = names.globals["objective"]
        gradient, expected = dg.value_and_grad(objective), by_graph(objective)
        for n in range(24):
            if n in (12, 18):
                assert n == 18 or whole_programs(gradient)[0], whole_programs(gradient)[1]
                names.execute(changes[change])
            assert is_same(gradient(X + n), expected(X + n)), (uses[use], changes[change], n)


square = dg.delayed(lambda x: np.sum(x**2))
wave = dg.delayed(lambda x: np.sum(np.sin(x)))
other, coded = dg.delayed(lambda x: np.sum(x**2)), dg.delayed(lambda x: np.sum(x**4))
middle = np.ones(1_000)
table = {"rows": [np.ones(5), np.ones(5)]}


class Scaled:
    def __init__(self):
        self.scale, self.rows = 1.0, np.ones(5)

    def loss(self, x):
        return square(x * self.rows) * self.scale


class Item:
    def __init__(self, value):
        self.value = value


held, things = Scaled(), [Item(np.ones(5)), Item(np.ones(5))]
of_thing = dg.delayed(lambda thing, x: np.sum(x * thing.value))


def made_with(factor):
    def loss(x):
        return square(x) * factor

    def change(number):
        nonlocal factor
        factor = number

    return loss, change


def redefine(number):
    global other
    other = dg.delayed(lambda x: np.sum(x**2) * number)


def put(array):
    def change(number):
        array[0] = number

    return change


CHANGES = {  # an objective, and what changes it to a number
    "a model": (lambda x: other(x) + wave(x), redefine),
    "a larger array": (lambda x: square(x) * middle[0], put(middle)),
    "an item": (lambda x: dg.map_sum(of_row, table["rows"], x), lambda n: put(table["rows"][1])(n)),
    "another item": (
        lambda x: dg.map_sum(of_row, table["rows"], x),
        lambda n: table["rows"].append(np.full(5, n)),
    ),
    "a method's object": (held.loss, lambda n: setattr(held, "scale", n)),
    "a method's array": (held.loss, lambda n: put(held.rows)(n)),
    "an attribute that a model uses": (
        lambda x: dg.map_sum(of_thing, things, x),
        lambda n: setattr(things[1], "value", np.full(5, n)),
    ),
    "an array that a model uses": (
        lambda x: dg.map_sum(of_thing, things, x),
        lambda n: put(things[1].value)(n),
    ),
    "the code of a model": (
        lambda x: wave(x) + square(x),
        lambda n: setattr(wave.model.fun, "__code__", (lambda x: np.sum(np.cos(x)) * 3.0).__code__),
    ),
}


def of_row(row, x):
    return np.sum(row * x) ** 2


@pytest.mark.parametrize("name", CHANGES)
def test_each_change_is_seen_at_the_next_call(name):
    objective, change = CHANGES[name]
    gradient, expected = dg.value_and_grad(objective), by_graph(objective)
    for number in (1.5, 2.5, 3.5):
        for n in range(16):
            assert is_same(gradient(X + n), expected(X + n)), (number, n)
        if number == 1.5:
            assert whole_programs(gradient)[0], whole_programs(gradient)[1]
        change(number)


def test_one_of_two_objectives_that_share_programs_is_changed():
    pairs = [made_with(2.0) for _ in range(3)]
    gradients = [dg.value_and_grad(loss) for loss, _ in pairs]
    for _ in range(30):
        assert {gradient(X)[0] for gradient in gradients} == {2.0 * np.sum(X**2)}
    for number in (2, 0, 1):  # the programs' own watch is over the first
        gradient, (loss, change) = gradients[number], pairs[number]
        change(3.0 + number)
        for _ in range(30):
            assert is_same(gradient(X), by_graph(loss)(X))
    assert len({gradient(X)[0] for gradient in gradients}) == 3


# ------------------------------------------------------------------------------ what they do


def doing(act):
    def objective(x):
        act()
        return square(x) + wave(x)

    return objective


written, counted, stats = [], itertools.count(), {"calls": 0}
calls = np.zeros(1)
namespace = types.SimpleNamespace(calls=0)
COUNT = 0


def count_up():
    global COUNT
    COUNT += 1


def count_in(array):
    array[0] += 1.0


DEEDS = {  # what is done at each call, and how often it was
    "a list that grows": (lambda: written.append(1), lambda: len(written)),
    "a global": (count_up, lambda: COUNT),
    "a dict": (lambda: stats.update(calls=stats["calls"] + 1), lambda: stats["calls"]),
    "an array": (lambda: count_in(calls), lambda: calls[0]),
    "an attribute": (
        lambda: setattr(namespace, "calls", namespace.calls + 1),
        lambda: namespace.calls,
    ),
    "a line": (lambda: sys.stdout.write("called\n"), None),
    "a print": (lambda: print("called"), None),
}


@pytest.mark.parametrize("name", DEEDS)
def test_what_an_objective_does_is_done_at_each_call(name, capsys):
    act, count = DEEDS[name]
    gradient = dg.value_and_grad(doing(act))
    before = count() if count else 0
    for _ in range(20):
        gradient(X)
    done = count() if count else capsys.readouterr().out.count("called")
    assert done - before == 20
    assert bool(whole_programs(gradient)[0]) == (name == "a global")


KEPT = {}


def test_what_an_objective_keeps_of_its_arguments_is_no_box():
    def objective(x, data):
        KEPT["data"] = data
        return square(x * data)

    gradient, data = dg.value_and_grad(objective), X + 1.0
    for _ in range(20):
        gradient(X, data)
        assert KEPT["data"] is data


def test_an_objective_that_catches_errors_stays_a_graph():
    """Boxes raise errors that arrays do not: a float's method, here."""

    def objective(x, number):
        try:
            return square(x) * float(round(number))
        except Exception:
            return 0.0 * square(x)

    gradient, expected = dg.value_and_grad(objective), by_graph(objective)
    for n in range(20):
        assert is_same(gradient(X, n + 0.7), expected(X, n + 0.7))


IN_ARGUMENTS = {
    "a key is taken out": lambda given: given.pop("scale"),
    "a key is put in": lambda given: given.setdefault("more", 3.0) * given["scale"],
    "a sum in place": lambda given: np.sum(np.add(given["a"], 1.0, out=given["a"])),
    "limits in place": lambda given: np.sum(np.clip(given["a"], 0.0, 1.0, out=given["a"])),
    "limits by position": lambda given: np.sum(np.clip(given["a"], 0.0, 1.0, given["a"])),
    "sums by position": lambda given: np.sum(np.cumsum(given["a"], 0, None, given["a"])),
    "an entry is another number": lambda given: given.update(scale=2.0) or given["scale"],
    "an entry is another string": lambda given: given.update(mode="b") or given["scale"],
    "something odd is put in": lambda given: given.update(odd=object()) or given["scale"],
}


@pytest.mark.parametrize("name", IN_ARGUMENTS)
def test_an_objective_that_changes_its_arguments_stays_a_graph(name):
    change = IN_ARGUMENTS[name]  # the table has things that end the walk over the code

    def objective(x, given):
        return square(x) * change(given)

    gradient, expected = dg.value_and_grad(objective), by_graph(objective)
    for n in range(20):
        first, second = ({"a": X * (n % 3), "scale": 1.0 + n, "mode": "a"} for _ in range(2))
        assert is_same(gradient(X, first), expected(X, second))
        assert first.keys() == second.keys()
        assert all(first.get(name) == second.get(name) for name in ("scale", "more", "mode"))
        assert is_same(first["a"], second["a"])


DRAWN = {
    "NumPy's numbers": lambda x: square(x) * np.random.random(),
    "Python's numbers": lambda x: square(x) * python_random.random(),
    "a counter": lambda x: square(x) * next(counted),
    "a clock": lambda x: square(x) * time.perf_counter_ns(),
    "a model's value": lambda x: square(x) * float(wave(X + next(counted)).compute()),
    "a name of a node": lambda x: square(x) * float(len(str(x.key)) + next(counted)),
}


@pytest.mark.parametrize("name", DRAWN)
def test_what_is_another_number_each_time_is_never_repeated(name):
    gradient = dg.value_and_grad(DRAWN[name])
    assert len({gradient(X)[0] for _ in range(16)}) == 16


INTEGERS = [  # an objective, integers, and how many programs there are
    (lambda x, n: square(x) + wave(x * n), range(40), 1),
    (lambda x, n: dg.sum([wave(x * k) for k in range(1, n)]), [2, 3, 4] * 20, 3),
]


@pytest.mark.parametrize(("objective", "numbers", "count"), INTEGERS)
def test_integers_of_numpys_are_data_unless_they_are_looked_at(objective, numbers, count):
    gradient, expected = dg.value_and_grad(objective), by_graph(objective)
    for n in numbers:
        assert is_same(gradient(X, np.int64(n)), expected(X, n))
    assert len(whole_programs(gradient)[0]) == count


# ------------------------------------------------------------------------- errors and warnings


def solved(m, x):
    return np.sum(np.linalg.solve(m, x))


def logs(x):
    return np.sum(np.log(x))


ERRORS = {
    "an error of NumPy's": (
        lambda m, x: dg.delayed(solved)(m, x) + square(x),
        (np.eye(5), X),
        (np.zeros((5, 5)), X),
    ),
    "another shape": (lambda x, y: square(x * y), (X, X), (X, X[:3])),
    "a string": (lambda x: square(x), (X,), ("x",)),
    "integers": (lambda x: square(x), (X,), (np.arange(5),)),
    "no argument": (lambda x: square(x), (X,), ()),
    "too many": (lambda x: square(x), (X,), (X, X)),
    "a masked array": (lambda x: square(x), (X,), (np.ma.array(X),)),
    "a node": (lambda x: square(x), (X,), (wave(X),)),
    "an entry that is not there": (lambda x, n: square(x[n:]) * x[n], (X, 1), (X, 7)),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors_are_the_same_with_their_notes_and_lines(name):
    objective, good, bad = ERRORS[name]
    found = []
    gradient, expected = dg.value_and_grad(objective), by_graph(objective)
    for _ in range(20):
        gradient(*good)
    assert whole_programs(gradient)[0], whole_programs(gradient)[1]
    for each in (gradient, expected):
        with pytest.raises(Exception) as caught:  # noqa: PT011  whatever it is
            each(*bad)
        lines = [(entry.path, entry.lineno) for entry in caught.traceback]
        in_models = [line for line in lines if line[1] in (solved.__code__.co_firstlineno + 1,)]
        notes = "".join(getattr(caught.value, "__notes__", []))
        found.append(
            (type(caught.value), str(caught.value).replace("<lambda>", ""), notes, in_models)
        )
    assert found[0] == found[1]


def warned(call):
    """The warnings of a call: category, message, file and line."""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        call()
    return [(each.category, str(each.message), each.filename, each.lineno) for each in seen]


elsewhere = {"np": np}  # a model of another file
exec(
    compile("\n\n\ndef roots(x):\n    return np.sum(np.sqrt(x))", "elsewhere.py", "exec"), elsewhere
)


@pytest.mark.parametrize("funs", [[logs], [logs, square], [elsewhere["roots"], logs]])
def test_warnings_name_the_same_lines(funs):
    def objective_of(choice):
        models = [f if f is square else dg.delayed(f, compile=choice) for f in funs]
        return models[0] if len(models) == 1 else lambda x: models[0](x) + models[1](x)

    gradient = dg.value_and_grad(objective_of("auto"))
    others = [by_graph(objective_of(choice)) for choice in ("auto", False)]
    for _ in range(20):
        gradient(np.abs(X) + 1.0), others[0](np.abs(X) + 1.0)
    assert whole_programs(gradient)[0]
    for point in (-np.abs(X), np.zeros(5)):
        right = [warned(lambda fun=fun, x=point: fun(x)) for fun in others]
        assert all(right)
        for _ in range(3):
            assert warned(lambda x=point: gradient(x)) in right
        with np.errstate(all="ignore"):
            assert not warned(lambda x=point: gradient(x))
            assert is_same(gradient(point), others[1](point))
        with np.errstate(all="raise"), pytest.raises(FloatingPointError):
            gradient(point)
        with pytest.raises(RuntimeWarning):  # as pytest makes of all warnings
            gradient(point)


# ------------------------------------------------------------------------- what has no program

traced = dg.delayed(lambda x: np.sum(x**3), compile=False)
doubled = primitive(lambda x: 2.0 * x)
defvjp(doubled, lambda value, x: lambda g: 2.0 * g)
of_rule = dg.delayed(lambda x: np.sum(doubled(x)), compile=True)


LEFT = {  # and why
    "many items": (lambda x: dg.map_sum(lambda k, x: np.sum(x * k), range(65), x), "many items"),
    "a traced model": (lambda x: traced(x) + square(x), "which is not compiled"),
    "a traced model that is made anew": (
        lambda x: dg.delayed(lambda x: np.sum(x), compile=False)(x) + square(x),
        "is not compiled",
    ),
    "a loop": (lambda x: square(dg.scan(lambda y: np.sin(y), x, 3)), "it uses 'scan'"),
    "a primitive of the user's": (lambda x: of_rule(x) + square(x), "a function of the user's"),
    "a value that is computed": (lambda x: square(x) * square(X).compute(), "it uses 'compute'"),
}


@pytest.mark.parametrize("name", LEFT)
def test_what_is_left_to_the_graph_and_why(name):
    objective, reason = LEFT[name]
    gradient, expected = dg.value_and_grad(objective), by_graph(objective)
    for n in range(16):
        assert is_same(gradient(X + n), expected(X + n))
    ways, reasons = whole_programs(gradient)
    assert not ways
    assert reason in " ".join(filter(None, reasons))


def test_what_takes_longer_than_it_may_here_is_left_to_threads_until_it_is_quicker():
    gradient = dg.value_and_grad(lambda x: square(x) + wave(x) + 1.0)
    with dask.config.set({"daskgrad.inline.seconds": 1e-9}):
        for _ in range(16):
            gradient(X)
    assert not whole_programs(gradient)[0]
    for _ in range(16):  # the machine was busy
        gradient(X)
    assert whole_programs(gradient)[0]


def test_a_program_that_takes_too_long_is_tried_ever_more_seldom(monkeypatch):
    """The ordinary way may take longer than the program: only a run of it tells."""
    monkeypatch.setattr(objectives.RecordedObjective, "ordinary", math.inf)
    made, make = [], store.make_way

    def counted(*args):
        made.append(make(*args))
        return made[-1]

    monkeypatch.setattr(store, "make_way", counted)
    gradient = dg.value_and_grad(lambda x: square(x) + wave(x) + 1.0)
    with dask.config.set({"daskgrad.inline.seconds": 1e-9}):
        for _ in range(8):
            gradient(X)
        made.clear()
        for _ in range(400):
            gradient(X)
    assert not whole_programs(gradient)[0]
    assert 1 <= len(made) <= 3
    for _ in range(3000):
        gradient(X)
    assert whole_programs(gradient)[0]


def test_each_order_in_memory_has_its_own_program():
    objective = lambda a: dg.delayed(lambda a: np.sum(a @ a.T) + np.sum(a.ravel()[:2]))(a) * 2.0  # noqa: E731
    gradient, expected = dg.value_and_grad(objective), by_graph(objective)
    square_matrix = np.random.default_rng(0).normal(size=(7, 7))
    points = [square_matrix, np.asfortranarray(square_matrix), square_matrix[::-1, ::-1]]
    for _ in range(16):
        for point in points:
            assert is_same(gradient(point), expected(point))
    assert len(whole_programs(gradient)[0]) == 2


def test_blas_has_one_thread_where_the_graph_would_have():
    dot, norm = dg.delayed(lambda x: np.dot(x, x)), dg.delayed(lambda x: np.sum(x**2))
    contexts = []
    for objective in (
        lambda x: dot(x) + norm(x),
        lambda x: dot(x) * 2.0,
        lambda x: norm(x) + wave(x),
    ):
        gradient = dg.value_and_grad(objective)
        for _ in range(16):
            gradient(X)
        contexts += [way.context for way in whole_programs(gradient)[0]]
    assert contexts == [blas.ONE_THREAD, None, None]


# --------------------------------------------------------------------- threads, garbage, pickles


def test_no_objective_is_kept_alive():
    class Problem:
        def __init__(self):
            self.rows, self.model = np.ones(5), dg.delayed(lambda x, rows: np.sum(x * rows) ** 2)

        def loss(self, x):
            return self.model(x, self.rows) + square(x)

    def made(kind):
        problem = Problem()
        fun = problem.loss if kind == "method" else lambda x: problem.loss(x)
        gradient = dg.value_and_grad(fun)
        for _ in range(16):
            gradient(X)
        assert whole_programs(gradient)[0]
        return weakref.ref(problem)

    for kind in ("method", "lambda"):
        gone = made(kind)
        gc.collect()
        assert gone() is None, kind


def test_a_gradient_function_that_has_run_can_be_sent():
    factor = 2.0
    gradient = dg.value_and_grad(lambda x: square(x) * factor + wave(x))
    for _ in range(16):
        expected = gradient(X)
    assert whole_programs(gradient)[0]
    sent = cloudpickle.loads(cloudpickle.dumps(gradient))
    for _ in range(16):
        assert is_same(sent(X), expected)


def test_a_program_that_differs_later_is_an_error():
    """What nobody can see, the comparisons with the tapes find."""
    hidden = collections.UserList([1.0])
    vouched = dg.delayed(lambda x: np.sum(x) * hidden[0], compile=True)
    gradient = dg.value_and_grad(lambda x: vouched(x) + square(x))
    for _ in range(20):
        gradient(X + 1.0)
    assert whole_programs(gradient)[0]
    hidden[0] = 2.0
    with pytest.raises(dg.NondeterministicModelError, match=r"'<lambda>'.*pass that as an arg"):
        collections.deque(map(gradient, itertools.repeat(X + 1.0, 40)), maxlen=0)


def test_an_array_for_the_gradient_that_is_an_argument_goes_the_ordinary_way():
    """Also once there is a program."""
    storage = np.ones(5)

    def objective(x):
        return np.sum(np.sin(x) * x)

    gradient = dg.value_and_grad(dg.delayed(objective, compile=True), out=storage)
    for _ in range(20):
        gradient(X)
    assert whole_programs(gradient)[0]
    with pytest.raises(ValueError, match="share"):
        gradient(storage)


def test_the_order_of_a_dict_takes_a_program_of_its_own():
    """A model may go through it."""

    def objective(p):
        total = np.sum(X)
        for x in p.values():
            total = 0.5 * total + np.sum(x * x)
        return total

    model = dg.delayed(objective, compile=True)
    gradient, expected = dg.value_and_grad(model), by_graph(dg.delayed(objective, compile=False))
    one = {"a": X, "b": X + 0.3}
    other = {"b": X + 0.3, "a": X}
    assert expected(one)[0] != expected(other)[0]
    for _ in range(20):
        for p in (one, other):
            assert is_same(gradient(p), expected(p))
    assert len(whole_programs(gradient)[0]) == 2


def half(x):
    return 0.5 * np.sum(np.exp(x))


@pytest.mark.parametrize("is_made_before", [True, False])
def test_the_configuration_turns_programs_of_objectives_off(is_made_before):
    model = dg.delayed(half) if is_made_before else half
    gradient = dg.value_and_grad(lambda x: 2.0 * dg.delayed(model)(x))
    for _ in range(60):
        gradient(X)
    programs = objective_of(gradient).programs()
    assert programs.has_programs()
    calls = programs.calls
    with dask.config.set({"daskgrad.compile": False}):
        thread = threading.Thread(target=gradient, args=(X,))
        thread.start()
        thread.join()
        gradient(X)
        assert programs.calls == calls
        assert "is not compiled" in dg.explain(half, X)
    gradient(X)
    assert programs.calls > calls
