"""Accumulation: the cotangents of one value, added in the order in which it was used."""

from collections.abc import Sequence

from daskgrad.models import finite
from daskgrad.models.determinism import require_same_input
from daskgrad.values import cotangents
from daskgrad.values.cotangents import Cotangent, Leaves, Seed, is_zero
from daskgrad.values.summation import Add, pairwise


def add_cotangents(
    terms: Sequence[Cotangent],
    saw_value: Sequence[bool],
    add: Add = cotangents.add,
    name: str = "",
) -> Cotangent:
    """The sum of the cotangents from the consumers of one value of the model ``name``.

    Consumers that worked on the value itself (``saw_value``) must have seen the same value.
    """
    pairs = zip(terms, saw_value, strict=True)
    seen = [term.seen for term, saw in pairs if saw and term.seen is not None]
    for other in seen[1:]:
        require_same_input(seen[0], other, name)
    seeds = [term for term in terms if isinstance(term, Seed)]
    like: Leaves = next((term.leaves for term in terms if not is_zero(term.leaves)), ())
    if seeds and not like:  # only seeds and symbolic zeros
        return Seed(sum([term.times for term in seeds]))
    leaves = [(s.as_like(like[0]),) if isinstance(s, Seed) else s.leaves for s in terms]
    total = pairwise(leaves, add)
    if finite.is_required():
        what = f"backward pass: the sum of {len(terms)} cotangents of one value"
        finite.require_sum(what, total)
    return Cotangent(total, seen[0] if seen else None)
