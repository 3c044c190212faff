"""The tree of additions: by index alone, however it is cut."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from daskgrad.autodiff.values.addition import (
    FAN_IN,
    PairwiseSum,
    Subtrees,
    in_groups,
    pairwise,
    sum_of_rows,
)


def plus(a, b, owned):
    return a + b


def bracket(a, b, owned=False):
    """An addition that shows how it was done."""
    return f"({a}+{b})"


def by_definition(terms, add):
    """Split at the largest power of two below n, then each half in the same way."""
    if len(terms) == 1:
        return terms[0]
    middle = 1
    while 2 * middle < len(terms):
        middle *= 2
    return add(by_definition(terms[:middle], add), by_definition(terms[middle:], add), False)


def numbers(n, seed):
    """Of very different size, so that another order gives other bits."""
    random = np.random.default_rng(seed)
    return list(random.standard_normal(n) * 10.0 ** random.uniform(-8, 8, n))


TREES = ["0", "(0+1)", "((0+1)+2)", "((0+1)+(2+3))", "(((0+1)+(2+3))+4)"]
TREES += ["(((0+1)+(2+3))+(4+5))", "(((0+1)+(2+3))+((4+5)+6))"]


@given(st.integers(1, 300))
def test_pairwise_is_its_definition(n):
    terms = list(map(str, range(n)))
    assert pairwise(terms, bracket) == by_definition(terms, bracket)
    assert pairwise(terms[:7], bracket) == TREES[min(n, 7) - 1]


@given(st.integers(1, 1000))
def test_groups_are_subtrees(n):
    """Tasks add up to FAN_IN partial sums each, level by level, along the same tree."""
    terms = list(map(str, range(n)))

    def add(group, is_last):
        assert 2 <= len(group) <= FAN_IN
        return pairwise(group, bracket)

    assert in_groups(terms, add) == pairwise(terms, bracket)


@given(st.integers(1, 400), st.integers(0, 6), st.integers(0, 1000))
def test_the_bits_of_a_sum_do_not_depend_on_how_it_is_cut(n, k, seed):
    """Terms in blocks, one task a block; tasks in groups."""
    terms = numbers(n, seed)
    blocks = [pairwise(terms[start : start + 2**k], plus) for start in range(0, n, 2**k)]
    total = in_groups(blocks, lambda group, is_last: pairwise(group, plus))
    assert total.hex() == pairwise(terms, plus).hex() == by_definition(terms, plus).hex()
    hundred = numbers(100, 0)
    assert sum(hundred) != pairwise(hundred, plus), "else this cannot fail"


def test_only_the_last_group_is_told_that_it_is_the_last():
    told = []
    in_groups(list(range(FAN_IN**2 + 1)), lambda group, is_last: told.append(is_last) or 0)
    assert told == [False] * FAN_IN + [False, True]


# ------------------------------------------------------------------------------ ownership


class Owned(float):
    """What an addition made: its first argument may be overwritten if it is one of these."""


@given(st.integers(1, 200))
def test_an_addition_is_told_that_it_owns_its_own_results_alone(n):
    made = {}  # by id, which is not used again while what was made is kept

    def add(a, b, owned):
        assert owned == (id(a) in made)
        result = Owned(a + b)
        made[id(result)] = result
        return result

    assert pairwise([float(k) for k in range(n)], add) == n * (n - 1) / 2


def test_few_partial_sums_are_held():
    running = PairwiseSum(plus)
    for k in range(1000):
        running.push(float(k))
        assert len(running._partials) <= math.ceil(math.log2(k + 2))
    assert running.total() == 499_500.0


# --------------------------------------------------------------------------------- errors


def test_the_error_grows_with_the_logarithm():
    """Higham's bound for pairwise summation: |error| <= log2(n) u Σ|x| to first order."""
    n = 2**14
    terms = [0.1] * n
    exact = math.fsum(terms)
    assert abs(pairwise(terms, plus) - exact) <= math.log2(n) * 2.0**-53 * exact
    assert abs(sum(terms, start=np.float64(0.0)) - exact) > math.log2(n) * 2.0**-53 * exact


@pytest.mark.parametrize("count", [1, 2, 3, 7, 8, 11, 64, 100])
def test_partial_sums_of_any_holders_in_any_order_make_the_same_tree(count, random):
    expected = pairwise(map(str, range(count)), bracket)
    for _ in range(5):
        holders = [Subtrees(count, bracket) for _ in range(3)]
        for index in random.permutation(count):
            holders[random.integers(3)].put((0, int(index)), str(index))
        together = Subtrees(count, bracket)
        for holder in holders:
            for place, partial in holder.sums().items():
                together.put(place, partial)
        assert together.total() == expected


def test_a_sum_that_lacks_a_term_is_an_error():
    subtrees = Subtrees(3, plus)
    subtrees.put((0, 0), 1.0)
    subtrees.put((0, 1), 2.0)  # the first two are a subtree, and the third is still to come
    with pytest.raises(RuntimeError, match="3 terms must be added up"):
        subtrees.total()
    subtrees.put((0, 2), 4.0)
    assert subtrees.total() == 7.0


@pytest.mark.parametrize("shape", [(300,), (300, 3), (300, 2, 2), (300, 0)])
def test_runs_of_rows_have_the_bits_of_single_terms(random, shape):
    rows = random.normal(size=shape) * 10.0 ** random.uniform(-8, 8, size=shape)
    for lengths in ([300], [128, 128, 44], [1, 2, 3, 64, 230], [7, 293], [16] * 18 + [12]):
        summed = PairwiseSum(plus)
        start = 0
        for length in lengths:
            run = rows[start : start + length]
            for part in summed.subtrees(length):
                summed.push(sum_of_rows(run[part]), part.stop - part.start)
            start += length
        assert summed.total().tobytes() == pairwise(list(rows), plus).tobytes()
