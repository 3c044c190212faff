"""What rules take: the memory of gradients by matrices of many rows or columns grows with these."""

import gc

import numpy as np
import pytest
import scipy.special
from probes import peak_bytes

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


@pytest.mark.parametrize("name", LONG)
def test_memory_grows_with_rows(name):
    assert peak(LONG[name], MANY, 3) < AT_MOST * peak(LONG[name], FEW, 3)


@pytest.mark.parametrize("name", WIDE)
def test_memory_grows_with_columns(name):
    assert peak(LONG[name], 3, MANY) < AT_MOST * peak(LONG[name], 3, FEW)


def test_slopes_by_parameters_are_integrated_in_blocks():
    random = np.random.default_rng(0)

    def memory(count):
        arrays = [1.0 + random.random(count), 1.0 + random.random(count)]
        return peak_of(scipy.special.gammainc, arrays)

    assert memory(4000) < 60 * 8 * 4000  # of 96 values for each
