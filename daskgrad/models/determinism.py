"""Determinism: values and pullbacks belong together, also where Dask has run a model again.

A forward task runs again when its worker died, and a pullback without its tape is traced again. A
model that is not deterministic then returns another value, while the first one may have been used
elsewhere: no gradient belongs to both. Fingerprints tell.
"""

from typing import Any

from daskgrad.models.model import Model
from daskgrad.values.carriers import carrier
from daskgrad.values.compensated import rounded_value
from daskgrad.values.cotangents import Cotangent, nbytes
from daskgrad.values.fingerprints import Fingerprint, agree, fingerprint
from daskgrad.values.trees import flatten


class NondeterministicModelError(RuntimeError):
    """A model returned another value when it was run again: no gradient belongs to both."""


def fingerprint_of(value: Any) -> Fingerprint:
    """The fingerprint of a value, or of what a sum will be when it is rounded."""
    return fingerprint(flatten(rounded_value(value))[0])


def require_value_seen(
    captured: Any, cotangent: Cotangent, value_elsewhere: Any, model: Model
) -> None:
    """Value and pullback still belong together: Dask may have run the forward task again.

    ``value_elsewhere`` is the value as others have it; or what sums have seen of it
    (``SeenInSums``); or None, and then the cotangent has its fingerprint.
    """
    if value_elsewhere is None:
        if cotangent.seen is not None:
            require_same_value(captured, cotangent.seen, model)
    elif is_seen_in_sums(value_elsewhere):
        for other in fingerprints_in(cotangent, value_elsewhere):
            require_same_value(captured, other, model)
    elif value_elsewhere is not captured.value:
        require_same_value(captured, fingerprint_of(value_elsewhere), model)


def require_same_value(captured: Any, other: Fingerprint, model: Model) -> None:
    require_agreement(captured.fingerprint, other, f"model {model.name!r}")


def require_agreement(first: Fingerprint, second: Fingerprint, what: str) -> None:
    if not agree(first, second):
        raise NondeterministicModelError(
            f"{what} returned another value when it was run again, so no gradient belongs to both; "
            f"draw random numbers from a generator with a seed that is an argument"
        )


def require_same_input(first: Fingerprint, second: Fingerprint, name: str) -> None:
    """The consumers of one value, whose cotangents are added, have seen the same value."""
    if not agree(first, second):
        raise NondeterministicModelError(
            f"two consumers of the value of model {name!r} saw different values: it was run twice, "
            f"and returned another value; draw random numbers from a generator with a seed that is "
            f"an argument"
        )


# ------------------------------------------------------------------------- what sums have seen


@carrier
class SumWithFingerprints:
    """A sum, and the fingerprints of the values that were added up."""

    value: Any
    terms: tuple[Fingerprint, ...]

    def __sizeof__(self) -> int:
        return object.__sizeof__(self) + nbytes(flatten(self.value)[0])


@carrier
class Fingerprints:
    """The fingerprints of the values that a sum has seen, in their order."""

    terms: tuple[Fingerprint, ...]


# whether the cotangent has a fingerprint, too, and pairs: Fingerprints, and which of them
SeenInSums = list[Any]


def is_seen_in_sums(value_elsewhere: Any) -> bool:
    is_list = type(value_elsewhere) is list and len(value_elsewhere) > 1
    return is_list and type(value_elsewhere[1]) is Fingerprints


def fingerprints_in(cotangent: Cotangent, in_sums: SeenInSums) -> list[Fingerprint]:
    """What consumers of a value, sums among them, have seen of it."""
    saw_value, *pairs = in_sums
    seen = [cotangent.seen] if saw_value and cotangent.seen is not None else []
    return [*seen, *[of.terms[place] for of, place in zip(pairs[::2], pairs[1::2], strict=True)]]


def fingerprints_of(
    added: SumWithFingerprints, cotangent: Cotangent, in_sums: SeenInSums, names: str
) -> Fingerprints:
    """What a sum has seen of its terms; the consumers of the sum must have seen this one.

    ``names`` are those of the models of its terms.
    """
    own = fingerprint_of(added.value)
    for other in fingerprints_in(cotangent, in_sums):
        require_agreement(own, other, f"one of the models whose values were added up ({names})")
    return Fingerprints(added.terms)
