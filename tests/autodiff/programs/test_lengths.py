"""Calls that differ in lengths alone: few are recorded, and all have the bits of the tape."""

from types import SimpleNamespace

import numpy as np
import pytest
from recorded import entries_of

import daskgrad as dg
from daskgrad.autodiff.programs import lengths
from daskgrad.autodiff.programs.lengths import Line, Unlike
from daskgrad.autodiff.programs.signatures import are_same

LENGTHS = [20, 39, 21, 38, *np.random.default_rng(2).permutation(np.arange(22, 38)).tolist()]
X = np.array([0.4, -0.3, 0.7])


def compared(fun, items_of, evaluations=3, lengths=LENGTHS):
    """The compiled model, whose sums over items have the bits of the tape's."""
    model, tape = dg.delayed(fun, compile=True), dg.delayed(fun, compile=False)
    for number in range(evaluations):
        random, x = np.random.default_rng(number), X * (1.0 + 0.1 * number)
        items = [items_of(n, random) for n in lengths]
        results = [
            dg.value_and_grad(lambda x, m=m: dg.map_sum(m, items, x))(x)  # noqa: B023
            for m in (model, tape)
        ]
        assert are_same(*map(np.hstack, results))
    return model


def series(n, random):
    return random.normal(size=n)


def recurrent(y, x):
    state, total = x[0], 0.0
    for n in range(len(y)):
        state = np.tanh(x[1] * state + y[n])
        total = total + (state - 0.3 * n) ** 2
    return total


def filtered(y, x):
    mean, spread = np.zeros(2), np.eye(2)
    turning, value = np.array([[1.0, 0.1], [0.0, 1.0]]), 0.0
    for observed in y:
        mean, spread = turning @ mean, turning @ spread @ turning.T + x[0] ** 2 * np.eye(2)
        error = observed - mean[0]
        mean = mean + spread[:, 0] * error / (spread[0, 0] + 1.0)
        value = value + error**2 / (spread[0, 0] + 1.0)
    return value / len(y)


def doses(item, x):
    count, amounts = item
    level, total = 0.0, x[2]
    for number in range(count):
        level = level * np.exp(-x[0]) + amounts[number]
        total = total + np.sin(level * x[1])
    return total + np.mean(amounts) * x[0]


MODELS = {
    "a recursion": (recurrent, series),
    "a filter": (filtered, series),
    "doses": (doses, lambda n, random: (n, random.normal(size=n))),
    "vectors": (lambda y, x: np.sum(np.sin(np.outer(y, x)) ** 2) / len(y), series),
    "a plain integer": (lambda n, x: recurrent(np.cos(np.arange(n)), x), lambda n, random: n),
}


@pytest.mark.parametrize("name", MODELS)
def test_few_of_many_lengths_are_recorded(name, soon):
    model = compared(*MODELS[name])
    entries = [entry for entry in entries_of(model.model.fun) if not entry.reads]
    assert len(entries) == len(LENGTHS)
    assert all([entry.ways for entry in entries])
    (family,) = {entry.family for entry in entries}
    assert family.recorded + family.expected == len(LENGTHS)
    assert family.expected >= len(LENGTHS) // 2
    assert len({entry.ways[0].program.forward.__code__ for entry in entries}) == 1


HOSTILE = {
    "a branch on data for some lengths": lambda y, x: (
        recurrent(y, x) * (x[2] if len(y) % 4 == 0 and y[0] > 0.0 else 1.0)
    ),
    "a bound by the length": lambda y, x: np.sum(np.minimum(y * x[0] * 60.0, min(len(y), 30))),
    "a table": lambda y, x: recurrent(y, x) * np.cos(np.arange(100.0) ** 2)[len(y)],
    "parity": lambda y, x: np.sum(y[len(y) % 2 :] * x[0]) + recurrent(y, x),
    "a square": lambda y, x: recurrent(y, x) + len(y) ** 2 * x[1],
    "half": lambda y, x: np.sum(y[: len(y) // 2] * x[0]) * x[1],
    "a reversed range": lambda y, x: recurrent(y[::-1], x) + np.sum(np.arange(len(y))[::-1] * x[0]),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_lengths_that_go_other_ways(name, soon):
    compared(HOSTILE[name], series, 4)


def test_a_branch_that_ran_for_no_known_length_is_recorded(soon):
    """The first data at that length do not show it."""

    def model(item, x):
        y, sign = item
        if len(y) == 29 and sign > 0.0:
            return recurrent(y, x) * 2.0
        return recurrent(y, x)

    def items_of(n, random):
        return series(n, random), np.float64(1.0 if random.random() > 0.6 else -1.0)

    ordered = [20, 25, 30, 35, 40, *[29] * 6]
    for seed in range(2):
        model_ = lambda item, x, s=seed: model(item, x) + 0.0 * s  # noqa: E731
        compared(model_, items_of, 5, ordered)


def test_what_serves_no_other_lengths_is_recorded_a_few_times(monkeypatch):
    family, path = lengths.Family(), SimpleNamespace(ran={})
    family.seen |= {(1,), (2,)}
    for number in range(lengths.MOST_IN_VAIN):
        assert family.is_open
        family.add((number,), None, path)
    assert not family.is_open
    family.expected += 1
    assert family.is_open


VARIED = [0.1, 0.5, 0.2, 0.4, 0.7, 0.9, 0.3, 0.8, 0.6]
KNOWN = [(4, 9), (6, 9), (9, 9)]
LINES = [  # constants at these lengths, and at 7
    ([4, 6, 9], 7),
    ([1, 5, 11], 7),
    ([2.0, 4.0, 7.0], 5.0),
    (["a", "a", "a"], "a"),
    ([(4, 3), (6, 3), (9, 3)], (7, 3)),
    ([slice(3, None, -1), slice(5, None, -1), slice(8, None, -1)], slice(6, None, -1)),
    ([(0, 1, 2), (0, 1, 2, 3, 4), (0, 1, 2, 3, 4, 5, 6, 7)], (0, 1, 2, 3, 4, 5)),
    ([(3, 2, 1, 0), (5, 4, 3, 2, 1, 0), tuple(range(9))[::-1]], (6, 5, 4, 3, 2, 1, 0)),
    ([tuple(VARIED[:n]) for n in (4, 6, 9)], tuple(VARIED[:7])),
    ([tuple(VARIED[-n:]) for n in (2, 4, 7)], tuple(VARIED[-5:])),
    ([np.arange(4), np.arange(6), np.arange(9)], np.arange(7)),
]
UNLIKE = [
    [16, 36, 81],
    [4, 6, 8],
    [2, 3, 4],
    [0.25, 1.0 / 6.0, 1.0 / 9.0],
    [True, True, False],
    ["a", "a", "b"],
    [4, 6, 9.0],
    [(0.1, 0.2), (0.3, 0.2), (0.1, 0.2)],
    [(0.1,) * 4, (0.2,) * 6, (0.3,) * 9],
    [np.arange(4), np.arange(6), np.arange(9)[::-1]],
    [np.arange(4.0), np.arange(6.0), np.arange(9)],
    [np.ones(2), np.ones(2), np.zeros(2)],
]


@pytest.mark.parametrize(("values", "expected"), LINES)
def test_constants_between_known_ones(values, expected):
    result = Line(KNOWN, (7, 9)).of(values)
    assert type(result) is type(expected)
    if isinstance(expected, np.ndarray):
        assert are_same([result], [expected])
        assert not result.flags.writeable
    else:
        assert repr(result) == repr(expected)


@pytest.mark.parametrize("values", UNLIKE)
def test_constants_that_do_not_follow_from_lengths(values):
    with pytest.raises(Unlike):
        Line(KNOWN, (7, 9)).of(values)
