"""Layouts: the arguments of a call, flattened, and which traced array stands where."""

import numpy as np
import pytest

from daskgrad.autodiff.models.model import Call, Model
from daskgrad.autodiff.models.tracing import Active, Tracer
from daskgrad.autodiff.values.carriers import Structure
from daskgrad.autodiff.values.trees import flatten

A, B, C = np.arange(3.0), np.arange(4.0), np.arange(5.0)
N = np.arange(3)
HOLE = object()

CALLS = {
    "one": (((HOLE,), {}), (0,), [A]),
    "beside constants": (((2.0, HOLE, "text", None), {}), (0,), [A]),
    "twice": (((HOLE, HOLE), {}), (0, 0), [A]),
    "in another order": (((HOLE, HOLE), {}), (1, 0), [A, B]),
    "by keyword": (((HOLE,), {"y": HOLE, "x": 1.0}), (1, 0), [A, B]),
    "numbers that are not traced": (((HOLE, HOLE, HOLE), {}), (0, 1, 2), [N, A, 3]),
    "in a list": ((([HOLE, 1.0], HOLE), {}), (1, 0), [A, B]),
    "a list": (((HOLE, HOLE), {}), (0, 1), [[A, B], C]),
    "a dict beside numbers": (((HOLE, 2.0, HOLE), {}), (1, 0), [3.0, {"b": A, "a": N}]),
}


def the_arguments(leaves, *_, **__):
    return leaves


@pytest.mark.parametrize("skipped", [None, 0, 1])
@pytest.mark.parametrize(("arguments", "numbers", "inputs"), CALLS.values(), ids=CALLS)
def test_a_layout_is_the_arguments_flattened(arguments, numbers, inputs, skipped):
    """``skipped``: an input that is not differentiated."""
    leaves, structure = flatten(arguments)
    at = [place for place, leaf in enumerate(leaves) if leaf is HOLE]
    constants = tuple([None if leaf is HOLE else leaf for leaf in leaves])
    call = Call(constants, Structure(structure), tuple(zip(at, numbers, strict=True)))
    active = [Active(number, False) for number in range(len(inputs)) if number != skipped]
    tracer = Tracer(Model(the_arguments, "model"), call, active, inputs)

    layout = tracer.layout(inputs)
    expected, shape = flatten(call.arguments(inputs))
    assert layout.structure == shape
    assert len(layout.leaves) == len(layout.places) == len(expected)
    for leaf, place, ours in zip(layout.leaves, layout.places, expected, strict=True):
        assert leaf is ours or np.shares_memory(leaf, ours)
        same = [n for n, array in enumerate(tracer.arrays) if is_same(array, ours)]
        assert ([] if place is None else [place]) == same


def is_same(array, leaf):
    return array is leaf or (isinstance(leaf, np.ndarray) and np.shares_memory(array, leaf))
