"""Terms: a block of a sum of models, evaluated in one task.

A block is a run of items; its terms are ``model(item, *shared)``. A scalar term is pulled back at
once, while its tape is hot, and only the sum of the gradients is kept: 256 small models took 0.28 s
so, and 0.65 to 0.87 s on one long tape. Terms that are arrays keep a pullback each.
"""

import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import optree

from daskgrad import backends
from daskgrad.backends.calls import TracedBlock
from daskgrad.models.determinism import (
    Added,
    print_of,
    require_same_input,
    require_same_value,
    require_value_seen,
)
from daskgrad.models.failures import Blame, Partition
from daskgrad.models.model import Call, Model
from daskgrad.models.pullbacks import (
    Active,
    Captured,
    Gradient,
    Seen,
    Tracer,
    each_of,
    is_kept,
    log_retrace,
    plain_value,
    seed,
    seen_by,
    share_out,
)
from daskgrad.sums.block_pullback import Terms
from daskgrad.sums.item_cotangents import Gathered, Widths, factor_of_terms, items_of
from daskgrad.values import compensated, cotangents
from daskgrad.values.compensated import (
    Unrounded,
    UnroundedValue,
    final_leaves,
    rounded_value,
    taken_apart,
)
from daskgrad.values.cotangents import (
    ONE_REAL_NUMBER,
    Cotangent,
    Leaves,
    Part,
    Seed,
    as_summand,
    describe,
    is_zero,
)
from daskgrad.values.fingerprints import Fingerprint
from daskgrad.values.protection import as_it_is, read_only_leaf
from daskgrad.values.summation import Add, Adders, PairwiseSum, pairwise
from daskgrad.values.trees import Structure, flatten


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


# ------------------------------------------------------------------------ the tasks of a block

Term = tuple[Any, Any, Widths]  # value, pullback, the numbers of leaves of its item's parts
First = int | Partition  # the index of a block's first item, or the partition that is the block


class Nothing:
    """The value of a block without items, of which there is one: adding it changes nothing."""

    def __reduce__(self) -> str:
        return "NOTHING"

    def __repr__(self) -> str:
        return "NOTHING"


NOTHING = Nothing()


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


def captured_sum(value: Any, pullback: Any, seen: tuple[Seen, ...], is_part: bool) -> Captured:
    """A sum and its pullback, rounded unless ``is_part``; fingerprints are of rounded values."""
    if is_part:
        return Captured(value, pullback, seen)
    if isinstance(pullback, Gradient):
        pullback = pullback.with_leaves(final_leaves(pullback.leaves))
    return Captured(rounded_value(value), pullback, seen)


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
            pullback.unpack()
        if isinstance(pullback, Terms) and pullback.is_empty:
            log_retrace(model, whole.call, described)
            tape = model._replace(keep="tape")
            again = capture_block(tape, whole, first, inputs, *columns)
            require_same_value(captured, again.fingerprint, model)
            pullback = again.pullback
            if model.keep != "recompute" and is_kept(pullback):
                captured.pullback = pullback
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
        return Part(shared_out.leaves, factor, shared_out.seen)
    return tuple([Part(part.leaves, factor, part.seen) for part in shared_out])


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


# ------------------------------------------------------------------------------------- adding


def add_captured(
    model: Model, blocks: Sequence[Captured], summation: str = "pairwise", is_last: bool = True
) -> Captured:
    """The sum of blocks whose terms are scalars, with its gradient.

    The last one is of all blocks, and rounds it.
    """
    if all(block.value is NOTHING for block in blocks):
        require_items(is_last, model.name)
        return blocks[0]
    blocks = [block for block in blocks if block.value is not NOTHING]
    for block in blocks:
        require_gradient(block, model)
    value = pairwise([block.value for block in blocks], ADDERS[summation].values)
    leaves = pairwise([block.pullback.leaves for block in blocks], ADDERS[summation].cotangents)
    return captured_sum(value, Gradient(leaves), blocks[0].seen, is_part=not is_last)


def require_gradient(block: Captured, model: Model) -> None:
    if not isinstance(block.pullback, Gradient):
        raise TypeError(
            f"the gradient of a sum over {model.name!r} was asked for, but its terms are "
            f"{describe(rounded_value(block.value))}; {ONE_REAL_NUMBER}"
        )


def add_cotangents(
    terms: Sequence[Cotangent],
    saw_value: Sequence[bool],
    add: Add = cotangents.add,
    name: str = "",
) -> Cotangent:
    """The sum of the cotangents that the consumers of one value return; ``name``: of its model.

    Those that worked on the value itself (``saw_value``) must have seen the same one.
    """
    pairs = zip(terms, saw_value, strict=True)
    seen = [term.seen for term, saw in pairs if saw and term.seen is not None]
    for other in seen[1:]:
        require_same_input(seen[0], other, name)
    seeds = [term for term in terms if isinstance(term, Seed)]
    like: Leaves = next((term.leaves for term in terms if not is_zero(term.leaves)), ())
    if seeds and not like:  # nothing else than seeds and symbolic zeros
        return Seed(sum([term.times for term in seeds]))
    leaves = [(s.like(like[0]),) if isinstance(s, Seed) else s.leaves for s in terms]
    return Cotangent(pairwise(leaves, add), seen[0] if seen else None)


def add_parts(
    parts: Sequence[Cotangent], is_last: bool, summation: str = "pairwise", name: str = ""
) -> Cotangent:
    """The sum of the cotangents that the blocks of a sum return; the last one rounds and scales it.

    Blocks whose terms are of other dtypes have other factors: they are scaled one by one, and the
    last bits depend on how the sum was cut.
    """
    factors = [part.factor for part in parts if isinstance(part, Part) and not is_zero(part.leaves)]
    if not is_one_factor(factors, parts):
        parts, factors = [scaled(part) for part in parts], []
    total = add_cotangents(parts, (True,) * len(parts), ADDERS[summation].cotangents, name)
    if not factors:
        return Cotangent(final_leaves(total.leaves), total.seen) if is_last else total
    sum_of_parts = Part(total.leaves, factors[0], total.seen)
    return scaled(sum_of_parts) if is_last else sum_of_parts


def is_one_factor(factors: Sequence[Any], parts: Sequence[Cotangent]) -> bool:
    """Whether all parts that are not zero wait for one factor, or none does."""
    kinds = {(factor, np.asarray(factor).dtype) for factor in factors}
    nonzero = len([part for part in parts if not is_zero(part.leaves)])
    return len(kinds) <= 1 and len(factors) in (0, nonzero)


def scaled(part: Cotangent) -> Cotangent:
    if isinstance(part, Part):
        leaves = final_leaves(part.leaves)
        return Cotangent(cotangents.scale(leaves, part.factor), part.seen)
    return part


def sum_values(
    values: Sequence[Any], summation: str = "pairwise", is_last: bool = True, name: str = "sum"
) -> Any:
    """The sum of values of one structure and shape; the last one is of all, and rounds it."""
    values = [value for value in values if value is not NOTHING]
    if not values:
        require_items(is_last, name)
        return NOTHING
    total = pairwise(values, ADDERS[summation].values)
    return rounded_value(total) if is_last else total


def add_seen(
    values: Sequence[Any], summation: str = "pairwise", is_last: bool = True, name: str = "sum"
) -> Added:
    """As ``sum_values``, with the fingerprints of what was added up, which may be such sums."""
    whole = [each if isinstance(each, Added) else Added(each, (seen_of(each),)) for each in values]
    total = sum_values([each.value for each in whole], summation, is_last, name)
    return Added(total, tuple([each for added in whole for each in added.prints]))


def seen_of(value: Any) -> Fingerprint:
    return () if value is NOTHING else print_of(value)


def require_items(is_last: bool, name: str) -> None:
    if is_last:
        raise ValueError(
            f"no partition of the items of model {name!r} holds an item, and an empty sum has no "
            f"shape; sum at least one"
        )


def add_values(first: Any, second: Any, owned: bool = False) -> Any:
    """The sum of two values, leaf by leaf, of one structure and shape.

    ``owned`` says that the first is a result of this function, and may be overwritten.
    """
    if type(first) is np.float64 and type(second) is np.float64:
        return first + second
    leaves, structure = flatten(first)
    others, other_structure = flatten(second)
    if structure != other_structure or list(map(np.shape, leaves)) != list(map(np.shape, others)):
        raise not_alike(first, second)
    pairs = zip(leaves, others, strict=True)
    return optree.tree_unflatten(structure, [_add_leaf(a, b, owned) for a, b in pairs])


def add_compensated(first: Any, second: Any, owned: bool = False) -> Any:
    """As ``add_values``, of values and unrounded sums; overwrites nothing."""
    leaves, structure = taken_apart(first)
    others, other = taken_apart(second)
    shapes, other_shapes = list(map(np.shape, leaves)), list(map(np.shape, others))
    if structure.spec != other.spec or shapes != other_shapes:
        raise not_alike(rounded_value(first), rounded_value(second))
    require_numbers([*leaves, *others])
    pairs = zip(leaves, others, strict=True)
    return UnroundedValue([compensated.add_leaf(a, b) for a, b in pairs], structure)


ADDERS = {
    "pairwise": Adders(add_values, cotangents.add),
    "compensated": Adders(add_compensated, compensated.add),
}


def not_alike(first: Any, second: Any) -> ValueError:
    return ValueError(
        f"the terms of a sum must have one structure and shape; "
        f"found {describe(first)} and {describe(second)}"
    )


OBJECTS = np.dtype(object)
NUMBERS = (np.ndarray, np.generic, int, float, complex, Unrounded)


def require_numbers(leaves: Sequence[Any]) -> None:
    for leaf in leaves:
        if not isinstance(leaf, NUMBERS) or getattr(leaf, "dtype", OBJECTS).kind in "USMV":
            raise TypeError(f"the terms of a sum must be numbers; found {describe(leaf)}")
        if isinstance(leaf, np.ma.MaskedArray):
            raise TypeError(
                f"the terms of a sum must be numbers; found a masked array, {describe(leaf)}, "
                f"whose mask would be lost: fill it, or sum what is not masked"
            )


def _add_leaf(first: Any, second: Any, owned: bool) -> Any:
    require_numbers((first, second))
    first, second = as_summand(first), as_summand(second)
    if owned and isinstance(first, np.ndarray) and first.dtype == getattr(second, "dtype", None):
        return np.add(first, second, out=first)
    return first + second
