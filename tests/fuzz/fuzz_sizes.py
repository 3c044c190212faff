"""Random programs at several sizes: a source that was written at one serves others.

The programs of ``fuzz_programs.py``, each at all sizes. Value and cotangents are compared with the
tape's, bit by bit, at other data than were recorded.
"""

import contextlib

import fuzz_operations
import fuzz_programs
import numpy as np
from captured_calls import ones_like
from recorded import program_of

from daskgrad.autodiff.programs.boxes import Unrecordable
from daskgrad.autodiff.programs.signatures import are_same
from daskgrad.autodiff.rules.declaration import Diverged
from daskgrad.autodiff.tape.reverse import trace

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
    modules = (fuzz_operations, fuzz_programs)
    before = [
        {name: vars(module)[name] for name in own if name in vars(module)} for module in modules
    ]
    for module, names in zip(modules, before, strict=True):
        vars(module).update({name: own[name] for name in names})
    try:
        yield
    finally:
        for module, names in zip(modules, before, strict=True):
            vars(module).update(names)


def differences(seed, counts):
    fun, sources = fuzz_programs.program(seed), set()
    found = 0
    for size in SIZES:
        with at_size(*size), fuzz_programs.silence():
            found += differences_at(fun, seed, sources, counts)
    return [f"{found} results differ"] * bool(found)


def differences_at(fun, seed, sources, counts):
    """How many results differ from the tape's."""
    first, *others = fuzz_programs.points(seed + 1)
    try:
        outputs, tape = tape_at(fun, first)
        tape.pull(list(map(ones_like, outputs)))
        program = program_of(fun, first, (0, 1))
    except (*fuzz_programs.SENSELESS, Unrecordable):
        counts["not recorded"] += 1
        return 0
    counts["shared" if program.source.text in sources else "written"] += 1
    sources.add(program.source.text)
    found = 0
    for arrays in (first, *others[:2]):
        try:
            outputs, tape = tape_at(fun, arrays)
            own, residuals = program.forward(*arrays)
            pulled = program.pull_examples(residuals)
        except (*fuzz_programs.SENSELESS, Diverged):
            continue
        found += not (are_same(own, outputs) and are_same(pulled, tape.pull(program.examples)))
    return found


def tape_at(fun, arrays):
    return trace(lambda *xs: fun(*xs, *arrays[2:]), arrays[:2])
