"""Attachment: the attached arrays of some shards, whose truth is known here without the arrays.

The client has the arrays of one version, and the steps since: what was evaluated, and what
optimisers did with the cotangents. Workers hold the latest version, block by block, as copies that
may be lost. What is lost is made again from here: the steps are repeated for its blocks. Now and
then, before too much would have to be repeated, the arrays are brought here.
"""

import uuid
import weakref
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple, Protocol

import numpy as np

from daskgrad.autodiff.values.cotangents import nbytes
from daskgrad.autodiff.values.elsewhere import CotangentElsewhere, Update
from daskgrad.autodiff.values.memory import canonical
from daskgrad.autodiff.values.trees import flatten
from daskgrad.placed.messages import (
    AttachedRows,
    Parcel,
    copy_frames,
    pack,
    unpack,
)
from daskgrad.placed.replicas import Readable
from daskgrad.placed.spread import NOTHING_ASKED, Asked, Holdings
from daskgrad.placed.updates import (
    Arrays,
    Blocks,
    Change,
    Expression,
    KeptCotangent,
    Step,
    Steps,
    finder,
)
from daskgrad.sums.block_tasks import TracedSum
from daskgrad.sums.cutting import Block

# -------------------------------------------------------------------------------------------------
# Evaluations: calls whose workers kept cotangents of attached arrays, and how to repeat them.
#
# A worker may be lost with what it kept. So the client remembers what a call was made of, as far as
# that takes little memory, and evaluates lost blocks again.


class Hold:
    """While it is there, the workers keep the cotangents of a call."""

    def __init__(self, call: str, dropped: deque[str]):
        weakref.finalize(self, dropped.append, call).atexit = False


class RepeatableSum(NamedTuple):
    """A sum as its workers got it: the parcel of its model and summand, the shared inputs, the
    fields of the items beside the placed ones, and these in blocks."""

    name: str
    parcel: Parcel
    inputs: Sequence[Any]
    sent: Sequence[Any]
    blocks: Sequence[Block]
    block_items: int

    def cotangents(self, number: int, arrays: Arrays) -> list[Any]:
        """Of the differentiated fields of a block's items, where ``arrays`` are the attached ones'.

        RuntimeError if a constant of the model has changed since.
        """
        if not self.parcel.is_intact():
            raise RuntimeError(
                f"a worker was lost, and what the sum over {self.name!r} had kept there cannot be "
                f"made again, since an argument that is not differentiated was changed in place; "
                f"pass a new array instead"
            )
        model, summand = canonical(unpack(self.parcel.frames))
        first, block = number * self.block_items, self.blocks[number]
        stop = first + self.block_items
        rows = [
            arrays[field.name] if isinstance(field, AttachedRows) else field[first:stop]
            for field in self.sent
        ]
        traced = TracedSum(model, summand, self.inputs)
        captured = traced.capture(first, *traced.fields(rows, block.items))
        return [leaves[0] for leaves in captured.pullback.item_cotangents]


class Evaluation:
    """A call that kept cotangents of attached arrays of one ``version``, in a ``Layout``.

    ``sums`` are those that differentiate them, by their numbers in the call; empty if the call is
    not remembered.
    """

    def __init__(self, layout: "Layout", version: int, sums: dict[int, RepeatableSum]):
        self.layout, self.version, self.sums = layout, version, sums

    @property
    def cost(self) -> int:
        """The bytes that it takes to remember it."""
        return sum([nbytes_of(each.inputs, each.sent) for each in self.sums.values()])

    def cotangent(self, ticket: str, number: int, arrays: Arrays) -> Any:
        """What was kept of a block under a ticket of this call, evaluated here."""
        _, place, field = ticket.rsplit("/", 2)
        return self.sums[int(place)].cotangents(number, arrays)[int(field)]


def nbytes_of(inputs: Sequence[Any], sent: Sequence[Any]) -> int:
    return nbytes(flatten((list(inputs), list(sent)))[0])


# -------------------------------------------------------------------------------------- attachment

STEPS = 128  # at most, that are repeated for what was lost
LEAST = 2**20  # bytes that may be remembered, however small the arrays are


class Gradient(NamedTuple):
    """A cotangent that workers keep: how it is made of what they keep, and the calls of that."""

    expression: Expression
    evaluations: dict[str, Evaluation]  # by ticket
    holds: tuple[Hold, ...]


class Logged(NamedTuple):
    """A step, and what it needs to be repeated; ``holds`` until all workers have taken it."""

    step: Step
    evaluations: dict[str, Evaluation]
    holds: list[Hold]


class Workers(Protocol):
    """The workers of a client, as its connection knows them."""

    def ask(self, addresses: Collection[str], what: str, *question: Any) -> dict[str, Any]: ...

    def tell(self, addresses: Collection[str], method: str, name: str) -> None: ...

    def version(self, address: str, name: str) -> int | None: ...

    def note(self, address: str, versions: Mapping[str, int | None]) -> None: ...


def as_change(update: Update) -> tuple[Change, Any]:
    """What is done to each block, and the gradient."""
    names = [slot.name for slot in update.slots]
    how = (update.optimiser, update.rate, update.steps, names)
    change = Change(update.array.name, KeptCotangent(""), *how)
    gradient = update.gradient
    return change, gradient.kept if isinstance(gradient, CotangentElsewhere) else gradient


class Layout:
    """A way of cutting the arrays into blocks, and which worker holds which.

    The workers keep the blocks until it is released, and cotangents of them while it is there.
    """

    def __init__(self, name: str, workers: Workers, spread: Holdings):
        self.name = name
        self.workers = workers
        self.spread: Holdings | None = spread
        self._block_items = spread.block_items
        self.sizes = [len(block.items) for block in spread.blocks]
        self._asked: Mapping[str, Asked] = {}  # the blocks that workers got
        self._addresses: set[str] = set()
        weakref.finalize(self, workers.tell, self._addresses, "forget", name).atexit = False

    def release(self) -> None:
        """Has the workers drop the blocks."""
        self.spread = None
        self.workers.tell(self._addresses, "release", self.name)

    def rows(self, number: int) -> slice:
        start = number * self._block_items
        return slice(start, start + self.sizes[number])

    def lacking(self, asked: Mapping[str, Asked], since: int) -> dict[str, list[int]]:
        """The blocks that workers lack of those asked for, or have of a version before ``since``.

        They count as unknown from now on.
        """
        lacking = {}
        for address, of in asked.items():
            version = self.workers.version(address, self.name)
            is_known = version is not None and version >= since
            if is_known and of is self._asked.get(address):
                continue
            held = self._asked.get(address, NOTHING_ASKED).numbers if is_known else []
            numbers = sorted({*of.numbers} - {*held})
            if numbers:
                lacking[address] = numbers
                self.workers.note(address, {self.name: None})
        self._asked = asked
        self._addresses.update(asked)
        return lacking

    def send_all_again(self) -> None:
        """Workers count as having no blocks."""
        self._asked = {}

    def note(self, version: int, blocks: Mapping[str, Collection[int]]) -> None:
        """Notes that workers have these blocks in a version."""
        for address, numbers in blocks.items():
            if {*self._asked.get(address, NOTHING_ASKED).numbers} <= {*numbers}:
                self.workers.note(address, {self.name: version})

    def ask(self, what: str, *question: Any) -> dict[str, dict[int, Any]]:
        """The answers to one question, of all workers that may hold blocks, block by block."""
        return self.workers.ask(sorted(self._addresses), what, *question)


class Attachment(Readable):
    """The arrays by name, with a row for each item; all have one version."""

    def __init__(self) -> None:
        super().__init__()
        self.version = 0
        self.dropped: deque[str] = deque()  # calls whose cotangents nobody needs any more
        self.users: weakref.WeakValueDictionary[str, Any] = weakref.WeakValueDictionary()
        self.gradients: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
        self._arrays: Arrays = {}
        self._kept_version = 0  # that of the arrays here
        self._log: list[Logged] = []  # the steps since
        self._layout: Layout | None = None
        self._layouts = 0
        self._key = f"attached-{uuid.uuid4().hex}"

    @property
    def what(self) -> str:
        return "arrays that are attached to its items"

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
                    self._layout.send_all_again()
            return self._arrays

    def copy(self, name: str) -> np.ndarray | None:
        """An array in its latest version; None if nobody has filled it."""
        with self._lock:
            found = self.collect().get(name)
            return None if found is None else found.copy()

    def rows(self, name: str, indices: np.ndarray) -> np.ndarray | None:
        """Some of its rows."""
        with self._lock:
            found = self.collect().get(name)
            return None if found is None else found[indices]

    @contextmanager
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
        """Brings the arrays here, and releases what workers hold."""
        with self._lock:
            self.collect()
            self._cut_as(None)

    def _cut_as(self, layout: Layout | None) -> None:
        if self._layout is not None:
            self._layout.release()
        self._layout = layout

    def _gather(self) -> Arrays:
        layout = self._layout
        assert layout is not None  # steps are taken where blocks are held
        question = "blocks", layout.name, self.version, self.steps()
        answers = layout.ask("attached arrays were asked for", *question)
        layout.note(self.version, answers)
        found = {number: arrays for blocks in answers.values() for number, arrays in blocks.items()}
        lost = set(range(len(layout.sizes))) - set(found)
        found |= {number: self._repeat(layout, number) for number in lost}
        gathered: Arrays = {}
        count = sum(layout.sizes)
        for number, arrays in found.items():
            for name, rows in arrays.items():
                whole = gathered.get(name)
                if whole is None:
                    whole = gathered[name] = np.empty((count, *rows.shape[1:]), rows.dtype)
                whole[layout.rows(number)] = rows
        return gathered

    def _repeat(self, layout: Layout, number: int, until: int | None = None) -> Arrays:
        """A block's arrays, made again by the steps since those that are kept."""
        rows = layout.rows(number)
        arrays = {name: array.copy() for name, array in rows_of(self._arrays, rows).items()}
        tickets = {t: each for logged in self._log for t, each in logged.evaluations.items()}
        made: dict[str, dict[int, Any]] = {}
        for logged in self._log:
            version = logged.step.version - 1
            if version == until:
                break
            for ticket, each in tickets.items():
                if each.version == version and ticket not in made:
                    made[ticket] = {number: each.cotangent(ticket, number, arrays)}
            logged.step.take(arrays, finder(made, number))
        return arrays

    # ---- steps

    def ready(self, updates: Sequence[Update]) -> Callable[[], None]:
        """What takes a step; gradients are arrays, or kept by workers.

        Errors come before that. No evaluation uses the arrays meanwhile (``without_readers``).
        """
        changes = list(map(as_change, updates))
        gradients = [gradient for _, gradient in changes]
        if self._are_repeatable(gradients) and self._is_much(gradients):
            self.collect()  # what was evaluated before cannot be repeated any more
        if self._are_repeatable(gradients) and not any([each.is_of_rows for each, _ in changes]):
            sent = as_sent([each._replace(gradient=of.expression) for each, of in changes])
            if sent is not None:
                return partial(self._note, sent, gradients)
        here = [
            (each, self.gradient(of, each.name) if isinstance(of, Gradient) else of)
            for each, of in changes
        ]
        return partial(self._step_here, here)

    def _note(self, changes: Sequence[Change], gradients: Sequence[Gradient]) -> None:
        holds = [hold for gradient in gradients for hold in gradient.holds]
        self.version += 1
        step = Step(self.version, changes)
        self._log.append(Logged(step, evaluations_of(gradients), holds))

    def _step_here(self, changes: Sequence[tuple[Change, np.ndarray]]) -> None:
        with self.rewriting() as arrays:
            for change, gradient in changes:
                change.apply(arrays, finder({"": {0: gradient}}, 0))

    def _are_repeatable(self, gradients: Sequence[Any]) -> bool:
        """Whether the cotangents are kept by workers, and could be made again if they were lost."""
        if not all([isinstance(gradient, Gradient) for gradient in gradients]):
            return False
        used = evaluations_of(gradients).values()
        return all([each.layout is self._layout and self._is_remembered(each) for each in used])

    def _is_remembered(self, each: Evaluation) -> bool:
        return bool(each.sums) and each.version >= self._kept_version

    def _is_much(self, more: Sequence[Gradient]) -> bool:
        """Whether a log with these gradients would be too long."""
        logged = [each for one in self._log for each in one.evaluations.values()]
        cost = sum([each.cost for each in {*logged, *evaluations_of(more).values()}])
        return len(self._log) >= STEPS or cost > self.limit

    @property
    def limit(self) -> int:
        """The bytes that may be remembered instead of the arrays themselves."""
        return max(LEAST, sum([array.nbytes for array in self._arrays.values()]))

    # ---- calls

    def settle(self, workers: Workers, spread: Holdings) -> tuple[Layout, dict[str, Blocks]] | None:
        """The layout for a call, and by address the blocks that workers lack; None if another
        evaluation, which is cut otherwise, uses the arrays."""
        with self._lock:
            if self._layout is None or self._layout.spread is not spread:
                if self._readers > 1:
                    return None
                self.collect()
                self._layouts += 1
                self._cut_as(Layout(f"{self._key}-{self._layouts}", workers, spread))
            layout = self._layout
            assert layout is not None
            lacking = layout.lacking(spread.asked(), self._kept_version)
            arrays = self.collect() if lacking else {}
            return layout, {
                address: Blocks({n: rows_of(arrays, layout.rows(n)) for n in numbers})
                for address, numbers in lacking.items()
            }

    def steps(self) -> Steps:
        """The steps that some workers may not have taken."""
        return Steps([logged.step for logged in self._log if logged.holds])

    def taken(self, version: int, dropped: Sequence[str]) -> None:
        """Notes that all workers have taken the steps to a version, and dropped some calls."""
        with self._lock:
            for logged in self._log:
                if logged.step.version <= version:
                    logged.holds.clear()
            while self.dropped and self.dropped[0] in dropped:
                self.dropped.popleft()

    def gradient(self, gradient: Gradient, name: str) -> np.ndarray:
        """A cotangent that workers keep, brought here.

        RuntimeError if it was lost with a worker, and the arrays have changed since.
        """
        with self._lock:
            tickets = gradient.evaluations
            layout = next(iter(tickets.values())).layout
            if any([each.layout is not layout for each in tickets.values()]):
                return self._gradient_of_layouts(gradient, name)
            kept: dict[str, dict[int, Any]] = {}
            for ticket in tickets:
                answers = layout.ask("a gradient was asked for", "kept", ticket)
                kept[ticket] = {n: c for blocks in answers.values() for n, c in blocks.items()}
            array = self._arrays[name]
            return np.concatenate(
                [
                    gradient.expression.of_block(
                        self._finder(layout, kept, tickets, n), array[rows]
                    )
                    for n, rows in enumerate(map(layout.rows, range(len(layout.sizes))))
                ]
            )

    def _gradient_of_layouts(self, gradient: Gradient, name: str) -> np.ndarray:
        """The same of what was cut in several ways: each is brought here as a whole."""
        found = {
            ticket: {0: self.gradient(Gradient(KeptCotangent(ticket), {ticket: each}, ()), name)}
            for ticket, each in gradient.evaluations.items()
        }
        return gradient.expression.of_block(finder(found, 0), self._arrays[name])

    def _finder(
        self,
        layout: Layout,
        kept: dict[str, dict[int, Any]],
        tickets: Mapping[str, Evaluation],
        number: int,
    ) -> Callable[[str], Any]:
        def find(ticket: str) -> Any:
            if number not in kept[ticket]:
                each = tickets[ticket]
                if not self._is_remembered(each):
                    raise RuntimeError(f"{LOST}; evaluate again")
                arrays = self._repeat(layout, number, each.version)
                kept[ticket][number] = each.cotangent(ticket, number, arrays)
            return kept[ticket][number]

        return find


LOST = "a gradient of an attached array is not there any more"


def evaluations_of(gradients: Iterable[Gradient]) -> dict[str, Evaluation]:
    """The evaluations that gradients are made of, by ticket."""
    return {ticket: each for of in gradients for ticket, each in of.evaluations.items()}


def as_sent(changes: Sequence[Change]) -> Sequence[Change] | None:
    """The changes, with the optimiser as it is now; None if they cannot be sent."""
    try:
        return unpack(copy_frames(pack(changes)))
    except Exception:  # of an optimiser of the user's own: then steps are taken here
        return None


def rows_of(arrays: Arrays, rows: slice) -> Arrays:
    return {name: array[rows] for name, array in arrays.items()}
