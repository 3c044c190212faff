"""Items, cut into blocks that are subtrees of the sum."""

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest
from numpy.testing import assert_array_equal

from daskgrad.sums.cutting import (
    BLOCKS,
    SLICES,
    Tuples,
    aligned_grainsize,
    as_items,
    cut,
    join,
    slice_size,
)

GRAINSIZES = [(1, 10, 1), (2, 10, 2), (3, 10, 2), (7, 10, 4), (8, 10, 8), (1000, 10, 512)]
GRAINSIZES += [(np.int64(5), 10, 4), ("auto", 1, 1), ("auto", BLOCKS - 1, 1)]
GRAINSIZES += [("auto", 2 * BLOCKS - 1, 1), ("auto", 2 * BLOCKS, 2), ("auto", 1000, 16)]


def test_a_grainsize_is_rounded_down_to_a_power_of_two():
    sizes = [aligned_grainsize(grainsize, count) for grainsize, count, _ in GRAINSIZES]
    assert sizes == [size for *_, size in GRAINSIZES]
    assert {type(size) for size in sizes} == {int}


def test_an_automatic_grainsize_makes_enough_blocks_and_not_too_many():
    for count in [*range(1, 200), 10_000, 2**20, 2**20 + 1]:
        for blocks in (4, BLOCKS):
            number = len(cut(range(count), aligned_grainsize("auto", count, blocks)))
            assert min(count, blocks) <= number <= 4 * blocks, count


@hypothesis.given(st.integers(1, 300), st.integers(1, 70))
def test_blocks_hold_all_items_in_order_and_aligned_ones_are_subtrees(count, grainsize):
    """A subtree of the binary sum over 0 ... n-1 begins at a multiple of its power of two."""
    blocks = cut(list(range(count)), grainsize)
    assert [item for block in blocks for item in block.items] == list(range(count))
    assert [block.first for block in blocks] == [block.items[0] for block in blocks]
    assert {len(block.items) for block in blocks[:-1]} <= {grainsize}
    assert 1 <= len(blocks[-1].items) <= grainsize
    size = aligned_grainsize(grainsize, count)
    assert size & (size - 1) == 0
    assert all(block.first % size == 0 for block in cut(range(count), size))


def rows(count, *shape, dtype=float):
    """An array of which only the shape and the dtype matter."""
    return np.broadcast_to(np.zeros((), dtype), (count, *shape))


@pytest.mark.parametrize(
    ("parts", "slices"),
    [
        ([rows(1)], 1),
        ([rows(10**4, 4), rows(10**4)], 1),
        ([rows(2**16)], 2),
        ([rows(10**5, 4), rows(10**5), rows(10**5, dtype=int)], 2),
        ([rows(2 * 10**5, 4)], 4),
        ([rows(10**6)], 8),
        ([rows(10**7, 4)], 32),
        ([rows(10**10)], SLICES),
        ([rows(10**4, 1000)], 8),  # 80 MB in few rows
        ([rows(10**4, 1000, dtype=np.float32)], 4),
        ([rows(10**4, 100, dtype=bool)], 1),
        ([rows(10**4, 60), rows(10**4, 60)], 2),  # together
        ([rows(3, 10**7)], 2),
        ([rows(1, 10**8)], 1),
    ],
)
def test_slices_of_arrays_go_by_rows_and_bytes(parts, slices):
    count = len(parts[0])
    found = slice_size(parts, count)
    assert type(found) is int
    assert -(-count // found) == slices
    assert slices * found - count < slices, "they are as long as each other, but for the last"
    assert slice_size([Tuples(parts)], count) == found


def test_slices_of_lists_are_blocks():
    """Their items may be of any size."""
    for count in (1, 7, 64, 1000, 10**5):
        for parts in ([[1.0] * count], [rows(count), [1.0] * count]):
            assert slice_size(parts, count) == aligned_grainsize("auto", count)
            assert slice_size([Tuples(parts)], count) == aligned_grainsize("auto", count)


def test_an_array_of_items_is_contiguous():
    """A strided row gives other bits in BLAS than its copy."""
    for array in (
        np.arange(12.0).reshape(3, 4).T,
        np.arange(24.0).reshape(2, 3, 4)[:, ::2],
        np.asfortranarray(np.ones((3, 4))),
        np.arange(10)[::-1],
        np.broadcast_to(np.arange(3.0), (4, 3)),
    ):
        items = as_items(array)
        assert items.flags.c_contiguous
        assert_array_equal(items, array)
        assert items.dtype == array.dtype


def test_consecutive_rows_of_one_array_are_joined_without_a_copy():
    array = np.arange(24.0).reshape(12, 2)
    shifted = array.ravel()[1:-1].reshape(11, 2)
    for whole in (array, array.copy(), shifted, array[::2], array[::-1], array.T.copy().T):
        joined = join([whole[:4], whole[4:6]])
        assert_array_equal(joined, whole[:6])
        assert joined.strides == whole.strides
        assert np.shares_memory(joined, whole)
        assert_array_equal(join([whole[:2], whole[3:6]]), np.delete(whole[:6], 2, axis=0))
        assert_array_equal(join([whole[2:4], whole[:2]]), whole[[2, 3, 0, 1]])
    assert_array_equal(join([array[:4].copy(), array[4:7].copy()]), array[:7])
    assert join([[1, 2], [3]]) == [1, 2, 3]
    assert join([array[:0], array[:0]]).shape == (0, 2)
