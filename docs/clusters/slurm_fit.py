"""Runs fit_schools.py on workers that SLURM starts: python slurm_fit.py, on a login node."""

import cloudpickle
import fit_schools
from dask_jobqueue import SLURMCluster

cloudpickle.register_pickle_by_value(fit_schools)  # the workers need not find this file

if __name__ == "__main__":
    with SLURMCluster(scheduler_options={"preload": "daskgrad.dashboards"}) as cluster:
        cluster.adapt(minimum_jobs=2, maximum_jobs=20)
        fit_schools.main(cluster.scheduler_address)
