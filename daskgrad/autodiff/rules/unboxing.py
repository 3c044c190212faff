"""Unboxing: the plain numbers in the boxes of a trace.

They have no derivative in any of the traces that they come from, nested ones included.
"""

from typing import Any

import numpy as np
from autograd.tracer import isbox

from daskgrad.autodiff.values.trees import map_leaves


def unboxed(leaf: Any) -> Any:
    """The plain value in a box, through all traces; any other leaf unchanged.

    Arrays are copies, since the trace still uses those in the boxes. autograd's boxes of dicts,
    lists and tuples hold boxes of outer traces. Objects that hold boxes have a method
    of this name.
    """
    value = leaf
    while isbox(value) and not hasattr(value, "unboxed"):
        value = value._value
    if value is leaf and (isbox(leaf) or not hasattr(leaf, "unboxed")):
        return leaf
    if hasattr(value, "unboxed"):
        return value.unboxed()
    if isinstance(value, np.ndarray):
        return value.copy()
    return map_leaves(unboxed, value)


stop_gradient = value = unboxed
