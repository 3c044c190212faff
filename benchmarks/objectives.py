"""How fast objectives of one to twenty models are, against autograd's tape on the same arithmetic.

    python benchmarks/objectives.py [--quick]

What is measured is a call of ``dg.value_and_grad`` in the calling thread, with one BLAS thread and
nobody asked to compile anything: once it is one program, and as where it cannot be one, so that its
graph is recorded and run at each call. The peer is ``autograd.value_and_grad`` of the
same lines, in which models are plain functions and sums are loops. All take turns in rounds; a time
is the least processor time of a call over the rounds.

Before any time is taken, value and gradient are compared: the program's with those of the first
call, bit by bit, and both with autograd's but for rounding. The claims: each objective takes at
most 0.3 of autograd's time as a program, and at most 1.0 by its graph.
"""

# ruff: noqa: E402  the number of threads is set before NumPy is imported

import os

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"

import argparse
import functools
import operator
import sys
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import autograd
import autograd.numpy as np
import dask
import numpy

import daskgrad as dg
from daskgrad.derivatives.objectives import Objective
from report import Claim, at_most, judged

PROGRAM_AT_MOST, GRAPH_AT_MOST = 0.3, 1.0
CALLS = 24  # after which it is one program
ROUNDING = 1e-10

random = numpy.random.default_rng(0)
X = numpy.linspace(0.1, 1.0, 10)
ROWS = random.standard_normal((50, 10))
SIGNS = numpy.sign(random.standard_normal(50))
ITEMS = [numpy.cos(numpy.arange(10.0) + k) for k in range(12)]
PARAMETERS = {"w": X, "b": 0.5, "layers": [0.1 * random.standard_normal((5, 10)), X[:5]]}

# ----------------------------------------------------------------------------------------- models


def decay(x):
    return np.sum(np.exp(-x))


def growth(x):
    return np.sum(np.log1p(x * x))


def prior(x):
    return 0.5 * np.sum(x**2)


def wave(x):
    return np.sin(x) * np.cos(0.5 * x)


def running(x):
    return np.cumsum(x) * x


def misfit(x, item):
    return np.sum((item - x) ** 2) / (1.0 + np.sum(item * item))


def logistic(w, rows, signs):
    return np.sum(np.log1p(np.exp(-signs * np.dot(rows, w))))


def layer(p, x):
    return np.tanh(np.dot(p["layers"][0], x) + p["layers"][1])


def rosenbrock(x):
    return np.sum(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1.0 - x[:-1]) ** 2)


def of_rows(rows, x):
    return np.sum((np.dot(rows, x) - 1.0) ** 2)


def student(x, place, scale):
    return np.sum(np.log1p(((x - place) / scale) ** 2)) + np.log(scale)


# ------------------------------------------------------------------------------------- objectives

PLAIN = SimpleNamespace(
    delayed=lambda fun: fun,
    map_sum=lambda fun, items, *shared: sum([fun(item, *shared) for item in items]),
    map_mean=lambda fun, items, *shared: sum([fun(i, *shared) for i in items]) / len(items),
    reduce_sum=lambda fun, rows, *shared: fun(rows, *shared),
    sum=lambda terms: functools.reduce(operator.add, terms),
)


class Fit:
    """An objective that is a method of an object, with its data and models."""

    def __init__(self, model: Callable, regular: Callable):
        self.model, self.regular = model, regular
        self.rows, self.signs, self.weight = ROWS, SIGNS, 0.1

    def loss(self, w):
        return self.model(w, self.rows, self.signs) + self.weight * self.regular(w)


def objectives(ways: Any) -> dict[str, tuple[Callable, tuple]]:
    """By name a function that calls models, made and summed in one of the ways, and arguments."""
    model = ways.delayed
    a, b, c, d, e = map(model, (decay, growth, prior, wave, running))
    data, hidden, valley, tail = map(model, (logistic, layer, rosenbrock, student))
    factors = [0.1 * k + 0.5 for k in range(20)]

    def chain(x):
        y = d(x)
        return a(e(y)) + 0.5 * b(y)

    def long_chain(x):
        for _ in range(8):
            x = d(x)
        return c(x)

    def shared_state(x):
        state = e(d(x))
        return a(state) * b(state) - c(state) / 3.0

    def network(p, x):
        return c(hidden(p, x)) + p["b"] * c(p["w"])

    def posterior(x, place, scale):
        return tail(x, place, scale) + c(x) + 0.5 * place**2

    def twenty(x):
        return ways.sum([b(x * factor) for factor in factors])

    term = lambda item, x: misfit(x, item)  # noqa: E731
    return {
        "one model": (lambda x: a(x), (X,)),
        "one model, twice": (lambda x: a(x) + a(x), (X,)),
        "two models": (lambda x: a(x) + 0.5 * b(x), (X,)),
        "a product": (lambda x: a(x) * b(x), (X,)),
        "a quotient": (lambda x: a(x) / b(x), (X,)),
        "a chain of two": (lambda x: b(d(x)), (X,)),
        "a chain that forks": (chain, (X,)),
        "a chain of nine": (long_chain, (X,)),
        "a shared state": (shared_state, (X,)),
        "a valley and a prior": (lambda x: valley(x) + 0.1 * c(x), (X,)),
        "a method": (Fit(data, c).loss, (X,)),
        "data as arguments": (lambda w, rows, s: data(w, rows, s) + c(w), (X, ROWS, SIGNS)),
        "a network of a dict": (network, (PARAMETERS, X)),
        "numbers": (posterior, (X, 0.3, 2.0)),
        "a small map_sum": (lambda x: ways.map_sum(term, ITEMS, x), (X,)),
        "a map_sum and a prior": (lambda x: ways.map_sum(term, ITEMS, x) + c(x), (X,)),
        "a map_mean": (lambda x: ways.map_mean(term, ITEMS, x), (X,)),
        "a reduce_sum": (lambda x: ways.reduce_sum(of_rows, ROWS, x), (X,)),
        "five terms": (lambda x: ways.sum([m(x) for m in (a, b, c, valley, a)]), (X,)),
        "twenty models": (twenty, (X,)),
    }


def by_graph(fun: Callable) -> Callable:
    """The gradient of a function that is never one program, though its models have programs."""
    gradient = dg.value_and_grad(fun)
    for cell in gradient.__closure__ or ():
        if isinstance(cell.cell_contents, Objective):
            cell.cell_contents.call = lambda args, otherwise, out: otherwise()
    return gradient


# ---------------------------------------------------------------------------------------- measured


def flat(found: tuple[Any, Any]) -> numpy.ndarray:
    return numpy.concatenate(list(map(numpy.ravel, leaves_of(found))))


def leaves_of(tree: Any) -> list[Any]:
    if isinstance(tree, dict):
        return [leaf for name in sorted(tree) for leaf in leaves_of(tree[name])]
    if isinstance(tree, list | tuple):
        return [leaf for each in tree for leaf in leaves_of(each)]
    return [tree]


def time_of(call: Callable[[], Any], seconds: float) -> float:
    """The processor time of a call, of as many as fit."""
    begin, count = time.process_time(), 0
    while (spent := time.process_time() - begin) < seconds:
        for _ in range(4):
            call()
        count += 4
    return spent / count


def measure(rounds: int, seconds: float) -> list[tuple[str, float, float, float]]:
    """By objective the seconds of autograd, of the program and of the graph."""
    rows = []
    plain = objectives(PLAIN)
    for name, (fun, args) in objectives(dg).items():
        whole, graph = dg.value_and_grad(fun), by_graph(fun)
        taped = autograd.value_and_grad(plain[name][0])
        first, expected = flat(whole(*args)), flat(taped(*args))
        for _ in range(CALLS):
            found = flat(whole(*args))
            assert found.tobytes() == first.tobytes() == flat(graph(*args)).tobytes(), name
        assert numpy.allclose(first, expected, rtol=ROUNDING, atol=ROUNDING), name
        peers = [functools.partial(peer, *args) for peer in (taped, whole, graph)]
        times = [[time_of(peer, seconds) for peer in peers] for _ in range(rounds)]
        rows.append((name, *map(min, zip(*times, strict=True))))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="one short round, no claims")
    options = parser.parse_args()
    rounds, seconds = (2, 2e-3) if options.quick else (15, 2e-2)
    with dask.config.set({"daskgrad.inline.seconds": 60}):
        rows = measure(rounds, seconds)
    claims: list[Claim] = []
    print(f"{'objective':24}{'autograd µs':>12}{'program':>10}{'graph':>10}")
    for name, taped, program, graph in rows:
        print(f"{name:24}{taped * 1e6:12.1f}{program / taped:10.2f}{graph / taped:10.2f}")
        claims.append(at_most(f"{name}, program over autograd", program / taped, PROGRAM_AT_MOST))
        claims.append(at_most(f"{name}, graph over autograd", graph / taped, GRAPH_AT_MOST))
    sys.exit(judged(claims, options.quick))


if __name__ == "__main__":
    main()
