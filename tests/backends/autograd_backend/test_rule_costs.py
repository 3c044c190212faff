"""What rules take: the memory of gradients by matrices of many rows or columns grows with these."""

import tracemalloc

import numpy as np
import pytest

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
    random = np.random.default_rng(0)
    arrays = [random.normal(size=(rows, columns)), random.normal(size=rows)]
    tracemalloc.start()
    try:
        (value,), tape = trace(lambda a, b: [fun(a, b)], arrays)
        tape.pull([np.ones_like(value)])
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("name", LONG)
def test_memory_grows_with_rows(name):
    peak(LONG[name], 300, 3)  # what is made once
    assert peak(LONG[name], 1200, 3) < 5.0 * peak(LONG[name], 300, 3)


@pytest.mark.parametrize("name", WIDE)
def test_memory_grows_with_columns(name):
    peak(LONG[name], 3, 300)
    assert peak(LONG[name], 3, 1200) < 5.0 * peak(LONG[name], 3, 300)
