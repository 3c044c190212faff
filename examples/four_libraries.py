"""One gradient through four libraries: the conductivity of a rod, from its thermistors.

A rod is held at temperature zero at both ends and heated at one place at a time. Where it conducts
how well is unknown. Thermistors along it change their resistance with temperature, and now and then
one of them is misread. Four models, each written in what suits it, make the likelihood:

1. `conductances` in NumPy (autograd): of the joints between cells, from the coefficients of bumps
   of the log-conductivity;
2. `temperatures` by LAPACK, a library in Fortran: the factors of a tridiagonal matrix solve for the
   temperatures, and again for their cotangents (`dg.custom_vjp`, the adjoint method);
3. `logs_of_resistances` in PyTorch: a network, trained beforehand on the thermistors' calibration
   table, since nobody knows a formula;
4. `surprise` in JAX: the negative logarithm of Student's t density of the readings, whose scale is
   unknown, too.

    coefficients ── conductances ─┬─ temperatures ── logs_of_resistances ── surprise ─┐
                                  ├─ ... one branch for each place that is heated ... ─┼─ sum
    log_scale ────────────────────┴────────────────────────────────────── surprise ───┘

SciPy's BFGS climbs on the posterior (`dg.adapters.flat`) in one process, since a gradient takes
milliseconds; where a model takes longer, a cluster would run the branches beside each other. Its
gradient is compared.

    pip install "daskgrad[scipy,jax,torch]" bokeh
    python examples/four_libraries.py                    # forty places
    python examples/four_libraries.py --quick            # five places, and no cluster
    python examples/four_libraries.py --plot rod.html    # a picture of the conductivities

The script exits with an error where the gradient is not that of differences, or the conductivity
is not found.
"""

import os

# One BLAS thread, as Dask gives its workers.
os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

import argparse
import sys
import time
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import scipy.optimize
import torch
from dask.distributed import Client, LocalCluster
from scipy.linalg import lapack

import daskgrad as dg

CELLS, BUMPS, SENSORS = 200, 12, 24
POSITIONS = np.arange(CELLS) / (CELLS - 1)
JOINTS = np.linspace(0.0, 1.0, CELLS + 1)  # between cells, and at both ends
SENSED = np.linspace(4, CELLS - 5, SENSORS).astype(int)
POWER = 200.0
NOISE, MISREAD = 0.01, 0.06  # of a log-resistance, and the share of wrong readings
SPREAD = 0.5  # of the coefficients
FREEDOM = 3.0  # of Student's t

# ------------------------------------------------------------------------------- the four models


def conductivities(coefficients: Any) -> Any:
    """At the joints (CELLS + 1,)."""
    centres = np.linspace(0.0, 1.0, BUMPS)
    bumps = np.exp(-0.5 * ((JOINTS[:, None] - centres) * BUMPS / 1.2) ** 2)
    return np.exp(bumps @ coefficients)


def conductances(coefficients: Any) -> Any:
    """Of the joints between cells of the length 1 / CELLS."""
    return CELLS * conductivities(coefficients)


@dg.custom_vjp
def temperatures(conductances: np.ndarray, heat: np.ndarray) -> np.ndarray:
    """The solution (CELLS,) of G' diag(conductances) G u = heat, G the differences over joints."""
    return solve(factors(conductances), heat)


def factors(conductances: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    diagonal, below, info = lapack.dpttrf(conductances[:-1] + conductances[1:], -conductances[1:-1])
    if info:
        raise ValueError(
            f"the matrix of the rod is not positive definite (LAPACK's info is {info})"
        )
    return diagonal, below


def solve(factorised: tuple[np.ndarray, np.ndarray], heat: np.ndarray) -> np.ndarray:
    found, info = lapack.dpttrs(*factorised, heat)
    if info:
        raise ValueError(f"LAPACK cannot solve for the temperatures (its info is {info})")
    return found


def temperatures_forward(conductances: np.ndarray, heat: np.ndarray) -> tuple[np.ndarray, Any]:
    factorised = factors(conductances)
    found = solve(factorised, heat)
    return found, (factorised, found)


def temperatures_backward(residuals: Any, cotangent: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    factorised, found = residuals
    adjoint = solve(factorised, cotangent)  # the matrix is symmetric
    return -drops(adjoint) * drops(found), adjoint


def drops(cells: np.ndarray) -> np.ndarray:
    """The differences across joints, of zero at both ends."""
    return np.diff(cells, prepend=0.0, append=0.0)


temperatures.defvjp(temperatures_forward, temperatures_backward)


def logs_of_resistances(weights: Any, temperatures: Any) -> Any:
    return curve(weights, temperatures[torch.as_tensor(SENSED)])


def curve(weights: Any, temperatures: Any) -> Any:
    hidden = torch.tanh(temperatures[:, None] / 50.0 * weights["slope"] + weights["shift"])
    hidden = torch.tanh(hidden @ weights["mix"] + weights["offset"])
    return hidden @ weights["out"] + weights["mean"]


def surprise(logs: Any, read: Any, log_scale: Any) -> Any:
    density = jax.scipy.stats.t.logpdf(read, FREEDOM, loc=logs, scale=jnp.exp(log_scale))
    return -jnp.sum(density)


def prior(coefficients: Any) -> Any:
    return 0.5 * np.sum((coefficients / SPREAD) ** 2)


# ------------------------------------------------------------------------------------ the data


class Case(NamedTuple):
    """What was read while the rod was heated at one place."""

    heat: np.ndarray  # (CELLS,)
    read: np.ndarray  # (SENSORS,), logarithms of resistances


def true_logs(celsius: np.ndarray) -> np.ndarray:
    """Thermistors as they are, which the rod's owner does not know."""
    return 3950.0 * (1.0 / (celsius + 273.15) - 1.0 / 298.15) + 0.15 * (celsius / 60.0) ** 2


def trained(table: np.ndarray, logs: np.ndarray) -> dict[str, np.ndarray]:
    """The weights of a network with two layers of 12, from a calibration table."""
    rng = np.random.default_rng(0)
    shapes = {"slope": 12, "shift": 12, "mix": (12, 12), "offset": 12, "out": 12, "mean": 1}
    weights = {
        name: torch.tensor(0.5 * rng.standard_normal(shape), requires_grad=True)
        for name, shape in shapes.items()
    }
    optimiser = torch.optim.LBFGS(weights.values(), max_iter=500, line_search_fn="strong_wolfe")
    inputs, outputs = torch.as_tensor(table), torch.as_tensor(logs)

    def loss() -> Any:
        optimiser.zero_grad()
        error = torch.mean((curve(weights, inputs) - outputs) ** 2)
        error.backward()
        return error

    optimiser.step(loss)
    error = float(loss().detach()) ** 0.5
    print(f"the network has its calibration table to {error:.1e}")
    return {name: weight.detach().numpy() for name, weight in weights.items()}


def make_cases(coefficients: np.ndarray, count: int) -> list[Case]:
    rng, cases = np.random.default_rng(1), []
    for place in np.linspace(20, CELLS - 21, count).astype(int):
        heat = POWER * (np.arange(CELLS) == place)
        celsius = temperatures(conductances(coefficients), heat)[SENSED]
        read = true_logs(celsius) + NOISE * rng.standard_normal(SENSORS)
        misread = rng.random(SENSORS) < MISREAD
        cases.append(Case(heat, read + misread * rng.normal(0.0, 1.0, SENSORS)))
    return cases


# ------------------------------------------------------------------------------------ the graph


def objective_of(cases: list[Case], weights: dict[str, np.ndarray]) -> Any:
    """The negative log-posterior of the coefficients and the readings' scale."""
    field, rod, penalty = [dg.delayed(model) for model in (conductances, temperatures, prior)]
    network = dg.delayed(logs_of_resistances, backend="torch")
    likelihood = dg.delayed(surprise, backend="jax")

    def objective(p: dict[str, Any]) -> Any:
        joints = field(p["coefficients"])
        terms = [
            likelihood(network(weights, rod(joints, case.heat)), case.read, p["log_scale"])
            for case in cases
        ]
        return dg.sum([*terms, penalty(p["coefficients"])])

    return objective


def check_gradient(objective: Any, at: dict[str, Any]) -> float:
    """The relative difference from central differences, extrapolated, along a direction."""
    flat, x, _ = dg.adapters.flat(objective, at)
    direction = np.random.default_rng(2).standard_normal(len(x))

    def slope(step: float) -> float:
        return (flat(x + step * direction)[0] - flat(x - step * direction)[0]) / (2 * step)

    expected = (4 * slope(5e-4) - slope(1e-3)) / 3
    return abs(flat(x)[1] @ direction / expected - 1)


def distance_on_cluster(objective: Any, at: dict[str, Any]) -> float:
    """The relative difference of the gradients of this process and of two others."""
    flat, x, _ = dg.adapters.flat(objective, at)
    _, here = flat(x)
    local = {"host": "127.0.0.1", "dashboard_address": "127.0.0.1:0"}
    with LocalCluster(2, threads_per_worker=1, **local) as cluster, Client(cluster):
        _, there = flat(x)
    return float(np.max(np.abs(there - here)) / np.max(np.abs(here)))


def find(objective: Any, start: dict[str, Any]) -> dict[str, Any]:
    flat, x, unravel = dg.adapters.flat(objective, start)
    before = time.perf_counter()
    fit = scipy.optimize.minimize(flat, x, jac=True, method="BFGS", options={"gtol": 1e-3})
    seconds = time.perf_counter() - before
    each = 1000 * seconds / fit.nfev
    print(f"{fit.nfev} values and gradients in {seconds:.1f} s, {each:.0f} ms each: {fit.message}")
    return unravel(fit.x)


def draw(file: str, found: np.ndarray, truth: np.ndarray) -> None:
    from bokeh.plotting import figure, save
    from bokeh.resources import INLINE

    plot = figure(title="conductivity of the rod", width=800, height=360, toolbar_location=None)
    for name, coefficients, colour in (("truth", truth, "black"), ("found", found, "#d95f02")):
        plot.line(
            JOINTS, conductivities(coefficients), color=colour, legend_label=name, line_width=2
        )
    plot.scatter(POSITIONS[SENSED], 0.0, marker="triangle", size=8, color="grey")
    plot.yaxis.axis_label = "conductivity"
    plot.xaxis.axis_label = "along the rod; triangles are thermistors"
    save(plot, file, INLINE, "Conductivity of a rod")


def within(what: str, difference: float, limit: float) -> list[str]:
    """The complaints, none if a difference is below the limit."""
    print(f"  {what}: {difference:.1e} (limit {limit:.0e})")
    return [] if difference <= limit else [what]


def main() -> None:
    sys.stdout.reconfigure(line_buffering=True)  # progress shows through a pipe, too
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="five places, and no cluster")
    parser.add_argument("--plot", metavar="FILE", help="write a picture as HTML")
    arguments = parser.parse_args()

    table = np.linspace(-5.0, 150.0, 100)
    weights = trained(table, true_logs(table))
    truth = SPREAD * np.random.default_rng(3).standard_normal(BUMPS)
    objective = objective_of(make_cases(truth, 5 if arguments.quick else 40), weights)
    start = {"coefficients": np.zeros(BUMPS), "log_scale": np.log(0.1)}
    failed = within("gradient, from differences", check_gradient(objective, start), 1e-6)
    if not arguments.quick:
        away = distance_on_cluster(objective, start)
        failed += within("gradient, from the one on a cluster", away, 1e-12)
    found = find(objective, start)
    away = np.log(conductivities(found["coefficients"]) / conductivities(truth))
    failed += within("log-conductivity, from the rod's", float(np.sqrt(np.mean(away**2))), 0.1)
    print(f"  scale of Student's t: {np.exp(found['log_scale']):.4f} (the noise has {NOISE})")
    if arguments.plot:
        draw(arguments.plot, found["coefficients"], truth)
    if failed:
        sys.exit("four_libraries.py: too far apart: " + "; ".join(failed))


if __name__ == "__main__":
    main()
