"""Random programs at several sizes: a source that was written at one serves others.

The programs of ``fuzz_programs.py``, each at all sizes. Value and cotangents are compared with the
tape's, bit by bit, at other data than were recorded.
"""

import contextlib

import fuzz_operations
import fuzz_programs
import numpy as np
import pytest

SIZES = [(10, 9), (12, 7), (11, 11), (23, 4), (4, 3), (3, 8), (6, 1), (1, 5), (9, 10), (40, 9)]


@contextlib.contextmanager
def at_size(n, m):
    """The operations' constants are those of this size."""
    own = {
        "N": n,
        "M": m,
        "TABLE": np.asfortranarray(np.cos(np.arange(n * m)).reshape(n, m)),
        "MASK": np.arange(n) % 3 == 1,
    }
    with pytest.MonkeyPatch.context() as patch:
        for module in (fuzz_operations, fuzz_programs):
            for name in own.keys() & vars(module).keys():
                patch.setattr(module, name, own[name])
        yield


def differences(seed, counts):
    fun, sources, found = fuzz_programs.program(seed), set(), 0
    for size in SIZES:
        with at_size(*size):
            result = fuzz_programs.compared(fun, fuzz_programs.points(seed + 1, 3), (0, 1))
        if result is None:
            counts["not recorded"] += 1
            continue
        text = result[0].source.text
        counts["shared" if text in sources else "written"] += 1
        sources.add(text)
        found += result[1]
    return [f"{found} results differ"] * bool(found)
