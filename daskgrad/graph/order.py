"""Order: the nodes that others depend on, inputs first; so they are pickled, at no depth."""

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import attrgetter
from typing import Any

LEVELS = 32  # of nodes that pickle goes down by itself

_running = threading.local()


def order(
    outputs: Iterable[Any], inputs_of: Callable[[Any], Sequence[Any]] = attrgetter("inputs")
) -> list[Any]:
    """All nodes that the outputs depend on, by ``inputs_of`` each, inputs first."""
    done: dict[Any, None] = {}
    stack = list(outputs)[::-1]
    while stack:
        waiting = [source for source in inputs_of(stack[-1]) if source not in done]
        if waiting:
            stack.extend(waiting[::-1])
        else:
            done[stack.pop()] = None
    return list(done)


def reduced(node: Any) -> tuple:
    """A node for pickle and copy, as an object of its own class: pickle would ask for the value's.

    At every so many levels the nodes before it go first, so that pickle knows its inputs. It may
    know them already, from a list of nodes, and does not say so.
    """
    is_among_others = getattr(_running, "is_in_order", False)
    is_deep = not is_among_others and depth_of(node) % LEVELS == LEVELS - 1
    before = (InOrder(node.inputs),) if is_deep else ()
    return make, (type(node), *before), node.__getstate__()


def depth_of(node: Any) -> int:
    """The number of nodes in the longest chain below a node."""
    stack = [node]
    while stack:
        waiting = [source for source in stack[-1].inputs if "depth" not in vars(source)]
        if waiting:
            stack.extend(waiting)
        else:
            last = stack.pop()
            depths = [vars(source)["depth"] + 1 for source in last.inputs]
            vars(last)["depth"] = max(depths, default=0)
    return vars(node)["depth"]


def make(cls: type, *_: Any) -> Any:
    return object.__new__(cls)


class InOrder:
    """The nodes that some nodes depend on, which pickle takes one by one."""

    def __init__(self, nodes: Sequence[Any]):
        self._nodes = nodes

    def __reduce__(self) -> tuple:
        return list, (), None, self._each()

    def _each(self) -> Iterator[Any]:
        _running.is_in_order = True
        try:
            yield from order(self._nodes)
        finally:
            _running.is_in_order = False
