"""Every run of a model draws the same numbers, wherever and however often it runs."""

import collections
import copy

import autograd.numpy as np
import dask
import numpy as onp
import optree
import pytest
from numpy.testing import assert_allclose

import daskgrad as dg
from daskgrad.autodiff.values.protection import protect
from daskgrad.autodiff.values.trees import NAMESPACE, flatten

X = np.array([0.3, -0.5, 0.9])
ITEMS = np.linspace(0.0, 1.0, 11)

pytestmark = pytest.mark.usefixtures("synchronous")


def noisy(item, x):
    """Three draws: a second run that went on with the generator would be elsewhere."""
    number, generator = item
    noise = generator.standard_normal((3, 3)) + number
    return np.sum(np.sin(noise @ x)) + generator.uniform()


def noisy_sum(x, keep="auto", seed=1):
    model = dg.delayed(noisy, keep=keep)
    generators = dg.random.generators(seed, len(ITEMS))
    return dg.map_sum(model, dg.zip(ITEMS, generators), x)


def by_hand(x, seed=1):
    streams = [onp.random.default_rng(child) for child in onp.random.SeedSequence(seed).spawn(11)]
    return sum([noisy(item, x) for item in zip(ITEMS, streams, strict=True)])


# ---------------------------------------------------------------------------------- the streams


def test_streams_are_those_of_numpy_and_differ():
    first, again = dg.random.generators(7, 3), dg.random.generators(7, 3)
    drawn = [generator.random() for generator in first]
    assert drawn == [generator.random() for generator in again]
    children = onp.random.SeedSequence(7).spawn(3)
    assert drawn == [onp.random.default_rng(child).random() for child in children]
    assert len(set(drawn)) == 3
    assert dg.random.generators([1, 2], 0) == []


# ---------------------------------------------------------------------------------- in sums


@pytest.mark.parametrize("keep", ["auto", "recompute", "tape", "gradient"])
def test_all_derivatives_are_of_the_same_numbers_however_often(keep):
    """Also where a model is traced again; otherwise there is a NondeterministicModelError."""
    value, gradient = dg.value_and_grad(noisy_sum)(X)
    assert_allclose(value, by_hand(X), rtol=1e-14)
    assert noisy_sum(dg.variable(X), keep).compute() == value
    for _ in range(2):
        again, kept = dg.value_and_grad(noisy_sum)(X, keep=keep)
        assert again == value
        assert_allclose(kept, gradient, rtol=1e-14)
    v = np.array([1.0, -2.0, 0.5])
    pushed, tangent = dg.jvp(lambda x: noisy_sum(x, keep), (X,), (v,))
    assert_allclose(pushed, value, rtol=1e-14)
    assert_allclose(tangent, gradient @ v, rtol=1e-12)
    again, _ = dg.hvp(lambda x: noisy_sum(x, keep), (X,), (v,))
    assert_allclose(again[0], gradient, rtol=1e-12)


def test_the_callers_generator_is_not_advanced():
    (generator,) = dg.random.generators(3, 1)
    before = copy.deepcopy(generator)
    model = dg.delayed(lambda x, generator: np.sum(x * generator.random(3)), name="model")
    for _ in range(2):
        dg.grad(lambda x: model(x, generator))(X)
        model(X, generator).compute()
    assert generator.random() == before.random()


# ----------------------------------------------------------------------------- as other arguments


@optree.dataclasses.dataclass(namespace=NAMESPACE)
class Case:
    data: object
    source: object


Pair = collections.namedtuple("Pair", "data source")

HOLDERS = {
    "an argument": lambda g: g,
    "a keyword": lambda g: g,
    "in a list": lambda g: [1.0, [g]],
    "in a dict": lambda g: {"a": X, "g": {"h": g}},
    "in a tuple": lambda g: (g, 2),
    "in a namedtuple": lambda g: Pair(X, g),
    "in a dataclass": lambda g: Case(X, g),
    "in an ordered dict": lambda g: collections.OrderedDict(g=g),
    "a bit generator": lambda g: g.bit_generator,
    "a RandomState": lambda g: onp.random.RandomState(3),
    "a SeedSequence": lambda g: onp.random.SeedSequence(3),
}


def drawn_from(holder):
    source = next(leaf for leaf in flatten(holder)[0] if "random" in type(leaf).__module__)
    if isinstance(source, onp.random.BitGenerator):
        source = onp.random.Generator(source)
    if isinstance(source, onp.random.SeedSequence):
        source = onp.random.default_rng(source.spawn(1)[0])
    return source.standard_normal(3)


def draws(x, holder):
    return np.sum(np.sin(x) * drawn_from(holder))


@pytest.mark.parametrize("keep", ["recompute", "auto"])
@pytest.mark.parametrize("name", HOLDERS)
def test_generators_are_found_where_they_stand(name, keep):
    holder = HOLDERS[name](dg.random.generators(5, 1)[0])
    model = dg.delayed(draws, keep=keep)
    kwargs = {"holder": holder} if name == "a keyword" else {}
    args = () if kwargs else (holder,)
    results = [dg.value_and_grad(lambda x: model(x, *args, **kwargs))(X) for _ in range(2)]
    assert results[0][0] == results[1][0]
    assert results[0][1].tobytes() == results[1][1].tobytes()


def test_a_generator_that_another_task_returned_is_an_argument_like_others():
    source = dask.delayed(onp.random.default_rng)(4)
    model = dg.delayed(draws, keep="recompute")
    value, _ = dg.value_and_grad(lambda x: model(x, source) + model(x, source))(X)
    assert value == 2.0 * draws(X, onp.random.default_rng(4))


def test_one_generator_in_two_places_is_one_within_a_run():
    (generator,) = dg.random.generators(3, 1)
    first, second, within = protect([generator, generator, {"g": generator}])
    assert first is second is within["g"]
    assert first is not generator


# --------------------------------------------------------------------------------------- nested


def test_a_sum_inside_a_model_draws_what_the_sum_outside_does():
    generators = dg.random.generators(1, len(ITEMS))

    def inside(x, items, generators):
        both = [dg.map_sum(noisy, dg.zip(items, generators), x) for _ in range(2)]
        return both[0] + both[1]

    model = dg.delayed(inside, keep="recompute")
    value, gradient = dg.value_and_grad(lambda x: model(x, ITEMS, generators))(X)
    expected, expected_gradient = dg.value_and_grad(noisy_sum)(X)
    assert value == 2.0 * expected
    assert_allclose(gradient, 2.0 * expected_gradient, rtol=1e-14)


def test_a_shared_generator_gives_every_term_the_same_numbers():
    (generator,) = dg.random.generators(3, 1)
    first = generator.bit_generator.state

    def model(item, x, generator):
        return item * np.sum(x) * generator.random()

    expected = sum(ITEMS) * np.sum(X) * copy.deepcopy(generator).random()
    outside = dg.map_sum(model, ITEMS, X, generator).compute()
    inside = dg.delayed(lambda x, g: dg.map_sum(model, ITEMS, x, g))(X, generator).compute()
    assert_allclose([outside, inside], [expected, expected])
    assert generator.bit_generator.state == first
