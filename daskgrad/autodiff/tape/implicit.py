"""Implicit: derivatives of roots by the implicit function theorem.

If F(x, θ) = 0 and ∂F/∂x is regular, dx = -(∂F/∂x)⁻¹ (∂F/∂θ) dθ; so a cotangent g of x pulls back
to -(∂F/∂θ)ᵀ w with (∂F/∂x)ᵀ w = g. Source: A. Griewank and A. Walther, Evaluating Derivatives,
2008, chapter 15. All of it is written in autograd's primitives, and can be differentiated itself.
"""

import functools
import itertools
import math
import types
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import autograd.numpy as anp
import numpy as np
from autograd.tracer import isbox

from daskgrad.autodiff.rules.declaration import added, plain, unboxed
from daskgrad.autodiff.tape.boxes import kind_of
from daskgrad.autodiff.tape.forward import linearize
from daskgrad.autodiff.tape.reverse import trace
from daskgrad.autodiff.tape.rule_calls import RuleCall, with_derivative
from daskgrad.autodiff.values.descriptions import describe, function_name
from daskgrad.autodiff.values.trees import EMPTY, flatten, map_leaves, substitute, unflatten

Solve = Callable[[Any], Any]  # of a linear system with ∂F/∂x, or with its transpose


class Root:
    """The value x of a call, at which ``residual(x, *args, **kwargs)`` is zero; both as vectors."""

    def __init__(self, call: RuleCall, residual: Callable):
        self._call = call
        self._residual = residual
        self._names = f"the residual {function_name(residual)!r} of {call.function.name!r}"
        self._leaves, self._structure = flatten(call.value)
        self._places = with_derivative(self._leaves)
        arrays = [self._leaves[place] for place in self._places]
        self._shapes = [np.shape(plain(array)) for array in arrays]
        self._vector = concatenate(arrays, f"the value of {call.function.name!r}")

    def pullback(self, active: Sequence[int], solve: Solve) -> Callable[[Any], tuple]:
        """Maps a cotangent of x to the arguments' cotangents; ``solve`` takes the transpose."""
        call = self._call
        _, tape = trace(self._residual_of(active), [call.leaves[place] for place in active])

        def root_pullback(cotangent: Any) -> tuple:
            arrived = flatten(cotangent)[0]
            g = concatenate([arrived[place] for place in self._places], "a cotangent")
            pulled = tape.pull([-solve(g)])
            return call.with_leaves(substitute([None] * len(call.leaves), active, pulled))

        return root_pullback

    def push(self, tangents: tuple, solve: Solve) -> Any:
        """The tangent of x, from the arguments' tangents."""
        places, leaves = with_derivative(self._call.leaves), flatten(tangents)[0]
        arrays = [self._call.leaves[place] for place in places]
        _, push = linearize(self._residual_of(places), arrays)
        (pushed,) = push([leaves[place] for place in places])
        return self._in_structure(-solve(pushed))

    # ---- linear systems with the Jacobian

    def dense(self, transposed: bool) -> Solve:
        """Solves with ∂F/∂x as a dense matrix, a pullback of the residual for each of its rows."""
        unit = np.eye(len(self._vector), dtype=plain(self._vector).dtype)
        product = self.product(transposed=True)
        if not len(unit):
            return lambda vector: vector
        jacobian = anp.reshape(anp.concatenate([product(row) for row in unit]), unit.shape)
        self._require_regular(plain(jacobian))
        return functools.partial(anp.linalg.solve, jacobian.T if transposed else jacobian)

    def product(self, transposed: bool) -> Callable[[Any], Any]:
        """The product of the Jacobian, or of its transpose, and a vector; without the matrix."""
        record: Any = trace if transposed else linearize
        (residual,), linear = record(self._residual_at, [self._vector])
        if len(residual) != len(self._vector):
            raise ValueError(
                f"{self._names} must return as many numbers as its first argument x has; found "
                f"{len(residual)} for {len(self._vector)}"
            )

        def times(v: Any) -> Any:
            (image,) = linear.pull([v]) if transposed else linear([v])
            return np.zeros_like(plain(v)) if image is None else image

        return times

    # ---- the residual

    def _residual_of(self, places: Sequence[int]) -> Callable[..., list[Any]]:
        """F as a function of some of the arguments' leaves."""

        def residual(*boxes: Any) -> list[Any]:
            leaves = substitute(self._call.leaves, places, boxes)
            return self._evaluate(self._call.value, self._call.with_leaves(leaves))

        return residual

    def _in_structure(self, vector: Any, others: Sequence[Any] = ()) -> Any:
        """A vector in the structure of x, with ``others`` for leaves without derivative."""
        sizes = list(map(math.prod, self._shapes))
        ends = itertools.accumulate(sizes)
        parts = [vector[end - size : end] for size, end in zip(sizes, ends, strict=True)]
        arrays = map(anp.reshape, parts, self._shapes)
        leaves = substitute(others or [None] * len(self._leaves), self._places, arrays)
        return unflatten(self._structure, leaves)

    def _residual_at(self, vector: Any) -> list[Any]:
        return self._evaluate(self._in_structure(vector, self._leaves), self._call.args)

    def _evaluate(self, x: Any, args: tuple) -> list[Any]:
        leaves = flatten(self._residual(x, *args, **self._call.kwargs))[0]
        return [concatenate(leaves, self._names)]

    def _require_regular(self, jacobian: np.ndarray) -> None:
        condition = np.linalg.cond(jacobian, 1)
        if not condition < 1 / np.finfo(jacobian.dtype).eps:
            raise np.linalg.LinAlgError(
                f"the derivative of {self._call.function.name!r} does not exist: the Jacobian of "
                f"{self._names} with respect to x is singular or not finite (condition number "
                f"{condition:.1e}, shape {jacobian.shape})"
            )


def concatenate(leaves: Sequence[Any], subject: str) -> Any:
    """The real numbers in some leaves, as one vector."""
    for leaf in leaves:
        if kind_of(plain(leaf)) != "f":
            raise TypeError(
                f"{subject} must be of real floating-point numbers; found {describe(plain(leaf))}"
            )
    return anp.concatenate([anp.reshape(leaf, (-1,)) for leaf in leaves])


# -------------------------------------------------------------------------------------------------
# Functions that a model gives to a solver of SciPy's, which calls them with plain numbers.


def as_array(value: Any) -> Any:
    """An array, a list, or an array of objects that holds traced numbers, as one array."""
    if isbox(value) or (type(value) in (np.ndarray, np.float64) and value.dtype.kind != "O"):
        return value
    if isinstance(value, list | tuple):
        return anp.array([as_array(entry) for entry in value]) if value else np.array(value)
    array = np.asarray(value)
    if array.dtype.kind != "O":
        return array
    if array.ndim == 0:
        return array.item() if isbox(array.item()) else array
    return anp.reshape(anp.array([as_array(entry) for entry in array.ravel()]), array.shape)


def traces_of(array: Any) -> set[int]:
    """The numbers of the traces in which a value is traced."""
    numbers = set()
    while isbox(array):
        numbers.add(array._trace)
        array = array._value
    return numbers


def depth_of(array: Any) -> int:
    """The number of traces in which a value is traced."""
    return len(traces_of(array))


def number_at(fun: Callable, x: Any) -> Any:
    """The value of a function at a number, as one number."""
    value = as_array(fun(x))
    return np.reshape(value, ()) if np.ndim(value) else value


class PlainFunction:
    """A function that a model gives to SciPy, with its further arguments, for plain numbers.

    Plain numbers (``numbers``) replace the traced values that are found in its closure, so that
    nothing is recorded; results that depend on others become plain afterwards. Once the function
    was called ``is_traced`` tells whether it depends on traced values, and ``holds_others`` whether
    on some that were not found.
    """

    def __init__(self, fun: Callable, args: Iterable = ()):
        self._given = fun, tuple(args)
        self.numbers: list[Any] = []
        self.boxes: list[Any] = []
        self._traces: set[int] = set()
        self.unchanged = self._with(self._plain_number)
        self.holds_others = False

    def __call__(self, *args: Any) -> Any:
        value = self.unchanged(*args)
        if type(value) is float or type(value) is np.float64:  # in a tenth of the time
            return value
        return map_leaves(self._plain, value)

    @property
    def is_traced(self) -> bool:
        return bool(self.numbers) or self.holds_others

    @property
    def depth(self) -> int:
        """The number of traces of the values that were found: the highest possible order."""
        return len(self._traces)

    def bound_to(self, numbers: Iterable) -> Callable:
        """The function with others in the place of the ``numbers``."""
        others = iter(numbers)
        return self._with(lambda box: next(others))

    def along(self, slopes: np.ndarray) -> Any:
        """Zero, with these slopes by the numbers, which one trace has."""
        parts, start = [], 0
        for box, number in zip(self.boxes, self.numbers, strict=True):
            part = slopes[start : start + np.size(number)]
            step = box - number  # zero, so that the value is exact
            parts.append(anp.dot(part, step if np.ndim(number) == 1 else anp.ravel(step)))
            start += np.size(number)
        total = added(parts)
        return anp.real(total) if np.iscomplexobj(slopes) else total

    def _with(self, replace: Callable) -> Callable:
        fun, args = self._given
        closures = Closures(replace)
        twin, others = closures.replaced(fun), [closures.replaced(arg) for arg in args]
        return lambda *first: twin(*first, *others)

    def _plain_number(self, box: Any) -> Any:
        self.boxes.append(box)
        self.numbers.append(number_in(box))
        self._traces |= traces_of(box)
        return self.numbers[-1]

    def _plain(self, leaf: Any) -> Any:
        if isinstance(leaf, np.ndarray) and leaf.dtype.kind == "O":
            leaf = as_array(leaf)
        if isbox(leaf):
            self.holds_others = True
        if hasattr(type(leaf), "record"):
            raise TypeError(
                f"a function for SciPy returns {leaf!r}, which has no value yet; pass what it is "
                f"made of to the solver as args=(...), not in the function's closure, or write "
                f"a function of arrays that calls the solver, wrap that in dg.delayed, and call it"
            )
        return number_in(leaf)


def number_in(leaf: Any) -> Any:
    """The plain number in a box; one of a compiled model that is being recorded has none yet."""
    number = unboxed(leaf)
    if isbox(number):
        raise number.refusal("the model gives SciPy a function of traced values")
    return number


class Closures:
    """Copies functions with others in the place of traced values in closures, defaults, partials
    and pytrees, but not in other objects."""

    def __init__(self, replace: Callable) -> None:
        self._replace = replace
        self._known: dict[int, Any] = {}

    def replaced(self, thing: Any) -> Any:
        """A function, partial, list or box without the traced values; others as they are."""
        if isbox(thing):
            return self._replace(thing)
        if isinstance(thing, types.FunctionType):
            if id(thing) not in self._known:
                self._known[id(thing)] = thing  # where it refers to itself
                self._known[id(thing)] = self._copy(thing)
            return self._known[id(thing)]
        if type(thing) is functools.partial:
            args, keywords = self.replaced(thing.args), self.replaced(thing.keywords)
            return functools.partial(self.replaced(thing.func), *args, **keywords)
        if type(thing) is np.ndarray and thing.dtype.kind == "O":
            joined = as_array(thing) if any(map(isbox, thing.ravel())) else thing
            return self.replaced(joined) if isbox(joined) else thing
        if isinstance(thing, types.MethodType):
            owner = self.replaced(thing.__self__)
            return thing if owner is thing.__self__ else types.MethodType(thing.__func__, owner)
        leaves = flatten(thing)[0]
        is_leaf = len(leaves) == 1 and leaves[0] is thing
        if not is_leaf and any(map(may_hold_boxes, leaves)):
            return map_leaves(self.replaced, thing)
        return thing

    def _copy(self, fun: types.FunctionType) -> types.FunctionType:
        cells = fun.__closure__ or ()
        closure = tuple(map(self._copy_cell, cells))
        defaults, keywords = self.replaced(fun.__defaults__), self.replaced(fun.__kwdefaults__)
        parts = zip(
            (*closure, defaults, keywords),
            (*cells, fun.__defaults__, fun.__kwdefaults__),
            strict=True,
        )
        if all(mine is theirs for mine, theirs in parts):
            return fun
        twin = types.FunctionType(fun.__code__, fun.__globals__, fun.__name__, defaults, closure)
        twin.__kwdefaults__ = keywords
        return twin

    def _copy_cell(self, cell: types.CellType) -> types.CellType:
        if cell == EMPTY:
            return cell
        contents = self.replaced(cell.cell_contents)
        return cell if contents is cell.cell_contents else types.CellType(contents)


def may_hold_boxes(leaf: Any) -> bool:
    kinds = types.FunctionType | types.MethodType | functools.partial
    return isbox(leaf) or isinstance(leaf, kinds) or type(leaf) is np.ndarray


# -------------------------------------------------------------------------------------------------
# Corrections: solutions of equations that were found with plain numbers, traced.
#
# A root x of F(x, θ) = 0 is a number that does not know θ. A step of Newton's method with traced θ,
# ``x - J⁻¹ (F(x, θ) - F(x))`` where the Jacobian J and the second F(x) are plain numbers, leaves
# its value, and gives it the first derivatives of the implicit function theorem. As J is exact at
# x, each further step makes one more order right: the error after a step is the product of the
# error before and of J's, which is of first order. Nested traces differentiate once each, so there
# are as many steps as traces. Sources: A. Griewank and A. Walther, Evaluating Derivatives, 2008,
# chapter 15; P. Deuflhard, Newton Methods for Nonlinear Problems, 2004, section 2.1, of steps with
# a fixed Jacobian.


def corrected(
    fun: Callable[[Any], Any],
    x: np.ndarray,
    jacobian_at: Callable[[np.ndarray], np.ndarray],
    subject: str,
    near: float = np.inf,
) -> Any:
    """The vector x at which ``fun`` is zero, with derivatives, and with the value that it has.

    ``jacobian_at`` is plain. LinAlgError about the ``subject`` if it is singular; RuntimeError if
    the root is further away than ``near``, relative to x and one. A ``fun`` that is not traced
    gives x itself.
    """
    residual = as_array(fun(x))
    steps, start = depth_of(residual), unboxed(residual)
    if not steps:
        return x
    if np.shape(start) != np.shape(x):
        raise ValueError(
            f"{subject} has no derivative: it needs as many equations as x has numbers, "
            f"{np.size(x)}; found {np.size(start)}"
        )
    inverse = regular_inverse(jacobian_at(x), subject)
    away = np.abs(inverse @ start) / (1.0 + np.abs(x))
    if not np.max(away) <= near:
        raise RuntimeError(
            f"{subject} has no derivative: what was found is no root, as a step of Newton's "
            f"method is {np.max(away):.1e} of its size"
        )
    root = x
    for step in range(steps):
        root = root - anp.dot(inverse, residual - start)
        if step + 1 < steps:
            residual = as_array(fun(root))
    return root


def jacobian(fun: Callable[[Any], Any], x: np.ndarray) -> np.ndarray:
    """The plain Jacobian of a function of a vector, by a pullback for each of its results."""
    (value,), tape = trace(lambda box: [as_array(fun(box))], [x])
    unit = np.eye(np.size(unboxed(value)))
    rows = [tape.pull([row])[0] for row in unit]
    return np.array([np.zeros(len(x)) if row is None else unboxed(row) for row in rows])


def block_jacobians(fun: Callable[[Any], Any], points: np.ndarray) -> np.ndarray:
    """The plain Jacobians of a function that maps rows to rows, one by one."""
    _, tape = trace(lambda box: [fun(box)], [points])
    jacobians = np.zeros((*points.shape, points.shape[1]))
    for column in range(points.shape[1]):
        cotangent = np.zeros(points.shape)
        cotangent[:, column] = 1.0
        (pulled,) = tape.pull([cotangent])
        if pulled is not None:
            jacobians[:, column] = unboxed(pulled)
    return jacobians


def gradient(fun: Callable[[Any], Any], x: Any) -> Any:
    """The gradient of a function that returns a number; traced where x or the function is."""
    _, tape = trace(lambda box: [anp.reshape(as_array(fun(box)), ())], [x])
    (pulled,) = tape.pull([np.ones(())])
    return np.zeros(np.shape(unboxed(x))) if pulled is None else pulled


def derivatives_along(
    function: PlainFunction, numbers_of: Callable[[Callable], Any], order: int
) -> np.ndarray:
    """Numbers made of calls of a function, a row for each, and their derivatives by the numbers in
    its closure: first ones by each, higher ones as slopes in one direction."""
    orders: list[np.ndarray] = []
    along = gradients_along if order else numbers_along
    along(function, numbers_of, orders, function.numbers, order)
    return np.concatenate(orders, axis=1)


def gradients_along(
    function: PlainFunction, numbers_of: Callable, orders: list, inner: Sequence, order: int
) -> list[list[Any]]:
    lower = (function, numbers_of, orders)
    (vector,), tape = trace(lambda *boxes: [numbers_along(*lower, boxes, order - 1)], inner)
    rows = []
    for unit in np.eye(np.size(unboxed(vector))):
        pairs = zip(tape.pull([unit]), function.numbers, strict=True)
        rows.append([np.zeros(np.shape(n)) if g is None else g for g, n in pairs])
    flat = [[np.ravel(unboxed(g)) for g in row] for row in rows]
    orders.append(np.array([np.concatenate([np.zeros(0), *row]) for row in flat]))
    return rows


def numbers_along(
    function: PlainFunction, numbers_of: Callable, orders: list, inner: Sequence, order: int
) -> Any:
    """The derivatives of an order in one direction."""
    if order:
        slopes = [
            anp.real(sum([anp.sum(g * direction(np.shape(unboxed(g)))) for g in row]))
            for row in gradients_along(function, numbers_of, orders, inner, order)
        ]
        return as_array(slopes)
    vector = numbers_of(function.bound_to(inner))
    orders.append(np.reshape(unboxed(vector), (-1, 1)))
    return vector


def direction(shape: tuple[int, ...]) -> np.ndarray:
    """A direction without symmetry."""
    return 1.0 + 0.5 * np.cos(1.0 + np.arange(np.prod(shape, dtype=int))).reshape(shape)


def regular_inverse(matrix: np.ndarray, subject: str) -> np.ndarray:
    condition = np.linalg.cond(matrix, 1) if np.all(np.isfinite(matrix)) else np.inf
    if not condition < 1.0 / np.finfo(float).eps:
        raise np.linalg.LinAlgError(
            f"{subject} has no derivative: the Jacobian at the solution is singular or not finite "
            f"(condition number {condition:.1e}, shape {matrix.shape})"
        )
    return np.linalg.inv(matrix)
