"""Whether speed hangs on how people write: pairs of programs with the same arithmetic.

    python benchmarks/styles.py [--quick] [PAIR ...]

A pair (``style_pairs``) is an objective written the plain way, functions of arrays, and a person's
way: with objects, closures, names beside the items of a sum, logs, tables. Both take turns in this
process, with one BLAS thread, at a point that changes from call to call; nobody asks for anything
to be compiled. A pair has 300 calls of each way, or as many as fit into some seconds.

The factor is the person's way over the plain way: the least processor times over the last third of
the calls. Another column has the slowest call of the person's way over the least one of its tape,
on which nothing is compiled. Results are compared at each call, bit by bit where the arithmetic is
the same; the plain way is compared once with differences. Each pair above 1.5 has a line of
``dg.explain``: about its model, or about its objective if that is what is written another way.
Pairs whose library is not installed are left out, and a line says so.

The claims: no factor is above 2.0, five at most are above 1.5, and no pair fails.
"""

# ruff: noqa: E402  the number of threads is set before NumPy is imported

import os

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"

import argparse
import importlib
import importlib.util
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import dask
import numpy as np
import optree

import daskgrad as dg
from report import at_most, judged, table
from style_pairs.pairs import Pair

FACTOR_AT_MOST, FEW_ABOVE, FEW = 2.0, 1.5, 5
CALLS, SECONDS, QUICK_CALLS, QUICK_SECONDS = 300, 6.0, 12, 0.05
LEAST_CALLS = 4  # however long they take
TAPE_CALLS = 5
STEP, DIFFERENCES = 1e-5, 1e-5  # of differences, and how far these may be off
THEMES = {  # a module of pairs, and the library that it needs
    "objects": "",
    "functions": "",
    "arguments": "",
    "items": "",
    "branches": "",
    "effects": "",
    "references": "",
    "arrays": "",
    "libraries": "scipy",
    "frames": "pandas",
    "derivatives": "",
}


class Row(NamedTuple):
    """A pair's measured seconds of a call, and the line of ``dg.explain``."""

    theme: str
    name: str
    calls: int
    plain: float
    styled: float
    slowest: float
    tape: float
    explained: str

    @property
    def factor(self) -> float:
        return self.styled / self.plain


# ----------------------------------------------------------------------------------------- results


def flat(tree: Any) -> np.ndarray:
    """Puts all numbers into a row; a dict gives its numbers in the order of its names."""
    if isinstance(tree, dict):
        tree = [tree[key] for key in sorted(tree)]
    if isinstance(tree, list | tuple):
        return np.concatenate([flat(part) for part in tree])
    return np.ravel(tree)


def moved(point: Any, share: float) -> Any:
    """Changes each number by a share of it."""
    return optree.tree_map(lambda leaf: np.asarray(leaf) * (1.0 + share), point)


def shifted(point: Any, step: float) -> Any:
    return optree.tree_map(lambda leaf: np.asarray(leaf) + step, point)


def require_same(pair: Pair, plain: Any, styled: Any) -> None:
    if pair.with_auxiliary:
        (value, _), slope = styled
        styled = value, slope
    expected, actual = flat(plain), flat(styled)
    if pair.rounding:
        scale = pair.rounding * max(1.0, np.max(np.abs(expected)))
        np.testing.assert_allclose(actual, expected, pair.rounding, scale)
    elif actual.tobytes() != expected.tobytes():
        raise AssertionError(f"the bits of {actual} differ from {expected}")


def require_right(pair: Pair, result: Any, point: Any) -> None:
    """Compares the plain way's derivative along a direction with central differences."""
    fun = pair.derivative.fun(pair.plain)
    high, low = (fun(shifted(point, step)) for step in (STEP, -STEP))
    rate = (np.asarray(high) - np.asarray(low)) / (2.0 * STEP)
    scale = DIFFERENCES * max(1.0, np.max(np.abs(high)))
    np.testing.assert_allclose(pair.derivative.rate(result), rate, DIFFERENCES, scale)


# ---------------------------------------------------------------------------------------- measured


def timed(call: Callable[[Any], Any], point: Any) -> tuple[float, Any]:
    begin = time.process_time()
    result = call(point)
    return time.process_time() - begin, result


def measure(pair: Pair, most: int, seconds: float) -> tuple[int, float, float, float, float]:
    """Counts calls, and takes the plain, the styled, the slowest and the tape's seconds."""
    plain = pair.derivative.call(pair.plain)
    if pair.with_auxiliary:
        styled = dg.value_and_grad(pair.styled, has_aux=True)
    else:
        styled = pair.derivative.call(pair.styled)
    styled_point = pair.point if pair.styled_point is None else pair.styled_point
    times: list[tuple[float, float]] = []
    while len(times) < most and (np.sum(times) < seconds or len(times) < LEAST_CALLS):
        number = len(times)
        pair.change(number)
        share = 0.001 * (7 * number % 13)
        ways = [(plain, moved(pair.point, share)), (styled, moved(styled_point, share))]
        turn = slice(None, None, -1 if number % 2 else 1)  # who goes first
        (plain_time, result), (styled_time, peer) = [timed(*way) for way in ways[turn]][turn]
        require_same(pair, result, peer)
        times.append((plain_time, styled_time))
    require_right(pair, result, ways[0][1])
    with dask.config.set({"daskgrad.compile": False}):
        taped = [timed(*ways[1]) for _ in range(TAPE_CALLS)]
    require_same(pair, result, taped[-1][1])
    last = np.min(times[-max(1, len(times) // 3) :], axis=0)
    slowest = np.max(times, axis=0)[1]
    return len(times), *last, slowest, min([processor_time for processor_time, _ in taped])


def explained(pair: Pair) -> str:
    """Returns the first line of the report, or the error that came instead."""
    try:
        report = str(dg.explain(*(pair.explained or (pair.styled, pair.point))))
        line = report.splitlines()[0].removesuffix(" to")
        return line.removesuffix("; then").removesuffix(",")
    except Exception as error:
        return f"dg.explain raises {described(error)}"


def described(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {' '.join(lines[:3])}"


def pairs_of_themes() -> list[tuple[str, Pair]]:
    pairs = []
    for theme, library in THEMES.items():
        if library and importlib.util.find_spec(library) is None:
            print(f"{theme} are left out: {library} is not installed")
            continue
        module = importlib.import_module(f"style_pairs.{theme}")
        pairs += [(theme, pair) for pair in module.PAIRS]
    return pairs


# ---------------------------------------------------------------------------------------- reported


def show(rows: Sequence[Row], failures: Sequence[tuple[str, str]]) -> None:
    """Prints the pairs, the slowest first, and the themes."""
    header = ("pair", "theme", "calls", "plain µs", "factor", "slowest over tape")
    cells = [
        (
            *(row.name, row.theme, str(row.calls), f"{1e6 * row.plain:.1f}"),
            *(f"{row.factor:.2f}", f"{row.slowest / row.tape:.1f}"),
        )
        for row in rows
    ]
    print(table(header, cells))
    print(
        "\n" + table(("theme", "pairs", "median", "largest", f"above {FEW_ABOVE:g}"), themes(rows))
    )
    slow = [row for row in rows if row.factor > FEW_ABOVE]
    lines = [f"{row.name}, {row.factor:.2f}: {row.explained}" for row in slow]
    lines += [f"{name} FAILED: {message}" for name, message in failures]
    print("\n" + "\n".join(lines))


def themes(rows: Sequence[Row]) -> list[tuple[str, ...]]:
    """Counts pairs by theme, with their factors."""
    lines = []
    for theme in THEMES:
        factors = np.array([row.factor for row in rows if row.theme == theme])
        if not len(factors):
            continue
        figures = f"{np.median(factors):.2f}", f"{max(factors):.2f}"
        lines.append((theme, str(len(factors)), *figures, str(np.sum(factors > FEW_ABOVE))))
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a few calls; claims do not count")
    parser.add_argument("pairs", nargs="*", help="names; without any, all")
    options = parser.parse_args()
    most, seconds = (QUICK_CALLS, QUICK_SECONDS) if options.quick else (CALLS, SECONDS)
    pairs = pairs_of_themes()
    unknown = set(options.pairs) - {pair.name for _, pair in pairs}
    if unknown:
        parser.error(f"no pairs are called {', '.join(map(repr, sorted(unknown)))}")
    rows, failures = [], []
    for theme, pair in pairs:
        if options.pairs and pair.name not in options.pairs:
            continue
        try:
            rows.append(Row(theme, pair.name, *measure(pair, most, seconds), explained(pair)))
        except Exception as error:
            failures.append((pair.name, described(error)))
    rows.sort(key=lambda row: row.factor, reverse=True)
    show(rows, failures)
    factors = np.array([row.factor for row in rows])
    claims = [
        at_most("the largest factor", max(factors, default=np.nan), FACTOR_AT_MOST),
        at_most(f"pairs above {FEW_ABOVE:g}", np.sum(factors > FEW_ABOVE), FEW),
        at_most("pairs that fail", len(failures), 0),
    ]
    return judged(claims, options.quick) or int(bool(failures))


if __name__ == "__main__":
    sys.exit(main())
