"""Shards: items that are cut once, put on the workers once, and used by every later call.

Without a cluster they stay in the process.
"""

import threading
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from dask.sizeof import sizeof
from distributed import Client

from daskgrad.resident.attached import Attached, attach
from daskgrad.resident.attachment import Attachment
from daskgrad.resident.connection import connection_of
from daskgrad.resident.holdings import CLOSED, Holdings
from daskgrad.resident.samples import Sample, draw
from daskgrad.resident.spread import Asked
from daskgrad.sums.cutting import Block, cut
from daskgrad.sums.placed import Placed
from daskgrad.tasks.clients import active_client, address_of
from daskgrad.tasks.task_graph import TaskGraph
from daskgrad.values.markup import escaped, nbytes, seconds, table
from daskgrad.values.tuples import Partitions, Tuples


class WorkerPlan(NamedTuple):
    """What one worker holds and does in a call; a thread evaluates ``unit`` blocks in one go.

    ``seconds`` is the time of its blocks per thread, None before the first call.
    """

    worker: str
    threads: int
    blocks: int
    items: int
    unit: int
    seconds: float | None

    @property
    def took(self) -> str:
        return "not measured yet" if self.seconds is None else seconds(self.seconds)

    def __str__(self) -> str:
        took = self.took if self.seconds is None else f"{self.took} a call"
        of = "thread" if self.threads == 1 else "threads"
        return (
            f"{self.worker} ({self.threads} {of}): {self.items} items in {self.blocks} blocks, "
            f"{self.unit} in one go, {took}"
        )


class Shards(Placed):
    """Placed items; made by ``place``. A context manager, which closes them at its end.

    The workers drop the items when this is closed or garbage collected. ``slice_size`` is how many
    items each slice has, where a sum runs over slices.

    Examples
    --------
    >>> with dg.place([1.0, 2.0, 3.0]) as shards:
    ...     dg.grad(lambda x: dg.map_sum(lambda item, x: item * x**2, shards, x))(2.0)
    np.float64(24.0)
    """

    def __init__(
        self,
        items: Any,
        grainsize: int,
        slice_size: int,
        client: Client | None,
        attachment: Attachment | None = None,
    ):
        self.attachment = attachment or Attachment()
        self._items = items
        self._blocks = blocks = cut(items, grainsize)
        self._starts = tuple([block.first for block in blocks])
        self.grainsize = grainsize
        self.slice_size = slice_size
        self._slices: Shards | None = None
        self.array_valued: dict[Any, None] = {}
        self._client = client
        self._is_used = False
        self._lock = threading.RLock()
        self._holdings = None if client is None else Holdings(client, blocks)

    def __len__(self) -> int:
        return len(self.items)

    def __repr__(self) -> str:
        if not self._blocks:
            return "<Shards: closed>"
        where = "this process" if self._client is None else address_of(self._client)
        blocks = f"{len(self.blocks)} blocks of {self.grainsize}"
        if self._slices is not None:
            blocks += f", {len(self._slices.blocks)} slices of {self.slice_size}"
        head = f"<Shards: {len(self)} items, {blocks}, in {where}"
        return "\n  ".join([head, *map(str, self.plan)]) + ">"

    def _repr_html_(self) -> str:
        """For notebooks: what is placed, and the plan, a row for each worker."""
        if not self._blocks:
            return escaped(repr(self))
        where = "this process" if self._client is None else address_of(self._client)
        cut_as = f"{len(self.blocks):,} blocks of {self.grainsize:,}"
        size = f"{nbytes(sizeof(self.items))}, as Dask estimates it"
        about = [("items", f"{len(self):,}"), ("cut into", cut_as), ("size", size)]
        head = ("worker", "threads", "items", "blocks", "in one go", "a call")
        plan = [(p.worker, p.threads, p.items, p.blocks, p.unit, p.took) for p in self.plan]
        return table("", ("Shards", where), about) + table("", head, plan)

    def sample(self, count: int, seed: int | Sequence[int] | None = None) -> Sample:
        """Some of the items, drawn without replacement, as the items of a sum: a mini-batch.

        A sum over them, of ``map_sum`` or ``reduce_sum``, is divided by the fraction that was
        drawn: its expectation is the sum over all items. ``map_mean`` gives the sample's mean,
        and ``per_item`` each item's own value and gradient. The items stay on the workers, and a
        call is one request, which says which of them were drawn::

            step = dg.value_and_grad(lambda W, batch: dg.map_sum(model, batch, W), sparse=True)
            for number in range(1000):
                value, rows = step(W, shards.sample(256, seed=(7, number)))

        The same seed draws the same items wherever they are, and the bits of ``map_sum`` depend
        on these alone. Functions of ``reduce_sum`` get, of each slice that items were drawn from,
        those.

        A zip with a sample goes item by item over the sample. Of an array that has a row for each
        of the placed items it takes the rows of those that were drawn: parameters of the items'
        own, whose gradient is zero elsewhere, or ``Rows`` where it is asked for as such::

            step = dg.value_and_grad(
                lambda z, batch: dg.map_sum(model, dg.zip(z, batch)), sparse="z"
            )

        These rows and their gradients travel, also those of an attached array, which is brought to
        this process once, and stays until a sum over all items uses it.

        Parameters
        ----------
        count:
            how many items.
        seed:
            one or more integers: the same numbers draw the same items, with one version of NumPy.
            None draws others each time.

        Returns
        -------
        Sample
            The sample; its ``indices`` are those of its items, ascending.

        Raises
        ------
        ValueError
            if there are not so many items, or a number of the seed is negative.
        TypeError
            if the seed is something else.
        RuntimeError
            if the shards are closed.
        """
        self._require_open()
        return draw(self, count, seed)

    def attach(self, array: np.ndarray) -> Attached:
        """Parameters of the items' own, a row for each, which stay where the items are.

        Zipped with the shards they are fields of the items, and ``dg.optim`` updates them in place.
        On a cluster neither they nor their gradients travel::

            z = shards.attach(np.zeros((len(shards), 3)))
            step = dg.value_and_grad(lambda x, z: dg.map_sum(model, dg.zip(z, shards), x), (0, 1))
            params, optimiser = {"x": x, "z": z}, dg.optim.Adam(1e-2)
            state = optimiser.init(params)
            value, (of_x, of_z) = step(x, z)
            optimiser.update(params, {"x": of_x, "z": of_z}, state)
            np.savez("fit.npz", z=z, **state)               # fetches them

        The bits are those of an array that is zipped with the shards. A worker that dies takes no
        numbers along: the client remembers the steps since it last had the arrays, and repeats
        those of the blocks that were lost. It fetches the arrays when that would be more than 128
        steps, or take more memory than the arrays, and when blocks are moved to other workers.

        ``np.asarray(z)`` fetches it at any time, and ``np.asarray(of_z)`` a gradient, also after
        the shards were closed. So does whatever else takes arrays: other derivatives than
        ``value_and_grad`` and ``grad``, sums over other items, models that get all of it,
        ``clip_by_norm``, ``dg.record``. Steps are taken in the client then, and also where a sum
        uses replicated arrays, or other arguments that take more memory than the attached arrays,
        where an optimiser of your own cannot be pickled, and where a gradient is ``Rows``.

        Parameters
        ----------
        array:
            real floats, with a row for each item; it is copied. To go on with saved numbers, attach
            these.

        Returns
        -------
        array
            The attached array, for ``dg.zip`` with these shards, and for ``dg.optim``.

        Raises
        ------
        TypeError, ValueError
            if it is no such array.
        RuntimeError
            if the shards are closed; by ``update``, while a sum that uses the array is evaluated.
        """
        self._require_open()
        return attach(self.attachment, len(self), array)

    def __enter__(self) -> "Shards":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def close(self) -> None:
        """Releases the items, here and on the workers; sums over them are errors from now on."""
        with self._lock:
            try:
                self.attachment.bring()
            finally:
                self._items, self._blocks, self._client = None, [], None
                self._release()
                if self._slices is not None:
                    self._slices.close()
            self.attachment.leave()  # last: workers without the plugins have dropped the blocks

    def _release(self) -> None:
        held, self._holdings = self._holdings, None
        if held is not None:
            held.release()
            connection_of(held.client).leave(held)

    def cut_for(self, slices: bool) -> "Shards":
        """As ``Placed`` says; the first call places the slices.

        It drops these items if no sum has used them; they are placed again when one does.
        """
        with self._lock:
            self._require_open()
            if not slices or self.slice_size == self.grainsize:
                self._is_used = True
                return self
            if self._slices is None:
                if not self._is_used:
                    self._release()
                size = self.slice_size
                self._slices = Shards(self._items, size, size, self._client, self.attachment)
            return self._slices

    @property
    def items(self) -> Any:
        self._require_open()
        return self._items

    @property
    def are_plain(self) -> bool:
        return not isinstance(self.items, Tuples | Partitions)

    @property
    def blocks(self) -> list[Block]:
        self._require_open()
        return self._blocks

    def _require_open(self) -> None:
        if not self._blocks:
            raise RuntimeError(CLOSED)

    @property
    def starts(self) -> tuple[int, ...]:
        self._require_open()
        return self._starts

    @property
    def plan(self) -> list[WorkerPlan]:
        """What each worker holds, and how it evaluates that; empty without a cluster."""
        held = self._holdings
        slices = [] if self._slices is None else self._slices.plan
        if held is None:
            return slices
        return [*[self._plan_of(held, *asked) for asked in held.asked().items()], *slices]

    def _plan_of(self, held: Holdings, address: str, asked: Asked) -> WorkerPlan:
        threads, blocks = held.workers.get(address, 1), asked.numbers
        items = sum([len(self.blocks[number].items) for number in blocks])
        seconds = float(held.seconds[blocks].sum()) / threads
        took = None if np.isnan(seconds) else seconds
        return WorkerPlan(address, threads, len(blocks), items, asked.unit, took)

    @property
    def is_remote(self) -> bool:
        return self._client is not None and self.is_on(active_client())

    def is_on(self, client: Client | None) -> bool:
        return client is not None and client is self._client

    @property
    def holdings(self) -> Holdings:
        """Which worker holds which blocks."""
        with self._lock:
            if self._client is None:  # closed, by another thread perhaps
                raise RuntimeError(CLOSED)
            if self._holdings is None:
                self._holdings = Holdings(self._client, self.blocks)
            return self._holdings

    def references(self, tasks: TaskGraph) -> list[Any]:
        return [tasks.include_placed(future) for future in self.holdings.references()]

    def restore(self) -> None:
        if self.is_remote:
            self.holdings.restore()
