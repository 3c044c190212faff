"""Adjoints: the lines that pull one call back, for calls that are made most often.

Each entry writes the expressions that the tape's rule of the primitive evaluates, for real arrays
and numbers of one precision; the values and the bits are the tape's. ``None`` instead of cotangents
says that the rule is not this one: then the tape's pullback itself is called. A cotangent may be
*thin*: an array with axes of length one that stands for one of the full shape, as after a sum.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import autograd.numpy as anp
import numpy as np
from autograd.builtins import container_take
from autograd.core import VSpace
from autograd.numpy import numpy_wrapper
from autograd.numpy.numpy_vjps import balanced_eq

from daskgrad.autodiff.compiled.lines import Writer, value_of
from daskgrad.autodiff.compiled.steps import Step
from daskgrad.autodiff.rules.declaration import ArrayBox
from daskgrad.autodiff.rules.indexing import copy_index, names_no_entry_twice
from daskgrad.autodiff.rules.linalg_products import is_simple
from daskgrad.autodiff.rules.math_reductions import (
    UNKNOWN,
    count_of_terms,
    kept_shape,
    reduced_axis,
)

Shape = tuple[int, ...]


class Selected(NamedTuple):
    """A cotangent that is ``text`` at an index, and zero elsewhere."""

    where: str
    text: str
    distinct: bool


class Only(NamedTuple):
    """The cotangent of one of several results, if the others have none; the rule of the call that
    returned them takes it in place of theirs."""

    text: str


class Pulled:
    """What a rule sees: the call, the names of its value and arguments, and the cotangent."""

    def __init__(
        self,
        writer: Writer,
        step: Step,
        g: str,
        write: Callable[[str], str],
        keep: Callable[[str], str],
    ):
        self.writer, self.step = writer, step
        self.write, self.keep = write, keep  # a line of the backward pass, and of the forward one
        self.g = g
        self.shape = shape_of(step.value)

    @property
    def ans(self) -> str:
        return self.writer.name(self.step)

    def arg(self, number: int) -> str:
        return self.writer.spell(self.step.args[number])

    def beside(self, given: Any) -> str:
        """An argument or constant, in arithmetic with the cotangent or an array of its shape."""
        return self.writer.operand(given, self.step.value)

    def value(self, number: int) -> Any:
        return value_of(self.step.args[number])

    def thin(self, *operands: Any) -> str:
        """The cotangent for an expression of its entries and those of the operands.

        A thin one serves where all of these are in C order: NumPy gives a result the order of its
        operands, and the bits of later sums depend on it.
        """
        values = [np.asarray(value_of(each)) for each in operands]
        are_ordered = [value.ndim < 2 or value.flags.c_contiguous for value in values]
        return self.g if all(are_ordered) else self.full()

    def full(self) -> str:
        """The cotangent with all its axes."""
        if is_thin(self.writer.values[self.g], self.shape):
            shape = self.writer.derive(shape_of, self.step)
            self.g = self.write(f"{self.writer.name(spread)}({self.g}, {shape})")
        return self.g

    def shape_of(self, number: int) -> str:
        """The shape of an argument."""
        return self.writer.derive(np.shape, self.step.args[number])


def spread(thin: Any, shape: Shape) -> np.ndarray:
    """An array of this shape with the entries of a thin one."""
    full = np.empty(shape, thin.dtype if hasattr(thin, "dtype") else np.result_type(thin))
    full[...] = thin
    return full


def is_thin(cotangent: Any, shape: Shape) -> bool:
    """Whether a cotangent stands for one of a larger shape. (Some rules of autograd's return too
    many axes, which is left to whoever takes the cotangent.)"""
    own = shape_of(cotangent)
    return own != shape and len(own) <= len(shape) and np.broadcast_shapes(own, shape) == shape


def shape_of(value: Any) -> Shape:
    """The shape of an array or number; empty for several arrays."""
    return value.shape if isinstance(value, np.ndarray | np.generic) else ()


def is_double(value: Any) -> bool:
    return type(value) in (np.ndarray, np.float64) and value.dtype == np.float64


REAL = (np.dtype(np.float64), np.dtype(np.float32))  # in the machine's byte order


def is_real(value: Any) -> bool:
    """Whether this is an array or number of NumPy's in double or single precision."""
    return type(value) in (np.ndarray, np.float64, np.float32) and value.dtype in REAL


Rule = Callable[[Pulled], Sequence[Any] | None]
ADJOINTS: dict[Any, Rule] = {}
COMPLEX: dict[Any, Rule] = {}  # for calls with complex numbers, of which the rules find out
REPLACED: dict[Any, tuple[Callable[[Step], bool], Callable]] = {}  # for which calls, by what
ENTRIES: dict[
    Any, tuple[int, Callable[[Step], bool]]
] = {}  # whose rule takes ``Only``; for which calls
FREE: dict[Any, range] = {}  # the arguments of which a rule looks at types and shapes alone
MANY = 2**30


def adjoint(*funs: Any, free: range = range(1)) -> Callable[[Rule], Rule]:
    def enter(rule: Rule) -> Rule:
        ADJOINTS.update(dict.fromkeys(funs, rule))
        FREE.update(dict.fromkeys(funs, free))
        return rule

    return enter


# ------------------------------------------------------------------------------- elementwise


UNARY = {
    anp.exp: "{ans} * {g}",
    anp.log: "{g} / {x}",
    anp.log1p: "{g} / ({x} + {one})",
    anp.expm1: "({ans} + {one}) * {g}",
    anp.sin: "{g} * np.cos({x})",
    anp.cos: "-{g} * np.sin({x})",
    anp.tan: "{g} / np.cos({x}) ** 2",
    anp.sinh: "{g} * np.cosh({x})",
    anp.cosh: "{g} * np.sinh({x})",
    anp.tanh: "{g} / np.cosh({x}) ** 2",
    anp.arctan: "{g} / ({one} + {x}**2)",
    anp.arcsin: "{g} / np.sqrt({one} - {x}**2)",
    anp.sqrt: "{g} * {half} / {ans}",
    anp.square: "{g} * {two} * {x}",
    anp.negative: "-{g}",
    anp.reciprocal: "-{g} / {x}**2",
    anp.abs: "{g} * np.sign({x})",
}


@adjoint(*UNARY)
def unary(call: Pulled) -> Sequence[Any] | None:
    if len(call.step.args) > 1 or call.step.kwargs:
        return None
    text, number = UNARY[call.step.fun], call.writer.operand
    g = call.thin(call.step.args[0], call.step)
    names = {"g": g, "ans": call.ans if "{ans}" in text else "", "x": call.arg(0)}
    names |= {"one": number(1.0, call.step.value) if "{one}" in text else ""}
    cotangent = call.writer.values[g]
    names |= {"half": number(0.5, cotangent) if "{half}" in text else ""}
    names |= {"two": number(2.0, cotangent) if "{two}" in text else ""}
    return [text.format(**names)]


ARITHMETIC = {
    anp.add: ("{g}", "{g}"),
    anp.subtract: ("{g}", "-{g}"),
    anp.multiply: ("{y} * {g}", "{x} * {g}"),
    anp.divide: ("{g} / {y}", "-({g} / {y}) * {ans}"),
}
BINARY = ARITHMETIC | {
    anp.maximum: ("{g} * {eq}({x}, {ans}, {y})", "{g} * {eq}({y}, {ans}, {x})"),
    anp.minimum: ("{g} * {eq}({x}, {ans}, {y})", "{g} * {eq}({y}, {ans}, {x})"),
    anp.logaddexp: ("{g} * np.exp({x} - {ans})", "{g} * np.exp({y} - {ans})"),
    anp.logaddexp2: ("{g} * 2 ** ({x} - {ans})", "{g} * 2 ** ({y} - {ans})"),
    anp.arctan2: ("{g} * {y} / ({x}**2 + {y}**2)", "{g} * -{x} / ({x}**2 + {y}**2)"),
}


@adjoint(*BINARY, free=range(2))
def binary(call: Pulled) -> Sequence[Any] | None:
    step = call.step
    if len(step.args) != 2 or step.kwargs:
        return None
    texts = [BINARY[step.fun][argnum] for argnum in step.argnums]
    operands = {"x": step.args[0], "y": step.args[1], "ans": step}
    used = [name for name in operands if f"{{{name}}}" in "".join(texts)]
    g = call.thin(*[operands[name] for name in used])
    shapes = [np.shape(call.value(argnum)) for argnum in step.argnums]
    if shapes.count(call.shape) < len(shapes):
        g = call.full()
    names = {"g": g} | {name: call.beside(operands[name]) for name in used}
    if any(["{eq}" in text for text in texts]):
        names |= {"eq": call.writer.name(balanced_eq)}
    if is_extreme_of_arrays(call):
        take = call.writer.name(pull_larger)
        texts = [text.replace("{g} * {eq}(", f"{take}({{g}}, ") for text in texts]
    texts = [text.format(**names) for text in texts]
    if step.fun is anp.divide and len(texts) > 1:
        quotient = call.write(texts[0])
        texts = [quotient, f"-{quotient} * {names['ans']}"]
    sums = fit if step.fun in ARITHMETIC else fit_by_axes
    return [sums(call, text, shape) for text, shape in zip(texts, shapes, strict=True)]


def is_extreme_of_arrays(call: Pulled) -> bool:
    value = call.step.value
    return call.step.fun in (anp.maximum, anp.minimum) and is_double(value) and np.ndim(value) > 0


def pull_larger(g: Any, x: Any, ans: np.ndarray, y: Any) -> Any:
    """``g * balanced_eq(x, ans, y)``, in less time where nothing is equal."""
    is_chosen, is_equal = x == ans, x == y
    if np.count_nonzero(is_equal):
        return g * (is_chosen / (1.0 + is_equal))
    return g * is_chosen


def fit(call: Pulled, text: str, shape: Shape) -> str:
    """An expression, summed over the axes over which an argument was broadcast, as the rules of
    arithmetic do it: over several at once.

    They sum over all axes of length one; where that is no sum, no zero stays negative.
    """
    if shape == call.shape:
        return f"{text} + {call.writer.operand(0.0, call.step.value)}" if 1 in shape else text
    reduce = call.writer.name(np.add.reduce)
    count = len(call.shape) - len(shape)
    if not shape:
        return f"{reduce}({text}, axis=None)"
    if count:
        text = f"{reduce}({text}, axis={tuple(range(count))})"
    axes = stretched_axes(shape, call.shape[count:])
    return f"{reduce}({text}, axis={axes}, keepdims=True)" if axes else text


def fit_by_axes(call: Pulled, text: str, shape: Shape) -> str:
    """The same, as autograd does it: over one axis after the other."""
    if shape == call.shape:
        return fit(call, text, shape)
    reduce = call.writer.name(np.add.reduce)
    for _ in range(len(call.shape) - len(shape)):
        text = f"{reduce}({text}, axis=0)"
    for axis in stretched_axes(shape, call.shape[len(call.shape) - len(shape) :]):
        text = f"{reduce}({text}, axis={axis}, keepdims=True)"
    return text


def stretched_axes(shape: Shape, result: Shape) -> tuple[int, ...]:
    """The axes of length one that stand for longer ones of a result."""
    pairs = enumerate(zip(shape, result, strict=True))
    return tuple([axis for axis, (size, other) in pairs if size == 1 and other != 1])


@adjoint(VSpace.add, VSpace.mut_add)
def sum_of_cotangents(call: Pulled) -> Sequence[Any] | None:
    shapes = [np.shape(parent.value) for parent in call.step.parents]
    return [call.g] * len(shapes) if set(shapes) == {call.shape} else None


@adjoint(anp.power)
def power(call: Pulled) -> Sequence[Any] | None:
    step, exponent = call.step, call.value(1)
    if step.kwargs or step.argnums != (0,) or type(exponent) not in (int, float):
        return None
    g = call.thin(step.args[0])
    factor = call.writer.operand(step.args[1], call.writer.values[g])
    text = f"{g} * {factor} * {call.arg(0)}"
    if exponent != 2:
        text += f"**{call.writer.spell(float(exponent - 1) if exponent else 1.0)}"
    return [fit(call, text, call.shape)]


@adjoint(anp.where, free=range(3))
def where(call: Pulled) -> Sequence[Any] | None:
    if len(call.step.args) != 3 or 0 in call.step.argnums:
        return None
    g, shapes = call.full(), [np.shape(call.value(argnum)) for argnum in call.step.argnums]
    values = call.writer.values[g], call.value(0)
    if not (is_double(values[0]) and all([np.asarray(x).flags.c_contiguous for x in values])):
        return None  # the tape's zeros are in double precision and C order, as is then the result
    zero = call.writer.operand(0.0, values[0])
    texts = {1: f"np.where({call.arg(0)}, {g}, {zero})", 2: f"np.where({call.arg(0)}, {zero}, {g})"}
    pairs = zip(call.step.argnums, shapes, strict=True)
    return [fit_by_axes(call, texts[argnum], shape) for argnum, shape in pairs]


# -------------------------------------------------------------------------------- reductions


@adjoint(anp.sum, numpy_wrapper._primitive_mean)
def total(call: Pulled) -> Sequence[Any] | None:
    step = call.step
    x = call.value(0)
    axis = reduced_axis((x, *step.args[1:]), step.kwargs)
    if axis == UNKNOWN:
        return None
    g = call.full()
    if not np.asarray(call.writer.values[g]).flags.c_contiguous:
        return None  # the tape's array has all axes, and an order that depends on both
    if axis is None:
        text = f"{g}.reshape({(1,) * x.ndim})" if np.ndim(call.writer.values[g]) else g
    else:
        text = f"{g}.reshape({call.writer.derive(shape_of_sums, step.args[0], axis)})"
    text += f" + {call.writer.operand(0.0, call.writer.values[g])}"
    if step.fun is anp.sum:
        return [text]
    return [f"({text}) / {call.writer.derive(terms_of_sums, step.args[0], axis)}"]


def shape_of_sums(x: np.ndarray, axis: Any) -> Shape:
    return kept_shape(x.shape, axis)


def terms_of_sums(x: np.ndarray, axis: Any) -> np.integer:
    return count_of_terms(x.shape, axis)


# ------------------------------------------------------------------------------ arrangements


@adjoint(anp.reshape, anp.ravel, anp.expand_dims, anp.squeeze, free=range(2))
def reshape(call: Pulled) -> Sequence[Any] | None:
    if "order" in call.step.kwargs or len(call.step.args) > 2:
        return None
    if call.step.fun is anp.ravel and len(call.step.args) > 1:
        return None
    return [f"{call.full()}.reshape({call.shape_of(0)})"]


@adjoint(anp.transpose)
def transpose(call: Pulled) -> Sequence[Any] | None:
    if len(call.step.args) > 1 or call.step.kwargs:
        return None
    return [f"{call.full()}.T"]


@adjoint(numpy_wrapper.concatenate_args, free=range(1, MANY))
def concatenate(call: Pulled) -> Sequence[Any] | None:
    axis, *parts = call.step.args
    if call.step.kwargs or type(axis) is not int:
        return None
    g, places = call.full(), call.writer.derive(places_of_parts, axis, *parts)
    return [f"{g}[{places}[{argnum - 1}]]" for argnum in call.step.argnums]


def places_of_parts(axis: int, *parts: Any) -> list[tuple]:
    """The index of each part where they are joined."""
    ends = np.cumsum([0, *[np.shape(part)[axis] for part in parts]]).tolist()
    before = (slice(None),) * (axis % np.ndim(parts[0]))
    return [(*before, slice(start, stop)) for start, stop in pairwise(ends)]


@adjoint(numpy_wrapper.array_from_args, free=range(2, MANY))
def array_from_args(call: Pulled) -> Sequence[Any] | None:
    if call.step.args[:2] != ((), {}):
        return None
    g = call.full()
    return [f"{g}[{argnum - 2}]" for argnum in call.step.argnums]


@adjoint(numpy_wrapper._array_from_scalar_or_array, free=range(2, 3))
def array_of(call: Pulled) -> Sequence[Any] | None:
    return [call.g] if call.step.args[:2] == ((), {}) else None


@adjoint(ArrayBox.__getitem__, free=range(2))
def getitem(call: Pulled) -> Sequence[Any] | None:
    index = call.value(1)
    if call.step.argnums != (0,) or type(call.value(0)) is not np.ndarray:
        return None
    if isinstance(index, list):
        array = call.writer.derive(copy_index, call.step.args[1])
        return [Selected(array, call.g, names_no_entry_twice(call.writer.values[array]))]
    return [Selected(call.arg(1), call.g, names_no_entry_twice(index))]


@adjoint(container_take)
def one_of_several(call: Pulled) -> Sequence[Any] | None:
    entry, serves = ENTRIES.get(call.step.parents[0].fun, (None, None))
    is_served = serves and call.value(1) == entry and serves(call.step.parents[0])
    return [Only(call.g)] if is_served else None


# ---------------------------------------------------------------------------------- products


@adjoint(anp.dot, free=range(2))
def dot(call: Pulled) -> Sequence[Any] | None:
    a, b = call.value(0), call.value(1)
    if call.step.kwargs or not is_simple(a, b):
        return None
    g = call.full()
    x, y = call.arg(0), call.arg(1)
    if b.ndim == 1:
        first = f"np.dot({g}.reshape(-1, 1), {y}.reshape(1, -1))"
    else:
        first = f"np.dot({g}.reshape(-1, {call.shape_of(1)}[1]), {y}.T)"
    if a.ndim == 1:
        second = f"np.dot({g}.reshape(-1, 1), {x}.reshape(1, -1))"
    else:
        second = f"np.dot({g}.reshape({call.shape_of(0)}[0], -1).T, {x})"
    second += ".T" if b.ndim == 2 else f".reshape({call.shape_of(1)})"
    texts = {0: f"{first}.reshape({call.shape_of(0)})", 1: second}
    return [texts[argnum] for argnum in call.step.argnums]


@adjoint(anp.matmul, free=range(2))
def matmul(call: Pulled) -> Sequence[Any] | None:
    a, b = call.value(0), call.value(1)
    if call.step.kwargs or not is_simple(a, b) or a.ndim != 2:
        return None
    g, x, y = call.full(), call.arg(0), call.arg(1)
    first = f"np.matmul({g}, {y}.T)"
    second = f"np.matmul({x}.T, {g})"
    if b.ndim == 1:
        first = f"np.dot({g}.reshape(-1, 1), {y}.reshape(1, -1))"
        second = f"np.matmul({x}.T, {g}.reshape(-1, 1)).reshape(-1)"
    texts = {0: first, 1: second}
    return [texts[argnum] for argnum in call.step.argnums]
