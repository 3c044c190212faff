"""Workers keep the memory that arrays free: while shards are open, and from the first task on."""

import inspect
import os
import platform
import subprocess
import sys
from types import SimpleNamespace

import pytest
from clusters import cluster
from lengths import in_short

import daskgrad as dg
from daskgrad.placed.worker import SumsPlugin, this_process
from daskgrad.tasks import allocator

ON_GLIBC = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="mallopt is glibc's")


def is_given_back(arrays):
    """Whether the last of so many arrays is a mapping of its own, which free() gives back.

    That is a bit in the word before what malloc returns.
    """
    import ctypes

    import numpy as np

    last = [np.empty(1_000_000) for _ in range(arrays)][-1]
    return bool(ctypes.c_size_t.from_address(last.ctypes.data - 8).value & 2)


# An array that fits into what was freed before is no mapping, whatever the threshold. Imports that
# compile their modules leave pieces of 6 MB and more, and the few arrays leave their own 40: so
# several are made at a time, the last of which finds no room there.
FEW, MANY = 5, 20

# A server that forks workers may be older than the nanny that sets the variable: then their glibc
# has not read it, and raises its threshold by itself when the first array is freed.
SPAWN = {"distributed.worker.multiprocessing-method": "spawn"}

PROGRAM = f"""
from daskgrad.tasks import allocator

{inspect.getsource(is_given_back)}

before = is_given_back({MANY})
assert allocator.keep_freed_memory(None)
during = is_given_back({FEW})
assert allocator.restore()
print(before, during, is_given_back({MANY}))
"""


@ON_GLIBC
def test_arrays_are_not_given_back_until_it_is_put_back():
    """With the threshold of Dask's nanny each array of more than 128 kB is."""
    environment = {**os.environ, "MALLOC_TRIM_THRESHOLD_": "65536"}
    output = subprocess.check_output([sys.executable, "-c", PROGRAM], env=environment, text=True)
    assert output.split() == ["True", "False", "True"]


def term(item, x):
    return item * x


@ON_GLIBC
@in_short(("is_on", "limit"), [(True, 2**33), (False, 2**33), (True, 2**29)], (True, 2**33))
def test_workers_have_it_while_shards_are_open_and_from_the_first_task_on(is_on, limit):
    """A worker of 512 MB must not keep 8 of them for an array that is gone."""
    settings = {"daskgrad.worker.malloc": is_on, **SPAWN}
    keeps = is_on and limit == 2**33
    with cluster(settings, n_workers=1, memory_limit=limit) as client:

        def are_given_back(arrays):
            (answer,) = client.run(is_given_back, arrays).values()
            return answer

        assert are_given_back(MANY)
        with dg.place([1.0, 2.0]) as shards:
            assert dg.grad(lambda x: dg.map_sum(term, shards, x))(1.0) == 3.0
            assert are_given_back(FEW) != keeps
        assert are_given_back(MANY)
        assert dg.grad(lambda x: dg.delayed(term)(2.0, x))(1.0) == 2.0
        assert are_given_back(MANY) != keeps


@pytest.mark.parametrize(("process", "calls"), [(this_process(), []), (("far", 1), [2**33, "off"])])
def test_the_clients_own_process_is_left_alone(process, calls, monkeypatch):
    found = []
    monkeypatch.setattr(allocator, "keep_freed_memory", found.append)
    monkeypatch.setattr(allocator, "restore", lambda: found.append("off"))
    memory = SimpleNamespace(memory_limit=2**33)
    plugin = SumsPlugin("sums", True, process)
    worker = SimpleNamespace(handlers={}, memory_manager=memory)
    plugin.setup(worker)
    plugin.teardown(worker)
    assert found == calls
