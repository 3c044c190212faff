"""Logistic regression on a dask Array that is larger than a worker's memory.

A million rows of 100 features (800 MB) lie in files, and are a dask Array; each of two workers may
hold 500 MB. L-BFGS gets value and gradient from sums over the array's chunks: a chunk is read,
evaluated with its gradient, and dropped, in one task (``dg.reduce_sum``). A subset that fits is
fitted by scikit-learn, too, and by a program with NumPy's operators on chunks (``dg.array``).

    python examples/regression_dask.py            # a minute on two cores
    python examples/regression_dask.py --quick    # seconds: a tenth of the rows

The script exits with an error if the coefficients for the subset differ from scikit-learn's by more
than 1e-4, if the two programs have gradients that differ, if a worker ran out of memory, or if the
whole data do not give better coefficients than the subset.
"""

import os

# One BLAS thread, as Dask gives its workers.
os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import scipy.optimize
from dask.distributed import Client, LocalCluster
from sklearn.linear_model import LogisticRegression

import daskgrad as dg

FEATURES, ROWS, CHUNK = 100, 1_000_000, 25_000
MEMORY = "500 MB"
PENALTY = 1.0
SUBSET = 2  # chunks

# ------------------------------------------------------------------------------------- the data


def true_coefficients() -> np.ndarray:
    return np.random.default_rng(1).normal(size=FEATURES) / np.sqrt(FEATURES)


def write_chunk(folder: Path, number: int) -> tuple[Path, Path]:
    """Features that depend on each other, and labels that they make more or less probable."""
    generator = np.random.default_rng((7, number))
    X = generator.normal(size=(CHUNK, FEATURES))
    X[:, 1:] += 0.5 * X[:, :-1]
    p = 1.0 / (1.0 + np.exp(-X @ true_coefficients()))
    y = (generator.uniform(size=CHUNK) < p).astype(float)
    files = folder / f"X{number}.npy", folder / f"y{number}.npy"
    np.save(files[0], X)
    np.save(files[1], y)
    return files


def as_arrays(files: list[tuple[Path, Path]]) -> tuple[Any, Any]:
    """The features and the labels as dask Arrays: each chunk is read when it is needed."""
    read = dask.delayed(np.load, pure=True)
    X = [da.from_delayed(read(file), (CHUNK, FEATURES), dtype=float) for file, _ in files]
    y = [da.from_delayed(read(file), (CHUNK,), dtype=float) for _, file in files]
    return da.concatenate(X), da.concatenate(y)


# ------------------------------------------------------------------------------------ the models


def loss_of_rows(rows: Any, w: Any) -> Any:
    """The negative log-likelihood of a chunk."""
    X, y = rows
    score = X @ w
    return np.sum(np.logaddexp(0.0, score) - y * score)


def penalty(w: Any) -> Any:
    return 0.5 * PENALTY * np.sum(w * w)


def by_slices(X: Any, y: Any) -> Callable[[Any], Any]:
    return lambda w: dg.reduce_sum(loss_of_rows, dg.zip(X, y), w) + dg.delayed(penalty)(w)


def by_operators(X: Any, y: Any) -> Callable[[Any], Any]:
    def loss(w: Any) -> Any:
        score = dg.array(X) @ dg.array(w)
        likelihood = np.sum(np.logaddexp(0.0, score) - dg.array(y) * score)
        return likelihood + 0.5 * PENALTY * np.sum(dg.array(w) ** 2)

    return loss


def fit(loss: Callable[[Any], Any], tolerance: float = 1e-9) -> tuple[np.ndarray, int]:
    """The coefficients that L-BFGS finds, and how often it asked."""
    found = scipy.optimize.minimize(
        dg.value_and_grad(loss),
        np.zeros(FEATURES),
        jac=True,
        method="L-BFGS-B",
        options={"ftol": tolerance, "gtol": 1e-6},
    )
    return found.x, found.nfev


def compare_on_subset(files: list[tuple[Path, Path]]) -> np.ndarray:
    """Ours, scikit-learn's, and the gradient of the program with operators."""
    X, y = as_arrays(files)
    w, calls = fit(by_slices(X, y), 1e-13)
    fitted = LogisticRegression(C=1.0 / PENALTY, fit_intercept=False, tol=1e-8, max_iter=1000)
    fitted.fit(*[np.concatenate(list(map(np.load, each))) for each in zip(*files, strict=True)])
    error = np.max(np.abs(w - fitted.coef_[0]))
    print(
        f"{len(y):,} rows: {calls} evaluations; scikit-learn's coefficients differ by {error:.1e}"
    )
    if not error < 1e-4:
        sys.exit("the coefficients are not scikit-learn's")
    gradients = [dg.grad(program(X, y))(w + 0.1) for program in (by_slices, by_operators)]
    error = np.max(np.abs(gradients[0] - gradients[1])) / np.max(np.abs(gradients[0]))
    print(f"the gradients of the two programs differ by {error:.1e}")
    if not error < 1e-12:
        sys.exit("the programs have different gradients")
    return w


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a tenth of the rows")
    arguments = parser.parse_args()
    chunks = ROWS // CHUNK // (10 if arguments.quick else 1)

    with (
        tempfile.TemporaryDirectory() as folder,
        LocalCluster(
            n_workers=2, threads_per_worker=1, memory_limit=MEMORY, dashboard_address=None
        ) as cluster,
        Client(cluster) as client,
    ):
        files = client.gather(client.map(write_chunk, [Path(folder)] * chunks, range(chunks)))
        X, y = as_arrays(files)
        few = compare_on_subset(files[:SUBSET])
        begin = time.perf_counter()
        all_rows, calls = fit(by_slices(X, y))
        seconds = time.perf_counter() - begin
        killed = client.get_events("worker-restart-memory")
        print(
            f"{len(y):,} rows, {X.nbytes / 1e6:.0f} MB, on workers of {MEMORY}: {calls} "
            f"evaluations in {seconds:.1f} s, {seconds / calls:.2f} s each"
        )
    errors = [np.linalg.norm(w - true_coefficients()) for w in (few, all_rows)]
    print(f"the error of the coefficients fell from {errors[0]:.4f} to {errors[1]:.4f}")
    if killed:
        sys.exit("a worker ran out of memory")
    if not errors[1] < errors[0]:
        sys.exit("more rows did not give better coefficients")


if __name__ == "__main__":
    main()
