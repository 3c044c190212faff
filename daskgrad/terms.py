"""Terms: a block of a sum of models, evaluated in one task.

A block is a run of items; its terms are ``model(item, *shared)``. A scalar term is pulled back at
once, while its tape is hot, and only the sum of the gradients is kept: 256 small models took 0.28 s
so, and 0.65 to 0.87 s on one long tape. Terms that are arrays keep a pullback each.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import optree

from daskgrad import compensation, cotangents
from daskgrad.blame import Blame
from daskgrad.compensation import (
    Unrounded,
    UnroundedValue,
    rounded_leaves,
    rounded_value,
    taken_apart,
)
from daskgrad.cotangents import Cotangent, Leaves, Part, Seed, describe, is_zero
from daskgrad.fingerprints import fingerprint
from daskgrad.models import Call, Model
from daskgrad.pullbacks import (
    Active,
    Captured,
    Gradient,
    Pullback,
    Seen,
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
from daskgrad.summation import Add, Adders, PairwiseSum, pairwise

ITEM = 0  # the number of the item among the inputs of a term


class Terms:
    """The pullback of a sum of terms that are not scalars: each term's own, in order.

    Empty after it has moved, as ``Pullback`` is. ``add`` adds two cotangents.
    """

    __slots__ = ("_add", "pullbacks")

    def __init__(self, pullbacks: Sequence[Any] = (), add: Add = cotangents.add):
        self.pullbacks = pullbacks
        self._add = add

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
        return pairwise((pullback(cotangent) for pullback in self.pullbacks), self._add)


# ------------------------------------------------------------------------ the tasks of a block


def evaluate_block(
    model: Model,
    call: Call,
    first: int,
    items: Sequence[Any],
    inputs: Sequence[Any],
    summation: str = "pairwise",
    is_part: bool = False,
) -> Any:
    """The sum of the block's terms; traces nothing. ``first`` is the index of its first item.

    ``is_part``: there are other blocks, and ``sum_values`` adds up what they return.
    """
    values = PairwiseSum(ADDERS[summation].values)
    for index, item in enumerate(items, first):
        with Blame("value", model, call, [item, *inputs], index):
            values.push(plain_value(model, call, [item, *inputs]))
    return values.total() if is_part else rounded_value(values.total())


def capture_block(
    model: Model,
    call: Call,
    active: Sequence[Active],
    first: int,
    items: Sequence[Any],
    inputs: Sequence[Any],
    summation: str = "pairwise",
    is_part: bool = False,
) -> Captured:
    """The sum of the block's terms and its pullback with respect to the shared inputs."""
    return TracedSum(model, call, active, inputs, summation, is_part).capture(first, items)


class TracedSum:
    """Captures blocks of one sum; the shared inputs are taken apart only once.

    ``is_part``: a block is not the whole sum, and is rounded when all have been added up.
    """

    def __init__(
        self,
        model: Model,
        call: Call,
        active: Sequence[Active],
        inputs: Sequence[Any],
        summation: str = "pairwise",
        is_part: bool = False,
    ):
        self._add = ADDERS[summation]
        self._is_part = is_part
        self._model = model
        self._call = call
        self._inputs = inputs
        self._tracer = Tracer(model, call, active, [None, *inputs], in_sum=True)
        self._seen = seen_by(active, [None, *inputs])

    def capture(self, first: int, items: Sequence[Any]) -> Captured:
        """The sum of the terms of a block, whose first item has the index ``first``."""
        values, gradients = PairwiseSum(self._add.values), PairwiseSum(self._add.cotangents)
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
            gradient = Gradient(gradients.total())
            return captured_sum(values.total(), gradient, self._seen, self._is_part)
        if scalars:
            raise TypeError(
                f"the terms of a sum over {self._model.name!r} must be of one kind; {scalars} of "
                f"{len(items)} in one task returned one real number, and others something else"
            )
        terms = Terms(kept, self._add.cotangents)
        return captured_sum(values.total(), terms, self._seen, self._is_part)

    def _term(self, index: int, item: Any) -> tuple[Any, Any]:
        inputs = [item, *self._inputs]
        with Blame("forward", self._model, self._call, inputs, index):
            return self._tracer.run(inputs)


def captured_sum(
    value: Any, pullback: Any, seen: tuple[Seen, ...], is_part: bool = False
) -> Captured:
    """A sum and its pullback, rounded unless ``is_part``; fingerprints are of rounded values."""
    whole = rounded_value(value)
    if not is_part and isinstance(pullback, Gradient):
        pullback = Gradient(rounded_leaves(pullback.leaves))
    print_ = fingerprint(flatten(whole)[0])
    return Captured(value if is_part else whole, pullback, seen, print_)


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
    summation: str = "pairwise",
) -> Cotangent | tuple[Cotangent, ...]:
    """The cotangents of the active shared inputs of a block; a single one is not wrapped.

    ``is_part``: there are other blocks, and ``add_parts`` adds up what they return.
    """
    with Blame("backward", model, call, [describe_block(first, items), *inputs]):
        require_value_seen(captured, cotangent, rounded_value(witness), model)
        pullback = captured.pullback
        if isinstance(pullback, Terms) and pullback.is_empty:
            log_retrace(model, call, [describe_block(first, items), *inputs])
            tape = model._replace(keep="tape")
            again = capture_block(tape, call, active, first, items, inputs, summation, is_part)
            require_same_value(captured, again.fingerprint, model)
            pullback = again.pullback
        leaves = seed(cotangent, rounded_value(captured.value), model)
        waits = isinstance(pullback, Gradient) and not pullback.is_zero
        if is_part and waits and leaves[0] is not None:
            return as_parts(share_out(pullback.leaves, captured.seen), leaves[0])
        pulled = pullback(leaves)
        return share_out(pulled if is_part else rounded_leaves(pulled), captured.seen)


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


def add_captured(
    model: Model, blocks: Sequence[Captured], summation: str = "pairwise", is_last: bool = True
) -> Captured:
    """The sum of blocks whose terms are scalars, with its gradient; the last one rounds it."""
    for block in blocks:
        if not isinstance(block.pullback, Gradient):
            raise TypeError(
                f"the gradient of a sum over {model.name!r} was asked for, but its terms are "
                f"{describe(rounded_value(block.value))}; a gradient needs one real number: "
                f"sum it up, or use vjp"
            )
    value = pairwise([block.value for block in blocks], ADDERS[summation].values)
    leaves = pairwise([block.pullback.leaves for block in blocks], ADDERS[summation].cotangents)
    return captured_sum(value, Gradient(leaves), blocks[0].seen, is_part=not is_last)


def add_cotangents(
    terms: Sequence[Cotangent], saw_value: Sequence[bool], add: Add = cotangents.add
) -> Cotangent:
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
    return Cotangent(pairwise(leaves, add), seen[0] if seen else None)


def add_parts(parts: Sequence[Cotangent], is_last: bool, summation: str = "pairwise") -> Cotangent:
    """The sum of the cotangents that the blocks of a sum return; the last one rounds and scales it.

    Blocks whose terms are of other dtypes have other factors: they are scaled one by one, and the
    last bits depend on how the sum was cut.
    """
    factors = [part.factor for part in parts if isinstance(part, Part) and not is_zero(part.leaves)]
    if not is_one_factor(factors, parts):
        parts, factors = [scaled(part) for part in parts], []
    total = add_cotangents(parts, (True,) * len(parts), ADDERS[summation].cotangents)
    if not factors:
        return Cotangent(rounded_leaves(total.leaves), total.seen) if is_last else total
    sum_of_parts = Part(total.leaves, factors[0], total.seen)
    return scaled(sum_of_parts) if is_last else sum_of_parts


def is_one_factor(factors: Sequence[Any], parts: Sequence[Cotangent]) -> bool:
    """Whether all parts that are not zero wait for one factor, or none does."""
    kinds = {(factor, np.asarray(factor).dtype) for factor in factors}
    nonzero = len([part for part in parts if not is_zero(part.leaves)])
    return len(kinds) <= 1 and len(factors) in (0, nonzero)


def scaled(part: Cotangent) -> Cotangent:
    if isinstance(part, Part):
        leaves = rounded_leaves(part.leaves)
        return Cotangent(cotangents.scale(leaves, part.factor), part.seen)
    return part


def sum_values(values: Sequence[Any], summation: str = "pairwise", is_last: bool = True) -> Any:
    """The sum of values of one structure and shape; the last one rounds it."""
    total = pairwise(values, ADDERS[summation].values)
    return rounded_value(total) if is_last else total


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
    return UnroundedValue([compensation.add_leaf(a, b) for a, b in pairs], structure)


ADDERS = {
    "pairwise": Adders(add_values, cotangents.add),
    "compensated": Adders(add_compensated, compensation.add),
}


def not_alike(first: Any, second: Any) -> ValueError:
    return ValueError(
        f"the terms of a sum must have one structure and shape; "
        f"found {describe(first)} and {describe(second)}"
    )


NUMBERS = (np.ndarray, np.generic, int, float, complex, Unrounded)


def require_numbers(leaves: Sequence[Any]) -> None:
    for leaf in leaves:
        if not isinstance(leaf, NUMBERS):
            raise TypeError(f"the terms of a sum must be numbers; found {describe(leaf)}")


def _add_leaf(first: Any, second: Any, owned: bool) -> Any:
    require_numbers((first, second))
    if owned and isinstance(first, np.ndarray) and first.dtype == getattr(second, "dtype", None):
        return np.add(first, second, out=first)
    return first + second
