"""The first model whose rule is wrong is named, with its argument and the item of a sum."""

import autograd.numpy as np
import dask.bag
import pytest
from autograd.extend import defvjp, primitive

import daskgrad as dg
from daskgrad.derivatives.jvp import jvp

X = np.array([0.3, -0.5, 0.9])

pytestmark = pytest.mark.usefixtures("synchronous")


@primitive
def sine(x, factor):
    return np.sin(x)


defvjp(sine, lambda ans, x, factor: lambda g: factor * g * np.cos(x), None)


@dg.delayed
def right(x, y=1.0):
    return np.tanh(x) * y


@dg.delayed
def wrong(y, x):
    return np.sum(y) * sine(x, 1.001)


@dg.delayed
def also_wrong(x):
    return sine(x, 2.0)


def message_of(fun, *args, modes=("reverse",), **options):
    with pytest.raises(AssertionError) as caught:
        dg.check_grads(fun, modes=modes, **options)(*args)
    return str(caught.value)


@pytest.mark.parametrize("scheduler", ["sync", "cluster"], indirect=True)
def test_the_first_wrong_rule_of_a_graph_is_named(scheduler):
    def fun(x, z):
        return also_wrong(wrong(right(z), right(x, y=x))) + right(x)

    message = message_of(fun, X, X + 1.0)
    assert "pullback of 'fun' is wrong for argument 0 (float64[3])" in message
    assert "\nTaylor's remainders fall at the rates 1.0" in message
    assert "where 1, 2 is right" in message
    assert "\nthe first wrong rule is that of model 'wrong', argument 1: by itself" in message


def test_only_what_is_differentiated_is_checked_in_the_order_of_the_graph():
    """The inactive call is wrong, too, but does not matter."""
    for fun, place in (
        (lambda x: wrong(x, also_wrong(x)), "model 'also_wrong', argument 0"),
        (lambda x: wrong(also_wrong(X), x), "model 'wrong', argument 1"),
        (lambda x: wrong(x, dg.stop_gradient(also_wrong(x))) + also_wrong(x), "model 'also_wrong'"),
    ):
        assert f"that of {place}" in message_of(fun, X)


def test_arguments_are_named_as_the_call_names_them():
    model = dg.delayed(lambda a, tree, key: key["x"] * sine(tree[1]["x"], 1.001), name="model")
    fun = lambda x: model(1.0, [2.0, {"x": right(x)}], key={"x": right(x)})  # noqa: E731
    assert "that of model 'model', argument 1: " in message_of(fun, X)
    model_of_key = dg.delayed(lambda a, key: sine(key[0], 1.001) * a, name="model")
    assert "that of model 'model', key: " in message_of(lambda x: model_of_key(X, key=[x]), X)


FACTORS = [1.0] * 11 + [1.001] + [1.0] * 2 + [2.0]


def term(factor, x):
    return np.sum(sine(x, factor))


def array_term(factor, x, y):
    return sine(x, factor) if factor > 1.0 else sine(y, factor)


def pair_term(pair, x):
    return np.sum(sine(x, pair[1]) * pair[0])


def sum_of_terms(items, x):
    return sum([term(item, x) for item in items])


SUMS = {
    "a list": (lambda x: dg.map_sum(term, FACTORS, x), "item 11, argument 1"),
    "arrays": (lambda x: dg.map_sum(array_term, FACTORS, x, 2.0 * x), "item 11, argument 1"),
    "rows": (lambda x: dg.map_sum(term, np.array(FACTORS), x, grainsize=4), "item 11, argument 1"),
    "a zip": (
        lambda x: dg.map_sum(pair_term, dg.zip(np.ones(15), FACTORS), x),
        "item 11, argument 1",
    ),
    "differentiated items": (
        lambda x: dg.map_sum(pair_term, dg.zip(x, [1.0, 1.001, 1.0]), 2.0 * right(x)),
        "item 1, argument 1",
    ),
    "slices": (
        lambda x: dg.reduce_sum(sum_of_terms, FACTORS, x, grainsize=4),
        "item 8, argument 1",
    ),
    "a bag": (
        lambda x: dg.map_sum(term, dask.bag.from_sequence(FACTORS, npartitions=3), x),
        "item 1 of partition 2, argument 1",
    ),
    "one node an item": (
        lambda x: dg.map_sum(term, [*FACTORS[:13], right(1.0), 2.0], x),
        "argument 1",
    ),
}


@pytest.mark.parametrize("kind", SUMS)
def test_the_item_of_a_sum_is_named(kind):
    fun, place = SUMS[kind]
    assert f", {place}: by itself" in message_of(fun, X)


def test_also_over_placed_items(client):
    with dg.place(FACTORS, grainsize=2) as shards:
        message = message_of(lambda x: dg.map_sum(term, shards, x) ** 2, X)
        slices = message_of(lambda x: dg.reduce_sum(sum_of_terms, shards, x), X)
        assert ", item 10, argument 1: by itself" in slices
    assert "model 'term', item 11, argument 1: by itself" in message


def test_where_every_call_is_right_the_message_says_what_to_look_for():
    seen = []

    def remember(x):
        seen.append(dg.value(x))
        return np.sum(x)

    def through_a_closure(y):
        return y * np.sum(seen[-1])

    def fun(x):
        return dg.delayed(through_a_closure)(dg.delayed(remember)(x))

    message = message_of(fun, X)
    assert "each of the 3 nodes that matter is right by itself" in message
    assert "closure" in message


def is_call_of(name, fun):
    call = getattr(fun, "__self__", None)
    return call is not None and call.model.name == name


@pytest.mark.parametrize("modes", [("forward",), "forward"])
def test_the_forward_mode_is_checked_alone_too(modes, monkeypatch):
    """A tangent that is right for one model alone, in the place of the forward mode."""

    def jvp_of(fun, primals, tangents):
        value, tangent = jvp(fun, primals, tangents)
        return value, tangent if is_call_of("right", fun) else tangent * 1.01

    monkeypatch.setattr("daskgrad.derivatives.checks.directional.jvp", jvp_of)
    message = message_of(lambda x: right(right(x)) * 2.0, X, modes=modes)
    assert "the tangent of" in message
    assert "that of model 'multiply', argument 0" in message
    assert "Taylor" not in message


def test_an_error_of_the_search_says_what_was_found_before():
    """A model that runs where the data are, but not in this process alone."""
    ran = []

    def fails_later(x):
        ran.append(x)
        if len(ran) > 10:
            raise OSError("no such device")
        return sine(x, 1.001)

    with pytest.raises(OSError, match="no such device") as caught:
        dg.check_grads(dg.delayed(fails_later), modes="reverse")(X)
    assert any("the pullback of 'fails_later' is wrong" in note for note in caught.value.__notes__)
