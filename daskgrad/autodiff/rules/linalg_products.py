"""Products of vectors and arrays.

autograd's adjoints of ``dot`` and ``matmul`` go through ``np.tensordot``, which on small arrays
takes several times as long as the arithmetic. Those here do the same arithmetic in the same order,
and so give the same bits. They hold for vectors and matrices of one real dtype; for everything
else, and for a cotangent that somebody differentiates, autograd's hold.
"""

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import autograd.numpy as anp
import numpy as np
from autograd.core import primitive_jvps, primitive_vjps
from autograd.numpy.numpy_vjps import (
    dot_adjoint_0,
    dot_adjoint_1,
    matmul_adjoint_0,
    matmul_adjoint_1,
)

from daskgrad.autodiff.rules.declaration import (
    declare,
    equivalent,
    is_plain,
    is_real_like,
    namespace_of,
    plain,
    quick,
    shape_of,
)

# -------------------------------------------------------------------------------------------------
# Contractions: the adjoints of einsum as products of matrices, two operands at a time.
#
# autograd's adjoint is one einsum of the cotangent and all other operands, in which NumPy runs
# through all subscripts at once. Here the operands that are cheapest together are multiplied first,
# by BLAS. This holds for arrays of one real dtype; for everything else autograd's adjoint holds.

Shape = tuple[int, ...]
Plan = Sequence[tuple[Sequence[int], Callable]]  # products, and the places of their operands


def contract(plan: Plan, *operands: Any) -> Any:
    """The last product of a plan; each product goes to the end of the operands."""
    remaining = list(operands)
    for places, product in plan:
        remaining.append(product(*[remaining.pop(place) for place in places]))
    return remaining[0]


def is_contraction(ans: Any, args: Sequence[Any], kwargs: dict) -> bool:
    """Whether arrays of one real dtype are summed over products, none of them over its own
    axes alone."""
    subscripts, *operands = args
    if kwargs or type(subscripts) is not str or "." in subscripts or len(operands) < 2:
        return False
    dtype = getattr(operands[0], "dtype", None)
    if dtype is None or not is_real_like(dtype, *operands):
        return False
    if 0 in [size for operand in operands for size in operand.shape]:
        return False
    terms, result = read(subscripts)
    others = [{*result, *"".join(terms[:n] + terms[n + 1 :])} for n in range(len(terms))]
    pairs = zip(terms, others, strict=True)
    return all([len(set(term)) == len(term) and set(term) <= other for term, other in pairs])


@lru_cache
def read(subscripts: str) -> tuple[tuple[str, ...], str]:
    """The subscripts of the operands, and of the result, which NumPy sorts if it is not named."""
    terms, arrow, result = subscripts.replace(" ", "").partition("->")
    if not arrow:
        letters = terms.replace(",", "")
        result = "".join(sorted([letter for letter in set(letters) if letters.count(letter) == 1]))
    return tuple(terms.split(",")), result


@lru_cache(1024)
def plan_of(subscripts: str, number: int, *shapes: Shape) -> Plan:
    """The products of the result's cotangent and the other operands, of these shapes, that make
    the cotangent of one operand."""
    terms, result = read(subscripts)
    sizes = dict(zip("".join(terms), [size for shape in shapes for size in shape], strict=True))
    remaining = [result, *terms[:number], *terms[number + 1 :]]
    whole = f"{','.join(remaining)}->{terms[number]}"
    stand_ins = [np.broadcast_to(0.0, [sizes[letter] for letter in term]) for term in remaining]
    _, *path = np.einsum_path(whole, *stand_ins, optimize="greedy")[0]
    plan = []
    for places in path:
        places = sorted(places, reverse=True)
        factors = [remaining.pop(place) for place in places]
        later = {letter for term in [*remaining, terms[number]] for letter in term}
        letters = [letter for letter in dict.fromkeys("".join(factors)) if letter in later]
        remaining.append("".join(letters) if remaining else terms[number])
        plan.append((tuple(places), product_of(factors, remaining[-1], sizes)))
    return tuple(plan)


def product_of(terms: Sequence[str], result: str, sizes: dict[str, int]) -> Callable:
    """The sum over products of two operands as a product of matrices, if it is one."""
    subscripts = f"{','.join(terms)}->{result}"

    def by_einsum(*operands: Any) -> Any:
        return namespace_of(*operands).einsum(subscripts, *operands)

    if len(terms) != 2:
        return by_einsum
    first, second = map(set, terms)
    summed = [letter for letter in terms[0] if letter in second and letter not in result]
    if not summed or not first ^ second <= set(result):
        return by_einsum
    stack = [letter for letter in result if letter in first & second]
    rows, columns = (
        [x for x in result if x in names] for names in (first - second, second - first)
    )
    is_swapped = [*stack, *columns, *rows] == list(result)
    if is_swapped:
        terms, rows, columns = terms[::-1], columns, rows
    orders = [*stack, *rows, *summed], [*stack, *summed, *columns]
    axes = [tuple(map(term.index, order)) for term, order in zip(terms, orders, strict=True)]
    stacked = [sizes[letter] for letter in stack]
    height, inner, width = (
        math.prod([sizes[letter] for letter in letters]) for letters in (rows, summed, columns)
    )
    shapes = (*stacked, height, inner), (*stacked, inner, width)
    letters = [*stack, *rows, *columns]
    shape, last = tuple([sizes[x] for x in letters]), tuple(map(letters.index, result))

    def by_matrices(*operands: Any) -> Any:
        namespace = namespace_of(*operands)
        ordered = operands[::-1] if is_swapped else operands
        factors = [arranged(*parts) for parts in zip(ordered, axes, shapes, strict=True)]
        product = (namespace.matmul if stack else namespace.dot)(*factors)
        return turned(product if product.shape == shape else product.reshape(shape), last)

    return by_matrices


def arranged(array: Any, axes: tuple[int, ...], shape: Shape) -> Any:
    array = turned(array, axes)
    return array if array.shape == shape else array.reshape(shape)


def turned(array: Any, axes: tuple[int, ...]) -> Any:
    return array if axes == IN_ORDER[: len(axes)] else array.transpose(axes)


IN_ORDER = tuple(range(64))  # NumPy has no more axes


# ----------------------------------------------------------------------------- products of vectors


def product_rule(fun: Callable, by_first: Callable, by_second: Callable) -> Callable:
    """The rule of ``fun(A, B)`` from pullbacks ``(g, other operand, A's and B's metadata)``."""
    autograds = primitive_vjps[fun]

    def dot_rule(argnums, ans, args, kwargs):
        if len(args) != 2 or kwargs or not is_simple(*args):
            if len({anp.iscomplexobj(arg) for arg in args}) > 1:  # one is real, and one complex
                args = tuple([arg + 0j for arg in args])  # or autograd, right as it is, would warn
            return autograds(argnums, ans, args, kwargs)
        metas = [(arg.shape, arg.ndim, arg.dtype, False) for arg in args]  # as anp.metadata
        rules = (by_first, args[1]), (by_second, args[0])
        chosen = [rules[argnum] for argnum in argnums]
        return lambda g: tuple([pull(g, other, *metas) for pull, other in chosen])

    return dot_rule


def is_simple(a: Any, b: Any) -> bool:
    """Whether both are vectors or matrices of one real dtype, or one of them of integers, beside
    which in double precision a product makes no other copies than its adjoint."""
    for operand in (a, b):
        if not (isinstance(operand, np.ndarray) and 1 <= operand.ndim <= 2 and operand.size):
            return False
    if a.dtype == b.dtype:
        return a.dtype.kind == "f"
    return {a.dtype.kind, b.dtype.kind} <= {*"fiub"} and np.float64 in (a.dtype, b.dtype)


def dot_by_first(g, b, a_meta, b_meta):
    if not is_plain(g):
        return dot_adjoint_0(b, g, a_meta, b_meta)
    shape, ndim, dtype, _ = a_meta
    if b.ndim == ndim == 1:
        product = g * b
    elif b.ndim == 1:
        product = np.dot(g.reshape(-1, 1), b.reshape(1, -1))
    else:
        product = np.dot(g.reshape(-1, b.shape[1]), b.T)
    product = product.reshape(shape)
    return product if product.dtype == dtype else product.astype(dtype)


def dot_by_second(g, a, a_meta, b_meta):
    if not is_plain(g):
        return dot_adjoint_1(a, g, a_meta, b_meta)
    shape, ndim, dtype, _ = b_meta
    if a.ndim == ndim == 1:
        product = g * a
    elif a.ndim == 1:
        product = np.dot(g.reshape(-1, 1), a.reshape(1, -1))
    else:
        product = np.dot(g.reshape(a.shape[0], -1).T, a)
    product = product.T if ndim == 2 else product.reshape(shape)
    return product if product.dtype == dtype else product.astype(dtype)


def matmul_by_first(g, b, a_meta, b_meta):
    if not is_plain(g) or g.ndim == 0 or a_meta[1] == 1:
        return matmul_adjoint_0(b, g, a_meta, b_meta[1])
    if b.ndim == 1:  # BLAS's axpy, which np.matmul does not use: up to eight times as fast
        return np.dot(g.reshape(-1, 1), b.reshape(1, -1))
    return np.matmul(g, b.T)


def matmul_by_second(g, a, a_meta, b_meta):
    if not is_plain(g) or g.ndim == 0 or a.ndim == 1:
        return matmul_adjoint_1(a, g, a_meta[1], b_meta)
    if b_meta[1] == 1:
        return np.matmul(a.T, g.reshape(-1, 1)).reshape(-1)
    return np.matmul(a.T, g)


for fun, pullbacks in (
    (anp.dot, (dot_by_first, dot_by_second)),
    (anp.matmul, (matmul_by_first, matmul_by_second)),
):
    declare(fun, adjoint=product_rule(fun, *pullbacks), tangent=primitive_jvps[fun])
declare(anp.tensordot, keywords="axes")

# ------------------------------------------------------------------------- outer and cross


@equivalent(
    anp.outer, needed=lambda a, b: np.ndim(plain(a)) != 1 or np.ndim(plain(b)) != 1, arrays=2
)
def outer(a, b):
    """autograd does not flatten its arguments."""
    return anp.reshape(a, (-1, 1)) * anp.reshape(b, (1, -1))


def kron_needed(a, b):
    """autograd's adjoint interleaves the axes of matrices alone."""
    return np.ndim(plain(a)) > 2 or np.ndim(plain(b)) > 2


@equivalent(anp.kron, needed=kron_needed, arrays=2)
def kron(a, b):
    ndim = max(len(shape_of(a)), len(shape_of(b)))
    a, b = (
        anp.reshape(factor, (1,) * (ndim - len(shape_of(factor))) + shape_of(factor))
        for factor in (a, b)
    )
    outer, inner = tuple(range(0, 2 * ndim, 2)), tuple(range(1, 2 * ndim, 2))
    return anp.reshape(
        anp.expand_dims(a, inner) * anp.expand_dims(b, outer),
        np.multiply(shape_of(a), shape_of(b)),
    )


def cross_needed(a, b, *args, **kwargs):
    """autograd does not sum over broadcast axes."""
    return shape_of(a) != shape_of(b)


@equivalent(anp.cross, needed=cross_needed, arrays=2, keywords="axisa axisb axisc axis")
def cross(a, b, axisa=-1, axisb=-1, axisc=-1, axis=None):
    if axis is not None:
        axisa = axisb = axisc = axis
    x = anp.moveaxis(a, axisa, 0)
    y = anp.moveaxis(b, axisb, 0)
    parts = [x[i] * y[j] - x[j] * y[i] for i, j in ((1, 2), (2, 0), (0, 1))]
    return anp.moveaxis(anp.array(parts), 0, axisc)


@equivalent(anp.vdot, arrays=2)
def vdot(a, b):
    return anp.dot(anp.conj(anp.ravel(a)), anp.ravel(b))


# ------------------------------------------------------------------------------ einsum


def einsum_needed(*operands, **kwargs):
    """Whether the subscripts are lists, or one operand has an index twice, or an axis of length one
    stands for a longer one: its cotangent would have that length."""
    if not isinstance(operands[0], str):
        return True
    terms = operands[0].replace(" ", "").split("->")[0].replace("...", "").split(",")
    if any(len(set(term)) < len(term) for term in terms):
        return True
    return any(1 in shape_of(array) for array in operands[1:]) and bool(stretched(*operands))


def stretched(*operands: Any) -> set[str]:
    """The subscripts of axes that have length one in one operand, and another one in another."""
    terms, _, arrays = read_subscripts(operands)
    shapes = [shape_of(array) for array in arrays]
    sizes = [*zip("".join(terms), [size for shape in shapes for size in shape], strict=True)]
    return {letter for letter, size in sizes if size == 1} & {
        letter for letter, size in sizes if size != 1
    }


def contraction_pullback(argnums, ans, subscripts, *operands):
    def pull(g):
        cotangents = []
        for argnum in argnums:
            others = [operand for n, operand in enumerate(operands, 1) if n != argnum]
            plan = plan_of(subscripts, argnum - 1, *[operand.shape for operand in operands])
            cotangents.append(contract(plan, g, *others))
        return tuple(cotangents)

    return pull


@equivalent(
    anp.einsum,
    adjoint=quick(anp.einsum, is_contraction, contraction_pullback),
    tangent=primitive_jvps[anp.einsum],
    needed=einsum_needed,
    arrays=10**9,
    keywords="optimize",
)
def einsum(*operands, **kwargs):
    """With subscripts as letters, diagonals taken beforehand, and no axis that is stretched."""
    terms, result, arrays = read_subscripts(operands)
    letters = stretched(*operands)
    pairs = [take_diagonals(term, array) for term, array in zip(terms, arrays, strict=True)]
    pairs = [drop_stretched(term, array, letters) for term, array in pairs]
    names = ",".join([term for term, _ in pairs])
    return anp.einsum(f"{names}->{result}", *[array for _, array in pairs], **kwargs)


def read_subscripts(operands: tuple) -> tuple[list[str], str, list[Any]]:
    """Subscripts as letters, as NumPy reads them, ellipses included; and the arrays."""
    terms, result, _ = anp.parse_einsum_input(*map(plain, operands))
    if isinstance(operands[0], str):
        arrays = list(operands[1:])
    else:
        arrays = list(operands[: 2 * (len(operands) // 2) : 2])
    return terms.split(","), result, arrays


def drop_stretched(term: str, array: Any, letters: set[str]) -> tuple[str, Any]:
    """An operand without its axes of length one with these subscripts."""
    shape = shape_of(array)
    axes = [axis for axis, letter in enumerate(term) if letter in letters and shape[axis] == 1]
    kept = "".join([letter for axis, letter in enumerate(term) if axis not in axes])
    return kept, anp.squeeze(array, tuple(axes)) if axes else array


def take_diagonals(term: str, array: Any) -> tuple[str, Any]:
    """An operand's diagonals over the indices that it has twice, and its remaining subscripts."""
    for letter in set(term):
        while term.count(letter) > 1:
            first = term.index(letter)
            second = term.index(letter, first + 1)
            array = anp.diagonal(array, 0, first, second)
            term = term[:first] + term[first + 1 : second] + term[second + 1 :] + letter
    return term, array
