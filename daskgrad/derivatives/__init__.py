"""Derivatives: the functions that users call. They record nodes, evaluate them, collect cotangents.

A call is evaluated in the calling thread if that is quicker (``in_line``): its models run when they
are called (``eager``). Otherwise it is recorded, and runs on the workers that hold the items
(``beside_workers``), or as a graph where Dask would run it. All have the same bits.
"""
