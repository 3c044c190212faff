"""Products of vectors and arrays.

autograd's adjoints of ``dot`` and ``matmul`` go through ``np.tensordot``, which on small arrays
takes several times as long as the arithmetic. Those here do the same arithmetic in the same order,
and so give the same bits. They hold for vectors and matrices of one real dtype; for everything
else, and for a cotangent that somebody differentiates, autograd's hold.
"""

from collections.abc import Callable
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

from daskgrad.backends.autograd.rules.contractions import contract, is_contraction, plan_of
from daskgrad.backends.autograd.rules.declaration import (
    declare,
    equivalent,
    is_plain,
    is_real_like,
    plain,
)

Meta = tuple[tuple[int, ...], int, np.dtype, bool]  # what anp.metadata returns


def product_rule(fun: Callable, *adjoints: Callable) -> Callable:
    """The rule of ``fun(A, B)`` from the adjoints with respect to ``A`` and to ``B``."""
    autograds = primitive_vjps[fun]

    def dot_rule(argnums: tuple, ans: Any, args: tuple, kwargs: dict) -> Callable[[Any], tuple]:
        if len(args) != 2 or kwargs or not is_simple(*args):
            if len({anp.iscomplexobj(arg) for arg in args}) > 1:  # one is real, and one complex
                args = tuple([arg + 0j for arg in args])  # or autograd, right as it is, would warn
            return autograds(argnums, ans, args, kwargs)
        metas = [(arg.shape, arg.ndim, arg.dtype, False) for arg in args]
        return together(*[adjoints[argnum](args[1 - argnum], *metas) for argnum in argnums])

    return dot_rule


def is_simple(a: Any, b: Any) -> bool:
    """Whether both are vectors or matrices of one real dtype, or one of them of integers."""
    return (
        type(a) is np.ndarray
        and type(b) is np.ndarray
        and are_simple_dtypes(a.dtype, b.dtype)
        and 1 <= a.ndim <= 2
        and 1 <= b.ndim <= 2
        and a.size > 0
        and b.size > 0
    )


def are_simple_dtypes(a: np.dtype, b: np.dtype) -> bool:
    """Of integers beside double precision a product makes no other copy than its adjoint does."""
    if a == b:
        return a.kind == "f"
    return {a.kind, b.kind} <= {"f", "i", "u", "b"} and np.float64 in (a, b)


def together(first: Callable, second: Callable | None = None) -> Callable[[Any], tuple]:
    """The pullback of a product from those with respect to one operand, or to both."""
    if second is None:
        return lambda g: (first(g),)
    return lambda g: (first(g), second(g))


def dot_first(b: np.ndarray, a_meta: Meta, b_meta: Meta) -> Callable:
    def dot_first_pullback(g: Any) -> Any:
        if not is_plain(g):
            return dot_adjoint_0(b, g, a_meta, b_meta)
        if b.ndim == 1:
            product = np.dot(g.reshape(-1, 1), b.reshape(1, -1))
        else:
            product = np.dot(g.reshape(-1, b.shape[1]), b.T)
        return np.asarray(product.reshape(a_meta[0]), dtype=a_meta[2])

    return dot_first_pullback


def dot_second(a: np.ndarray, a_meta: Meta, b_meta: Meta) -> Callable:
    def dot_second_pullback(g: Any) -> Any:
        if not is_plain(g):
            return dot_adjoint_1(a, g, a_meta, b_meta)
        if a.ndim == 1:
            product = np.dot(g.reshape(-1, 1), a.reshape(1, -1))
        else:
            product = np.dot(g.reshape(a.shape[0], -1).T, a)
        product = product.T if b_meta[1] == 2 else product.reshape(b_meta[0])
        return np.asarray(product, dtype=b_meta[2])

    return dot_second_pullback


def matmul_first(b: np.ndarray, a_meta: Meta, b_meta: Meta) -> Callable:
    def matmul_first_pullback(g: Any) -> Any:
        if not is_plain(g) or g.ndim == 0 or a_meta[1] == 1:
            return matmul_adjoint_0(b, g, a_meta, b_meta[1])
        if b.ndim == 1:  # BLAS's axpy, which np.matmul does not use: up to eight times as fast
            return np.dot(g.reshape(-1, 1), b.reshape(1, -1))
        return np.matmul(g, b.T)

    return matmul_first_pullback


def matmul_second(a: np.ndarray, a_meta: Meta, b_meta: Meta) -> Callable:
    def matmul_second_pullback(g: Any) -> Any:
        if not is_plain(g) or g.ndim == 0 or a.ndim == 1:
            return matmul_adjoint_1(a, g, a_meta[1], b_meta)
        if b_meta[1] == 1:
            return np.matmul(a.T, g.reshape(-1, 1)).reshape(-1)
        return np.matmul(a.T, g)

    return matmul_second_pullback


for fun, adjoints in (
    (anp.dot, (dot_first, dot_second)),
    (anp.matmul, (matmul_first, matmul_second)),
):
    declare(fun, adjoint=product_rule(fun, *adjoints), tangent=primitive_jvps[fun])
declare(anp.tensordot, keywords="axes")

# ------------------------------------------------------------------------- outer and cross


@equivalent(
    anp.outer, needed=lambda a, b: np.ndim(plain(a)) != 1 or np.ndim(plain(b)) != 1, arrays=2
)
def outer(a: Any, b: Any) -> Any:
    """autograd does not flatten its arguments."""
    return anp.reshape(a, (-1, 1)) * anp.reshape(b, (1, -1))


def cross_needed(a: Any, b: Any, *args: Any, **kwargs: Any) -> bool:
    """autograd does not sum over broadcast axes."""
    return np.shape(plain(a)) != np.shape(plain(b))


@equivalent(anp.cross, needed=cross_needed, arrays=2, keywords="axisa axisb axisc axis")
def cross(
    a: Any, b: Any, axisa: int = -1, axisb: int = -1, axisc: int = -1, axis: Any = None
) -> Any:
    if axis is not None:
        axisa = axisb = axisc = axis
    x = anp.moveaxis(a, axisa, 0)
    y = anp.moveaxis(b, axisb, 0)
    parts = [x[i] * y[j] - x[j] * y[i] for i, j in ((1, 2), (2, 0), (0, 1))]
    return anp.moveaxis(anp.array(parts), 0, axisc)


@equivalent(anp.vdot, arrays=2)
def vdot(a: Any, b: Any) -> Any:
    return anp.dot(anp.conj(anp.ravel(a)), anp.ravel(b))


# ------------------------------------------------------------------------------ einsum


def einsum_needed(*operands: Any, **kwargs: Any) -> bool:
    """Whether the subscripts are lists, or one operand has an index twice, or an axis of length one
    stands for a longer one: its cotangent would have that length."""
    if not isinstance(operands[0], str):
        return True
    terms = operands[0].replace(" ", "").split("->")[0].replace("...", "").split(",")
    if any(len(set(term)) < len(term) for term in terms):
        return True
    return any(1 in np.shape(plain(each)) for each in operands[1:]) and bool(stretched(*operands))


def stretched(*operands: Any) -> set[str]:
    """The subscripts of axes that have length one in one operand, and another one in another."""
    terms, _, arrays = read_subscripts(operands)
    shapes = [np.shape(plain(array)) for array in arrays]
    sizes = [*zip("".join(terms), [size for shape in shapes for size in shape], strict=True)]
    return {letter for letter, size in sizes if size == 1} & {
        letter for letter, size in sizes if size != 1
    }


def einsum_adjoint(argnums: tuple, ans: Any, args: tuple, kwargs: dict) -> Callable[[Any], tuple]:
    autograds = primitive_vjps[anp.einsum](argnums, ans, args, kwargs)
    if not is_contraction(args, kwargs):
        return autograds
    subscripts, *operands = args

    def einsum_pullback(g: Any) -> tuple:
        if not is_real_like(operands[0].dtype, g):
            return autograds(g)
        found = []
        for argnum in argnums:
            others = [each for n, each in enumerate(operands, 1) if n != argnum]
            found.append(contract(plan_of(subscripts, argnum - 1, *operands), g, *others))
        return tuple(found)

    return einsum_pullback


@equivalent(
    anp.einsum,
    adjoint=einsum_adjoint,
    tangent=primitive_jvps[anp.einsum],
    needed=einsum_needed,
    arrays=10**9,
    keywords="optimize",
)
def einsum(*operands: Any, **kwargs: Any) -> Any:
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
    shape = np.shape(plain(array))
    axes = [axis for axis, letter in enumerate(term) if letter in letters and shape[axis] == 1]
    rest = "".join([letter for axis, letter in enumerate(term) if axis not in axes])
    return rest, anp.squeeze(array, tuple(axes)) if axes else array


def take_diagonals(term: str, array: Any) -> tuple[str, Any]:
    """An operand's diagonals over the indices that it has twice, and its remaining subscripts."""
    for letter in set(term):
        while term.count(letter) > 1:
            first = term.index(letter)
            second = term.index(letter, first + 1)
            array = anp.diagonal(array, 0, first, second)
            term = term[:first] + term[first + 1 : second] + term[second + 1 :] + letter
    return term, array
