"""What goes over the wire between client and workers: it arrives, and is kept as long as used."""

import functools
import pickle
import sys

import autograd.numpy as np
import numpy
import pytest
from distributed.protocol import serialize, to_serialize
from numpy.testing import assert_array_equal
from samples import askew

import daskgrad as dg
from daskgrad.models.model import Call, Model, SentFunction
from daskgrad.models.tracing import Active
from daskgrad.resident.holdings import as_sent
from daskgrad.resident.messages import (
    LARGE,
    SMALL,
    OnePickle,
    frame_message,
    pack,
    unpack,
)
from daskgrad.resident.parcels import Parcel, Parcels, Unopened
from daskgrad.resident.requests import SpreadSum, summand_parcel
from daskgrad.sums.block_tasks import Summand
from daskgrad.values.memory import canonical
from daskgrad.values.tuples import Tuples


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
    found = unpack(arrived(value))
    numpy.testing.assert_equal(found, value)
    for array in [
        a for a in (found if isinstance(found, list) else [found]) if hasattr(a, "flags")
    ]:
        assert array.flags.writeable


def arrived(value):
    """Its frames, as they come out of a message."""
    from distributed.protocol import deserialize, serialize

    return [
        deserialize(*serialize(frame.data)) if hasattr(frame, "data") else frame
        for frame in frame_message(pack(value))
    ]


def test_what_a_worker_unpacks_begins_where_numpy_likes_it():
    header, _ = pack(numpy.zeros(LARGE))
    found = Unopened([header, memoryview(askew(numpy.arange(LARGE * 1.0)))]).value()
    assert found.flags.aligned
    assert found[7] == 7.0


def test_large_arrays_are_not_copied_into_the_message():
    array = numpy.zeros(LARGE)
    _, frame = pack(array)
    array[7] = 5.0
    assert numpy.frombuffer(frame)[7] == 5.0


def test_what_pickle_cannot_do_cloudpickle_does():
    assert unpack(pack(lambda x: x + 1))(2) == 3
    assert unpack(pack(functools.partial(lambda x, y: x - y, 5)))(2) == 3


def test_a_model_travels_by_value_where_it_has_to(monkeypatch):
    def fun(x):
        return np.sum(x) * 2.0

    monkeypatch.setattr(sys.modules[__name__], "fun", None, raising=False)
    frames = pack(Model(fun, "fun"))
    assert unpack(frames).fun(numpy.ones(3)) == 6.0


def test_equal_content_has_one_digest():
    call = Call((1.0, None), None, ((1, 0),))
    assert Parcel.of(call).digest == Parcel.of(Call((1.0, None), None, ((1, 0),))).digest
    assert Parcel.of(call).digest != Parcel.of(Call((2.0, None), None, ((1, 0),))).digest
    assert Parcel.of(numpy.ones(9)).digest != Parcel.of(numpy.ones((3, 3))).digest


def test_workers_forget_what_was_not_used_for_long():
    kept = Parcels(limit=3, nbytes=10_000)
    sent = [Parcel.of(numpy.full(200, number)) for number in range(9)]
    for parcel in sent:
        assert kept.receive({parcel.digest: parcel.frames}, [parcel.digest]) == []
    assert kept.receive({}, [parcel.digest for parcel in sent]) == [p.digest for p in sent[:6]]
    assert_array_equal(kept[sent[8].digest].value(), numpy.full(200, 8))
    large = [Parcel.of(numpy.full(2000, number)) for number in range(2)]
    both = {parcel.digest: parcel.frames for parcel in large}
    assert kept.receive(both, list(both)) == [], "those of one request are kept together"


def test_a_summand_is_packed_again_only_where_something_differs():
    node = dg.map_sum(summed, [1.0], dg.variable(1.0), 0.0)
    model, summand = sent(summed), Summand(node.call, (Active(1, False),), placed=0)
    parcel = summand_parcel(model, summand)
    assert summand_parcel(model, summand) is parcel
    for other in (
        (sent(lambda item, x, c: x), summand),
        (model._replace(name="other"), summand),
        (model._replace(keep="tape"), summand),
        (model, summand._replace(placed=1)),
        (model, summand._replace(slices=True)),
        (model, summand._replace(active=())),
        (model, summand._replace(summation="compensated")),
        *[
            (model, summand._replace(call=with_constant(node.call, c)))
            for c in (-0.0, 0, False, None, "0.0")
        ],
    ):
        assert summand_parcel(*other).digest != parcel.digest
        assert summand_parcel(*other) is summand_parcel(*other)


@pytest.mark.parametrize(("placed", "fields"), [(None, [0, 1]), (0, [1, 2]), (1, [0, 2])])
def test_what_is_sent_has_the_numbers_of_an_items_fields(placed, fields):
    each = SpreadSum(None, None, Summand(None, placed=placed), ["a", "b"], ["c"])
    assert list(map(each.field, range(2))) == fields


def test_a_summand_with_an_array_is_packed_every_time():
    node = dg.map_sum(summed, [1.0], dg.variable(1.0), 0.0)
    array = numpy.ones(3)
    call = with_constant(node.call, array)
    model, summand = sent(summed), Summand(call, (Active(1, False),), placed=0)
    parcel = summand_parcel(model, summand)
    array[0] = 2.0
    assert summand_parcel(model, summand).digest != parcel.digest


def summed(item, x, constant):
    return item * x + constant


def sent(fun):
    return Model(SentFunction.of(Model(fun, "fun")), "fun")


def with_constant(call, constant):
    return call._replace(leaves=(*call.leaves[:-1], constant))


def test_a_list_travels_as_one_pickle_and_arrives_as_a_list():
    small = [numpy.arange(4.0) + number for number in range(1000)]
    items = [*small, numpy.zeros(LARGE), {"a": 1.5}, "text"]
    _, frames = serialize(to_serialize(OnePickle(items)))
    assert len(frames) < 10, "not one an item"
    found = pickle.loads(pickle.dumps(OnePickle(items), protocol=5))
    assert type(found) is list
    assert all(map(numpy.array_equal, found[:1001], items))
    assert found[1001:] == items[1001:]
    assert all(each.flags.writeable and each.flags.aligned for each in found[:1001])
    assert canonical(found) is found, "is not converted again by each call"


def test_columns_with_lists_go_to_a_worker_as_one_pickle():
    small = [numpy.arange(4.0) + number for number in range(1000)]
    columns = Tuples([small, numpy.arange(1000.0)])
    _, frames = serialize(to_serialize(as_sent(columns, "tcp://127.0.0.1:1")))
    assert len(frames) < 10, "not one an item"
    found = pickle.loads(pickle.dumps(as_sent(columns, "tcp://127.0.0.1:1"), protocol=5))
    assert type(found) is Tuples
    assert all(map(numpy.array_equal, found.columns[0], small))
    assert_array_equal(found.columns[1], columns.columns[1])
    assert as_sent(columns, "inproc://1") is columns, "the very objects"


def test_small_arrays_are_a_part_of_the_pickle_and_can_be_written_into():
    given = [numpy.arange(3.0), numpy.arange(SMALL * 1.0), numpy.ones(2)]
    frames = pack(given)
    assert len(frames) == 2, "the large one has its own"
    found = unpack([bytes(frame) for frame in frames])
    assert all(each.flags.writeable for each in found)
    assert all(map(numpy.array_equal, found, given))
