"""Nothing is kept: what futures and placed items hold goes with their owners, also after errors.

The scheduler's tasks are counted over many calls. The garbage collector is off: a reference cycle
that keeps futures alive would stay.
"""

import asyncio
import contextlib
import functools
import gc
import sys
import weakref
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import autograd.numpy as np
import dask
import numpy
import pytest
from lengths import in_short
from numpy.testing import assert_array_equal
from probes import forget_evaluations, see_it_empty, tasks_of
from waiting import wait_until

import daskgrad as dg
from daskgrad.autodiff.programs import backend, store
from daskgrad.derivatives import eager
from daskgrad.derivatives import in_line as decisions
from daskgrad.graph import variables
from daskgrad.tasks.waiting import all_or_first_error, drop_locals

pytestmark = pytest.mark.timeout(120)

X = np.linspace(0.1, 1.0, 3)
ITEMS = [np.arange(3.0) + number for number in range(8)]


class BadModelError(Exception):
    pass


def inner():
    try:
        {}["k"]
    except KeyError as error:
        return error


def wave(x, fails):
    if fails:
        raise BadModelError("as asked") from inner()
    return np.sin(x)


def total(y):
    return np.sum(np.tanh(y))


@dg.custom_vjp
def failing_identity(x):
    return x


def failing_pullback(residuals, cotangent):
    raise BadModelError("in the backward pass")


failing_identity.defvjp(lambda x: (x, None), failing_pullback)


def failing_back(x, fails):
    return failing_identity(x) * 2.0 if fails else x * 2.0


def term(item, x, fails):
    if fails and item[0] > 3.0:
        raise BadModelError("as asked") from inner()
    return np.sum(np.sin(item * x))


def pair_term(pair, x, fails):
    return term(pair[0], x, fails) * pair[1][0]


def graph(x, fails):
    first = dg.delayed(wave)(x, False)
    return dg.delayed(total)(dg.delayed(wave)(first, fails)) + dg.delayed(total)(first)


def graph_back(x, fails):
    return dg.delayed(total)(dg.delayed(failing_back)(dg.delayed(wave)(x, False), fails))


def held_pullback(fails):
    _, pullback = dg.vjp(lambda x: graph_back(x, fails), X)
    return pullback(1.0)


def many_cotangents(fails):
    _, pullback = dg.vjp(lambda x: dg.delayed(failing_back)(dg.delayed(wave)(x, False), fails), X)
    return pullback(np.eye(3))


def persisted(fails):
    x = dg.variable(X)
    kept = dg.delayed(wave)(x, False).persist()
    return dg.delayed(total)(dg.delayed(wave)(kept, fails)).compute()


def lazy(fails):
    x = dg.variable(X)
    value, gradient = dg.differentiate(graph(x, fails), x)
    if not fails:  # what fails once persisted stays, of any collection: Dask's client keeps the
        value, gradient = dask.persist(value, gradient)  # error, which holds the future's owner
    return dask.compute(value, gradient)


def placed(fails):
    shards = dg.place(ITEMS, grainsize=1)
    return dg.value_and_grad(lambda x: dg.map_sum(term, shards, x, fails))(X)


def placed_in_a_graph(fails):
    shards = dg.place(ITEMS, grainsize=1)
    objective = dg.vjp(lambda x: dg.map_sum(pair_term, dg.zip(shards, ITEMS), x, fails), X)
    return objective[1](1.0)


CALLS = {
    "value_and_grad": lambda fails: dg.value_and_grad(lambda x: graph(x, fails))(X),
    "backward": lambda fails: dg.grad(lambda x: graph_back(x, fails))(X),
    "a held pullback": held_pullback,
    "many cotangents": many_cotangents,
    "a persisted node": persisted,
    "differentiate": lazy,
    "jvp": lambda fails: dg.jvp(lambda x: graph(x, fails), (X,), (X,)),
    "hvp": lambda fails: dg.hvp(lambda x: graph(x, fails), (X,), (X,)),
    "jacobian": lambda fails: dg.jacobian(lambda x: dg.delayed(wave)(x, fails))(X),
    "per item": lambda fails: dg.per_item(term, ITEMS, grainsize=1)(X, fails),
    "a sum": lambda fails: dg.grad(lambda x: dg.map_sum(term, ITEMS, x, fails, grainsize=1))(X),
    "placed items": placed,
    "placed items in a graph": placed_in_a_graph,
}
COLLECTED = "a persisted node"  # after an error: ``.compute()`` is Dask's own wait
TIMES = 3  # each call, succeeding and failing


@pytest.fixture
def uncollected():
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("uncollected")
@in_short("name", CALLS, "a held pullback", "placed items in a graph")
def test_the_scheduler_keeps_nothing_of_many_calls(name, client):
    call = CALLS[name]
    for _ in range(TIMES):
        call(False)
    see_it_empty(client)
    for _ in range(TIMES):
        fails(call)
    see_it_empty(client, collects=name == COLLECTED)
    assert not client.futures


def fails(call):
    with pytest.raises(BadModelError):
        call(True)


@pytest.mark.usefixtures("uncollected")
def test_what_an_exception_holds_goes_with_it(client):
    """A debugger may look at it as long as it is kept; then all is released."""
    try:
        held_pullback(True)
    except BadModelError as error:
        caught = error
    assert caught.__traceback__ is not None
    del caught
    see_it_empty(client)


PROGRAMS = {
    "a graph": lambda x: graph(x["a"], False) + dg.delayed(total)(x["b"]),
    "a sum": lambda x: dg.map_sum(term, ITEMS, x["a"], False) + dg.delayed(total)(x["b"]),
    "a whole and a part": lambda x: dg.delayed(lambda d: np.sum(d["a"] * d["b"]))(x) * x["b"][0],
}


@pytest.mark.usefixtures("uncollected")
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_point_goes_when_the_call_has_ended(name, monkeypatch):
    """It may be large, and there are thousands of calls between two runs of the collector."""
    seen = []

    def seen_leaf(leaf, name, copy):
        seen.append(weakref.ref(checked := checked_leaf(leaf[:], name, copy)))
        return checked

    checked_leaf = variables.checked_leaf
    monkeypatch.setattr(variables, "checked_leaf", seen_leaf)
    with dask.config.set(scheduler="sync"):
        dg.value_and_grad(PROGRAMS[name])({"a": X, "b": 2.0 * X})
    assert len(seen) == 2
    assert [ref() for ref in seen] == [None, None]


async def in_a_pool():
    with ThreadPoolExecutor(1) as pool:
        await asyncio.get_running_loop().run_in_executor(pool, wave, X, True)


async def together():
    await all_or_first_error([in_a_pool(), asyncio.sleep(0), in_a_pool()])


@pytest.mark.usefixtures("uncollected")
@pytest.mark.parametrize("coroutine", [in_a_pool, together])
def test_a_workers_errors_go_with_their_replies(coroutine):
    """They hold the point, and a minimizer may try many where a model fails."""

    async def fails():
        try:
            await coroutine()
        except BadModelError as error:
            return weakref.ref(error)

    assert asyncio.run(fails())() is None


def test_a_suspended_coroutine_keeps_its_locals():
    """Dask's client is among the callers of what loads an error."""

    def function():
        return sys._getframe()

    async def coroutine():
        frames.append(function())
        await asyncio.sleep(0)
        return "went on"

    frames, running = [], coroutine()
    running.send(None)
    assert frames[0].f_back is running.cr_frame, "else this cannot fail"
    drop_locals(frames[0])
    with pytest.raises(StopIteration, match="went on"):
        running.send(None)


@pytest.mark.usefixtures("uncollected")
def test_a_pullback_keeps_its_forward_pass_as_long_as_it_is_held(client):
    _, pullback = dg.vjp(lambda x: graph(x, False), X)
    held = len(client.futures)
    assert held > 0, "else this cannot fail"
    first = pullback(1.0)[0]
    for _ in range(TIMES):
        assert_array_equal(pullback(1.0)[0], first)
    wait_until(lambda: tasks_of(client) == held)
    del pullback
    wait_until(lambda: tasks_of(client) == 0)


@pytest.mark.usefixtures("uncollected")
def test_nothing_of_a_call_stays_in_the_process():
    """What was passed to a failing or succeeding call is freed with it, without the collector."""
    for scheduler in ("sync", "threads"):
        for in_line in (0.0, 60.0):
            with dask.config.set({"scheduler": scheduler, "daskgrad.inline.seconds": in_line}):
                for failing in (False, True):
                    seen = point_of_call(failing)
                    if scheduler == "threads":  # one may still run a model, or just have done so
                        wait_until(lambda seen=seen: seen() is None)
                    assert seen() is None, (scheduler, in_line, failing)


def point_of_call(failing):
    """A weak reference to what was passed to a call that has ended."""
    point = X.copy()
    with contextlib.suppress(BadModelError):
        dg.value_and_grad(lambda x: graph(x, failing))(point)
    if failing:
        gc.collect()
    return weakref.ref(point)


# ------------------------------------------------------------ arrays that the collector would free

LARGE = np.linspace(0.1, 1.0, 1000)
ROWS = np.ones((600, 50))


def squashed(x):
    return np.sum(np.tanh(x * LARGE) * x)


def refused(x, data):
    return np.sum(x) * len(str(data))


def of_row(row, x):
    return np.sum(np.sin(row) * x[:50])


def joined(x):
    square = np.outer(x[:30], x[:30])
    return np.sum(np.linalg.multi_dot([square, square, np.block([[x[:30]], [x[:30]]]).T]))


def gradient(fun):
    return lambda: dg.grad(fun)(LARGE)


IN_CYCLES = {
    "nodes": gradient(lambda x: dg.delayed(squashed)(x) + dg.delayed(squashed)(2.0 * x)),
    "one model": gradient(lambda x: dg.delayed(squashed)(x)),
    "no program": gradient(lambda x: dg.delayed(refused)(x, LARGE)),
    "rows": gradient(lambda x: dg.map_sum(of_row, ROWS, x)),
    "matrices": gradient(lambda x: dg.delayed(joined)(x)),
    "products": lambda: dg.hvp(lambda x: dg.delayed(squashed)(x), (LARGE,), (LARGE,)),
}


@pytest.mark.usefixtures("uncollected")
@pytest.mark.parametrize("name", IN_CYCLES)
def test_no_array_waits_for_the_collector(name):
    """While calls run first on the tape, then record, then run a program."""
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        with dask.config.set(scheduler="sync"):
            for _ in range(20):
                IN_CYCLES[name]()
        gc.collect()
        holders = [
            holder
            for holder in gc.garbage
            for held in gc.get_referents(holder)
            if issubclass(type(held), numpy.ndarray) and held.size > 2  # nodes refuse isinstance
        ]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
    assert not holders


def in_closure(data):
    def misfit(x):
        return np.sum(np.tanh(data @ x))

    return misfit, dg.delayed(misfit)


def in_two_terms(data):
    misfit, model = in_closure(data)
    return misfit, lambda x: model(x) + model(2.0 * x)


def in_partial(data):
    misfit = functools.partial(lambda data, x: np.sum(np.tanh(data @ x)), data)
    return misfit, dg.delayed(misfit)


def in_list(data):
    def misfit(x):
        return np.sum(np.tanh(held[0] @ x))

    held = [data, data[:2].copy()]
    return misfit, dg.delayed(misfit, compile=True)


class Fit:
    def __init__(self, data):
        self.data = data
        self.model = dg.delayed(self.misfit, compile=True)

    def misfit(self, x):
        return np.sum(np.tanh(self.data @ x))

    def objective(self, x):
        return self.model(x) + self.model(2.0 * x)


def in_object(data):
    fit = Fit(data)
    return fit, fit.objective


DERIVATIVES = {
    "gradient": dg.grad,
    "product": lambda fun: lambda x: dg.hvp(fun, (x,), (x,)),
    "pullback": lambda fun: lambda x: dg.vjp(fun, x)[1](1.0),
}


@pytest.mark.parametrize("derivative", DERIVATIVES)
@pytest.mark.parametrize("make", [in_closure, in_two_terms, in_partial, in_list, in_object])
def test_programs_keep_no_function_and_the_arrays_of_few(make, derivative, monkeypatch):
    """The latest is kept, as many programs make a function anew for each evaluation; the one that
    is made meanwhile comes beside it."""
    monkeypatch.setattr(backend, "MOST_BYTES", 1)
    monkeypatch.setattr(store, "COLD", 0)
    functions, arrays = [], []
    with dask.config.set({"daskgrad.inline.seconds": 60}):
        for _ in range(5):
            data = numpy.random.default_rng(0).normal(size=(600, 3))
            fun, objective = make(data)
            derived = DERIVATIVES[derivative](objective)
            for _ in range(20):
                derived(X)
            functions.append(weakref.ref(fun))
            arrays.append(weakref.ref(data))
            del data, fun, objective, derived
    gc.collect()
    assert [function() for function in functions] == [None] * 5
    assert sum([array() is not None for array in arrays]) <= 2


def in_graph(fun, data, x):
    return dg.value_and_grad(lambda x: dg.delayed(fun)(x, data))(x)


def in_sum(fun, data, x):
    return dg.value_and_grad(lambda x: dg.map_sum(lambda item, x: fun(x, item), [data, data], x))(x)


def in_placed(fun, data, x):
    with dg.place([data, data]) as shards:
        return dg.value_and_grad(lambda x: dg.map_sum(lambda item, x: fun(x, item), shards, x))(x)


def in_pullback(fun, data, x):
    value, pullback = dg.vjp(lambda x: dg.delayed(lambda x: fun(x, data))(x), x)
    return pullback(value)


def in_argument(fun, data, x):
    model = dg.delayed(lambda x, other: other(x, data))
    return [dg.grad(lambda x: model(x, fun))(x) for _ in range(3)]


def in_products(fun, data, x):
    model = dg.delayed(lambda x: fun(x, data))
    return dg.hvp(model, (x,), (x,)), dg.jacobian(model)(x)


EVERY_WAY = [in_graph, in_sum, in_pullback, in_argument, in_products]


def objects_of_ours():
    gc.collect()
    modules = [type(thing).__module__ for thing in gc.get_objects()]
    return Counter([name for name in modules if str(name).startswith("daskgrad.")])


@in_short("where", ["in line", "threads", "cluster"], "in line", "threads")
def test_new_functions_shapes_and_data_are_gone_with_their_calls(where, request, monkeypatch):
    """The package remembers a limited number of them."""
    for module in (eager, decisions, store, backend):
        for limit in [name for name in vars(module) if name.startswith("MOST_")]:
            monkeypatch.setattr(module, limit, 4)
    forget_evaluations(monkeypatch)
    functions, arrays, counts = [], [], []
    ways = [*EVERY_WAY, *([in_placed] if where == "cluster" else [])]

    def call(number):
        data = numpy.full(1000 + number, 1.0 / (number + 1))
        fun = lambda x, data: np.sum(np.sin(x) * number) * np.sum(data)  # noqa: E731
        functions.append(weakref.ref(fun))
        arrays.append(weakref.ref(data))
        ways[number % len(ways)](fun, data, numpy.ones(2 + number % 5))

    if where == "cluster":
        context = request.getfixturevalue("client").as_current()
    else:
        context = dask.config.set({"daskgrad.inline.seconds": 60 * (where == "in line")})
    with context:
        for number in range(3 * 60):
            call(number)
            if number % 60 == 59:
                counts.append(objects_of_ours())
    assert not any([one() is not None for one in functions[: -len(ways)]]), "but the latest of each"
    assert sum([one() is not None for one in arrays]) <= 4
    if where != "cluster":  # its scheduler, in this process, keeps a history of tasks
        assert counts[2].total() <= 1.02 * counts[1].total(), counts[2] - counts[1]


def test_a_worker_keeps_the_programs_of_few_bytes_of_models(monkeypatch):
    monkeypatch.setattr(backend, "MOST_BYTES", 10_000)
    monkeypatch.setattr(backend, "_sent", {})
    for number in range(5):
        model = dg.delayed(functools.partial(squashed, numpy.full(1000, number))).model
        backend.prepare(model.sent().fun)
    assert len(backend._sent) == 2, "8 kB each"
    monkeypatch.setattr(backend, "MOST_BYTES", 1)
    backend.prepare(dg.delayed(squashed).model.sent().fun)
    assert len(backend._sent) == 1, "the latest"
