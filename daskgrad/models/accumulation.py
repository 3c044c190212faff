"""Accumulation: the cotangents of one value, in the order of its uses; values, along a tree."""

import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from daskgrad.models import finite
from daskgrad.models.determinism import SumWithFingerprints, fingerprint_of, require_same_input
from daskgrad.models.failures import term_at
from daskgrad.values import cotangents
from daskgrad.values.addition import ADDITIONS, StructureError, are_alike
from daskgrad.values.compensated import flatten_sum, rounded_value
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


class Nothing:
    """The value of a block without items, a singleton: adding it changes nothing."""

    def __reduce__(self) -> str:
        return "NOTHING"

    def __repr__(self) -> str:
        return "NOTHING"


NOTHING = Nothing()


@contextmanager
def named(name: str, values: Sequence[Any], places: Sequence[Any]) -> Iterator[None]:
    """Has errors of adding values name what is summed over, and the first odd term.

    ``places``: how the terms are called, if that is known.
    """
    try:
        yield
    except StructureError as error:
        where = "between terms of different tasks; compare the values of single terms"
        known = zip(places, values, strict=False)
        terms = [(place, rounded_value(value)) for place, value in known if value is not NOTHING]
        for (_, before), (place, value) in itertools.pairwise(terms):
            if not are_alike(before, value):
                where = f"where {term_at(place)} is not as the terms before it"
                break
        error.add_note(f"daskgrad: in the sum over {name!r}, {where}")
        raise


def sum_values(
    values: Sequence[Any],
    summation: str = "pairwise",
    is_last: bool = True,
    name: str = "sum",
    places: Sequence[Any] = (),
) -> Any:
    """The sum of values of one structure and shape; the last one is of all, and rounds it."""
    given, values = values, [value for value in values if value is not NOTHING]
    if not values:
        require_items(is_last, name)
        return NOTHING
    with named(name, given, places):
        total = pairwise(values, ADDITIONS[summation].values)
    if finite.is_required():
        finite.require_sum(f"sum over {name!r}: the value", flatten_sum(total)[0])
    return rounded_value(total) if is_last else total


def add_with_fingerprints(
    values: Sequence[Any],
    summation: str = "pairwise",
    is_last: bool = True,
    name: str = "sum",
    places: Sequence[Any] = (),
) -> SumWithFingerprints:
    """As ``sum_values``, with the fingerprints of all terms; a value may be such a sum itself."""
    sums = list(map(with_fingerprint, values))
    total = sum_values([each.value for each in sums], summation, is_last, name, places)
    return SumWithFingerprints(total, tuple([term for each in sums for term in each.terms]))


def with_fingerprint(value: Any) -> SumWithFingerprints:
    if isinstance(value, SumWithFingerprints):
        return value
    return SumWithFingerprints(value, (() if value is NOTHING else fingerprint_of(value),))


def require_items(is_last: bool, name: str) -> None:
    if is_last:
        raise ValueError(
            f"no partition of the items of model {name!r} holds an item, and an empty sum has no "
            f"shape; sum at least one"
        )
