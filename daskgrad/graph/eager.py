"""Eager evaluation: models run when they are called, and a sweep pulls the output's seed back.

An evaluation in the calling thread needs no recorded graph. A model that is called runs, under its
own tape; it returns boxes of an outer trace, and keeps its pullback. So between models Python means
what it says. ``graph.sweep`` goes back in the order of the recorded graph, and has its bits.
"""

from collections.abc import Callable, Collection, Sequence
from typing import Any, NoReturn

import numpy as np

from daskgrad.autodiff.libraries.registry import OF_NUMPY
from daskgrad.autodiff.models.as_called import LargeArrays, taken, taken_array
from daskgrad.autodiff.models.model import Call, Model, identity
from daskgrad.autodiff.models.pullbacks import capture, each_of, evaluate, pull_back, sum_values
from daskgrad.autodiff.models.tracing import Active
from daskgrad.autodiff.rules.twins import as_array
from daskgrad.autodiff.tape.boxes import TAPE_BOXES, ArrayBox
from daskgrad.autodiff.tape.outer import OuterNode, OuterTrace
from daskgrad.autodiff.values.carriers import Structure
from daskgrad.autodiff.values.cotangents import Cotangent, is_differentiable, nbytes
from daskgrad.autodiff.values.elsewhere import Elsewhere
from daskgrad.autodiff.values.memory import contiguous, row_major
from daskgrad.autodiff.values.trees import flatten, map_leaves, unflatten
from daskgrad.graph.hidden_nodes import containers_in, find_hidden
from daskgrad.graph.nodes import HEAVY, call_of_leaves
from daskgrad.tasks.clients import is_annotated
from daskgrad.tasks.collections import is_collection

NUMBERS = {np.float64, float, int}
USUAL = {*TAPE_BOXES, np.ndarray, *NUMBERS}


class NotEagerError(Exception):
    """An eager evaluation cannot do this; a recorded one can, or has an error that explains it."""


class EagerCall:
    """A call of a model that has run.

    ``outs``: the node of each leaf of the value; None for a leaf without derivative.
    ``sources``: the nodes that it has taken in. ``captured``, ``called``: see ``pullbacks``.
    """

    __slots__ = ("called", "captured", "name", "outs", "sources")

    is_run = True  # of one model, which runs beside no other
    is_sum = False  # see ``expressions.is_sum``
    is_addition = False  # of values
    outs: Sequence[OuterNode | None]

    def __init__(self, name: str, sources: Sequence[OuterNode], captured: Any, *called: Any):
        self.name, self.sources = name, sources
        self.captured, self.called = captured, called

    @property
    def repeats_a_value(self) -> bool:
        """Whether it takes in a value in several places."""
        return len(self.called[1].holes) > len(self.sources)

    def pull(self, leaves: tuple) -> list[Any]:
        """The cotangents of the sources, from the cotangents of the value's leaves."""
        pulled = pull_back(self.captured, Cotangent(leaves), *self.called)
        return [one.leaves[0] for one in each_of(pulled)]

    def release(self) -> None:
        """Forgets residuals and values, once it has been pulled back."""
        self.captured, self.called = None, ()
        for out in self.outs:
            if out is not None:
                out.value = None


class EagerAddition(EagerCall):
    """An addition of values; ``called``: the number of the leaf that each source has added to."""

    __slots__ = ()

    is_run, is_sum, is_addition = False, True, True
    repeats_a_value = False

    def pull(self, leaves: tuple) -> list[Any]:
        return [leaves[number] for number in self.called]


class EagerTape:
    """The calls of one evaluation.

    ``takes_apart``: values that are containers may be used whole and in parts, or a part twice; a
    recorded graph adds their cotangents in another order. ``failure``: the error of a model, with
    all of its notes; ``refusal``: why the evaluation is to be recorded, whoever has handled it.
    ``has_constant_calls``: models ran that depend on no variable; ``has_containers``: or returned
    several arrays. ``largest``: bytes of an array. ``measured``: the identities of the models that
    a cluster has measured, beside one. ``is_of_another``: it is refused, since only another
    function is known that well.
    """

    def __init__(self, takes_apart: bool = False, measured: Collection[Any] | None = None):
        self.trace = OuterTrace()
        self.failure: Exception | None = None
        self.refusal: NotEagerError | None = None
        self.has_constant_calls = self.has_containers = self.is_of_another = False
        self.largest = 0
        self._takes_apart, self._measured = takes_apart, measured
        self._calls: list[EagerCall] = []
        self._large: list[LargeArrays] = []

    def close(self) -> None:
        """Ends the circles of calls and the nodes of their values."""
        self.trace.close()
        for call in self._calls:
            call.outs, call.sources = (), ()
        self._calls.clear()

    def refuse(self, subject: str) -> NoReturn:
        self.refusal = NotEagerError(f"{subject} is for recorded graphs")
        raise self.refusal

    def variable(self, leaf: Any) -> ArrayBox:
        """The box of a leaf to differentiate with respect to."""
        box, size = self.trace.box(leaf), nbytes([leaf])
        box._node.is_here, box._node.is_small = True, size <= HEAVY
        self.largest = max(self.largest, size)
        return box

    def require_unchanged(self) -> None:
        """Raises if a large array that a call has seen has changed since."""
        for large in self._large:
            large.require_unchanged()

    def keep(self, large: Sequence[LargeArrays]) -> None:
        """Keeps arrays that a pullback may read, to look whether they have changed."""
        self._large += large

    # ---- calls

    def call(self, model: Model, args: tuple, kwargs: dict[str, Any]) -> Any:
        """The value of a model's call, in boxes."""
        if model.keep == "recompute":
            self.refuse("a model that runs again")
        call, sources = self.call_on(model, args, kwargs)
        inputs = values_of(sources)
        if not sources:
            self.has_constant_calls = True
            return self.run(evaluate, model, call, inputs)
        active = actives(len(sources))
        captured = self.run(capture, model, call, active, inputs)
        called = (captured, model, call, active, inputs)
        return self.result(captured.value, EagerCall(model.name, sources, *called))

    def run(self, fun: Callable, *args: Any) -> Any:
        """Runs models."""
        try:
            return fun(*args)
        except Exception as error:
            self.failure = error
            raise

    def call_on(
        self, model: Model, args: tuple, kwargs: dict[str, Any]
    ) -> tuple[Call, list[OuterNode]]:
        """The arguments of a call with holes, and the nodes of the values that fill the holes."""
        if self._measured is not None:
            if is_annotated() or identity(model) not in self._measured:
                self.refuse("an annotated call, or a model that the cluster has not measured,")
            if model.backend not in OF_NUMPY:
                self.refuse("a model of another library")
        if model.operator is None and find_hidden(ArrayBox, model.fun) is not None:
            self.refuse("a traced value in a model's function")
        is_usual = not kwargs and USUAL.issuperset(map(type, args))  # nearly always
        if is_usual:
            leaves, structure = list(args), call_of_leaves(len(args)).structure
        else:
            leaves, spec = flatten((args, kwargs))
            structure = Structure(spec)
            for container in containers_in((args, kwargs)):
                if type(container) is dict and not TAPE_BOXES.isdisjoint(map(type, container)):
                    self.refuse("a traced value as a key")
        numbers: dict[OuterNode, int] = {}
        holes = []
        for position, leaf in enumerate(leaves):
            if type(leaf) in NUMBERS:
                continue
            if type(leaf) is np.ndarray and leaf.dtype.hasobject and has_box(leaf):
                leaf = as_array(leaf.tolist())
            node = self.trace.node_of(leaf) if type(leaf) in TAPE_BOXES else None
            if node is not None:
                holes.append((position, numbers.setdefault(node, len(numbers))))
                leaves[position] = None
            else:
                leaves[position] = self._constant(leaf, f"an argument of model {model.name!r}")
        if is_usual and len(numbers) == len(args):  # values alone, as in ``nodes.make_call``
            return call_of_leaves(len(args)), list(numbers)
        return Call(tuple(leaves), structure, tuple(holes)), list(numbers)

    def _constant(self, leaf: Any, argument: str) -> Any:
        """A leaf of the arguments as it is now: a pullback may read it later."""
        if type(leaf) in TAPE_BOXES:
            return leaf._value
        if isinstance(leaf, Elsewhere) or is_collection(leaf):
            self.refuse("an argument that is not in this process")
        if type(leaf) is np.ndarray or (isinstance(leaf, np.ndarray) and leaf.nbytes > HEAVY):
            array, large = taken_array(leaf, argument)
            self.largest = max(self.largest, leaf.nbytes)
            if large is not None:
                self.keep([large])
            return contiguous(array, argument)
        if find_hidden(ArrayBox, leaf) is not None:
            self.refuse("a traced value in an object")
        return taken(leaf)

    def result(self, value: Any, call: EagerCall) -> Any:
        """The value of a call, with boxes for its leaves."""
        leaves, structure = flatten(value)
        self.has_containers = self.has_containers or len(leaves) > 1
        if len(leaves) > 1 and self._takes_apart:
            self.refuse("a container that is used whole and in parts")
        outs: list[OuterNode | None] = [None] * len(leaves)
        for number, leaf in enumerate(leaves):
            if type(leaf) in TAPE_BOXES:
                self.refuse("a traced value that a model refers to")
            if is_differentiable(leaf):
                box = self.trace.box(leaf)
                box._node.call = call
                self.largest = max(self.largest, nbytes([leaf]))
                leaves[number], outs[number] = box, box._node
        call.outs = outs
        self._calls.append(call)
        return unflatten(structure, leaves)

    def sum(self, terms: Sequence[Any], summation: str, name: str) -> Any:
        """The sum of values that calls have returned."""
        if self._measured is not None and is_annotated():
            self.refuse("an annotated sum")
        if len(terms) == 1:
            return terms[0]
        boxes = [flatten(term)[0] for term in terms]
        total = sum_values(list(map(values_in, terms)), summation, True, name)
        sources, numbers = [], []
        for term in boxes:
            for number, leaf in enumerate(term):
                node = self.trace.node_of(leaf) if type(leaf) in TAPE_BOXES else None
                if node is not None:
                    sources.append(node)
                    numbers.append(number)
        if not sources:
            return total
        return self.result(total, EagerAddition(name, sources, None, *numbers))


def has_box(array: np.ndarray) -> bool:
    return any([type(entry) in TAPE_BOXES for entry in array.flat])


def values_in(tree: Any) -> Any:
    """A pytree with values in the place of boxes."""
    return map_leaves(lambda leaf: leaf._value if type(leaf) in TAPE_BOXES else leaf, tree)


def values_of(sources: Sequence[OuterNode]) -> list[Any]:
    """The values of nodes; NumPy's in C order, as models get them."""
    return [node.value if node.fun is None else row_major(node.value) for node in sources]


_actives: list[tuple[Active, ...]] = []


def actives(count: int) -> tuple[Active, ...]:
    """So many inputs, which are all differentiated; one object for each number."""
    while len(_actives) <= count:
        _actives.append(tuple([Active(n, False) for n in range(len(_actives))]))
    return _actives[count]
