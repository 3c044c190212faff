"""Tasks: what is handed to Dask, and how it is waited for.

The only room that touches Dask's task and graph classes. It knows functions and their arguments,
and nothing of derivatives. Keys are new in each evaluation, since Dask returns the old result for a
key that it knows. Nothing is waited for without a limit: Dask itself waits for ever where no worker
can run what is wanted (``supervision``, ``progress``).
"""
