"""What goes over the wire between client and workers: it arrives, and is kept as long as used."""

import functools
import pickle

import numpy
import pytest
from distributed.protocol import deserialize, serialize, to_serialize
from numpy.testing import assert_array_equal
from samples import askew

from daskgrad.autodiff.models.model import Call
from daskgrad.autodiff.values.memory import canonical
from daskgrad.placed.messages import (
    FIXED,
    LARGE,
    OnePickle,
    Parcel,
    Unopened,
    frame_message,
    pack,
    unpack,
)
from daskgrad.placed.request import SpreadSum
from daskgrad.placed.spread import as_sent
from daskgrad.placed.worker_store import Store
from daskgrad.sums.block_tasks import Summand
from daskgrad.sums.cutting import Tuples


@pytest.mark.parametrize(
    "value",
    [
        1.5,
        {"a": numpy.arange(3.0), "b": [None, "text"]},
        numpy.arange(LARGE, dtype=numpy.float32).reshape(2, -1),
        numpy.zeros((0, 3)),
        [numpy.arange(10.0)[::2], numpy.asfortranarray(numpy.ones((200, 300)))],
    ],
    ids=str,
)
def test_a_value_arrives_as_it_was_and_can_be_written_into(value):
    result = unpack(arrived(value))
    numpy.testing.assert_equal(result, value)
    for leaf in result if isinstance(result, list) else [result]:
        assert not isinstance(leaf, numpy.ndarray) or leaf.flags.writeable


def arrived(value):
    """Its frames, as they come out of a message."""
    return [
        deserialize(*serialize(frame.data)) if hasattr(frame, "data") else frame
        for frame in frame_message(pack(value))
    ]


def test_what_a_worker_unpacks_begins_where_numpy_likes_it():
    header, _ = pack(numpy.zeros(LARGE))
    result = Unopened([header, memoryview(askew(numpy.arange(LARGE * 1.0)))]).value()
    assert result.flags.aligned
    assert result[7] == 7.0


def test_large_arrays_are_not_copied_into_the_message():
    array = numpy.zeros(LARGE)
    _, frame = pack(array)
    array[7] = 5.0
    assert numpy.frombuffer(frame)[7] == 5.0


def test_what_pickle_cannot_do_cloudpickle_does():
    assert unpack(pack(lambda x: x + 1))(2) == 3
    assert unpack(pack(functools.partial(lambda x, y: x - y, 5)))(2) == 3


def test_equal_content_has_one_digest():
    call = Call((1.0, None), None, ((1, 0),))
    assert Parcel.of(call).digest == Parcel.of(Call((1.0, None), None, ((1, 0),))).digest
    assert Parcel.of(call).digest != Parcel.of(Call((2.0, None), None, ((1, 0),))).digest
    assert Parcel.of(numpy.ones(9)).digest != Parcel.of(numpy.ones((3, 3))).digest


def test_workers_forget_what_was_not_used_for_long():
    store = Store(limit=3, nbytes=10_000)
    sent = [Parcel.of(numpy.full(200, number)) for number in range(9)]
    for parcel in sent:
        assert store.missing({parcel.digest: FIXED}, {parcel.digest: parcel.frames}) == []
    needed = {parcel.digest: FIXED for parcel in sent}
    assert store.missing(needed, {}) == [p.digest for p in sent[:6]]
    (kept,) = store.entries([sent[8].digest]).values()
    assert_array_equal(kept.value(), numpy.full(200, 8))
    large = [Parcel.of(numpy.full(2000, number)) for number in range(2)]
    both = {parcel.digest: parcel.frames for parcel in large}
    needed = dict.fromkeys(both, FIXED)
    assert store.missing(needed, both) == [], "those of one request stay together"


@pytest.mark.parametrize(("placed", "fields"), [(None, [0, 1]), (0, [1, 2]), (1, [0, 2])])
def test_what_is_sent_has_the_numbers_of_an_items_fields(placed, fields):
    spread_sum = SpreadSum(None, None, Summand(None, placed=placed), ["a", "b"], ["c"])
    assert list(map(spread_sum.field, range(2))) == fields


SMALL_ARRAYS = [numpy.arange(4.0) + number for number in range(1000)]


def test_a_list_travels_as_one_pickle_and_arrives_as_a_list():
    items = [*SMALL_ARRAYS, numpy.zeros(LARGE), {"a": 1.5}, "text"]
    _, frames = serialize(to_serialize(OnePickle(items)))
    assert len(frames) < 10, "not one an item"
    result = pickle.loads(pickle.dumps(OnePickle(items), protocol=5))
    assert type(result) is list
    assert all(map(numpy.array_equal, result[:1001], items))
    assert result[1001:] == items[1001:]
    assert all(array.flags.writeable and array.flags.aligned for array in result[:1001])
    assert canonical(result) is result, "is not converted again by each call"


def test_columns_with_lists_go_to_a_worker_as_one_pickle():
    columns = Tuples([SMALL_ARRAYS, numpy.arange(1000.0)])
    _, frames = serialize(to_serialize(as_sent(columns, "tcp://127.0.0.1:1")))
    assert len(frames) < 10, "not one an item"
    result = pickle.loads(pickle.dumps(as_sent(columns, "tcp://127.0.0.1:1"), protocol=5))
    assert type(result) is Tuples
    assert all(map(numpy.array_equal, result.columns[0], SMALL_ARRAYS))
    assert_array_equal(result.columns[1], columns.columns[1])
    assert as_sent(columns, "inproc://1") is columns, "the very objects"
