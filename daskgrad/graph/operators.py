"""Operators: Python's operators and NumPy's functions on nodes. They record a call, or refuse."""

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from daskgrad.autodiff.models.model import Model, Operator
from daskgrad.autodiff.values.descriptions import path_of, traceable

ADD = Model(operator.add, "add", operator=Operator(signs=(1, 1)))
SUBTRACT = Model(operator.sub, "subtract", operator=Operator(signs=(1, -1)))
MULTIPLY = Model(operator.mul, "multiply", operator=Operator(linear_in=(0, 1)))
DIVIDE = Model(operator.truediv, "divide", operator=Operator(linear_in=(0,)))
POWER = Model(operator.pow, "power", operator=Operator())
NEGATIVE = Model(operator.neg, "negative", operator=Operator(signs=(-1,)))
MATMUL = Model(operator.matmul, "matmul")
GETITEM = Model(operator.getitem, "getitem")

UFUNCS = {
    np.add: ADD,
    np.subtract: SUBTRACT,
    np.multiply: MULTIPLY,
    np.true_divide: DIVIDE,
    np.power: POWER,
    np.matmul: MATMUL,
    np.negative: NEGATIVE,
}

UNPACK = "a, b = node is written a, b = node[0], node[1]"
BRANCH = "what depends on the value, such as an if, stands in that function"


def records(model: Model) -> tuple[Callable, Callable]:
    """Methods for an operator that record a call of a model, as is and with operands swapped."""

    def method(self: Any, other: Any) -> Any:
        return NotImplemented if takes_nodes(other) else self.record(model, self, other)

    def swapped(self: Any, other: Any) -> Any:
        return NotImplemented if takes_nodes(other) else self.record(model, other, self)

    return method, swapped


def takes_nodes(operand: Any) -> bool:
    """Whether an operand is of a class that knows nodes, and what an operator of both is."""
    return getattr(type(operand), "takes_nodes", False)


def refuses(asked: str, instead: str = "") -> Callable:
    """A method that raises, since it needs a value; ``instead``: what to write."""

    def method(self: Any, *_: Any, **__: Any) -> Any:
        raise refusal(self, asked, instead)

    return method


def refusal(node: Any, asked: str, instead: str = "") -> TypeError:
    return TypeError(
        f"{asked} needs the value of {node!r}, which is not computed yet; make a plain function of "
        f"NumPy one model, dg.grad(dg.delayed(fun)), or wrap the function that needs the value in "
        f"dg.delayed and call that{instead and f': {instead}'}; or, where no derivative goes "
        f"through it, take the value with .compute()"
    )


class ArrayOperators:
    """The operators of arrays, for nodes."""

    record: Callable[..., Any]

    __add__, __radd__ = records(ADD)
    __sub__, __rsub__ = records(SUBTRACT)
    __mul__, __rmul__ = records(MULTIPLY)
    __truediv__, __rtruediv__ = records(DIVIDE)
    __pow__, __rpow__ = records(POWER)
    __matmul__, __rmatmul__ = records(MATMUL)

    def __neg__(self) -> Any:
        return self.record(NEGATIVE, self)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        if any(map(takes_nodes, inputs)):
            return NotImplemented
        if method == "__call__" and ufunc in UFUNCS and not kwargs:
            return self.record(UFUNCS[ufunc], *inputs)
        return self.__array_function__(ufunc)

    def __array_function__(self, function: Any, *_: Any) -> Any:
        path = path_of(function)
        raise refusal(self, path, f"dg.delayed({traceable(path)})(node)")

    def __eq__(self, other: Any) -> bool:
        if self is other:
            return True
        raise refusal(self, "comparison", BRANCH)

    def __ne__(self, other: Any) -> bool:
        return not self == other

    __hash__ = object.__hash__

    __lt__ = __le__ = __gt__ = __ge__ = refuses("comparison", BRANCH)
    __bool__ = refuses("bool()", BRANCH)
    __array__ = refuses("np.asarray")
    __float__ = refuses("float()")
    __int__ = refuses("int()")
    __complex__ = refuses("complex()")
    __index__ = refuses("an index")
    __iter__ = refuses("iteration", UNPACK)
    __len__ = refuses("len()", "dg.delayed(len)(node)")
    __contains__ = refuses("'in'")
    __setitem__ = refuses("assignment to an item")
    __abs__ = refuses("abs()")
    __round__ = refuses("round()")
    __floordiv__ = __rfloordiv__ = refuses("floor division")
    __mod__ = __rmod__ = __divmod__ = __rdivmod__ = refuses("a remainder")

    def __format__(self, spec: str) -> str:
        if spec:
            raise refusal(self, "formatting")
        return repr(self)

    def __getattr__(self, attribute: str) -> Any:
        if attribute.startswith("_") or "name" not in self.__dict__:  # not ours, or not made yet
            raise AttributeError(attribute)
        is_method = callable(getattr(np.ndarray, attribute, None))
        model = f"lambda x: x.{attribute}{'()' if is_method else ''}"
        raise AttributeError(str(refusal(self, f".{attribute}", f"dg.delayed({model})(node)")))
