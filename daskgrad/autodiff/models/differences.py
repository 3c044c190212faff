"""Differences: derivatives of black boxes, from their values at displaced arguments.

Central differences err by O(h²) plus rounding of O(ε / h); h = ε^(1/3), relative to max(1, |x|),
balances both to O(ε^(2/3)) (W. Press et al., Numerical Recipes, section 5.7). A complex step errs
by O(h²) alone, as it subtracts nothing, and for h = 1e-20 this error vanishes (W. Squire and G.
Trapp, Using complex variables to estimate derivatives of real functions, SIAM Review 40, 1998,
110-112).
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from daskgrad.autodiff.models.captured import Captured, Gradient
from daskgrad.autodiff.models.custom_vjp import Rule
from daskgrad.autodiff.models.failures import Blame
from daskgrad.autodiff.models.model import Call, Model
from daskgrad.autodiff.models.pullbacks import plain_value
from daskgrad.autodiff.models.tracing import Active, is_real_scalar, require_numbers, seen_by
from daskgrad.autodiff.tape.rule_calls import RuleCall
from daskgrad.autodiff.values import cotangents
from daskgrad.autodiff.values.carriers import carrier
from daskgrad.autodiff.values.cotangents import Leaves, is_differentiable
from daskgrad.autodiff.values.descriptions import describe
from daskgrad.autodiff.values.trees import flatten, substitute, unflatten
from daskgrad.autodiff.values.vectors import (
    NumberKind,
    concatenate,
    count,
    differentiable,
    epsilon,
    in_reals,
    kinds,
    reals,
    split,
)

METHODS = ("central", "complex-step")
COMPLEX_STEP = 1e-20


class Scheme(NamedTuple):
    """A way to approximate derivatives; the ``step`` is relative, ``None`` is the dtype's best."""

    method: str
    step: float | None

    @property
    def is_complex(self) -> bool:
        return self.method == "complex-step"

    def width(self, size: Any, epsilon: float) -> Any:
        """The displacement of an entry of this size."""
        best = COMPLEX_STEP if self.is_complex else epsilon ** (1 / 3)
        return (best if self.step is None else self.step) * np.maximum(1.0, size)


class Differences:
    """Differences of a function of some leaves: a column of its Jacobian for each real number.

    ``evaluate`` takes displaced leaves; ``value`` is the value at the leaves, if known. A value in
    coarser precision than the leaves sets the step.
    """

    def __init__(
        self,
        scheme: Scheme,
        name: str,
        evaluate: Callable[[list], Any],
        leaves: Sequence[Any],
        value: Any = (),
    ):
        self._scheme = scheme
        self._name = name
        self._evaluate = evaluate
        self._leaves = [np.asarray(leaf) for leaf in leaves]
        self._epsilon = max(epsilon(leaves), epsilon(value))
        self._real_places: list[int] = []  # leaves of the value that depend on no argument
        self._starts = np.cumsum([0, *[NumberKind.of(leaf).size for leaf in leaves]])
        if scheme.is_complex:
            self._require_real()

    @property
    def size(self) -> int:
        """The number of columns."""
        return int(self._starts[-1])

    def columns(self, numbers: Sequence[int]) -> np.ndarray:
        """Some columns of the Jacobian, side by side."""
        column = self._complex_step if self._scheme.is_complex else self._central
        columns = [column(*self._place(number)) for number in numbers]
        return np.stack(columns, axis=1) if columns else np.zeros((0, 0))

    def along(self, tangents: Sequence[Any]) -> np.ndarray:
        """The derivative in one direction, in which no number moves by more than its own step."""
        pairs = list(zip(self._leaves, tangents, strict=True))
        widths = [self._scheme.width(np.abs(leaf), self._epsilon) for leaf in self._leaves]
        fastest = [np.abs(tangent) / width for tangent, width in zip(tangents, widths, strict=True)]
        length = 1.0 / (max([np.max(speeds, initial=0.0) for speeds in fastest]) or 1.0)
        if self._scheme.is_complex:
            moved = [as_complex(leaf + 1j * length * tangent) for leaf, tangent in pairs]
            return self._imaginary(moved) / length
        plus, minus = [
            self._values([(leaf + step * tangent).astype(leaf.dtype) for leaf, tangent in pairs])
            for step in (length, -length)
        ]
        return self._difference(plus, minus) / (2 * length)

    def _place(self, number: int) -> tuple[int, int]:
        """The leaf of a real number, and its place in the leaf."""
        leaf = int(np.searchsorted(self._starts, number, side="right")) - 1
        return leaf, number - int(self._starts[leaf])

    def _central(self, number: int, entry: int) -> np.ndarray:
        x = reals(self._leaves[number])[entry]
        epsilon = self._epsilon
        width = x.dtype.type(self._scheme.width(abs(x), epsilon))
        above, below = x + width, x - width
        plus = self._values(self._displace(number, entry, above))
        if self._epsilon > epsilon:
            return self._central(number, entry)
        minus = self._values(self._displace(number, entry, below))
        return self._difference(plus, minus) / (above - below)

    def _displace(self, number: int, entry: int, x: Any) -> list[Any]:
        leaves = list(self._leaves)
        numbers = reals(leaves[number]).copy()
        numbers[entry] = x
        leaves[number] = NumberKind.of(leaves[number]).leaf(numbers)
        return leaves

    def _complex_step(self, number: int, entry: int) -> np.ndarray:
        leaves = list(map(as_complex, self._leaves))
        flat = leaves[number].reshape(-1)  # of a new array, in C order: a view
        width = self._scheme.width(abs(flat[entry].real), self._epsilon)
        flat[entry] += 1j * width
        return self._imaginary(leaves) / width

    def _values(self, leaves: Sequence[Any]) -> np.ndarray:
        outputs = differentiable(self._evaluate([leaf[()] for leaf in leaves]))
        self._epsilon = max(self._epsilon, epsilon(outputs))
        return concatenate(list(map(reals, outputs)))

    def _difference(self, plus: np.ndarray, minus: np.ndarray) -> np.ndarray:
        require_one_size(len(plus), len(minus), self._name)
        return plus - minus

    def _imaginary(self, leaves: Sequence[Any]) -> np.ndarray:
        outputs = differentiable(self._evaluate([leaf[()] for leaf in leaves]))
        places = [n for n, leaf in enumerate(outputs) if np.asarray(leaf).dtype.kind != "c"]
        if places != self._real_places:
            self._require_unmoved(outputs, places)
            self._real_places = places
        return concatenate([np.imag(leaf).reshape(-1) for leaf in outputs])

    def _require_unmoved(self, outputs: Sequence[Any], places: Sequence[int]) -> None:
        """Checks that outputs that stay real for complex arguments do not depend on the arguments:
        compares them at other real arguments. Entries move by different amounts, so that
        functions of their differences change, too."""
        amounts = [1 + np.arange(leaf.size).reshape(leaf.shape) % 7 for leaf in self._leaves]
        pairs = zip(self._leaves, amounts, strict=True)
        moved = [
            (leaf + 1e-3 * amount * (1 + abs(leaf))).astype(leaf.dtype) for leaf, amount in pairs
        ]
        others = differentiable(self._evaluate([leaf[()] for leaf in moved]))
        for place in places:
            if not np.array_equal(outputs[place], others[place], equal_nan=True):
                raise TypeError(
                    f"{self._name!r} cannot take a complex step: for complex arguments it returned "
                    f"real {describe(outputs[place])}, and so lost the derivative with the "
                    f"imaginary part; use method='central'"
                )

    def _require_real(self) -> None:
        for leaf in self._leaves:
            if leaf.dtype.kind == "c":
                raise TypeError(
                    f"{self._name!r} cannot take a complex step: it is differentiated with respect "
                    f"to complex {describe(leaf)}; use method='central'"
                )


def as_complex(leaf: np.ndarray) -> np.ndarray:
    """A copy in C order."""
    return leaf.astype(np.result_type(leaf.dtype, np.complex64), order="C")


def require_one_size(size: int, expected: int, name: str) -> None:
    if size != expected:
        raise ValueError(
            f"the value of {name!r} must have one shape: it has {size} real numbers at displaced "
            f"arguments, and {expected} elsewhere"
        )


@carrier
class Jacobian:
    """A pullback that is data: the Jacobian over the real numbers in value and arguments.

    ``value`` and ``arguments``: the kinds of their leaves; ``None`` without a derivative.
    """

    matrix: np.ndarray
    value: tuple[NumberKind | None, ...]
    arguments: tuple[NumberKind | None, ...]

    def __repr__(self) -> str:
        return f"Jacobian({describe(self.matrix)})"

    def __sizeof__(self) -> int:
        return object.__sizeof__(self) + self.matrix.nbytes

    def __call__(self, cotangent: Leaves) -> Leaves:
        """The cotangents p of the arguments' leaves: Re(c df) = Re(p dx) for all dx."""
        if cotangents.is_zero(cotangent):
            return (None,) * len(self.arguments)
        conjugates = [None if leaf is None else np.conj(leaf) for leaf in cotangent]
        pulled = split(in_reals(conjugates, self.value) @ self.matrix, self.arguments)
        return tuple([None if leaf is None else np.conj(leaf) for leaf in pulled])

    def push(self, tangent: Leaves) -> Leaves:
        """The tangents of the value's leaves."""
        return split(self.matrix @ in_reals(tangent, self.arguments), self.value)


def jacobian_of(value: Any, arguments: Sequence[Any], matrix: np.ndarray, name: str) -> Jacobian:
    made = Jacobian(matrix, kinds(flatten(value)[0]), kinds(arguments))
    require_one_size(matrix.shape[0], count(made.value), name)
    return made


class Differenced(Rule):
    """A black box with differences of its values as rules, all in one task."""

    is_first_order = True

    def __init__(self, fun: Callable, scheme: Scheme, name: str | None = None):
        super().__init__(fun, "dg.finite_difference")
        self.name = self.__name__ = name or self.name
        self.scheme = scheme

    def run(self, args: tuple, kwargs: dict) -> tuple[Any, Any]:
        return self.fun(*args, **kwargs), None

    def pullback(self, call: RuleCall, active: Sequence[int]) -> Callable[[Any], Any]:
        structure = call.structure
        transposed = product(self.jacobian(call, active), self.name, transposed=True)
        return lambda cotangent: unflatten(structure, transposed(*flatten(cotangent)[0]))

    def push(self, call: RuleCall, tangents: tuple) -> Any:
        pushed = slope(self, call)(*flatten(tangents)[0])
        return unflatten(flatten(call.value)[1], pushed)

    def jacobian(self, call: RuleCall, active: Sequence[int]) -> Jacobian:
        differences = self._differences(call, active)
        matrix = differences.columns(range(differences.size))
        leaves = [leaf if place in active else None for place, leaf in enumerate(call.leaves)]
        return jacobian_of(call.value, leaves, matrix, self.name)

    def slope(self, call: RuleCall, *tangents: Any) -> Leaves:
        """The tangents of the value's leaves, from tangents of the arguments' leaves."""
        active = [place for place, tangent in enumerate(tangents) if tangent is not None]
        along = self._differences(call, active).along([tangents[place] for place in active])
        value = kinds(flatten(call.value)[0])
        require_one_size(len(along), count(value), self.name)
        return split(along, value)

    def _differences(self, call: RuleCall, active: Sequence[int]) -> Differences:
        def evaluate(displaced: Sequence[Any]) -> Any:
            leaves = substitute(call.leaves, active, displaced)
            return self.fun(*call.with_leaves(leaves), **call.kwargs)

        leaves = [call.leaves[place] for place in active]
        return Differences(self.scheme, self.name, evaluate, leaves, call.value)


class Linear(Rule):
    """A linear function of leaves: of all orders, as it is its own tangent.

    ``transposed(active)`` makes the map from a cotangent to the active leaves' cotangents.
    """

    def __init__(self, fun: Callable, name: str, transposed: Callable[[Sequence[int]], Callable]):
        super().__init__(fun, "a linear function")
        self.name = name
        self._transposed = transposed

    def run(self, args: tuple, kwargs: dict) -> tuple[Any, Any]:
        return self(*args), None

    def push(self, call: RuleCall, tangents: tuple) -> Any:
        return self(*tangents)

    def pullback(self, call: RuleCall, active: Sequence[int]) -> Callable[[Any], Any]:
        transposed = self._transposed(active)
        return lambda cotangent: transposed(*cotangent)


def product(jacobian: Jacobian, name: str, transposed: bool) -> Linear:
    """The product of leaves and a Jacobian, or its transpose."""
    fun = jacobian if transposed else jacobian.push
    return Linear(
        lambda *leaves: fun(leaves), name, lambda active: product(jacobian, name, not transposed)
    )


def slope(function: Differenced, call: RuleCall) -> Linear:
    """The tangent of a black box at one point: a difference along a direction.

    If the direction is differentiated, as for a Gauss-Newton product, the full Jacobian is made.
    """

    def transposed(active: Sequence[int]) -> Callable:
        return product(function.jacobian(call, active), function.name, transposed=True)

    return Linear(functools.partial(function.slope, call), function.name, transposed)


def difference(
    scheme: Scheme,
    model: Model,
    call: Call,
    active: Sequence[Active],
    first: int,
    stride: int,
    inputs: Sequence[Any],
) -> np.ndarray:
    """Every ``stride``-th column of a call's Jacobian with respect to its active inputs."""
    with Blame("forward", model, call, inputs):
        numbers = [number for number, *_ in active]
        leaves, structure = flatten([inputs[number] for number in numbers])
        places = [place for place, leaf in enumerate(leaves) if is_differentiable(leaf)]

        def evaluate(displaced: Sequence[Any]) -> Any:
            trees = unflatten(structure, substitute(leaves, places, displaced))
            return plain_value(model, call, substitute(inputs, numbers, trees))

        arrays = [leaves[place] for place in places]
        differences = Differences(scheme, model.name, evaluate, arrays)
        return differences.columns(range(first, differences.size, stride))


def collect(
    model: Model,
    call: Call,
    active: Sequence[Active],
    inputs: Sequence[Any],
    value: Any,
    parts: Sequence[np.ndarray],
) -> Captured:
    """The captured call, from its value and ``parts``, which share its Jacobian's columns."""
    with Blame("forward", model, call, inputs):
        outputs = flatten(value)[0]
        require_numbers(outputs, value, model)
        leaves, _ = flatten([inputs[number] for number, *_ in active])
        pullback = pullback_of(value, leaves, parts, model.name)
        return Captured(value, pullback, seen_by(active, inputs))


def pullback_of(
    value: Any, leaves: Sequence[Any], parts: Sequence[np.ndarray], name: str
) -> Jacobian | Gradient:
    """The Jacobian, or the gradient of one real number."""
    outputs = flatten(value)[0]
    if not (any(map(is_differentiable, outputs)) and any(part.size for part in parts)):
        return Gradient((None,) * len(leaves))
    jacobian = jacobian_of(value, leaves, interleave(parts, name), name)
    if not is_real_scalar(outputs):
        return jacobian
    return Gradient(jacobian((np.ones((), np.asarray(outputs[0]).dtype),)))


def interleave(parts: Sequence[np.ndarray], name: str) -> np.ndarray:
    """The matrix with the columns of ``parts`` in turn; some parts may have none."""
    parts = [part for part in parts if part.shape[1]]
    width = sum([part.shape[1] for part in parts])
    matrix = np.empty((len(parts[0]), width), np.result_type(*parts))
    for number, part in enumerate(parts):
        require_one_size(len(part), len(matrix), name)
        matrix[:, number :: len(parts)] = part
    return matrix
