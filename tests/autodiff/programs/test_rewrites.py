"""Rewrites keep the bits: each by itself, and all together, of random programs and of models."""

import collections

import autograd.scipy.special as special
import autograd.scipy.stats as stats
import fuzz_sizes
import numpy as np
import pytest
from fuzz_programs import SENSELESS, points, program, silence

from daskgrad.autodiff.programs import density_calls, special_calls  # noqa: F401  their rules
from daskgrad.autodiff.programs.boxes import Unrecordable
from daskgrad.autodiff.programs.calls import replaced
from daskgrad.autodiff.programs.recording import record
from daskgrad.autodiff.programs.rewrites import RULES, rewritten
from daskgrad.autodiff.programs.signatures import are_same
from daskgrad.autodiff.rules.declaration import Diverged

REWRITES = list(dict.fromkeys(rule for rules in RULES.values() for rule in rules))
SEEDS = range(40)
WRITTEN = {  # programs with calls that random ones do not make
    "log_of_sum": lambda a, b, *data: [np.sum(special.logsumexp(b, axis=1)) + b[0, 0]],
    "density": lambda a, b, *data: [np.sum(stats.norm.logpdf(a, 0.1, 2.0))],
    "transforms": lambda a, b, *data: [np.abs(np.fft.fft(a)), np.fft.fft(b.T)],
    "by_kernel": lambda a, b, *data: [np.linalg.inv(b.T @ b + np.eye(b.shape[1]))],
    "a conjugate": lambda a, b, *data: [np.conj(a) * np.var(a)],
    "rolled": lambda a, b, *data: [np.roll(a, 2) * np.roll(a, shift=-3, axis=None)],
    "differences": lambda a, b, *data: [np.diff(a), np.diff(b, axis=-1)],
    "a length": lambda a, b, *data: [np.linalg.norm(a)],
    "a count": lambda a, b, *data: [np.sum(a > 0.0) * a],
    "a deviation": lambda a, b, *data: [np.std(a), np.sum(b, keepdims=True) * b],
    "a choice": lambda a, b, *data: [np.where(a > 0.0, a, 0.0)],
    "negative": lambda a, b, *data: [-(a * 0.0)],
}


def recorded(fun, seed):
    """The list of calls of a function, and its inputs at several points."""
    arrays = list(points(seed, count=3))
    with silence():
        calls, examples = record(fun, arrays[0], (0, 1))
    seeds = [example for example in examples if example is not None]
    return calls, [[*each, *seeds] for each in arrays]


@pytest.fixture(scope="module")
def programs():
    lists = []
    for seed in SEEDS:
        try:
            lists.append(recorded(program(seed), seed))
        except (*SENSELESS, Unrecordable):
            continue
    return lists + [recorded(fun, 1) for fun in WRITTEN.values()]


def run(program, leaves):
    """The meaning of a list: its calls, one after the other."""
    values = dict(zip(program.inputs, leaves, strict=True))
    with np.errstate(all="ignore"):
        for call in program.calls:
            args, kwargs = replaced((call.args, call.kwargs), values)
            values[call] = call.fun(*args, **kwargs)
    return replaced(program.outputs, values)


def shown(calls):
    return [(call.fun, *map(type, call.args)) for call in calls.calls]


def differences(lists, rules):
    """How many lists the rules change, and at how many points these have other bits."""
    changed = wrong = 0
    for calls, inputs in lists:
        other = rewritten(calls, rules)
        changed += shown(other) != shown(rewritten(calls, {}))
        for leaves in inputs:
            with silence():
                try:
                    expected = run(calls, leaves)
                    outputs = run(other, leaves)
                except (*SENSELESS, Diverged):
                    continue
            wrong += not are_same(outputs, expected) or orders(outputs) != orders(expected)
    return changed, wrong


def orders(arrays):
    """Orders in memory, on which the bits of later sums depend."""
    return [array.flags.c_contiguous if np.ndim(array) > 1 else None for array in arrays]


@pytest.mark.parametrize("name", [rule.__name__ for rule in REWRITES])
def test_a_rule_alone_keeps_the_bits(name, programs):
    alone = {fun: [rule for rule in rules if rule.__name__ == name] for fun, rules in RULES.items()}
    changed, wrong = differences(programs, alone)
    assert changed or name in NEEDS_OTHERS
    assert not wrong


NEEDS_OTHERS = {"number_spread", "through_reshape"}  # which take what other rules leave


def test_all_rules_keep_the_bits(programs):
    assert differences(programs, RULES)[1] == 0


BROKEN = {  # rules that are wrong: a sign of zero, a rounding, a shape
    "negative zeros": (np.negative, lambda call, emit: emit(np.subtract, (0.0, *call.args))),
    "a product in another order": (
        np.exp,
        lambda call, emit: emit(np.exp2, (emit(np.multiply, (call.args[0], 1.4426950408889634)),)),
    ),
    "one of two": (np.add, lambda call, emit: call.args[0]),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_wrong_rule_is_seen(name, programs):
    fun, rule = BROKEN[name]
    assert differences(programs, {fun: [rule]})[1]


def test_programs_of_other_sizes_have_the_same_text():
    counts = collections.Counter()
    for seed in range(4):
        assert not fuzz_sizes.differences(seed, counts)
    assert counts["shared"] >= counts["written"] > 0
