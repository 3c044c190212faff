"""Drawing: what was drawn of some placed items, as requests tell it to workers."""

from itertools import pairwise
from typing import NamedTuple

import numpy as np


class DrawnRun(NamedTuple):
    """What was drawn of the items in a run of blocks: their indices among all, ascending.

    ``rank`` is the number of the first one among all that were drawn, and ``slice_rank`` that of
    the first slice that holds one.
    """

    rank: int
    slice_rank: int
    indices: np.ndarray

    @property
    def stop(self) -> int:
        return self.rank + len(self.indices)


def slices_of(indices: np.ndarray, size: int) -> list[tuple[int, int]]:
    """Where, among ascending indices, those of each slice of so many items begin and end."""
    starts = np.unique(indices // size, return_index=True)[1].tolist()
    return [*pairwise([*starts, len(indices)])]
