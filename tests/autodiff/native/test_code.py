"""Machine code of lists: values and gradients of the tape, marks of items, threads and travel."""

import operator
import pickle
import subprocess
import sys
import threading

import numpy as np
import pytest

pytest.importorskip("llvmlite", reason="machine code needs llvmlite: pip install daskgrad[native]")

from daskgrad.autodiff.native.code import (
    Flagged,
    Separate,
    Shared,
    Stacked,
    Unwritable,
    compiled,
)
from daskgrad.autodiff.programs.calls import CallList, NumpyCall, add_to, guard
from daskgrad.autodiff.programs.recording import record
from daskgrad.autodiff.programs.rewrites import rewritten
from daskgrad.autodiff.programs.rolling import rolled
from daskgrad.autodiff.rules.declaration import Diverged
from daskgrad.autodiff.tape.reverse import trace

RANDOM = np.random.default_rng(3)


def code_of(fun, *arrays, varying=()):
    """The code of a function of arrays and its pullback, and the cotangents it takes."""
    calls, examples = record(lambda *args: [fun(*args)], arrays, [*range(len(arrays))])
    return compiled(rewritten(rolled(calls)), varying), examples


def by_tape(fun, arrays, examples):
    outputs, tape = trace(lambda *args: [fun(*args)], [*arrays])
    return [*outputs, *tape.pull(examples)]


def require_near(results, expected, bits=False):
    for x, y in zip(results, expected, strict=True):
        assert np.shape(x) == np.shape(y)
        assert type(x) is type(y)
        size = np.max(np.abs(y), initial=0.0)
        np.testing.assert_allclose(x, y, rtol=0.0, atol=0.0 if bits else 1e-12 * size)


def require_tape(fun, *arrays, bits=False):
    code, examples = code_of(fun, *arrays)
    require_near(code.one([*arrays, *examples]), by_tape(fun, arrays, examples), bits)
    return code


def entries_call(fun, *arrays):
    """The code of one call."""
    inputs = [NumpyCall(None, (), {}, x) for x in arrays]
    call = NumpyCall(fun, inputs, {}, fun(*arrays))
    return compiled(CallList(inputs, [call], [call], 1, 0))


@pytest.mark.parametrize("name", "exp log sin cos tan sinh cosh tanh sqrt log1p expm1 cbrt".split())
def test_functions_of_entries(name):
    fun, x = getattr(np, name), RANDOM.random(11) + 0.1
    require_near(entries_call(fun, x).one([x]), [fun(x)])


@pytest.mark.parametrize("exponent", [2.0, 3.0, 0.5, -1.0, -0.5, 1.0 / 3.0])
def test_a_constant_has_the_bits_of_an_input(exponent):
    x = RANDOM.random(1000) + 0.1
    inputs = [NumpyCall(None, (), {}, x)]
    call = NumpyCall(np.power, (inputs[0], exponent), {}, x**exponent)
    (fixed,) = compiled(CallList(inputs, [call], [call], 1, 0)).one([x])
    (free,) = entries_call(np.power, x, np.float64(exponent)).one([x, np.float64(exponent)])
    np.testing.assert_array_equal(fixed, free)
    require_near([fixed], [x**exponent])


@pytest.mark.parametrize("fun", [np.add, np.subtract, np.multiply, np.divide, np.maximum])
@pytest.mark.parametrize("shape", [(), (1,), (7,), (3, 1), (3, 7), (2, 3, 7)])
def test_operands_of_all_shapes(fun, shape):
    x, y = RANDOM.normal(size=shape), RANDOM.normal(size=(3, 7))
    code = entries_call(fun, x, y)
    require_near(code.one([x, y]), [fun(x, y)], bits=True)


@pytest.mark.parametrize("axis", [None, 0, 1])
@pytest.mark.parametrize("shape", [(3, 5), (7, 8), (9, 17), (2, 1000), (300, 2), (40, 129)])
def test_sums_have_numpys_bits(shape, axis):
    x = RANDOM.normal(size=shape)
    inputs = [NumpyCall(None, (), {}, x)]
    call = NumpyCall(np.add.reduce, inputs, {"axis": axis}, np.add.reduce(x, axis=axis))
    code = compiled(CallList(inputs, [call], [call], 1, 0))
    assert code.has_tape_bits
    require_near(code.one([x]), [call.value], bits=True)


def test_products_views_and_indices():
    a, x = RANDOM.normal(size=(6, 9)), RANDOM.normal(size=9)

    def fun(a, x):
        b = np.dot(a, x)[::-1] + a[:, 2] * a.T[3]
        c = np.concatenate([b, x[[0, 0, -1]]]) - np.einsum("ij,ij->i", a, a)[1]
        return np.sum(np.sin(c) * np.max(a)) + np.sum(a[1:4, None] * x)

    require_tape(fun, a, x)


def test_linear_algebra():
    a, b = RANDOM.normal(size=(5, 5)), RANDOM.normal(size=5)

    def fun(a, b):
        matrix = np.dot(a, a.T) + 3.0 * np.eye(5)
        parts = np.linalg.solve(matrix, b) + np.linalg.inv(matrix)[:, 1]
        return np.sum(parts + np.linalg.cholesky(matrix)[3]) + np.linalg.slogdet(matrix)[1]

    assert not require_tape(fun, a, b).callbacks


def test_roundings_alone_have_the_tapes_bits():
    def fun(x):
        for n in range(40):
            x = x + 0.1 * np.array([x[1] * x[0], -x[0] / (2.0 + n), np.sqrt(x[2] * x[2] + 1.0)])
        return np.sum(np.where(x > 0.1, x, 2.0 * x))

    assert require_tape(fun, np.array([0.3, 0.2, 0.1]), bits=True).has_tape_bits


def test_a_call_that_goes_back_to_numpy_between_others():
    def fun(x):
        for _ in range(12):
            x = np.sin(x * x) - 0.5 * x
        return np.sum(np.sort(x) * x)

    assert "sort" in require_tape(fun, RANDOM.normal(size=6)).callbacks


def index_list(x, places):
    """The code of ``x[places]``, and of an addition to the places of zeros."""
    inputs = [NumpyCall(None, (), {}, x), NumpyCall(None, (), {}, places)]
    taken = NumpyCall(operator.getitem, inputs, {}, x[places])
    zeros = NumpyCall(np.zeros, (x.shape, x.dtype), {}, np.zeros(x.shape))
    value = np.zeros(x.shape)
    np.add.at(value, places, x[places])
    added = NumpyCall(add_to, (zeros, inputs[1], taken, False), {}, value)
    return compiled(CallList(inputs, [taken, zeros, added], [taken, added], 2, 0))


def test_data_indices_are_in_bounds_or_flagged():
    x, places = RANDOM.normal(size=4), np.array([0, 3, -1, -4, 3])
    code = index_list(x, places)
    expected = np.zeros(4)
    np.add.at(expected, places, x[places])
    require_near(code.one([x, places]), [x[places], expected])
    for wrong in (4, -5, 2**62, -(2**63)):
        with pytest.raises(Flagged):
            code.one([x, np.array([0, 1, wrong, 2, 3])])
    require_near(code.one([x, places]), [x[places], expected])


@pytest.mark.parametrize(
    ("fun", "x"),
    [(np.log, -1.0), (np.log, 0.0), (np.exp, 1e3), (np.reciprocal, 0.0), (np.sqrt, -2.0)],
)
def test_floating_point_errors_are_flagged(fun, x):
    good, bad = np.array([0.5, 0.7, 2.0]), np.array([0.5, x, 2.0])
    code = entries_call(fun, good)
    require_near(code.one([good]), [fun(good)])
    with pytest.raises(Flagged):
        code.one([bad])
    with pytest.raises(Flagged) as flagged:
        code.block(3, [Stacked(np.array([good, bad, good]))])
    assert flagged.value.items == [1]
    require_near(code.one([good]), [fun(good)])  # the flag is cleared


def test_quiet_nans_and_underflow_are_not_flagged():
    x = np.array([np.nan, 1e-300, np.inf])
    code = entries_call(np.multiply, x, x)
    np.testing.assert_array_equal(code.one([x, x])[0], x * x)


def test_guards_tell_the_items_that_go_another_way():
    inputs = [NumpyCall(None, (), {}, np.float64(1.0))]
    test = NumpyCall(operator.gt, (inputs[0], 0.0), {}, np.True_)
    calls = [test, NumpyCall(guard, (test, True), {}, None)]
    code = compiled(CallList(inputs, calls, [inputs[0]], 1, 0))
    assert code.one([np.float64(2.0)]) == [2.0]
    with pytest.raises(Diverged) as diverged:
        code.block(4, [Stacked(np.array([1.0, -1.0, 2.0, -3.0]))])
    assert diverged.value.items == [1, 3]


def test_an_item_has_its_bits_in_any_block():
    def fun(x, y):
        return np.sum(np.exp(np.sin(x) * y)) + np.dot(x, y)

    rows = RANDOM.normal(size=(9, 13))
    code, examples = code_of(fun, rows[0], rows[1])
    block = code.block(9, [Stacked(rows), Shared(rows[1]), *map(Shared, examples)])
    separate = code.block(9, [Separate([*rows]), Shared(rows[1]), *map(Shared, examples)])
    for n, row in enumerate(rows):
        for x, y, z in zip(code.one([row, rows[1], *examples]), block, separate, strict=True):
            np.testing.assert_array_equal(x, y[n])
            np.testing.assert_array_equal(x, z[n])


def of_length(n, w):
    x = RANDOM.normal(size=n)

    def fun(x, w):
        return np.sum(np.exp(w * x)) / n + np.mean(x)

    free, examples = record(lambda x, w: [fun(x, w)], [x, w], [1])
    return x, compiled(rewritten(rolled(free)), [0]), compiled(rewritten(rolled(free))), examples


def test_lists_of_other_lengths_share_machine_code_that_has_the_bits_of_their_own():
    w = np.float64(0.3)
    parts = [of_length(n, w) for n in (5, 11, 300)]
    codes = {id(code) for _, code, _, _ in parts}
    assert len(codes) == 1
    code, examples = parts[0][1], parts[0][3]
    arrays = [x for x, *_ in parts]
    rows = code.block(3, [Separate(arrays), Shared(w), *map(Shared, examples)])
    for n, (x, _, fixed, _) in enumerate(parts):
        for one, row in zip(fixed.one([x, w, *examples]), rows, strict=True):
            assert one is None or one == row[n]
    with pytest.raises(ValueError, match="lengths"):
        code.block(1, [Separate([np.ones(6)]), Shared(w), *map(Shared, examples)])


def test_inputs_of_other_kinds_are_refused():
    code = entries_call(np.exp, np.ones(3))
    for wrong in (np.ones(4), np.ones((3, 1)), np.ones(3, np.float32)):
        with pytest.raises(ValueError, match=r"input 0|machine code for"):
            code.one([wrong])
    strided = np.ones(6)[::2]
    require_near(code.one([strided]), [np.exp(strided)])


@pytest.mark.parametrize("x", [np.ones(3, np.float32), np.ones(3, np.complex128), np.ones((0,))])
def test_other_kinds_of_numbers_are_unwritable(x):
    with pytest.raises(Unwritable):
        entries_call(np.sin, x)


def test_threads_share_no_scratch():
    """Both threads are within the function at once: a call that goes back to NumPy waits."""
    barrier = threading.Barrier(2, timeout=30)

    def waits(x):
        barrier.wait()
        return x + 0.0

    x = np.arange(100.0)
    inputs = [NumpyCall(None, (), {}, x)]
    calls = [NumpyCall(np.multiply, (inputs[0], 2.0), {}, 2.0 * x)]
    barrier_call = NumpyCall(waits, (calls[0],), {}, 2.0 * x)
    calls.append(barrier_call)
    for _ in range(15):
        calls.append(NumpyCall(np.add, (calls[-1], calls[0]), {}, 2.0 * x))
    code = compiled(CallList(inputs, calls, [calls[-1]], 1, 0))
    results = {}

    def run(factor):
        results[factor] = code.one([factor * x])[0]

    threads = [threading.Thread(target=run, args=(factor,)) for factor in (1.0, -3.0)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for factor in (1.0, -3.0):
        np.testing.assert_array_equal(results[factor], 32.0 * factor * x)


FRESH = """
import pickle, sys
import numpy as np
code, inputs, expected = pickle.load(open(sys.argv[1], "rb"))
for x, y in zip(code.one(inputs), expected, strict=True):
    np.testing.assert_array_equal(x, y)
"""


def test_machine_code_travels(tmp_path):
    def fun(x):
        for _ in range(12):
            x = np.sin(x * x) - np.array([1.0, 2.0, 3.0, 4.0, 5.0, 6.0]) * x
        return np.sum(np.sort(x) * x) + np.linalg.det(np.outer(x, x) + np.eye(6))

    x = RANDOM.normal(size=6) / 10.0
    code, examples = code_of(fun, x)
    path = tmp_path / "code"
    path.write_bytes(pickle.dumps((code, [x, *examples], code.one([x, *examples]))))
    subprocess.run([sys.executable, "-c", FRESH, str(path)], check=True)
    assert pickle.loads(pickle.dumps(code)) is code
