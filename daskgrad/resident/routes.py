"""Routes: the trees along which the point goes out to the workers and partial sums come back.

With few workers or a small point the client calls each worker itself, which is quickest. Workers
pass a large point on to each other along a binomial tree, and add gradients on the way back, so
that the client sends one point and receives one gradient, however many workers there are.
"""

from collections.abc import Mapping, Sequence
from typing import Any

FLAT = 16  # workers that the client calls itself, where the point is small
LARGE_POINT = 2**18  # bytes

Work = Mapping[str, Any]


def routes(works: Sequence[Work], is_large: bool) -> list[Work]:
    """The workers that the client calls, each with the workers below it as its ``children``.

    ``works`` are in the order of their blocks, so that neighbours add up to subtrees.
    ``is_large``: the point has at least ``LARGE_POINT`` bytes.
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
    return {**works[0], "children": children}


def addresses(tree: Work) -> list[str]:
    """All workers of a tree."""
    below = [address for child in tree["children"] for address in addresses(child)]
    return [tree["address"], *below]
