"""Arrays on the workers are as NumPy makes them: with its own dtype, aligned, and in order.

A dtype that came out of a pickle equals NumPy's own and is another object; ``np.add.at``, with
which an indexed array is pulled back, then takes 25 times as long.
"""

import pickle

import autograd.numpy as np
import dask
import numpy
import pytest
from policies import Always, moved, moving, under

import daskgrad as dg
from daskgrad.autodiff.models.captured import Gradient
from daskgrad.autodiff.values.addition import Unrounded, UnroundedValue
from daskgrad.autodiff.values.carriers import Structure
from daskgrad.autodiff.values.cotangents import Cotangent, Unscaled
from daskgrad.autodiff.values.memory import canonical
from daskgrad.autodiff.values.trees import flatten
from daskgrad.sums.item_cotangents import ItemGradient

KINDS = (numpy.float64, numpy.float32, numpy.complex128, numpy.int64, numpy.int32, numpy.bool_)
FLOAT = numpy.dtype(float)
INDEX = numpy.array([0, 2, 2, 1])
LARGE = numpy.ones(20_000)  # bytes that a request does not carry, but a parcel
Z = numpy.linspace(0.1, 1.0, 3)


def strangers(*values):
    """The arrays that are not as NumPy makes them."""
    leaves = [leaf for value in values for leaf in flatten(value)[0]]
    arrays = [leaf for leaf in leaves if isinstance(leaf, numpy.ndarray)]
    assert arrays, "else this cannot fail"
    return [x for x in arrays if not (x.flags.aligned and x.dtype is numpy.dtype(x.dtype.char))]


def require_own(*values):
    assert not strangers(*values)


@dg.custom_vjp
def watch(x):
    return x


def watch_forward(x):
    require_own(x)
    return x, x


def watch_backward(x, g):
    require_own(x, g)
    return (g,)


watch.defvjp(watch_forward, watch_backward)


def likelihood(weights):
    """A model that looks at all arrays it sees: items, constants, its closure, what it is given."""

    def likelihood(item, z, large):
        index, parts = item
        require_own(index, parts, dg.value(z), large, weights)
        return np.sum(watch(watch(z)[index] * weights * parts["scale"])) + 0.0 * large[0]

    return likelihood


def items(count):
    scales = numpy.random.default_rng(0).normal(size=(count, 4))
    return [(INDEX.copy(), {"scale": scale.copy()}) for scale in scales]


def test_what_a_pickle_makes_of_a_dtype():
    """The day this fails, NumPy's pickles bring its own dtypes, and none need be given."""
    assert pickle.loads(pickle.dumps(Z)).dtype is not FLOAT
    assert (pickle.loads(pickle.dumps(Z)) + Z).dtype is not FLOAT, "others inherit it"


@pytest.mark.parametrize("place", [False, True], ids=["sent", "placed"])
def test_a_sum_sees_numpys_own_arrays(place, every_scheduler):
    model = likelihood(numpy.arange(4.0))

    def computed():
        data = dg.place(items(6)) if place else items(6)

        def of(z, large):
            return dg.map_sum(model, data, z, large)

        return dg.value_and_grad(of, 0)(Z, LARGE)

    result = every_scheduler(computed)
    assert len({(value, gradient.tobytes()) for value, gradient in result.values()}) == 1
    require_own(*[gradient for _, gradient in result.values()])


def test_variable_items_are_numpys_own_arrays(every_scheduler):
    def model(item, z):
        (x, index), y = item
        require_own(dg.value(x), index, y, dg.value(z))
        return np.sum(watch(x) * watch(z)[index] * y)

    def computed():
        with dg.place([numpy.arange(4.0) + n for n in range(5)]) as ys:
            p = [(numpy.full(4, 1.0 + n), INDEX) for n in range(5)]
            return dg.grad(lambda p, z: dg.map_sum(model, dg.zip(p, ys), z), (0, 1))(p, Z)

    for result in every_scheduler(computed).values():
        require_own(result)


def test_chained_models_and_their_cotangents_are_numpys_own_arrays(every_scheduler):
    first = dg.delayed(lambda z: {"a": watch(z) * 2.0, "b": (watch(z)[INDEX], z)}, name="first")

    def last(value):
        require_own([dg.value(leaf) for leaf in flatten(value)[0]])
        return np.sum(watch(value["a"])) + np.sum(watch(value["b"][0]) ** 2)

    def computed():
        return dg.vjp(lambda z: dg.delayed(last)(first(z)), Z)[1](1.0)

    for result in every_scheduler(computed).values():
        require_own(result)


def test_a_tape_that_travelled_has_numpys_own_arrays():
    first = dg.delayed(lambda z: watch(np.sin(watch(z))[INDEX]), name="first")
    last = dg.delayed(lambda y: watch(np.exp(watch(y))), name="last")
    with dask.config.set(scheduler=moving), under(Always()):
        value, pullback = dg.vjp(lambda z: last(first(z)), Z)
        (cotangent,) = pullback(numpy.ones(4))
    require_own(value, cotangent)


@pytest.mark.parametrize("kind", KINDS)
def test_arrays_of_all_kinds_are_given_numpys_own_dtype_without_a_copy(kind):
    there = moved({"a": numpy.ones((2, 3), kind), "b": [numpy.ones((2, 3), kind).T, "text", None]})
    assert len(strangers(there)) == 2
    result = canonical(there)
    require_own(result)
    for one, other in zip(flatten(result)[0][:2], flatten(there)[0][:2], strict=True):
        assert numpy.shares_memory(one, other)
        assert one.strides == other.strides
        assert one.flags.writeable == other.flags.writeable
    assert canonical(result) is result


@pytest.mark.parametrize("dtype", [">f8", "U5", "M8[s]", "f8,i4", "O", "V8"])
def test_other_dtypes_are_left_as_they_are(dtype):
    array = numpy.zeros(2, dtype)
    assert canonical((array,))[0] is array
    there = pickle.loads(pickle.dumps(array, protocol=5))
    assert canonical(there).dtype == there.dtype
    assert canonical(there) is there or there.dtype == FLOAT, "NumPy's pickles put bytes in order"


SPEC = Structure(flatten((1.0, 1.0))[1])


@pytest.mark.parametrize(
    ("made", "held"),
    [
        (Cotangent((Z, None)), lambda c: c.leaves),
        (Unscaled((Z, None), factor=1.0), lambda c: c.leaves),
        (Gradient((Z, None)), lambda c: c.leaves),
        (ItemGradient((Z,), ((Z, Z),)), lambda c: (c.leaves, c.item_cotangents)),
        (Unrounded(Z, Z), lambda c: (c.high, c.low)),
        (UnroundedValue((Z, Z), SPEC), lambda c: c.leaves),
    ],
    ids=lambda entry: type(entry).__name__,
)
def test_what_travels_brings_numpys_own_arrays(made, held):
    require_own(held(moved(made)))
    numpy.testing.assert_equal(held(moved(made)), held(made))
