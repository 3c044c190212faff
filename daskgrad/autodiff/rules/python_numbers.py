"""Python's numbers: operators between floats and complex numbers, whose values stay Python's.

NumPy computes with such a number in the other operand's dtype, and with one of its own numbers in
double precision. So these are Python's operators, with Python's errors. The rules are NumPy's
functions', of NumPy's numbers: a derivative that divides by zero is infinite.
"""

import operator
from collections.abc import Callable
from typing import Any

import autograd.numpy as anp
import numpy as np
from autograd.core import primitive_jvps, primitive_vjps
from autograd.extend import primitive

from daskgrad.autodiff.rules.declaration import (
    DECLARED,
    NOTHING,
    class_of,
    declare,
    kernel,
    numpys,
    strong,
)
from daskgrad.autodiff.rules.math_elementwise import ARITHMETIC


def in_double(g: Any) -> Any:
    """A cotangent in double precision; one of an array in single precision may arrive."""
    return g if type(g) is np.float64 or np.result_type(g).char in "dD" else g * np.float64(1.0)


def stays_python(fun: Callable, like: Callable) -> Callable:
    """The primitive of an operator of Python's, with the rules of a function of NumPy's."""
    rules = DECLARED.get(like, NOTHING)
    adjoint_like = rules.adjoint or primitive_vjps[like]
    tangent_like = rules.tangent or primitive_jvps[like]
    quick = ARITHMETIC.get(like, {})

    def of_numpys(argnums: tuple, ans: Any, args: tuple) -> tuple[Any, tuple]:
        if class_of(ans) is complex:  # as (-8.0) ** 0.5 is
            args = tuple([arg + 0j for arg in args])
        return strong(ans), numpys(argnums, ans, args)

    def adjoint(argnums: tuple, ans: Any, args: tuple, kwargs: dict) -> Callable:
        pullback = None
        if argnums in quick and class_of(ans) is float:
            pullback = quick[argnums](ans, *args)
        pullback = pullback or adjoint_like(argnums, *of_numpys(argnums, ans, args), kwargs)
        return lambda g: pullback(in_double(g))

    def tangent(argnums: tuple, tangents: Any, ans: Any, args: tuple, kwargs: dict) -> Any:
        return tangent_like(argnums, tangents, *of_numpys(argnums, ans, args), kwargs)

    made = primitive(fun)
    declare(made, adjoint=adjoint, tangent=tangent)
    primitive_vjps[made], primitive_jvps[made] = adjoint, tangent  # for autograd.grad in a model
    return made


def conjugate(number):
    return number.conjugate()


BINARY: dict[str, Callable] = {
    "add": stays_python(operator.add, anp.add),
    "sub": stays_python(operator.sub, anp.subtract),
    "mul": stays_python(operator.mul, anp.multiply),
    "truediv": stays_python(operator.truediv, anp.true_divide),
    "mod": stays_python(operator.mod, anp.mod),
    "pow": stays_python(operator.pow, anp.power),
}
UNARY: dict[str, Callable] = {
    "__neg__": stays_python(operator.neg, anp.negative),
    "__abs__": stays_python(operator.abs, anp.abs),
    "conjugate": stays_python(conjugate, anp.conj),
}
to_digits = kernel(round)
PRIMITIVES = {*BINARY.values(), *UNARY.values()}
