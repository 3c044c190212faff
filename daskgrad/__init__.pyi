"""The public names, and where they are defined: ``__init__.py`` reads this."""

from daskgrad import adapters as adapters
from daskgrad import dashboards as dashboards  # type: ignore[attr-defined]
from daskgrad import optim as optim
from daskgrad import random as random
from daskgrad import scipy as scipy
from daskgrad.arrays.array import array as array
from daskgrad.arrays.grid import Grid as Grid
from daskgrad.arrays.grid import grid as grid
from daskgrad.arrays.map_overlap import map_overlap as map_overlap
from daskgrad.autodiff.libraries.registry import register_backend as register_backend
from daskgrad.autodiff.models.custom_vjp import custom_vjp as custom_vjp
from daskgrad.autodiff.models.finite import debug_nans as debug_nans
from daskgrad.autodiff.models.implicit import implicit as implicit
from daskgrad.autodiff.models.laplace import laplace as laplace
from daskgrad.autodiff.models.travel import PullbackPolicy as PullbackPolicy
from daskgrad.autodiff.values.descriptions import (
    NondeterministicModelError as NondeterministicModelError,
)
from daskgrad.autodiff.values.rows import Rows as Rows
from daskgrad.dashboards.local import record as record
from daskgrad.dashboards.progress import progress as progress
from daskgrad.dashboards.report import report as report
from daskgrad.derivatives.checks.check_grads import check_grads as check_grads
from daskgrad.derivatives.checks.explain import explain as explain
from daskgrad.derivatives.checks.taylor import taylor_rates as taylor_rates
from daskgrad.derivatives.gradient import grad as grad
from daskgrad.derivatives.gradient import value_and_grad as value_and_grad
from daskgrad.derivatives.hessian import gnvp as gnvp
from daskgrad.derivatives.hessian import hessian as hessian
from daskgrad.derivatives.hessian import hvp as hvp
from daskgrad.derivatives.jacobian import jacobian as jacobian
from daskgrad.derivatives.jvp import jvp as jvp
from daskgrad.derivatives.lazy import differentiate as differentiate
from daskgrad.derivatives.per_item import per_item as per_item
from daskgrad.derivatives.preview import visualize as visualize
from daskgrad.derivatives.vjp import vjp as vjp
from daskgrad.graph.black_boxes import finite_difference as finite_difference
from daskgrad.graph.delayed import delayed as delayed
from daskgrad.graph.stopping import stop_gradient as stop_gradient
from daskgrad.graph.stopping import value as value
from daskgrad.graph.variables import variable as variable
from daskgrad.loops.scan import scan as scan
from daskgrad.placed.replicas import replicate as replicate
from daskgrad.placed.shards import Shards as Shards
from daskgrad.placed.shards import place as place
from daskgrad.sums.map_sum import map_mean as map_mean
from daskgrad.sums.map_sum import map_sum as map_sum
from daskgrad.sums.map_sum import reduce_sum as reduce_sum
from daskgrad.sums.map_sum import sum as sum
from daskgrad.sums.zipping import zip as zip

__version__: str
