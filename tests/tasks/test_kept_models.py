"""A large model goes to a cluster once, and each worker loads it once an evaluation."""

import functools
import os
from collections import Counter

import dask
import numpy as np
import pytest
from clusters import cluster, kill
from numpy.testing import assert_array_equal
from probes import lines, write
from waiting import wait_until

import daskgrad as dg
from daskgrad.tasks import kept_models

X = np.array([0.5])
ITEMS = list(range(0, 4000, 50))


def rebuilt(table, log):
    write(log, f"loaded {os.getpid()}")
    return Survey(table, log)


class Survey:
    """An object that says when it is pickled and loaded, and counts its runs."""

    def __init__(self, table, log):
        self.table = table
        self.log = str(log)
        self.runs = 0

    def __reduce__(self):
        write(self.log, "pickled")
        return rebuilt, (self.table, self.log)

    def term(self, item, x):
        return np.sum(np.sin(x * self.table[item : item + 50]))

    def once(self, item, x):
        """Its gradient is the number of its runs."""
        self.runs += 1
        return self.runs * np.sum(x)


@pytest.fixture
def survey(tmp_path):
    (tmp_path / "log").touch()
    return Survey(np.random.default_rng(0).random(20_000), tmp_path / "log")


def counted(survey):
    """How often the object was pickled since this was asked last, and loaded, by processes."""
    found = Counter(lines(survey.log))
    open(survey.log, "w").close()
    return found.pop("pickled", 0), found


@pytest.fixture
def sent(monkeypatch):
    """The names of the models that were sent to be kept."""
    names, keep = [], kept_models.keep
    monkeypatch.setattr(
        kept_models, "keep", lambda *args: (names.append(args[1].name), keep(*args))[1]
    )
    return names


def total(array):
    return np.sum(array)


def closure(survey):
    def term(item, x):
        return survey.term(item, x)

    return term


def of_nodes(survey):
    return lambda x: dg.sum([dg.delayed(survey.term)(item, x) for item in ITEMS])


def of_models(survey):
    funs = [functools.partial(survey.term, item) for item in ITEMS[:2]]
    return lambda x: dg.sum([dg.delayed(fun)(x) for fun in funs])


PROGRAMS = {
    "sum of a method": lambda survey: lambda x: dg.map_sum(survey.term, ITEMS, x),
    "sum of a closure": lambda survey: lambda x: dg.map_sum(closure(survey), ITEMS, x),
    "sum of a partial": lambda survey: (
        lambda x: dg.map_sum(functools.partial(Survey.term, survey), ITEMS, x)
    ),
    "array terms": lambda survey: (
        lambda x: dg.delayed(total)(dg.map_sum(lambda item, x: survey.term(item, x) * x, ITEMS, x))
    ),
    "graph of a method": of_nodes,
    "graph of partials": of_models,
}


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_model_is_sent_once_and_loaded_once_a_worker_and_evaluation(
    client, survey, sent, program
):
    fun = PROGRAMS[program](survey)
    with dask.config.set(scheduler="sync"):
        expected = dg.grad(fun)(X)
    counted(survey)
    gradient = dg.grad(fun)
    count = 2 if program == "graph of partials" else 1
    for _ in range(3):
        assert_array_equal(gradient(X), expected)
        pickled, loaded = counted(survey)
        assert pickled == count
        assert set(loaded.values()) <= {1, count}
    assert len(sent) == count


def test_threads_of_a_worker_load_it_once(survey):
    with cluster(n_workers=1, threads_per_worker=4):
        dg.grad(PROGRAMS["sum of a method"](survey))(X)
        assert set(counted(survey)[1].values()) == {1}


def test_dask_gets_a_lazy_sum_with_one_model(client, survey):
    node = dg.map_sum(survey.term, ITEMS, X)
    dask.compute(node)
    assert set(counted(survey)[1].values()) == {1}


def test_an_object_that_changes_is_sent_again(client, survey, sent):
    gradient = dg.grad(PROGRAMS["sum of a method"](survey))
    before = gradient(X)
    survey.table[:] = 2 * survey.table
    after = gradient(X)
    with dask.config.set(scheduler="sync"):
        assert_array_equal(after, gradient(X))
    assert not np.array_equal(before, after)
    assert len(sent) == 2


def test_a_small_model_travels_with_its_tasks(client, sent):
    dg.grad(lambda x: dg.map_sum(Survey.term, [Survey(np.ones(9), os.devnull)], 3, x))(X)
    assert not sent


def test_what_a_model_keeps_in_itself_lasts_for_one_evaluation(client, survey):
    gradient = dg.grad(lambda x: dg.map_sum(survey.once, ITEMS[:1], x))
    expected = gradient(X)
    for _ in range(3):  # more evaluations than workers
        assert_array_equal(gradient(X), expected)
    assert_array_equal(expected, [1.0])


def test_annotations_are_not_the_kept_models(client, survey, sent):
    first, _ = client.scheduler_info()["workers"]
    with dask.annotate(workers=[first]):
        expected = dg.grad(PROGRAMS["sum of a method"](survey))(X)
    kept = [key for key, found in restrictions(client).items() if "term" in key and not found]
    assert len(kept) == 1
    assert_array_equal(dg.grad(PROGRAMS["sum of a method"](survey))(X), expected)
    assert len(sent) == 1


def restrictions(client):
    def look(dask_scheduler):
        tasks = dask_scheduler.tasks.items()
        return {str(key): bool(task.worker_restrictions) for key, task in tasks}

    return client.run_on_scheduler(look)


@pytest.mark.timeout(240)
def test_it_survives_the_death_of_workers_and_a_restart(frail, survey, sent):
    gradient = dg.grad(PROGRAMS["sum of a method"](survey))
    expected = gradient(X)
    for address in list(frail.ncores()):
        kill(frail, address)
        wait_until(lambda: len(frail.ncores()) == 2)
        assert_array_equal(gradient(X), expected)
    assert len(sent) == 1
    frail.restart()
    assert_array_equal(gradient(X), expected)
    assert len(sent) == 2


def test_the_oldest_are_dropped(client, survey, sent, monkeypatch):
    monkeypatch.setattr(kept_models, "MOST", 2**18)
    gradient = dg.grad(PROGRAMS["sum of a method"](survey))
    for number in range(3):  # 160 kB each: one is kept besides
        survey.table[0] = number
        gradient(X)
    held = vars(client)["_daskgrad_models"]
    assert len(held) == 1
    gradient(X)
    assert len(sent) == 3
    survey.table[0] = 0
    gradient(X)
    assert len(sent) == 4
