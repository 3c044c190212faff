"""Forward: the lines of a model's own calls.

They are the calls that the model made, without the wrappers around them where that keeps the bits:
an operator instead of a ufunc, a method instead of a function.
"""

import copy
import operator
from collections.abc import Sequence
from typing import Any

import autograd.numpy as anp
import numpy as np
from autograd.builtins import container_take
from autograd.core import VSpace
from autograd.numpy import fft, linalg, numpy_wrapper
from autograd.numpy.numpy_vspaces import ArrayVSpace

from daskgrad.autodiff.compiled.adjoints import REPLACED, is_real
from daskgrad.autodiff.compiled.boxes import IN_PLACE, same
from daskgrad.autodiff.compiled.functions import PYTHONS_OWN, REDUCTIONS, raw
from daskgrad.autodiff.compiled.kernels import columns
from daskgrad.autodiff.compiled.lines import Line, Writer, has_axes, holds, value_of
from daskgrad.autodiff.compiled.rule_calls import RuleCall
from daskgrad.autodiff.compiled.steps import PYTHONS, Guard, Step
from daskgrad.autodiff.rules.declaration import ArrayBox
from daskgrad.autodiff.tape.rule_calls import call_rule

OPERATORS = {
    anp.add: "+",
    anp.subtract: "-",
    anp.multiply: "*",
    anp.divide: "/",
    anp.matmul: "@",
    anp.greater: ">",
    anp.greater_equal: ">=",
    anp.less: "<",
    anp.less_equal: "<=",
}
ALIKE = {  # further ufuncs whose operands have one type, into which NumPy takes Python's numbers
    *(np.power, np.maximum, np.minimum, np.fmax, np.fmin, np.equal, np.not_equal),
    *(np.arctan2, np.hypot, np.logaddexp, np.remainder, np.floor_divide),
}
RAISING = {operator.pow, operator.truediv, operator.floordiv, operator.mod, operator.abs}
BY_SHAPES = {  # functions other than ufuncs whose values' shapes are decided by their operands'
    anp.clip,
    anp.dot,
    anp.einsum,
    anp.outer,
    anp.where,
    numpy_wrapper.array_from_args,
    numpy_wrapper._array_from_scalar_or_array,
    VSpace.add,
    VSpace.mut_add,
    same,
    np.ndarray.copy,
    call_rule,
    operator.iadd,
    *PYTHONS_OWN,
}
BY_SHAPE = {  # the same, of one operand; the other arguments decide, too
    *REDUCTIONS,
    anp.cumsum,
    anp.diag,
    anp.diff,
    anp.imag,
    anp.real,
    anp.reshape,
    anp.roll,
    anp.trace,
    anp.ravel,
    anp.transpose,
    anp.expand_dims,
    anp.sort,
    anp.squeeze,
    anp.zeros_like,
    anp.ones_like,
    linalg.det,
    linalg.slogdet,
    linalg._primitive_norm,
    fft.fft,
    fft.ifft,
    numpy_wrapper._primitive_mean,
    numpy_wrapper._primitive_std,
    numpy_wrapper._primitive_var,
}


def line_of(writer: Writer, step: Step | Guard) -> Line:
    """The statement of one step; a guard has no target."""
    if isinstance(step, Guard):
        name = writer.name(step.step)
        return Line("", f"if {'not ' if step.answer else ''}{name}: raise Diverged")
    name = writer.name(step)
    return Line(name, f"{name} = {text_of(writer, step)}")


def shape_check(writer: Writer, step: Step | Guard) -> Line | None:
    """A statement that ends the program if the data gave a value another shape or dtype; it keeps
    calls whose value is not used, since they may raise."""
    if type(step) is Step and type(step.fun) is RuleCall:
        return Line("", writer.name(step))
    if isinstance(step, Guard) or isinstance(step.value, list | tuple) or is_shaped(step):
        return None
    name = writer.name(step)
    if type(step.value) in PYTHONS:  # (-8.0) ** 0.5 is complex
        return Line("", f"if type({name}) is not {type(step.value).__name__}: raise Diverged")
    if may_only_raise(step) or not isinstance(step.value, np.ndarray | np.generic):
        return Line("", name)
    expected = writer.derive(shape_and_dtype, step)  # roots of a polynomial may be complex
    return Line("", f"if ({name}.shape, {name}.dtype) != {expected}: raise Diverged")


def shape_and_dtype(value: Any) -> tuple:
    return value.shape, value.dtype


def is_shaped(step: Step) -> bool:
    if type(step.value) in PYTHONS:
        return step.fun not in RAISING
    if step.fun in BY_SHAPES or isinstance(raw(step.fun), np.ufunc):
        return True
    if step.fun in BY_SHAPE:
        return not holds((step.args[1:], step.kwargs), Step)
    if step.fun is numpy_wrapper.concatenate_args:
        return not isinstance(step.args[0], Step)
    if step.fun is container_take:
        return is_shaped(step.args[0])
    return step.fun is ArrayBox.__getitem__ and not holds(step.args[1], Step)


def may_only_raise(step: Step) -> bool:
    """Whether a value has the same shape and dtype for all data, if these are not an error."""
    if step.fun in (linalg.cholesky, linalg.inv, linalg.solve):
        return True
    return step.fun is ArrayBox.__getitem__ and not holds_mask(step.args[1])


def holds_mask(index: Any) -> bool:
    """Whether an index has data other than integers, whose number of entries may vary."""
    if isinstance(index, Step):
        return np.result_type(index.value).kind not in "iu"
    return isinstance(index, list | tuple) and any(map(holds_mask, index))


def text_of(writer: Writer, step: Step) -> str:
    args, kwargs = step.args, step.kwargs
    if step.fun is ArrayBox.__getitem__:
        if selects_columns(*args):
            return writer.spell_call(columns, (args[0], *args[1]), {})
        return f"{writer.spell(args[0])}[{writer.spell(args[1])}]"
    if step.fun in OPERATORS and len(args) == 2 and not kwargs and are_operands(args):
        first, second = operands(writer, args)
        return f"{first} {OPERATORS[step.fun]} {second}"
    if step.fun is anp.negative and not kwargs and are_operands(args):
        return f"-{writer.spell(args[0])}"
    if step.fun in REDUCTIONS and is_array(args[0]):
        reduction = text_of_reduction(writer, step)
        if reduction:
            return reduction
    if step.fun is anp.reshape and len(args) == 2 and not kwargs and is_array(args[0]):
        return f"{writer.spell(args[0])}.reshape({writer.spell(args[1])})"
    if raw(step.fun) in ALIKE and not kwargs and are_operands(args):
        return f"{writer.name(raw(step.fun))}({', '.join(operands(writer, args))})"
    text = TEXTS.get(step.fun) or PYTHONS_OWN.get(step.fun)
    if text:
        return text.format(*map(writer.spell, args))
    if step.fun in IN_PLACE or step.fun is VSpace.add:
        return text_of_sum(writer, step)
    serves, function = REPLACED.get(step.fun, (None, None))
    is_replaced = serves is not None and serves(step)
    if is_replaced and isinstance(function, np.ufunc):
        return f"{writer.name(function)}({', '.join(operands(writer, args))})"
    return writer.spell_call(function if is_replaced else raw(step.fun), args, kwargs)


def selects_columns(array: Any, index: Any) -> bool:
    """Whether a slice of the rows of a matrix is asked for columns by an array of numbers."""
    if not (isinstance(index, tuple) and len(index) == 2):
        return False
    matrix, rows, numbers = map(value_of, (array, *index))
    are_arrays = isinstance(rows, slice) and type(matrix) is type(numbers) is np.ndarray
    return are_arrays and matrix.ndim == 2 and numbers.ndim == 1 and numbers.dtype.kind == "i"


TEXTS = {
    same: "{}",
    np.ndarray.copy: "{}.copy()",
    operator.getitem: "{}[{}]",
    container_take: "{}[{}]",
    call_rule: "{1}",
}


def text_of_sum(writer: Writer, step: Step) -> str:
    """The addition of cotangents by autograd, in place where it changes its first argument."""
    space, *args = step.args
    first, *rest = map(writer.spell, args)
    if step.fun in IN_PLACE and not (args[0] is None or isinstance(args[0], Step)):
        first = f"{writer.name(copy.deepcopy)}({first})"  # of a constant
    if type(value_of(space)) is ArrayVSpace and are_operands(args):
        name = writer.name(operator.iadd)
        return f"{first} + {rest[0]}" if step.fun is VSpace.add else f"{name}({first}, {rest[0]})"
    return f"{writer.name(step.fun)}({', '.join([writer.name(space), first, *rest])})"


def text_of_reduction(writer: Writer, step: Step) -> str | None:
    if len(step.args) > 1 or step.kwargs.keys() - {"axis", "keepdims"}:
        return None
    given = {"axis": None, **step.kwargs}
    if given.get("keepdims") is np._NoValue:
        del given["keepdims"]
    return writer.spell_call(REDUCTIONS[step.fun], step.args, given)


def operands(writer: Writer, args: Sequence[Any]) -> list[str]:
    """The operands of an operator or ufunc, of which numbers may stand beside an array."""
    values = [each for each in map(value_of, args) if type(each) not in (int, float)]
    arrays = list(filter(has_axes, values))
    if not arrays or len({each.dtype for each in values}) > 1:
        return list(map(writer.spell, args))
    return [writer.operand(each, arrays[0]) for each in args]


def is_array(given: Any) -> bool:
    value = value_of(given)
    return type(value) is np.ndarray and is_real(value)


def are_operands(args: Sequence[Any]) -> bool:
    """Whether an operator has the bits of the ufunc: one is NumPy's, and none is of other types."""
    values = list(map(value_of, args))
    are_known = all([is_real(value) or type(value) in (int, float) for value in values])
    return are_known and any(map(is_real, values))
