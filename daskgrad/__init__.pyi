"""The public names, and where they are defined: ``__init__.py`` reads this."""

from daskgrad import adapters as adapters
from daskgrad import dashboards as dashboards  # type: ignore[attr-defined]
from daskgrad import optim as optim
from daskgrad import random as random
from daskgrad import scipy as scipy
from daskgrad.arrays.array import array as array
from daskgrad.backends.registry import register_backend as register_backend
from daskgrad.checks.check_grads import check_grads as check_grads
from daskgrad.checks.explain import explain as explain
from daskgrad.checks.taylor import taylor_rates as taylor_rates
from daskgrad.dashboards.local import record as record
from daskgrad.dashboards.progress import progress as progress
from daskgrad.dashboards.report import report as report
from daskgrad.dashboards.visualize import visualize as visualize
from daskgrad.derivatives.gradient import grad as grad
from daskgrad.derivatives.gradient import value_and_grad as value_and_grad
from daskgrad.derivatives.hessian import gnvp as gnvp
from daskgrad.derivatives.hessian import hessian as hessian
from daskgrad.derivatives.hessian import hvp as hvp
from daskgrad.derivatives.jacobian import jacobian as jacobian
from daskgrad.derivatives.jvp import jvp as jvp
from daskgrad.derivatives.lazy import differentiate as differentiate
from daskgrad.derivatives.per_item import per_item as per_item
from daskgrad.derivatives.vjp import vjp as vjp
from daskgrad.graph.black_boxes import finite_difference as finite_difference
from daskgrad.graph.delayed import delayed as delayed
from daskgrad.graph.stopping import stop_gradient as stop_gradient
from daskgrad.graph.stopping import value as value
from daskgrad.graph.variable import variable as variable
from daskgrad.grids.grid import Grid as Grid
from daskgrad.grids.grid import grid as grid
from daskgrad.grids.map_overlap import map_overlap as map_overlap
from daskgrad.loops.scan import scan as scan
from daskgrad.models.finite import debug_nans as debug_nans
from daskgrad.models.travel.policy import PullbackPolicy as PullbackPolicy
from daskgrad.resident.placing import place as place
from daskgrad.resident.replicas import replicate as replicate
from daskgrad.resident.shards import Shards as Shards
from daskgrad.rules.custom_vjp import custom_vjp as custom_vjp
from daskgrad.rules.implicit import implicit as implicit
from daskgrad.sums.map_sum import map_mean as map_mean
from daskgrad.sums.map_sum import map_sum as map_sum
from daskgrad.sums.map_sum import reduce_sum as reduce_sum
from daskgrad.sums.map_sum import sum as sum
from daskgrad.sums.zipping import zip as zip
from daskgrad.values.errors import NondeterministicModelError as NondeterministicModelError
from daskgrad.values.rows import Rows as Rows

__version__: str
