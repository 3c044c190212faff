"""Dask's schedulers."""

import dask

SCHEDULERS = ("sync", "threads", "processes", "cluster")


def use_scheduler(name, request):
    """A context in which Dask computes on the named scheduler."""
    if name == "cluster":
        return request.getfixturevalue("client").as_current()
    if name == "processes":
        return dask.config.set(scheduler=name, pool=request.getfixturevalue("pool"))
    return dask.config.set(scheduler=name)
