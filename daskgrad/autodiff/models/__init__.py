"""Models: one call of one model, run, traced, captured, pulled back and moved to other processes.

Workers run this code; it does not import Dask. The forward task of a call is
``pullbacks.capture``, its backward task ``pullbacks.pull_back``; between them the worker keeps a
``Captured``. A captured call may leave its process at any time, and may be computed twice: so it
knows its size, loads without running the user's code (a result that cannot be loaded hangs Dask's
cluster), and carries fingerprints, which tell whether value and pullback belong together
(``determinism``). An error names the stage and the model that it came from (``failures``), and
arrives with its type and notes wherever it is sent (``portable_errors``).
"""
