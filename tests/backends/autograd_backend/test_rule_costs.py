"""What rules take: the memory of gradients by matrices of many rows or columns grows with these."""

import gc
import tracemalloc

import numpy as np
import pytest
import scipy.special

from daskgrad.backends.autograd import trace

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
    """The least of some runs, as a run may free or keep what others made."""
    random = np.random.default_rng(0)
    arrays = [random.normal(size=(rows, columns)), random.normal(size=rows)]

    def once():
        gc.collect()
        tracemalloc.start()
        try:
            (value,), tape = trace(lambda a, b: [fun(a, b)], arrays)
            tape.pull([np.ones_like(value)])
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

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
    def memory(count):
        return peak(lambda a, b: scipy.special.gammainc(2.0 + b**2, b**2), count, 1)

    assert memory(6000) < 20 * 8 * 6000
