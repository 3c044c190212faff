"""Compiled programs have the tape's bits: of every differentiated function, and at random."""

import itertools
import pickle
import warnings

import autograd.numpy as anp
import numpy as np
import pytest
from autograd.extend import defvjp, primitive
from functions_all import TABLE, in_runs
from recorded import program_of
from sweep import DOMAIN_ERRORS, calls_of

import daskgrad as dg
from daskgrad.autodiff.programs.boxes import Unrecordable
from daskgrad.autodiff.programs.program import CompiledTape
from daskgrad.autodiff.programs.signatures import are_same, signature_of
from daskgrad.autodiff.rules.declaration import Diverged
from daskgrad.autodiff.tape.reverse import trace
from daskgrad.autodiff.tape.traced_call import FlatArguments
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
                program = program_of(fun, arrays, traced)
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
                program_of(call, arrays, range(len(arrays)))
        except Unrecordable:
            refused.add(entry.name)
    assert len(refused) < 0.06 * len(TABLE), refused


def is_right(fun, *arrays, data=()):
    program = program_of(fun, [*arrays, *data], range(len(arrays)))
    found, residuals = program.forward(*arrays, *data)
    outputs, tape = trace(lambda *traced: fun(*traced, *data), arrays)
    pulled = program.pull_examples(residuals)
    return are_same([*found, *pulled], [*outputs, *tape.pull(program.examples)])


SQUARE = np.cos(np.arange(1600.0)).reshape(40, 40)
BY_COLUMNS = np.full((40, 40), 2.0, order="F")

ORDERED = {  # whose values have the order in memory of an argument, or of a constant
    "a transform": lambda x, y: np.abs(np.fft.fft(x)),
    "a product with one": lambda x, y: x * 1.0,
    "a power of one": lambda x, y: x**1,
    "a conjugate": lambda x, y: np.conj(x),
    "a sum with zeros": lambda x, y: np.zeros((40, 40), order="F") + y,
    "a choice": lambda x, y: np.where(x[:, :1] > 0.0, BY_COLUMNS, y),
}


OPTIONS = {  # that methods of arrays do not take, or not by name, or that rewrites do not know
    "axes": lambda x, y: np.transpose(x, axes=(1, 0)),
    "two axes": lambda x, y: np.swapaxes(x, axis1=0, axis2=1),
    "an order": lambda x, y: np.reshape(x, (4, 3), "F"),
    "an order by name": lambda x, y: np.ravel(x, order="F"),
    "all by name": lambda x, y: x * np.transpose(np.cumsum(a=np.real(val=y.T), axis=1)),
    "a shift": lambda x, y: np.roll(x[0], shift=2),
    "axes that are kept": lambda x, y: np.mean(x, axis=1, keepdims=1) * np.std(x, keepdims=1),
    "a choice": lambda x, y: x if np.all(y[0, 0] > 9.0, where=False) else y,
    "a branch by name": lambda x, y: x if np.all(a=y[0, 0] > -9.0) else y,
    "a dtype": lambda x, y: x * np.power(y, 2, dtype=np.float32),
    "a dtype of zeros": lambda x, y: x * np.add(np.zeros((3, 4)), y[0], dtype=np.float32),
}


@pytest.mark.parametrize("name", OPTIONS)
def test_options_are_kept(name):
    x = SQUARE[:3, :4].copy()
    assert is_right(lambda x, y: [OPTIONS[name](x, y)], x, data=[2.0 * x])


def test_cotangents_of_one_of_several_values_have_its_dtype():
    weights = np.linspace(0.1, 1.0, 3)  # in double precision
    matrix = np.cos(np.arange(9.0, dtype=np.float32)).reshape(3, 3)
    assert is_right(lambda x: [np.sum(np.linalg.eigh(x @ x.T)[0] * weights)], matrix)


def test_a_cotangent_in_double_precision_stays_so_where_entries_in_single_are_added():
    base = np.linspace(0.5, 1.5, 4)
    x = np.cos(np.arange(5.0, dtype=np.float32))

    def fun(x):
        y = x * np.float32(0.3)
        power = base ** np.sum(y)
        return [y[-1] * np.float32(2.0), power]

    assert is_right(fun, x)


def test_a_traced_value_by_name_ends_the_recording():
    with pytest.raises(Unrecordable, match="average uses a traced value that is not a positional"):
        program_of(lambda w, x: [anp.average(x, weights=w)], [np.ones(3), np.ones(3)], [0])


@pytest.mark.parametrize("name", ORDERED)
@pytest.mark.parametrize("array", [SQUARE.T, SQUARE[::-1]], ids=["columns", "reversed"])
def test_values_have_the_order_in_memory_of_the_tapes(name, array):
    fun = lambda x, y: [ORDERED[name](x, y)]  # noqa: E731
    arrays = array, SQUARE[0]
    (found,), _ = program_of(fun, arrays, [0, 1]).forward(*arrays)
    assert found.strides == fun(*arrays)[0].strides


def test_a_pullback_that_may_need_the_tape_does_not_travel():
    program = program_of(lambda x: [np.linalg.norm(x)], [np.ones(3)], [0])
    _, residuals = program.forward(np.ones(3))
    with pytest.raises(pickle.PicklingError, match="may need the tape"):
        pickle.dumps(CompiledTape(program, residuals, 0))


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


@primitive
def flat(x):
    return x * 1.0


defvjp(flat, lambda value, x: lambda g: np.full(np.shape(x), 2.0))


def test_a_cotangent_that_is_constant_is_not_taken_for_zeros():
    assert is_right(lambda x: [np.sum(flat(x)) + x[0] * 3.0], np.ones(3))


def test_parts_of_one_result_may_be_constants():
    assert is_right(
        lambda x: [np.linalg.slogdet(x)[0] * x[0, 0], np.linalg.slogdet(x)[1]], np.eye(2) + 1.0
    )


def test_an_argument_is_not_compared_with_all_others():
    compared = itertools.count()

    class Number(int):
        __hash__ = int.__hash__

        def __eq__(self, other):
            next(compared)
            return int(self) == other

    numbers = [Number(n) for n in range(256)]
    leaves, structure = flatten((([np.ones(2) for _ in numbers],), {}))
    assert signature_of(FlatArguments(leaves, structure, numbers)).places == numbers
    assert next(compared) <= 2 * len(numbers)


def test_a_program_has_the_algorithm_of_the_tape():
    """A triangular matrix is substituted: pivots change last bits where BLAS has threads."""

    def root(x):
        return np.sum(np.linalg.cholesky(np.outer(x, x) + np.eye(3)))

    model = dg.delayed(root, compile=True)
    text = str(dg.explain(model, np.ones(3)))
    assert text.count("= solve_triangular") == 2
    assert "= solved" not in text
