"""Signatures: which leaves are the inputs of a program, found in one walk through them."""

import itertools

import numpy as np

from daskgrad.backends.traced_call import Layout
from daskgrad.compiled.signatures import signature_of
from daskgrad.values.trees import flatten


def signature_with(numbers):
    """The signature of a call with a list of arrays of these numbers."""
    leaves, structure = flatten((([np.ones(2) for _ in numbers],), {}))
    return signature_of(Layout(leaves, structure, numbers))


def test_an_array_that_is_two_arguments_is_one_input():
    assert signature_with([0, 1, 0, None, None]).places == [0, 1, 3, 4]


def test_an_argument_is_not_compared_with_all_others():
    compared = itertools.count()

    class Number(int):
        __hash__ = int.__hash__

        def __eq__(self, other):
            next(compared)
            return int(self) == other

    count = 256
    assert signature_with(list(map(Number, range(count)))).places == list(range(count))
    assert next(compared) <= count
