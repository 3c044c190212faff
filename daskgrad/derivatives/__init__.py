"""Derivatives: what users call. Record the function's nodes, evaluate them, collect what arrived.

A call is evaluated in the calling thread as long as that is quicker (``in_line``), on the workers
that hold the items (``daskgrad.placed``), or as a graph where Dask would run it. All three run
the same functions on the same blocks, and have the same bits.
"""
