"""Loops of a model become ``for`` statements of its program, which has the tape's bits."""

import gc
import operator
import pickle
import traceback
import warnings

import autograd
import autograd.numpy as anp
import numpy as np
import pytest
from fuzz_loops import depth_of
from fuzz_programs import compared, points, silence
from probes import peak_bytes
from recorded import entries_of, program_of

import daskgrad as dg
from daskgrad.autodiff.programs import blocks, rolling, ways
from daskgrad.autodiff.programs.calls import CallList, NumpyCall, TurnLoop, cut, plus
from daskgrad.autodiff.programs.program import CompiledTape, written_as_one
from daskgrad.autodiff.programs.recording import record
from daskgrad.autodiff.programs.rewrites import rewritten
from daskgrad.autodiff.programs.rolling import rolled
from daskgrad.autodiff.programs.signatures import are_same
from daskgrad.autodiff.rules.declaration import Diverged
from daskgrad.autodiff.tape.reverse import trace

TURNS = 40
COUPLING = np.cos(np.arange(100.0)).reshape(10, 10)
SERIES = np.sin(np.arange(400.0)).reshape(40, 10)


def plain(a, b, c, d):
    for _ in range(TURNS):
        a = np.tanh(a * d + b[:, 0]) - 0.1 * np.dot(COUPLING, a)
    return [np.sum(a**2)]


def nested(a, b, c, d):
    total = 0.0
    for row in SERIES[:8]:
        for _ in range(6):
            a = np.sin(a) * d + 0.1 * np.mean(b, axis=1)
        total = total + np.sum((a - row) ** 2)
    return [total]


def thrice_nested(a, b, c, d):
    total = 0.0
    for n in range(7):
        for _ in range(5):
            for _ in range(9):
                a = np.sin(a * 0.9) + d[0]
            a = a * b[:, 1]
        total = total + np.sum(a * c[n])
    return [total]


def ends_early(a, b, c, d):
    for n in range(TURNS):
        a = np.cos(a) * d + 0.3
        if n > 30 and np.sum(a) > -1000.0:
            break
    return [np.sum(a * c)]


def branches(a, b, c, d):
    for n in range(TURNS):
        a = np.sin(a) if n % 2 else a * d
        a = a + 0.1 if np.sum(a) > -1000.0 else a - b[:, 0]
    return [np.sum(a)]


def by_number(a, b, c, d):
    for n in range(TURNS):
        a = np.sin(a * c[n % 10]) + 0.1 * n * b[n % 10, n % 9] + SERIES[n] - n * a
        a = a + np.concatenate([a[n % 5 :], a[: n % 5]])
    return [np.sum(a)]


def backwards(a, b, c, d):
    for n in reversed(range(TURNS)):
        a = np.tanh(a + SERIES[n]) * d[n % 10]
    return [np.sum(a), a]


def lists(a, b, c, d):
    states, sums = [], []
    for _ in range(TURNS):
        a = np.sin(a) * d
        states.append(a)
        sums.append(np.sum(a * a))
    return [np.sum(np.stack(states[::3]) ** 2), anp.array(sums), sum(sums), states[17]]


def two_states(a, b, c, d):
    x, v = a, np.mean(b, axis=1)
    for _ in range(TURNS):
        v = v - 0.05 * np.sin(x) * d
        x = x + 0.05 * v
    return [np.sum(x * v), x]


def two_turns_ago(a, b, c, d):
    before, x = a * 0.9, a
    for _ in range(TURNS):
        x, before = 1.9 * x - 0.9 * before - 0.01 * np.sin(x) * d, x
    return [np.sum(x**2) + np.sum(before)]


def exchanged(a, b, c, d):
    x, y = a, c * a
    for _ in range(TURNS):
        x, y = np.sin(y) + 0.1 * x, x * d
    return [np.sum(x) * np.sum(y)]


def in_place(a, b, c, d):
    """Cotangents of entries are added up in place, from all turns."""
    for n in range(TURNS):
        a = a * b[:, n % 9] + b[n % 10, 0] * a[::-1] + b.T[2] * a[[0] * 10]
    return [np.sum(a)]


def derivative_within(a, b, c, d):
    energy = autograd.grad(lambda x: np.sum(np.sin(x) * np.mean(x) * d))
    for _ in range(12):
        a = a - 0.1 * energy(a)
    return [np.sum(a**2)]


def invariant(a, b, c, d):
    for _ in range(TURNS):
        a = np.exp(b[0, 0]) * np.sin(a) + b[:, 1] * np.dot(COUPLING, d)
    return [np.sum(a)]


def one_is_kept(a, b, c, d):
    """A value of one turn, and of the turns at the ends."""
    for n in range(TURNS):
        a = np.sin(a) * d
        if n in (0, 13, TURNS - 1):
            c = c + a
    return [np.sum(a), c]


def of_numbers(a, b, c, d):
    x, y = np.sum(a), np.sum(b)
    for _ in range(TURNS):
        x, y = x + 0.1 * y * (1.0 - x), y - 0.1 * np.sin(x) * d[0]
    return [x * y]


MODELS = [plain, nested, thrice_nested, ends_early, branches, by_number, backwards, lists]
MODELS += [two_states, two_turns_ago, exchanged, in_place, derivative_within, invariant]
MODELS += [one_is_kept, of_numbers]
DEEP = {nested: 2, thrice_nested: 3}


@pytest.fixture(autouse=True)
def shorter_lists(request, monkeypatch):
    if "small" not in request.node.name:
        monkeypatch.setattr(rolling, "LEAST", 50)
        monkeypatch.setattr(rolling, "LEAST_CALLS", 20)


def calls_of(fun, dtype="d"):
    arrays = next(points(1, dtype=dtype))
    with silence():
        calls, examples = record(fun, arrays, [0, 1])
    return calls, [*arrays, *[example for example in examples if example is not None]]


@pytest.mark.parametrize("dtype", "df")
@pytest.mark.parametrize("model", MODELS)
def test_a_rolled_program_has_the_bits_of_the_tape(model, dtype):
    for traced in ([0, 1], [0], [1, 3]):
        program, wrong = compared(model, points(3, dtype=dtype), traced)
        assert not wrong
    assert "\n    for " in program.source.text


@pytest.mark.parametrize("model", MODELS)
def test_a_loop_is_one_call(model):
    calls, _ = calls_of(model)
    assert depth_of(rolled(calls).calls) == f"{DEEP.get(model, 1)} deep"
    unrolled, program = len(rewritten(calls).calls), rewritten(rolled(calls))
    assert lines(program.calls) < 0.5 * unrolled


def lines(calls):
    return sum([lines(c.fun.body) if type(c.fun) is TurnLoop else 1 for c in calls])


def test_a_small_list_is_not_looked_at():
    calls, _ = calls_of(lambda a, b, c, d: [np.sum(np.sin(np.sin(a)))])
    assert len(calls.calls) < rolling.LEAST
    assert rolled(calls) is calls


def test_what_is_alike_in_all_turns_is_computed_once():
    source = program_of(invariant, next(points(1)), [0, 1]).source.text
    before, _, within = source.partition("    for _ in range")
    assert before.count("exp_") == 1
    body = within[: within.index("\n    v")]
    assert "exp_" not in body
    assert "dot_" not in body


def test_another_way_ends_a_rolled_program():
    def model(a, b, c, d):
        for n in range(TURNS):
            a = np.sin(a) + d if a[0] < 100.0 + n else a * 2.0
        return [np.sum(a)]

    first, *_, last = points(1)
    program = program_of(model, first, [0])
    program.forward(*last)
    with pytest.raises(Diverged):
        program.forward(last[0] + 1e6, *last[1:])


def test_loops_of_other_lengths_share_their_code():
    def program(turns):
        def model(x):
            for _ in range(turns):
                x = np.tanh(x) * 1.1 + 0.1
            return [np.sum(x)]

        return program_of(model, [np.ones(3)], [0])

    programs = [program(turns) for turns in (60, 90)]
    assert len({program.forward.__code__ for program in programs}) == 1
    steps = [CompiledTape(program, (), 0).steps for program in programs]
    assert steps[1] - steps[0] >= 30 * 8


def test_a_rolled_program_travels():
    arrays = next(points(1))
    program = program_of(by_number, arrays, [0, 1])
    other = pickle.loads(pickle.dumps(program))
    (outputs, residuals), (values, held) = program.forward(*arrays), other.forward(*arrays)
    assert are_same(outputs, values)
    assert are_same(program.pull_examples(residuals), other.pull_examples(held))
    assert other.steps == program.steps


def test_constants_of_turns_cannot_be_changed():
    table = SERIES.copy()

    def model(x):
        for row in table:
            x = np.tanh(x * row)
        return [np.sum(x)]

    program = program_of(model, [np.ones(10)], [0])
    before, _ = program.forward(np.ones(10))
    assert program.nbytes >= table.nbytes
    table[:] = 0.0
    assert are_same(program.forward(np.ones(10))[0], before)


@pytest.mark.parametrize("model", MODELS)
def test_memory_is_no_more_than_the_tapes(model):
    arrays = next(points(1))

    def by_tape():
        outputs, tape = trace(lambda a, b: model(a, b, *arrays[2:]), arrays[:2])
        tape.pull([np.ones_like(x) for x in outputs])

    with silence():
        program = program_of(model, arrays, [0, 1])

        def run():
            _, residuals = program.forward(*arrays)
            program.pull_examples(residuals)

        run()
        by_tape()
        # other threads of the process may take memory meanwhile
        assert min(map(peak_bytes, [run] * 5)) <= max(map(peak_bytes, [by_tape] * 5))


def test_a_value_of_one_turn_keeps_no_others():
    matrix = np.eye(200) * 0.9

    def model(x):
        for n in range(200):
            x = np.dot(matrix, x)
            if n == 100:
                kept = x
        return [np.sum(x) + np.sum(kept)]

    x = np.ones((200, 50))
    program = program_of(model, [x], [0])
    assert "for " in program.source.text
    assert peak_bytes(lambda: program.forward(x)) < 10 * x.nbytes


def test_warnings_and_tracebacks_name_the_models_line():
    def model(x):
        for _ in range(TURNS):
            x = x * 1.01
            x = np.log(x) + 2.0
        return [np.sum(x)]

    program = program_of(model, [np.ones(2)], [0])
    line = model.__code__.co_firstlineno + 3
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        program.forward(-np.ones(2))
    assert {(w.filename, w.lineno) for w in caught} == {(__file__, line)}
    with np.errstate(invalid="raise"), pytest.raises(FloatingPointError) as raised:
        program.forward(-np.ones(2))
    assert traceback.extract_tb(raised.tb)[-1][:2] == (__file__, line)


def test_equal_calls_in_several_lines_are_no_turns():
    def model(x):
        x = np.log(x)
        x = np.log(x)
        x = np.log(x)
        x = np.log(x)
        for _ in range(TURNS):
            x = np.log(x)
        return [np.sum(x)]

    program = program_of(model, [np.ones(2)], [0])
    assert "for " in program.source.text
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        program.forward(np.array([2.0, 2.0]))  # negative in the third line, and then no number
    assert [w.lineno - model.__code__.co_firstlineno for w in caught] == [3]


def test_a_call_stays_behind_what_may_end_the_program():
    """Another way through a branch gives no warning of this one."""

    def model(x, p):
        for n in range(TURNS):
            x = np.sin(x) + np.log(p[0]) if p[0] > 0.0 else np.cos(x) * 0.1 * n
        return [np.sum(x)]

    program = program_of(model, [np.ones(2), np.ones(1)], [0, 1])
    assert program.source.text.count("log_") == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(Diverged):
            program.forward(np.ones(2), -np.ones(1))


def shrinking(state, x, p):
    after = {"u": state["u"] * p[0] - 0.1 * np.sin(state["u"] * x), "n": state["n"] + 1.0}
    return after, np.sum(after["u"]) * after["n"] if p[1] < 9.0 else 0.0


def scanned(p, outputs=None, **options):
    state, xs = {"u": np.ones(3) * p[2], "n": 0.0}, np.sin(np.arange(TURNS) * p[1])
    if outputs is None:
        step = lambda state, x, p: shrinking(state, x, p)[0]  # noqa: E731
        return np.sum(dg.scan(step, state, TURNS, p, xs=xs, **options)["u"] ** 2)
    last, values = dg.scan(shrinking, state, TURNS, p, xs=xs, outputs=outputs, **options)
    return np.sum(last["u"]) * np.sum(np.cos(values)) + last["n"]


@pytest.mark.parametrize("outputs", [None, "sum", "stack"])
def test_a_scan_is_a_loop_of_the_program(outputs, soon):
    models = [dg.delayed(lambda p: scanned(p, outputs), compile=choice) for choice in (True, False)]
    for number in range(4):
        p = np.array([0.9, 0.4 + 0.1 * number, 0.8])
        assert are_same(*[np.hstack(dg.value_and_grad(model)(p)) for model in models])
    (entry,) = entries_of(models[0].model.fun)
    text = entry.ways[0].program.source.text
    assert text.count("    for ") >= 2
    assert "shrinking" not in text


LARGE = np.ones(2**14)
OF_ONE_CALL = {
    "few states are asked for": lambda p: scanned(p, checkpoints=3),
    "its tapes would be large": lambda p: np.sum(
        dg.scan(lambda u, p: np.sin(u * p[0]) + p[1], LARGE, TURNS, p)
    ),
    "a step looks at a number": lambda p: np.sum(
        dg.scan(lambda u, p: u * p[0] if f"{u[0]}" else u, np.ones(2), TURNS, p)
    ),
}


@pytest.mark.parametrize("name", OF_ONE_CALL)
def test_a_scan_is_one_call_of_the_program_if(name, soon):
    models = [dg.delayed(OF_ONE_CALL[name], compile=choice) for choice in (True, False)]
    for number in range(4):
        p = np.array([0.9, 0.4 + 0.1 * number, 0.8])
        assert are_same(*[np.hstack(dg.value_and_grad(model)(p)) for model in models])
    (entry,) = entries_of(models[0].model.fun)
    assert "    for " not in entry.ways[0].program.source.text


@pytest.mark.parametrize("fails", [False, True])
def test_the_garbage_collector_rests_while_a_loop_is_recorded(fails, soon, monkeypatch):
    seen, plain = [], ways.record

    def record(*args):
        seen.append(gc.isenabled())
        return plain(*args)

    def model(x):
        for n in range(TURNS):
            x = np.sin(x) * 1.1 + n
        return np.sum(x) * (1.0 if not fails or f"{x[0]}" else 2.0)

    monkeypatch.setattr(ways, "record", record)
    gradient = dg.grad(dg.delayed(model, compile=True))
    for _ in range(4):
        gradient(np.ones(3))
    assert seen
    assert not any(seen)
    assert gc.isenabled()


def test_explain_shows_a_loop():
    def model(x):
        for n in range(TURNS):
            x = np.tanh(x * 1.1) + 0.1 * n
        return np.sum(x)

    text = str(dg.explain(dg.delayed(model, compile=True), np.ones(3)))
    assert "\n    for v" in text
    assert text.count("tanh") < 6
    assert " = tuple(0.0, 0.1, 0.2," in text
    assert max(map(len, text.split("\n"))) < 200


OF_ITEMS = {  # terms of an item, two arrays of its own, and a point
    "a state": lambda y, z, x: np.sum(turned(x, lambda u, n: np.tanh(u * y) + 0.1 * n)),
    "a state of the item": lambda y, z, x: np.sum(turned(y, lambda u, n: np.sin(u) + x[n % 3] * u)),
    "rows": lambda y, z, x: np.sum(turned(x, lambda u, n: np.sin(u + z[n % 4]) * y)),
    "a slice of rows": lambda y, z, x: np.sum(turned(x, lambda u, n: u * z[n % 2 : n % 2 + 1, 0])),
    "a branch": lambda y, z, x: np.sum(
        turned(x, lambda u, n: np.sin(u * y) if u[0] > n - 99.0 else u)
    ),
    "no rows": lambda y, z, x: np.sum(turned(x, lambda u, n: np.cos(u)) * y),
    "an observation": lambda y, z, x: np.sum((kept(x * y)[-1] - y) ** 2) + np.sum(kept(x)[3] * z),
    "a product": lambda y, z, x: np.sum(turned(x, lambda u, n: np.dot(z.T, np.dot(z, u)) * 0.1)),
}


def turned(u, turn):
    for n in range(TURNS):
        u = turn(u, n)
    return u


def kept(u):
    states = [u]
    for _ in range(TURNS):
        states.append(np.sin(states[-1]) * 1.1)
    return states[2::3]


@pytest.mark.parametrize("name", OF_ITEMS)
def test_batches_of_loops_have_the_bits_of_their_items(name, monkeypatch, synchronous):
    monkeypatch.setattr(blocks, "SERVED", 3)
    random = np.random.default_rng(1)
    ys, zs = random.normal(size=(90, 3)), random.normal(size=(90, 4, 3))
    terms = [
        dg.delayed(lambda item, x: OF_ITEMS[name](*item, x), compile=choice)
        for choice in (True, False)
    ]
    for factor in (1.0, 1.1, 1.2):
        results = [
            dg.value_and_grad(lambda x, term=term: dg.map_sum(term, dg.zip(ys, zs), x))(
                factor * np.array([0.3, 0.2, 0.1])
            )
            for term in terms
        ]
        assert are_same(*results)
    batches = [x for entry in entries_of(terms[0].model.fun) for x in entry.batches.values()]
    assert batches
    assert all(batches)  # none was dropped since its rows differed


@pytest.mark.parametrize("model", ["a sum", "a mean"])
def test_other_strides_are_other_turns(model):
    """A sum over an array in another order has other bits."""

    def alternating(a, b, c, d):
        x, total = np.dot(b.T, b), 0.0
        for _ in range(TURNS):
            if model == "a sum":
                total = total + np.sum(np.exp(x * 0.1))
                x = np.sin(x.T) * a[:9]
            else:
                x = x.T * a[:9] - np.sum(np.sin(x)) + np.mean(x, axis=1)
        return [total + np.sum(x * np.cos(x))]

    program, wrong = compared(alternating, points(3), [0, 1])
    assert not wrong
    assert "for " in program.source.text


def test_what_a_later_turn_changes_is_nobody_elses():
    def call(fun, *args):
        return NumpyCall(fun, args, {}, np.ones(2))

    x, first, stays = (call(None) for _ in range(3))
    changed, double = call(plus, first, 1.0), call(np.multiply, stays, 2.0)
    equal = call(np.multiply, stays, 2.0)
    body = [changed, double, equal]
    loop = TurnLoop(3, body, [(first, double)], [], [stays], [changed, equal], 1)
    begin = call(np.multiply, x, 3.0)
    turns = NumpyCall(loop, ([begin], [], [x]), {}, (np.ones(2), [np.ones(2)] * 3))
    last = NumpyCall(operator.getitem, (turns, 0), {}, np.ones(2))
    kept = NumpyCall(operator.getitem, (turns, 1), {}, [np.ones(2)] * 3)
    seen = NumpyCall(np.array, (kept,), {}, np.ones((3, 2)))
    program = CallList([x], [begin, turns, last, kept, seen, call(cut)], [last, seen], 2, 0)
    run = written_as_one(rewritten(program))
    assert are_same(run(np.ones(2)), [np.full(2, 3.0), np.full((3, 2), 2.0)])
