"""Loaded before NumPy: one BLAS thread, as Dask's nannies give workers; more give other bits."""

import os

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(name, "1")
