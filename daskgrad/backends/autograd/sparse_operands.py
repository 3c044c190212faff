"""Sparse operands: products of SciPy's sparse matrices with traced arrays.

``A @ x`` is SciPy's to answer, as A comes first. It asks NumPy for x as an array, and leaves the
call to x where NumPy finds none: one Python object without axes. So a box says that it is such a
thing, to the operators of sparse matrices alone. What else of ``scipy.sparse`` asks for a box as an
array would compute with an array of Python objects, and gets an error. ``install`` gives autograd's
box what is asked.
"""

import importlib
import sys
from collections.abc import Callable
from typing import Any

import autograd.numpy as anp
import numpy as np
from autograd.numpy.numpy_boxes import ArrayBox

from daskgrad.backends.autograd import array_boxes

OPERATORS = frozenset(("__matmul__", "__rmatmul__", "__mul__", "__rmul__"))
SPARSE = "scipy.sparse."
SHARED = "scipy._"  # what all of SciPy converts arrays with, since SciPy 1.18
NO_ARRAY = np.array(None, dtype=object)
USUAL = frozenset(
    (array_boxes.ArrayBox, np.ndarray, float, int, complex, bool, np.float64)
)  # of operands


def install() -> None:
    """Gives autograd's box its answers to sparse matrices."""
    box: Any = ArrayBox
    box.__array__ = property(as_array)
    box.__matmul__, box.__rmatmul__ = operators(anp.matmul, "times")
    box.__mul__, box.__rmul__ = operators(anp.multiply, "scaled")


def as_array(box: Any) -> Callable:
    """The method that makes an array of a box, which only ``scipy.sparse`` finds.

    AttributeError for all other callers: NumPy then makes an array of boxes.
    """
    caller: Any = sys._getframe(1)
    while module_of(caller).startswith(SHARED):
        caller = caller.f_back
    if not module_of(caller).startswith(SPARSE):
        raise AttributeError("__array__")
    asking = caller.f_code.co_name
    while caller is not None and module_of(caller).startswith(SPARSE + "_"):
        if caller.f_code.co_name in OPERATORS:
            return no_array
        caller = caller.f_back
    raise TypeError(
        f"scipy.sparse takes no traced array (an ArrayBox) in {asking!r}; of a sparse matrix A "
        f"write A @ x or A * x, or use daskgrad.scipy.sparse: matmul(A, x), csr_array, csc_array, "
        f"coo_array, diags_array, linalg.spsolve(A, b)"
    )


def module_of(frame: Any) -> str:
    return frame.f_globals.get("__name__", "")


def no_array(*args: Any, **kwargs: Any) -> np.ndarray:
    return NO_ARRAY


def operators(fun: Callable, sparse: str) -> tuple[Callable, Callable]:
    """The operator of autograd's function, and its reflection; of sparse matrices ours."""

    def operate(box: Any, other: Any) -> Any:
        if type(other) in USUAL:
            return fun(box, other)
        sparse_rule = rule_for(other, sparse)
        return fun(box, other) if sparse_rule is None else sparse_rule(other, box, False)

    def reflected(box: Any, other: Any) -> Any:
        if type(other) in USUAL:
            return fun(other, box)
        sparse_rule = rule_for(other, sparse)
        return fun(other, box) if sparse_rule is None else sparse_rule(other, box, True)

    return operate, reflected


def rule_for(other: Any, sparse: str) -> Callable | None:
    """What an operator does with a sparse matrix; None for all else."""
    if getattr(other, "__array_ufunc__", 0) is None:
        return answers_itself
    if not hasattr(other, "tocsr"):
        return None
    rules = importlib.import_module("daskgrad.backends.autograd.rules.sparse_arrays")
    return getattr(rules, sparse)


def answers_itself(*args: Any) -> Any:
    return NotImplemented
