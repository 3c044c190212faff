"""The trees along which points go out and gradients come back."""

import pytest

from daskgrad.placed.messages import FLAT, Work, addresses, routes


def works(count):
    return [Work(number, []) for number in range(count)]


def depth(tree):
    return 1 + max([depth(child) for child in tree.children], default=0)


@pytest.mark.parametrize("count", [1, 2, 3, 7, 16, 17, 40, 1000])
@pytest.mark.parametrize("is_large", [False, True])
def test_every_worker_is_reached_once_in_the_order_of_its_blocks(count, is_large):
    trees = routes(works(count), is_large)
    assert [a for tree in trees for a in addresses(tree)] == list(range(count))


@pytest.mark.parametrize("count", [1, 2, 16])
def test_a_small_point_goes_to_all_of_few_workers_at_once(count):
    assert [tree.children for tree in routes(works(count), is_large=False)] == [[]] * count


def test_many_workers_are_called_through_some_of_them():
    trees = routes(works(1000), is_large=False)
    assert len(trees) <= FLAT
    assert max(map(depth, trees)) <= 7


@pytest.mark.parametrize(("count", "expected"), [(1, 1), (2, 2), (16, 5), (1000, 10)])
def test_a_large_point_goes_to_one_worker_and_down_a_binomial_tree(count, expected):
    """w0 ── w1, w0 ── w2 ── w3, w0 ── w4 ── (w5, w6 ── w7) ..."""
    (tree,) = routes(works(count), is_large=True)
    assert depth(tree) <= expected
    assert [child.address for child in tree.children] == [
        2**power for power in range(20) if 2**power < count
    ]
