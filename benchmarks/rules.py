"""Time and memory of the gradient of each differentiated function, over its value.

    python benchmarks/rules.py [--quick] [FUNCTION ...]

The functions stand in the tables of the tests (``functions_*.py`` in
``tests/autodiff/rules``). The script measures the value, and a trace of the call with
one pullback. It enlarges inputs: vectors to 10, 100 and 1,000 numbers, other arrays along their
longest axis, square matrices to at most 200 rows. Time is processor time, the least of some calls,
with one BLAS thread; memory is the peak that ``tracemalloc`` sees. Both are divided by the value's;
the value's memory counts at least its arrays.

The script checks one claim, and fails when it does not hold: from 10 numbers to 1,000 a gradient's
time and memory grow by at most ``LIMIT`` times the value's growth (``LEAST_SECONDS`` and
``LEAST_BYTES``, if that is less), but for the functions in ``REASONS``. So the fixed cost of a
record does not count.
"""

# ruff: noqa: E402  the number of BLAS threads is set before NumPy is imported

import os

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[variable] = "1"

import argparse
import sys
import time
import tracemalloc
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import report

sys.path.append(str(Path(__file__).parent.parent / "tests" / "autodiff" / "rules"))

from functions_all import made
from sweep import Call, Function, Held, is_array

from daskgrad.autodiff.tape import trace

SIZES = (10, 100, 1000)
SQUARE = 200  # rows at most
LIMIT = 8.0
LEAST_SECONDS, LEAST_BYTES = 5e-5, 64_000
PARAMETERS = "slopes by parameters are integrals, of 96 values for each number"
STRUVE = "SciPy's struve and modstruve, which are the slopes, take as many times as long"
REASONS = {
    "apply_along_axis": "the function is traced row by row",
    "cholesky": "three products of matrices, each of as many flops as several factorisations",
    "complete qr": "the plain factors, the singular values for the rank, and a solution",
    "correlate": "the value is one loop in C; an array for each argument is correlated again",
    "cumulative_prod": "products of 1, 2, 4, ... factors, as a division fails where one is zero",
    "eigvals": "eigenvectors, which the value does not need, and a complex solution",
    "multivariate_normal.logpdf": "as of cholesky",
    "multivariate_normal.pdf": "as of cholesky",
    "nancumprod": "as of cumulative_prod",
    "poly": "a convolution for each root; of hundreds of roots no digit would be right",
    "polygamma": "SciPy's polygamma of the next order takes as many times as long",
    "solve_triangular": "the cotangent of the matrix is a matrix, where the value is a vector",
    "special.smirnov": PARAMETERS,
    "special.smirnovi": PARAMETERS,
    **dict.fromkeys(["special.itstruve0", "special.it2struve0", "special.itmodstruve0"], STRUVE),
    **dict.fromkeys(["beta.cdf", "chi2.cdf", "gamma.cdf", "t.cdf", "t.logcdf"], PARAMETERS),
    **{
        f"special.{name}": PARAMETERS
        for names in (
            "bdtrik bdtrin betainc betaincc betainccinv betaincinv btdtria btdtrib chdtr chdtrc",
            "chdtri chdtriv fdtr fdtrc fdtri fdtridfd gammainc gammaincc gammainccinv gammaincinv",
            "gdtr gdtrc gdtria gdtrib gdtrix nbdtrik nbdtrin pdtrik stdtr stdtridf stdtrit",
        )
        for name in names.split()
    },
}


class Cost(NamedTuple):
    """Seconds and bytes of a value, and of a gradient."""

    value: tuple[float, float]
    gradient: tuple[float, float]

    @property
    def ratios(self) -> list[float]:
        return [
            mine / max(theirs, 1e-9) for mine, theirs in zip(self.gradient, self.value, strict=True)
        ]


def growth(few: Cost, many: Cost) -> list[float]:
    """How much faster a gradient grows in time and memory than its value."""
    pairs = zip(
        few.value,
        few.gradient,
        many.value,
        many.gradient,
        (LEAST_SECONDS, LEAST_BYTES),
        strict=True,
    )
    return [(d - c) / max(b - a, least) for a, c, b, d, least in pairs]


def enlarged(arg: Any, size: int) -> Any:
    if isinstance(arg, Held):
        return Held(enlarged(arg.value, size))
    if not is_array(arg) or not np.ndim(arg):
        return arg
    if np.ndim(arg) == 2 and arg.shape[0] == arg.shape[1]:
        rows = min(size, SQUARE)
        copies = -(-rows // len(arg))
        blocks = np.kron(np.eye(copies), arg)[:rows, :rows]
        return blocks + np.diag(np.linspace(0.0, 1.0, rows))
    axis = int(np.argmax(arg.shape))
    places = np.arange(size) % arg.shape[axis]
    tiled = np.take(arg, places, axis)
    return tiled * (1.0 + 1e-3 * np.sin(np.arange(tiled.size))).reshape(tiled.shape)


def is_differentiated(entry: Function) -> bool:
    return any([is_array(arg) for args in entry.inputs for arg in args])


def calls_of_size(entry: Function, size: int) -> Iterator[Call]:
    """Calls of its inputs, enlarged, and of those as they are but for one array."""
    fun = entry.adapt(entry.fun)
    for args in entry.inputs:
        yield Call(entry.name, fun, [enlarged(arg, size) for arg in args], {})
        for n, arg in enumerate(args):
            yield Call(entry.name, fun, [*args[:n], enlarged(arg, size), *args[n + 1 :]], {})


def least_seconds(run: Callable[[], Any], least: float) -> float:
    run()
    times: list[float] = []
    while len(times) < 3 or (sum(times) < least and len(times) < 200):
        began = time.process_time()
        run()
        times.append(time.process_time() - began)
    return min(times)


def peak(run: Callable[[], Any]) -> int:
    tracemalloc.start()
    run()
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return most


def cost_of(call: Call, least: float) -> Cost:
    arrays = call.arrays("d")
    if not arrays:
        raise TypeError("nothing is differentiated")
    cotangents = [np.ones_like(part) for part in call(*arrays)]

    def gradient() -> list[Any]:
        return trace(call, arrays)[1].pull(cotangents)

    def value() -> list[Any]:
        return call(*arrays)

    numbers = sum([np.asarray(a).nbytes for a in (*arrays, *cotangents)])
    return Cost(
        (least_seconds(value, least), max(peak(value), numbers)),
        (least_seconds(gradient, least), peak(gradient)),
    )


def costs_of(entry: Function, least: float) -> list[Cost] | None:
    """For all sizes; None if no input can be enlarged."""
    costs = []
    for size in SIZES:
        for call in calls_of_size(entry, size):
            try:
                costs.append(cost_of(call, least))
                break
            except Exception:  # NumPy's: the sizes do not go together, or numbers are none of its
                continue
    return costs if len(costs) == len(SIZES) else None


def texts(cost: Cost) -> list[str]:
    return [f"{cost.value[0] * 1e6:.0f}", *[f"{ratio:.1f}" for ratio in cost.ratios]]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="every twentieth; claims do not count")
    parser.add_argument("functions", nargs="*", help="names of some")
    options = parser.parse_args()
    entries = {entry.name: entry for entry in reversed(made()) if is_differentiated(entry)}
    names = options.functions or sorted(entries)[:: 20 if options.quick else 1]
    rows, dear, without = [], {}, []
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in names:
            costs = costs_of(entries[name], 1e-3 if options.quick else 1e-2)
            if costs is None:
                without.append(name)
                continue
            rows.append([name, *[text for cost in costs for text in texts(cost)]])
            grown = growth(costs[0], costs[-1])
            if max(grown) > LIMIT:
                dear[name] = grown
    header = [f"{what} {size}" for size in SIZES for what in ("µs", "time", "memory")]
    print(report.table(["function", *header], rows))
    print("not enlarged:", ", ".join(without))
    for name, (seconds, memory) in dear.items():
        why = REASONS.get(name, "why?")
        print(f"{name}: time grows {seconds:.1f} times as much, memory {memory:.1f}; {why}")
    unexplained = sorted(dear.keys() - REASONS.keys())
    print(f"above {LIMIT:g} times the value, without a reason: {len(unexplained)}", *unexplained)
    return 0 if options.quick else int(bool(unexplained))


if __name__ == "__main__":
    sys.exit(main())
