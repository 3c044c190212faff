"""Identification of a medium: the diffusivity of a plate, from how heat has spread on it.

Four hot spots are put on a plate of 160 x 160 cells, one after the other, and the temperature is
measured at every fourth cell after 120 steps. The diffusivity differs from cell to cell. The plate
is cut into 2 x 2 blocks of unequal sizes, which exchange their edges on a cluster
(``dg.map_overlap``); insulated on two sides, cooled on the others. L-BFGS finds the logarithm of
the diffusivity, with a penalty for its slopes.

The script checks the gradient of the cut plate against that of the whole one (``dg.scan``), and
prints what travels between the workers.

    python examples/heat.py                    # a minute and a half on two cores
    python examples/heat.py --quick            # seconds: fewer spots and iterations
    python examples/heat.py --plot heat.html   # pictures: the diffusivity, and the misfit

The script exits with an error if the two gradients differ by more than 1e-13 of the largest entry,
or if the misfit does not fall to a hundredth, and the error of the diffusivity to a half (if quick,
a half, and at all).
"""

import os

# One BLAS thread, as Dask gives its workers.
os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

import argparse
import sys
import time
from typing import Any

import numpy as np
import scipy.optimize
from dask.distributed import Client, LocalCluster

import daskgrad as dg

SIZE, STEPS, FUSED = 160, 120, 12
CUT = ((70, 90), (96, 64))
COOLED = 0.0
BOUNDARY = {0: "nearest", 1: COOLED}  # insulated above and below
NOISE, PENALTY = 1e-3, 1e-3

# ------------------------------------------------------------------------------------ the plate


def step(u: Any, log_diffusivity: Any) -> Any:
    """One step of a block, from arrays with one more entry on either side of each axis."""
    d = np.exp(log_diffusivity)
    inner, here = u[1:-1, 1:-1], d[1:-1, 1:-1]

    def flux(rows: slice, columns: slice) -> Any:
        return 0.5 * (here + d[rows, columns]) * (u[rows, columns] - inner)

    middle = slice(1, -1)
    down, up = flux(slice(2, None), middle), flux(slice(None, -2), middle)
    right, left = flux(middle, slice(2, None)), flux(middle, slice(None, -2))
    return inner + (down + up + right + left)


def distance(u: Any, data: Any, places: Any) -> Any:
    """The misfit of a block; ``places`` are one where the temperature was measured."""
    return 0.5 * np.sum(places * (u - data) ** 2)


def roughness(log_diffusivity: Any) -> Any:
    down, across = log_diffusivity[1:] - log_diffusivity[:-1], np.diff(log_diffusivity, axis=1)
    return 0.5 * PENALTY * (np.sum(down**2) + np.sum(across**2))


def cut_plate(x: Any, start: np.ndarray, data: np.ndarray) -> Any:
    """The misfit of one spot, block by block."""
    grids = dg.grid(start, CUT), dg.grid(x, CUT)
    last = dg.map_overlap(step, *grids, boundary=BOUNDARY, steps=STEPS, fuse=FUSED)
    return dg.sum(last.map(distance, dg.grid(data, CUT), dg.grid(PLACES, CUT)))


def whole_step(u: Any, x: Any) -> Any:
    cold = np.pad(np.pad(u, ((1, 1), (0, 0)), mode="edge"), ((0, 0), (1, 1)))
    return step(cold, np.pad(x, 1, mode="edge"))


def whole_plate(x: Any, start: np.ndarray, data: np.ndarray) -> Any:
    """The same of the plate in one piece."""
    last = dg.scan(whole_step, start, STEPS, x)
    return dg.delayed(distance)(last, data, PLACES)


# ---------------------------------------------------------------------------------- the problem


def places() -> np.ndarray:
    found = np.zeros((SIZE, SIZE))
    found[2::4, 2::4] = 1.0
    return found


PLACES = places()


def spots(count: int) -> list[np.ndarray]:
    """What the temperature is at first."""
    down, across = np.mgrid[:SIZE, :SIZE] / SIZE
    middles = [(0.3, 0.3), (0.7, 0.65), (0.35, 0.7), (0.7, 0.3)][:count]
    return [10.0 * np.exp(-((down - a) ** 2 + (across - b) ** 2) / 0.02) for a, b in middles]


def true_diffusivity() -> np.ndarray:
    """The logarithm; between 0.1 and 0.24, where the scheme is stable."""
    down, across = np.mgrid[:SIZE, :SIZE] / SIZE
    wave = np.sin(7.0 * down) * np.cos(5.0 * across + 1.0)
    return np.log(0.155 + 0.05 * wave + 0.03 * (down + across > 1.1))


def measured(x: np.ndarray, starts: list[np.ndarray]) -> list[np.ndarray]:
    generator = np.random.default_rng(0)
    lasts = [dg.scan(whole_step, start, STEPS, x).compute() for start in starts]
    return [last + NOISE * generator.normal(size=last.shape) for last in lasts]


# ------------------------------------------------------------------------------------- the work


def received(client: Client) -> int:
    """The bytes that workers have got from each other."""
    logs = client.run(lambda dask_worker: [e["total"] for e in dask_worker.transfer_incoming_log])
    return sum([sum(each) for each in logs.values()])


def check_gradient(x: np.ndarray, start: np.ndarray, data: np.ndarray, client: Client) -> None:
    before = received(client)
    _, cut = dg.value_and_grad(lambda x: cut_plate(x, start, data))(x)
    nbytes = received(client) - before
    _, whole = dg.value_and_grad(lambda x: whole_plate(x, start, data))(x)
    error = np.max(np.abs(cut - whole)) / np.max(np.abs(whole))
    halo = 2 * 8 * FUSED * sum([sum(sizes) for sizes in CUT])  # both ways along either seam
    print(f"the gradients of the cut and of the whole plate differ by {error:.1e}")
    print(
        f"the workers sent each other {nbytes / 1e6:.1f} MB for one gradient of one spot; the "
        f"edges of an exchange take {halo / 1e3:.0f} kB, a plate {8e-3 * SIZE**2:.0f} kB"
    )
    if not error < 1e-13:
        sys.exit("the gradient of the cut plate is wrong")


def identify(
    starts: list[np.ndarray], data: list[np.ndarray], iterations: int
) -> tuple[np.ndarray, list[float]]:
    """The logarithm of the diffusivity, and the misfit at each evaluation."""
    penalty, history = dg.delayed(roughness), []

    def objective(x: Any) -> Any:
        pairs = zip(starts, data, strict=True)
        return dg.sum([*[cut_plate(x, start, found) for start, found in pairs], penalty(x)])

    gradient_of = dg.value_and_grad(objective)

    def of_vector(vector: np.ndarray) -> tuple[float, np.ndarray]:
        value, gradient = gradient_of(vector.reshape(SIZE, SIZE))
        history.append(float(value))
        return float(value), gradient.ravel()

    found = scipy.optimize.minimize(
        of_vector,
        np.full(SIZE * SIZE, np.log(0.15)),
        jac=True,
        method="L-BFGS-B",
        bounds=[(np.log(0.05), np.log(0.25))] * SIZE**2,
        options={"maxiter": iterations},
    )
    return found.x.reshape(SIZE, SIZE), history


def draw(file: str, images: dict[str, np.ndarray], history: list[float]) -> None:
    from bokeh.layouts import column, row
    from bokeh.models import ColorBar, LinearColorMapper
    from bokeh.plotting import figure, save
    from bokeh.resources import INLINE

    colours = LinearColorMapper("Viridis256", low=0.1, high=0.24)
    pictures = []
    for title, image in images.items():
        plot = figure(
            title=title,
            width=380,
            height=370,
            x_range=(0, SIZE),
            y_range=(SIZE, 0),
            toolbar_location=None,
        )
        plot.image([image], x=0, y=0, dw=SIZE, dh=SIZE, color_mapper=colours)
        seams = ([CUT[1][0]] * 2, [0, SIZE]), ([0, SIZE], [CUT[0][0]] * 2)
        for x, y in seams:
            plot.line(x, y, color="white", line_dash="dashed")
        plot.xaxis.axis_label = plot.yaxis.axis_label = "cell"
        pictures.append(plot)
    pictures[-1].add_layout(ColorBar(color_mapper=colours, title="cells² a step"), "right")
    pictures[-1].width = 470
    fall = figure(title="misfit", width=850, height=260, y_axis_type="log", toolbar_location=None)
    fall.line(list(range(len(history))), [each / history[0] for each in history], line_width=2)
    fall.xaxis.axis_label, fall.yaxis.axis_label = "evaluation", "of the first one"
    save(column(row(*pictures), fall), file, INLINE, "Diffusivity of a plate")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer spots and iterations")
    parser.add_argument("--plot", metavar="FILE", help="an HTML file for pictures")
    arguments = parser.parse_args()
    count, iterations = (1, 3) if arguments.quick else (4, 20)

    true, starts = true_diffusivity(), spots(count)
    data = measured(true, starts)
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
        with Client(cluster) as client:
            check_gradient(np.full((SIZE, SIZE), np.log(0.15)), starts[0], data[0], client)
            begin = time.perf_counter()
            found, history = identify(starts, data, iterations)
            seconds = time.perf_counter() - begin
    errors = [np.mean(np.abs(np.exp(each) - np.exp(true))) for each in (np.log(0.15), found)]
    print(
        f"{count} spots, {len(history)} evaluations in {seconds:.1f} s; the misfit fell to "
        f"{history[-1] / history[0]:.4f} of the first one, the mean error of the diffusivity from "
        f"{errors[0]:.4f} to {errors[1]:.4f}"
    )
    if arguments.plot:
        draw(arguments.plot, {"true diffusivity": np.exp(true), "found": np.exp(found)}, history)
    falls, better = (0.5, 1.0) if arguments.quick else (0.01, 0.5)
    if not (history[-1] < falls * history[0] and errors[1] < better * errors[0]):
        sys.exit("the diffusivity was not found")


if __name__ == "__main__":
    main()
