"""Portions: items of a list, tuple or dict that a model returned, each taken out by its own node.

What is sent back to a container by a node that took one item out of it is of that item alone. Such
portions are put together by item, and become the cotangent of the container once: with as many
items as nodes, whole cotangents full of zeros would take the square of their number.
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
from daskgrad.values.cotangents import Cotangent
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

    def __sizeof__(self) -> int:
        return object.__sizeof__(self) + sum([part.__sizeof__() for part in self.items.values()])


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
    """Takes an item out of a container, of which nothing else is looked at; else as ``capture``."""
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
    """What an item's node sends back: a portion, or what ``pull_back`` returns.

    ``is_alone``: nobody else sends anything back to the container, of which this is the cotangent.
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
    """The index that an item's node was recorded with, beside the container."""
    return next(leaf for leaf in call.leaves if leaf is not None)


def entry_of(index: Any, container: Any) -> Any:
    """The entry that a pytree has for what stands under an index: counted from the front."""
    return index if type(container) is dict else range(len(container))[index]


# ------------------------------------------------------------------------------- put together


@takes_as_arrived
def add_sent_back(
    terms: Sequence[Any], saw_value: Sequence[bool], add: Add, name: str, container: Any = None
) -> Any:
    """The sum of what the consumers of one value return, portions among them.

    ``container``: the value itself, where the sum must be a cotangent of all of it.
    """
    portions = [term for term in terms if isinstance(term, Portion)]
    if len(portions) == len(terms):
        total = pairwise(portions, lambda first, second, _: merge(first, second, name))
        return total if container is None else as_cotangent(total, container, name)
    dense = [
        as_cotangent(term, container, name) if isinstance(term, Portion) else term for term in terms
    ]
    return add_cotangents(dense, saw_value, add, name)


def merge(first: Portion, second: Portion, name: str) -> Portion:
    items = dict(first.items)
    for entry, part in second.items.items():
        if entry in items:
            part = add_cotangents((items[entry], part), (True, True), name=name)
        items[entry] = part
    return Portion(items)


def as_cotangent(portion: Portion, container: Any, name: str) -> Cotangent:
    """The cotangent of a container: symbolic zeros where nothing was sent back to an item."""
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
