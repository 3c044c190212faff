"""Compiled programs have the tape's bits: of every differentiated function, and at random."""

import itertools
import warnings

import autograd.numpy as anp
import fuzz_operations
import fuzz_programs
import numpy as np
import pytest
from autograd.numpy import numpy_wrapper
from functions_all import TABLE, in_runs
from sweep import DOMAIN_ERRORS, calls_of

from daskgrad.autodiff.compiled import backward
from daskgrad.autodiff.compiled.adjoints import ADJOINTS, UNARY, Pulled
from daskgrad.autodiff.compiled.program import Diverged
from daskgrad.autodiff.compiled.recording import record
from daskgrad.autodiff.compiled.signatures import are_same, signature_of
from daskgrad.autodiff.compiled.steps import Unrecordable
from daskgrad.autodiff.compiled.writing import write
from daskgrad.autodiff.tape.reverse import backward_order, trace
from daskgrad.autodiff.tape.traced_call import Layout
from daskgrad.autodiff.values.trees import flatten


@in_runs
def test_a_program_has_the_bits_of_the_tape(entries):
    for entry in entries:
        compare_calls(entry, 1, "d")


@pytest.mark.long
@in_runs
def test_a_program_has_the_bits_of_the_tape_in_every_dtype(entries):
    for entry in entries:
        compare_calls(entry, 12, "d")
        compare_calls(entry, 2, "fD")


def compare_calls(entry, count, dtypes):
    """With all arrays traced, and with one at a time, the others being data."""
    for call in itertools.islice(calls_of(entry), count):
        for dtype in dtypes:
            arrays = call.arrays(dtype)
            everything = range(len(arrays))
            choices = [[*everything], *[[n] for n in everything if len(arrays) > 1]]
            compare(call, arrays, choices, call.name)


def compare(fun, arrays, choices, name):
    """A program of the function with the tape, for each choice of what is traced; whether it can
    be recorded."""
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            trace(fun, arrays)
        except DOMAIN_ERRORS:
            return True
        for traced in choices:
            try:
                recording = record(fun, arrays, [n in traced for n in range(len(arrays))])
                program = write(recording, name, range(len(traced)))
            except Unrecordable:
                return False
            except DOMAIN_ERRORS:
                continue
            for shift in (0.0, 0.01):
                compare_at(fun, program, [moved(array, shift) for array in arrays], traced, name)
    return True


def moved(array, shift):
    waves = np.cos(np.arange(np.size(array))).reshape(np.shape(array))
    return array * (1.0 + shift * waves).astype(array.dtype) if shift else array


def compare_at(call, program, arrays, traced, name):
    def of_traced(*boxes):
        mixed = dict(zip(traced, boxes, strict=True))
        return call(*[mixed.get(n, array) for n, array in enumerate(arrays)])

    try:
        outputs, tape = trace(of_traced, [arrays[n] for n in traced])
        expected = tape.pull(program.examples)
    except (*DOMAIN_ERRORS, NotImplementedError):
        return
    if len(outputs) != len(program.examples):
        return  # an array of boxes, which is an error as the value of a model
    try:
        found, residuals = program.forward(*arrays)
    except Diverged:
        return
    assert are_same(found, outputs), name
    pulled = program.pull_examples(residuals)
    for number, each in enumerate(expected):
        if each is None and not np.any(pulled[number]):
            pulled[number] = None  # NumPy did not ask the tape's box, which it does not use
    assert are_same(pulled, expected), name


def test_most_calls_are_recorded():
    """And those that are not look at numbers: sets, sorted places, polynomials without zeros."""
    refused = set()
    for entry in TABLE:
        call = next(iter(calls_of(entry)))
        arrays = call.arrays("d")
        try:
            with np.errstate(all="ignore"), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                record(call, arrays, [True] * len(arrays))
        except Unrecordable:
            refused.add(entry.name)
    assert len(refused) < 0.06 * len(TABLE), refused


def in_another_order(ends):
    order = backward_order(ends)
    depth = {}
    for place in order:
        for parent in place.parents:
            depth[parent] = max(depth.get(parent, 0), depth.get(place, 0) + 1)
    return sorted(order, key=lambda place: (depth.get(place, 0), -order.index(place)))


MISTAKES = {  # that a compiler may have; one of ten programs from this seed on finds it
    "a rule": (0, lambda patch: patch.setitem(UNARY, anp.exp, "{ans} * {g} * 1.0000001")),
    "the sign of a zero": (120, lambda patch: patch.setitem(UNARY, anp.negative, "0.0 - {g}")),
    "an order of sums": (
        0,
        lambda patch: patch.setattr(backward, "backward_order", in_another_order),
    ),
    "a thin cotangent": (30, lambda patch: patch.setattr(Pulled, "thin", lambda call, *_: call.g)),
    "a thin sum": (
        0,
        lambda patch: patch.setattr(
            backward.Backward, "_of_one_shape", lambda self, place, *names: names
        ),
    ),
    "a count": (
        0,
        lambda patch: patch.setitem(
            ADJOINTS, numpy_wrapper._primitive_mean, lambda call: [f"{call.full()} + 0.0"]
        ),
    ),
}


def columns_and_rows(s):
    """The cotangent of a sum meets one in another memory order, of which a sum is taken."""
    w = fuzz_operations.TABLE + s
    return [np.sum(w) + np.sum(np.sin(w.T))]


def is_right(fun, *arrays):
    program = write(record(fun, arrays, [True] * len(arrays)), "model", range(len(arrays)))
    _, residuals = program.forward(*arrays)
    return are_same(program.pull_examples(residuals), trace(fun, arrays)[1].pull(program.examples))


NUMBERS = np.linspace(0.1, 2.0, 20)


def test_sums_follow_the_order_in_memory():
    assert all(is_right(columns_and_rows, number) for number in NUMBERS)


@pytest.mark.parametrize("name", MISTAKES)
def test_the_comparison_finds_mistakes(name, monkeypatch):
    first, make = MISTAKES[name]
    make(monkeypatch)
    are_right = all(is_right(columns_and_rows, number) for number in NUMBERS)
    seeds = range(first, first + 10)
    assert not are_right or any(map(fuzz_programs.differences_of_program, seeds))


OF_ZEROS = {  # whose cotangents are negative zeros, of which a sum is positive
    "a product": lambda x: x * 2.0,
    "a power": lambda x: x**3,
    "a difference": lambda x: 1.0 - x,
    "a maximum": lambda x: np.maximum(x, 0.5),
    "a choice": lambda x: np.where(x > 0.0, x, 1.0),
}


@pytest.mark.parametrize("name", OF_ZEROS)
@pytest.mark.parametrize("shape", [(4,), (1, 4), (4, 1), (1,)])
def test_zeros_have_the_sign_of_the_tape(name, shape):
    assert is_right(lambda x: [np.sum(-1.0 * (0.0 * OF_ZEROS[name](x)))], np.ones(shape))


def test_an_argument_is_not_compared_with_all_others():
    compared = itertools.count()

    class Number(int):
        __hash__ = int.__hash__

        def __eq__(self, other):
            next(compared)
            return int(self) == other

    numbers = [Number(n) for n in range(256)]
    leaves, structure = flatten((([np.ones(2) for _ in numbers],), {}))
    assert signature_of(Layout(leaves, structure, numbers)).places == numbers
    assert next(compared) <= 2 * len(numbers)
