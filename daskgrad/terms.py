"""Terms: a block of a sum of models, evaluated in one task.

A block is a run of items; its terms are ``model(item, *shared)``. A scalar term is pulled back at
once, while its tape is hot, and only the sum of the gradients is kept: 256 small models took 0.28 s
so, and 0.65 to 0.87 s on one long tape. Terms that are arrays keep a pullback each.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import optree

from daskgrad import cotangents
from daskgrad.blame import Blame
from daskgrad.cotangents import Cotangent, Leaves, Part, Seed, describe, is_zero
from daskgrad.models import Call, Model
from daskgrad.pullbacks import (
    Active,
    Captured,
    Gradient,
    Pullback,
    Tracer,
    log_retrace,
    plain_value,
    require_same_input,
    require_same_value,
    require_value_seen,
    seed,
    seen_by,
    share_out,
)
from daskgrad.structures import Structure, flatten
from daskgrad.summation import PairwiseSum, pairwise

ITEM = 0  # the number of the item among the inputs of a term


class Terms:
    """The pullback of a sum of terms that are not scalars: each term's own, in order.

    Empty after it has moved, as ``Pullback`` is.
    """

    __slots__ = ("pullbacks",)

    def __init__(self, pullbacks: Sequence[Any] = ()):
        self.pullbacks = pullbacks

    def __repr__(self) -> str:
        return f"Terms({len(self.pullbacks)} pullbacks)"

    def __reduce__(self):
        return Terms, ()

    def __sizeof__(self) -> int:
        return object.__sizeof__(self) + sum([p.__sizeof__() for p in self.pullbacks])

    @property
    def is_empty(self) -> bool:
        return not self.pullbacks or any(
            isinstance(pullback, Pullback) and pullback.is_empty for pullback in self.pullbacks
        )

    def __call__(self, cotangent: Leaves) -> Leaves:
        return pairwise((pullback(cotangent) for pullback in self.pullbacks), cotangents.add)


# ------------------------------------------------------------------------ the tasks of a block


def evaluate_block(
    model: Model, call: Call, first: int, items: Sequence[Any], inputs: Sequence[Any]
) -> Any:
    """The sum of the block's terms; traces nothing. ``first`` is the index of its first item."""
    values = PairwiseSum(add_values)
    for index, item in enumerate(items, first):
        with Blame("value", model, call, [item, *inputs], index):
            values.push(plain_value(model, call, [item, *inputs]))
    return values.total()


def capture_block(
    model: Model,
    call: Call,
    active: Sequence[Active],
    first: int,
    items: Sequence[Any],
    inputs: Sequence[Any],
) -> Captured:
    """The sum of the block's terms and its pullback with respect to the shared inputs."""
    return TracedSum(model, call, active, inputs).capture(first, items)


class TracedSum:
    """Captures blocks of one sum; the shared inputs are taken apart only once."""

    def __init__(self, model: Model, call: Call, active: Sequence[Active], inputs: Sequence[Any]):
        self._model = model
        self._call = call
        self._inputs = inputs
        self._tracer = Tracer(model, call, active, [None, *inputs], in_sum=True)
        self._seen = seen_by(active, [None, *inputs])

    def capture(self, first: int, items: Sequence[Any]) -> Captured:
        """The sum of the terms of a block, whose first item has the index ``first``."""
        values, gradients = PairwiseSum(add_values), PairwiseSum(cotangents.add)
        kept, scalars = [], 0
        for index, item in enumerate(items, first):
            value, pullback = self._term(index, item)
            values.push(value)
            if isinstance(pullback, Gradient):
                gradients.push(pullback.leaves)
            if isinstance(pullback, Gradient) and not pullback.is_zero:
                scalars += 1
            else:
                kept.append(pullback)
        if all(isinstance(pullback, Gradient) for pullback in kept):
            return Captured(values.total(), Gradient(gradients.total()), self._seen)
        if scalars:
            raise TypeError(
                f"the terms of a sum over {self._model.name!r} must be of one kind; {scalars} of "
                f"{len(items)} in one task returned one real number, and others something else"
            )
        return Captured(values.total(), Terms(kept), self._seen)

    def _term(self, index: int, item: Any) -> tuple[Any, Any]:
        inputs = [item, *self._inputs]
        with Blame("forward", self._model, self._call, inputs, index):
            return self._tracer.run(inputs)


def pull_back_block(
    captured: Captured,
    cotangent: Cotangent,
    model: Model,
    call: Call,
    active: Sequence[Active],
    first: int,
    items: Sequence[Any],
    inputs: Sequence[Any],
    witness: Any,
    is_part: bool = False,
) -> Cotangent | tuple[Cotangent, ...]:
    """The cotangents of the active shared inputs of a block; a single one is not wrapped.

    ``is_part``: there are other blocks, and ``add_parts`` adds up what they return.
    """
    with Blame("backward", model, call, [describe_block(first, items), *inputs]):
        require_value_seen(captured, cotangent, witness, model)
        pullback = captured.pullback
        if isinstance(pullback, Terms) and pullback.is_empty:
            log_retrace(model, call, [describe_block(first, items), *inputs])
            tape = model._replace(keep="tape")
            again = capture_block(tape, call, active, first, items, inputs)
            require_same_value(captured, again.fingerprint, model)
            pullback = again.pullback
        leaves = seed(cotangent, captured.value, model)
        waits = isinstance(pullback, Gradient) and not pullback.is_zero
        if is_part and waits and leaves[0] is not None:
            return as_parts(share_out(pullback.leaves, captured.seen), leaves[0])
        return share_out(pullback(leaves), captured.seen)


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


def describe_block(first: int, items: Sequence[Any]) -> str:
    return f"items {first} to {first + len(items) - 1}"


# ------------------------------------------------------------------------------------- adding


def add_captured(model: Model, blocks: Sequence[Captured]) -> Captured:
    """The sum of blocks whose terms are scalars, with its gradient."""
    for block in blocks:
        if not isinstance(block.pullback, Gradient):
            raise TypeError(
                f"the gradient of a sum over {model.name!r} was asked for, but its terms are "
                f"{describe(block.value)}; a gradient needs one real number: sum it up, or use vjp"
            )
    value = pairwise([block.value for block in blocks], add_values)
    leaves = pairwise([block.pullback.leaves for block in blocks], cotangents.add)
    return Captured(value, Gradient(leaves), blocks[0].seen)


def add_cotangents(terms: Sequence[Cotangent], saw_value: Sequence[bool]) -> Cotangent:
    """The sum of the cotangents that the consumers of one value return.

    Those that worked on the value itself (``saw_value``) must have seen the same one.
    """
    pairs = zip(terms, saw_value, strict=True)
    seen = [term.seen for term, saw in pairs if saw and term.seen is not None]
    for other in seen[1:]:
        require_same_input(seen[0], other)
    seeds = [term for term in terms if isinstance(term, Seed)]
    like: Leaves = next((term.leaves for term in terms if not is_zero(term.leaves)), ())
    if seeds and not like:  # nothing else than seeds and symbolic zeros
        return Seed(sum([term.times for term in seeds]))
    leaves = [(s.like(like[0]),) if isinstance(s, Seed) else s.leaves for s in terms]
    return Cotangent(pairwise(leaves, cotangents.add), seen[0] if seen else None)


def add_parts(parts: Sequence[Cotangent], is_last: bool) -> Cotangent:
    """The sum of the cotangents that the blocks of a sum return; the last one scales it.

    Blocks whose terms are of other dtypes have other factors: they are scaled one by one, and the
    last bits depend on how the sum was cut.
    """
    factors = [part.factor for part in parts if isinstance(part, Part) and not is_zero(part.leaves)]
    if not is_one_factor(factors, parts):
        parts, factors = [scaled(part) for part in parts], []
    total = add_cotangents(parts, (True,) * len(parts))
    if not factors:
        return total
    sum_of_parts = Part(total.leaves, factors[0], total.seen)
    return scaled(sum_of_parts) if is_last else sum_of_parts


def is_one_factor(factors: Sequence[Any], parts: Sequence[Cotangent]) -> bool:
    """Whether all parts that are not zero wait for one factor, or none does."""
    kinds = {(factor, np.asarray(factor).dtype) for factor in factors}
    nonzero = len([part for part in parts if not is_zero(part.leaves)])
    return len(kinds) <= 1 and len(factors) in (0, nonzero)


def scaled(part: Cotangent) -> Cotangent:
    if isinstance(part, Part):
        return Cotangent(cotangents.scale(part.leaves, part.factor), part.seen)
    return part


def sum_values(values: Sequence[Any]) -> Any:
    """The sum of values of one structure and shape."""
    return pairwise(values, add_values)


def add_values(first: Any, second: Any, owned: bool = False) -> Any:
    """The sum of two values, leaf by leaf, of one structure and shape.

    ``owned`` says that the first is a result of this function, and may be overwritten.
    """
    if type(first) is np.float64 and type(second) is np.float64:
        return first + second
    leaves, structure = flatten(first)
    others, other_structure = flatten(second)
    if structure != other_structure or list(map(np.shape, leaves)) != list(map(np.shape, others)):
        raise ValueError(
            f"the terms of a sum must have one structure and shape; "
            f"found {describe(first)} and {describe(second)}"
        )
    pairs = zip(leaves, others, strict=True)
    return optree.tree_unflatten(structure, [_add_leaf(a, b, owned) for a, b in pairs])


def _add_leaf(first: Any, second: Any, owned: bool) -> Any:
    for leaf in (first, second):
        if not isinstance(leaf, np.ndarray | np.generic | int | float | complex):
            raise TypeError(f"the terms of a sum must be numbers; found {describe(leaf)}")
    if owned and isinstance(first, np.ndarray) and first.dtype == getattr(second, "dtype", None):
        return np.add(first, second, out=first)
    return first + second
