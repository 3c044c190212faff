"""The gallery's pictures: what the examples found.

    python docs/gallery_pictures.py FOLDER [heat schools ...]

It needs Playwright and Chromium, as `screenshots.py` does, and the libraries of the examples. Some
examples draw by themselves (`--plot`); the fits of the others are done and drawn here.
"""

import argparse
import pathlib
import subprocess
import sys
import tempfile
from types import SimpleNamespace
from typing import Any

import numpy as np
from bokeh.layouts import row
from bokeh.models import ColorBar, LinearColorMapper
from bokeh.plotting import figure, save
from bokeh.resources import INLINE
from scipy.optimize import minimize
from scipy.special import expit
from screenshots import browser_context

import daskgrad as dg

EXAMPLES = pathlib.Path(__file__).parents[1] / "examples"
DRAW = {"heat": [], "waveform": [], "slide": ["--quick"], "words": [], "four_libraries": []}
COLOURS = ["#1b9e77", "#d95f02", "#7570b3", "#666666", "#e7298a"]
LIMIT = 120_000  # milliseconds until a page is drawn
SIZE = {"width": 800, "height": 360, "toolbar_location": None}


def schools() -> Any:
    """Shares of grades at most so high, by the earlier score: of students, and of the model."""
    import schools

    study = schools.make_study(SimpleNamespace(schools=schools.ALL_SCHOOLS, seed=0))
    likelihood = schools.Likelihood(schools.ordinal_school, study)
    slope, *cuts, spread = schools.ordinal_parameters(
        likelihood.maximise(schools.ordinal_start(study.students))
    )
    nodes, weights = schools.quadrature(40)
    before, grades = [study.students[name].to_numpy() for name in ("gcsecnt", "score")]
    bins = np.array_split(np.argsort(before), 25)
    middles = [before[each].mean() for each in bins]
    plot = figure(title="Grades by the earlier score, in 2,410 schools", y_range=(0, 1), **SIZE)
    along = np.linspace(min(middles), max(middles), 100)
    for cut, grade, colour in zip(cuts, np.unique(grades), COLOURS, strict=False):
        shares = expit(cut - slope * along[:, None] - spread * nodes) @ weights / weights.sum()
        plot.line(along, shares, color=colour, line_width=2, legend_label=f"at most {grade:g}")
        plot.scatter(middles, [np.mean(grades[each] <= grade) for each in bins], color=colour)
    plot.xaxis.axis_label = "GCSE score, less its mean; dots are a 25th of the students each"
    plot.yaxis.axis_label = "share of students"
    plot.add_layout(plot.legend[0], "right")
    return plot


def newton() -> Any:
    """Estimates of both models, with two standard errors."""
    import newton

    covariates, visits, ids = newton.read()
    table = np.column_stack([covariates, visits])
    persons = newton.by_person(covariates, visits, ids, 300)
    fits = {
        "each year by itself": (lambda x: dg.reduce_sum(newton.of_rows, table, x), len(table)),
        "300 persons": (lambda x: dg.map_sum(newton.of_person, persons, x), len(persons)),
    }
    plot = figure(title="Doctor visits", y_range=newton.NAMES[::-1], **SIZE)
    for number, (label, each) in enumerate(fits.items()):
        found, errors, _ = newton.fit(*each)
        places = [(name, 0.1 - 0.2 * number) for name in newton.NAMES]
        look = {"color": COLOURS[number], "legend_label": label}
        plot.segment(found - 2 * errors, places, found + 2 * errors, places, line_width=2, **look)
        plot.scatter(found, places, size=7, **look)
    plot.legend.location = "bottom_right"
    plot.xaxis.axis_label = "effect on the logarithm of the mean, and two standard errors"
    return plot


def external_solver() -> Any:
    """The conductivities of the plate, and those that were found."""
    import external_solver as example

    side = example.PATCHES
    truth = example.SPREAD * np.random.default_rng(1).standard_normal(side**2)
    cases = example.make_cases(36, 24, truth)
    objective = dg.value_and_grad(lambda x: dg.map_sum(example.misfit, cases, x))
    options = {"ftol": 1e-12, "gtol": 1e-8}
    found = minimize(objective, 0 * truth, jac=True, method="L-BFGS-B", options=options)
    colours = LinearColorMapper("Viridis256", low=0.3, high=2.5)
    plots = []
    for title, logs in (("true conductivity", truth), ("found", found.x)):
        plot = figure(title=title, width=360, height=340, toolbar_location=None)
        image = np.exp(logs).reshape(side, side)
        plot.image([image], x=0, y=0, dw=1, dh=1, color_mapper=colours)
        plot.xaxis.axis_label = plot.yaxis.axis_label = "of the plate's side"
        plots.append(plot)
    plots[1].add_layout(ColorBar(color_mapper=colours), "right")
    plots[1].width = 430
    return row(plots)


def regression_dask() -> Any:
    """The coefficients, by few rows and by more."""
    import regression_dask as example

    true = example.true_coefficients()
    plot = figure(title="Coefficients of a regression on a dask Array", **SIZE)
    plot.line([min(true), max(true)], [min(true), max(true)], color="#999999")
    with tempfile.TemporaryDirectory() as folder:
        files = [example.write_chunk(pathlib.Path(folder), number) for number in range(8)]
        for count, colour in zip((1, 8), COLOURS[1::-1], strict=True):
            found, _ = example.fit(example.by_slices(*example.as_arrays(files[:count])))
            label = f"{count * example.CHUNK:,} rows"
            plot.scatter(true, found, color=colour, legend_label=label)
    plot.xaxis.axis_label, plot.yaxis.axis_label = "true", "found"
    plot.legend.location = "top_left"
    return plot


def secure_cluster() -> Any:
    """The samples' decays, and the curve that is fitted to them."""
    import secure_cluster as example

    samples = list(example.make_samples(200))
    level, rate = np.exp(example.fit(samples)[0])
    plot = figure(title="A decay whose rate 200 samples share", **SIZE)
    for mass, times, counts in samples:
        plot.scatter(times, counts / mass, color=COLOURS[0], size=3, alpha=0.5)
    times = np.linspace(0.0, 3.0, 100)
    plot.line(times, level * np.exp(-rate * times), color=COLOURS[1], line_width=2)
    plot.xaxis.axis_label, plot.yaxis.axis_label = "time", "counts by mass"
    return plot


def main() -> None:
    own = [schools, newton, external_solver, regression_dask, secure_cluster]
    draw_here = {each.__name__: each for each in own}
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("names", nargs="*", default=[*draw_here, *DRAW])
    arguments = parser.parse_args()
    sys.path.append(str(EXAMPLES))
    with tempfile.TemporaryDirectory() as folder, browser_context(1300, "light") as context:
        page = context.new_page()
        page.set_default_timeout(LIMIT)
        for name in arguments.names:
            file = pathlib.Path(folder, f"{name}.html")
            if name in DRAW:
                command = [sys.executable, EXAMPLES / f"{name}.py", *DRAW[name], "--plot", file]
                subprocess.run(command, check=True)
            else:
                save(draw_here[name](), file, INLINE, name)
            page.goto(file.as_uri())
            page.wait_for_function("window.Bokeh && Bokeh.documents[0].is_idle")
            page.locator("[data-root-id] > *").screenshot(path=arguments.folder / f"{name}.png")


if __name__ == "__main__":
    main()
