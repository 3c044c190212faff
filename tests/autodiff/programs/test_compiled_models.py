"""Compiled models in graphs and sums, on all schedulers: the bits of the tape everywhere."""

import gc
import itertools
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor

import dask
import numpy as np
import pytest
from clusters import tasks_run
from comparisons import assert_same
from numpy.testing import assert_array_equal
from recorded import program_of
from waiting import wait_until

import daskgrad as dg
from daskgrad.autodiff.models.model import Call
from daskgrad.autodiff.models.tracing import Active
from daskgrad.autodiff.programs import backend, blocks, boxes
from daskgrad.autodiff.values.carriers import Structure
from daskgrad.autodiff.values.trees import flatten
from daskgrad.sums.block_tasks import Summand, TracedSum

X = np.linspace(-1.0, 1.0, 4)
random = np.random.default_rng(2)
ITEMS = list(random.normal(size=(40, 4)))


def term(item, x):
    return np.sum(np.log1p(np.exp(item * x))) + np.sum(x**2)


def branching(item, x):
    return np.sum(np.sin(item * x)) if item[0] > 0.0 else np.sum(item * x**2)


def scaled(own, x):
    return own * np.sum(np.sin(x))


def arrays(item, x):
    return {"a": np.outer(item, x), "b": x[1:] - x[:-1]}


def both(objective):
    """The objective with a compiled model, and with one that is not."""
    return [lambda *xs, c=is_compiled: objective(c, *xs) for is_compiled in (True, False)]


OBJECTIVES = {
    "branches": lambda c, x: dg.map_sum(dg.delayed(branching, compile=c), ITEMS, x),
    "a parameter of each": lambda c, x: dg.map_sum(dg.delayed(scaled, compile=c), x, x),
    "a chain": lambda c, x: dg.delayed(term, compile=c)(
        X, dg.delayed(np.tanh, compile=c)(dg.delayed(lambda x: 2.0 * x, compile=c)(x))
    ),
    "arrays": lambda c, x: dg.delayed(lambda v: np.sum(v["a"] ** 2) + np.sum(v["b"]))(
        dg.map_sum(dg.delayed(arrays, compile=c), ITEMS, x)
    ),
    "slices": lambda c, x: dg.reduce_sum(
        dg.delayed(lambda rows, x: np.sum((rows @ x) ** 2), compile=c), np.array(ITEMS), x
    ),
}


def require_same_bits(name):
    found, expected = map(dg.value_and_grad, both(OBJECTIVES[name]))
    for point in (X, X + 0.1, X - 0.2):
        for _ in range(2):
            assert_same(found(point), expected(point))


@pytest.mark.parametrize("name", OBJECTIVES)
def test_the_bits_are_those_of_the_tape(name, synchronous):
    require_same_bits(name)


def test_the_bits_are_those_of_the_tape_on_a_cluster(client):
    require_same_bits("branches")


def test_placed_items_are_evaluated_by_programs_on_the_workers(client):
    shards = dg.place(ITEMS)
    model = dg.delayed(term, compile=True)
    gradient = dg.value_and_grad(lambda x: dg.map_sum(model, shards, x))
    with dask.config.set(scheduler="sync"):
        expected = dg.value_and_grad(lambda x: dg.map_sum(term, ITEMS, x))(X)
    gradient(X)
    before = tasks_run(client)
    for _ in range(5):
        assert_same(gradient(X), expected)
    assert tasks_run(client) == before

    def written():
        from daskgrad.autodiff.programs import backend

        entries = [entry for each, _ in backend._sent.values() for entry in each._entries.values()]
        return sum([len(entry.ways) for entry in entries])

    assert all(client.run(written).values())


def test_a_pullback_that_takes_the_tape_of_a_model_that_has_changed(synchronous):
    """An output without cotangent: a tape of now would not be that of the value."""
    factor = 2.0
    model = dg.delayed(lambda x: (np.sum(x) * factor, np.sum(x**2) * factor), compile=True)
    for _ in range(10):
        _, pull = dg.vjp(model, X)
        assert_array_equal(pull((None, 1.0))[0], 2.0 * (2.0 * X))
    factor = 3.0
    assert_array_equal(pull((1.0, 1.0))[0], 2.0 + 2.0 * (2.0 * X))
    with pytest.raises(dg.NondeterministicModelError, match="has changed since it ran"):
        pull((None, 1.0))


def test_terms_that_x_does_not_reach(synchronous):
    model = dg.delayed(lambda item, x: np.sum(item), compile=True)
    gradient = dg.value_and_grad(lambda x: dg.map_sum(model, ITEMS, x) + x[0])
    for _ in range(3):
        value, slope = gradient(X)
        assert value == dg.map_sum(lambda item: np.sum(item), ITEMS).compute() + X[0]
        assert_array_equal(slope, np.eye(4)[0])


ZERO, ONE, SYMMETRIC = np.int64(0), np.int64(1), np.array([[1.0, 2.0], [2.0, 3.0]])
TURNING = np.array([[0.0, 1.0], [-1.0, 0.5]])
DECIDE = {  # what data decide on, and data that do so in two ways
    "an axis": (lambda d, x: np.sum(x, axis=d) * np.cumsum(x, d), ZERO, ONE),
    "a shape": (lambda d, x: np.reshape(x, (d + 1, -1))[0], ZERO, ONE),
    "where parts are joined": (lambda d, x: np.concatenate([x, x**2], axis=d)[0], ZERO, ONE),
    "where an axis is": (lambda d, x: np.expand_dims(x, d) + x, ZERO, ONE),
    "an index": (lambda d, x: np.sum(x[d]) * x[d, 1:], ZERO, ONE),
    "a mask": (lambda d, x: x[(np.arange(4) * d) < 2], ZERO, ONE),
    "roots": (lambda d, x: x[:, :2] * np.roots(d), np.array([1.0, -3, 2]), np.array([1.0, 0, 2])),
    "eigenvalues": (
        lambda d, x: x[:, :2] * np.linalg.eigvals(d),
        SYMMETRIC,
        np.array([[0.0, 1.0], [-1.0, 0.5]]),
    ),
    "traced ones": (lambda d, x: np.linalg.eig(x[0, :2] ** 2 * d)[0], SYMMETRIC, TURNING),
}


@pytest.mark.parametrize("name", DECIDE)
def test_shapes_and_dtypes_that_data_decides_on(name, synchronous):
    fun, usual, other = DECIDE[name]
    items = [np.asarray([usual, other][number])[()] for number in [0] * 8 + [1, 0] * 4]
    x = np.random.default_rng(0).normal(size=(4, 4))

    def model(data, x):
        return np.sum(np.abs(fun(data, x)) ** 2)

    objectives = both(lambda c, x: dg.map_sum(dg.delayed(model, compile=c), items, x))
    found, expected = map(dg.value_and_grad, objectives)
    for number in range(4):
        assert_same(found(x + number), expected(x + number))


FACTOR = 2.0


def test_what_changes_between_blocks_of_a_sum_is_noticed(monkeypatch):
    """The programs that one block has found serve the next ones of the sum."""

    def scaled_term(item, x):
        return np.sum(np.sin(item * x)) * FACTOR

    model = dg.delayed(scaled_term, compile=True)
    gradient = dg.grad(lambda x: dg.map_sum(model, ITEMS, x))
    for _ in range(3):
        gradient(X)
    leaves, structure = flatten(((None, None), {}))
    call = Call(tuple(leaves), Structure(structure), ((0, 0), (1, 1)))
    summed = TracedSum(model.model, Summand(call, (Active(1, False),)), [X])
    made = itertools.count()
    monkeypatch.setattr(blocks.ItemGroup, "__init__", counted(blocks.ItemGroup.__init__, made))
    first, second = [summed.capture(start, ITEMS[:8]).value for start in (0, 8)]
    assert first == second
    assert next(made) == 1
    monkeypatch.setitem(globals(), "FACTOR", 4.0)
    assert summed.capture(16, ITEMS[:8]).value == 2.0 * first


def counted(fun, count):
    def counting(*args):
        next(count)
        return fun(*args)

    return counting


def test_threads_share_programs(quick_switches):
    with dask.config.set({"scheduler": "sync", "daskgrad.inline.seconds": 60}):
        compiled, plain = (dg.grad(dg.delayed(branching, compile=c), 1) for c in (True, False))
        calls = [(item[:n], X[:n]) for item in ITEMS for n in (2, 3, 4)]
        expected = [plain(*call) for call in calls]
        with ThreadPoolExecutor(8) as pool:
            for found in pool.map(lambda _: [compiled(*call) for call in calls], range(8)):
                assert_same(found, expected)


def test_one_of_several_threads_has_the_tracer_make_boxes_for_recordings(monkeypatch):
    """In a process whose first recording it is; the others wait until all kinds of boxes are."""
    arrived, entered, lock = [], [], threading.Lock()

    class Watched:
        def __enter__(self):
            arrived.append(1)
            lock.acquire()

        def __exit__(self, *_):
            lock.release()

    def enter():
        entered.append(1)
        if len(entered) == 1:
            others.append(pool.submit(boxes.install))
            wait_until(lambda: len(arrived) > 1 or len(entered) > 1)
        kinds.add(boxes.RecordingBox)

    kinds, others = set(), []
    monkeypatch.setattr(boxes, "box_types", kinds)
    monkeypatch.setattr(boxes, "enter_factories", enter)
    monkeypatch.setattr(boxes, "_installing", Watched())
    with ThreadPoolExecutor(1) as pool:
        boxes.install()
    others[0].result()
    assert len(entered) == 1


def test_the_tracer_knows_recording_boxes_when_it_has_all_factories(monkeypatch):
    program_of(lambda x: [np.sum(x)], [X], [0])  # so that this process has them

    class Kinds(set):
        def update(self, kinds):
            complete.append(all(kind in factories for kind in kinds))

    factories, complete = dict(boxes.box_type_mappings), []
    for kind in set(boxes.RECORDING.values()):
        del factories[kind]
    monkeypatch.setattr(boxes, "box_type_mappings", factories)
    monkeypatch.setattr(boxes, "box_types", Kinds())
    boxes.enter_factories()
    assert complete == [True]


def test_large_arrays_of_which_few_rows_are_used_are_left_to_the_tape(synchronous):
    def few(numbers, table):
        return np.sum(table[numbers] ** 2)

    table = np.ones((20_000, 4))
    numbers = [np.array([n, 7 * n]) for n in range(5)]
    model = dg.delayed(few, compile=True)
    for _ in range(3):
        found = dg.grad(lambda t: dg.map_sum(model, numbers, t))(table)
        assert_array_equal(found, dg.grad(lambda t: dg.map_sum(few, numbers, t))(table))
    (entry,) = backend.prepare(few).programs._entries.values()
    assert "a slice of a large array" in entry.refusal


@pytest.mark.parametrize("power", [3, [3]], ids=["a number", "an object"])
def test_a_function_that_is_gone_is_not_kept(power, synchronous):
    def make():
        return lambda x: np.sum(x ** np.sum(power))

    gone, before = [], len(backend._here)
    for _ in range(5):
        fun = make()
        gradient = dg.grad(dg.delayed(fun, compile=True))
        for _ in range(4):
            gradient(X)
        (entry,) = backend.prepare(fun).programs._entries.values()
        assert entry.ways
        gone.append(weakref.ref(fun))
    del fun, gradient
    gc.collect()
    assert [each() for each in gone] == [None] * 5
    assert len(backend._here) <= before


def test_explain_shows_the_program_or_the_reason():
    source = dg.explain(term, ITEMS[0], X)
    assert "not compiled" not in source
    assert "def backward(residuals, " in source
    assert "log1p" in source
    reason = dg.explain(lambda x: float(x[0]), X)
    assert "is not compiled: the model raises TypeError: float() argument must be" in reason
    assert "test_compiled_models.py:" in reason
    said = dg.explain(lambda x, thing: np.sum(x) * bool(thing), X, object())
    assert "among the arguments is object; pass numbers, arrays" in said


def test_explain_runs_loops_as_a_model_does():
    """A scan is a loop within a model, and no node."""

    def step(state, forcing, x):
        return state * x[0] + forcing

    def model(x):
        return np.sqrt(1.0 + dg.scan(step, 0.0, 3, x, xs=FORCING) ** 2)

    told = dg.explain(model, X)
    assert "will be compiled" in told
    assert "sqrt" in told
    assert "LoopNode" not in dg.explain(lambda x: dg.scan(step, 0.0, 3, x, xs=FORCING), X)


FORCING = np.linspace(0.0, 1.0, 3)


def test_explain_knows_what_delayed_was_told():
    factors = [2.0] * 100_000

    def scaled(x):
        return factors[0] * np.sum(np.exp(x))

    assert "'scaled' is not compiled unless you vouch for it" in dg.explain(scaled, X)
    assert "'scaled' will be compiled" in dg.explain(dg.delayed(scaled, compile=True), X)
    said = "'scaled' is not compiled: compile=False asks for that"
    assert dg.explain(dg.delayed(scaled, compile=False), X).startswith(said)
    with dask.config.set({"daskgrad.compile": False}):
        assert dg.explain(scaled, X).startswith(said)
