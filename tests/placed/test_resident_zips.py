"""Placed items beside others: what changes is seen, what is not differentiated is not traced."""

import autograd.numpy as np
import numpy
import optree
import pytest
from clusters import tasks_run
from comparisons import assert_same
from placed_programs import OF_ROWS, ROWS, WIDE, X, effect, in_one_thread, wide

import daskgrad as dg

pytestmark = [
    pytest.mark.timeout(120),
    pytest.mark.filterwarnings("ignore:the output of .* does not depend on '[px]'"),
]


def of_pairs(model, pairs):
    return dg.value_and_grad(lambda x: dg.map_sum(model, pairs, x))(X)


def uneven(pair, x):
    return np.sum(np.sin(pair[0]) * pair[1] * x)


def test_one_model_with_the_placed_items_in_other_parts(local):
    """The summands differ in nothing else."""
    shards = dg.place(ROWS)
    assert_same(of_pairs(uneven, dg.zip(shards, OF_ROWS)), of_pairs(uneven, dg.zip(ROWS, OF_ROWS)))
    assert_same(of_pairs(uneven, dg.zip(OF_ROWS, shards)), of_pairs(uneven, dg.zip(OF_ROWS, ROWS)))


def sign(pair, x):
    return numpy.sign(float(pair[0][0] * x[0]))  # autograd's boxes are no numbers


def signs(row, x):
    return numpy.array([sign((row, row), x), 1.0])


BESIDE = {
    "a zip that is stopped": lambda sum_, shards, p, x: (
        sum_ * dg.stop_gradient(dg.map_sum(sign, dg.zip(p, shards), x)),
        (),
    ),
    "a zip beside the output": lambda sum_, shards, p, x: (
        sum_,
        dg.map_sum(sign, dg.zip(p, shards), x),
    ),
    "arrays beside the output": lambda sum_, shards, p, x: (sum_, dg.map_sum(signs, shards, x)),
}


@pytest.mark.parametrize("name", BESIDE)
def test_a_sum_that_no_derivative_is_asked_of_is_not_traced(name, local):
    def gradients(items):
        def fun(p, x):
            return BESIDE[name](dg.map_sum(effect, dg.zip(p, items), x), items, p, x)

        return dg.value_and_grad(fun, (0, 1), has_aux=True)(OF_ROWS, X)

    expected = in_one_thread(gradients, ROWS)
    shards = dg.place(ROWS)
    before = tasks_run(local)
    assert_same(gradients(shards), expected)
    assert tasks_run(local) == before


def of_either(item, x):
    return np.sum(getattr(item, "value", item) * x)


def test_classes_that_are_registered_later_are_known_to_the_workers(client):
    """Also where a sum over the same model was sent before: a cell of a notebook that ran again."""

    class Own:
        def __init__(self, value):
            self.value = value

    def gradients(items, x):
        return dg.grad(lambda p, x: dg.map_sum(of_pair, dg.zip(p, shards), x), (0, 1))(items, x)

    def of_pair(pair, x):
        return of_either(pair[0], pair[1]) * of_either(x, 1.0)

    shards = dg.place(ROWS)
    expected = gradients(list(OF_ROWS), X)
    optree.register_pytree_node(
        Own,
        lambda item: ((item.value,), None, None),
        lambda _, leaves: Own(*leaves),
        namespace="daskgrad",
    )
    try:
        assert_same(gradients(list(map(Own, OF_ROWS)), Own(X)), expected)
    finally:
        optree.unregister_pytree_node(Own, namespace="daskgrad")


@pytest.mark.parametrize("where", ["zipped", "shared"])
def test_workers_in_this_process_keep_what_was_sent_when_the_array_changes(where, local):
    """Also what is kept for an array that was like it, and is in another place of the memory."""
    first, second = WIDE.copy(), WIDE.copy()

    def gradient(items, array):
        if where == "zipped":
            return of_pairs(wide, dg.zip(items, array))
        return dg.value_and_grad(
            lambda x: dg.map_sum(lambda row, x, all: wide((row, all), x), items, x, array)
        )(X)

    expected = gradient(ROWS, WIDE)
    shards = dg.place(ROWS)
    assert_same(gradient(shards, first), expected)
    first[:] = 7.0
    assert_same(gradient(shards, second), expected)
