"""daskgrad: gradients of programs made of many models, on Dask.

models:       delayed, variable, stop_gradient, value, random, register_backend
rules:        custom_vjp, implicit, finite_difference
sums:         map_sum, reduce_sum, sum, zip, place, Shards
loops:        scan
grids:        grid, map_overlap, Grid, array
derivatives:  value_and_grad, grad, vjp, jvp, hvp, gnvp, hessian, jacobian, per_item, differentiate
checks:       check_grads, taylor_rates, debug_nans, explain
optimisers:   optim, Rows
settings:     PullbackPolicy, NondeterministicModelError
elsewhere:    adapters
to see:       report, record, progress, visualize, dashboards

``docs/which_function.md`` says which one to call. ``__init__.pyi`` lists the modules that define
them, which are imported at the first use.
"""

import ast
import importlib
import pathlib
import sys
from typing import Any

__version__ = "0.2.0"

_STUB = ast.parse(pathlib.Path(__file__).with_suffix(".pyi").read_text())
_IMPORTS = [node for node in _STUB.body if isinstance(node, ast.ImportFrom)]
_HOMES = {alias.name: str(node.module) for node in _IMPORTS for alias in node.names}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'daskgrad' has no attribute {name!r}")
    home = _HOMES[name]
    if home == "daskgrad":
        return importlib.import_module(f"daskgrad.{name}")
    result = globals()[name] = getattr(importlib.import_module(home), name)
    return result


def __dir__() -> list[str]:
    return [*__all__, *(name for name in globals() if name.startswith("__"))]


if "distributed" in sys.modules:  # a worker gets results whose types it must know how to load
    importlib.import_module("daskgrad.tasks")
