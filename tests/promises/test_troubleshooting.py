"""The page `docs/troubleshooting.md`: programs get each message on it, and its code runs."""

import asyncio
import inspect
import itertools
import os
import pathlib
import re
import subprocess
import sys
import threading
import time
import traceback
import types
import warnings

import dask
import numpy as np
import pytest
import scipy.special
from autograd.extend import defvjp, primitive
from clusters import allowed_failures, cluster
from distributed import Client, versions
from distributed.core import Status
from waiting import wait_until

import daskgrad as dg

pytestmark = pytest.mark.filterwarnings("ignore:.*lost.*:UserWarning")

PAGE = (pathlib.Path(__file__).parents[2] / "docs" / "troubleshooting.md").read_text()
MESSAGES = re.findall(r"^### `(.+)`$", PAGE, re.MULTILINE)
REMEDIES = re.findall(r"^```python\n(.+?)^```$", PAGE, re.MULTILINE | re.DOTALL)
PROGRAMS, ASIDES = {}, {}

X = np.array([0.3, 0.5, 0.9])
ITEMS = [X + number for number in range(8)]


def shows(message, programs=PROGRAMS):
    """Enters a program, which raises, warns, or returns the text, by the message on the page.

    Messages in headings have ``PROGRAMS``; those that the text mentions besides, ``ASIDES``.
    """

    def enter(program):
        assert message not in programs
        programs[message] = program
        return program

    return enter


def term(item, x):
    return np.sum(item * x)


def energy(x):
    return np.sum(x**2)


ENERGY = dg.delayed(energy)


def gradient_of(model, **options):
    return dg.grad(dg.delayed(model, **options))(X)


# ------------------------------------------------------------------------- the result is wrong


@dg.custom_vjp
def ruled(x):
    return np.sum(x**2)


ruled.defvjp(lambda x: (np.sum(x**2), x), lambda x, g: (g * x,))


@shows("AssertionError: the pullback of '…' is wrong for argument …")
def a_wrong_rule():
    dg.check_grads(dg.delayed(lambda x: ruled(x)), modes="reverse")(X)


@shows("the tangent of", ASIDES)
def a_wrong_rule_in_forward_mode():
    wrong = dg.custom_vjp(energy)
    wrong.defjvp(lambda primals, tangents: (energy(*primals), np.sum(*tangents)))
    dg.check_grads(dg.delayed(lambda x: wrong(x)), modes="forward")(X)


@shows("the Hessian-vector product of", ASIDES)
def a_rule_that_stops_its_own_derivative():
    sine = primitive(lambda x: np.sin(x))  # of its own: np.sin itself keeps its rule
    defvjp(sine, lambda value, x: lambda g: g * np.cos(dg.value(x)))
    dg.check_grads(dg.delayed(lambda x: np.sum(sine(x))), order=2, modes="reverse")(X)


@shows("each of the … nodes that matter is right by itself")
def a_stopped_derivative():
    dg.check_grads(lambda x: ENERGY(x) * dg.stop_gradient(ENERGY(x)))(X)


@shows(
    "NondeterministicModelError: model '…' is not deterministic: run again on the same "
    "arguments, it returned a different value"
)
def drawn_numbers():
    draws = itertools.count()
    gradient_of(lambda x: np.sum(x) * next(draws), keep="recompute")


@shows(
    "NondeterministicModelError: the compiled program of '…' and the model itself returned "
    "different values or gradients"
)
def a_large_array_that_changes():
    large = np.ones(1000)
    gradient = dg.grad(dg.delayed(lambda x: np.sum(x) * np.sum(large), compile=True))
    for number in range(20):
        large[:] = number
        gradient(X)


@shows("UserWarning: the output of '…' does not depend on '…'; its gradient is zero")
def a_value_that_was_taken_out():
    dg.grad(lambda x: ENERGY(x).compute())(X)


@shows("daskgrad: model '…' may have written into an argument")
@shows("ValueError: assignment destination is read-only", ASIDES)
def a_write():
    def cleared(x, table):
        table[0] = 0.0
        return np.sum(x) * np.sum(table)

    dg.grad(lambda x: dg.delayed(cleared)(x, np.ones(3)))(X)


# -------------------------------------------------------------------------------- not finite


@shows("FloatingPointError: model '…', forward pass, item …: the value has …")
def a_logarithm():
    with dg.debug_nans(), np.errstate(all="ignore"):
        dg.grad(lambda x: dg.map_sum(lambda i, x: np.sum(np.log(x - i)), [0.0, 1.0], x))(X)


@shows(
    "FloatingPointError: model '…', backward pass: the gradient with respect to argument … has …"
)
def a_root():
    with dg.debug_nans(), np.errstate(all="ignore"):
        gradient_of(lambda x: np.sum(np.sqrt(x - X)))


@shows("the cotangent of argument …", ASIDES)
def a_root_in_the_middle():
    with dg.debug_nans(), np.errstate(all="ignore"):
        dg.grad(lambda x: ENERGY(dg.delayed(lambda x: np.sqrt(x - X) + 1.0)(x)))(X)


@shows(
    "FloatingPointError: sum over '…': the value or gradient is not finite, but each of its "
    "terms is"
)
def an_overflow():
    with dg.debug_nans(), np.errstate(all="ignore"):
        dg.grad(lambda x: dg.map_sum(lambda item, x: item * np.sum(x), [1e308, 1e308], x))(X)


# -------------------------------------------------------------------------------------- slow


@shows("UserWarning: the … items of the sum over '…' were sent to the cluster 3 times")
def items_on_their_way(client):
    items = np.ones((8, 20_000))
    gradient = dg.grad(lambda x: dg.map_sum(lambda item, x: np.sum(item) * np.sum(x), items, x))
    for _ in range(3):
        gradient(X)


@shows("UserWarning: Sending large graph of size …")
def a_large_argument(client):
    table = np.ones(2_000_000)
    dg.grad(lambda x: dg.delayed(lambda x, table: np.sum(x) * table[0])(x, table))(X)


@shows("'…' is not compiled: …, in …")
def a_number_taken_out():
    return dg.explain(lambda x: float(x[0]) * x[1], X)


@shows("'…' is not compiled unless you vouch for it with compile=True: …")
def a_list_in_a_closure():
    factors = [1.0]
    return dg.explain(lambda x: np.sum(x) * factors[0], X)


# ------------------------------------------------------------------------------- not traced


@shows("TypeError: float() argument must be a string or a real number, not 'ArrayBox'")
def a_float():
    gradient_of(lambda x: float(x[0]) * x[1])


@shows("TypeError: must be real number, not ArrayBox")
def pythons_math():
    import math

    gradient_of(lambda x: math.exp(x[0]))


@shows("ValueError: setting an array element with a sequence.")
def assignment_into_an_array():
    def assigned(x):
        result = np.zeros(3)
        result[0] = x[0]
        return np.sum(result)

    gradient_of(assigned)


@shows("TypeError: 'ArrayBox' object does not support item assignment")
def assignment_into_an_argument():
    def assigned(x):
        x[0] = 1.0
        return np.sum(x)

    gradient_of(assigned)


@shows("TypeError: loop of ufunc does not support argument … of type ArrayBox")
def a_function_of_scipys():
    gradient_of(scipy.special.logsumexp)


@shows("TypeError: model '…' returned an array of Python objects")
def an_array_of_boxes():
    gradient_of(lambda x: np.array([x[0], x[1]]))


@shows("TypeError: model '…' returned CallNode; …; inside a model, call the plain function")
def a_model_in_a_model():
    gradient_of(lambda x: ENERGY(x))


@shows("NotImplementedError: '…' has no rule for a derivative in forward mode")
def a_rule_for_gradients_alone():
    dg.hvp(dg.delayed(lambda x: ruled(x)), (X,), (X,))


@shows("NotImplementedError: the primitive '…' has no derivative rule for its argument …")
def a_primitive_without_a_rule():
    gradient_of(primitive(lambda x: np.sum(x)))


@shows("Refusal: the derivative of '…' with respect to …, is not implemented")
def the_order_of_a_bessel_function():
    gradient_of(lambda x: scipy.special.jv(x[0], 2.0))


# ------------------------------------------------------------------- what is differentiated


@shows("TypeError: … needs the value of <…>, which is not computed yet")
def a_plain_function():
    dg.grad(lambda x: np.sum(x**2))(X)


@shows("TypeError: '…' must return a node, whose value is one real number; found …")
def several_nodes():
    dg.grad(lambda x: [ENERGY(x), ENERGY(x)])(X)


@shows("TypeError: the gradient of '…' was asked for, but its value is …")
def a_value_that_is_an_array():
    gradient_of(lambda x: 2.0 * x)


@shows("ValueError: argnums=… of '…' must be numbers of positional arguments")
def arguments_in_the_first_call():
    dg.grad(ENERGY, X)


@shows("TypeError: '…' holds <…>, which depends on the variables of another derivative")
def a_gradient_of_a_gradient():
    dg.grad(lambda x: ENERGY(dg.grad(ENERGY)(x)))(X)


@shows("TypeError: argument '…' of '…' is …, which has no derivative")
def integers():
    dg.grad(ENERGY)(np.array([1, 2]))


@shows("TypeError: items must be a list, a tuple, a range, a NumPy or dask Array")
def a_generator_of_items():
    dg.map_sum(term, (item for item in ITEMS), X)


# ---------------------------------------------------------------------- workers and clusters


@shows(
    "RuntimeError: An attempt has been made to start a new process before the current process "
    "has finished its bootstrapping phase."
)
@shows("RuntimeError: Nanny failed to start.", ASIDES)
def a_script_without_a_guard(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "from distributed import Client\nClient(n_workers=1, dashboard_address='127.0.0.1:0')\n"
    )
    ended = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=60)
    return ended.stderr


@shows("RuntimeError: Attempting to use an asynchronous Client in a synchronous context")
def an_asynchronous_client(client):
    async def main():
        async with Client(client.scheduler.address, asynchronous=True):
            dg.grad(ENERGY)(X)

    asyncio.run(main())


@shows("TypeError: … cannot be sent to another process: cannot pickle …")
def a_lock(client):
    dg.place([threading.Lock()])


@shows("ModuleNotFoundError: No module named '…'")
def a_module_that_workers_do_not_have(client):
    module = types.ModuleType("only_here")
    exec("def model(x): return x.sum()", module.__dict__)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "only_here", module)
        dg.grad(dg.delayed(module.model))(X)


@shows("VersionMismatchWarning: Mismatched versions found")
def another_version(threads):
    there = versions.get_package_info
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(versions, "get_package_info", lambda names: there(names) | {"numpy": "1.0"})
        Client(threads.cluster).close()


@shows("TimeoutError: no task could run for … s (dask.config: daskgrad.wait.workers) while …")
def no_worker(threads):
    threads.cluster.scale(0)
    wait_until(lambda: not threads.ncores())
    dg.grad(ENERGY)(X)


@shows("TimeoutError: … took longer than … s (dask.config: daskgrad.wait.evaluation)")
def a_limit(threads):
    with dask.config.set({"daskgrad.wait.evaluation": 0.1}):
        gradient_of(slow)


def slow(x):
    time.sleep(0.4)
    return np.sum(x)


@shows("ConnectionError: the client of … was closed, or lost its scheduler, while … was computed")
def a_client_that_is_closed(threads):
    timer = threading.Timer(0.1, threads.close)
    timer.start()
    try:
        gradient_of(slow)
    finally:
        timer.join()


@shows("ConnectionError: a graph cannot be computed: the client is …: somebody closed it", ASIDES)
def a_cluster_that_is_closed(threads):
    threads.cluster.close()
    dg.grad(ENERGY)(X)


@shows(
    "LostError: … could not be computed at …: the cluster lost data that it uses, or somebody "
    "cancelled it"
)
def a_future_that_is_cancelled(threads):
    future = threads.scatter(X)
    future.cancel()
    dg.grad(lambda x: dg.delayed(term)(future, x))(X)


@shows("RuntimeError: these shards are closed; place the items again")
def closed_shards():
    with dg.place(ITEMS) as shards:
        pass
    dg.grad(lambda x: dg.map_sum(term, shards, x))(X)


# ------------------------------------------------------------------------------------ memory


def ends_its_worker(*_):
    os._exit(1)


@shows("daskgrad: the task is the …", ASIDES)
@shows("KilledWorker: Attempted to run task … but all those workers died while running it.")
def a_killed_worker(frail):
    with allowed_failures(frail, 0):
        gradient_of(ends_its_worker)


@shows("RuntimeError: … workers died while they evaluated the sum over '…'")
def a_killed_worker_with_items(frail):
    with allowed_failures(frail, 0), dg.place(ITEMS) as shards:
        dg.grad(lambda x: dg.map_sum(ends_its_worker, shards, x))(X)


@shows(
    "TimeoutError: no task could run for … No worker at … takes work: … is paused. Workers pause "
    "when their memory is full"
)
def a_paused_worker(threads):
    def pause(dask_worker):
        dask_worker.status = Status.paused

    def is_paused(dask_scheduler):
        return not dask_scheduler.running

    threads.run(pause)
    wait_until(lambda: threads.run_on_scheduler(is_paused))
    dg.grad(ENERGY)(X)


@shows("ValueError: … is …, broadcast from fewer numbers, and would be copied to … GiB")
def a_broadcast_argument():
    dg.grad(ENERGY)(np.broadcast_to(1.0, 10**12))


# -------------------------------------------------------------------------- the page and they


@pytest.fixture
def threads():
    """A cluster whose only worker is a thread of this process; what it lacks is soon an error."""
    settings = {"distributed.worker.memory.pause": False, "daskgrad.wait.workers": 0.2}
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
    shown = [f"{each.category.__name__}: {each.message}" for each in caught]
    return "\n".join([text or "", *shown])


def words(text):
    return " ".join(text.split())


def pattern_of(message):
    return ".*".join(map(re.escape, message.split("…")))


def test_each_message_on_the_page_has_a_program():
    assert MESSAGES
    assert set(MESSAGES) == set(PROGRAMS)
    assert len(MESSAGES) == len(set(MESSAGES))


def test_what_is_mentioned_besides_is_on_the_page():
    assert [message for message in ASIDES if f"`{message}`" not in words(PAGE)] == []


def messages_of(program):
    pairs = itertools.chain(PROGRAMS.items(), ASIDES.items())
    return [message for message, each in pairs if each is program]


ALL = dict.fromkeys([*PROGRAMS.values(), *ASIDES.values()])


@pytest.mark.parametrize("program", ALL, ids=lambda program: program.__name__)
def test_a_program_gets_the_messages_on_the_page(program, request):
    names = inspect.signature(program).parameters
    fixtures = {name: request.getfixturevalue(name) for name in names}
    found = words(said(program, fixtures))
    for message in messages_of(program):
        assert re.search(pattern_of(message), found)


@pytest.mark.parametrize("remedy", REMEDIES, ids=range(len(REMEDIES)))
def test_the_code_on_the_page_runs(remedy, threads, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("item.npy", X)
    given = {"x": X, "items": ITEMS, "table": np.ones(3), "path": "item.npy", "client": threads}
    names = {"dg": dg, "np": np, "dask": dask, "Client": Client, "term": term, "model": energy}
    with dask.config.set({"daskgrad.wait.workers": "30 s"}):  # which a remedy raises
        exec(remedy, {"__name__": "page", **names, **given})
