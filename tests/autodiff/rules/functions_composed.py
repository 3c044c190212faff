"""The table of the sweep: what autograd composes of primitives, under the names of NumPy's."""

import autograd.numpy as anp
import numpy as np
from functions_numpy import COLUMN, STACK, A, B, C, V, W
from sweep import function


def of_list(fun):
    """With the arrays in a list, as these functions take them."""
    return lambda *arrays, **kwargs: fun(list(arrays), **kwargs)


JOINED = {"dtype": np.float64, "casting": "unsafe"}

for name, inputs in (
    ("hstack", [(V, W), (A, COLUMN), (V, C[0])]),
    ("vstack", [(V, W), (A, V[None]), (STACK, STACK[:1])]),
    ("row_stack", [(V, W)]),
    ("column_stack", [(V, W), (A, COLUMN)]),
):
    function(getattr(anp, name), inputs, names=["tup"] * 2, adapt=of_list,
        refused=JOINED if name != "column_stack" else {})
function(anp.concatenate, [(V, W), (A, B), (STACK, STACK)], name="concatenate",
    names=["arrays"] * 2, axis=[0, -1], adapt=of_list, refused=JOINED | {"out": np.zeros(8)},
    reasons={"arr_list": "autograd's name of the arrays"})
function(anp.stack, [(V, W), (A, B), (A, C)], names=["arrays"] * 2, axis=[0, 1, -1], adapt=of_list,
    refused=JOINED | {"out": np.zeros((2, 4))})
function(anp.append, [(V, W), (A, B), (A, V)], axis=[0, -1])
function(anp.select, [(V, W), (A, B)], names=["choicelist"] * 2, default=[0.5],
    adapt=lambda fun: lambda x, y, **kwargs: fun([A > 0.5, A < 0.3], [x, y], **kwargs),
    reasons={"condlist": "conditions have no derivative",
    "single": "autograd makes double precision of it, with the default"})
function(anp.where, [(A > 0.5, A, B), (V > 0.5, 0.3, V)], name="where",
    reasons={"args": "x and y: among the calls", "kwargs": "so too"})
function(anp.array, [(V, W), (A, B)], names=["object"] * 2, dtype=[np.float64], copy=[True],
    order=["C", "F"], ndmin=[3], adapt=of_list, refused={},
    reasons={"A": "autograd's name of the object", "args": "NumPy's arguments, by position",
    "kwargs": "NumPy's keywords: among the calls",
    "subok": "of classes of arrays, which have no derivative", "ndmax": "of arrays of objects",
    "like": "for other libraries' arrays"})
