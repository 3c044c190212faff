"""Certified fits: 27 nonlinear regressions whose estimates are known to eleven digits.

NIST's Statistical Reference Datasets (in the public domain; `certified_fits.json` beside this file)
have data, models, two starts each, one of them far away, and certified estimates, standard
deviations and sums of squares. Each set is fitted from both starts, and all in one way:

1. SciPy's `least_squares`, with residuals and Jacobian from `dg.adapters.flat_residuals`, in units
   of the Jacobian's columns;
2. one step of Newton's method, with the observed covariance, which is the Hessian's inverse;
3. standard deviations from the Gauss-Newton covariance, as NIST's.

The table has the digits in which all estimates and all deviations of a fit agree with the certified
ones, and how far the deviations of the observed covariance are from these.

    python examples/certified_fits.py            # half a minute on one core
    python examples/certified_fits.py --quick    # from the second starts alone

The script exits with an error unless nine digits agree everywhere. The residuals of Lanczos1 are as
small as 1e-13 of the values: double precision leaves three digits of their sum of squares, so that
its deviations are compared in units of the residuals' deviation.
"""

import os

# One BLAS thread, as Dask gives its workers.
os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

import argparse
import json
import sys
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy.optimize import least_squares

import daskgrad as dg

WANTED, CERTIFIED = 9.0, 11.0  # digits
ROUNDED = {"Lanczos1"}  # whose residuals have three digits in double precision
TOLERANCES = {"xtol": 1e-15, "ftol": 1e-15, "gtol": 1e-15, "max_nfev": 5000}

# ---------------------------------------------------------------------------------- the models


def waves(b, x):
    total = b[0] + b[1] * np.cos(2 * np.pi * x / 12) + b[2] * np.sin(2 * np.pi * x / 12)
    for first in (3, 6):
        angle = 2 * np.pi * x / b[first]
        total = total + b[first + 1] * np.cos(angle) + b[first + 2] * np.sin(angle)
    return total


def peaks(b, x):
    first, second = [b[n] * np.exp(-(((x - b[n + 1]) / b[n + 2]) ** 2)) for n in (2, 5)]
    return b[0] * np.exp(-b[1] * x) + first + second


def decays(b, x):
    return sum(b[n] * np.exp(-b[n + 1] * x) for n in (0, 2, 4))


def cubics(b, x):
    below = 1 + b[4] * x + b[5] * x**2 + b[6] * x**3
    return (b[0] + b[1] * x + b[2] * x**2 + b[3] * x**3) / below


def quadratics(b, x):
    return (b[0] + b[1] * x + b[2] * x**2) / (1 + b[3] * x + b[4] * x**2)


MODELS = {
    "Bennett5": lambda b, x: b[0] * (b[1] + x) ** (-1 / b[2]),
    "BoxBOD": lambda b, x: b[0] * (1 - np.exp(-b[1] * x)),
    "Chwirut1": lambda b, x: np.exp(-b[0] * x) / (b[1] + b[2] * x),
    "DanWood": lambda b, x: b[0] * x ** b[1],
    "ENSO": waves,
    "Eckerle4": lambda b, x: b[0] / b[1] * np.exp(-0.5 * ((x - b[2]) / b[1]) ** 2),
    "Gauss1": peaks,
    "Hahn1": cubics,
    "Kirby2": quadratics,
    "Lanczos1": decays,
    "MGH09": lambda b, x: b[0] * (x**2 + x * b[1]) / (x**2 + x * b[2] + b[3]),
    "MGH10": lambda b, x: b[0] * np.exp(b[1] / (x + b[2])),
    "MGH17": lambda b, x: b[0] + b[1] * np.exp(-x * b[3]) + b[2] * np.exp(-x * b[4]),
    "Misra1a": lambda b, x: b[0] * (1 - np.exp(-b[1] * x)),
    "Misra1b": lambda b, x: b[0] * (1 - (1 + b[1] * x / 2) ** -2),
    "Misra1c": lambda b, x: b[0] * (1 - (1 + 2 * b[1] * x) ** -0.5),
    "Misra1d": lambda b, x: b[0] * b[1] * x / (1 + b[1] * x),
    "Nelson": lambda b, x: b[0] - b[1] * x[0] * np.exp(-b[2] * x[1]),  # of the logarithm
    "Rat42": lambda b, x: b[0] / (1 + np.exp(b[1] - b[2] * x)),
    "Rat43": lambda b, x: b[0] / (1 + np.exp(b[1] - b[2] * x)) ** (1 / b[3]),
    "Roszman1": lambda b, x: b[0] - b[1] * x - np.arctan(b[2] / (x - b[3])) / np.pi,
}
MODELS |= {"Chwirut2": MODELS["Chwirut1"], "Gauss2": peaks, "Gauss3": peaks}
MODELS |= {"Lanczos2": decays, "Lanczos3": decays, "Thurber": cubics}

# ------------------------------------------------------------------------------------ the fits


class Set(NamedTuple):
    """Data, starts and what NIST certifies: estimates, deviations and the sum of squares."""

    name: str
    starts: list
    certified: list
    deviations: list
    squares: float
    data: list

    def residuals(self, b):
        y, *x = map(np.array, self.data)
        seen = np.log(y) if self.name == "Nelson" else y
        return MODELS[self.name](b, x if len(x) > 1 else x[0]) - seen


class Fit(NamedTuple):
    """How many residuals were evaluated, and the digits of estimates and deviations."""

    evaluations: int
    estimates: float
    deviations: float
    observed: float  # the largest relative difference of the observed deviations


def read():
    """The sets, by name."""
    sets = json.loads(Path(__file__).with_suffix(".json").read_text())
    return {name: Set(name, **entries) for name, entries in sets.items()}


def digits(ours, certified):
    """How many digits agree in all entries."""
    apart = np.abs(np.asarray(ours) / certified - 1.0)
    return min(CERTIFIED, -np.log10(np.max(apart))) if np.all(np.isfinite(apart)) else 0.0


def fit(dataset, start):
    """The fit of a set from its first (0) or second start."""
    model = dg.delayed(dataset.residuals)
    flat, x, _ = dg.adapters.flat_residuals(model, np.array(dataset.starts[start], float))
    with np.errstate(all="ignore"):  # SciPy tries points where exponentials overflow
        solved = least_squares(flat, x, flat.jacobian, x_scale="jac", **TOLERANCES)
    residuals, jacobian = flat(solved.x), flat.jacobian(solved.x)
    variance = residuals @ residuals / (len(residuals) - len(x))
    observed = flat.covariance(solved.x, kind="observed")
    estimates = solved.x - observed @ (jacobian.T @ residuals) / variance
    deviations = np.sqrt(np.diag(flat.covariance(estimates, kind="gauss-newton")))
    if dataset.name in ROUNDED:
        deviations = deviations * np.sqrt(dataset.squares / np.sum(flat(estimates) ** 2))
    return Fit(
        solved.nfev,
        digits(estimates, dataset.certified),
        digits(deviations, dataset.deviations),
        np.max(np.abs(np.sqrt(np.diag(observed)) / deviations - 1.0)),
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="from the second starts alone")
    starts = (1,) if parser.parse_args().quick else (0, 1)
    begin, fits = time.perf_counter(), {}
    print(f"{'digits of':>50}{'observed':>12}")
    print(f"{'set':10}{'start':>6}{'evaluations':>12}{'estimates':>11}{'errors':>11}{'errors':>12}")
    for name, dataset in read().items():
        for start in starts:
            fits[name, start] = found = fit(dataset, start)
            print(
                f"{name:10}{start + 1:6}{found.evaluations:12}{found.estimates:11.1f}"
                f"{found.deviations:11.1f}{found.observed:12.1%}"
            )
    least = min(min(found.estimates, found.deviations) for found in fits.values())
    seconds = time.perf_counter() - begin
    print(f"{len(fits)} fits in {seconds:.0f} s agree in {least:.1f} digits, or more")
    if least < WANTED:
        sys.exit("certified_fits.py: too far from the certified values")


if __name__ == "__main__":
    main()
