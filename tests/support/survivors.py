"""Programs that take their time in both passes, and what may happen to workers meanwhile.

Workers import this module, for the rules of ``slowly``.
"""

import contextlib
import functools
import os
import signal
import sys
import threading
import time

import autograd.numpy as np
import dask
import numpy
import pytest
from autograd.extend import defjvp, defvjp, primitive
from distributed.core import Status

import daskgrad as dg

X = numpy.linspace(-1.0, 1.0, 5)
V = numpy.linspace(0.5, 2.0, 5)
ITEMS = [numpy.linspace(0.0, 1.0, 5) * 10.0 ** (number % 7) for number in range(24)]
NUMBERS = numpy.linspace(1.0, 2.0, 24)
SECONDS = 0.012


@primitive
def slowly(x):
    """The identity, which takes its time, as do its pullback and its tangent."""
    time.sleep(SECONDS)
    return x


def slow_pullback(g):
    time.sleep(SECONDS)
    return g


defvjp(slowly, lambda ans, x: slow_pullback)
defjvp(slowly, lambda g, ans, x: slow_pullback(g))

# ----------------------------------------------------------------------------------- programs


def piece(x, number):
    return np.sin(slowly(x) * (number + 1.0))


def mixed(pieces):
    return np.tanh(sum(pieces))


def total(y):
    return np.sum(slowly(y))


def vector(items, x):
    """Ten models whose cotangents all depend on all of them."""
    return dg.delayed(mixed)([dg.delayed(piece)(x, number) for number in range(10)])


def number(items, x):
    return dg.delayed(total)(vector(items, x))


def term(item, x):
    return np.sum(np.sin(item * slowly(x)))


def scaled_term(pair, x):
    return pair[1] * term(pair[0], x)


def placed_sum(items, x):
    return dg.map_sum(term, items, x) ** 2


def zipped_sum(items, x):
    return dg.map_sum(scaled_term, dg.zip(items, NUMBERS), x)


def wave(item, x):
    return np.sin(item * slowly(x))


def vector_sum(items, x):
    return dg.map_sum(wave, items, x)


def step(u, row, x):
    return np.sin(slowly(u) * x + row)


def loop(items, x):
    """Steps whose states are kept here and there."""
    return dg.delayed(total)(dg.scan(step, x, len(ITEMS), x, xs=numpy.stack(ITEMS), checkpoints=4))


def smooth(padded, x):
    return slowly(padded[1:-1]) + 0.1 * np.sin(padded[2:] + padded[:-2]) * x[0]


def domain(items, x):
    """Blocks that exchange their edges."""
    blocks = dg.map_overlap(smooth, dg.grid(NUMBERS, 3), x, steps=6, fuse=2)
    return dg.sum(blocks.map(total))


def gradient_of(objective):
    return lambda items: dg.value_and_grad(lambda x: objective(items, x))(X)


def tangent_of(objective):
    return lambda items: dg.jvp(lambda x: objective(items, x), (X,), (V,))


def curvature_of(objective):
    return lambda items: dg.hvp(lambda x: objective(items, x), (X,), (V,))


def pulled(objective):
    """A pullback that is held, and called three times."""

    def run(items):
        value, pullback = dg.vjp(lambda x: objective(items, x), X)
        cotangents = [V, -V, numpy.stack([V, 2.0 * V])]
        return [value, *[pullback(cotangent)[0] for cotangent in cotangents]]

    return run


def own_term(pair, x):
    own, item = pair
    return np.sum(np.sin(item * slowly(x) + own))


def descent(items):
    """Parameters of the items' own that learn where these are."""
    own = numpy.outer(NUMBERS, V)
    params = {"x": X.copy(), "own": items.attach(own) if isinstance(items, dg.Shards) else own}
    step = dg.value_and_grad(lambda x, own: dg.map_sum(own_term, dg.zip(own, items), x), (0, 1))
    optimiser = dg.optim.Adam(0.1)
    state = optimiser.init(params)
    for _ in range(4):
        _, (of_x, of_own) = step(params["x"], params["own"])
        optimiser.update(params, {"x": of_x, "own": of_own}, state)
    return [params["x"], numpy.asarray(params["own"])]


PROGRAMS = {  # functions of the items, placed or not, that return arrays in pytrees
    "graph": gradient_of(number),
    "placed": gradient_of(placed_sum),
    "zip": gradient_of(zipped_sum),
    "attached": descent,
    "loop": gradient_of(loop),
    "hvp of a loop": curvature_of(loop),
    "domain": gradient_of(domain),
    "jvp of a graph": tangent_of(number),
    "jvp over placed items": tangent_of(placed_sum),
    "hvp of a graph": curvature_of(number),
    "hvp over placed items": curvature_of(placed_sum),
    "vjp of a graph": pulled(vector),
    "vjp over placed items": pulled(vector_sum),
}


@functools.cache
def undisturbed(name):
    """What a program gives in this thread, where it takes no time."""
    with dask.config.set(scheduler="sync"), pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys.modules[__name__], "SECONDS", 0.0)
        return PROGRAMS[name](ITEMS)


def same_bits(first, second):
    if isinstance(first, tuple | list):
        pairs = zip(first, second, strict=True)
        return len(first) == len(second) and all(same_bits(a, b) for a, b in pairs)
    return numpy.asarray(first).tobytes() == numpy.asarray(second).tobytes()


# ------------------------------------------------------------------------------ what may happen


def kill_one(client, chance):
    kill(client, [chance.choice(workers(client))])


def kill_all(client, chance):
    kill(client, workers(client))


def kill(client, addresses):
    """Asks nobody: a worker may be dying already."""
    for nanny in list(client.cluster.workers.values()):
        if nanny.worker_address in addresses and nanny.pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(nanny.pid, signal.SIGKILL)


def workers(client):
    return sorted(client.ncores())


def retire_one(client, chance):
    client.retire_workers([chance.choice(workers(client))], close_workers=True)
    client.cluster.scale(len(client.cluster.worker_spec) + 1)  # the cluster does not replace it


def restart_one(client, chance):
    client.restart_workers([chance.choice(workers(client))], timeout=60)


def pause_one(client, chance):
    address = chance.choice(workers(client))

    def pause(dask_worker):
        dask_worker.status = Status.paused
        dask_worker.loop.call_later(0.7, setattr, dask_worker, "status", Status.running)

    client.run(pause, workers=[address])


def join(client, chance):
    if len(workers(client)) < 3:
        client.cluster.scale(len(client.cluster.worker_spec) + 1)


EVENTS = {
    "one killed": kill_one,
    "all killed": kill_all,
    "one retired": retire_one,
    "one restarted": restart_one,
    "one paused": pause_one,
    "one joins": join,
}


def happens(client, events, chance, within):
    """Lets each of some events happen at a random moment in so many seconds; a thread, begun."""
    moments = sorted((chance.uniform(0.0, within), name) for name in events)

    def run():
        start = time.monotonic()
        for moment, name in moments:
            time.sleep(max(0.0, start + moment - time.monotonic()))
            with contextlib.suppress(OSError, IndexError, KeyError, ValueError, TimeoutError):
                EVENTS[name](client, chance)  # whom it is about may be gone

    thread = threading.Thread(target=run)
    thread.start()
    return thread
