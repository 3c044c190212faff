"""Growth: what a program of N pieces costs grows with N, counted in calls, tasks and bytes."""

import itertools
import math
import sys

import cloudpickle
import dask
import pytest
from families import FAMILIES, GRADIENTS
from lengths import in_short

N = 48
FACTOR = 4
EXPONENT = 1.1


def exponent(few, many):
    return math.log(many / few) / math.log(FACTOR)


def calls(run):
    """The calls of Python and C functions while something runs in this thread."""
    count = itertools.count()

    def profile(frame, event, arg):
        if event in ("call", "c_call"):
            next(count)

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        run()
    finally:
        sys.setprofile(before)
    return next(count)


def test_growth_is_measured():
    squares = [calls(lambda n=n: [len(()) for _ in range(n * n)]) for n in (N, FACTOR * N)]
    assert exponent(*squares) == pytest.approx(2.0, abs=0.01)


WAYS = {"by Dask": 0.0, "in line": 1000.0}
CASES = [  # each fourth family in one of the two ways; all in both at length
    pytest.param(
        name, seconds, id=f"{name}-{way}", marks=[pytest.mark.long] * (number != place % 8)
    )
    for place, name in enumerate(FAMILIES)
    for number, (way, seconds) in enumerate(WAYS.items())
]


@pytest.mark.parametrize(("name", "seconds"), CASES)
def test_calls_grow_with_the_number_of_pieces(name, seconds):
    with dask.config.set({"scheduler": "sync", "daskgrad.inline.seconds": seconds}):
        FAMILIES[name](2)()  # what is looked up once
        counts = [calls(FAMILIES[name](count)) for count in (N, FACTOR * N)]
    assert exponent(*counts) < EXPONENT, counts


def sizes(run):
    """The number of tasks that are handed to a scheduler, and their bytes, each task alone."""
    tasks = {}

    def scheduler(graph, keys, **options):
        tasks.update(graph.__dask_graph__() if hasattr(graph, "__dask_graph__") else graph)
        return dask.get(tasks, keys, **options)

    with dask.config.set(scheduler=scheduler):
        run()
    return len(tasks), sum([len(cloudpickle.dumps(task)) for task in tasks.values()])


@in_short("name", GRADIENTS, *list(GRADIENTS)[::3])
def test_tasks_and_their_bytes_grow_with_the_number_of_pieces(name):
    few, many = [sizes(FAMILIES[name](count)) for count in (N, FACTOR * N)]
    assert exponent(few[0], many[0]) < EXPONENT, (few, many)
    assert exponent(few[1], many[1]) < EXPONENT, (few, many)
