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
from typing import Any, NamedTuple, Protocol

import numpy as np

from daskgrad.resident.attached_steps import Arrays, Change, Expression, Step, finder
from daskgrad.resident.evaluations import Evaluation, Hold
from daskgrad.resident.handlers import attaching
from daskgrad.resident.holdings import Holdings
from daskgrad.resident.messages import Frames, pack
from daskgrad.resident.readers import Readable
from daskgrad.resident.spread import Asked
from daskgrad.resident.worker_attached import News

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

    name: str

    def ask(self, questions: Mapping[str, Frames], handler: str, what: str) -> dict[str, Any]: ...

    def tell(self, addresses: Collection[str], handler: str, **message: Any) -> None: ...


class Layout:
    """A way of cutting the arrays into blocks, and which worker holds which."""

    def __init__(self, name: str, workers: Workers, spread: Holdings):
        self.name = name
        self._workers = workers
        self.spread = spread
        self.sizes = [len(block.items) for block in spread.blocks]
        self.holders: list[str | None] = [None] * spread.count
        self.asked: Mapping[str, Asked] | None = None
        self.addresses: set[str] = set()
        weakref.finalize(self, forget, workers, name, self.addresses).atexit = False

    def rows(self, number: int) -> slice:
        start = number * self.spread.block_items
        return slice(start, start + self.sizes[number])

    def ask(self, what: str, questions: Mapping[str, Frames]) -> dict[str, Any]:
        return self._workers.ask(questions, attaching(self._workers.name), what)

    def ask_all(self, what: str, *question: Any) -> dict[int, Any]:
        """The answers to one question of all that may hold blocks, block by block."""
        answers = self.ask(what, dict.fromkeys(sorted(self.addresses), pack(question)))
        return {n: each for address in answers for n, each in answers[address].items()}


def forget(workers: Workers, layout: str, addresses: Collection[str]) -> None:
    workers.tell(addresses, attaching(workers.name), question=pack(("forget", layout)))


class Attachment(Readable):
    """The arrays by name, with a row for each item; all have one version."""

    def __init__(self) -> None:
        super().__init__()
        self.version = 0
        self.dropped: deque[str] = deque()  # calls whose cotangents nobody needs any more
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
            return self._arrays

    @contextmanager
    def rewriting(self) -> Iterator[Arrays]:
        """The arrays, to be changed here; the workers get them again."""
        with self._lock:
            arrays = self.collect()
            self.version += 1
            self._kept_version = self.version
            self._forget_holders(lambda _: True)
            yield arrays

    def leave(self) -> None:
        """Brings the arrays here, and releases what workers hold."""
        with self._lock:
            self.collect()
            self._layout = None

    def _gather(self) -> Arrays:
        layout = self._layout
        assert layout is not None  # steps are taken where blocks are held
        found = layout.ask_all("attached arrays were asked for", "blocks", layout.name, self.news())
        lost = set(range(len(layout.sizes))) - set(found)
        self._forget_holders(lost.__contains__)
        found |= {number: self._repeat(number) for number in lost}
        gathered: Arrays = {}
        count = sum(layout.sizes)
        for number, arrays in found.items():
            for name, rows in arrays.items():
                whole = gathered.get(name)
                if whole is None:
                    whole = gathered[name] = np.empty((count, *rows.shape[1:]), rows.dtype)
                whole[layout.rows(number)] = rows
        return gathered

    def _repeat(self, number: int, until: int | None = None) -> Arrays:
        """A block's arrays, made again by the steps since those that are kept."""
        assert self._layout is not None
        rows = self._layout.rows(number)
        arrays = {name: array[rows].copy() for name, array in self._arrays.items()}
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

    def step(self, changes: Sequence[tuple[Change, Any]]) -> None:
        """Takes a step: each change with its gradient, which workers keep, or an array.

        RuntimeError while a sum that uses the arrays is being evaluated.
        """
        with self.without_readers():
            kept = [gradient for _, gradient in changes if self._is_repeatable(gradient)]
            if len(kept) < len(changes):
                return self._step_here(changes)
            evaluations = {t: each for gradient in kept for t, each in gradient.evaluations.items()}
            if self._is_much(evaluations.values()):
                self.collect()
            pairs = zip(changes, kept, strict=True)
            made = [change._replace(gradient=of.expression) for (change, _), of in pairs]
            holds = [hold for gradient in kept for hold in gradient.holds]
            self.version += 1
            self._log.append(Logged(Step(self.version, made), evaluations, holds))

    def _step_here(self, changes: Sequence[tuple[Change, Any]]) -> None:
        gradients = [
            self.gradient(gradient, change.name) if isinstance(gradient, Gradient) else gradient
            for change, gradient in changes
        ]
        with self.rewriting() as arrays:
            for (change, _), gradient in zip(changes, gradients, strict=True):
                found = {"": {0: gradient}}
                change.apply(arrays, finder(found, 0))

    def _is_repeatable(self, gradient: Any) -> bool:
        """Whether the cotangents are kept by workers, and could be made again if they were lost."""
        is_kept = isinstance(gradient, Gradient)
        return is_kept and all(map(self._is_remembered, gradient.evaluations.values()))

    def _is_remembered(self, each: Evaluation) -> bool:
        is_of_layout = self._layout is not None and each.layout == self._layout.name
        return is_of_layout and bool(each.sums) and each.version >= self._kept_version

    def _is_much(self, more: Iterable[Evaluation]) -> bool:
        """Whether a log with these evaluations would be too long."""
        logged = [each for one in self._log for each in one.evaluations.values()]
        cost = sum([each.cost for each in {*logged, *more}])
        return len(self._log) >= STEPS or cost > self.limit

    @property
    def limit(self) -> int:
        """The bytes that may be remembered instead of the arrays themselves."""
        return max(LEAST, sum([array.nbytes for array in self._arrays.values()]))

    # ---- calls

    def settle(self, workers: Workers, spread: Holdings) -> bool:
        """Gives the workers the blocks that they are to evaluate, unless they have them.

        False if another evaluation, which is cut otherwise, uses the arrays.
        """
        with self._lock:
            if self._layout is None or self._layout.spread is not spread:
                if self._readers > 1:
                    return False
                self.collect()
                self._layouts += 1
                self._layout = Layout(f"{self._key}-{self._layouts}", workers, spread)
            layout, asked = self._layout, spread.asked()
            if layout.asked is not asked:
                self._give(layout, asked)
            return True

    def _give(self, layout: Layout, asked: Mapping[str, Asked]) -> None:
        lacking = {
            address: [n for n in of.numbers if layout.holders[n] != address]
            for address, of in asked.items()
        }
        if any(lacking.values()):
            arrays = self.collect()
            questions = {
                address: pack(
                    ("put", layout.name, self.version, blocks_of(layout, arrays, numbers))
                )
                for address, numbers in lacking.items()
                if numbers
            }
            layout.addresses.update(questions)
            given = layout.ask("attached arrays were sent to workers", questions)
            for address, numbers in lacking.items():
                for number in numbers:
                    layout.holders[number] = address if address in given else None
        layout.asked = asked

    def lose(self, address: str) -> None:
        """Notes that a worker has not what it should have."""
        with self._lock:
            layout = self._layout
            if layout is not None:
                self._forget_holders(lambda number: layout.holders[number] == address)

    def _forget_holders(self, is_lost: Callable[[int], bool]) -> None:
        if self._layout is not None:
            holders = enumerate(self._layout.holders)
            self._layout.holders = [None if is_lost(n) else address for n, address in holders]
            if None in self._layout.holders:
                self._layout.asked = None

    @property
    def layout(self) -> str:
        assert self._layout is not None
        return self._layout.name

    def news(self) -> News:
        """What a call tells workers: the steps that some may not have taken."""
        steps = [logged.step for logged in self._log if logged.holds]
        return News(self.version, steps, list(self.dropped))

    def told(self, news: News) -> None:
        """Notes that all workers know the news."""
        with self._lock:
            for logged in self._log:
                if logged.step.version <= news.version:
                    logged.holds.clear()
            while self.dropped and self.dropped[0] in news.dropped:
                self.dropped.popleft()

    def gradient(self, gradient: Gradient, name: str) -> np.ndarray:
        """A cotangent that workers keep, brought here.

        RuntimeError if it was lost with a worker, and the arrays have changed since.
        """
        with self._lock:
            layout = self._layout
            tickets = gradient.evaluations
            if layout is None or any([e.layout != layout.name for e in tickets.values()]):
                raise RuntimeError(f"{LOST}; it was evaluated over items that are closed by now")
            kept = {
                ticket: layout.ask_all("a gradient was asked for", "kept", each.call, ticket)
                for ticket, each in tickets.items()
            }
            array = self._arrays[name]
            return np.concatenate(
                [
                    gradient.expression.of_block(self._finder(kept, tickets, n), array[rows])
                    for n, rows in enumerate(map(layout.rows, range(len(layout.sizes))))
                ]
            )

    def _finder(
        self, kept: dict[str, dict[int, Any]], tickets: Mapping[str, Evaluation], number: int
    ) -> Callable[[str], Any]:
        def find(ticket: str) -> Any:
            if number not in kept[ticket]:
                each = tickets[ticket]
                if not self._is_remembered(each):
                    raise RuntimeError(f"{LOST}; evaluate again")
                arrays = self._repeat(number, each.version)
                kept[ticket][number] = each.cotangent(ticket, number, arrays)
            return kept[ticket][number]

        return find


LOST = "a gradient of an attached array is not there any more"


def blocks_of(layout: Layout, arrays: Arrays, numbers: Sequence[int]) -> dict[int, Arrays]:
    return {n: {name: a[layout.rows(n)] for name, a in arrays.items()} for n in numbers}
