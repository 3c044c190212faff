"""Library calls: what programs call for functions whose wrappers take longer than they do.

They have the bits of NumPy's own, and of the tape's rules, which make the same calls; ``ADJOINTS``
and ``REPLACED`` tell for which arguments they serve. ``special_calls`` and ``density_calls`` have
those of SciPy, which takes long to import.
"""

from collections.abc import Callable, Sequence
from typing import Any

import autograd.numpy as anp
import numpy as np
from autograd.numpy import linalg, numpy_wrapper
from autograd.tracer import trace_primitives_map

from daskgrad.autodiff.compiled import kernels
from daskgrad.autodiff.compiled.adjoints import (
    ENTRIES,
    MANY,
    REPLACED,
    Pulled,
    Rule,
    adjoint,
    is_double,
    where,
)
from daskgrad.autodiff.compiled.lines import value_of
from daskgrad.autodiff.compiled.program import Diverged
from daskgrad.autodiff.compiled.steps import Step
from daskgrad.autodiff.rules.declaration import import_after
from daskgrad.autodiff.rules.linalg_norms import flat_at_zero
from daskgrad.autodiff.rules.linalg_products import (
    contract,
    is_contraction,
    plan_of,
    pull_cholesky,
    pull_inverse,
    pull_of_matrix,
    pull_trace,
)
from daskgrad.autodiff.rules.math_reductions import kept_shape
from daskgrad.autodiff.tape.reverse import pullback_of

import_after("autograd.scipy.special", "daskgrad.autodiff.compiled.special_calls")
import_after("autograd.scipy.stats", "daskgrad.autodiff.compiled.density_calls")

adjoint(trace_primitives_map[np.where], free=range(3))(where)


def of_c_order(*funs: Any, free: range = range(1)) -> Callable[[Rule], Rule]:
    """Enters a rule for cotangents in double precision and C order: that of the result depends on
    it, and in sums over axes the tape's has all axes."""

    def enter(rule: Rule) -> Rule:
        def guarded(call: Pulled) -> Sequence[Any] | None:
            g = call.writer.values[call.g]
            is_usual = is_double(g) and np.asarray(g).flags.c_contiguous
            return rule(call) if is_usual else None

        adjoint(*funs, free=free)(guarded)
        return rule

    return enter


def written(call: Pulled, fun: Callable, *given: Any) -> str:
    return f"{call.writer.name(fun)}({', '.join([str(each) for each in given])})"


def is_array(given: Any, *ndims: int) -> bool:
    """Whether this is an array in double precision and C order, with as many axes."""
    value = value_of(given)
    is_plain = type(value) is np.ndarray and is_double(value) and value.flags.c_contiguous
    return is_plain and (value.ndim in ndims if ndims else value.ndim > 0)


def axis_of(step: Step, *others: str) -> int | str | None:
    """The ``axis`` of a call with this keyword and ``others`` alone: a number or None; "other"."""
    given = dict(zip(["axis"], step.args[1:], strict=False)) | step.kwargs
    if len(step.args) > 2 or given.keys() - {"axis", *others}:
        return "other"
    axis = given.get("axis")
    return axis if axis is None or type(axis) is int else "other"


# -------------------------------------------------------------------------------- reductions


def by_answer(pull: Callable) -> Rule:
    """A rule that calls ``pull(g, ans, x, axis)``; where there is no axis, g may be one number."""

    def rule(call: Pulled) -> Sequence[Any] | None:
        axis = axis_of(call.step, "keepdims")
        if axis == "other" or not is_array(call.step.args[0]):
            return None
        g = call.g if axis is None else call.full()
        return [written(call, pull, g, call.ans, call.arg(0), axis)]

    return rule


def pull_extreme(g: Any, ans: Any, x: np.ndarray, axis: int | None) -> np.ndarray:
    if axis is None:
        if ans.ndim:
            g, ans = g.reshape(()), ans.reshape(())
        chosen = x == ans
        return chosen * ((g + 0.0) / np.count_nonzero(chosen))
    shape = kept_shape(x.shape, axis)
    chosen = x == ans.reshape(shape)
    count = np.add.reduce(chosen, axis=axis, keepdims=True)
    return chosen * ((g.reshape(shape) + 0.0) / count)


@of_c_order(numpy_wrapper._primitive_var, numpy_wrapper._primitive_std)
def spread_of_entries(call: Pulled) -> Sequence[Any] | None:
    axis, x = axis_of(call.step, "ddof", "keepdims"), call.step.args[0]
    ddof = call.step.kwargs.get("ddof", 0)
    if axis == "other" or type(ddof) is not int or not is_array(x) or value_of(x).size < 2:
        return None
    g = call.full()
    if call.step.fun is numpy_wrapper._primitive_var:
        return [written(call, pull_variance, g, call.arg(0), axis, ddof)]
    return [written(call, pull_deviation, g, call.ans, call.arg(0), axis, ddof)]


def pull_variance(g: Any, x: np.ndarray, axis: int | None, ddof: int) -> np.ndarray:
    rest = float(length_along(x, axis) - ddof)
    return 2.0 * (spread_over(g, x, axis) + 0.0) * gaps_of(x, axis) / rest


def pull_deviation(g: Any, ans: Any, x: np.ndarray, axis: int | None, ddof: int) -> np.ndarray:
    count = length_along(x, axis)
    if count <= 1:
        return (np.zeros(x.shape) + g.reshape(kept_shape(x.shape, axis))) * 0.0
    return (spread_over(g / ans, x, axis) + 0.0) * gaps_of(x, axis) / float(count - ddof)


def spread_over(g: Any, x: np.ndarray, axis: int | None) -> Any:
    """A cotangent with the axes of a reduction; of all of them it is one number."""
    if axis is None:
        return g.reshape(())[()] if g.ndim else g
    return g.reshape(kept_shape(x.shape, axis))


def length_along(x: np.ndarray, axis: int | None) -> int:
    return x.size if axis is None else x.shape[axis]


def mean(x: np.ndarray, axis: int | None = None, keepdims: Any = False) -> Any:
    return np.add.reduce(x, axis=axis, keepdims=keepdims) / length_along(x, axis)


def gaps_of(x: np.ndarray, axis: int | None) -> np.ndarray:
    """The distances from the mean."""
    return x - mean(x, axis, axis is not None)


def variance(
    x: np.ndarray, axis: int | None = None, *, ddof: int = 0, keepdims: Any = False
) -> Any:
    gaps = gaps_of(x, axis)
    squares = np.add.reduce(np.square(gaps, gaps), axis=axis, keepdims=keepdims)
    return squares / (length_along(x, axis) - ddof)


def deviation(x: np.ndarray, axis: int | None = None, **given: Any) -> Any:
    return np.sqrt(variance(x, axis, **given))


def has_terms(step: Step) -> bool:
    """Whether each mean is over more numbers than its degrees of freedom that are taken."""
    axis, ddof = axis_of(step, "ddof", "keepdims"), step.kwargs.get("ddof", 0)
    if isinstance(axis, str) or type(ddof) is not int or not is_array(step.args[0]):
        return False
    return length_along(value_of(step.args[0]), axis) > max(ddof, 0)


REPLACED[numpy_wrapper._primitive_mean] = has_terms, mean
REPLACED[numpy_wrapper._primitive_var] = has_terms, variance
REPLACED[numpy_wrapper._primitive_std] = has_terms, deviation


of_c_order(anp.max, anp.min)(by_answer(pull_extreme))


@of_c_order(linalg._primitive_norm)
def length(call: Pulled) -> Sequence[Any] | None:
    if len(call.step.args) > 1 or call.step.kwargs or not is_array(call.step.args[0]):
        return None
    return [written(call, pull_length, call.full(), call.ans, call.arg(0))]


def pull_length(g: Any, ans: Any, x: np.ndarray) -> np.ndarray:
    if ans:
        return g / ans * x
    shape = kept_shape(x.shape, None)
    slope, divisor = flat_at_zero(x, ans.reshape(shape))
    return g.reshape(shape) / divisor * slope


def length_of(x: np.ndarray) -> Any:
    return np.sqrt(x.dot(x))


def has_one_vector(step: Step) -> bool:
    return len(step.args) == 1 and not step.kwargs and is_array(step.args[0], 1)


REPLACED[linalg._primitive_norm] = has_one_vector, length_of


@of_c_order(anp.prod)
def product(call: Pulled) -> Sequence[Any] | None:
    step, x = call.step, call.step.args[0]
    if axis_of(step) is not None or not is_array(x):
        return None
    pullback = call.keep(written(call, pullback_at_zeros, call.ans, call.arg(0)))
    return [written(call, pull_product, call.full(), call.ans, call.arg(0), pullback)]


def pullback_at_zeros(ans: Any, x: np.ndarray) -> Callable | None:
    """The tape's pullback where factors are zero; it is another one then."""
    if np.count_nonzero(x) == x.size:
        return None
    return pullback_of(anp.prod, (0,), ans, (x,), {})


def pull_product(g: Any, ans: Any, x: np.ndarray, pullback: Callable | None) -> Any:
    return (g * ans + 0.0) / x if pullback is None else pullback(g)[0]


@of_c_order(anp.cumsum)
def running_sum(call: Pulled) -> Sequence[Any] | None:
    if axis_of(call.step) not in (None, 0) or not is_array(call.step.args[0], 1):
        return None
    return [f"np.add.accumulate({call.full()}[::-1])[::-1]"]


# ------------------------------------------------------------------------------ arrangements


def is_rolled(step: Step) -> bool:
    """Whether this is a roll of an array by an integer, along an axis unless it has but one."""
    given = dict(zip(["shift", "axis"], step.args[1:], strict=False)) | step.kwargs
    shift, axis, x = value_of(given.get("shift")), given.get("axis"), step.args[0]
    if type(shift) is not int or not is_array(x) or given.keys() - {"shift", "axis"}:
        return False
    has_axis = np.ndim(value_of(x)) == 1 if axis is None else type(axis) is int
    return has_axis and np.size(value_of(x)) > 0


@of_c_order(anp.roll, free=range(2))
def roll_back(call: Pulled) -> Sequence[Any] | None:
    if not is_rolled(call.step) or "shift" in call.step.kwargs:
        return None
    axis = call.arg(2) if len(call.step.args) > 2 else call.step.kwargs.get("axis")
    return [written(call, roll, call.full(), f"-({call.arg(1)})", axis)]


def is_added_up(step: Step) -> bool:
    return is_array(step.args[0]) and axis_of(step) != "other"


REPLACED[anp.cumsum] = is_added_up, np.ndarray.cumsum


def roll(x: np.ndarray, shift: int, axis: int | None = None) -> np.ndarray:
    axis = 0 if axis is None else axis
    shift %= x.shape[axis]
    if not shift:
        return x.copy()
    before = (slice(None),) * (axis % x.ndim)
    ahead, behind = x[(*before, slice(-shift, None))], x[(*before, slice(-shift))]
    return np.concatenate((ahead, behind), axis)


REPLACED[anp.roll] = is_rolled, roll


@of_c_order(anp.sort)
def unsort(call: Pulled) -> Sequence[Any] | None:
    if not has_one_vector(call.step):
        return None
    return [written(call, put_back, call.full(), call.arg(0))]


def put_back(g: np.ndarray, x: np.ndarray) -> np.ndarray:
    out = np.empty(x.shape)
    out[np.argsort(x, -1, "quicksort")] = g
    return out


@of_c_order(anp.diff)
def difference(call: Pulled) -> Sequence[Any] | None:
    if not has_one_vector(call.step) or not np.size(call.step.value):
        return None
    return [written(call, pull_difference, call.full())]


def pull_difference(g: np.ndarray) -> np.ndarray:
    return np.concatenate((-g[:1], -(g[1:] - g[:-1]), g[-1:]))


def differences(x: np.ndarray) -> np.ndarray:
    return x[1:] - x[:-1]


REPLACED[anp.diff] = has_one_vector, differences


@of_c_order(anp.atleast_1d, anp.atleast_2d)
def with_axes(call: Pulled) -> Sequence[Any] | None:
    if len(call.step.args) > 1:
        return None
    return [f"{call.full()}.reshape(np.shape({call.arg(0)}))"]


@of_c_order(anp.diag)
def diagonal(call: Pulled) -> Sequence[Any] | None:
    step = call.step
    if len(step.args) > 1 or step.kwargs or not is_array(step.args[0], 2):
        return None
    return [written(call, put_on_diagonal, call.full(), call.arg(0))]


def put_on_diagonal(g: np.ndarray, matrix: np.ndarray) -> np.ndarray:
    rows, columns = matrix.shape
    out = np.zeros((rows, columns))
    out.reshape(-1)[: min(rows, columns) * columns : columns + 1] = g + 0.0
    return out


def has_plain_matrix(step: Step) -> bool:
    return len(step.args) == 1 and not step.kwargs and is_array(step.args[0], 2)


REPLACED[anp.diag] = has_plain_matrix, np.ndarray.diagonal
REPLACED[anp.trace] = has_plain_matrix, np.ndarray.trace


# ------------------------------------------------------------------------------- elementwise


@of_c_order(anp.clip, free=range(3))
def clip(call: Pulled) -> Sequence[Any] | None:
    step, g = call.step, call.full()
    are_floats = [type(value_of(bound)) in (int, float) for bound in step.args[1:]] == [True, True]
    are_arrays = is_array(step.args[0]) and is_array(call.writer.values[g])
    if step.kwargs or not (are_floats and are_arrays) or 1 in call.shape:
        return None
    return [written(call, pull_clip, g, *map(call.beside, step.args))]


ZERO = np.zeros(())


def pull_clip(g: np.ndarray, x: np.ndarray, low: Any, high: Any) -> np.ndarray:
    is_above = x > low
    return np.where(is_above & (np.where(is_above, x, low) < high), g, ZERO)


def is_clipped_array(step: Step) -> bool:
    bounds = [type(value_of(bound)) for bound in step.args[1:]]
    return not step.kwargs and bounds == [float, float] and is_array(step.args[0])


REPLACED[anp.clip] = is_clipped_array, kernels.clip


# ------------------------------------------------------------------------------------ matrices


@of_c_order(linalg.solve, free=range(2))
def solution(call: Pulled) -> Sequence[Any] | None:
    step = call.step
    if step.kwargs or not (is_matrix(step.args[0]) and is_array(step.args[1], 1, 2)):
        return None
    pulled = call.write(written(call, kernels.solved, f"{call.arg(0)}.T", call.full()))
    texts = {0: written(call, pull_of_matrix, pulled, call.ans), 1: pulled}
    return [texts[argnum] for argnum in step.argnums]


def is_solved(step: Step) -> bool:
    matrix, b = map(value_of, step.args)
    are_double = all([type(each) is np.ndarray and is_double(each) for each in (matrix, b)])
    return are_double and not step.kwargs and matrix.ndim == 2 and b.ndim in (1, 2)


REPLACED[linalg.solve] = is_solved, kernels.solved


@adjoint(linalg.slogdet)
def log_of_determinant(call: Pulled) -> Sequence[Any] | None:
    matrix = call.keep(f"{call.writer.name(regular)}({call.arg(0)}, {call.ans}[0])")
    return [f"{call.g} * {written(call, kernels.inverted, matrix)}.T"]


@of_c_order(linalg.det)
def determinant(call: Pulled) -> Sequence[Any] | None:
    if not (has_matrix(call.step) and call.step.value):
        return None
    matrix = call.keep(f"{call.writer.name(regular)}({call.arg(0)}, {call.ans})")
    return [f"{call.full()} * {call.ans} * {written(call, kernels.inverted, matrix)}.T"]


def regular(matrix: np.ndarray, det: float) -> np.ndarray:
    """The matrix; the tape has another rule for a singular one, or an error."""
    if not det:
        raise Diverged
    return matrix


def has_matrix(step: Step) -> bool:
    matrix = value_of(step.args[0])
    is_alone = len(step.args) == 1 and not step.kwargs
    return is_alone and type(matrix) is np.ndarray and is_double(matrix) and matrix.ndim == 2


REPLACED[linalg.slogdet] = has_matrix, kernels.log_determinant
REPLACED[linalg.det] = has_matrix, kernels.determinant
REPLACED[linalg.inv] = has_matrix, kernels.inverted
REPLACED[linalg.cholesky] = has_matrix, kernels.factor


ENTRIES[linalg.slogdet] = 1, lambda step: has_matrix(step) and bool(step.value[0])


def is_matrix(given: Any) -> bool:
    return is_array(given, 2)


@of_c_order(linalg.inv)
def inverse(call: Pulled) -> Sequence[Any] | None:
    return [written(call, pull_inverse, call.full(), call.ans)] if is_matrix(call.step) else None


@of_c_order(linalg.cholesky)
def root(call: Pulled) -> Sequence[Any] | None:
    if call.step.kwargs or len(call.step.args) > 1 or not is_matrix(call.step):
        return None
    return [written(call, pull_cholesky, call.full(), call.ans)]


@of_c_order(anp.outer, free=range(2))
def outer(call: Pulled) -> Sequence[Any] | None:
    step = call.step
    if step.kwargs or not all([is_array(arg, 1) for arg in step.args]):
        return None
    g = call.full()
    texts = [f"np.dot({g}, {call.arg(1)})", f"np.dot({call.arg(0)}, {g})"]
    return [texts[argnum] for argnum in step.argnums]


def are_vectors(step: Step) -> bool:
    return not step.kwargs and [is_array(arg, 1) for arg in step.args] == [True, True]


def products(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return a.reshape(-1, 1) * b


REPLACED[anp.outer] = are_vectors, products


@of_c_order(anp.trace)
def trace(call: Pulled) -> Sequence[Any] | None:
    if len(call.step.args) > 1 or call.step.kwargs or not is_matrix(call.step.args[0]):
        return None
    return [written(call, pull_trace, call.full(), call.shape_of(0))]


@of_c_order(anp.einsum, free=range(1, MANY))
def einsum(call: Pulled) -> Sequence[Any] | None:
    step = call.step
    subscripts, *operands = step.args
    values = list(map(value_of, operands))
    if not (is_contraction([subscripts, *values], step.kwargs) and all(map(is_double, values))):
        return None
    if any([1 in value.shape for value in values]):
        return None
    texts = []
    for argnum in step.argnums:
        plan = call.writer.derive(plan_of, subscripts, argnum - 1, *operands)
        others = [call.arg(n) for n in range(1, len(step.args)) if n != argnum]
        texts.append(written(call, contract, plan, call.full(), *others))
    return texts


def is_einsum(step: Step) -> bool:
    return not step.kwargs and type(step.args[0]) is str


REPLACED[anp.einsum] = is_einsum, kernels.einsum
