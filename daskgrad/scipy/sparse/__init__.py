"""Sparse matrices, as in ``scipy.sparse``.

Constant matrices of SciPy's are multiplied as they are: ``A @ x``, ``x @ A``, ``A.dot(x)``. Those
with traced entries are made by the functions here, which take the data and their places. All
derivatives take as many steps as there are entries.
"""

from daskgrad.scipy.sparse import linalg as linalg
from daskgrad.scipy.sparse.arrays import coo_array as coo_array
from daskgrad.scipy.sparse.arrays import csc_array as csc_array
from daskgrad.scipy.sparse.arrays import csr_array as csr_array
from daskgrad.scipy.sparse.arrays import diags_array as diags_array
from daskgrad.scipy.sparse.arrays import matmul as matmul
