"""Tapes as bytes: their arrays keep their strides, and what cannot travel stays behind."""

import io
import logging
import pickle
import threading

import autograd.numpy as np
import numpy
import pytest
from numpy.testing import assert_array_equal
from policies import Always, captured_under, moved
from probes import deep_chain, holds_lock

import daskgrad as dg
from daskgrad.autodiff.models.travel import seal
from daskgrad.autodiff.tape.pickling import TapePickler
from daskgrad.autodiff.values.memory import ALIGNMENT, Sealed, align

BASE = numpy.arange(120.0).reshape(2, 3, 4, 5)

ARRAYS = {
    "C": BASE.copy(),
    "Fortran": numpy.asfortranarray(BASE[0, 0]),
    "a view": BASE[0, 1],
    "strided": BASE[:, ::2, 1:3, ::2],
    "backwards": BASE[::-1, :, ::-2],
    "transposed": BASE.transpose(2, 0, 3, 1),
    "its own memory, in neither order": numpy.sin(BASE.transpose(2, 0, 3, 1)),
    "a view of that": numpy.sin(BASE.transpose(2, 0, 3, 1))[:, 1, ::2],
    "broadcast": numpy.broadcast_to(BASE[0, 0, 0], (7, 5)),
    "0-d": numpy.array(2.5),
    "empty": numpy.zeros((0, 3))[:, ::2],
    "complex": (BASE + 1j * BASE)[..., 0].T,
    "its real part": (BASE + 1j * BASE).real,
    "integers": numpy.arange(9)[::3],
    "loaded": pickle.loads(pickle.dumps(BASE, protocol=5))[1:],
}


def packed_again(contents, times=2):
    for _ in range(times):
        contents = seal(contents, TapePickler).load()
    return contents


@pytest.mark.parametrize("name", ARRAYS)
def test_arrays_keep_their_strides(name):
    array = ARRAYS[name]
    result = packed_again(array)
    assert result.dtype == array.dtype
    assert result.strides == array.strides or array.size == 0
    assert_array_equal(result, array)


def test_views_share_their_memory_and_it_is_sent_once():
    whole = numpy.arange(100_000.0)
    views = [whole[::2], whole[::-1], whole.reshape(100, 1000).T, whole]
    result = packed_again(views)
    assert all(numpy.shares_memory(result[0], other) for other in result[1:])
    assert seal(views, TapePickler).nbytes < 1.01 * whole.nbytes


def test_gaps_that_no_array_owns_are_kept():
    memory = memoryview(bytearray(range(256)))
    gaps = numpy.ndarray((4, 2), "f8", memory, 8, (40, 16))
    assert type(gaps.base) is not numpy.ndarray
    result = packed_again(gaps)
    assert_array_equal(result, gaps)
    assert not result.flags.forc


def test_a_buffer_from_within_a_message_is_copied_to_where_an_array_may_begin():
    message = bytearray(200)
    start = -numpy.frombuffer(message, numpy.uint8).ctypes.data % ALIGNMENT
    assert align(memoryview(message)[start : start + 80]) is not None
    askew = memoryview(message)[start + 3 : start + 83]
    result = align(askew)
    assert numpy.frombuffer(result, numpy.uint8).ctypes.data % ALIGNMENT == 0
    assert bytes(result) == bytes(askew)
    assert not memoryview(result).readonly
    assert memoryview(align(askew.toreadonly())).readonly


@pytest.mark.parametrize("protocol", [4, 5])
def test_packed_tapes_may_be_pickled_again(protocol):
    array = numpy.arange(5.0)
    packed = pickle.loads(pickle.dumps(seal(array, TapePickler), protocol=protocol))
    assert isinstance(packed, Sealed)
    result = packed.load()
    result += 1.0  # what may be written into where it was made may be here
    assert_array_equal(result, array + 1.0)


# ------------------------------------------------------------------------- what stays behind


def with_residual(residual):
    @dg.custom_vjp
    def held(x):
        return np.sin(x)

    held.defvjp(lambda x: (np.sin(x), (x, residual)), lambda kept, g: (np.cos(kept[0]) * g,))
    return held


def a_generator():
    yield from range(3)


class Unpicklable:
    def __reduce__(self):
        raise ValueError("not me")


class Unloadable:
    def __reduce__(self):
        return fail, ()


def fail():
    raise OSError("not here")


STAYING = {
    "a lock": threading.Lock,
    "a generator": a_generator,
    "a file": lambda: open(__file__),
    "a binary file": lambda: open(__file__, "rb"),
    "memory as a file": lambda: io.BytesIO(b"abc"),
    "an object that raises": Unpicklable,
}


@pytest.fixture
def records(caplog):
    caplog.set_level(logging.INFO, "daskgrad")
    return caplog


@pytest.mark.parametrize("name", STAYING)
def test_a_tape_that_cannot_be_packed_stays_behind(name, records):
    residual = STAYING[name]()
    captured = captured_under(Always(), with_residual(residual), np.ones(3))
    assert moved(captured).pullback.is_empty
    assert "a tape stays behind, and its model is traced again: " in records.text
    getattr(residual, "close", int)()


def test_a_model_with_a_lock_in_its_tape(records, tmp_path):
    captured = captured_under(Always(), lambda x: holds_lock(x, tmp_path / "log"), np.ones(3))
    assert moved(captured).pullback.is_empty
    assert "pickle '_thread.lock'" in records.text


def test_a_tape_that_cannot_be_loaded_is_empty_from_then_on(records):
    captured = captured_under(Always(), with_residual(Unloadable()), np.ones(3))
    arrived = moved(captured).pullback
    assert not arrived.is_empty, "nothing is loaded before it is used"
    assert not records.text
    arrived.unpack()
    assert arrived.is_empty
    assert "a tape that arrived cannot be loaded: OSError: not here" in records.text


@pytest.mark.long
def test_a_deep_chain_is_packed(tmp_path):
    captured = captured_under(Always(), lambda x: deep_chain(x, tmp_path / "log"), np.ones(3))
    arrived = moved(captured).pullback
    arrived.unpack()
    g = (np.array([1.0, -2.0, 0.5]),)
    assert_array_equal(arrived(g)[0], captured.pullback(g)[0])


def test_a_chain_of_closures_that_is_too_deep_stays_behind(records):
    def within(inner):
        return lambda: inner

    deep = None
    for _ in range(10_000):
        deep = within(deep)
    captured = captured_under(Always(), with_residual(deep), np.ones(3))
    assert moved(captured).pullback.is_empty
    assert "recursion" in records.text


def test_what_is_read_only_stays_so():
    """A rule that writes into its residuals would be right once, and wrong at the next call."""
    whole = numpy.arange(6.0)
    view, alone = whole[::2], numpy.arange(3.0)
    view.flags.writeable = alone.flags.writeable = False
    assert [array.flags.writeable for array in packed_again([view, whole, alone])] == [0, 1, 0]


class Derived(numpy.ndarray):
    pass


class Pickled(numpy.ndarray):
    def __reduce__(self):
        return super().__reduce__()


def test_a_derived_class_whose_pickle_would_lose_strides_stays_behind():
    strided = BASE.transpose(2, 0, 3, 1).view(Pickled)
    with pytest.raises(
        pickle.PicklingError, match=r"a Pickled with strides \(.* cannot be pickled"
    ):
        seal(strided, TapePickler)
    for array in (BASE.view(Pickled), BASE.view(Derived), BASE[..., ::2].view(Derived)):
        result = packed_again(array)
        assert type(result) is type(array)
        assert result.strides == array.strides
        assert_array_equal(result, array)
