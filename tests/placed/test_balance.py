"""Which worker holds which blocks: runs of equal cost, cut where subtrees end."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from daskgrad.placed.spread import (
    UNEVEN,
    assign,
    loads,
    rebalancing,
    run_stops,
    uneven_loads,
    unit_blocks,
)

MANY = 64  # measured calls


@pytest.mark.parametrize(
    ("costs", "threads", "stops"),
    [
        ([1] * 64, [1], [64]),
        ([1] * 64, [1, 1], [32, 64]),
        ([1] * 64, [1] * 4, [16, 32, 48, 64]),
        ([1] * 64, [1] * 3, [21, 43, 64]),
        ([1] * 2, [1] * 4, [0, 1, 1, 2]),
        ([1] * 1000, [1] * 3, [336, 672, 1000]),  # 333 and 667 are odd; within 3 percent
        ([1] * 64, [1, 3], [16, 64]),
        ([10] * 8 + [1] * 56, [1, 1], [7, 64]),
    ],
)
def test_equal_costs_a_thread_are_cut_at_subtrees(costs, threads, stops):
    assert run_stops(np.array(costs, float), range(len(costs)), threads) == stops


@given(
    st.lists(st.floats(1e-6, 1e3), min_size=1, max_size=200),
    st.lists(st.integers(1, 8), min_size=1, max_size=9),
)
def test_every_block_has_one_holder_and_no_worker_is_far_off_its_share(costs, threads):
    workers = {f"w{number}": count for number, count in enumerate(threads)}
    holders = assign(np.array(costs), workers)
    assert len(holders) == len(costs)
    assert holders == sorted(holders, key=list(workers).index), "runs, in the order of the workers"
    share = np.sum(costs) / np.sum(threads)
    tolerance = 0.06 * np.sum(costs) / len(threads) + 2.0 * max(costs)
    for load, address in zip(loads(np.array(costs), holders, workers), workers, strict=False):
        assert load * workers[address] <= share * workers[address] + tolerance


@pytest.mark.parametrize("count", [2, 8, 128])
def test_what_moves_is_what_a_worker_has_too_much_of_or_has_lost(count):
    """The runs of all others stay where they are, whichever worker it is."""
    workers = {f"w{number:03}": 1 for number in range(count)}
    holders = assign(np.ones(32 * count), workers)
    for number in {0, count // 2, count - 1}:
        runs = range(32 * number, 32 * number + 32)
        costs = np.full(32 * count, 1e-3)
        costs[runs] *= 2.0
        left = {address: 1 for address in workers if address != holders[runs[0]]}
        joined = workers | {"x": 1}
        for wanted, least, moving in (
            (rebalancing(costs, holders, workers, MANY), 16 * (1 - 1 / count), runs),
            (assign(np.ones(32 * count), left, holders), 32, runs),
            (assign(np.ones(32 * count), joined, holders), 32 * count / (count + 1), range(10**6)),
        ):
            moved = [
                n for n, pair in enumerate(zip(holders, wanted, strict=True)) if len({*pair}) > 1
            ]
            assert set(moved) <= set(moving)
            assert abs(len(moved) - least) <= 1


@pytest.mark.parametrize("count", [16, 64, 128])
def test_loads_that_differ_by_a_tenth_stay_when_a_worker_leaves_or_joins(count):
    workers = {f"w{number:03}": 1 for number in range(count)}
    holders = assign(np.ones(32 * count), workers)
    factors = np.random.default_rng(count).uniform(0.9, 1.1, count)
    costs = 1e-3 * np.repeat(factors, 32)
    left = {address: 1 for address in workers if address != "w001"}
    after = assign(costs, left, holders)
    assert [pair[0] for pair in zip(holders, after, strict=True) if len({*pair}) > 1] == [
        "w001"
    ] * 32
    joined = assign(costs, workers | {"x": 1}, holders)
    assert 24 <= joined.count("x") <= 36
    moved = [pair for pair in zip(holders, joined, strict=True) if len({*pair}) > 1]
    assert len(moved) <= 40


@given(
    st.lists(st.floats(1e-6, 1e3), min_size=1, max_size=60),
    st.lists(st.integers(1, 4), min_size=1, max_size=9),
    st.randoms(),
)
def test_shares_are_even_wherever_the_blocks_were(costs, threads, random):
    costs, workers = np.array(costs), {f"w{n}": count for n, count in enumerate(threads)}
    wanted = assign(costs, workers, [random.choice([*workers, "gone"]) for _ in costs])
    share = np.sum(costs) / np.sum(threads)
    for load, count in zip(loads(costs, wanted, workers), threads, strict=True):
        assert load * count <= share * count + 0.06 * np.sum(costs) + 2.0 * max(costs)


def test_nothing_is_moved_where_the_largest_load_would_not_be_less():
    workers = {f"w{number:02}": 1 for number in range(16)}
    holders = list(workers)
    costs = np.full(16, 0.1)
    costs[[2, 3, 12]] = 0.16, 0.16, 0.2  # slow once, by chance
    assert assign(costs, workers, holders) == holders
    assert rebalancing(costs, holders, workers, MANY) is None


def test_uneven_loads_are_evened_out_and_small_ones_are_left():
    workers = {"a": 1, "b": 1}
    costs, holders = np.full(64, 0.01), ["a"] * 48 + ["b"] * 16
    assert rebalancing(costs, holders, workers, MANY) == ["a"] * 32 + ["b"] * 32
    assert rebalancing(costs, ["a"] * 33 + ["b"] * 31, workers, MANY) is None, "even enough"
    assert rebalancing(1e-3 * costs, holders, workers, MANY) is None, "0.2 ms to gain"
    assert rebalancing(1e-2 * costs, holders, workers, MANY) is not None, "1.6 of 4.8"


@pytest.mark.parametrize(("most", "enough"), [(36, MANY), (40, 4), (44, 2), (52, 1)])
def test_the_fewer_calls_were_measured_the_more_uneven_they_must_be(most, enough):
    costs, holders = np.full(64, 0.01), ["a"] * most + ["b"] * (64 - most)
    for measured in (1, 2, 4, MANY):
        moves = rebalancing(costs, holders, {"a": 1, "b": 1}, measured) is not None
        assert moves == (measured >= enough)


def test_loads_that_change_from_look_to_look_are_no_reason_to_move_blocks():
    workers, generator = {f"w{number:02}": 1 for number in range(16)}, np.random.default_rng(0)
    holders = assign(np.ones(512), workers)
    earlier, costs = 1e-3 * np.repeat(generator.uniform(0.7, 1.3, (2, 16)), 32, axis=1)
    uneven = uneven_loads(costs, earlier, holders, workers)
    assert rebalancing(costs, holders, workers, MANY) is not None
    assert rebalancing(costs, holders, workers, MANY, uneven) is None
    assert uneven_loads(costs, costs, holders, workers) == UNEVEN
    slowed = np.where(np.array(holders) == "w03", 3.0 * costs, costs)
    uneven = uneven_loads(slowed, costs, holders, workers)
    assert rebalancing(slowed, holders, workers, MANY, uneven) is not None, "one worker of many"


@given(st.lists(st.floats(1e-6, 1e3), min_size=1, max_size=60), st.integers(1, 9), st.randoms())
def test_a_move_lessens_the_largest_load(costs, count, random):
    workers = {f"w{number}": 1 for number in range(count)}
    holders = [random.choice(list(workers)) for _ in costs]
    wanted = rebalancing(np.array(costs), holders, workers, MANY)
    if wanted is not None:
        now, then = [loads(np.array(costs), h, workers) for h in (holders, wanted)]
        assert max(then) < max(now)


def test_units_take_the_time_they_should():
    assert unit_blocks(np.full(64, 0.001), 1, 0.02) == 20
    assert unit_blocks(np.full(64, 1.0), 1, 0.02) == 1
    assert unit_blocks(np.full(64, 1e-6), 1, 0.02) == 64
    assert unit_blocks(np.full(63, 1e-6), 1, 0.02) == 63, "all, though that is no power of two"
    assert unit_blocks(np.full(64, 2.5e-3), 4, 0.02) == 2, "the threads of a worker end together"
    assert unit_blocks(np.full(64, 5e-4), 4, 0.2) == 16, "they do, and share batches"
    assert unit_blocks(np.full(64, 1e-4), 4, 0.2) == 64, "threads would gain nothing"
    assert unit_blocks(np.full(1, 1e-6), 4, 0.02) == 1
