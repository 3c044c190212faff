"""Contractions: the adjoints of einsum as products of matrices, two operands at a time.

autograd's adjoint is an einsum of all other operands and the cotangent, of which NumPy runs through
all subscripts at once. Here those that are cheapest together are multiplied first, by BLAS. This
holds for arrays of one real dtype; for everything else autograd's adjoint holds.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from daskgrad.backends.autograd.rules.declaration import is_real_like, namespace_of

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

    def __call__(self, *operands: Any) -> Any:
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
