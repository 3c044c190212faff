"""Programs that report where they are, and what may happen to workers then.

Workers import this module, for the rules of ``passing`` and for where reports go.
"""

import contextlib
import functools
import os
import signal
import threading
import time
from collections import Counter

import autograd.numpy as np
import dask
import numpy
from autograd.extend import defjvp, defvjp, primitive
from clusters import kill, running
from distributed.core import Status
from waiting import Gate, wait_until

import daskgrad as dg

X = numpy.linspace(-1.0, 1.0, 5)
V = numpy.linspace(0.5, 2.0, 5)
ITEMS = [numpy.linspace(0.0, 1.0, 5) * 10.0 ** (number % 7) for number in range(24)]
NUMBERS = numpy.linspace(1.0, 2.0, 24)
OWN = numpy.outer(NUMBERS, V)

# ----------------------------------------------------------------------------------- reports

FORWARD = "forward"  # of a model, as are pullbacks and tangents
DERIVATIVE = "derivative"
ROUND = "round"  # before an evaluation of the program
FETCH = "fetch"  # before what workers keep is brought here
_receivers = [None]  # of the reports of this process


def report_to(receiver):
    _receivers[0] = receiver


def report(moment):
    if _receivers[0] is not None:
        _receivers[0](moment)


class Watch:
    """Counts the reports of a moment, of all processes; from a number on, these wait at a gate."""

    def __init__(self, path, moment, number):
        self.gate = Gate(path)
        self._path, self._moment, self._number = f"{path}.reports", moment, number

    def __call__(self, moment):
        if moment == self._moment:
            with open(self._path, "a") as file:
                file.write(".")
                file.flush()
                number = file.tell()
            if number >= self._number:
                self.gate.wait(moment)

    def count(self):
        return os.path.getsize(self._path)


@primitive
def passing(x):
    """The identity, which reports that it runs, as do its pullback and its tangent."""
    report(FORWARD)
    return x


def reported(g):
    report(DERIVATIVE)
    return g


defvjp(passing, lambda ans, x: reported)
defjvp(passing, lambda g, ans, x: reported(g))

# ------------------------------------------------------------------------- programs of tasks


def points():
    """Where a program is evaluated, round by round."""
    for factor in (1.0, -0.5, 2.0):
        report(ROUND)
        yield factor * X


def piece(x, number):
    return np.sin(passing(x) * (number + 1.0))


def mixed(pieces):
    return np.tanh(sum(pieces))


def total(y):
    return np.sum(passing(y))


def vector(items, x):
    """Ten models whose cotangents all depend on all of them."""
    return dg.delayed(mixed)([dg.delayed(piece)(x, number) for number in range(10)])


def number(items, x):
    return dg.delayed(total)(vector(items, x))


def step(u, row, x):
    return np.sin(passing(u) * x + row)


def loop(items, x):
    """Steps whose states are kept here and there."""
    return dg.delayed(total)(dg.scan(step, x, len(ITEMS), x, xs=numpy.stack(ITEMS), checkpoints=4))


def smooth(padded, x):
    return passing(padded[1:-1]) + 0.1 * np.sin(padded[2:] + padded[:-2]) * x[0]


def domain(items, x):
    """Blocks that exchange their edges."""
    blocks = dg.map_overlap(smooth, dg.grid(NUMBERS, 3), x, steps=6, fuse=2)
    return dg.sum(blocks.map(total))


# ----------------------------------------------------------------- programs over placed items


def term(item, x):
    return np.sum(np.sin(item * passing(x)))


def wave(item, x):
    return np.sin(item * passing(x))


def scaled_term(pair, x):
    return pair[1] * term(pair[0], x)


def placed_sum(items, x):
    return dg.map_sum(term, items, x) ** 2


def zipped_sum(items, x):
    return dg.map_sum(scaled_term, dg.zip(items, NUMBERS), x)


def sent_sum(items, x):
    return dg.map_sum(term, ITEMS, x)


def vector_sum(items, x):
    return dg.map_sum(wave, items, x)


def slice_term(columns, x):
    return np.sum(columns[0][:, None] * np.sin(columns[1] * passing(x)))


def of_columns():
    columns = dg.place(dg.zip(NUMBERS, numpy.stack(ITEMS)))
    slices = dg.value_and_grad(lambda x: dg.reduce_sum(slice_term, columns, x))
    return [slices(x) for x in points()]


def of_samples():
    items = dg.place(ITEMS)
    gradient = dg.value_and_grad(lambda x, batch: dg.map_sum(term, batch, x))
    return [gradient(x, items.sample(16, seed)) for seed, x in enumerate(points())]


def of_each_item():
    gradients = dg.per_item(term, dg.place(ITEMS), gradient="full")
    return [gradients(x) for x in points()]


def silent_term(item, x):
    return np.sum(np.sin(item * x))


def of_nodes():
    """Dask computes them, so what is lost meanwhile is its error; between, nothing is."""
    items = dg.place(ITEMS)
    node = dg.map_sum(silent_term, items, X)
    return [[node.compute(), dg.map_sum(silent_term, items, x).compute()] for x in points()]


def gradient_of(objective):
    def run():
        items = dg.place(ITEMS)
        gradient = dg.value_and_grad(lambda x: objective(items, x))
        return [gradient(x) for x in points()]

    return run


def pushed(derivative, objective):
    def run():
        items = dg.place(ITEMS)
        return [derivative(lambda x: objective(items, x), (x,), (V,)) for x in points()]

    return run


def pulled(objective):
    """A pullback that is held, and called three times."""

    def run():
        items = dg.place(ITEMS)
        value, pullback = dg.vjp(lambda x: objective(items, x), X)
        rows = [V, -V, numpy.stack([V, 2.0 * V])]
        return [value, *[pullback(v) for v, _ in zip(rows, points(), strict=True)]]

    return run


# ---------------------------------------------------------- programs whose parameters learn


def own_term(pair, x):
    own, item = pair
    return np.sum(np.sin(item * passing(x) + own))


def learn(params, gradient_of_step):
    """Values, parameters after some steps, their optimiser's state and the next gradients."""
    optimiser, values = dg.optim.Adam(0.1), []
    state = optimiser.init(params)
    for number in range(4):
        report(ROUND)
        value, gradients = gradient_of_step(number)(*params.values())
        optimiser.update(params, dict(zip(params, gradients, strict=True)), state)
        values.append(value)
    _, gradients = gradient_of_step(4)(*params.values())
    report(FETCH)
    return [*values, *map(as_array, [*gradients, *params.values(), *state.values()])]


def as_array(each):
    return each.to_dense() if isinstance(each, dg.Rows) else numpy.asarray(each)


def attached():
    """Parameters of the items' own that learn where these are."""
    items = dg.place(ITEMS)
    gradient = dg.value_and_grad(lambda x, own: dg.map_sum(own_term, dg.zip(own, items), x), (0, 1))
    return learn({"x": X.copy(), "own": items.attach(OWN)}, lambda step: gradient)


def rows():
    """Those of the items that are drawn, and at times all."""
    items = dg.place(ITEMS)

    def loss(x, own, batch):
        return dg.map_sum(own_term, dg.zip(own, batch), x)

    whole, some = [dg.value_and_grad(loss, (0, 1), sparse=sparse) for sparse in (False, "own")]

    def gradient_of_step(step):
        if step % 2:
            return lambda x, own: whole(x, own, items)
        return lambda x, own: some(x, own, items.sample(16, step))

    return learn({"x": X.copy(), "own": items.attach(OWN)}, gradient_of_step)


def looked_up(item, weights, x):
    index, row = item
    return np.sum(np.sin(row * passing(x) + weights[index]))


def replicas():
    """A table of which items use a few rows."""
    items = dg.place([*enumerate(ITEMS)])
    gradient = dg.value_and_grad(
        lambda weights, x: dg.map_sum(looked_up, items, weights, x), (0, 1), sparse="weights"
    )
    return learn({"weights": dg.replicate(numpy.ones((200, 5))), "x": X.copy()}, lambda _: gradient)


PROGRAMS = {  # that return arrays in lists and tuples
    "graph": gradient_of(number),
    "loop": gradient_of(loop),
    "domain": gradient_of(domain),
    "jvp of a graph": pushed(dg.jvp, number),
    "hvp of a graph": pushed(dg.hvp, number),
    "hvp of a loop": pushed(dg.hvp, loop),
    "vjp of a graph": pulled(vector),
    "nodes": of_nodes,
    "placed": gradient_of(placed_sum),
    "zip": gradient_of(zipped_sum),
    "columns": of_columns,
    "sent": gradient_of(sent_sum),
    "samples": of_samples,
    "each item": of_each_item,
    "jvp over placed items": pushed(dg.jvp, placed_sum),
    "hvp over placed items": pushed(dg.hvp, placed_sum),
    "vjp over placed items": pulled(vector_sum),
    "attached": attached,
    "replicas": replicas,
    "rows": rows,
}


@functools.cache
def undisturbed(name):
    """What a program gives in this thread, and how many reports come of each moment."""
    counts = Counter()
    report_to(lambda moment: counts.update([moment]))
    with dask.config.set(scheduler="sync"):
        try:
            return PROGRAMS[name](), counts
        finally:
            report_to(None)


def same_bits(first, second):
    if isinstance(first, tuple | list):
        pairs = zip(first, second, strict=True)
        return len(first) == len(second) and all(same_bits(a, b) for a, b in pairs)
    return numpy.asarray(first).tobytes() == numpy.asarray(second).tobytes()


# ------------------------------------------------------------------------------ what may happen

GENTLE = ["new worker", "retired", "paused"]  # nobody is killed
EVENTS = ["one killed", "all killed", "restarted", "cluster restarted", "stopped", *GENTLE]
STANDS = 0.3  # seconds, of a process that is stopped
CALLS = {  # that end when the worker's model has
    "stopped": lambda client, address: stand_still(client, address),
    "retired": lambda client, address: client.retire_workers([address], close_workers=True),
    "restarted": lambda client, address: client.restart_workers([address], timeout=60),
    "cluster restarted": lambda client, address: client.restart(timeout=60),
}


@contextlib.contextmanager
def happening(client, event, address, is_over):
    """It has begun when the context is entered, and has ended after it; ``is_over``: at once."""
    count = len(client.ncores())
    call = threading.Thread(target=CALLS.get(event, lambda *_: None), args=(client, address))
    call.start()
    if event == "one killed":
        kill(client, address)
    elif event == "all killed":
        kill(client, *client.ncores())
    elif event == "paused":
        become(client, address, Status.paused)
    elif event == "new worker":
        client.cluster.scale(len(client.cluster.worker_spec) + 1)
    # a worker that is paused and has memory goes on by itself, before anybody may see it
    if event not in ("paused", "stopped"):
        wait_until(lambda: len(client.ncores()) > count or address not in running(client))
    if is_over:
        call.join()
    yield
    call.join()
    if event == "paused":
        become(client, address, Status.running)


def stand_still(client, address):
    """Stops a worker's process for a while."""
    (pid,) = client.run(os.getpid, workers=[address]).values()
    os.kill(pid, signal.SIGSTOP)
    time.sleep(STANDS)
    os.kill(pid, signal.SIGCONT)


def become(client, address, status):
    client.run(lambda dask_worker: setattr(dask_worker, "status", status), workers=[address])


def victim(client, watch):
    """A worker whose model waits at the gate; any, if it waits in this process."""
    pids = {pid for _, pid in watch.gate.arrived()}
    if os.getpid() in pids:
        return min(client.ncores())
    nannies = client.cluster.workers.values()
    return min([nanny.worker_address for nanny in nannies if nanny.pid in pids])


def happens(client, event, watch, program, is_over=False):
    """Lets an event happen while models wait; then these go on, until one has come further.

    ``is_over``: it has ended before; then no model of a worker may wait.
    """
    wait_until(lambda: watch.gate.arrived() or program.done())
    if not watch.gate.arrived():
        return
    with happening(client, event, victim(client, watch), is_over):
        before = watch.count()
        watch.gate.open()
        wait_until(lambda: watch.count() > before or program.done())
