"""Operators: Python's operators, and NumPy's functions and methods, on nodes. They record a call.

An operation that needs a value (a comparison, ``len``) gets it from variables, and from NumPy's
calls on variables; on other nodes it is an error with advice.
"""

import dis
import functools
import inspect
import operator
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from daskgrad.autodiff.models.model import Model, Operator
from daskgrad.autodiff.tape.boxes import (
    AnsweringType,
    advice_here,
    is_log,
    libraries_here,
    package_of,
    place_of,
)
from daskgrad.autodiff.tape.numpy_calls import OF_MEMORY, module_of
from daskgrad.autodiff.tape.questions import is_users
from daskgrad.autodiff.values.cotangents import is_differentiable
from daskgrad.autodiff.values.descriptions import path_of
from daskgrad.autodiff.values.trees import map_leaves

ADD = Model(operator.add, "add", operator=Operator(signs=(1, 1)))
SUBTRACT = Model(operator.sub, "subtract", operator=Operator(signs=(1, -1)))
MULTIPLY = Model(operator.mul, "multiply", operator=Operator(linear_in=(0, 1)))
DIVIDE = Model(operator.truediv, "divide", operator=Operator(linear_in=(0,)))
POWER = Model(operator.pow, "power", operator=Operator())
NEGATIVE = Model(operator.neg, "negative", operator=Operator(signs=(-1,)))
POSITIVE = Model(operator.pos, "positive")
ABSOLUTE = Model(operator.abs, "absolute")
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

METHODS = frozenset(
    "all any argmax argmin argsort astype clip conj conjugate copy cumprod cumsum diagonal dot "
    "flatten max mean min prod ptp ravel repeat reshape round searchsorted squeeze std sum "
    "swapaxes take trace transpose var".split()
)
OF_UFUNCS = frozenset(("reduce", "accumulate", "outer", "reduceat"))
ATTRIBUTES = frozenset(("T", "real", "imag"))
OF_LAYOUT = frozenset(("shape", "ndim", "size", "dtype"))
ASKED_BY_DASK = OF_LAYOUT | {"__array_priority__"}  # of operands of dask.array's functions
OF_VALUES = frozenset(  # not recorded
    (np.shape, np.ndim, np.size, np.result_type, np.iscomplexobj, np.array_equal, np.allclose)
)
IN_PLACE = frozenset((np.copyto, np.put, np.place, np.putmask, np.put_along_axis, np.fill_diagonal))
FILES = (np.save, np.savez, np.savez_compressed, np.savetxt)
TO_TEXT = frozenset((*FILES, np.array2string, np.array_repr, np.array_str))

ASKING_CALLS = ("isinstance", "_instancecheck")  # the latter is of abstract classes
ASKING = ("abc", "numpy", "functools", "typing")  # packages that ask for their caller

MOST_NUMBERS = 1000  # of a node that ``np.array`` takes apart: each number is a call
MOST_MODELS = 512  # of functions that are kept: one may be made for one call, as by np.frompyfunc

UNPACK = "a, b = node is written a, b = node[0], node[1]"
BRANCH = "what depends on the value, such as an if, stands in that function"
INSTANCE = "what depends on the type stands in that function"
FOR_SCIPY = (
    "for a function of models that SciPy calls, dg.adapters.flat or flat_residuals, whose values "
    "and .jacobian are arrays, as in constraints={'type': 'ineq', 'fun': f, 'jac': f.jacobian}"
)
OF_DASK = (
    "write NumPy's functions of dg.array(x), as in np.sum(np.log1p(dg.array(X) @ x)), or sum over "
    "the blocks with dg.map_sum or dg.reduce_sum"
)
AS_MODEL = "dg.delayed(fun)(node), where fun calls daskgrad.scipy in the place of SciPy"


@functools.lru_cache(MOST_MODELS)
def model_of(function: Callable) -> Model:
    """The model that calls a function of NumPy or SciPy."""
    return Model(function, function.__name__)


@functools.lru_cache(MOST_MODELS)
def place_of_out(function: Callable) -> int | None:
    """Which positional argument of a function is ``out``; None if none is."""
    try:
        names = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return None
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return next((n for n, p in enumerate(names) if p.name == "out" and p.kind in kinds), None)


def call_method(array: Any, name: str, *args: Any, **kwargs: Any) -> Any:
    return getattr(array, name)(*args, **kwargs)


def get_attribute(array: Any, name: str) -> Any:
    return getattr(array, name)


def records(model: Model) -> tuple[Callable, Callable]:
    """An operator's methods, which record a call of a model: plain, and with operands swapped."""

    def method(self: Any, other: Any) -> Any:
        return NotImplemented if takes_nodes(other) else self.record(model, (self, other))

    def swapped(self: Any, other: Any) -> Any:
        return NotImplemented if takes_nodes(other) else self.record(model, (other, self))

    return method, swapped


def takes_nodes(operand: Any) -> bool:
    """Whether an operand's class has operators for nodes."""
    return getattr(type(operand), "takes_nodes", False)


def refuses(question: str, instead: str = "") -> Callable:
    """A method that raises, since it needs a value; ``instead`` is the code to write."""

    def method(self: Any, *_: Any, **__: Any) -> Any:
        raise refusal(self, question, instead)

    return method


def refusal(node: Any, question: str, instead: str = "") -> TypeError:
    instead = instead_for_scipy() or instead
    if not node.is_here:
        return TypeError(needs_value(node, question, instead))
    return TypeError(
        f"{question} makes a constant of {node!r}, whose derivative would be lost; call "
        f"functions of NumPy (np.exp, not math.exp; np.stack, not np.array) or "
        f"{instead or 'make a plain function one model, dg.grad(dg.delayed(fun))'}; where no "
        f"derivative goes through it, write dg.stop_gradient(...) or take the value with .compute()"
    )


def instead_for_scipy() -> str:
    """Advice if one of SciPy's functions asks, or nothing."""
    if "scipy" not in map(package_of, libraries_here()):
        return ""
    return f"{advice_here()}; or, {FOR_SCIPY}".removeprefix("; or, ")


def needs_value(node: Any, question: str, instead: str) -> str:
    return (
        f"{question} needs the value of {node!r}, which is not computed yet; make a plain function "
        f"of NumPy one model, dg.grad(dg.delayed(fun)), or wrap the function that needs the value "
        f"in dg.delayed and call that{instead and f': {instead}'}; or, where no derivative goes "
        f"through it, take the value with .compute()"
    )


def with_values(question: str, instead: str, fun: Callable, *args: Any, **kwargs: Any) -> Any:
    """Calls a function with values in the place of nodes; TypeError if they are not here."""

    def value_of(leaf: Any) -> Any:
        if not isinstance(leaf, ArrayOperators):
            return leaf
        if not leaf.is_here:
            raise refusal(leaf, question, instead)
        return leaf.value_here()

    args, kwargs = map_leaves(value_of, (args, kwargs))
    return fun(*args, **kwargs)


def compares(compare: Callable) -> Callable:
    def method(self: Any, other: Any) -> Any:
        return with_values("comparison", BRANCH, compare, self, other)

    return method


def converts(convert: Callable, question: str, instead: str = "") -> Callable:
    """A method that makes a plain number of a value that has no derivative to lose."""

    def method(self: Any) -> Any:
        if not self.is_here:
            raise refusal(self, question, instead)
        value = self.value_here()
        if is_differentiable(value) and not self.is_stopped and not is_log():
            raise refusal(self, question, instead)
        return convert(value)

    return method


def require_no_out(node: Any, path: str, args: tuple, place: int | None) -> None:
    """Raises for an array to write into, which would hold no derivative."""
    if place is not None and len(args) > place and args[place] is not None:
        raise refusal(node, f"{path} with out=", "leave out= away")


def last_of(node: Any) -> Any:
    """The call that an expression stands for, or the node itself."""
    last = getattr(node, "stands_for", None)
    return node if last is None else last


@functools.lru_cache(MOST_MODELS)
def asks(code: types.CodeType, offset: int) -> bool:
    """Whether the instruction there asks for a class; NumPy does, too, in any other one, as it
    chooses among operands with operators of their own."""
    steps = list(dis.get_instructions(code))
    step = next(step for step in steps if step.offset == offset)
    begin = step.positions and step.positions[::2]
    names = [other.argval for other in steps if other.positions and other.positions[::2] == begin]
    is_call = any([str(name).endswith(ASKING_CALLS) for name in names])
    return is_call or step.opname == "MATCH_CLASS" or step.argval == "__class__"


class ArrayOperators(metaclass=AnsweringType):
    """The operators, functions and methods of arrays, for nodes."""

    record: Callable[..., Any]
    value_here: Callable[[], Any]
    is_here = False
    is_stopped = False
    stands_for: Any = None  # an expression has its last call here

    __add__, __radd__ = records(ADD)
    __sub__, __rsub__ = records(SUBTRACT)
    __mul__, __rmul__ = records(MULTIPLY)
    __truediv__, __rtruediv__ = records(DIVIDE)
    __pow__, __rpow__ = records(POWER)
    __matmul__, __rmatmul__ = records(MATMUL)
    __floordiv__, __rfloordiv__ = records(Model(operator.floordiv, "floor_divide"))
    __mod__, __rmod__ = records(Model(operator.mod, "remainder"))
    __and__, __rand__ = records(model_of(np.bitwise_and))
    __or__, __ror__ = records(model_of(np.bitwise_or))
    __xor__, __rxor__ = records(model_of(np.bitwise_xor))

    def __divmod__(self, other: Any) -> tuple[Any, Any]:
        return self // other, self % other

    def __rdivmod__(self, other: Any) -> tuple[Any, Any]:
        return other // self, other % self

    def __pos__(self) -> Any:
        return self.record(POSITIVE, (self,))

    def __invert__(self) -> Any:
        return self.record(model_of(np.invert), (self,))

    def __neg__(self) -> Any:
        return self.record(NEGATIVE, (self,))

    def __abs__(self) -> Any:
        return self.record(ABSOLUTE, (self,))

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        if any(map(takes_nodes, inputs)):
            return NotImplemented
        model = UFUNCS.get(ufunc) if not kwargs else None
        if method != "__call__":
            if method not in OF_UFUNCS:
                raise refusal(self, f"{path_of(ufunc)}.{method}")
            model, inputs = Model(call_method, method), (ufunc, method, *inputs)
        return self._record_function(model or model_of(ufunc), path_of(ufunc), inputs, kwargs)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if any([getattr(kind, "takes_nodes", False) for kind in types]):
            return NotImplemented
        path = path_of(function)
        if function in IN_PLACE:
            raise refusal(self, f"{path}, which writes into an array,", "np.where")
        if function in TO_TEXT:
            raise refusal(self, path)
        if function in OF_MEMORY:
            raise TypeError(
                f"{path} asks for the memory of {self!r}, which is not shared between models; ask "
                f"within a model, dg.delayed(fun)"
            )
        if function in OF_VALUES:
            return with_values(path, f"dg.delayed({path})(node)", function, *args, **kwargs)
        require_no_out(self, path, args, place_of_out(function))
        return self._record_function(model_of(function), path, args, kwargs)

    def __eq__(self, other: Any) -> Any:
        if self is not other and last_of(self) is last_of(other):  # in a dict of nodes
            return True
        return with_values("comparison", BRANCH, operator.eq, self, other)

    def __ne__(self, other: Any) -> Any:
        if self is not other and last_of(self) is last_of(other):
            return False
        return with_values("comparison", BRANCH, operator.ne, self, other)

    __hash__ = object.__hash__

    __lt__, __le__ = compares(operator.lt), compares(operator.le)
    __gt__, __ge__ = compares(operator.gt), compares(operator.ge)
    __bool__ = converts(bool, "bool()", BRANCH)
    __float__ = converts(float, "float()")
    __int__ = converts(int, "int()")
    __complex__ = converts(complex, "complex()")
    __index__ = converts(operator.index, "an index")
    __contains__ = refuses("'in'")
    __setitem__ = refuses("assignment to an item")
    __round__ = refuses("round()")

    @property
    def __array__(self) -> Callable:
        """AttributeError for the program's own ``np.array``, which then makes an array of nodes: a
        call takes that as one node. Libraries would compute with it."""
        frame = sys._getframe(1)
        is_program = place_of(frame) and package_of(frame) != "dask"
        if self.is_here and (is_program or "index_tricks" in module_of(frame)):
            if np.size(self.value_here()) <= MOST_NUMBERS:
                raise AttributeError("__array__")
        return functools.partial(refuses("np.asarray", AS_MODEL), self)

    def to_dask_array(self) -> Any:
        """For Dask, which would make an array of it, without a derivative."""
        raise TypeError(f"dask.array's functions take no {self!r}; {OF_DASK}")

    def __len__(self) -> int:
        if not self.is_here:
            raise refusal(self, "len()", "dg.delayed(len)(node)")
        return len(self.value_here())

    def __iter__(self) -> Iterator[Any]:
        if not self.is_here:
            raise refusal(self, "iteration", UNPACK)
        node: Any = self
        return (node[index] for index in range(len(self)))

    def __format__(self, spec: str) -> str:
        if spec:
            raise refusal(self, "formatting")
        return repr(self)

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        """The class of the value for a user's ``isinstance``; TypeError if it is not here."""
        frame: Any = sys._getframe(1)
        if frame.f_globals.get("__name__", "").startswith("daskgrad."):  # nearly always
            return type(self)
        caller = frame
        while (package := package_of(frame)) in ASKING:
            frame = frame.f_back
        if is_users(package) and (self.is_here or asks(caller.f_code, caller.f_lasti)):
            return self.class_of_value()
        return type(self)

    def class_of_value(self) -> type:
        if not self.is_here:
            raise refusal(self, "isinstance() or type()", INSTANCE)
        return self.value_here().__class__

    def __getattr__(self, attribute: str) -> Any:
        is_known = attribute in OF_LAYOUT and self.is_here
        if attribute in ASKED_BY_DASK and not is_known and package_of(sys._getframe(1)) == "dask":
            self.to_dask_array()
        if attribute.startswith("_") or "name" not in self.__dict__:  # not ours, or not made yet
            raise AttributeError(attribute)
        if attribute == "view":
            return self._view
        if attribute in METHODS:
            return functools.partial(self._call_method, attribute)
        if attribute in ATTRIBUTES:
            return self.record(Model(get_attribute, attribute), (self, attribute))
        if is_known:
            value = self.value_here()
            return getattr(
                np.asarray(value) if isinstance(value, float | int) else value, attribute
            )
        is_method = callable(getattr(np.ndarray, attribute, None))
        model = f"lambda x: x.{attribute}{'()' if is_method else ''}"
        instead = instead_for_scipy() or f"dg.delayed({model})(node)"
        raise AttributeError(needs_value(self, f".{attribute}", instead))

    def _call_method(self, name: str, *args: Any, **kwargs: Any) -> Any:
        model = Model(call_method, name)
        require_no_out(self, f".{name}", (self, *args), place_of_out(getattr(np.ndarray, name)))
        return self._record_function(model, f".{name}", (self, name, *args), kwargs)

    def _view(self, kind: Any) -> Any:
        """Itself as an array, for which autograd.numpy asks of what it concatenates."""
        if kind is not np.ndarray:
            raise refusal(self, ".view")
        return self

    def _record_function(self, model: Model, path: str, args: Any, kwargs: dict[str, Any]) -> Any:
        require_no_out(self, path, (kwargs.get("out"),), 0)
        return self.record(model, args, kwargs)
