"""Portions: cotangents of single items of a list, tuple or dict that a model returned.

A node that takes one item out of a container sends back a cotangent of that item alone, a portion.
Portions are added item by item, and become the cotangent of the container once: for n items with a
node each, full cotangents with zeros would take n² space.
"""

from collections.abc import Sequence
from typing import Any

from daskgrad.models import finite
from daskgrad.models.accumulation import add_cotangents
from daskgrad.models.captured import Captured
from daskgrad.models.determinism import require_same_input, require_value_seen
from daskgrad.models.failures import Blame
from daskgrad.models.model import Call, Model
from daskgrad.models.pullbacks import capture, evaluate, pull_back, seed
from daskgrad.models.tracing import Active
from daskgrad.values.carriers import carrier
from daskgrad.values.cotangents import Cotangent, zeros
from daskgrad.values.fingerprints import fingerprint
from daskgrad.values.memory import canonical, takes_as_arrived
from daskgrad.values.summation import Add, pairwise
from daskgrad.values.trees import children_of, flatten

CONTAINERS = (list, tuple, dict)


@carrier
class Portion:
    """Cotangents of some items of a container, by the items' entries."""

    items: dict[Any, Cotangent]

    def __repr__(self) -> str:
        return f"Portion({self.items})"


@carrier
class Strips:
    """Cotangents of some parts of the arrays of a value: pairs of slices and leaves."""

    parts: Any

    def __repr__(self) -> str:
        return f"Strips({len(self.parts)})"

    def added_to(self, leaves: Sequence[Any]) -> None:
        """Adds them, in their order, to arrays that may be overwritten."""
        for place, part in self.parts:
            for leaf, cotangent in zip(leaves, part, strict=True):
                if cotangent is not None:
                    leaf[place] += cotangent


# ---------------------------------------------------------------------- the tasks of an item's node


@takes_as_arrived
def evaluate_item(model: Model, call: Call, inputs: Sequence[Any]) -> Any:
    """The value of an item's node; traces nothing."""
    container = inputs[0]
    if type(container) not in CONTAINERS:
        return evaluate(model, call, canonical(inputs))
    return item_of(container, Blame("value", model, call, inputs))


@takes_as_arrived
def capture_item(
    model: Model, call: Call, active: Sequence[Active], inputs: Sequence[Any]
) -> Captured:
    """Takes an item out of a container without reading the others; otherwise as ``capture``."""
    container = inputs[0]
    if type(container) not in CONTAINERS:
        return capture(model, call, active, canonical(inputs))
    return Captured(item_of(container, Blame("forward", model, call, inputs)), None, ())


def item_of(container: Any, where: Blame) -> Any:
    with where:
        value = canonical(container[index_in(where.call)])
    if finite.is_required():
        finite.require(where, "the value", value)
    return value


@takes_as_arrived
def pull_back_item(
    captured: Captured,
    cotangent: Cotangent,
    model: Model,
    call: Call,
    active: Sequence[Active],
    inputs: Sequence[Any],
    value_elsewhere: Any = None,
    is_alone: bool = False,
) -> Any:
    """The cotangent that an item's node sends back: a portion, or the result of ``pull_back``.

    ``is_alone``: no other node sends anything back, so return the cotangent of the container.
    """
    container = inputs[0]
    if type(container) not in CONTAINERS:
        return pull_back(
            captured, cotangent, model, call, active, canonical(inputs), value_elsewhere
        )
    with Blame("backward", model, call, inputs):
        require_value_seen(captured, cotangent, value_elsewhere, model)
        leaves = seed(cotangent, captured.value, model)
    part = Cotangent(leaves, captured.fingerprint)
    portion = Portion({entry_of(index_in(call), container): part})
    return as_cotangent(portion, container, model.name) if is_alone else portion


def index_in(call: Call) -> Any:
    """The index of an item's node: the constant argument beside the container."""
    return next(leaf for leaf in call.leaves if leaf is not None)


def entry_of(index: Any, container: Any) -> Any:
    """The pytree's entry for an index: negative ones are counted from the front."""
    return index if type(container) is dict else range(len(container))[index]


# ------------------------------------------------------------------------------------ adding


@takes_as_arrived
def add_sent_back(
    terms: Sequence[Any], saw_value: Sequence[bool], add: Add, name: str, container: Any = None
) -> Any:
    """The sum of the cotangents, portions among them, from the consumers of one value.

    ``container``: the value itself, if the sum must be a cotangent of all of it.
    """
    strips = [term for term in terms if type(term) is Strips]
    if strips:
        return add_strips(terms, strips, saw_value, add, name, container)
    portions = [term for term in terms if isinstance(term, Portion)]
    if len(portions) == len(terms):
        total = pairwise(portions, lambda first, second, _: merge(first, second, name))
        return total if container is None else as_cotangent(total, container, name)
    dense = [
        as_cotangent(term, container, name) if isinstance(term, Portion) else term for term in terms
    ]
    return add_cotangents(dense, saw_value, add, name)


def add_strips(
    terms: Sequence[Any],
    strips: Sequence[Strips],
    saw_value: Sequence[bool],
    add: Add,
    name: str,
    value: Any,
) -> Any:
    """The sum of cotangents and strips: first the cotangents, and then strip by strip."""
    together = Strips([part for each in strips for part in each.parts])
    if len(strips) == len(terms) and value is None:
        return together
    leaves = flatten(value)[0]
    others = [pair for pair in zip(terms, saw_value, strict=True) if type(pair[0]) is not Strips]
    total = Cotangent((None,) * len(leaves))
    if others:
        total = add_cotangents([each for each, _ in others], [saw for _, saw in others], add, name)
    pairs = zip(total.leaves, leaves, strict=True)
    dense = [zeros(leaf) if array is None else array.copy() for array, leaf in pairs]
    together.added_to(dense)
    return Cotangent(tuple(dense), total.seen)


def merge(first: Portion, second: Portion, name: str) -> Portion:
    items = dict(first.items)
    for entry, part in second.items.items():
        if entry in items:
            part = add_cotangents((items[entry], part), (True, True), name=name)
        items[entry] = part
    return Portion(items)


def as_cotangent(portion: Portion, container: Any, name: str) -> Cotangent:
    """The cotangent of a container; symbolic zeros for items that got no cotangent."""
    leaves, structure = flatten(container)
    prints, children = fingerprint(leaves), children_of(structure)
    total: list[Any] = [None] * len(leaves)
    for entry, part in portion.items.items():
        first, child = children.get(entry, (0, None))
        stop = first + (child.num_leaves if child is not None else 0)
        if part.seen is not None:
            require_same_input(prints[first:stop], part.seen, name)
        for place, leaf in zip(range(first, stop), part.leaves, strict=True):
            total[place] = leaf
    return Cotangent(tuple(total), prints)
