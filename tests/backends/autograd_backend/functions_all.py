"""The whole table of the sweep."""

import autograd.numpy as anp
import functions_arrange
import functions_composed
import functions_interpolate
import functions_linalg
import functions_matrices
import functions_numpy
import functions_roots
import functions_scipy
import functions_special
import functions_statistics
import functions_ufuncs
import pytest
from autograd.numpy import numpy_wrapper
from sweep import TABLE as TABLE

from daskgrad.backends.autograd.rules.known import settle

settle()  # tests look at rules before the first trace imports them

MODULES = (  # each enters its functions when it is imported
    functions_arrange,
    functions_composed,
    functions_interpolate,
    functions_linalg,
    functions_matrices,
    functions_numpy,
    functions_roots,
    functions_scipy,
    functions_special,
    functions_statistics,
    functions_ufuncs,
)

RUN = 8  # entries of the table, which are one test: a test of its own costs more than most of them
RUNS = [TABLE[start : start + RUN] for start in range(0, len(TABLE), RUN)]
in_runs = pytest.mark.parametrize(
    "entries", RUNS, ids=[f"{run[0].name}...{run[-1].name}-{n}" for n, run in enumerate(RUNS)]
)

HANDED_ON = {  # what autograd composes -> the primitive that gets all arguments as they are
    anp.mean: numpy_wrapper._primitive_mean,
    anp.std: numpy_wrapper._primitive_std,
    anp.var: numpy_wrapper._primitive_var,
    anp.linalg.norm: anp.linalg._primitive_norm,
}
