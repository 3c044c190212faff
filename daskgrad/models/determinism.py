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


def print_of(value: Any) -> Fingerprint:
    """The fingerprint of a value, or of what a sum will be when it is rounded."""
    return fingerprint(flatten(rounded_value(value))[0])


def require_value_seen(captured: Any, cotangent: Cotangent, witness: Any, model: Model) -> None:
    """Value and pullback still belong together: Dask may have run the forward task again.

    ``witness`` is the value as others have it; or what sums have seen of it (``SeenInSums``); or
    None, and then the cotangent has its fingerprint.
    """
    if witness is None:
        if cotangent.seen is not None:
            require_same_value(captured, cotangent.seen, model)
    elif is_seen_in_sums(witness):
        for other in prints_in(cotangent, witness):
            require_same_value(captured, other, model)
    elif witness is not captured.value:
        require_same_value(captured, print_of(witness), model)


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
class Added:
    """A sum, and the fingerprints of the values that were added up."""

    value: Any
    prints: tuple[Fingerprint, ...]

    def __repr__(self) -> str:
        return f"Added({len(self.prints)} values)"

    def __sizeof__(self) -> int:
        return object.__sizeof__(self) + nbytes(flatten(self.value)[0])


@carrier
class Prints:
    """The fingerprints of the values that a sum has seen, in their order."""

    prints: tuple[Fingerprint, ...]


SeenInSums = list[Any]  # whether the cotangent has a print, too, and pairs: Prints, which of them


def is_seen_in_sums(witness: Any) -> bool:
    return type(witness) is list and len(witness) > 1 and type(witness[1]) is Prints


def prints_in(cotangent: Cotangent, witness: SeenInSums) -> list[Fingerprint]:
    """What consumers of a value, sums among them, have seen of it."""
    saw_value, *pairs = witness
    seen = [cotangent.seen] if saw_value and cotangent.seen is not None else []
    return [*seen, *[p.prints[place] for p, place in zip(pairs[::2], pairs[1::2], strict=True)]]


def prints_of(added: Added, cotangent: Cotangent, witness: SeenInSums, names: str) -> Prints:
    """What a sum has seen of its terms; the consumers of the sum must have seen this one.

    ``names`` are those of the models of its terms.
    """
    own = print_of(added.value)
    for other in prints_in(cotangent, witness):
        require_agreement(own, other, f"one of the models whose values were added up ({names})")
    return Prints(added.prints)
