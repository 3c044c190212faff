"""The whole table of the sweep, which is made when its first entry is looked at."""

import functools
import importlib
from collections.abc import Sequence

import autograd.numpy as anp
import pytest
import sweep
from autograd.numpy import numpy_wrapper

MODULES = (  # each enters its functions when it is imported
    *("arrange", "composed", "interpolate", "linalg", "matrices", "numpy", "roots", "scipy"),
    *("special", "statistics", "ufuncs"),
)


@functools.cache
def made():
    from daskgrad.autodiff.rules.declaration import settle

    settle()  # tests look at rules before the first trace imports them
    for name in MODULES:
        importlib.import_module(f"functions_{name}")
    return sweep.TABLE


class Entries(Sequence):
    """Every so many entries of the table."""

    def __init__(self, start=0, step=1):
        self._every = slice(start, None, step)

    def __getitem__(self, number):
        return made()[self._every][number]

    def __len__(self):
        return len(made()[self._every])


TABLE = Entries()
RUNS = 72  # tests, of about eight entries: a test of its own costs more than most of them
in_runs = pytest.mark.parametrize("entries", [Entries(n, RUNS) for n in range(RUNS)],
    ids=list(map(str, range(RUNS))))

HANDED_ON = {  # what autograd composes -> the primitive that gets all arguments as they are
    anp.mean: numpy_wrapper._primitive_mean,
    anp.std: numpy_wrapper._primitive_std,
    anp.var: numpy_wrapper._primitive_var,
    anp.linalg.norm: anp.linalg._primitive_norm,
}
