"""Eager sums: the items of a sum that runs when it is called, as one block."""

from typing import Any

from daskgrad.autodiff.models.as_called import taken_items
from daskgrad.autodiff.models.captured import Gradient
from daskgrad.autodiff.models.model import Model
from daskgrad.autodiff.models.pullbacks import each_of
from daskgrad.autodiff.tape.boxes import ArrayBox
from daskgrad.autodiff.values.cotangents import Cotangent, nbytes
from daskgrad.autodiff.values.trees import flatten
from daskgrad.graph.eager import EagerCall, EagerTape, actives, values_of
from daskgrad.graph.hidden_nodes import find_hidden
from daskgrad.sums.block_tasks import Summand, TracedSum, evaluate_block, pull_back_block
from daskgrad.sums.sources import ITEM, Source
from daskgrad.sums.zipping import Items


class EagerSum(EagerCall):
    """A sum that has run."""

    __slots__ = ()

    is_run, is_sum = False, True

    @property
    def repeats_a_value(self) -> bool:
        summand = self.called[1]
        return len(summand.call.holes) - summand.field_count > len(self.sources)

    def pull(self, leaves: tuple) -> list[Any]:
        pulled = pull_back_block(self.captured, Cotangent(leaves), *self.called)
        return [one.leaves[0] for one in each_of(pulled)]


def eager_sum(
    tape: EagerTape, model: Model, items: Items, shared: tuple, template: Any, summation: str
) -> Any:
    """The sum of ``model(item, *shared)``, in boxes."""
    for source in items.sources:
        if type(source) is not Source or not source.is_here or source.variable is not None:
            tape.refuse("a sum over such items")
        if find_hidden(ArrayBox, source.items) is not None:
            tape.refuse("a traced value among items")
    fields, (first, *_) = len(items.sources), items.firsts
    data = items.here(0, len(items.firsts))
    tape.largest = max([tape.largest, *[nbytes(flatten(field[:1])[0]) for field in data]])
    call, sources = tape.call_on(model, (template, *shared), {})
    holes = [(position, number + fields) for position, number in call.holes]
    call = call._replace(holes=(*[(number, number) for number in range(fields)], *holes))
    active = [one._replace(number=one.number + fields) for one in actives(len(sources))]
    summand = Summand(call, tuple(active), summation, fields, None, items.slices)
    inputs = values_of(sources)
    if not sources:
        tape.has_constant_calls = True
        return tape.run(evaluate_block, model, summand, first, inputs, *data)
    captured = tape.run(TracedSum(model, summand, inputs).capture, first, *data)
    if not isinstance(captured.pullback, Gradient):  # tapes, which may keep items
        tape.keep([large for s in items.sources for large in taken_items(s.items, ITEM)[1]])
    called = (captured, model, summand, first, inputs, None, *data)
    return tape.result(captured.value, EagerSum(model.name, sources, *called))
