"""Routes: the trees along which the point goes out to the workers and partial sums come back.

The client calls few workers itself, which is quickest. Workers pass a large point on along a
binomial tree and add gradients on the way back: the client sends one point, gets one gradient.
"""

from collections.abc import Sequence
from typing import NamedTuple

from daskgrad.resident.messages import JobMessage

FLAT = 16  # workers that the client calls itself, where the point is small
LARGE_POINT = 2**18  # bytes


class Work(NamedTuple):
    """What a worker does, and the work of those below it, which it passes on."""

    address: str
    jobs: Sequence[JobMessage]
    children: Sequence["Work"] = ()


def routes(works: Sequence[Work], is_large: bool) -> list[Work]:
    """The work of the workers that the client calls, with that of the others below them.

    ``works`` are in the order of their blocks, so that neighbours add up to subtrees.
    """
    if is_large:
        return [binomial(works)]
    size = -(-len(works) // FLAT)
    return [binomial(works[start : start + size]) for start in range(0, len(works), size)]


def binomial(works: Sequence[Work]) -> Work:
    """The first worker with, below it, trees over the next 1, 2, 4, 8 ... workers."""
    children, start, size = [], 1, 1
    while start < len(works):
        children.append(binomial(works[start : start + size]))
        start, size = start + size, 2 * size
    return works[0]._replace(children=children)


def addresses(tree: Work) -> list[str]:
    """All workers of a tree."""
    return [tree.address, *[address for child in tree.children for address in addresses(child)]]
