"""Sparse matrices, as in ``scipy.sparse``.

SciPy's constant matrices are multiplied as they are: ``A @ x``, ``x @ A``, ``A.dot(x)``. The
functions here make matrices with traced entries, from the data and their places. All derivatives
take as many steps as there are entries.
"""

from daskgrad.scipy.sparse import linalg as linalg
from daskgrad.scipy.sparse.arrays import coo_array as coo_array
from daskgrad.scipy.sparse.arrays import csc_array as csc_array
from daskgrad.scipy.sparse.arrays import csr_array as csr_array
from daskgrad.scipy.sparse.arrays import diags_array as diags_array
from daskgrad.scipy.sparse.arrays import matmul as matmul
