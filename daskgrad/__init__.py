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

``docs/which_function.md`` says which one to call, and ``ARCHITECTURE.md`` where it is defined.
"""

import importlib
from typing import Any

from daskgrad import optim, random
from daskgrad.arrays.array import array
from daskgrad.backends.autograd import plain_calls, trace_numbers
from daskgrad.backends.registry import register_backend
from daskgrad.checks.check_grads import check_grads
from daskgrad.checks.explain import explain
from daskgrad.checks.taylor import taylor_rates
from daskgrad.derivatives.gradient import grad, value_and_grad
from daskgrad.derivatives.hessian import gnvp, hessian, hvp
from daskgrad.derivatives.jacobian import jacobian
from daskgrad.derivatives.jvp import jvp
from daskgrad.derivatives.lazy import differentiate
from daskgrad.derivatives.per_item import per_item
from daskgrad.derivatives.vjp import vjp
from daskgrad.graph.black_boxes import finite_difference
from daskgrad.graph.delayed import delayed
from daskgrad.graph.nodes import Node
from daskgrad.graph.stopping import stop_gradient, value
from daskgrad.graph.variable import variable
from daskgrad.grids.grid import Grid, grid
from daskgrad.grids.map_overlap import map_overlap
from daskgrad.loops.scan import scan
from daskgrad.models.finite import debug_nans
from daskgrad.models.travel.policy import PullbackPolicy
from daskgrad.resident.placing import place
from daskgrad.resident.replicas import replicate
from daskgrad.resident.shards import Shards
from daskgrad.rules.custom_vjp import custom_vjp
from daskgrad.rules.implicit import implicit
from daskgrad.sums.map_sum import map_mean, map_sum, reduce_sum, sum
from daskgrad.sums.zipping import zip
from daskgrad.tasks import settings, spilling
from daskgrad.values.errors import NondeterministicModelError
from daskgrad.values.rows import Rows

settings.install()
spilling.install()
plain_calls.install()  # plain NumPy's functions take autograd's boxes
trace_numbers.install()  # makes autograd's traces safe in threads

__version__ = "0.2.0"

ON_DEMAND = {  # what is loaded when it is first used, and the modules that define it
    "adapters": "daskgrad.adapters",
    "dashboards": "daskgrad.dashboards",
    "progress": "daskgrad.dashboards.progress",
    "record": "daskgrad.dashboards.local",
    "report": "daskgrad.dashboards.report",
    "visualize": "daskgrad.dashboards.visualize",
}
MODULES = ("adapters", "dashboards")


def __getattr__(name: str) -> Any:
    if name not in ON_DEMAND:
        raise AttributeError(f"module 'daskgrad' has no attribute {name!r}")
    module = importlib.import_module(ON_DEMAND[name])
    found = globals()[name] = module if name in MODULES else getattr(module, name)
    return found


def _visualize(node: Node, filename: str | None = None, shapes: bool = True) -> Any:
    """The graph of this node's value, and beside it the mirrored graph of its cotangents.

    As ``dg.visualize`` draws it, which documents the arguments, the result and errors; with respect
    to all variables, and for a cotangent of ones.
    """
    module = importlib.import_module(ON_DEMAND["visualize"])
    return module.visualize_node(node, filename, shapes)


Node.visualize = _visualize  # here, since what draws is in a room above that of nodes


__all__ = [
    "Grid",
    "NondeterministicModelError",
    "PullbackPolicy",
    "Rows",
    "Shards",
    "adapters",
    "array",
    "check_grads",
    "custom_vjp",
    "dashboards",
    "debug_nans",
    "delayed",
    "differentiate",
    "explain",
    "finite_difference",
    "gnvp",
    "grad",
    "grid",
    "hessian",
    "hvp",
    "implicit",
    "jacobian",
    "jvp",
    "map_mean",
    "map_overlap",
    "map_sum",
    "optim",
    "per_item",
    "place",
    "progress",
    "random",
    "record",
    "reduce_sum",
    "register_backend",
    "replicate",
    "report",
    "scan",
    "stop_gradient",
    "sum",
    "taylor_rates",
    "value",
    "value_and_grad",
    "variable",
    "visualize",
    "vjp",
    "zip",
]
