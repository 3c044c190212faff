"""Random programs, with and without loops, as machine code: within rounding of the tape, or with
its bits if the machine code says so.

Rounding is the tape's own change when its inputs change by a few units of the last place; programs
that this changes by much tell nothing.
"""

import fuzz_loops
import fuzz_programs
import numpy as np
import pytest
from captured_calls import ones_like
from fuzz_programs import SENSELESS, points, pull, silence

from daskgrad.autodiff.programs import rolling
from daskgrad.autodiff.programs.boxes import Unrecordable
from daskgrad.autodiff.programs.calls import all_calls
from daskgrad.autodiff.programs.recording import record
from daskgrad.autodiff.programs.rewrites import rewritten
from daskgrad.autodiff.programs.rolling import rolled
from daskgrad.autodiff.programs.signatures import are_same
from daskgrad.autodiff.rules.declaration import Diverged
from daskgrad.autodiff.tape.reverse import trace

NEAR = 1e-12  # of the largest entry
SOLVED = 1e-5  # beside inverses of matrices, whose condition the shaken points do not tell
LINEAR = {"solved", "inverted", "factor", "solve", "inv", "det", "slogdet", "solve_triangular"}
AMPLIFIED = 100  # times the change by rounded inputs; roundings within are many
SHAKEN = 4  # points near each one


def differences(seed, counts):
    pytest.importorskip("llvmlite")
    from daskgrad.autodiff.native.code import Flagged, Shared, Stacked, Unwritable, compiled

    fun = (fuzz_loops if seed % 3 == 0 else fuzz_programs).program(seed)
    places = [*points(seed + 1)]
    with pytest.MonkeyPatch.context() as patch, silence():
        patch.setattr(rolling, "LEAST", 20)
        patch.setattr(rolling, "LEAST_CALLS", 8)
        try:
            calls, examples = record(fun, places[0], (0, 1))
        except (Unrecordable, *SENSELESS):
            counts["not recorded"] += 1
            return []
        calls = rewritten(rolled(calls))
    try:
        code = compiled(calls)
    except Unwritable:
        counts["unwritable"] += 1
        return []
    seeds = [example for example in examples if example is not None]
    found, rows = [], []
    names = {getattr(call.fun, "__name__", "") for call in all_calls(calls.calls)}
    most = SOLVED if names & LINEAR else NEAR
    for arrays in places:
        try:
            results = code.one([*arrays, *seeds])
        except (Flagged, Diverged) as stopped:
            counts[type(stopped).__name__] += 1
            continue
        rows.append((arrays, results))
        with silence():
            expected = by_tape(fun, arrays, examples)
            if code.has_tape_bits:
                counts["same bits"] += 1
                if not are_same([*map(np.asarray, results)], [*map(np.asarray, expected)]):
                    found.append("other bits than the tape's")
                continue
            room = rounding(fun, arrays, examples, expected, seed)
        if room > NEAR:
            counts["not conditioned"] += 1
            continue
        counts["compared"] += 1
        if (distance := error_of(results, expected)) > max(most, AMPLIFIED * room):
            found.append(f"{distance:.1e} from the tape")
    if len(rows) > 1:
        columns = [Stacked(np.array(column)) for column in zip(*[a for a, _ in rows], strict=True)]
        block = code.block(len(rows), [*columns, *map(Shared, seeds)])
        for n, (_, results) in enumerate(rows):
            parts = [None if part is None else np.asarray(part[n]) for part in block]
            whole = [None if x is None else np.asarray(x) for x in results]
            found += ["an item has other bits in a block"] * (not are_same(parts, whole))
    return found


def by_tape(fun, arrays, examples):
    outputs, tape = trace(lambda a, b: fun(a, b, *arrays[2:]), [*arrays[:2]])
    seeds = [ones_like(x) if e is None else e for x, e in zip(outputs, examples, strict=True)]
    return [*outputs, *pull(tape.pull, seeds)]


def rounding(fun, arrays, examples, expected, seed):
    """How far the tape's results go if its inputs are rounded."""
    random, far = np.random.default_rng(seed), 0.0
    for _ in range(SHAKEN):
        near = [x * (1.0 + 4e-16 * random.choice([-1.0, 0.0, 1.0], x.shape)) for x in arrays]
        far = max(far, error_of(by_tape(fun, near, examples), expected))
    return far


def error_of(results, expected):
    """The largest difference, of the largest entry of each result."""
    worst = 0.0
    for x, y in zip(results, expected, strict=True):
        if x is None or y is None:
            continue
        x, y = np.asarray(x), np.asarray(y)
        if x.shape != y.shape or x.dtype != y.dtype:
            return np.inf
        is_same = (x == y) | ((x != x) & (y != y))
        gap = np.max(np.where(is_same, 0.0, np.abs(x - y)), initial=0.0)
        size = np.max(np.abs(y), initial=0.0)
        worst = max(worst, gap / size if gap else 0.0)
    return worst if worst == worst else np.inf
