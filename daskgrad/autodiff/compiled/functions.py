"""Functions: what is known of those that are called, whatever their arguments."""

import operator
from collections.abc import Callable

import autograd.numpy as anp
import numpy as np
from autograd.tracer import trace_primitives_map

REDUCTIONS = {
    anp.sum: np.add.reduce,
    anp.prod: np.multiply.reduce,
    anp.max: np.maximum.reduce,
    anp.min: np.minimum.reduce,
}
REDUCTIONS |= {fun.fun: method for fun, method in REDUCTIONS.items()}  # of data
PYTHONS_OWN = {  # operators of data
    operator.add: "{} + {}",
    operator.sub: "{} - {}",
    operator.mul: "{} * {}",
    operator.truediv: "{} / {}",
    operator.floordiv: "{} // {}",
    operator.mod: "{} % {}",
    operator.pow: "{} ** {}",
    operator.lt: "{} < {}",
    operator.le: "{} <= {}",
    operator.gt: "{} > {}",
    operator.ge: "{} >= {}",
    operator.eq: "{} == {}",
    operator.ne: "{} != {}",
    operator.and_: "{} & {}",
    operator.or_: "{} | {}",
    operator.xor: "{} ^ {}",
    operator.neg: "-{}",
    operator.invert: "~{}",
}


def raw(fun: Callable) -> Callable:
    """The function that a primitive wraps."""
    return getattr(fun, "fun", fun) if fun in trace_primitives_map.values() else fun
