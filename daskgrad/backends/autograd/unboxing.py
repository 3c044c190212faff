"""Out of the boxes: the plain numbers in what a model is called with while it is traced.

They have no derivative in any of the traces that they come from, nested ones included.
"""

from typing import Any

import numpy as np
from autograd.tracer import getval, isbox

from daskgrad.values.trees import map_leaves


def unboxed(leaf: Any) -> Any:
    """What is in a box, through all traces; anything else as it is.

    Arrays are copies, since the trace goes on with those in the boxes. autograd's own boxes of
    dicts, lists and tuples hold boxes of outer traces.
    """
    if not isbox(leaf):
        return leaf
    value = getval(leaf)
    if isinstance(value, np.ndarray):
        return value.copy()
    return map_leaves(unboxed, value)


stop_gradient = value = unboxed
