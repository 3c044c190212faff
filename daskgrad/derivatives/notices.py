"""Notices: what a user is warned of."""

import sys
import warnings
from collections.abc import Sequence
from typing import Any

from daskgrad.derivatives.shipping import complaints
from daskgrad.graph.activity import Graph
from daskgrad.graph.variables import Variable


def warn_of_independent(variables: Sequence[Variable], name: str) -> None:
    for independent in variables:
        warnings.warn(
            f"the output of {name!r} does not depend on {independent.name!r}; its gradient is zero",
            stacklevel=outside(),
        )


def warn_of_shipping(graph: Graph, client: Any) -> None:
    for message in complaints(graph, client):
        warnings.warn(message, stacklevel=outside())


def outside() -> int:
    """The stacklevel, for the caller's warning, of the first frame that is not of this package."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back and frame.f_globals.get("__name__", "").startswith("daskgrad."):
        level, frame = level + 1, frame.f_back
    return level
