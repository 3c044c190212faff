"""Determinism: checks that a value and its pullback belong together if a model ran again.

A forward task runs again after its worker died, and a pullback without its tape is traced again. A
model that is not deterministic then returns another value, while other tasks may have used the
first one: no gradient belongs to both. Fingerprints find this.
"""

from typing import Any

from daskgrad.autodiff.models.model import Model
from daskgrad.autodiff.values.addition import rounded_value
from daskgrad.autodiff.values.carriers import carrier
from daskgrad.autodiff.values.cotangents import Cotangent
from daskgrad.autodiff.values.descriptions import NondeterministicModelError
from daskgrad.autodiff.values.fingerprints import Fingerprint, agree, fingerprint
from daskgrad.autodiff.values.trees import flatten


def fingerprint_of(value: Any) -> Fingerprint:
    """The fingerprint of a value; of an unrounded sum, as it will be once it is rounded."""
    return fingerprint(flatten(rounded_value(value))[0])


def require_value_seen(
    captured: Any, cotangent: Cotangent, value_elsewhere: Any, model: Model
) -> None:
    """Checks that value and pullback belong together, since the forward task may have run again.

    ``value_elsewhere`` is the value that others used, or its fingerprints that sums have seen
    (``SeenInSums``), or None if the cotangent has the fingerprint.
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


RAN_AGAIN = "run again on the same arguments, it returned a different value"
RAN_TWICE = "it was run twice, and two consumers of its value saw different values"


def require_agreement(
    first: Fingerprint, second: Fingerprint, subject: str, evidence: str = RAN_AGAIN
) -> None:
    if not agree(first, second):
        raise NondeterministicModelError(
            f"{subject} is not deterministic: {evidence}; pass it a generator "
            f"(dg.random.generators) instead of drawing from global state"
        )


def require_same_input(first: Fingerprint, second: Fingerprint, name: str) -> None:
    """Checks that consumers of a value saw the same one, before their cotangents are added."""
    require_agreement(first, second, f"model {name!r}", RAN_TWICE)


@carrier
class SumWithFingerprints:
    """A sum, and the fingerprints of its terms."""

    value: Any
    terms: tuple[Fingerprint, ...]


@carrier
class Fingerprints:
    """The fingerprints of the terms of a sum, in order."""

    terms: tuple[Fingerprint, ...]


# One flat list: whether the cotangent has a fingerprint, too; then, in turn, Fingerprints and the
# number of a term in them.
SeenInSums = list[Any]


def is_seen_in_sums(value_elsewhere: Any) -> bool:
    is_list = type(value_elsewhere) is list and len(value_elsewhere) > 1
    return is_list and type(value_elsewhere[1]) is Fingerprints


def fingerprints_in(cotangent: Cotangent, in_sums: SeenInSums) -> list[Fingerprint]:
    """The fingerprints of a value that its consumers, sums included, have seen."""
    saw_value, *pairs = in_sums
    prints = [cotangent.seen] if saw_value and cotangent.seen is not None else []
    terms = zip(pairs[::2], pairs[1::2], strict=True)
    return prints + [in_sum.terms[number] for in_sum, number in terms]


def fingerprints_of(
    total: SumWithFingerprints, cotangent: Cotangent, in_sums: SeenInSums, names: str
) -> Fingerprints:
    """The fingerprints of a sum's terms; checks that the sum's consumers saw this sum.

    ``names``: the models of the terms, for the error.
    """
    expected = fingerprint_of(total.value)
    subject = f"one of the models whose values were added up ({names})"
    for other in fingerprints_in(cotangent, in_sums):
        require_agreement(expected, other, subject)
    return Fingerprints(total.terms)
