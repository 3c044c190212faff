"""Conductivities from temperatures: derivatives through a sparse solver that autograd cannot trace.

A square plate of n x n cells is kept at temperature zero at its edges and heated at one place at a
time: a load case. Heat flows between neighbouring cells i and j through the conductance
c_ij = 2 k_i k_j / (k_i + k_j) of their conductivities k, so that the temperatures u solve

    K(c) u = heat,    K(c) = G' diag(c) G,

where each row of G takes the difference across one interface. SciPy factorises K with SuperLU,
which is C code: `temperatures` is such a solve, and brings its derivative along (`dg.custom_vjp`).
By the adjoint method a cotangent g of u needs one more solve, with the factors that are there:

    K w = g,    the cotangent of heat is w, and that of c is -(G w) * (G u), entry by entry.

Sensors measure u in every load case. SciPy's L-BFGS-B finds the conductivities of square patches
of the plate that explain what they measured; daskgrad adds up misfits and gradients over the load
cases, where these are. The plate is made up, and so the answer is known.

    python examples/external_solver.py                               # on this machine's cores
    python examples/external_solver.py --cells 96 --cases 64         # a finer plate, heated more
    python examples/external_solver.py --scheduler tcp://host:8786   # on a cluster that is there

The script exits with an error where the gradient is not that of differences, or the conductivities
are not found.
"""

import os

# One BLAS thread, as Dask gives its workers.
os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

import argparse
import sys
import time
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
from dask.system import CPU_COUNT
from distributed import Client, LocalCluster
from scipy import sparse
from scipy.optimize import minimize
from scipy.sparse.linalg import splu

import daskgrad as dg

PATCHES = 6  # on each side of the plate
SPREAD = 0.5  # standard deviation of the patches' log-conductivities


# The solver, and its derivative


@dg.custom_vjp
def temperatures(differences, conductances, heat):
    """The solution u of K(c) u = heat."""
    return factors(differences, conductances).solve(heat)


def factors(differences, conductances):
    matrix = differences.T @ sparse.diags_array(conductances) @ differences
    return splu(matrix.tocsc(), permc_spec="MMD_AT_PLUS_A")  # the ordering for symmetric ones


def temperatures_forward(differences, conductances, heat):
    factorised = factors(differences, conductances)
    u = factorised.solve(heat)
    return u, (factorised, differences, u)


def temperatures_backward(residuals, cotangent):
    factorised, differences, u = residuals
    w = factorised.solve(cotangent)  # K is symmetric
    return None, -(differences @ w) * (differences @ u), w


temperatures.defvjp(temperatures_forward, temperatures_backward)


# The model of one load case


class Case(NamedTuple):
    """A load case of a plate with n x n cells."""

    differences: Any  # G, sparse: (number of interfaces, n * n)
    neighbours: np.ndarray  # (2, number of interfaces): the cells on both sides
    patches: np.ndarray  # (n * n,): the patch that each cell is in
    heat: np.ndarray  # (n * n,)
    sensors: np.ndarray  # cells that are measured
    measured: np.ndarray  # their temperatures


def simulated(case, log_conductivities):
    """What the sensors measure."""
    conductivities = np.exp(log_conductivities)[case.patches]
    here, there = conductivities[case.neighbours]
    u = temperatures(case.differences, 2 * here * there / (here + there), case.heat)
    return u[case.sensors]


def misfit(case, log_conductivities):
    return np.sum((simulated(case, log_conductivities) - case.measured) ** 2)


# The plate and its load cases


def make_cases(cells, count, truth):
    neighbours, differences = make_interfaces(cells)
    patch = np.arange(cells) * PATCHES // cells
    patches = (patch[:, None] * PATCHES + patch).ravel()
    every = max(1, cells // 12)
    sensors = np.arange(cells**2).reshape(cells, cells)[every // 2 :: every, every // 2 :: every]
    cases = []
    for place in np.random.default_rng(0).choice(cells**2, count, replace=False):
        heat = np.zeros(cells**2)
        heat[place] = 1.0
        case = Case(differences, neighbours, patches, heat, sensors.ravel(), np.zeros(0))
        cases.append(case._replace(measured=simulated(case, truth)))
    return cases


def make_interfaces(cells):
    """The cells on both sides of each interface, and G; an edge of the plate has one cell."""
    number = np.arange(cells**2).reshape(cells, cells)
    pairs = [(number[:, :-1], number[:, 1:]), (number[:-1], number[1:])]
    first, second = [np.concatenate([pair[side].ravel() for pair in pairs]) for side in (0, 1)]
    edge = np.concatenate([number[0], number[-1], number[:, 0], number[:, -1]])
    neighbours = np.array([np.concatenate([first, edge]), np.concatenate([second, edge])])
    shape = (neighbours.shape[1], cells**2)
    ones, rows = np.ones(shape[0]), np.arange(shape[0])
    taken = sparse.csr_array((ones, (rows, neighbours[0])), shape)
    given = sparse.csr_array((ones[: len(first)], (rows[: len(first)], second)), shape)
    return neighbours, taken - given


# The script


def main():
    sys.stdout.reconfigure(line_buffering=True)  # progress shows through a pipe, too
    arguments = parse()
    truth = SPREAD * np.random.default_rng(1).standard_normal(PATCHES**2)
    cases = make_cases(arguments.cells, arguments.cases, truth)
    print(
        f"{len(cases)} load cases of {arguments.cells**2:,} cells, {len(cases[0].sensors)} "
        f"sensors, {len(truth)} unknown conductivities"
    )
    with connect(arguments), dg.progress(), dg.place(cases) as shards:
        failed = compare_gradient(shards, cases, truth) + find_conductivities(shards, truth)
    if failed:
        sys.exit("external_solver.py: too far apart: " + "; ".join(failed))


def compare_gradient(shards, cases, truth):
    """The gradient along a direction, and central differences of the plain solver."""
    start, step = np.zeros(len(truth)), 1e-5
    direction = np.random.default_rng(2).standard_normal(len(truth))
    gradient = dg.grad(lambda x: dg.map_sum(misfit, shards, x))(start)
    ends = [
        sum(misfit(case, start + side * step * direction) for case in cases) for side in (1, -1)
    ]
    expected = (ends[0] - ends[1]) / (2 * step)
    difference = abs(gradient @ direction - expected) / abs(expected)
    return within("gradient, from central differences", difference, 1e-6)


def find_conductivities(shards, truth):
    objective = dg.value_and_grad(lambda x: dg.map_sum(misfit, shards, x))
    start = time.perf_counter()
    fit = minimize(
        objective,
        np.zeros(len(truth)),
        jac=True,
        method="L-BFGS-B",
        options={"ftol": 1e-12, "gtol": 1e-8},
    )
    seconds, count = time.perf_counter() - start, fit.nfev
    print(f"{count} values and gradients in {seconds:.1f} s, {1000 * seconds / count:.0f} ms each")
    difference = abs(np.exp(fit.x - truth) - 1).max()
    return within("conductivities, from those of the plate", difference, 1e-2)


def within(what, difference, limit):
    """The complaints, none if a relative difference is below the limit."""
    print(f"  {what}: {difference:.1e} (limit {limit:.0e})")
    return [] if difference <= limit else [what]


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scheduler", metavar="ADDRESS", help="of a running cluster, tcp://...")
    parser.add_argument("--workers", type=int, default=CPU_COUNT, help="of a cluster of its own")
    parser.add_argument("--cells", type=int, default=36, help="on each side of the plate")
    parser.add_argument("--cases", type=int, default=24, help="places where the plate is heated")
    arguments = parser.parse_args()
    if arguments.cells < 2 * PATCHES or not 1 <= arguments.cases <= arguments.cells**2:
        parser.error(f"--cells must be at least {2 * PATCHES}, and --cases from 1 to their square")
    return arguments


@contextmanager
def connect(arguments):
    if arguments.scheduler:
        with Client(arguments.scheduler) as client:
            yield client
    else:
        local = {"host": "127.0.0.1", "dashboard_address": "127.0.0.1:0", "threads_per_worker": 1}
        with LocalCluster(arguments.workers, **local) as cluster, Client(cluster) as client:
            yield client


if __name__ == "__main__":
    main()
