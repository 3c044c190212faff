"""NumPy's functions: which of them arrays in chunks have, and what those hear who call others."""

from typing import Any

import numpy as np

from daskgrad.values.descriptions import path_of

UFUNCS = set(
    "add subtract multiply divide power negative positive absolute fabs exp exp2 expm1 log log2 "
    "log10 log1p sqrt square reciprocal sin cos tan arcsin arccos arctan arctan2 sinh cosh tanh "
    "arcsinh arccosh arctanh maximum minimum fmax fmin logaddexp logaddexp2 sign conjugate matmul "
    "greater greater_equal less less_equal equal not_equal logical_and logical_or logical_not "
    "isfinite isnan isinf".split()
)

FUNCTIONS = {
    **{getattr(np, name): name for name in ("sum", "mean", "prod", "max", "min")},
    **{np.amax: "max", np.amin: "min", np.linalg.norm: "norm", np.transpose: "transpose"},
    **{np.dot: "dot", np.tensordot: "tensordot", np.where: "where", np.stack: "stack"},
    **{np.concatenate: "concatenate", np.real: "real", np.imag: "imag"},
    **{np.shape: "shape", np.ndim: "ndim"},
}

INSTEAD = {  # by name, also of methods
    "reshape": "rechunk, and reshape each block with map_blocks",
    "ravel": "sum, or take norms, over several axes",
    "flatten": "sum, or take norms, over several axes",
    "einsum": "np.tensordot and a transpose",
    "inner": "np.tensordot",
    "outer": "x[:, None] of a NumPy array, or np.tensordot(x, y, 0)",
    "vdot": "(x * y).sum()",
    "var": "((x - x.mean()) ** 2).mean()",
    "std": "np.sqrt(((x - x.mean()) ** 2).mean())",
    "average": "(weights * x).sum() / weights.sum()",
    "clip": "np.minimum(np.maximum(x, low), high)",
    "take": "slices, or map_blocks",
    "flip": "x.T, or map_blocks",
    "vstack": "np.concatenate along axis 0",
    "hstack": "np.concatenate along axis 1",
    "astype": "dg.array(x.astype(...)) before",
    "copy": "the array itself, which nothing can write to",
}


def refused(function: Any, method: str = "__call__", options: Any = ()) -> TypeError:
    """The error of a call that is not in the closed set."""
    name = function.__name__
    if method != "__call__":
        instead = {"add": "sum", "multiply": "prod", "maximum": "max", "minimum": "min"}.get(name)
        told = f"x.{instead}()" if instead and method == "reduce" else "another operation"
        return TypeError(f"np.{name}.{method} of a dg.array is not there; use {told}")
    if options:
        found = ", ".join(map(repr, options))
        return TypeError(f"np.{name} of a dg.array takes no {found}; its dtypes follow NumPy's")
    known = isinstance(function, np.ufunc) or getattr(function, "__module__", None)
    path = path_of(function) if known else f".{name}"
    told = INSTEAD.get(name, "x.map_blocks(model), which calls a model on each chunk")
    return TypeError(
        f"{path} is not among the operations of a dg.array, which are differentiated chunk by "
        f"chunk; use {told}"
    )
