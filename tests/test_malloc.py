"""Workers keep the memory that arrays free, while an evaluator is open."""

import os
import platform
import subprocess
import sys

import pytest
from clusters import cluster

import daskgrad as dg

ON_GLIBC = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="mallopt is glibc's")

PROGRAM = """
import resource, sys
import numpy as np
from daskgrad.resident import malloc

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(200):
        np.ones(60_000) * 2.0
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

faults()
before = faults()
assert malloc.keep_freed_memory()
faults()
during = faults()
assert malloc.restore()
faults()
print(before, during, faults())
"""


@ON_GLIBC
def test_arrays_are_not_faulted_in_again_until_it_is_put_back():
    """With the threshold of Dask's nanny each array of 480 kB costs more than 100 page faults."""
    environment = {**os.environ, "MALLOC_TRIM_THRESHOLD_": "65536"}
    output = subprocess.check_output([sys.executable, "-c", PROGRAM], env=environment, text=True)
    before, during, after = map(int, output.split())
    assert before > 10_000
    assert during < 1000
    assert after > 10_000


def term(item, x):
    return item * x


def faults():
    import resource

    import numpy as np

    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(100):
        np.ones(60_000) * 2.0
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


@ON_GLIBC
@pytest.mark.parametrize("is_on", [True, False])
def test_the_workers_have_it_while_shards_are_open(is_on):
    with cluster({"daskgrad.worker.malloc": is_on}, n_workers=1) as client:
        with dg.place([1.0, 2.0]) as shards:
            assert dg.grad(lambda x: dg.map_sum(term, shards, x))(1.0) == 3.0
            client.run(faults)
            (open_faults,) = client.run(faults).values()
        client.run(faults)
        (closed_faults,) = client.run(faults).values()
    assert (open_faults < 1000) == is_on
    assert closed_faults > 5000
