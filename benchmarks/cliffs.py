"""Programs that once took many times what they should, each beside what users compare it with.

    python benchmarks/cliffs.py [--quick]

A figure is a count, or processor seconds, of one call; a ratio is the median over rounds that call
program and peer in turn, after a round that does not count. The programs, with their peers:

- balance: runs of a ``map_sum`` of 60 items of 10 ms on the busier of two; ``client.map``;
- large object: how often a worker loads one of 8 MB whose method is summed; ``dask.delayed``;
- own gradients: 1,000 groups with a parameter each; autograd's loop; in tasks, without these;
- data sets: the Jacobian of 20 data sets, a model each; SciPy's forward differences;
- BLAS threads: matrices of 300 x 300 on two threads, where BLAS may have as many; a loop with one.

``graphs.py`` has graphs of larger models, ``rules.py`` what rules (``lstsq``) cost by size. Claims:
each ratio is at most the limit beside the program.
"""

import functools
import sys
import time
from typing import Any

import autograd
import autograd.numpy as np
import dask
import numpy
from dask.callbacks import Callback
from scipy.optimize import approx_fprime
from threadpoolctl import threadpool_limits

import daskgrad as dg
from hosts import cluster
from report import at_most, judged, ratio, table

QUICK, SCALE = "--quick" in sys.argv, 10 if "--quick" in sys.argv else 1
RANDOM, POINTS = numpy.random.default_rng(0), numpy.linspace(-3.0, 3.0, 60)


def seconds(call: Any) -> float:
    start = time.process_time()
    call()
    return time.process_time() - start


def tasks(call: Any) -> int:
    keys: list[Any] = []
    with dask.config.set(scheduler="sync"), Callback(pretask=lambda key, *_: keys.append(key)):
        call()
    return len(keys)


def most(client: Any, call: Any) -> int:
    client.run(setattr, sys, "counted", 0)
    call()
    return max(client.run(getattr, sys, "counted").values())


def waiting(item: float, x: Any) -> Any:
    sys.counted += 1
    time.sleep(0.01)
    return np.sum((x - item) ** 2)


class Survey:
    def __setstate__(self, state: Any) -> None:
        sys.counted = getattr(sys, "counted", 0) + 1
        vars(self).update(state)

    def term(self, item: int, x: Any) -> Any:
        return np.sum(np.sin(x * self.table[item : item + 50]))


def summed(model: Any, items: Any) -> Any:
    return dg.grad(lambda x: dg.map_sum(model, items, x))


def on_workers(client: Any) -> list[tuple]:
    """Name, limit, what measures a call, the program, its peer, and their arguments."""
    x, items, starts = numpy.zeros(1), list(range(60 // SCALE)), list(range(0, 4_000, 50))
    survey, counted = Survey(), functools.partial(most, client)
    survey.table = numpy.ones(1_000_000 // SCALE)
    term = dask.delayed(survey).term
    mapped = functools.partial(client.map, waiting, items, pure=False)

    def delayed(x: Any) -> Any:
        return dask.compute([term(start, x) for start in starts])

    return [
        ("balance", 1.2, counted, summed(waiting, items), lambda x: client.gather(mapped(x=x)), x),
        ("large object", 1.0, counted, summed(survey.term, starts), delayed, x),
    ]


def group(item: Any, x: Any) -> Any:
    z, X = item
    return np.sum(np.exp(np.dot(X, x) + z)) - 0.5 * z**2


def misfit(amplitude: Any, centre: Any, width: Any) -> Any:
    return amplitude * np.exp(-(((POINTS - centre) / width) ** 2)) - np.cos(POINTS)


def data_sets(fit: Any, join: Any) -> Any:
    return lambda p: join([fit(p[2 * n + 1], p[2 * n + 2], p[0]) for n in range(20)])


def in_process() -> list[tuple]:
    x, z = numpy.full(5, 0.1), numpy.full(1_000 // SCALE, 0.1)
    groups = [RANDOM.normal(size=(5 + n % 46, 5)) for n in range(len(z))]
    matrices = [(0.0, each) for each in RANDOM.normal(size=(32 // SCALE, 300, 300))]
    of_all = autograd.grad(lambda X: sum([group(each, X) for each in matrices]))
    graph = data_sets(dg.delayed(misfit), dg.delayed(np.concatenate))
    p, plain, X = numpy.ones(41), data_sets(misfit, np.concatenate), numpy.eye(300)
    of_pairs = functools.partial(dg.map_sum, group)
    own, shared = [dg.grad(lambda x, z: of_pairs(dg.zip(z, groups), x), n) for n in ((0, 1), 0)]

    def loop(x: Any, z: Any) -> Any:
        return sum([group(item, x) for item in zip(z, groups, strict=True)])

    def on_threads(X: Any) -> Any:
        with dask.config.set({"daskgrad.inline.seconds": 0, "num_workers": 2}):
            return summed(group, matrices)(X)

    return [
        ("own gradients", 0.5, seconds, own, autograd.grad(loop, (0, 1)), x, z),
        ("own gradients, tasks", 2.0, tasks, own, shared, x, z),
        ("data sets", 5.0, seconds, dg.jacobian(graph), lambda p: approx_fprime(p, plain), p),
        ("BLAS threads", 1.5, seconds, on_threads, threadpool_limits.wrap(1)(of_all), X),
    ]


def compare(name: str, limit: float, measure: Any, ours: Any, peer: Any, *args: Any) -> Any:
    calls = [functools.partial(each, *args) for each in (ours, peer)]
    rounds = [list(map(measure, calls)) for _ in range(2 if QUICK else 10)][1:]
    columns = list(zip(*rounds, strict=True))
    row = (name, *[f"{numpy.median(each):.3g}" for each in columns])
    return row, at_most(name, ratio(*columns), limit)


def main() -> int:
    with cluster(2) as client:
        found = [compare(*each) for each in on_workers(client)]
    found += [compare(*each) for each in in_process()]
    rows, claims = zip(*found, strict=True)
    print(table(("program", "daskgrad", "peer"), rows))
    return judged(claims, QUICK)


if __name__ == "__main__":
    sys.exit(main())
