"""Programs for the benchmark of killed workers: their pullbacks tell when they begin and end.

A model multiplies matrices, which takes some tens of milliseconds back. The first and the last step
of its pullback write a line to a file: what, in which process, and when. The clock is that of the
machine, and the same for all its processes.
"""

import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import autograd.numpy as np
import numpy
from autograd.extend import defvjp, primitive

import daskgrad as dg

NUMBERS = 5  # in the point: one for each product
SIZE = 300  # of the matrices


class Line(NamedTuple):
    what: str
    process: int
    when: float


def read(path: Path) -> Iterator[Line]:
    """The lines of a file that may be written to meanwhile."""
    for line in path.read_text().split("\n")[:-1]:
        what, process, when = line.split()
        yield Line(what, int(process), float(when))


def write(path: Path, what: str) -> None:
    with open(path, "a") as file:  # one short line: appended whole
        file.write(f"{what} {os.getpid()} {time.monotonic()}\n")


@primitive
def marked(x: Any, path: Path, what: str) -> Any:
    """The identity, whose pullback writes a line."""
    return x


def marked_vjp(ans: Any, x: Any, path: Path, what: str) -> Any:
    def marked_pullback(cotangent: Any) -> Any:
        write(path, what)
        return cotangent

    return marked_pullback


defvjp(marked, marked_vjp, None, None)


def chain(number: int, x: Any, path: Path) -> Any:
    """As many numbers as the point has, from a model whose pullback writes two lines."""
    x = marked(x, path, "end")
    weights = numpy.random.default_rng(number).normal(0.0, SIZE**-0.5, (SIZE, SIZE))
    state = weights
    for each in x:
        state = np.tanh(np.dot(weights * each, state))
    return marked(x * (np.sum(state * state) / SIZE), path, "begin")


def term(number: int, x: Any, path: Path) -> Any:
    return np.sum(np.tanh(chain(number, x, path)))


def mixed(values: Any) -> Any:
    """An array each cotangent of which depends on all values."""
    return np.sin(sum(values))


def point() -> Any:
    return np.linspace(0.5, 1.0, NUMBERS)


def array_graph(numbers: Sequence[int], x: Any, path: Path) -> Any:
    """A graph with an array as its output; every model's pullback waits for all models."""
    return dg.delayed(mixed)([dg.delayed(chain)(number, x, path) for number in numbers])


def graph(numbers: Sequence[int], x: Any, path: Path) -> Any:
    return dg.delayed(np.sum)(array_graph(numbers, x, path))


def turn(state: Any, number: Any, x: Any, path: Path) -> Any:
    return np.tanh(state + chain(int(number), x, path))


def loop(numbers: Sequence[int], x: Any, path: Path) -> Any:
    """A loop with a step for each number."""
    last = dg.scan(turn, x, len(numbers), x, path, xs=numpy.array(numbers), checkpoints=4)
    return dg.delayed(np.sum)(last)


def turn_of_block(padded: Any, numbers: Any, x: Any, path: Path) -> Any:
    pushed = np.mean(chain(int(numbers[1]), x, path))
    return np.tanh(padded[1:-1] + 0.5 * (padded[2:] - padded[:-2]) * pushed)


def domain(numbers: Sequence[int], x: Any, path: Path) -> Any:
    """Four blocks that exchange their edges after each step."""
    places = numpy.array(numbers[:4], float)
    grids = dg.grid(places / len(places), 4), dg.grid(places, 4)
    return dg.sum(dg.map_overlap(turn_of_block, *grids, x, path, steps=4).map(np.sum))


def sum_of_terms(numbers: Any, x: Any, path: Path) -> Any:
    return dg.map_sum(term, numbers, x, path)
