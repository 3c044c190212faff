"""The graph of recorded nodes as both passes see it: which nodes are active, which are scalars."""

import functools
from collections import Counter
from collections.abc import Iterable, Sequence

from daskgrad.nodes import ELEMENTWISE, CallNode, Node, order
from daskgrad.pullbacks import Active
from daskgrad.variables import Variable

SCALAR_KEEPING = {id(model.model) for model in ELEMENTWISE}


class Graph:
    """The nodes that some outputs depend on, inputs first.

    ``active`` are those on a path from a variable in ``wrt`` to ``output`` that nothing stops: they
    depend on a variable and matter to the output. ``extras`` are other outputs, of which only the
    value is wanted. ``scalars`` are nodes whose value is one real number if the output's is, which
    is known before anything runs; empty unless ``output_is_scalar``. ``is_watched``: a value may be
    computed again, and is compared with what its consumers have seen.
    """

    def __init__(
        self,
        output: Node,
        wrt: Sequence[Variable],
        extras: Iterable[Node] = (),
        output_is_scalar: bool = False,
    ):
        self.output = output
        self.extras = tuple(extras)
        self.is_watched = True
        self.wrt = set(wrt)
        self.active = self._active()
        self.order = order(
            [output, *self.extras], is_leaf=lambda node: node.is_settled and node not in self.active
        )
        self.scalars = self._scalars() if output_is_scalar else set()

    def is_wrt(self, node: Node) -> bool:
        """Whether a node is one of the variables, or a part of one."""
        return isinstance(node, Variable) and node.root in self.wrt

    def active_inputs(self, node: Node) -> tuple[Active, ...]:
        """Which inputs are differentiated; all but variables are watched, if any are."""
        return tuple(
            [
                Active(number, watched=self.is_watched and not isinstance(source, Variable))
                for number, source in enumerate(node.inputs)
                if source in self.active
            ]
        )

    def is_used_once(self, node: Node) -> bool:
        """Whether one active node alone takes a value in."""
        return self._uses[node] == 1

    @functools.cached_property
    def _uses(self) -> Counter[Node]:
        return Counter([source for node in self.active for source in node.inputs])

    def _active(self) -> set[Node]:
        active: set[Node] = set()
        for node in order([self.output], is_leaf=lambda node: node.is_stopped):
            sources = () if node.is_stopped else node.inputs
            if self.is_wrt(node) or any(source in active for source in sources):
                active.add(node)
        return active

    def _scalars(self) -> set[Node]:
        scalars = {self.output}
        for node in reversed(self.order):
            if node in scalars and keeps_scalars(node):
                scalars.update(node.inputs)
        return scalars


def keeps_scalars(node: Node) -> bool:
    """Whether a node is elementwise, so that a scalar value needs scalar inputs."""
    if isinstance(node, CallNode):
        return id(node.model) in SCALAR_KEEPING
    return getattr(node, "is_elementwise", False)
