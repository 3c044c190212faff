"""Plain calls: functions of plain NumPy and SciPy that are called with traced values.

NumPy asks its arguments first (NEP 13 and NEP 18), and autograd's boxes answer here: the call is
made of the function's twin, which records it. A function without a twin runs as NumPy has written
it; most are a few lines of others. ``install`` gives autograd's box the two methods that NumPy
asks.
"""

import functools
import importlib
import operator
import sys
from collections.abc import Callable
from typing import Any

import autograd.numpy as anp
import numpy as np
from autograd.core import primitive_vjps
from autograd.numpy.numpy_boxes import ArrayBox
from autograd.tracer import isbox, trace_primitives_map

from daskgrad.autodiff.rules import python_numbers
from daskgrad.autodiff.rules.declaration import (
    DECLARED,
    class_of,
    learn,
    settle,
    strong,
    without_derivative,
)
from daskgrad.autodiff.rules.math_along_axes import running
from daskgrad.autodiff.rules.twins import TWINS, in_positions
from daskgrad.autodiff.rules.twins import as_array as array_of
from daskgrad.autodiff.tape import boxes
from daskgrad.autodiff.tape.boxes import NumberBox, place_in_model

# -------------------------------------------------------------------------------------------------
# Sparse operands: products of SciPy's sparse matrices with traced arrays.
#
# ``A @ x`` is SciPy's to answer, as A comes first. It asks NumPy for x as an array, and leaves the
# call to x if NumPy finds none, but one Python object without axes. So a box says to the operators
# of sparse matrices alone that it is such an object. All else in ``scipy.sparse`` would compute
# with an array of Python objects, and gets an error.

OPERATORS = frozenset(("__matmul__", "__rmatmul__", "__mul__", "__rmul__"))
SPARSE = "scipy.sparse."
SHARED = "scipy._"  # converts arrays for all of SciPy, since SciPy 1.18
NO_ARRAY = np.array(None, dtype=object)
USUAL = {*boxes.TAPE_BOXES, float, int, complex, bool, np.float64}  # of operands


def as_array(box: Any) -> Callable:
    """The method that makes an array of a box, for ``scipy.sparse`` alone; AttributeError for all
    others: NumPy then makes an array of boxes."""
    caller: Any = sys._getframe(1)
    while module_of(caller).startswith(SHARED):
        caller = caller.f_back
    if not module_of(caller).startswith(SPARSE):
        raise AttributeError("__array__")
    asking = caller.f_code.co_name
    while caller is not None and module_of(caller).startswith(SPARSE + "_"):
        if caller.f_code.co_name in OPERATORS:
            return lambda *args, **kwargs: NO_ARRAY
        caller = caller.f_back
    raise TypeError(
        f"scipy.sparse takes no traced array (an ArrayBox) in {asking!r}; of a sparse matrix A "
        f"write A @ x or A * x, or use daskgrad.scipy.sparse: matmul(A, x), csr_array, csc_array, "
        f"coo_array, diags_array, linalg.spsolve(A, b)"
    )


def module_of(frame: Any) -> str:
    return frame.f_globals.get("__name__", "")


def operators(fun: Callable, sparse: str) -> tuple[Callable, Callable]:
    """The operator of autograd's function, and its reflection; of sparse matrices ours."""

    def operate(box: Any, other: Any, is_reflected: bool = False) -> Any:
        kind = type(other)
        if kind is np.ndarray:
            if other.dtype.hasobject:
                other = as_operand(other)
        elif kind not in USUAL:
            sparse_rule = rule_for(other, sparse)
            if sparse_rule is not None:
                return sparse_rule(other, box, is_reflected)
            other = as_operand(other)
        return fun(other, box) if is_reflected else fun(box, other)

    return operate, lambda box, other: operate(box, other, True)


def with_array(fun: Callable) -> Callable:
    """The operator of autograd's function, whose other operand may be an array of traced numbers;
    that leaves its own operators to NumPy's dispatch."""

    def operate(box: Any, other: Any) -> Any:
        if type(other) is np.ndarray and other.dtype.hasobject:
            other = as_operand(other)
        return fun(box, other)

    return operate


def rule_for(other: Any, sparse: str) -> Callable | None:
    """An operator's function of a sparse matrix; None for all else."""
    if getattr(other, "__array_ufunc__", 0) is None:
        return lambda *args: NotImplemented  # it answers itself
    if not hasattr(other, "tocsr"):
        return None
    rules = importlib.import_module("daskgrad.autodiff.rules.scipy_sparse")
    return getattr(rules, sparse)


# --------------------------------------------------------------------------------- Python's numbers


PYTHONS = {int, float, complex, bool, NumberBox}
WITHOUT_DERIVATIVE = ("floordiv", "lt", "le", "gt", "ge", "eq", "ne")


def between_numbers(name: str, method: str) -> Callable:
    """An operator's method of a box of one of Python's numbers: Python's operator between these,
    and NumPy's function for other operands."""
    fun = python_numbers.BINARY.get(name)
    plain: Callable = getattr(operator, name)
    numpys = getattr(ArrayBox, method)
    is_reflected = method != f"__{name}__"

    def operate(box: Any, other: Any) -> Any:
        kind = type(other)
        if kind not in PYTHONS:
            kind = class_of(other)
            if issubclass(kind, np.generic) or not issubclass(kind, int | float | complex):
                ufunc = getattr(kind, "__array_ufunc__", None)
                is_others = ufunc not in (None, np.ndarray.__array_ufunc__)
                return numpys(strong(box, other) if is_others else box, other)
        operands = (other, box) if is_reflected else (box, other)
        return fun(*operands) if fun else plain(*map(boxes.inmost, operands))

    return operate


def number_rounded(box: Any, ndigits: int | None = None) -> Any:
    if ndigits is None:
        return boxes.rounded(box)
    return python_numbers.to_digits(boxes.inmost(box), ndigits)


# ------------------------------------------------------------------------------------- plain calls


def install_plain_calls() -> None:
    """Gives autograd's box the methods that NumPy and sparse matrices ask."""
    ArrayBox.__array_function__ = call_function
    ArrayBox.__array_ufunc__ = call_ufunc
    boxes.install_array_boxes()
    ArrayBox.__array__ = property(as_array)
    ArrayBox.__matmul__, ArrayBox.__rmatmul__ = operators(anp.matmul, "times")
    ArrayBox.__mul__, ArrayBox.__rmul__ = operators(anp.multiply, "scaled")
    for name in ("add", "subtract", "true_divide", "power"):
        method = {"subtract": "sub", "true_divide": "truediv", "power": "pow"}.get(name, name)
        setattr(ArrayBox, f"__{method}__", with_array(getattr(anp, name)))
    for name in (*python_numbers.BINARY, *WITHOUT_DERIVATIVE):
        for method in (f"__{name}__", f"__r{name}__"):
            if hasattr(ArrayBox, method):
                setattr(NumberBox, method, between_numbers(name, method))
    for name, fun in python_numbers.UNARY.items():
        setattr(NumberBox, name, fun)
    NumberBox.__pos__ = lambda box: box
    NumberBox.__divmod__ = lambda box, other: (box // other, box % other)
    NumberBox.__rdivmod__ = lambda box, other: (other // box, other % box)
    NumberBox.__round__ = number_rounded


OF_MEMORY = {np.shares_memory, np.may_share_memory}


def call_function(box: Any, fun: Any, types: Any, args: tuple, kwargs: dict) -> Any:
    """The traced call of a NumPy function."""
    if not all([kind is np.ndarray or issubclass(kind, ArrayBox) for kind in types]):
        return NotImplemented
    if fun in OF_MEMORY:
        return fun(*map(boxes.inmost, args), **kwargs)
    twin = twin_of(fun)
    if twin is None:
        return fun._implementation(*args, **kwargs)
    if fun in PRODUCTS:
        args = arrays_of(args)
    if kwargs and hasattr(twin, "fun") and any(map(isbox, kwargs.values())):
        args, kwargs = in_positions(fun, args, kwargs)
    return twin(*args, **kwargs)


PRODUCTS = {np.dot, np.outer}  # whose rules want arrays


def arrays_of(operands: tuple) -> tuple:
    """Operands with arrays in the place of lists, and of arrays of traced numbers."""
    for value in operands:
        kind = type(value)
        if kind is list or kind is tuple or (kind is np.ndarray and value.dtype.hasobject):
            return tuple(map(as_operand, operands))
    return operands


def as_operand(value: Any) -> Any:
    if isinstance(value, np.ndarray) and value.dtype.hasobject:
        value = value.tolist()
    return array_of(value)


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
    (np.add, "accumulate"): anp.cumsum,
    (np.multiply, "accumulate"): anp.cumprod,
    (np.maximum, "accumulate"): functools.partial(running, np.maximum),
    (np.minimum, "accumulate"): functools.partial(running, np.minimum),
}


def call_ufunc(box: Any, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
    """The traced call of a ufunc, of NumPy or SciPy, or of one of its methods."""
    if method == "__call__":
        return call_once(ufunc, arrays_of(inputs), kwargs)
    if method == "outer" and not kwargs:
        first, second = inputs
        first = anp.reshape(first, anp.shape(first) + (1,) * anp.ndim(second))
        return ufunc(strong(first), strong(second))
    if "out" in kwargs or not isbox(inputs[0]) or (ufunc, method) not in REDUCTIONS:
        instead = "daskgrad.scipy.special.logsumexp(x)" if ufunc is np.logaddexp else "np.cumsum"
        raise TypeError(
            f"np.{ufunc.__name__}.{method} has no derivative rule for a traced array (an "
            f"ArrayBox), {place_in_model()}; write it in other functions (np.sum, {instead}, "
            f"np.where), or a loop over entries and np.stack"
        )
    return REDUCTIONS[ufunc, method](*inputs, **{"axis": 0, **kwargs})


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
        raise TypeError(
            f"the ufunc {ufunc.__name__!r} has no derivative rule for a traced array (an "
            f"ArrayBox), {place_in_model()}; write it in NumPy's functions, or give it a rule with "
            f"dg.custom_vjp; dg.value(x) has no derivative"
        )
    twin = trace_primitives_map[ufunc]
    try:
        return twin(*inputs, called_by_autograd_dispatcher=True, **kwargs)
    except NotImplementedError as error:
        if error.args:  # a rule's; autograd raises one without if it makes no box
            raise
        return NotImplemented
