"""JAX's programs, evaluated by NumPy one operation after the other.

A sweep makes thousands of calls of different shapes; compiling them would take half an hour. What
is compared is how JAX differentiates, which is in the program.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from jax.extend.core import Literal

OF_NUMPY = """
    abs add atan2=arctan2 ceil conj cos cosh eq=equal exp exp2 expm1 floor ge=greater_equal
    gt=greater imag is_finite=isfinite le=less_equal log log1p lt=less max=maximum min=minimum
    mul=multiply ne=not_equal neg=negative nextafter real sign sin sinh sqrt sub=subtract tan tanh
    asin=arcsin acos=arccos atan=arctan asinh=arcsinh acosh=arccosh atanh=arctanh square cbrt
    add_any=add copy and=bitwise_and or=bitwise_or not=invert
"""


def broadcast_in_dim(x: Any, shape: Any, broadcast_dimensions: Any, **_: Any) -> Any:
    wide = [1] * len(shape)
    for size, axis in zip(np.shape(x), broadcast_dimensions, strict=True):
        wide[axis] = size
    return np.broadcast_to(np.reshape(x, wide), shape)


def slice_of(x: Any, start_indices: Any, limit_indices: Any, strides: Any) -> Any:
    steps = strides or [1] * len(start_indices)
    return x[tuple(map(slice, start_indices, limit_indices, steps))]


def pad(x: Any, fill: Any, padding_config: Any) -> Any:
    if any(low < 0 or high < 0 for low, high, _ in padding_config):
        raise NotImplementedError("padding that cuts off")
    axes = list(zip(x.shape, padding_config, strict=True))
    inside = [(n - 1) * (gap + 1) + 1 if n else 0 for n, (_, _, gap) in axes]
    ends = [(low, low + n, high) for n, (low, high, _) in zip(inside, padding_config, strict=True)]
    found = np.full([end + high for _, end, high in ends], fill, x.dtype)
    steps = [gap + 1 for _, _, gap in padding_config]
    places = [slice(low, end, step) for (low, end, _), step in zip(ends, steps, strict=True)]
    found[tuple(places)] = x
    return found


def dot_general(x: Any, y: Any, dimension_numbers: Any, **_: Any) -> Any:
    (x_sums, y_sums), (x_batch, y_batch) = dimension_numbers
    letters = iter("abcdefghijklmnopqrstuvwxyz")
    of_x = [next(letters) for _ in np.shape(x)]
    of_y = [next(letters) for _ in np.shape(y)]
    for ours, theirs in zip((*x_sums, *x_batch), (*y_sums, *y_batch), strict=True):
        of_y[theirs] = of_x[ours]
    batch = [of_x[n] for n in x_batch]
    rest = [of_x[n] for n in range(len(of_x)) if n not in (*x_sums, *x_batch)]
    rest += [of_y[n] for n in range(len(of_y)) if n not in (*y_sums, *y_batch)]
    return np.einsum(f"{''.join(of_x)},{''.join(of_y)}->{''.join(batch + rest)}", x, y)


def reshape(x: Any, new_sizes: Any, dimensions: Any, **_: Any) -> Any:
    return np.reshape(x if dimensions is None else np.transpose(x, dimensions), new_sizes)


def div(x: Any, y: Any) -> Any:
    return x / y if np.asarray(x).dtype.kind in "fc" else np.fix(x / y)


def select_n(which: Any, *cases: Any) -> Any:
    if len(cases) == 2:
        return np.where(which, cases[1], cases[0])
    return np.choose(np.asarray(which, int), cases)


def along(fun: Callable) -> Callable:
    return lambda x, axes, **_: fun(x, axis=tuple(axes))


def cumulative(fun: Callable) -> Callable:
    def found(x: Any, axis: int, reverse: bool) -> Any:
        return np.flip(fun(np.flip(x, axis), axis), axis) if reverse else fun(x, axis)

    return found


def without_parameters(fun: Callable) -> Callable:
    return lambda *xs, **_: fun(*xs)


TABLE: dict[str, Callable] = {
    "broadcast_in_dim": broadcast_in_dim,
    "slice": slice_of,
    "pad": pad,
    "dot_general": dot_general,
    "select_n": select_n,
    "div": div,
    "integer_pow": lambda x, y: x**y if y >= 0 else 1.0 / x**-y,
    "pow": lambda x, y: np.power(x, y),
    "logistic": lambda x, **_: 1.0 / (1.0 + np.exp(-x)),
    "rsqrt": lambda x, **_: 1.0 / np.sqrt(x),
    "complex": lambda x, y: x + 1j * y,
    "reshape": reshape,
    "squeeze": lambda x, dimensions: np.squeeze(x, tuple(dimensions)),
    "expand_dims": lambda x, dimensions: np.expand_dims(x, tuple(dimensions)),
    "transpose": lambda x, permutation: np.transpose(x, permutation),
    "rev": lambda x, dimensions: np.flip(x, tuple(dimensions)),
    "concatenate": lambda *xs, dimension: np.concatenate(xs, dimension),
    "convert_element_type": lambda x, **_: x,
    "iota": lambda shape, dimension, **_: np.indices(shape)[dimension],
    "reduce_sum": along(np.sum),
    "reduce_prod": along(np.prod),
    "reduce_max": along(np.max),
    "reduce_min": along(np.min),
    "reduce_and": along(np.all),
    "reduce_or": along(np.any),
    "cumsum": cumulative(np.cumsum),
    "cumprod": cumulative(np.cumprod),
    "cummax": cumulative(np.maximum.accumulate),
}
for name in OF_NUMPY.split():
    theirs, _, numpys = name.partition("=")
    TABLE[theirs] = without_parameters(getattr(np, numpys or theirs))
INNER = {  # what holds another program -> the parameter that has it
    "jit": "jaxpr",
    "remat": "jaxpr",
    "closed_call": "call_jaxpr",
    "custom_jvp_call": "call_jaxpr",
    "custom_vjp_call": "call_jaxpr",
}


def program(fun: Callable, args: Sequence[Any]) -> Callable:
    """A function of JAX's for arrays like these, by NumPy; by JAX where values decide on shapes."""
    structures: list[Any] = []

    def leaves_of(*given: Any) -> list[Any]:
        leaves, structure = jax.tree.flatten(fun(*given))
        structures.append(structure)
        return leaves

    try:
        made = jax.make_jaxpr(leaves_of)(*args)
    except (jax.errors.JAXTypeError, jax.errors.JAXIndexError):
        return fun
    return lambda *given: jax.tree.unflatten(structures[0], run(made, given))


def run(closed: Any, args: Sequence[Any]) -> list[Any]:
    return evaluate(closed.jaxpr, closed.consts, args)


def evaluate(jaxpr: Any, consts: Sequence[Any], args: Sequence[Any]) -> list[Any]:
    """The outputs of a program of JAX's."""
    given = [*map(np.asarray, consts), *args]
    known = dict(zip([*jaxpr.constvars, *jaxpr.invars], given, strict=True))

    def read(var: Any) -> Any:
        return np.asarray(var.val, var.aval.dtype) if isinstance(var, Literal) else known[var]

    for equation in jaxpr.eqns:
        found = step(equation, [read(var) for var in equation.invars])
        known.update(zip(equation.outvars, found, strict=True))
    return [read(var) for var in jaxpr.outvars]


def step(equation: Any, args: list[Any]) -> list[Any]:
    """The outputs of one operation; by JAX if there is no other way."""
    name, params = equation.primitive.name, equation.params
    if name in INNER:
        inner = params[INNER[name]]
        return run(inner, args) if hasattr(inner, "consts") else evaluate(inner, (), args)
    if name in LOOPS:
        return LOOPS[name](*args, **params)
    if name in TABLE:
        try:
            return [np.asarray(TABLE[name](*args, **params)).astype(equation.outvars[0].aval.dtype)]
        except NotImplementedError:
            pass
    found = equation.primitive.bind(*args, **params)
    return list(map(np.asarray, found if equation.primitive.multiple_results else [found]))


def cond(index: Any, *args: Any, branches: Any, **_: Any) -> list[Any]:
    return run(branches[int(index)], args)


def while_loop(
    *args: Any, cond_jaxpr: Any, body_jaxpr: Any, cond_nconsts: int, body_nconsts: int
) -> list[Any]:
    """Of several loops at once, each goes on while it has to."""
    start = cond_nconsts + body_nconsts
    state = list(args[start:])
    while True:
        (goes_on,) = run(cond_jaxpr, [*args[:cond_nconsts], *state])
        if not np.any(goes_on):
            return state
        found = run(body_jaxpr, [*args[cond_nconsts:start], *state])
        pairs = list(zip(found, state, strict=True))
        wide = [goes_on.reshape(goes_on.shape + (1,) * (x.ndim - goes_on.ndim)) for x in found]
        state = [np.where(is_on, *pair) for is_on, pair in zip(wide, pairs, strict=True)]


def scan(
    *args: Any, jaxpr: Any, length: int, reverse: bool, num_consts: int, num_carry: int, **_: Any
) -> list[Any]:
    start = num_consts + num_carry
    state, rows = list(args[num_consts:start]), []
    for n in reversed(range(length)) if reverse else range(length):
        found = run(jaxpr, [*args[:num_consts], *state, *[x[n] for x in args[start:]]])
        state = found[:num_carry]
        rows.append(found[num_carry:])
    stacked = [np.stack(each[::-1] if reverse else each) for each in zip(*rows, strict=True)]
    return [*state, *stacked]


LOOPS = {"cond": cond, "while": while_loop, "scan": scan}
