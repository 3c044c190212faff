"""Products of vectors and arrays.

autograd's adjoints of ``dot`` and ``matmul`` go through ``np.tensordot``, which on small arrays
takes several times as long as the arithmetic. Those here do the same arithmetic in the same order,
and so give the same bits. They hold for vectors and matrices of one real dtype; for everything
else, and for a cotangent that somebody differentiates, autograd's hold.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

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
)

# -------------------------------------------------------------------------------------------------
# Contractions: the adjoints of einsum as products of matrices, two operands at a time.
#
# autograd's adjoint is an einsum of all other operands and the cotangent, of which NumPy runs
# through all subscripts at once. Here those that are cheapest together are multiplied first, by
# BLAS. This holds for arrays of one real dtype; for everything else autograd's adjoint holds.

Shape = tuple[int, ...]
Axes = tuple[int, ...]


class Product(NamedTuple):
    """The sum over products of two operands: that of matrices, once both are permuted and
    reshaped; ``None`` for what changes nothing."""

    subscripts: str
    is_swapped: bool
    permuted: tuple[Axes | None, Axes | None]
    shapes: tuple[Shape | None, Shape | None]
    multiply: str
    shape: Shape | None
    order: Axes | None

    def __repr__(self) -> str:
        return self.subscripts

    def __call__(self, *operands):
        namespace = namespace_of(*operands)
        if self.multiply == "einsum":
            return namespace.einsum(self.subscripts, *operands)
        first, second = operands[::-1] if self.is_swapped else operands
        first = arranged(first, self.permuted[0], self.shapes[0])
        second = arranged(second, self.permuted[1], self.shapes[1])
        found = getattr(namespace, self.multiply)(first, second)
        if self.shape is not None:
            found = found.reshape(self.shape)
        return found if self.order is None else found.transpose(self.order)


def arranged(array: Any, axes: Axes | None, shape: Shape | None) -> Any:
    if axes is not None:
        array = array.transpose(axes)
    return array if shape is None else array.reshape(shape)


Plan = Sequence[tuple[Sequence[int], Product]]  # the places of operands, from the last on


def contract(plan: Plan, *operands: Any) -> Any:
    """What is left of operands; each product goes to their end."""
    rest = list(operands)
    for places, product in plan:
        rest.append(product(*[rest.pop(place) for place in places]))
    return rest[0]


def is_contraction(args: Sequence[Any], kwargs: dict) -> bool:
    """Whether arrays of one real dtype are summed over products, none of them over its own
    axes alone."""
    subscripts, *operands = args
    if kwargs or type(subscripts) is not str or "." in subscripts or len(operands) < 2:
        return False
    dtype = getattr(operands[0], "dtype", None)
    if dtype is None or not is_real_like(dtype, *operands):
        return False
    if 0 in [size for each in operands for size in each.shape]:
        return False
    terms, result = read(subscripts)
    others = [{*result, *"".join(terms[:n] + terms[n + 1 :])} for n in range(len(terms))]
    pairs = zip(terms, others, strict=True)
    return all([len(set(term)) == len(term) and set(term) <= other for term, other in pairs])


@lru_cache
def read(subscripts: str) -> tuple[tuple[str, ...], str]:
    """The subscripts of the operands, and of the result, which NumPy sorts if it is not named."""
    given, arrow, result = subscripts.replace(" ", "").partition("->")
    if not arrow:
        letters = given.replace(",", "")
        result = "".join(sorted([each for each in set(letters) if letters.count(each) == 1]))
    return tuple(given.split(",")), result


def plan_of(subscripts: str, number: int, *operands: np.ndarray) -> Plan:
    """The products that make the cotangent of one operand, of that of the result and of the other
    operands."""
    return plan_of_shapes(subscripts, number, *[operand.shape for operand in operands])


@lru_cache(1024)
def plan_of_shapes(subscripts: str, number: int, *shapes: Shape) -> Plan:
    terms, result = read(subscripts)
    sizes = dict(zip("".join(terms), [size for shape in shapes for size in shape], strict=True))
    rest = [result, *terms[:number], *terms[number + 1 :]]
    whole = f"{','.join(rest)}->{terms[number]}"
    stand_ins = [np.broadcast_to(0.0, [sizes[letter] for letter in term]) for term in rest]
    _, *path = np.einsum_path(whole, *stand_ins, optimize="greedy")[0]
    plan = []
    for places in path:
        places = sorted(places, reverse=True)
        given = [rest.pop(place) for place in places]
        later = {letter for term in [*rest, terms[number]] for letter in term}
        letters = dict.fromkeys("".join(given))
        found = "".join([letter for letter in letters if letter in later])
        rest.append(found if rest else terms[number])
        plan.append((tuple(places), product_of(given, rest[-1], sizes)))
    return tuple(plan)


def product_of(terms: Sequence[str], result: str, sizes: dict[str, int]) -> Product:
    subscripts = f"{','.join(terms)}->{result}"
    by_einsum = Product(subscripts, False, (None, None), (None, None), "einsum", None, None)
    if len(terms) != 2:
        return by_einsum
    first, second = map(set, terms)
    summed = [letter for letter in terms[0] if letter in second and letter not in result]
    if not summed or not first ^ second <= set(result):
        return by_einsum
    stack = [letter for letter in result if letter in first & second]
    alone = [[each for each in result if each in own] for own in (first - second, second - first)]
    is_swapped = [*stack, *alone[1], *alone[0]] == list(result)
    if is_swapped:
        terms, alone = terms[::-1], alone[::-1]

    def size(letters: Sequence[str]) -> int:
        return int(np.prod([sizes[letter] for letter in letters], dtype=int))

    def shape(*groups: Sequence[str]) -> Shape:
        return (*[sizes[letter] for letter in groups[0]], *map(size, groups[1:]))

    orders = [*stack, *alone[0], *summed], [*stack, *summed, *alone[1]]
    axes = [tuple(map(term.index, order)) for term, order in zip(terms, orders, strict=True)]
    found = [*stack, *alone[0], *alone[1]]
    last = tuple(map(found.index, result))
    return Product(
        subscripts,
        is_swapped,
        (unless_same(axes[0]), unless_same(axes[1])),
        (
            shape(stack, alone[0], summed) if len(alone[0]) != 1 or len(summed) != 1 else None,
            shape(stack, summed, alone[1]) if len(alone[1]) != 1 or len(summed) != 1 else None,
        ),
        "matmul" if stack else "dot",
        tuple([sizes[each] for each in found]) if any(len(x) != 1 for x in alone) else None,
        unless_same(last),
    )


def unless_same(axes: Axes) -> Axes | None:
    return None if axes == tuple(range(len(axes))) else axes


# ----------------------------------------------------------------------------- products of vectors

Meta = tuple[tuple[int, ...], int, np.dtype, bool]  # what anp.metadata returns


def product_rule(fun: Callable, *adjoints: Callable) -> Callable:
    """The rule of ``fun(A, B)`` from the adjoints with respect to ``A`` and to ``B``."""
    autograds = primitive_vjps[fun]

    def dot_rule(argnums, ans, args, kwargs):
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
        isinstance(a, np.ndarray)
        and isinstance(b, np.ndarray)
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
    def dot_first_pullback(g):
        if not is_plain(g):
            return dot_adjoint_0(b, g, a_meta, b_meta)
        if b.ndim == a_meta[1] == 1:
            product = g * b
        elif b.ndim == 1:
            product = np.dot(g.reshape(-1, 1), b.reshape(1, -1))
        else:
            product = np.dot(g.reshape(-1, b.shape[1]), b.T)
        product = product.reshape(a_meta[0])
        return product if product.dtype == a_meta[2] else product.astype(a_meta[2])

    return dot_first_pullback


def dot_second(a: np.ndarray, a_meta: Meta, b_meta: Meta) -> Callable:
    def dot_second_pullback(g):
        if not is_plain(g):
            return dot_adjoint_1(a, g, a_meta, b_meta)
        if a.ndim == b_meta[1] == 1:
            product = g * a
        elif a.ndim == 1:
            product = np.dot(g.reshape(-1, 1), a.reshape(1, -1))
        else:
            product = np.dot(g.reshape(a.shape[0], -1).T, a)
        product = product.T if b_meta[1] == 2 else product.reshape(b_meta[0])
        return product if product.dtype == b_meta[2] else product.astype(b_meta[2])

    return dot_second_pullback


def matmul_first(b: np.ndarray, a_meta: Meta, b_meta: Meta) -> Callable:
    def matmul_first_pullback(g):
        if not is_plain(g) or g.ndim == 0 or a_meta[1] == 1:
            return matmul_adjoint_0(b, g, a_meta, b_meta[1])
        if b.ndim == 1:  # BLAS's axpy, which np.matmul does not use: up to eight times as fast
            return np.dot(g.reshape(-1, 1), b.reshape(1, -1))
        return np.matmul(g, b.T)

    return matmul_first_pullback


def matmul_second(a: np.ndarray, a_meta: Meta, b_meta: Meta) -> Callable:
    def matmul_second_pullback(g):
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
def outer(a, b):
    """autograd does not flatten its arguments."""
    return anp.reshape(a, (-1, 1)) * anp.reshape(b, (1, -1))


def cross_needed(a: Any, b: Any, *args: Any, **kwargs: Any) -> bool:
    """autograd does not sum over broadcast axes."""
    return np.shape(plain(a)) != np.shape(plain(b))


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


def einsum_adjoint(argnums, ans, args, kwargs):
    autograds = primitive_vjps[anp.einsum](argnums, ans, args, kwargs)
    if not is_contraction(args, kwargs):
        return autograds
    subscripts, *operands = args

    def einsum_pullback(g):
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


# -------------------------------------------------------------------------------------------------
# Matrix adjoints: those of solutions, inverses, Cholesky factors and traces of one real matrix.
#
# autograd's go through ``np.einsum``, which on small matrices takes several times as long as the
# arithmetic, and is slow on large ones; that of ``solve`` solves once for each operand. Those here
# call BLAS. They hold for one real matrix; for everything else autograd's hold.


def pull_of_matrix(pulled, ans, dot=np.dot):
    """The cotangent of a matrix from that of what was solved for, and the solution."""
    if pulled.ndim == 1:
        return dot(-pulled.reshape(-1, 1), ans.reshape(1, -1))
    return -dot(pulled, ans.T)


def pull_inverse(g, ans, dot=np.dot):
    return -dot(dot(ans.T, g), ans.T)


def upper_solved(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    from scipy.linalg import solve_triangular  # where the first matrix is, as it takes a while

    return solve_triangular(a, b, check_finite=False)


def pull_cholesky(g, ans, solve=upper_solved, dot=np.dot):
    """I. Murray, "Differentiation of the Cholesky decomposition", 2016."""
    inner = lower_triangle(len(ans)) * dot(ans.T, g)
    outer = solve(ans.T, solve(ans.T, inner.T).T)
    return (outer + outer.T) * 0.5


@lru_cache
def lower_triangle(size: int) -> np.ndarray:
    """Ones below the diagonal, halves on it."""
    halves = np.tri(size) - 0.5 * np.eye(size)
    halves.flags.writeable = False
    return halves


def pull_trace(g: Any, shape: tuple[int, int]) -> Any:
    namespace = namespace_of(g)
    if namespace is not np:
        return namespace.where(np.eye(*shape, dtype=bool), g, np.zeros((), g.dtype))
    rows, columns = shape
    out = np.zeros(shape, g.dtype)
    out.reshape(-1)[: min(rows, columns) * columns : columns + 1] = g
    return out
