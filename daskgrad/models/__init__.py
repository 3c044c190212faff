"""Models: one call of one model, run, traced, captured, pulled back and moved to other processes.

This is what workers do; Dask is not imported here. The forward task of a call is
``pullbacks.capture``, its backward task ``pullbacks.pull_back``; between them the worker keeps a
``Captured``. A captured call may leave its process at any time, and may be computed twice: so it
knows its size, loads without running anybody's code (a result that cannot be loaded hangs Dask's
cluster), and carries fingerprints, by which value and pullback are known to belong together
(``determinism``). Whatever fails here says which stage of which model it was (``failures``), and
arrives as an exception with type and notes wherever it is sent (``portable_errors``).
"""
