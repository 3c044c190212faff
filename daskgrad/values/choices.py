"""Choices: arguments that are one of a few words."""

from collections.abc import Iterable
from typing import Any

from daskgrad.values.cotangents import describe


def require_choice(given: Any, choices: Iterable[str], argument: str) -> None:
    """Raises a ``ValueError`` that lists the words there are, where ``given`` is none of them."""
    words = list(choices)
    if not (isinstance(given, str) and given in words):
        told = ", ".join(map(repr, words))
        raise ValueError(f"{argument} is one of {told}; found {describe(given)}")
