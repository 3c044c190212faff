"""Operators of plain numbers have no tape: value, derivatives and warnings are those of one."""

import itertools
import warnings

import numpy as np
import pytest

from daskgrad.autodiff.models import pullbacks
from daskgrad.autodiff.models.model import Call
from daskgrad.autodiff.models.pullbacks import capture, pull_back
from daskgrad.autodiff.models.tracing import Active
from daskgrad.autodiff.programs.signatures import are_same
from daskgrad.autodiff.values.carriers import Structure
from daskgrad.autodiff.values.cotangents import Cotangent
from daskgrad.autodiff.values.trees import flatten
from daskgrad.graph.operators import ADD, DIVIDE, MULTIPLY, NEGATIVE, SUBTRACT

ODD = [0.0, -0.0, 1.0, -2.5, 1e-320, 1e308, -np.inf, np.nan]
DRAWN = np.random.default_rng(0).normal(size=(40, 2)).tolist()
PAIRS = [*itertools.product(ODD, ODD), *map(tuple, DRAWN), (3, 0.5), (0.5, 7)]


def derivatives(model, operands, numbers):
    """Value, cotangents and warnings of a call, whose operands of these numbers are inputs."""
    leaves = [None if n in numbers else each for n, each in enumerate(operands)]
    holes = tuple([(place, number) for number, place in enumerate(numbers)])
    call = Call(tuple(leaves), Structure(flatten((tuple(operands), {}))[1]), holes)
    inputs = [np.float64(operands[n]) for n in numbers]
    active = [Active(number, False) for number in range(len(numbers))]
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        captured = capture(model, call, active, inputs)
        cotangent = Cotangent((np.float64(-0.7),), None)
        pulled = pull_back(captured, cotangent, model, call, active, inputs)
    parts = [pulled] if len(numbers) == 1 else pulled
    return [captured.value, *[part.leaves[0] for part in parts]], list(map(str, seen))


@pytest.mark.parametrize("model", [ADD, SUBTRACT, MULTIPLY, DIVIDE, NEGATIVE])
def test_bits_and_warnings_are_those_of_a_tape(model, monkeypatch):
    count = 1 if model is NEGATIVE else 2
    numbers = [(0,)] if count == 1 else [(0,), (1,), (0, 1)]
    cases = [(pair[:count], which) for pair in PAIRS for which in numbers]
    found = [derivatives(model, *case) for case in cases]
    monkeypatch.setattr(pullbacks, "SLOPES", {})
    for case, (leaves, told) in zip(cases, found, strict=True):
        expected, warned = derivatives(model, *case)
        assert are_same(leaves, expected), case
        assert list(map(type, leaves)) == list(map(type, expected)), case
        assert told == warned, case
