"""What rules take: the memory of gradients by matrices of many rows or columns grows with these."""

import gc
import json
import os
import subprocess
import sys

import numpy as np
import pytest
import scipy.special
from probes import peak_bytes
from waiting import SLOW

from daskgrad.autodiff.tape import trace

LONG = {
    "lstsq": lambda a, b: np.linalg.lstsq(a, b, rcond=None)[0],
    "squares of lstsq": lambda a, b: np.linalg.lstsq(a, b, rcond=None)[1],
    "singular values of lstsq": lambda a, b: np.linalg.lstsq(a, b, rcond=None)[3],
    "pinv": lambda a, b: np.linalg.pinv(a),
    "polyfit": lambda a, b: np.polyfit(a[:, 1], b, 2),
    "qr": lambda a, b: np.linalg.qr(a)[0],
    "svd": lambda a, b: np.linalg.svd(a, full_matrices=False)[0],
}
WIDE = ("lstsq", "pinv", "qr", "svd")


def peak(fun, rows, columns):
    random = np.random.default_rng(0)
    return peak_of(fun, [random.normal(size=(rows, columns)), random.normal(size=rows)])


def peak_of(fun, arrays):
    """The least of some runs, as a run may free or keep what others made."""

    def gradient():
        (value,), tape = trace(lambda *boxes: [fun(*boxes)], arrays)
        tape.pull([np.ones_like(value)])

    def once():
        gc.collect()
        return peak_bytes(gradient)

    gradient()  # imports what it needs
    return min(once() for _ in range(3))


FEW, MANY = 300, 1800
AT_MOST = 9.0  # times the memory; squares would take 36 times


@pytest.fixture(scope="module")
def growth():
    """How many times the memory MANY rows or columns take, of a process without other threads."""
    program = "import json, test_rule_costs; print(json.dumps(test_rule_costs.measured_growth()))"
    paths = os.pathsep.join(filter(None, sys.path))
    run = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": paths},
        stdout=subprocess.PIPE,
        check=True,
        timeout=100 * SLOW,
    )
    return json.loads(run.stdout)


def measured_growth():
    rows = {name: peak(fun, MANY, 3) / peak(fun, FEW, 3) for name, fun in LONG.items()}
    columns = {name: peak(LONG[name], 3, MANY) / peak(LONG[name], 3, FEW) for name in WIDE}
    return {"rows": rows, "columns": columns}


@pytest.mark.parametrize("name", LONG)
def test_memory_grows_with_rows(growth, name):
    assert growth["rows"][name] < AT_MOST


@pytest.mark.parametrize("name", WIDE)
def test_memory_grows_with_columns(growth, name):
    assert growth["columns"][name] < AT_MOST


def test_slopes_by_parameters_are_integrated_in_blocks():
    random = np.random.default_rng(0)

    def memory(count):
        arrays = [1.0 + random.random(count), 1.0 + random.random(count)]
        return peak_of(scipy.special.gammainc, arrays)

    assert memory(4000) < 60 * 8 * 4000  # of 96 values for each
