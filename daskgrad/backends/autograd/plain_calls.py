"""Plain calls: functions of plain NumPy and SciPy that are called with traced values.

NumPy asks its arguments first (NEP 13 and NEP 18), and autograd's boxes answer here: the call is
made of the function's twin, which records it. A function without a twin runs as NumPy has written
it; most are a few lines of others. ``install`` gives autograd's box the two methods that NumPy
asks.
"""

from collections.abc import Callable
from typing import Any

import autograd.numpy as anp
import numpy as np
from autograd.core import primitive_vjps
from autograd.numpy.numpy_boxes import ArrayBox
from autograd.tracer import isbox, trace_primitives_map

from daskgrad.backends.autograd import array_boxes, sparse_operands
from daskgrad.backends.autograd.kept_values import place_in_model
from daskgrad.backends.autograd.rules.declaration import DECLARED
from daskgrad.backends.autograd.rules.known import learn, settle, without_derivative
from daskgrad.backends.autograd.rules.twins import TWINS, in_positions


def install() -> None:
    """Gives autograd's box the methods that NumPy asks."""
    ArrayBox.__array_function__ = call_function
    ArrayBox.__array_ufunc__ = call_ufunc
    array_boxes.install()
    sparse_operands.install()


def call_function(box: Any, fun: Any, types: Any, args: tuple, kwargs: dict) -> Any:
    """The traced call of a NumPy function."""
    if not all([kind is np.ndarray or issubclass(kind, ArrayBox) for kind in types]):
        return NotImplemented
    twin = twin_of(fun)
    if twin is None:
        return fun._implementation(*args, **kwargs)
    if kwargs and hasattr(twin, "fun") and any(map(isbox, kwargs.values())):
        args, kwargs = in_positions(fun, args, kwargs)
    return twin(*args, **kwargs)


NAMESPACES = ((np, anp), (np.linalg, anp.linalg), (np.fft, anp.fft))


def twin_of(fun: Callable) -> Callable | None:
    """autograd's function in the place of NumPy's, unless it has no rule."""
    if fun not in TWINS:
        settle()
        for numpys, autograds in NAMESPACES:
            twin = getattr(autograds, fun.__name__, None)
            if twin is not None and getattr(numpys, fun.__name__, None) is fun and has_rule(twin):
                TWINS[fun] = twin
    return TWINS.get(fun)


def has_rule(twin: Any) -> bool:
    """Whether a function of autograd's is composed of others, or has a rule, or is constant."""
    if not hasattr(twin, "fun"):
        return True
    return twin in primitive_vjps or twin in DECLARED or twin in without_derivative()


# Methods of ufuncs, and the function that does the same.
REDUCTIONS: dict[tuple[np.ufunc, str], Callable] = {
    (np.add, "reduce"): anp.sum,
    (np.multiply, "reduce"): anp.prod,
    (np.maximum, "reduce"): anp.max,
    (np.minimum, "reduce"): anp.min,
}


def call_ufunc(box: Any, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
    """The traced call of a ufunc, of NumPy or SciPy, or of one of its methods."""
    if method == "__call__":
        return call_once(ufunc, inputs, kwargs)
    if method == "outer" and not kwargs:
        first, second = inputs
        return ufunc(anp.reshape(first, anp.shape(first) + (1,) * anp.ndim(second)), second)
    if "out" in kwargs or not isbox(inputs[0]):
        return NotImplemented
    if (ufunc, method) in REDUCTIONS:
        return REDUCTIONS[ufunc, method](*inputs, **{"axis": 0, **kwargs})
    if (ufunc, method) == (np.add, "accumulate"):
        return anp.cumsum(*inputs, **{"axis": 0, **kwargs})
    return NotImplemented


def call_once(ufunc: np.ufunc, inputs: tuple, kwargs: dict) -> Any:
    """The traced call of a ufunc itself; NumPy asks others where the value is no array."""
    if ufunc not in trace_primitives_map:
        learn(ufunc)
    if "out" in kwargs:
        raise TypeError(
            f"np.{ufunc.__name__} writes a traced array (an ArrayBox) into a plain one, "
            f"{place_in_model()}; make a new array: total = total + x instead of total += x, and "
            f"no out="
        )
    if ufunc not in trace_primitives_map:
        return NotImplemented
    twin = trace_primitives_map[ufunc]
    try:
        return twin(*inputs, called_by_autograd_dispatcher=True, **kwargs)
    except NotImplementedError as error:
        if error.args:  # that of a rule; autograd raises one without, where it makes no box
            raise
        return NotImplemented
