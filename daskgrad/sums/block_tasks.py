"""Block tasks: a block of a sum of models, evaluated in one task.

A block is a run of items; its terms are ``model(item, *shared)``. A scalar term is pulled back at
once, while its tape is hot, and only the sum of the gradients is kept: 256 small models took 0.28 s
so, and 0.65 to 0.87 s on one long tape. Terms that are arrays keep a pullback each.
"""

import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from daskgrad import backends
from daskgrad.backends.calls import TracedBlock
from daskgrad.models.captured import Captured, Gradient
from daskgrad.models.determinism import (
    require_value_seen,
)
from daskgrad.models.failures import Blame, Partition
from daskgrad.models.model import Call, Model
from daskgrad.models.pullbacks import each_of, plain_value, seed, share_out, unpacked
from daskgrad.models.tracing import Active, Tracer, seen_by
from daskgrad.sums.adding import NOTHING, captured_sum
from daskgrad.sums.block_pullback import Terms
from daskgrad.sums.item_cotangents import Gathered, Widths, factor_of_terms, items_of
from daskgrad.values.addition import ADDERS
from daskgrad.values.compensated import (
    final_leaves,
    rounded_value,
)
from daskgrad.values.cotangents import (
    Cotangent,
    Leaves,
    Part,
)
from daskgrad.values.protection import as_it_is, read_only_leaf
from daskgrad.values.registrations import Structure
from daskgrad.values.summation import PairwiseSum
from daskgrad.values.trees import flatten


class Sum(NamedTuple):
    """What the blocks of a sum have in common, but for the model, which may be a key of its own.

    The first inputs of a term are the ``parts`` of its item. ``is_part``: a block is not the whole
    sum, and is rounded when all have been added up.
    """

    call: Call
    active: tuple[Active, ...] = ()
    summation: str = "pairwise"
    parts: int = 1
    is_part: bool = False


Term = tuple[Any, Any, Widths]  # value, pullback, the numbers of leaves of its item's parts
First = int | Partition  # the index of a block's first item, or the partition that is the block


def evaluate_block(
    model: Model, whole: Sum, first: First, inputs: Sequence[Any], *columns: Sequence[Any]
) -> Any:
    """The sum of the block's terms; traces nothing.

    The ``columns`` have the items, part by part; a term's inputs are the parts of its item, and
    then the shared ones.
    """
    require_one_length(columns, first, model)
    if not len(columns[0]):
        return NOTHING
    with Blame("value", model, whole.call, [*[None] * whole.parts, *inputs]):
        model = model._replace(fun=backends.prepared(backends.load(model.backend), model.fun))
    protected = protection(model)
    inputs, columns = list(map(protected, inputs)), tuple(map(protected, columns))
    call = protected_call(whole.call, protected)
    values = PairwiseSum(ADDERS[whole.summation].values)
    for offset, item in enumerate(zip(*columns, strict=True)):
        of_term = [*item, *inputs]
        try:
            values.push(plain_value(model, call, of_term))
        except Exception as error:
            Blame("value", model, whole.call, of_term, nth(first, offset)).note(error)
            raise
    return values.total() if whole.is_part else rounded_value(values.total())


def protection(model: Model) -> Callable[[Any], Any]:
    """What an array goes through, so that a model cannot write into it, or into its rows.

    So what all terms share is protected once; each run of the model has the rest done.
    """
    finds_writes = backends.finds_writes(backends.load(model.backend))
    return as_it_is if finds_writes else read_only_leaf


def protected_call(call: Call, protected: Callable[[Any], Any]) -> Call:
    return call._replace(leaves=tuple(map(protected, call.leaves)))


def capture_block(
    model: Model, whole: Sum, first: First, inputs: Sequence[Any], *columns: Sequence[Any]
) -> Captured:
    """The sum of the block's terms and its pullback with respect to the active inputs."""
    return TracedSum(model, whole, inputs).capture(first, *columns)


class TracedSum:
    """Captures blocks of one sum; the shared inputs are taken apart only once."""

    def __init__(self, model: Model, whole: Sum, inputs: Sequence[Any]):
        self._model = model
        self._sum = whole
        self._add = ADDERS[whole.summation]
        self._own = [number for number, _ in whole.active if number < whole.parts]
        shared = whole.active[len(self._own) :]
        padded = [*[None] * whole.parts, *inputs]
        with Blame("forward", model, whole.call, padded):
            self.protected = protection(model)
            self._inputs = list(map(self.protected, inputs))
            padded = [*[None] * whole.parts, *self._inputs]
            call = protected_call(whole.call, self.protected)
            self._tracer = Tracer(model, call, shared, padded, in_sum=True)
        self._seen = seen_by(shared, padded)

    def capture(self, first: First, *columns: Sequence[Any]) -> Captured:
        """The sum of the terms of a block."""
        require_one_length(columns, first, self._model)
        if not len(columns[0]):
            width = sum([seen.width for seen in self._seen])
            return Captured(NOTHING, Gradient((None,) * width), self._seen, ())
        columns = tuple(map(self.protected, columns))
        are_rows = [isinstance(columns[number], np.ndarray) for number in self._own]
        values = PairwiseSum(self._add.values)
        gradients = Gathered(are_rows, self._add.cotangents)
        kept, kept_widths, scalars = [], [], 0
        for term in self.terms(first, columns):
            value, pullback, widths = term()
            values.push(value)
            is_gradient = isinstance(pullback, Gradient)
            if is_gradient:
                gradients.push(pullback.leaves, widths)
            if is_gradient and not pullback.is_zero:
                scalars += 1
            else:
                kept.append(pullback)
                kept_widths.append(widths)
        if all(isinstance(pullback, Gradient) for pullback in kept):
            return self._captured(values.total(), gradients.gradient())
        if scalars:
            raise TypeError(
                f"the terms of a sum over {self._model.name!r} must be of one kind; {scalars} of "
                f"{len(columns[0])} in one task returned one real number, and others something else"
            )
        return self._captured(
            values.total(), Terms(kept, kept_widths, are_rows, self._add.cotangents)
        )

    def _captured(self, value: Any, pullback: Any) -> Captured:
        return captured_sum(value, pullback, self._seen, self._sum.is_part)

    def terms(self, first: First, columns: Sequence[Sequence[Any]]) -> Iterator[Callable[[], Term]]:
        """The terms of a block, one after the other, each evaluated when it is called.

        A model's own ``StopIteration`` does not get through a generator.
        """
        found = self._found_at_once(columns)
        for offset, item in enumerate(zip(*columns, strict=True)):
            yield functools.partial(self._next_term, found, first, offset, item, columns)

    def _next_term(
        self,
        found: Iterator[Any],
        first: First,
        offset: int,
        item: Sequence[Any],
        columns: Sequence[Sequence[Any]],
    ) -> Term:
        """A term, of those that were evaluated at once if the backend has a way with these bits."""
        try:
            result = next(found)
        except Exception as error:
            self._blame(error, first, offset, columns)
            raise
        if result is None:
            return self._term(first, offset, item)
        tracer, widths = self._tracer_of(item)
        return (*tracer.captured(*result), widths)

    def _found_at_once(self, columns: Sequence[Sequence[Any]]) -> Iterator[Any]:
        if not self._tracer.is_at_once:
            return itertools.repeat(None)
        return self._tracer.block(TracedBlock(columns, self._call_on))

    def _call_on(self, item: Sequence[Any]) -> tuple[Any, list[Any]]:
        return self._tracer_of(item)[0].call([*item, *self._inputs])

    def _tracer_of(self, item: Sequence[Any]) -> tuple[Tracer, Widths]:
        """What traces a term, and how many leaves the differentiated parts of its item have."""
        if not self._own:
            return self._tracer, ()
        trees = [(number, *flatten(item[number])) for number in self._own]
        widths = tuple([len(leaves) for _, leaves, _ in trees])
        return self._tracer.with_item(trees), widths

    def _term(self, first: First, offset: int, item: Sequence[Any]) -> Term:
        inputs = [*item, *self._inputs]
        try:
            tracer, widths = self._tracer_of(item)
            return (*tracer.run(inputs), widths)
        except Exception as error:
            place = nth(first, offset)
            Blame("forward", self._model, self._sum.call, inputs, place).note(error)
            raise

    def _blame(
        self, error: Exception, first: First, start: int, columns: Sequence[Sequence[Any]]
    ) -> None:
        """Finds the item that an error came from, which was evaluated with others, and raises its
        own; says which items it may have been where it does not come again."""
        items = [*zip(*columns, strict=True)][start:]
        for offset, item in enumerate(items, start):
            self._term(first, offset, item)
        described = [describe_block(first, columns[0]), *[None] * (len(columns) - 1)]
        Blame("forward", self._model, self._sum.call, [*described, *self._inputs]).note(error)


def require_one_length(columns: Sequence[Sequence[Any]], first: First, model: Model) -> None:
    """Partitions that are zipped have as many items as each other; elsewhere that is known."""
    if isinstance(first, int) or len(columns) == 1:
        return
    lengths = [len(column[0]) if first.item is None else len(column) for column in columns]
    if len(set(lengths)) > 1:
        raise ValueError(
            f"the items of model {model.name!r} are zipped, and must be equally many; {first!s} "
            f"has {' and '.join(map(str, lengths))} items"
        )


def nth(first: First, offset: int) -> int | Partition:
    """The place of an item of a block, or of the slice that a block is."""
    if isinstance(first, int):
        return first + offset
    return first if first.item is None else first._replace(item=offset)


def pull_back_block(
    captured: Captured,
    cotangent: Cotangent,
    model: Model,
    whole: Sum,
    first: First,
    inputs: Sequence[Any],
    witness: Any,
    *columns: Sequence[Any],
) -> Cotangent | tuple[Cotangent, ...]:
    """The cotangents of the active inputs of a block; a single one is not wrapped.

    Those of the shared inputs come first, and then those of the items, side by side. Where the
    block is a part of a sum, ``add_parts`` adds up what its blocks return for a shared input.
    """
    if captured.value is NOTHING:
        return share_out(captured.pullback.leaves, captured.seen)
    described = [describe_block(first, columns[0]), *[None] * (len(columns) - 1), *inputs]
    with Blame("backward", model, whole.call, described):
        require_value_seen(captured, cotangent, witness, model)
        pullback = captured.pullback
        if isinstance(pullback, Terms):
            pullback = unpacked(
                captured,
                model,
                whole.call,
                described,
                lambda tape: capture_block(tape, whole, first, inputs, *columns),
            )
        leaves = seed(cotangent, rounded_value(captured.value), model)
        if isinstance(pullback, Terms):
            shared, own = pullback(leaves)
            shared = shared if whole.is_part else final_leaves(shared)
            return with_items(share_out(shared, captured.seen), own)
        own = items_of(pullback, factor_of_terms(cotangent, leaves))
        if whole.is_part and not pullback.is_zero and leaves[0] is not None:
            parts = as_parts(share_out(pullback.leaves, captured.seen), leaves[0])
            return with_items(parts, own)
        return with_items(share_out(pullback(leaves), captured.seen), own)


def with_items(
    shared: Cotangent | tuple[Cotangent, ...], columns: Sequence[Leaves]
) -> Cotangent | tuple[Cotangent, ...]:
    if not columns:
        return shared
    both = (*each_of(shared), *map(Cotangent, columns))
    return both if len(both) > 1 else both[0]


def as_parts(
    shared_out: Cotangent | tuple[Cotangent, ...], factor: Any
) -> Cotangent | tuple[Cotangent, ...]:
    if isinstance(shared_out, Cotangent):
        return Part(shared_out.leaves, shared_out.seen, factor)
    return tuple([Part(part.leaves, part.seen, factor) for part in shared_out])


def pull_back_sum(
    captured: Captured, cotangent: Cotangent, model: Model, witness: Any = None
) -> Cotangent | tuple[Cotangent, ...]:
    """The cotangents of the shared inputs of a sum whose blocks have been added up."""
    with Blame("backward", model, NO_ARGUMENTS, ()):
        require_value_seen(captured, cotangent, witness, model)
        leaves = captured.pullback(seed(cotangent, captured.value, model))
        return share_out(leaves, captured.seen)


NO_ARGUMENTS = Call((), Structure(flatten(((), {}))[1]), ())


def describe_block(first: First, items: Sequence[Any]) -> str:
    if isinstance(first, int):
        return f"items {first} to {first + len(items) - 1}"
    return f"partition {first.number}"
