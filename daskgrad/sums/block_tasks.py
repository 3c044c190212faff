"""Block tasks: a block of a sum of models, evaluated in one task.

A block is a run of items; its terms are ``model(item, *shared)``. A scalar term is pulled back at
once, while its tape is in the cache, and only the sum of the gradients is kept: 256 small models
took 0.28 s, and 0.65 to 0.87 s on one long tape. Each term that is an array keeps its pullback.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, NamedTuple

import numpy as np

from daskgrad.autodiff.libraries import registry
from daskgrad.autodiff.models import finite
from daskgrad.autodiff.models.blas import ONE_THREAD
from daskgrad.autodiff.models.captured import Captured, Gradient, Seen
from daskgrad.autodiff.models.determinism import require_value_seen
from daskgrad.autodiff.models.failures import Blame, Partition
from daskgrad.autodiff.models.model import Call, Model
from daskgrad.autodiff.models.pullbacks import (
    NOTHING,
    each_of,
    plain_value,
    seed,
    share_out,
    unpack_or_trace,
)
from daskgrad.autodiff.models.tracing import Active, Tracer, seen_by
from daskgrad.autodiff.rules.declaration import strong
from daskgrad.autodiff.tape.traced_call import Pending, TermRun, TracedBlock
from daskgrad.autodiff.values.addition import (
    ADDITIONS,
    PairwiseSum,
    StructureError,
    are_alike,
    final_leaves,
    flatten_sum,
    rounded_value,
)
from daskgrad.autodiff.values.carriers import Structure
from daskgrad.autodiff.values.cotangents import Cotangent, Leaves, Seed, Unscaled
from daskgrad.autodiff.values.protection import as_it_is, read_only_leaf
from daskgrad.autodiff.values.trees import flatten
from daskgrad.sums.adding import AddedTerms, Terms, TermsInTurn, round_sum, side_by_side
from daskgrad.sums.cutting import as_slice
from daskgrad.sums.item_cotangents import Widths, factor_of_terms, items_of


class Summand(NamedTuple):
    """The terms of a sum, in a graph, here and on the workers; the model is passed beside it.

    The first ``field_count`` inputs of a term are the fields of its item: one for each collection
    in a zip, or the item itself. ``placed``: the number of the field that the workers hold, if any.
    ``slices``: the model takes slices instead of single items. ``is_partial``: a block is not the
    whole sum, and the last addition of blocks rounds.
    """

    call: Call
    active: tuple[Active, ...] = ()
    summation: str = "pairwise"
    field_count: int = 1
    placed: int | None = None
    slices: bool = False
    is_partial: bool = False


Term = tuple[Any, Any, Widths]  # value, pullback, the numbers of leaves of its item's fields
First = int | Partition  # the index of a block's first item, or the partition that is the block


def evaluate_block(
    model: Model, summand: Summand, first: First, inputs: Sequence[Any], *fields: Sequence[Any]
) -> Any:
    """The sum of the block's terms; traces nothing. A term's inputs are its item's entry of each
    field, and the shared ``inputs``."""
    require_one_length(fields, first, model)
    if not len(fields[0]):
        return NOTHING
    with Blame("value", model, summand.call, [*[None] * summand.field_count, *inputs]):
        model = model._replace(fun=registry.prepare(registry.load(model.backend), model.fun))
    protected = protection(model)
    inputs, fields = list(map(protected, inputs)), tuple(map(protected, fields))
    call = protected_call(summand.call, protected)
    values, is_checked = PairwiseSum(ADDITIONS[summand.summation].values), finite.is_required()
    with naming_odd_terms(model, summand.call, inputs, first, fields):
        for offset, item in enumerate(zip(*fields, strict=True)):
            of_term = [*item, *inputs]
            try:
                value = strong(plain_value(model, call, of_term))
                values.push(value)
            except StructureError:
                raise
            except Exception as error:
                Blame("value", model, summand.call, of_term, nth(first, offset)).note(error)
                raise
            if is_checked:
                where = Blame("value", model, summand.call, of_term, nth(first, offset))
                finite.require(where, "the value", value)
        total = values.total()
    if is_checked:
        subject = f"sum over {model.name!r}: the value of {describe_block(first, fields[0])}"
        finite.require_sum(subject, flatten_sum(total)[0])
    return total if summand.is_partial else rounded_value(total)


@contextmanager
def naming_odd_terms(
    model: Model,
    call: Call,
    inputs: Sequence[Any],
    first: First,
    fields: Sequence[Sequence[Any]],
) -> Iterator[None]:
    """Notes on an error the first item of a block with a term that cannot be added to the one
    before it."""
    try:
        yield
    except StructureError as error:
        before: Any = None
        for offset, item in enumerate(zip(*fields, strict=True)):
            of_term = [*item, *inputs]
            try:
                term = plain_value(model, call, of_term)
            except StructureError:  # the model's own
                break
            if offset and not are_alike(before, term):
                break
            before = term
        Blame("value", model, call, of_term, nth(first, offset)).note(error)
        raise


def protection(model: Model) -> Callable[[Any], Any]:
    """Makes shared arrays and arrays of rows read-only, once for all terms."""
    finds_writes = registry.finds_writes(registry.load(model.backend))
    return as_it_is if finds_writes else read_only_leaf


def protected_call(call: Call, protected: Callable[[Any], Any]) -> Call:
    return call._replace(leaves=tuple(map(protected, call.leaves)))


def capture_block(
    model: Model, summand: Summand, first: First, inputs: Sequence[Any], *fields: Sequence[Any]
) -> Captured:
    """The sum of the block's terms and its pullback with respect to the active inputs."""
    return TracedSum(model, summand, inputs).capture(first, *fields)


class TracedSum:
    """Captures blocks of one sum; flattens the shared inputs once."""

    def __init__(self, model: Model, summand: Summand, inputs: Sequence[Any]):
        self._model = model
        self._summand = summand
        self._add = ADDITIONS[summand.summation]
        self._own = [number for number, *_ in summand.active if number < summand.field_count]
        shared = summand.active[len(self._own) :]
        padded = [*[None] * summand.field_count, *inputs]
        with Blame("forward", model, summand.call, padded):
            self.protected = protection(model)
            self._inputs = list(map(self.protected, inputs))
            padded = [*[None] * summand.field_count, *self._inputs]
            call = protected_call(summand.call, self.protected)
            self._tracer = Tracer(model, call, shared, padded, in_sum=True)
        self._seen = seen_by(shared, padded)
        self._kept: dict[Any, Any] = {}
        self._must_be_finite = finite.is_required()

    def fields(self, others: list[Any], placed: Any) -> list[Any]:
        """The fields of a block: ``placed``, which this worker holds, among the ``others``, which
        came with the request."""
        fields = others
        if self._summand.placed is not None:
            fields = [*others[: self._summand.placed], placed, *others[self._summand.placed :]]
        return [[as_slice(field)] for field in fields] if self._summand.slices else fields

    def capture(self, first: First, *fields: Sequence[Any]) -> Captured:
        (captured,) = self.captures(first, (len(fields[0]),), fields)
        return captured

    def captures(
        self, first: First, sizes: Sequence[int], fields: Sequence[Sequence[Any]]
    ) -> list[Captured]:
        """The sums of a block's first terms, of the next ones, and so on, so many each."""
        require_one_length(fields, first, self._model)
        if not len(fields[0]):
            width = sum([width for _, width in self._seen])
            return [Captured(NOTHING, Gradient((None,) * width), self._seen, ()) for _ in sizes]
        are_rows = [isinstance(fields[number], np.ndarray) for number in self._own]
        sums = [self.no_terms(are_rows) for _ in sizes]
        with ONE_THREAD:
            self.add(sums[0] if len(sums) == 1 else TermsInTurn(sums, sizes), first, fields)
        with self._naming_odd_terms(first, fields):
            block = describe_block(first, fields[0])
            return [self.total(terms, block) for terms in sums]

    def no_terms(self, are_rows: Sequence[bool] = ()) -> AddedTerms:
        return AddedTerms(self._add, are_rows)

    def add(
        self, terms: AddedTerms | TermsInTurn, first: First, fields: Sequence[Sequence[Any]]
    ) -> None:
        fields = tuple(map(self.protected, fields))
        with self._naming_odd_terms(first, fields):
            self.evaluate(first, fields, terms.push, terms.push_run)
        terms.end_run()

    def _naming_odd_terms(
        self, first: First, fields: Sequence[Sequence[Any]]
    ) -> AbstractContextManager[None]:
        return naming_odd_terms(self._model, self._summand.call, self._inputs, first, fields)

    def total(self, terms: AddedTerms, block: str) -> Captured:
        """The sum of the terms; ``block`` describes them in errors."""
        value, pullback = terms.total(self._model.name)
        if self._must_be_finite:
            leaves = [*flatten_sum(value)[0], *getattr(pullback, "leaves", ())]
            subject = f"sum over {self._model.name!r}: the value or gradient of {block}"
            finite.require_sum(subject, leaves)
        captured = Captured(value, pullback, self._seen)
        return captured if self._summand.is_partial else round_sum(captured)

    def evaluate(
        self,
        first: First,
        fields: Sequence[Sequence[Any]],
        use: Callable[[Any, Any, Widths], None],
        use_run: Callable[[TermRun, Leaves, Widths], None] | None = None,
    ) -> None:
        """Evaluates the terms of a block in their order. ``use`` gets value, pullback and widths of
        each; ``use_run`` gets terms that a backend evaluated at once, with their gradients."""
        fits = use_run is not None and self._summand.summation == "pairwise"
        in_runs = fits and not self._must_be_finite
        results, start = self._results(fields), 0
        while start < len(fields[0]):
            try:
                run = next(results)
            except Exception as error:
                self._blame(error, first, start, fields)
                raise
            if type(run) is not TermRun and in_runs and not self._own:
                run = side_by_side(run, self._tracer.arrays) or run
            if type(run) is TermRun and in_runs:
                tracer, widths = self._tracer_of([field[start] for field in fields])
                use_run(run, tracer.rows_in_places(run.gradients), widths)  # type: ignore[misc]
                start += len(run.values)
                continue
            for result in run.each() if type(run) is TermRun else run:
                use(*self._term(first, start, [field[start] for field in fields], result))
                start += 1

    def is_batched(self, first: First, fields: Sequence[Sequence[Any]]) -> bool:
        """Whether items like the first of a block are evaluated together, in little time."""
        try:
            return self._tracer.is_batched(TracedBlock(fields, self._call_on, self._kept))
        except Exception as error:
            self._blame(error, first, 0, fields)
            raise

    def _results(self, fields: Sequence[Sequence[Any]]) -> Iterator[Any]:
        """Runs of results of the backend, with ``None`` and ``Pending`` among them."""
        if not self._tracer.is_at_once:
            return itertools.repeat((None,))
        return self._tracer.block(TracedBlock(fields, self._call_on, self._kept))

    def _call_on(self, item: Sequence[Any]) -> tuple[Any, Sequence[Any]]:
        return self._tracer_of(item)[0].call([*item, *self._inputs])

    def _tracer_of(self, item: Sequence[Any]) -> tuple[Tracer, Widths]:
        """The tracer of a term, and the widths of its item."""
        if not self._own:
            return self._tracer, ()
        trees = [(number, *flatten(item[number])) for number in self._own]
        widths = tuple([len(leaves) for _, leaves, _ in trees])
        return self._tracer.with_item(trees), widths

    def _term(self, first: First, offset: int, item: Sequence[Any], result: Any = None) -> Term:
        """A term, from the backend's result if there is one."""
        inputs = [*item, *self._inputs]
        try:
            tracer, widths = self._tracer_of(item)
            if result is None or type(result) is Pending:
                value, pullback = tracer.run(inputs, result and result.known)
            else:
                value, pullback = tracer.captured(*result)
        except Exception as error:
            self._where(inputs, nth(first, offset)).note(error)
            raise
        if self._must_be_finite:
            where = self._where(inputs, nth(first, offset))
            finite.require_captured(where, self._summand.active, value, pullback)
        # a batch does not know Python's numbers, and a sum is of one kind however it is evaluated
        return value if type(value) is np.float64 else strong(value), pullback, widths

    def _where(self, inputs: Sequence[Any], place: Any = None) -> Blame:
        return Blame("forward", self._model, self._summand.call, inputs, place)

    def _blame(
        self, error: Exception, first: First, start: int, fields: Sequence[Sequence[Any]]
    ) -> None:
        """Evaluates one by one items that raised an error together; if none raises it again, the
        error gets a note on all of them."""
        items = [*zip(*fields, strict=True)][start:]
        for offset, item in enumerate(items, start):
            self._term(first, offset, item)
        described = [describe_block(first, fields[0]), *[None] * (len(fields) - 1)]
        self._where([*described, *self._inputs]).note(error)


def require_one_length(fields: Sequence[Sequence[Any]], first: First, model: Model) -> None:
    """Raises unless zipped partitions have as many items as each other."""
    if isinstance(first, int) or len(fields) == 1:
        return
    lengths = [len(field[0]) if first.item is None else len(field) for field in fields]
    if len(set(lengths)) > 1:
        raise ValueError(
            f"the zipped items of model {model.name!r} must have the same length; {first!s} has "
            f"{' and '.join(map(str, lengths))} items"
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
    summand: Summand,
    first: First,
    inputs: Sequence[Any],
    value_elsewhere: Any,
    *fields: Sequence[Any],
) -> Cotangent | tuple[Cotangent, ...]:
    """The cotangents of the active inputs of a block: of the shared ones, and then of the items,
    side by side; a single one is not wrapped. ``add_unscaled`` adds them up over several blocks."""
    if captured.value is NOTHING:
        return share_out(captured.pullback.leaves, captured.seen)
    described = [describe_block(first, fields[0]), *[None] * (len(fields) - 1), *inputs]
    with Blame("backward", model, summand.call, described):
        require_value_seen(captured, cotangent, value_elsewhere, model)
        pullback = captured.pullback
        if isinstance(pullback, Terms):
            pullback = unpack_or_trace(
                captured,
                model,
                summand.call,
                described,
                lambda tape: capture_block(tape, summand, first, inputs, *fields),
            )
        is_checked = finite.is_required()

        def look(offset: int, of_term: Leaves) -> None:
            item = [field[offset] for field in fields]
            where = Blame("backward", model, summand.call, [*item, *inputs], nth(first, offset))
            finite.require_pulled(where, summand.active, of_term)

        leaves = seed(cotangent, rounded_value(captured.value), model)
        args = (pullback, cotangent, leaves, captured.seen, summand.is_partial)
        pulled = pull_back_leaves(*args, look if is_checked else None)
        for part in pulled if is_checked else ():
            subject = f"sum over {model.name!r}: the cotangent from {described[0]}"
            finite.require_sum(subject, part.leaves)
        return pulled if len(pulled) > 1 else pulled[0]


def pull_back_leaves(
    pullback: Terms | Gradient,
    cotangent: Cotangent,
    leaves: Leaves,
    seen: Sequence[Seen],
    is_partial: bool,
    look: Callable[[int, Leaves], None] | None = None,
) -> tuple[Cotangent, ...]:
    """The result of a block's pullback for a cotangent; its ``leaves`` fit the value."""
    factor = None
    if isinstance(pullback, Terms):
        is_whole = pullback.dtypes is not None and not isinstance(cotangent, Seed)
        shared, items = pullback(cotangent.leaves if is_whole else leaves, look)
        shared = shared if is_partial else final_leaves(shared)
    else:
        of_terms = factor_of_terms(cotangent, leaves)
        items = items_of(pullback, of_terms)
        factor = of_terms if is_partial and not pullback.is_zero else None
        shared = pullback((of_terms,)) if factor is None else pullback.leaves
    parts = each_of(share_out(shared, seen))
    if factor is not None:
        parts = tuple([Unscaled(one.leaves, one.seen, factor) for one in parts])
    return (*parts, *map(Cotangent, items))


def pull_back_sum(
    captured: Captured, cotangent: Cotangent, model: Model, value_elsewhere: Any = None
) -> Cotangent | tuple[Cotangent, ...]:
    """The cotangents of the shared inputs, from a sum of added blocks."""
    with Blame("backward", model, NO_ARGUMENTS, ()):
        require_value_seen(captured, cotangent, value_elsewhere, model)
        leaves = seed(cotangent, captured.value, model)
        leaves = captured.pullback((factor_of_terms(cotangent, leaves),))
        if finite.is_required():
            subject = f"sum over {model.name!r}: the cotangent of its shared arguments"
            finite.require_sum(subject, leaves)
        return share_out(leaves, captured.seen)


NO_ARGUMENTS = Call((), Structure(flatten(((), {}))[1]), ())


def describe_block(first: First, items: Sequence[Any]) -> str:
    if isinstance(first, int):
        return f"items {first} to {first + len(items) - 1}"
    return f"partition {first.number}"
