"""Resident sums: direct calls of the workers evaluate them, where the placed items are.

A small Dask graph takes some 20 ms a call and more, because client and scheduler throttle
consecutive messages; a direct call of a worker takes one. So the workers hold the items under
ordinary Dask keys (``holdings``), a plugin on each worker evaluates those that its worker holds
(``worker_plugin``), and the client (``connection``) calls it (``call``): the point goes out once
per worker, and one value and gradient come back.
"""
