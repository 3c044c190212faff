"""Arrays in chunks, for programs that are written as those of dask.array: ``dg.array``.

An array is a node for each chunk, so both passes, tangents, and what happens after a loss are those
of any graph. ``array`` has the class and its methods; each other module has the operations of one
kind, and ``numpy_functions`` tells which of NumPy's functions call them, and what others are told.
"""
