"""Values: what flows between models, and how it is taken apart, compared, protected and added.

Plain NumPy on pytrees: nothing here knows of models, tasks or Dask, and all of it may run in any
process and thread. A value is a pytree of arrays and numbers; a cotangent has a leaf for each of
its leaves, in that leaf's shape and dtype, or ``None`` where nothing arrived. What is added here is
added in an order that the places in a tree decide (``summation``), never the order of arrival: so
the bits of a result do not depend on who computed what, or when. Arrays that others may hold are
not written into (``protection``, ``ownership``).
"""
