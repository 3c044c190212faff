"""Values: the pytrees that flow between models: how to flatten, compare, protect and add them.

Plain NumPy on pytrees: nothing here knows of models, tasks or Dask, and all of it may run in any
process and thread. A value is a pytree of arrays and numbers; a cotangent has a leaf for each of
its leaves, in that leaf's shape and dtype, or ``None`` where nothing arrived. The places in a tree
decide the order of additions (``summation``), never the order of arrival: so the bits of a result
do not depend on who computed which part, or when. Nothing is written into arrays that others may
hold (``protection``, ``ownership``).
"""
