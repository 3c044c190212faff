"""Values: the pytrees that flow between models: how to flatten, compare, protect and add them.

Plain NumPy on pytrees, without knowledge of models, tasks or Dask, for any process and thread. A
value is a pytree of arrays and numbers; a cotangent has a leaf for each of the value's leaves, in
that leaf's shape and dtype, or ``None`` if nothing arrived. The places in a tree decide the order
of additions (``addition``), never the order of arrival: so the bits of a result do not depend on
who computed which part, or when. Nothing is written into arrays that others may hold
(``protection``).
"""
