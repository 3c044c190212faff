"""Schedules: the right order, no more states than allowed, and the fewest steps there can be."""

import functools

import pytest

from daskgrad.loops.schedules import (
    AUTO,
    Limit,
    as_schedules,
    fewest_steps,
    revolve,
    slots_of_two_runs,
)


class Machine:
    """Carries out schedules on the numbers of steps instead of states, and counts."""

    def __init__(self, schedules):
        self.kept = {first for schedule in schedules for first in schedule.firsts}
        self.most, self.pulled = len(self.kept), []
        self.count = schedules[-1].stop
        for schedule in reversed(schedules):  # as the tasks of a loop do it
            self.pull_back(schedule)

    def pull_back(self, schedule):
        for start, stop, is_kept in schedule.backward():
            assert start in self.kept
            self.count += stop - start
            if is_kept:
                self.kept.add(stop)
                self.most = max(self.most, len(self.kept))
            else:
                self.pulled.append(stop)
                self.kept.discard(stop)


@functools.cache
def least(steps, slots):
    """The fewest runs of steps, by trying all places of the second state that is kept."""
    if steps <= 1:
        return 0
    if slots == 1:
        return steps * (steps - 1) // 2
    parts = range(1, steps)
    return min([part + least(steps - part, slots - 1) + least(part, slots) for part in parts])


SIZES = [(steps, slots) for steps in range(1, 60) for slots in range(1, 9)]


@pytest.mark.parametrize("pieces", [1, 4, 16])
def test_each_step_is_pulled_back_once_with_the_fewest_runs(pieces):
    for steps, slots in SIZES:
        machine = Machine(revolve(steps, slots).cut(pieces))
        assert machine.pulled == list(reversed(range(steps)))
        assert machine.most <= slots
        assert not machine.kept
        assert machine.count == least(steps + 1, slots)  # the value's consumer is the last step


@pytest.mark.parametrize(("steps", "slots"), [(1000, 12), (1000, 32), (10_000, 3), (100_000, 60)])
def test_long_loops_need_the_fewest_runs(steps, slots):
    machine = Machine(revolve(steps, slots).cut(16))
    assert machine.count == fewest_steps(steps + 1, slots)
    assert machine.most == slots


def test_a_loop_is_cut_into_tasks_of_about_equal_length():
    pieces = revolve(1000, 1000).cut(16)
    assert [piece.stop - piece.start for piece in pieces[:-1]] == [63] * 15
    assert [piece.start for piece in pieces[1:]] == [piece.stop for piece in pieces[:-1]]


def test_auto_lets_no_step_run_more_than_twice():
    for steps in (1, 2, 10, 100, 1000, 10**5):
        slots = slots_of_two_runs(steps)
        assert fewest_steps(steps + 1, slots) <= 2 * steps
        assert slots == 1 or fewest_steps(steps + 1, slots - 1) > fewest_steps(steps + 1, slots)
        assert AUTO.slots(steps, None) == slots


def test_auto_keeps_all_states_where_they_are_small():
    assert AUTO.slots(1000, 8) == 1000
    assert AUTO.slots(1000, 2**20) == slots_of_two_runs(1000)


def test_limits():
    assert Limit(checkpoints=7).slots(100, None) == 7
    assert Limit(checkpoints=70).slots(10, None) == 10
    assert Limit(memory=1000).slots(100, 100) == 10
    assert Limit(memory=10).slots(100, 100) == 1
    assert Limit(memory=1000).slots(100, None) is None
    assert as_schedules(100, Limit(memory=1000), None) == [None]


def test_a_schedule_says_what_it_does():
    assert repr(revolve(1000, 3)) == (
        "<Schedule of steps 0 to 999: at most 3 states kept, at first those before 0, 830, 983; "
        f"{fewest_steps(1001, 3) - 1000} steps run again>"
    )
