"""Effects beside the value: logs, clocks, counts, random numbers."""

import functools
import logging
import time

import numpy as np

import daskgrad as dg
from style_pairs.pairs import SERIES, Pair, T, X, Y, misfit, of_model, of_sum

log = logging.getLogger(__name__)

# -------------------------------------------------------------------------------------------- logs


def with_debug(p, t, y):
    r = y - p[0] * np.exp(-p[1] * t)
    log.debug("parameters %s", p)
    return np.sum(r**2)


def if_debugged(item, p):
    t, y = item
    r = y - p[0] * np.exp(-p[1] * t)
    if log.isEnabledFor(logging.DEBUG):
        log.debug("residuals %s", dg.value(r))
    return np.sum(r**2)


def debugged_objective(p):
    log.debug("an evaluation")
    return dg.delayed(misfit)(p, T, Y)


# ------------------------------------------------------------------------------- clocks and counts

TIMES_TAKEN: list[float] = []
EVALUATIONS = 0
HISTORY: list[int] = []


def timed(fun):
    @functools.wraps(fun)
    def inner(*args, **kwargs):
        begin = time.perf_counter()
        value = fun(*args, **kwargs)
        TIMES_TAKEN.append(time.perf_counter() - begin)
        return value

    return inner


@timed
def of_clock(p, t, y):
    return np.sum((y - p[0] * np.exp(-p[1] * t)) ** 2)


def penalised(p):
    return dg.delayed(misfit)(p, T, Y) + 0.1 * np.sum(p**2)


def counting(p):
    global EVALUATIONS
    EVALUATIONS += 1
    return dg.delayed(misfit)(p, T, Y) + 0.1 * np.sum(p**2)


def remembering(p):
    HISTORY.append(len(HISTORY))
    return dg.delayed(misfit)(p, T, Y) + 0.1 * np.sum(p**2)


def with_progress(p):
    if EVALUATIONS < 0:
        print("evaluations:", EVALUATIONS)
    return dg.delayed(misfit)(p, T, Y) + 0.1 * np.sum(p**2)


# ---------------------------------------------------------------------------------- random numbers


def sampled(p, count):
    noise = np.random.default_rng(42).standard_normal(count)
    return np.mean((p[0] + np.exp(p[1]) * noise) ** 2)


def of_noise(p, noise):
    return np.mean((p[0] + np.exp(p[1]) * noise) ** 2)


NOISE = np.random.default_rng(42).standard_normal(100)

PAIRS = [
    of_model("log.debug in a model", with_debug, T, Y),
    of_sum("log.debug for items, if it is enabled", if_debugged, SERIES),
    Pair(
        "log.debug in the objective", lambda p: dg.delayed(misfit)(p, T, Y), debugged_objective, X
    ),
    of_model("a decorator that takes the time", of_clock, T, Y),
    Pair("a global count of evaluations", penalised, counting, X),
    Pair("a list of evaluations", penalised, remembering, X),
    Pair("a print now and then in the objective", penalised, with_progress, X),
    of_model("a seeded generator in the model", sampled, 100, plain=(of_noise, NOISE)),
]
