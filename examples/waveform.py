"""Full-waveform inversion: the speed of sound underground, from what receivers have heard.

Eight shots are fired in a well on the left; receivers in a well on the right and at the surface
record the pressure. The medium has layers, which are known about, and an anomaly between the wells,
which is not. Each shot is a constituent model: a loop over time of the acoustic wave equation, of
which few states are kept (``dg.scan``), and a misfit that each step adds to. The shots are placed
on the workers of a cluster (``dg.place``), and L-BFGS asks for the misfit and its gradient with
respect to the speed in each of 100 x 100 cells.

The scheme is of second order in time and of fourth order in space, with a sponge around the domain
(C. Cerjan et al., A nonreflecting boundary condition for discrete acoustic and elastic wave
equations, Geophysics 50, 1985). The script checks it against the exact solution for a homogeneous
medium, Green's function of the plane, and the gradient by the rates of Taylor's expansion.

    python examples/waveform.py                        # a minute and a half on two cores
    python examples/waveform.py --quick                # seconds: fewer shots and iterations
    python examples/waveform.py --plot waveform.html   # pictures: the medium, the misfit, traces

The script exits with an error if the traces differ from the exact ones by more than one per cent,
the remainder of Taylor's expansion does not fall with the second power, the misfit does not fall to
a twentieth (if quick, a half), or the anomaly is not found: within it, the mean error of the speed
must fall to a half (if quick, it must fall).
"""

import os

# One BLAS thread, as Dask gives its workers.
os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

import argparse
import sys
import time
from typing import Any, NamedTuple

import dask
import numpy as np
import scipy.optimize
from dask.distributed import Client, LocalCluster

import daskgrad as dg

CELL, STEP, STEPS = 10.0, 1.5e-3, 500  # metres, seconds
CELLS, SPONGE = 100, 25  # in each direction, and around them
FREQUENCY = 8.0  # of the source, in hertz
UNIT = 1000.0  # speeds are in kilometres a second, so that L-BFGS sees numbers near one
MARGIN = 6  # cells around the wells that keep their speed: sources and receivers are known about


class Shot(NamedTuple):
    """Where it is fired, where receivers are, and what they recorded."""

    source: tuple[int, int]
    rows: np.ndarray
    columns: np.ndarray
    data: np.ndarray


# --------------------------------------------------------------------------------- the equation


def ricker(steps: int) -> np.ndarray:
    """The source's amplitude at each step."""
    phase = (np.pi * FREQUENCY * (np.arange(steps) * STEP - 1.2 / FREQUENCY)) ** 2
    return (1.0 - 2.0 * phase) * np.exp(-phase)


def taper() -> np.ndarray:
    """What the sponge leaves of the pressure in each step."""
    distance = np.arange(CELLS + 2 * SPONGE)
    into = np.maximum(0, np.maximum(SPONGE - distance, distance - (SPONGE + CELLS - 1)))
    damping = np.exp(-((0.012 * into) ** 2))
    return damping[:, None] * damping


def second_derivatives(u: Any) -> Any:
    """Of fourth order, in units of the cell."""
    wide = np.pad(u, 2)
    along = -5.0 * u
    for near, far in ((1, 0), (3, 4)):
        along = along + (4.0 / 3.0) * (wide[near:, 2:-2][: len(u)] + wide[2:-2, near:][:, : len(u)])
        along = along - (1.0 / 12.0) * (wide[far:, 2:-2][: len(u)] + wide[2:-2, far:][:, : len(u)])
    return along


def step(state: Any, forcing: Any, factor: Any, sponge: Any, at: Any) -> Any:
    """The next two pressures, and the misfit at the receivers, or what they record."""
    u, before = state
    source, rows, columns = at
    after = sponge * (2.0 * u - sponge * before + factor * second_derivatives(u))
    after = after + forcing["amplitude"] * factor * source
    heard = after[rows, columns]
    if "data" not in forcing:
        return (after, u), heard
    return (after, u), 0.5 * np.sum((heard - forcing["data"]) ** 2)


def propagate(speed: Any, shot: Shot, data: Any, outputs: str) -> Any:
    """What the steps of a shot return, summed or stacked, for speeds in kilometres a second."""
    around = np.pad(speed, SPONGE, mode="edge")
    factor = (UNIT * STEP / CELL) ** 2 * around**2
    source = np.zeros(around.shape)
    source[shot.source[0] + SPONGE, shot.source[1] + SPONGE] = 1.0
    at = (source, shot.rows + SPONGE, shot.columns + SPONGE)
    rest = (np.zeros(around.shape), np.zeros(around.shape))
    xs = (
        {"amplitude": ricker(STEPS)} if data is None else {"amplitude": ricker(STEPS), "data": data}
    )
    return dg.scan(step, rest, STEPS, factor, taper(), at, xs=xs, outputs=outputs)[1]


def misfit(shot: Shot, speed: Any) -> Any:
    """The constituent model: how far a shot's traces are from what was recorded."""
    return propagate(speed, shot, shot.data, "sum")


def traces(shots: list[Shot], speed: np.ndarray) -> Any:
    """What the receivers of each shot hear: one loop a shot, side by side."""
    return dask.compute(*[propagate(speed, shot, None, "stack") for shot in shots])


# ---------------------------------------------------------------------------------- the problem


def media() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The true speeds, those that are known about, and where the anomaly is."""
    depth, across = np.mgrid[:CELLS, :CELLS] / CELLS
    layers = 1.6 + 0.25 * (depth > 0.3) + 0.3 * (depth > 0.62) + 0.1 * depth
    start = 1.6 + 0.25 / (1 + np.exp(-(depth - 0.3) / 0.02)) + 0.1 * depth
    start = start + 0.3 / (1 + np.exp(-(depth - 0.62) / 0.02))
    inside = (across - 0.5) ** 2 / 0.03 + (depth - 0.5) ** 2 / 0.012 < 1.0
    return layers + 0.2 * inside, start, inside


def acquisition(count: int, true: np.ndarray) -> list[Shot]:
    """Shots in the left well, with receivers in the right one and at the surface."""
    every = np.arange(2, CELLS - 2, 3)
    rows = np.concatenate([every, np.full(len(every), 2)])
    columns = np.concatenate([np.full(len(every), CELLS - 3), every])
    places = np.linspace(4, CELLS - 5, count).astype(int)
    silent = [
        Shot((int(place), 3), rows, columns, np.zeros((STEPS, len(rows)))) for place in places
    ]
    pairs = zip(silent, traces(silent, true), strict=True)
    return [shot._replace(data=data) for shot, data in pairs]


def free_cells() -> np.ndarray:
    """The cells whose speed is looked for."""
    free = np.zeros((CELLS, CELLS), bool)
    free[MARGIN:-MARGIN, MARGIN:-MARGIN] = True
    return free


# ----------------------------------------------------------------------------------- the checks


def exact_trace(distance: float, speed: float) -> np.ndarray:
    """The pressure at a distance from the source in a homogeneous plane.

    Green's function is 1 / (2 pi sqrt(t^2 - (r/c)^2)) after the arrival; with t = (r/c) cosh q its
    convolution with the source has no singularity.
    """
    q = np.linspace(0.0, 6.0, 20_001)
    late = np.arange(STEPS)[:, None] * STEP - distance / speed * np.cosh(q)
    phase = (np.pi * FREQUENCY * (late - 1.2 / FREQUENCY)) ** 2
    wave = np.where(late > 0.0, (1.0 - 2.0 * phase) * np.exp(-phase), 0.0)
    return np.trapezoid(wave, q, axis=1) / (2.0 * np.pi)


def check_against_green() -> tuple[np.ndarray, np.ndarray]:
    """A trace at 250 m and the exact one, up to when the sponge may be heard."""
    middle, away = CELLS // 2, 25
    shot = Shot(
        (middle, middle), np.array([middle]), np.array([middle + away]), np.zeros((STEPS, 1))
    )
    found = traces([shot], np.full((CELLS, CELLS), 2.0))[0][:, 0]
    # The source acts on one cell, and a step later than the exact one.
    wanted = exact_trace(away * CELL, 2000.0)
    wanted = np.interp(np.arange(STEPS) + 1.0, np.arange(STEPS), wanted)
    heard = int((CELLS - away) * CELL / 2000.0 / STEP)  # until an echo may arrive
    error = np.linalg.norm((found - wanted)[:heard]) / np.linalg.norm(wanted[:heard])
    print(f"a trace in a homogeneous medium differs from the exact one by {error:.1e}")
    if not error < 1e-2:
        sys.exit("the wave equation is not solved")
    return found, wanted


def check_gradient(shot: Shot, speed: np.ndarray) -> None:
    model = dg.delayed(misfit)
    _, rate = dg.taylor_rates(lambda c: model(shot, c))(speed)
    print(f"the remainder of Taylor's expansion falls with the power {rate:.2f}")
    if not 1.9 < rate < 2.3:
        sys.exit("the gradient is wrong")


# -------------------------------------------------------------------------------- the inversion


def invert(shots: Any, start: np.ndarray, iterations: int) -> tuple[np.ndarray, list[float]]:
    """The speeds that L-BFGS finds, and the misfit at each evaluation."""
    free, history = free_cells(), []

    def objective(x: np.ndarray) -> Any:
        return dg.map_sum(misfit, shots, x)

    gradient_of = dg.value_and_grad(objective)

    def of_free(x: np.ndarray) -> tuple[float, np.ndarray]:
        speed = start.copy()
        speed[free] = x
        value, gradient = gradient_of(speed)
        history.append(value)
        return value / history[0], gradient[free] / history[0]

    bounds = [(1.2, 3.0)] * int(free.sum())
    options = {"maxiter": iterations, "maxcor": 10}
    found = scipy.optimize.minimize(
        of_free, start[free], jac=True, method="L-BFGS-B", bounds=bounds, options=options
    )
    speed = start.copy()
    speed[free] = found.x
    return speed, history


def draw(
    file: str,
    images: dict[str, np.ndarray],
    history: list[float],
    green: tuple[np.ndarray, np.ndarray],
) -> None:
    """Pictures of the medium and of the misfit, in one HTML file."""
    from bokeh.layouts import column, row
    from bokeh.models import ColorBar, LinearColorMapper
    from bokeh.plotting import figure, save
    from bokeh.resources import INLINE

    size = CELLS * CELL
    colours = LinearColorMapper("Viridis256", low=1.5, high=2.5)
    pictures = []
    for title, image in images.items():
        plot = figure(
            title=title,
            width=360,
            height=340,
            x_range=(0, size),
            y_range=(size, 0),
            toolbar_location=None,
        )
        plot.image([image], x=0, y=0, dw=size, dh=size, color_mapper=colours)
        plot.xaxis.axis_label, plot.yaxis.axis_label = "m", "depth, m"
        pictures.append(plot)
    pictures[-1].add_layout(ColorBar(color_mapper=colours, title="km/s"), "right")
    pictures[-1].width = 430
    fall = figure(title="misfit", width=560, height=300, y_axis_type="log", toolbar_location=None)
    fall.line(list(range(len(history))), [each / history[0] for each in history], line_width=2)
    fall.xaxis.axis_label, fall.yaxis.axis_label = "evaluation", "of the first one"
    trace = figure(
        title="250 m from the source, homogeneous medium",
        width=560,
        height=300,
        toolbar_location=None,
    )
    seconds = np.arange(STEPS) * STEP
    trace.line(seconds, green[1], line_width=5, color="#e0a030", legend_label="exact")
    trace.line(seconds, green[0], line_width=1.5, color="#303030", legend_label="computed")
    trace.xaxis.axis_label, trace.yaxis.axis_label = "s", "pressure"
    trace.legend.location = "top_left"
    save(column(row(*pictures), row(fall, trace)), file, INLINE, "Full-waveform inversion")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer shots and iterations")
    parser.add_argument("--plot", metavar="FILE", help="an HTML file for pictures")
    arguments = parser.parse_args()
    count, iterations = (2, 3) if arguments.quick else (8, 20)

    green = check_against_green()
    true, start, inside = media()
    data = acquisition(count, true)
    check_gradient(data[0], start)

    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
        with Client(cluster), dg.place(data) as shots:
            begin = time.perf_counter()
            found, history = invert(shots, start, iterations)
            seconds = time.perf_counter() - begin
    before, after = [np.mean(np.abs(each - true)[inside]) for each in (start, found)]
    print(
        f"{count} shots of {STEPS} steps, {len(history)} evaluations in {seconds:.1f} s; the "
        f"misfit fell to {history[-1] / history[0]:.4f} of the first one"
    )
    print(f"the mean error of the speed in the anomaly fell from {before:.3f} to {after:.3f} km/s")
    if arguments.plot:
        images = {"true speed": true, "first guess": start, "found": found}
        draw(arguments.plot, images, history, green)
    falls, better = (0.5, 1.0) if arguments.quick else (0.05, 0.5)
    if not (min(history) < falls * history[0] and after < better * before):
        sys.exit("the anomaly was not found")


if __name__ == "__main__":
    main()
