"""Unboxing: the plain numbers in the boxes of a trace.

They have no derivative in any of the traces that they come from, nested ones included.
"""

from typing import Any

import numpy as np
from autograd.tracer import getval, isbox

from daskgrad.values.trees import map_leaves


def unboxed(leaf: Any) -> Any:
    """The plain value in a box, through all traces; any other leaf unchanged.

    Arrays are copies, since the trace still uses those in the boxes. autograd's boxes of dicts,
    lists and tuples hold boxes of outer traces. Objects that hold boxes have a method
    of this name.
    """
    if not isbox(leaf):
        return leaf.unboxed() if hasattr(leaf, "unboxed") else leaf
    value = getval(leaf)
    if isinstance(value, np.ndarray):
        return value.copy()
    return map_leaves(unboxed, value)


stop_gradient = value = unboxed
