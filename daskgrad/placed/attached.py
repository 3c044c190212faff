"""Attached: arrays with a row for each placed item, which stay where the items are.

The client has the arrays of one version, and the steps since: the changes by optimisers, and
recipes of the cotangents that workers kept for them. Workers hold the latest version, block by
block, as copies that may be lost. The client makes a lost block again by repeating the steps for
it. It fetches the arrays before it would have to remember or to repeat too much.
"""

import contextlib
import uuid
import weakref
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from daskgrad.autodiff.values.cotangents import nbytes
from daskgrad.autodiff.values.descriptions import describe
from daskgrad.autodiff.values.elsewhere import AttachedElsewhere, CotangentElsewhere, Update
from daskgrad.autodiff.values.memory import canonical, canonical_leaf, of_its_own, require_room
from daskgrad.autodiff.values.trees import flatten
from daskgrad.placed.connection import Connection
from daskgrad.placed.messages import AttachedRows, Frames, Parcel, copy_frames, pack, unpack
from daskgrad.placed.replicas import FramesSince, Readable, replicated_in
from daskgrad.placed.request import SpreadSum
from daskgrad.placed.spread import NO_BLOCKS, Assignment, Holdings
from daskgrad.placed.updates import (
    Added,
    Arrays,
    Blocks,
    Change,
    Expression,
    KeptCotangent,
    LatestSteps,
    Scaled,
    VersionStep,
    finder,
)
from daskgrad.sums.block_tasks import TracedSum

# -------------------------------------------------------------------------------------------------
# Recipes: with them the client repeats a call, after a worker was lost with its cotangents.


class Hold:
    """While it is there, the workers keep the cotangents of a call."""

    def __init__(self, call: str, dropped: deque[str]):
        weakref.finalize(self, dropped.append, call).atexit = False


class RepeatableSum(NamedTuple):
    """A sum as the workers got it, with the parcel of its model and summand."""

    sum: SpreadSum
    parcel: Parcel

    def cotangents(self, number: int, arrays: Arrays) -> list[Any]:
        """The cotangents of a block's differentiated fields, given its attached arrays.

        RuntimeError if an array that an argument holds has changed since.
        """
        if not self.parcel.is_intact():
            raise RuntimeError(
                f"a worker was lost, and what the sum over {self.sum.model.name!r} had kept there "
                f"cannot be made again, since an array that an argument holds was changed "
                f"in place; pass the array itself"
            )
        model, summand = canonical(unpack(self.parcel.frames))
        spread: Any = self.sum.spread
        block = spread.blocks[number]
        first, stop = block.first, block.first + len(block.items)
        rows = [
            arrays[field.name] if isinstance(field, AttachedRows) else field[first:stop]
            for field in self.sum.sent
        ]
        traced = TracedSum(model, summand, self.sum.inputs)
        captured = traced.capture(first, *traced.fields(rows, block.items))
        return [leaves[0] for leaves in captured.pullback.item_cotangents]


class Recipe:
    """A call that kept cotangents of attached arrays of one ``version``, in a layout.

    ``sums`` differentiate the arrays, by their numbers in the call. They are empty if nobody can
    repeat them: they would take more than ``limit`` bytes, or use replicated arrays, which change.
    """

    def __init__(
        self, layout: "BlockLayout", version: int, sums: dict[int, RepeatableSum], limit: int
    ):
        self.layout, self.version, self.sums = layout, version, {}
        arguments = [(list(s.sum.inputs), list(s.sum.sent)) for s in sums.values()]
        self.cost = nbytes(flatten(arguments)[0])
        if self.cost <= limit and not replicated_in([inputs for inputs, _ in arguments]):
            pairs = zip(sums.items(), of_its_own(arguments), strict=True)
            for (number, repeatable), (inputs, sent) in pairs:
                copied = repeatable.sum._replace(inputs=inputs, sent=sent)
                self.sums[number] = repeatable._replace(sum=copied)

    def cotangent(self, ticket: str, number: int, arrays: Arrays) -> Any:
        """The cotangent of a block under a ticket of the call, evaluated here."""
        _, place, field = ticket.rsplit("/", 2)
        return self.sums[int(place)].cotangents(number, arrays)[int(field)]


# -------------------------------------------------------------------------------------- attachment

STEPS = 128  # that are repeated at most
LEAST = 2**20  # bytes that may be remembered, however small the arrays are
LOST = "a gradient of an attached array is not there any more"


class RemoteGradient(NamedTuple):
    """A gradient that workers keep: an expression in kept cotangents, and their recipes."""

    expression: Expression
    recipes: dict[str, Recipe]  # by ticket
    holds: tuple[Hold, ...]


class Logged(NamedTuple):
    """A step and the recipes of its cotangents; ``holds`` until all workers have taken it."""

    step: VersionStep
    recipes: dict[str, Recipe]
    holds: list[Hold]


def as_change(update: Update) -> tuple[Change, Any]:
    """The change of each block, and the gradient."""
    names = [slot.name for slot in update.slots]
    options = update.optimiser, update.rate, update.steps, names
    change = Change(update.array.name, KeptCotangent(""), *options)
    gradient = update.gradient
    return change, gradient.kept if isinstance(gradient, CotangentElsewhere) else gradient


class BlockLayout:
    """A way of cutting the arrays into blocks, and which worker holds which.

    The workers keep the blocks until it is released, and cotangents of them while it is there.
    """

    def __init__(self, name: str, connection: Connection, spread: Holdings):
        self.name = name
        self._connection = connection
        self.spread: Holdings | None = spread
        self.slices = [slice(b.first, b.first + len(b.items)) for b in spread.blocks]
        self.assigned: Mapping[str, Assignment] = {}  # the blocks that workers got
        self._addresses: set[str] = set()
        weakref.finalize(self, connection.tell, self._addresses, "forget", name).atexit = False

    def release(self) -> None:
        """Has the workers drop the blocks."""
        self.spread = None
        self._connection.tell(self._addresses, "release", self.name)

    def lacking(self, assigned: Mapping[str, Assignment], since: int) -> dict[str, list[int]]:
        """The blocks that workers lack, or have in a version before ``since``; they count as
        unknown from now on."""
        lacking = {}
        for address, of in assigned.items():
            version = self._connection.version(address, self.name)
            is_known = version is not None and version >= since
            if is_known and of is self.assigned.get(address):
                continue
            held = self.assigned.get(address, NO_BLOCKS).numbers if is_known else []
            if numbers := sorted({*of.numbers} - {*held}):
                lacking[address] = numbers
                self._connection.note(address, {self.name: None})
        self.assigned = assigned
        self._addresses.update(assigned)
        return lacking

    def note(self, version: int, blocks: Mapping[str, Collection[int]]) -> None:
        """Notes that workers have these blocks in a version."""
        for address, numbers in blocks.items():
            if {*self.assigned.get(address, NO_BLOCKS).numbers} <= {*numbers}:
                self._connection.note(address, {self.name: version})

    def ask(self, purpose: str, *question: Any) -> dict[str, dict[int, Any]]:
        """The answers of all workers that may hold blocks, block by block."""
        return self._connection.ask(sorted(self._addresses), purpose, *question)


class Attachment(Readable):
    """The arrays by name, with a row for each item; all have one version."""

    def __init__(self) -> None:
        super().__init__("arrays that are attached to its items")
        self.version = 0
        self.dropped: deque[str] = deque()  # calls: nobody needs their cotangents any more
        self.users: weakref.WeakValueDictionary[str, Any] = weakref.WeakValueDictionary()
        self.gradients: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
        self._arrays: Arrays = {}
        self._kept_version = 0  # the version of the arrays here
        self._log: list[Logged] = []  # the steps since
        self._layout: BlockLayout | None = None
        self._layouts = 0
        self._key = f"attached-{uuid.uuid4().hex}"

    # ---- the arrays here

    def collect(self) -> Arrays:
        """The arrays in their latest version."""
        with self._lock:
            if self._kept_version < self.version:
                self._arrays = self._gather()
                self._kept_version = self.version
                self._log = []
            if self._arrays.keys() - self.users.keys():  # nobody can ask for these any more
                users = set(self.users)
                self._arrays = {name: a for name, a in self._arrays.items() if name in users}
                if self._layout is not None:
                    self._layout.assigned = {}  # workers get all blocks again
            return self._arrays

    def rows(self, name: str, indices: Any) -> np.ndarray | None:
        """Rows of an array, in memory of their own; None if nobody has filled it."""
        with self._lock:
            array = self.collect().get(name)
            return None if array is None else np.array(array[indices])

    @contextlib.contextmanager
    def rewriting(self) -> Iterator[Arrays]:
        """The arrays, to be changed here; the workers get them again."""
        with self._lock:
            arrays = self.collect()
            self.version += 1
            self._kept_version = self.version
            yield arrays

    def bring(self) -> None:
        """Brings the arrays and their gradients here."""
        with self._lock:
            for gradient in [reference() for reference in self.gradients.valuerefs()]:
                if gradient is not None:
                    gradient.leave()
            self.collect()  # last: a gradient of an earlier version cannot be made again then

    def leave(self) -> None:
        """Brings the arrays here, and has workers drop their blocks."""
        with self._lock:
            self.collect()
            self._cut_as(None)

    def _cut_as(self, layout: BlockLayout | None) -> None:
        if self._layout is not None:
            self._layout.release()
        self._layout = layout

    def _gather(self) -> Arrays:
        layout = self._layout
        assert layout is not None  # steps are taken where blocks are held
        question = "blocks", layout.name, self.version, self.steps()
        answers = layout.ask("attached arrays were asked for", *question)
        layout.note(self.version, answers)
        blocks = {n: arrays for of_worker in answers.values() for n, arrays in of_worker.items()}
        gathered: Arrays = {}
        for number, rows in enumerate(layout.slices):
            arrays = blocks[number] if number in blocks else self._repeat(layout, number)
            for name, array in arrays.items():
                if name not in gathered:
                    shape = layout.slices[-1].stop, *array.shape[1:]
                    gathered[name] = np.empty(shape, array.dtype)
                gathered[name][rows] = array
        return gathered

    def _repeat(self, layout: BlockLayout, number: int, until: int | None = None) -> Arrays:
        """A block's arrays, made again by the steps since the version that is kept."""
        rows = layout.slices[number]
        arrays = {name: array[rows].copy() for name, array in self._arrays.items()}
        recipes = {t: recipe for logged in self._log for t, recipe in logged.recipes.items()}
        made: dict[str, dict[int, Any]] = {}
        for logged in self._log:
            version = logged.step.version - 1
            if version == until:
                break
            for ticket, recipe in recipes.items():
                if recipe.version == version and ticket not in made:
                    made[ticket] = {number: recipe.cotangent(ticket, number, arrays)}
            logged.step.take(arrays, finder(made, number))
        return arrays

    # ---- steps

    def ready(self, updates: Sequence[Update]) -> Callable[[], None]:
        """A function that takes a step; gradients are arrays, or kept by workers.

        Errors come before that. No evaluation uses the arrays meanwhile (``without_readers``).
        """
        changes = list(map(as_change, updates))
        gradients = [gradient for _, gradient in changes]
        are_of_rows = any([change.is_of_rows for change, _ in changes])
        if self._are_repeatable(gradients) and self._is_much(gradients):
            self.collect()  # after that nothing before can be repeated
        if self._are_repeatable(gradients) and not are_of_rows:
            sent = as_sent([change._replace(gradient=g.expression) for change, g in changes])
            if sent is not None:
                return partial(self._note, sent, gradients)
        local = [
            (change, self.gradient(g, change.name) if isinstance(g, RemoteGradient) else g)
            for change, g in changes
        ]
        return partial(self._step_here, local)

    def _note(self, changes: Sequence[Change], gradients: Sequence[RemoteGradient]) -> None:
        holds = [hold for gradient in gradients for hold in gradient.holds]
        self.version += 1
        self._log.append(Logged(VersionStep(self.version, changes), recipes_of(gradients), holds))

    def _step_here(self, changes: Sequence[tuple[Change, np.ndarray]]) -> None:
        with self.rewriting() as arrays:
            for change, gradient in changes:
                change.apply(arrays, finder({"": {0: gradient}}, 0))

    def _are_repeatable(self, gradients: Sequence[Any]) -> bool:
        """Whether the cotangents are kept by workers, and could be made again if they were lost."""
        return all([isinstance(gradient, RemoteGradient) for gradient in gradients]) and all(
            [
                recipe.layout is self._layout and self._is_remembered(recipe)
                for recipe in recipes_of(gradients).values()
            ]
        )

    def _is_remembered(self, recipe: Recipe) -> bool:
        return bool(recipe.sums) and recipe.version >= self._kept_version

    def _is_much(self, more: Sequence[RemoteGradient]) -> bool:
        """Whether a log with these gradients would be too long."""
        recipes = {*recipes_of(self._log).values(), *recipes_of(more).values()}
        cost = sum([recipe.cost for recipe in recipes])
        return len(self._log) >= STEPS or cost > self.limit

    @property
    def limit(self) -> int:
        """The bytes that may be remembered instead of the arrays themselves."""
        return max(LEAST, sum([array.nbytes for array in self._arrays.values()]))

    # ---- calls

    def settle(self, connection: Connection, spread: Holdings) -> "AttachedVersion | None":
        """The arrays for a request; None if an evaluation that is cut otherwise uses them."""
        with self._lock:
            layout = self._layout
            if layout is None or layout.spread is not spread:
                if self._readers > 1:
                    return None
                self.collect()
                self._layouts += 1
                layout = BlockLayout(f"{self._key}-{self._layouts}", connection, spread)
                self._cut_as(layout)
            lacking = layout.lacking(spread.assigned(), self._kept_version)
            arrays = self.collect() if lacking else {}
            blocks: dict[str, Frames] = {}
            for address, numbers in lacking.items():
                rows = {n: layout.slices[n] for n in numbers}
                cut = {n: {name: a[of] for name, a in arrays.items()} for n, of in rows.items()}
                blocks[address] = pack(Blocks(cut))
            steps = self.steps()
            frames = pack(steps) if steps.steps else []
            return AttachedVersion(self, layout, self.version, frames, blocks, list(self.dropped))

    def steps(self) -> LatestSteps:
        """The steps that some workers may not have taken."""
        return LatestSteps([logged.step for logged in self._log if logged.holds])

    def taken(self, version: "AttachedVersion") -> None:
        """Notes that all workers have a version, and have dropped its ``dropped`` calls."""
        with self._lock:
            for logged in self._log:
                if logged.step.version <= version.version:
                    logged.holds.clear()
            while self.dropped and self.dropped[0] in version.dropped:
                self.dropped.popleft()

    def gradient(self, gradient: RemoteGradient, name: str) -> np.ndarray:
        """A gradient that workers keep, brought here.

        RuntimeError if it was lost with a worker, and the arrays have changed since.
        """
        with self._lock:
            like = self._arrays[name]
            whole = {t: {0: self._whole(t, r, like)} for t, r in gradient.recipes.items()}
            return gradient.expression.of_block(finder(whole, 0), like)

    def _whole(self, ticket: str, recipe: Recipe, like: np.ndarray) -> np.ndarray:
        """The cotangents under a ticket, as one array; lost blocks are made again."""
        layout = recipe.layout
        answers = layout.ask("a gradient was asked for", "kept", ticket)
        kept = {number: c for blocks in answers.values() for number, c in blocks.items()}
        for number in range(len(layout.slices)):
            if number not in kept:
                if not self._is_remembered(recipe):
                    raise RuntimeError(f"{LOST}; evaluate again")
                arrays = self._repeat(layout, number, recipe.version)
                kept[number] = recipe.cotangent(ticket, number, arrays)
        return np.concatenate(
            [
                np.zeros_like(like[rows]) if kept[number] is None else kept[number]
                for number, rows in enumerate(layout.slices)
            ]
        )


class AttachedVersion(NamedTuple):
    """The attached arrays of some shards as a request uses them.

    ``blocks`` are for the workers that lack them; nobody needs cotangents of ``dropped`` calls.
    """

    attachment: Attachment
    layout: BlockLayout
    version: int
    steps: Frames
    blocks: Mapping[str, Frames]
    dropped: Sequence[str]

    @property
    def name(self) -> str:
        return self.layout.name

    def update(self, since: int | None) -> FramesSince:
        """The steps that a worker may lack."""
        return 0, self.steps


def recipes_of(gradients: Sequence[RemoteGradient | Logged]) -> dict[str, Recipe]:
    """The recipes of gradients, by ticket."""
    return {ticket: recipe for gradient in gradients for ticket, recipe in gradient.recipes.items()}


def as_sent(changes: Sequence[Change]) -> Sequence[Change] | None:
    """The changes, with the optimiser as it is now; None if they cannot be sent."""
    try:
        return unpack(copy_frames(pack(changes)))
    except Exception:  # the user's own optimiser cannot be sent: steps are taken here
        return None


# ---------------------------------------------------------------------------------------- arrays


class Attached(AttachedElsewhere):
    """An array with a row for each placed item; made by ``Shards.attach``.

    ``np.asarray`` fetches it. ``attachment`` has it under ``name``, beside optimisers' arrays.
    """

    def __init__(self, attachment: Attachment, shape: tuple[int, ...], dtype: np.dtype):
        self.attachment = attachment
        self.name = uuid.uuid4().hex
        self.shape, self.dtype = shape, dtype
        attachment.users[self.name] = self

    def fetch(self) -> np.ndarray:
        array = self.attachment.rows(self.name, slice(None))
        return np.zeros(self.shape, self.dtype) if array is None else array

    def rows(self, indices: np.ndarray) -> np.ndarray:
        rows = self.attachment.rows(self.name, indices)
        return np.zeros((len(indices), *self.shape[1:]), self.dtype) if rows is None else rows

    def reading(self) -> contextlib.AbstractContextManager[None]:
        return self.attachment.reading()

    def gradient_of(self, cotangent: np.ndarray) -> "AttachedGradient":
        return AttachedGradient(self, cotangent)

    def slot(self) -> "Attached":
        return Attached(self.attachment, self.shape, self.dtype)

    def fill(self, array: np.ndarray) -> None:
        with self.attachment.rewriting() as arrays:
            arrays[self.name] = np.array(array, self.dtype, order="C")


class AttachedGradient(CotangentElsewhere):
    """The gradient of an attached array, which stays with the items, too; for ``dg.optim``.

    ``np.asarray`` fetches it. It is lost with its worker if the array has changed since.
    """

    def __init__(self, attached: Attached, kept: RemoteGradient | np.ndarray):
        self.attached = attached
        self.kept = kept
        self.shape, self.dtype = attached.shape, attached.dtype
        if isinstance(kept, RemoteGradient):
            attached.attachment.gradients[id(self)] = self

    def fetch(self) -> np.ndarray:
        if isinstance(self.kept, RemoteGradient):
            return self.attached.attachment.gradient(self.kept, self.attached.name)
        return self.kept.copy()

    def leave(self) -> None:
        """Fetches the gradient into this process; it stays remote if a worker lost it."""
        with contextlib.suppress(RuntimeError):
            self.kept = self.fetch()

    def scaled(self, factor: Any) -> "AttachedGradient":
        kept = self.kept
        assert isinstance(kept, RemoteGradient)  # arrays become gradients at the very end
        expression = Scaled(kept.expression, factor)
        return AttachedGradient(self.attached, kept._replace(expression=expression))

    def plus(self, other: CotangentElsewhere) -> Any:
        assert isinstance(other, AttachedGradient)
        first, second = self.kept, other.kept
        if (
            isinstance(first, RemoteGradient)
            and isinstance(second, RemoteGradient)
            and other.attached is self.attached
        ):
            expression = Added(first.expression, second.expression)
            recipes, holds = first.recipes | second.recipes, (*first.holds, *second.holds)
            return AttachedGradient(self.attached, RemoteGradient(expression, recipes, holds))
        return self.fetch() + other.fetch()


def attach(attachment: Attachment, count: int, array: Any) -> Attached:
    """As ``Shards.attach`` says."""
    if type(array) not in (np.ndarray, np.memmap) or array.dtype.kind != "f":
        raise TypeError(
            f"Shards.attach takes a plain array of floats, with a row for each item; found "
            f"{describe(array)}; attach the arrays of a pytree one by one"
        )
    if not array.ndim or len(array) != count:
        raise ValueError(
            f"Shards.attach takes an array with a row for each of the {count} items; found "
            f"{describe(array)}"
        )
    require_room(array)
    attached = Attached(attachment, array.shape, canonical_leaf(array[:0]).dtype)
    attached.fill(array)
    return attached
