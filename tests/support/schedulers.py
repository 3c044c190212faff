"""Dask's schedulers, and which of a table's rows run on which of them."""

import dask
import pytest

SCHEDULERS = ("sync", "threads", "processes", "cluster")


def schedulers_in_turn(name, rows):
    """Runs a test for all rows on the first scheduler and for each second row on one more, in turn.

    At length it runs for each on all.
    """
    others = len(SCHEDULERS) - 1
    short = [{0} if at % 2 else {0, 1 + at // 2 % others} for at in range(len(rows))]
    cases = [
        pytest.param(scheduler, row, marks=[pytest.mark.long] * (place not in places))
        for row, places in zip(rows, short, strict=True)
        for place, scheduler in enumerate(SCHEDULERS)
    ]
    return pytest.mark.parametrize(("scheduler", name), cases, indirect=["scheduler"])


def use_scheduler(name, request):
    """A context in which Dask computes on the named scheduler."""
    if name == "cluster":
        return request.getfixturevalue("client").as_current()
    if name == "processes":
        return dask.config.set(scheduler=name, pool=request.getfixturevalue("pool"))
    return dask.config.set(scheduler=name)
