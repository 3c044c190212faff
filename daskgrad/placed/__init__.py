"""Sums over placed items: direct calls of the workers evaluate them, where the items are.

Client and scheduler throttle consecutive messages, so that a small Dask graph takes 20 ms and more;
a direct call of a worker takes one. The workers hold the items under ordinary Dask keys
(``spread``), a plugin on each evaluates them (``worker``), and the client calls it (``call``).
"""
