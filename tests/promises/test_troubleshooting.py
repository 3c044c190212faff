"""The page `docs/troubleshooting.md`: programs get each message on it, and its code runs."""

import asyncio
import collections
import importlib
import inspect
import itertools
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import threading
import traceback
import types
import warnings

import dask
import numpy as np
import pytest
from autograd.extend import defvjp, primitive
from clusters import allowed_failures, cluster
from distributed import Client, versions
from distributed.core import Status
from tables import pattern
from waiting import wait_until

import daskgrad as dg
from daskgrad.tasks import supervision, waiting

pytestmark = pytest.mark.filterwarnings("ignore:.*lost.*:UserWarning")

PAGE = (pathlib.Path(__file__).parents[2] / "docs" / "troubleshooting.md").read_text()
MESSAGES = re.findall(r"^### `(.+)`$", PAGE, re.MULTILINE)
REMEDIES = re.findall(r"^```python\n(.+?)^```$", PAGE, re.MULTILINE | re.DOTALL)

X = np.array([0.3, 0.5, 0.9])
ITEMS = [X + number for number in range(8)]


def term(item, x):
    return np.sum(item * x)


def energy(x):
    return np.sum(x**2)


ENERGY = dg.delayed(energy)


def gradient_of(model, **options):
    return dg.grad(dg.delayed(model, **options))(X)


def changes_a_setting(x):
    settings = types.SimpleNamespace(k=1.0)
    value = dg.delayed(lambda x: settings.k * np.sum(x))(x)
    settings.k = 2.0
    return value


def changes_another_name(x):
    y = z = np.exp(x)
    z += 1.0
    return np.sum(y)


def with_constant(model, constant):
    return dg.grad(lambda x: dg.delayed(model)(x, constant))(X)


def sum_of(term, items):
    return dg.grad(lambda x: dg.map_sum(term, items, x))(X)


def debugged(run, *args):
    with dg.debug_nans(), np.errstate(all="ignore"):
        run(*args)


# ------------------------------------------------------------------------- the result is wrong


@dg.custom_vjp
def ruled(x):
    return np.sum(x**2)


ruled.defvjp(lambda x: (np.sum(x**2), x), lambda x, g: (g * x,))


def checked(model, **options):
    dg.check_grads(dg.delayed(lambda x: model(x)), **options)(X)


def a_wrong_rule_in_forward_mode():
    wrong = dg.custom_vjp(energy)
    wrong.defjvp(lambda primals, tangents: (energy(*primals), np.sum(*tangents)))
    checked(wrong, modes="forward")


def a_rule_that_stops_its_own_derivative():
    sine = primitive(lambda x: np.sin(x))  # of its own: np.sin itself keeps its rule
    defvjp(sine, lambda value, x: lambda g: g * np.cos(dg.value(x)))
    checked(lambda x: np.sum(sine(x)), order=2, modes="reverse")


def drawn_numbers():
    draws = itertools.count()
    gradient_of(lambda x: np.sum(x) * next(draws), keep="recompute")


def a_container_that_changes():
    rates = collections.UserList([1.0])
    gradient = dg.grad(dg.delayed(lambda x: np.sum(x) * rates[0], compile=True))
    for number in range(20):
        rates[0] = float(number)
        gradient(X)


def logarithms():
    debugged(sum_of, lambda item, x: np.sum(np.log(x - item)), [0.0, 1.0])


def a_root_in_the_middle():
    roots = dg.delayed(lambda x: np.sqrt(x - X) + 1.0)
    debugged(dg.grad(lambda x: ENERGY(roots(x))), X)


def cleared(x, table):
    table[0] = 0.0
    return np.sum(x) * np.sum(table)


# --------------------------------------------------------------------------- slow, not traced


def items_on_their_way(client):
    items = np.ones((8, 20_000))
    gradient = dg.grad(lambda x: dg.map_sum(lambda item, x: np.sum(item) * np.sum(x), items, x))
    for _ in range(3):
        gradient(X)


def a_large_argument(client):
    with_constant(lambda x, table: np.sum(x) * table[0], np.ones(2_000_000))


def a_long_list_in_a_closure():
    factors = [1.0] * 100_000
    return dg.explain(lambda x: np.sum(x) * factors[0], X)


def assigned_into_a_new_array(x):
    result = np.zeros(3)
    result[0] = x[0]
    return np.sum(result)


def assigned(x):
    x[0] = 1.0
    return np.sum(x)


def a_series(x):
    return np.sum(pytest.importorskip("pandas").Series(X) * x)


def scipys(name):
    import scipy.special

    return getattr(scipy.special, name)


# ---------------------------------------------------------------------- workers and clusters


def a_script_without_a_guard(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "from distributed import Client\nClient(n_workers=1, dashboard_address='127.0.0.1:0')\n"
    )
    ended = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=60)
    return ended.stderr


def an_asynchronous_client(client):
    async def main():
        async with Client(client.scheduler.address, asynchronous=True):
            dg.grad(ENERGY)(X)

    asyncio.run(main())


def a_module_that_workers_do_not_have(client):
    module = types.ModuleType("only_here")
    exec("def model(x): return x.sum()", module.__dict__)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "only_here", module)
        dg.grad(dg.delayed(module.model))(X)


def a_module_that_was_edited(client):
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        path = pathlib.Path(folder, "edited_since.py")
        path.write_text("def model(x): return x.sum()\n")
        client.upload_file(str(path))
        path.write_text("def model(x): return 2.0 * x.sum()\n")
        patch.delitem(sys.modules, path.stem)  # of the scheduler, which is in this process
        module = importlib.import_module(path.stem)
        dg.grad(dg.delayed(module.model))(X)


def another_version(threads):
    there = versions.get_package_info
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(versions, "get_package_info", lambda names: there(names) | {"numpy": "1.0"})
        Client(threads.cluster).close()


def no_worker(threads):
    threads.cluster.scale(0)
    wait_until(lambda: not threads.ncores())
    dg.grad(ENERGY)(X)


def waiting_at(gate):
    def model(x):
        gate.wait()
        return np.sum(x)

    return model


def a_limit(threads, gate):
    try:
        with dask.config.set({"daskgrad.wait.evaluation": 0.1}):
            gradient_of(waiting_at(gate))
    finally:
        gate.open()


def a_client_that_is_closed(threads, gate):
    closing = threading.Thread(target=lambda: gate.wait_for() and threads.close())
    closing.start()
    try:
        gradient_of(waiting_at(gate))
    finally:
        gate.open()
        closing.join()


def a_cluster_that_is_closed(threads):
    threads.cluster.close()
    dg.grad(ENERGY)(X)


def a_future_that_is_cancelled(threads):
    future = threads.scatter(X)
    future.cancel()
    dg.grad(lambda x: dg.delayed(term)(future, x))(X)


def closed_shards():
    with dg.place(ITEMS) as shards:
        pass
    sum_of(term, shards)


def ends_its_worker(*_):
    os._exit(1)


def a_killed_worker(frail):
    with allowed_failures(frail, 0):
        gradient_of(ends_its_worker)


def a_killed_worker_with_items(frail):
    with allowed_failures(frail, 0), dg.place(ITEMS) as shards:
        sum_of(ends_its_worker, shards)


def a_paused_worker(threads):
    def pause(dask_worker):
        dask_worker.status = Status.paused

    def is_paused(dask_scheduler):
        return not dask_scheduler.running

    threads.run(pause)
    wait_until(lambda: threads.run_on_scheduler(is_paused))
    dg.grad(ENERGY)(X)


# ---------------------------------------------------------------------------------- the table


# A program, which raises, warns, or returns the text, and the beginnings of what it gets.
def a_joint_maximum():
    def joint(p):
        return dg.map_sum(lambda z, s: z**2 * np.exp(s), p["z"], p["s"]) + p["s"] ** 2

    flat, x0, _ = dg.adapters.flat(joint, {"s": 0.0, "z": np.zeros(20)})
    flat.covariance(x0)


ROWS = [
    (lambda: checked(ruled, modes="reverse"), "AssertionError: the pullback of '…' is wrong"),
    (a_wrong_rule_in_forward_mode, "the tangent of"),
    (a_rule_that_stops_its_own_derivative, "the Hessian-vector product of"),
    (lambda: dg.check_grads(lambda x: ENERGY(x) * dg.stop_gradient(ENERGY(x)))(X), "each of the"),
    (drawn_numbers, "NondeterministicModelError: model '…' is not"),
    (a_container_that_changes, "NondeterministicModelError: the compiled"),
    (lambda: dg.grad(lambda x: ENERGY(x).compute())(X), "UserWarning: the output of"),
    (
        lambda: with_constant(cleared, np.ones(3)),
        "daskgrad: model '…' may",
        "ValueError: assignment destination is read-only",
    ),
    (logarithms, "FloatingPointError: model '…', forward pass"),
    (
        lambda: debugged(gradient_of, lambda x: np.sum(np.sqrt(x - X))),
        "FloatingPointError: model '…', b",
    ),
    (a_root_in_the_middle, "the cotangent of argument …"),
    (
        lambda: debugged(sum_of, lambda item, x: item * np.sum(x), [1e308] * 2),
        "FloatingPointError: sum",
    ),
    (items_on_their_way, "UserWarning: the … items"),
    (a_large_argument, "UserWarning: Sending large graph"),
    (lambda: dg.explain(lambda x: np.sum(x), X), "'…' will be compiled after"),
    (lambda: dg.explain(lambda x: float(x[0]) * x[1], X), "'…' is not compiled: …"),
    (a_long_list_in_a_closure, "'…' is not compiled unless"),
    (lambda: gradient_of(lambda x: float(x[0]) * x[1]), "TypeError: float() argument"),
    (lambda: gradient_of(assigned_into_a_new_array), "ValueError: setting an array element"),
    (lambda: gradient_of(assigned), "TypeError: 'ArrayBox' object does not support item"),
    (
        lambda: gradient_of(scipys("logsumexp")),
        "TypeError: loop of ufunc does not",
        "daskgrad: scipy.… takes no traced values",
    ),
    (lambda: gradient_of(a_series), "daskgrad: pandas takes no traced values"),
    (
        lambda: gradient_of(lambda x: np.vectorize(float)(x)),
        "daskgrad: np.vectorize takes no traced values",
    ),
    (lambda: gradient_of(lambda x: float(f"{x[0]:.3f}")), "TypeError: unsupported format string"),
    (lambda: gradient_of(lambda x: x.sort()), "TypeError: 'ArrayBox' object has no attribute"),
    (lambda: gradient_of(lambda x: np.zeros(3).__iadd__(x)), "TypeError: np.add writes a traced"),
    (lambda: gradient_of(lambda x: object()), "TypeError: model '…' returned …; expected"),
    (
        lambda: gradient_of(lambda x: np.array([x[0], x[1]])),
        "TypeError: model '…' returned an array",
    ),
    (lambda: gradient_of(lambda x: ENERGY(x)), "TypeError: model '…' returned CallNode"),
    (lambda: dg.hvp(dg.delayed(lambda x: ruled(x)), (X,), (X,)), "NotImplementedError: '…' has no"),
    (lambda: gradient_of(primitive(lambda x: np.sum(x))), "NotImplementedError: the primitive"),
    (lambda: gradient_of(lambda x: scipys("jv")(x[0], 2.0)), "Refusal: the derivative"),
    (lambda: dg.grad(lambda x: float(ENERGY(x)))(X), "TypeError: … needs the value of"),
    (lambda: dg.grad(lambda x: ENERGY(float(x[0])))(X), "TypeError: … makes a constant of"),
    (lambda: dg.grad(changes_a_setting)(X), "TypeError: …, to which model '…' refers, has"),
    (lambda: dg.grad(changes_another_name)(X), "TypeError: … changes an array in place, and"),
    (lambda: sum_of(lambda x: np.sum(x), ITEMS), "TypeError: … takes 1 positional argument but 2"),
    (lambda: dg.grad(lambda x: [ENERGY(x), ENERGY(x)])(X), "TypeError: '…' must return a node"),
    (lambda: gradient_of(lambda x: 2.0 * x), "TypeError: the gradient of '…' was asked for"),
    (
        lambda: dg.map_sum(lambda item, x: x[: len(item)], [X, X[:2]], X).compute(),
        "StructureError: the terms",
    ),
    (lambda: dg.grad(ENERGY, X), "ValueError: argnums="),
    (lambda: dg.grad(lambda x: ENERGY(dg.grad(ENERGY)(x)))(X), "TypeError: '…' holds <…>"),
    (lambda: dg.grad(ENERGY)(np.array([1, 2])), "TypeError: argument '…' of '…' is …"),
    (lambda: dg.map_sum(term, (item for item in ITEMS), X), "TypeError: items must be a list"),
    (
        lambda: dg.grad(lambda x: dg.map_sum(term, dg.zip(ITEMS, dg.delayed(np.exp)(x)), x))(X),
        "TypeError: … is <…>, and how many items",
    ),
    (a_joint_maximum, "UserWarning: … is estimated jointly with the effects of"),
    (
        lambda: dg.adapters.flat(dg.delayed(np.prod), X)[0].covariance(X),
        "LinAlgError: the Hessian has no inverse",
    ),
    (
        a_script_without_a_guard,
        "RuntimeError: An attempt has been made",
        "RuntimeError: Nanny failed to start.",
    ),
    (an_asynchronous_client, "RuntimeError: Attempting to use an asynchronous Client"),
    (lambda client: dg.place([threading.Lock()]), "TypeError: … cannot be sent to another process"),
    (
        a_module_that_workers_do_not_have,
        "ModuleNotFoundError: No module named",
        "daskgrad: the process that runs the model has no module",
    ),
    (
        a_module_that_was_edited,
        "RuntimeError: model '…' uses …, for which this worker has other code than the client",
    ),
    (another_version, "VersionMismatchWarning: Mismatched versions"),
    (no_worker, "TimeoutError: no task could run for … s (dask.config: daskgrad.wait.workers)"),
    (a_limit, "TimeoutError: … took longer than"),
    (a_client_that_is_closed, "ConnectionError: the client of … was closed"),
    (
        a_cluster_that_is_closed,
        "ConnectionError: a graph cannot be computed: the client is …: somebody closed it",
    ),
    (a_future_that_is_cancelled, "LostError: … could not be computed at"),
    (closed_shards, "RuntimeError: these shards are closed"),
    (a_killed_worker, "KilledWorker: Attempted to run task", "daskgrad: the task is the …"),
    (a_killed_worker_with_items, "RuntimeError: … workers died while they evaluated"),
    (a_paused_worker, "TimeoutError: no task could run for … No worker"),
    (lambda: dg.grad(ENERGY)(np.broadcast_to(1.0, 10**12)), "ValueError: … is …, broadcast from"),
]


def messages_of(beginnings):
    """The messages on the page, in headings or else in the text, that begin so."""
    for beginning in beginnings:
        whole = [message for message in MESSAGES if message.startswith(beginning)]
        assert len(whole) < 2, "more than one begins so"
        assert whole or f"`{beginning}`" in words(PAGE)
        yield whole[0] if whole else beginning


@pytest.fixture
def threads(monkeypatch):
    """A cluster whose only worker is a thread of this process; what it lacks is soon an error."""
    settings = {"distributed.worker.memory.pause": False, "daskgrad.wait.workers": 0.2}
    for module in (waiting, supervision):
        monkeypatch.setattr(module, "PERIOD", 0.02)  # between two looks at what is lacking
    with cluster(settings, processes=False, host=None, n_workers=1) as client:
        yield client


CLUSTERS = {"client", "threads", "frail"}


def said(program, fixtures):
    """What a user sees: the end of the traceback with its notes, the warnings, or the text."""
    here = {} if CLUSTERS & fixtures.keys() else {"scheduler": "sync"}
    with warnings.catch_warnings(record=True) as caught, dask.config.set(here):
        warnings.simplefilter("always")
        try:
            text = program(**fixtures)
        except Exception as error:
            return "".join(traceback.format_exception_only(error))
    shown = [f"{entry.category.__name__}: {entry.message}" for entry in caught]
    return "\n".join([text if isinstance(text, str) else "", *shown])


def words(text):
    return " ".join(text.split())


def test_each_message_in_a_heading_has_a_program():
    shown = [message for _, *beginnings in ROWS for message in messages_of(beginnings)]
    assert set(MESSAGES) <= set(shown)
    assert len(shown) == len(set(shown))
    assert len(MESSAGES) == len(set(MESSAGES)) > 40


SLOW = (a_script_without_a_guard,)  # nothing of daskgrad is in it


@pytest.mark.parametrize(
    "row",
    [pytest.param(row, marks=[pytest.mark.long] * (row[0] in SLOW)) for row in ROWS],
    ids=[row[1] for row in ROWS],
)
def test_a_program_gets_the_messages_on_the_page(row, request):
    program, *beginnings = row
    names = inspect.signature(program).parameters
    result = words(said(program, {name: request.getfixturevalue(name) for name in names}))
    for message in messages_of(beginnings):
        assert re.search(pattern(message, hole="…"), result)


@pytest.mark.parametrize("remedy", REMEDIES, ids=range(len(REMEDIES)))
def test_the_code_on_the_page_runs(remedy, request, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("item.npy", X)
    names = {"dg": dg, "np": np, "dask": dask, "Client": Client, "term": term, "model": energy}
    names |= {"x": X, "items": ITEMS, "table": np.ones(3), "path": "item.npy"}
    if "client" in remedy:
        names["client"] = request.getfixturevalue("threads")
    here = {} if "client" in remedy else {"scheduler": "sync"}
    with dask.config.set(here | {"daskgrad.wait.workers": "30 s"}):  # which a remedy raises
        exec(remedy, {"__name__": "page", **names})
