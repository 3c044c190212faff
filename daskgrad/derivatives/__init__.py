"""Derivatives: the functions that users call. They record nodes, evaluate them, collect cotangents.

A call is evaluated in the calling thread as long as that is quicker (``in_line``), on the workers
that hold the items (``daskgrad.placed``), or as a graph where Dask would run it. All three run
the same functions on the same blocks, and have the same bits.
"""
