"""Arrays in chunks, for programs that are written as those of dask.array: ``dg.array``.

An array is a node for each chunk, so it has the passes, tangents and recovery of any graph.
``array`` has the class, its methods, and NumPy's functions; each other module has the operations of
one kind. ``grid`` and ``map_overlap`` are for domains in blocks, which exchange their edges.
"""
