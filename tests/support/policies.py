"""Policies for pullbacks, and ways to move one, that tests share.

Workers that the tests start import this module.
"""

import pickle
from dataclasses import dataclass

import cloudpickle
import dask
import dask.local

import daskgrad as dg
from daskgrad.autodiff.models.pullbacks import capture
from daskgrad.autodiff.models.tracing import Active
from daskgrad.autodiff.models.travel import CONFIG, sent
from daskgrad.tasks.task_functions import TaskFunction


class Always(dg.PullbackPolicy):
    """Every tape that can be packed goes along."""

    def sends(self, tape, to_disk):
        return True


class Never(dg.PullbackPolicy):
    """Every pullback arrives empty."""

    def sends(self, tape, to_disk):
        return False


@dataclass(frozen=True)
class Only(dg.PullbackPolicy):
    """Tapes go along to a disk, or else to other processes."""

    to_disk: bool = True

    def sends(self, tape, to_disk):
        return to_disk is self.to_disk


def under(chosen):
    return dask.config.set({CONFIG: chosen})


def captured_under(chosen, fun, x):
    node = dg.delayed(fun)(dg.variable(x))
    call = (node.model, node.call, (Active(0, watched=False),), [x])
    return TaskFunction(capture, sent(chosen))(*call)


def moved(thing):
    return pickle.loads(pickle.dumps(thing))


def moving(graph, keys, **options):
    """A scheduler in this thread whose every result is pickled, as between processes."""
    submit = dask.local.synchronous_executor.submit
    pickling = {"dumps": cloudpickle.dumps, "loads": pickle.loads}
    return dask.local.get_async(submit, 1, graph, keys, **pickling)
