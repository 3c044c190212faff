"""Models: one call of one model, run, traced, captured, pulled back and moved to other processes.

Workers run this code, which does not import Dask. The forward task of a call is
``pullbacks.capture``, its backward task ``pullbacks.pull_back``; between them the worker keeps a
``Captured``. It may leave its process at any time, and may be computed twice. So it knows its size,
loads without the user's code (a result that cannot be loaded hangs Dask's cluster), and carries
fingerprints, which tell whether value and pullback belong together (``determinism``). An error
names its stage and model, and arrives everywhere with its type and notes (``failures``).
"""
