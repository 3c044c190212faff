"""Runs fit_schools.py over SSH: python ssh_fit.py node1 node2; the first has the scheduler."""

import sys

import cloudpickle
import fit_schools
from dask.distributed import SSHCluster

cloudpickle.register_pickle_by_value(fit_schools)  # the workers need not find this file

if __name__ == "__main__":
    options = {"nthreads": 1, "n_workers": 2}  # two workers on each node but the first
    with SSHCluster(sys.argv[1:], worker_options=options) as cluster:
        fit_schools.main(cluster.scheduler_address)
