"""Worker samples: the drawn items of a sum that one worker holds, in pieces, in threads."""

import math
from collections.abc import Container, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from daskgrad.resident.drawing import DrawnRun, slices_of
from daskgrad.resident.messages import key_of
from daskgrad.resident.worker_sums import AskedBlock, Job, run_unit
from daskgrad.values import clock
from daskgrad.values.summation import Place, power_of_two
from daskgrad.values.tuples import join, take

PIECES = 4  # for each thread, if there are several, so that they end together


class Piece(NamedTuple):
    """Drawn items that one thread evaluates in one go: a subtree of the sum, or a slice.

    ``place`` is that in the tree, ``rank`` the number of the first of them among all drawn;
    ``run`` is the number of the run of blocks that they are from, and ``move`` what placed that.
    """

    place: Place
    rank: int
    indices: np.ndarray
    run: int
    move: int


class SampledJob(Job):
    """This worker's part of a sum over a sample, in pieces for so many ``threads``."""

    def prepare(self, threads: int) -> None:
        """Cuts what was drawn here into pieces."""
        self._drawn: list[DrawnRun] = [DrawnRun(*each) for each in self._items_here()[1]]
        count = sum([len(each.indices) for each in self._drawn])
        most = power_of_two(max(1, count // (PIECES * threads if threads > 1 else 1)))
        self._pieces = [*self._cut(most)]
        self.seconds = [math.nan] * len(self._pieces)

    def _cut(self, most: int) -> Iterator[Piece]:
        for number, (drawn, run) in enumerate(zip(self._drawn, self._message.runs, strict=True)):
            if self._message.drawn == "slices":
                parts = leaves_of(drawn, self._message.block_items)
            else:
                parts = subtrees_of(drawn, most)
            for place, start, stop in parts:
                indices = drawn.indices[start - drawn.rank : stop - drawn.rank]
                yield Piece(place, start, indices, number, run[2])

    @property
    def costs(self) -> dict[str, Any]:
        """None of blocks: each call has other items."""
        return {}

    def units(self) -> list[Any]:
        return [SampledUnit(self, place) for place in range(len(self._pieces))]

    def blocks_of(self, place: int) -> list[AskedBlock]:
        """The blocks that the items of a piece are in."""
        piece, size = self._pieces[place], self._message.block_items
        numbers = np.unique(piece.indices // size).tolist()
        key = self._message.key
        return [AskedBlock(n, piece.run, key_of(key, piece.move, n)) for n in numbers]

    def run_piece(self, place: int, blocks: Sequence[Any]) -> None:
        """Evaluates a piece, whose items are in these blocks, and adds it to the partial sums."""
        piece, (traced, sent) = self._pieces[place], self._open()
        begin = clock.seconds()
        start = piece.rank - self._drawn[piece.run].rank  # in the rows of its run
        rows = [field[piece.run][start : start + len(piece.indices)] for field in sent]
        items = join([*picked(piece.indices, blocks, self._message.block_items)])
        self._add(traced, piece.rank, piece.place, rows, items)
        self.seconds[place] = clock.seconds() - begin


class SampledUnit(NamedTuple):
    """A piece of a sampled job, and the blocks that its items are in."""

    job: SampledJob
    place: int

    @property
    def blocks(self) -> list[AskedBlock]:
        return self.job.blocks_of(self.place)

    def run(self, data: Sequence[Any], call: str, running: Container[str]) -> None:
        """Evaluates it unless the call is given up."""
        run_unit([(self.place, data)], self.job.run_piece, call, running)


def picked(indices: np.ndarray, blocks: Sequence[Any], size: int) -> Iterator[Any]:
    """The items of ascending indices, from the blocks of so many items that they are in."""
    for items, (start, stop) in zip(blocks, slices_of(indices, size), strict=True):
        yield take(items, indices[start:stop] % size)


def subtrees_of(drawn: DrawnRun, most: int) -> Iterator[tuple[Place, int, int]]:
    """The subtrees that make up a run, of at most so many items: place, and ranks from and to."""
    start = drawn.rank
    while start < drawn.stop:
        size = min(power_of_two(drawn.stop - start), start & -start or most, most)
        yield (size.bit_length() - 1, start // size), start, start + size
        start += size


def leaves_of(drawn: DrawnRun, size: int) -> Iterator[tuple[Place, int, int]]:
    """The slices that items of a run were drawn from, each a leaf of the tree."""
    for number, (start, stop) in enumerate(slices_of(drawn.indices, size), drawn.slice_rank):
        yield (0, number), drawn.rank + start, drawn.rank + stop
