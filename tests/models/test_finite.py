"""The first number that is not finite is told with its model, pass, item and arguments."""

import threading

import autograd.numpy as np
import dask
import dask.bag
import probes
import pytest

import daskgrad as dg
from daskgrad.graph.nodes import build_values
from daskgrad.models.finite import trouble
from daskgrad.models.pullbacks import evaluate
from daskgrad.tasks.task_graph import TaskGraph

X = np.array([0.5, 1.5, 2.5])

pytestmark = [
    pytest.mark.usefixtures("synchronous"),
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),
]


def message_of(compute):
    with dg.debug_nans(), pytest.raises(FloatingPointError) as caught:
        compute()
    return str(caught.value)


@dg.delayed
def logarithm(x):
    return np.log(x)


@dg.delayed
def total(x):
    return np.sum(x)


@dg.delayed
def root(x):
    return np.sum(np.sqrt(x))


# --------------------------------------------------------------------------------- single models


def test_the_first_model_whose_value_is_not_finite_is_named(scheduler):
    message = message_of(lambda: dg.grad(lambda x: total(logarithm(2.0 * x)))(X - 1.5))
    assert message.startswith(
        "model 'logarithm', forward pass: the value has NaN at [0] (2 of 3 entries)"
    )
    assert message.endswith("; argument 0 is finite")


def test_outside_of_the_context_nothing_is_an_error(scheduler):
    value, _ = dg.value_and_grad(lambda x: total(logarithm(x)))(X - 1.5)
    assert np.isnan(value)


def test_a_gradient_that_is_not_finite_is_of_the_backward_pass(scheduler):
    message = message_of(lambda: dg.value_and_grad(lambda x: root(x))(X - 0.5))
    assert message == (
        "model 'root', backward pass: the gradient with respect to argument 0 has inf at [0] "
        "(1 of 3 entries); argument 0 is finite"
    )


def test_so_is_a_cotangent():
    roots = dg.delayed(np.sqrt, name="roots")
    message = message_of(lambda: dg.grad(lambda x: total(roots(x) * 2.0))(X - 0.5))
    assert message.startswith("model 'roots', backward pass: the cotangent of argument 0 has inf")


def test_a_cotangent_that_was_handed_in_is_told():
    square = dg.delayed(lambda x: {"a": x * x}, name="square")
    _, pullback = dg.vjp(lambda x: square(x), X)
    message = message_of(lambda: pullback({"a": X * np.nan}))
    assert "model 'square', backward pass: the cotangent that arrives at its value" in message
    assert "has NaN at [0] (3 of 3 entries) of its entry ['a']" in message


def test_plain_values_are_watched_too(scheduler):
    node = logarithm(X - 1.5)
    assert np.isnan(node.compute()[0])
    message = message_of(node.compute)
    assert message.startswith("model 'logarithm', value pass: the value has NaN at [0]")
    assert np.isnan(node.compute()[0])
    inactive = message_of(lambda: dg.grad(lambda x: total(x) * total(logarithm(X - 1.5)))(X))
    assert inactive.startswith("model 'logarithm', value pass")


def test_arguments_are_told_one_by_one():
    model = dg.delayed(lambda a, n, tree, key: a * tree["w"][1] * key, name="model")
    tree = {"w": [1.0, np.array([[1.0, 2.0], [np.inf, 4.0]])]}
    message = message_of(lambda: model(2.0, 3, tree, key=-np.inf).compute())
    assert message == (
        "model 'model', value pass: the value has -inf at [0, 0] (4 of 4 entries); "
        "argument 0 is finite; argument 1 is finite; "
        "argument 2 has inf at [1, 0] (1 of 4 entries) of its entry ['w'][1]; key has -inf"
    )


def test_an_argument_may_be_infinite_where_the_value_is_not():
    model = dg.delayed(lambda x, bound: np.sum(np.minimum(x, bound)), name="model")
    with dg.debug_nans():
        assert dg.grad(lambda x: model(x, np.inf))(X).tolist() == [1.0, 1.0, 1.0]


def test_cotangents_that_overflow_when_they_are_added():
    small = dg.delayed(lambda x: 1e-300 * np.sum(x), name="small")
    big = dg.delayed(lambda s: 1e308 * s, name="big")

    def fun(x):
        s = small(x)
        return big(s) + big(s)

    message = message_of(lambda: dg.grad(fun)(X))
    assert message.startswith("backward pass: the sum of 2 cotangents of one value is not finite")


def test_watched_nodes_can_be_persisted_and_used_by_others(client):
    with dg.debug_nans():
        kept = logarithm(X).persist()
        later = dask.delayed(np.sum)(logarithm(X))
        assert later.compute() == np.sum(np.log(X))
    assert total(kept).compute() == np.sum(np.log(X))
    assert np.array_equal(kept.compute(), np.log(X))


def test_tangents_are_watched(scheduler):
    """Of the root of zero the value is finite, and its tangent is not."""
    message = message_of(lambda: dg.jvp(lambda x: root(2.0 * x), (X - 0.5,), (X,)))
    assert message.startswith("model 'root', value pass: the value has inf of its entry")
    message = message_of(lambda: dg.hvp(lambda x: root(x), (X - 0.5,), (X,)))
    assert message.startswith("model 'root', forward pass: the value has inf")


@pytest.mark.parametrize("mode", ["forward", "reverse"])
def test_jacobians_are_watched(mode):
    roots = dg.delayed(np.sqrt, name="roots")
    message = message_of(lambda: dg.jacobian(lambda x: roots(2.0 * x) * 2.0, mode=mode)(X - 0.5))
    assert message.startswith("model 'roots', ")
    assert " has " in message


# ------------------------------------------------------------------------------------------ sums

ITEMS = np.where(np.arange(40) == 17, -1.0, 1.0 + np.arange(40))


def scalar_term(item, x):
    return np.sum(np.log(item * x))


def array_term(item, x):
    return np.log(item * x)


def root_term(item, x):
    return np.sum(np.sqrt(x - X + np.abs(item + 1.0)))


@pytest.mark.parametrize("summation", ["pairwise", "compensated"])
@pytest.mark.parametrize("grainsize", [1, 8, 64])
def test_the_item_of_a_sum_is_told(grainsize, summation):
    options = {"grainsize": grainsize, "summation": summation}
    expected = "item 17: the value has NaN"

    def scalar(x):
        return dg.map_sum(scalar_term, ITEMS, x, **options)

    def arrays(x):
        return total(dg.map_sum(array_term, ITEMS, x, **options))

    for fun, name in ((scalar, "scalar_term"), (arrays, "array_term")):
        message = message_of(lambda fun=fun: dg.grad(fun)(X))
        assert message.startswith(f"model '{name}', forward pass, {expected}")
        assert message.endswith("; argument 0 is finite; argument 1 is finite")
        plain = message_of(lambda fun=fun: fun(dg.variable(X)).compute())
        assert plain.startswith(f"model '{name}', value pass, {expected}")


def test_the_item_of_a_sum_is_told_on_every_scheduler(scheduler):
    message = message_of(lambda: dg.grad(lambda x: dg.map_sum(scalar_term, list(ITEMS), x))(X))
    assert message.startswith("model 'scalar_term', forward pass, item 17: the value has NaN")


def test_also_over_placed_items_and_in_line(client):
    with dask.config.set({"daskgrad.inline.seconds": 10.0}), dg.place(ITEMS, 2) as shards:
        gradient = dg.grad(lambda x: dg.map_sum(scalar_term, shards, x))
        gradient(X)
        assert ", forward pass, item 17: the value has NaN" in message_of(lambda: gradient(X))
        with dask.config.set(scheduler="threads"):
            in_line = dg.grad(lambda x: dg.map_sum(scalar_term, ITEMS, x))
            assert ", forward pass, item 17: " in message_of(lambda: in_line(X))


def test_the_item_whose_gradient_is_not_finite_is_told(scheduler):
    """Of scalar terms, which are pulled back at once, and of arrays, which are not."""

    def scalar(x):
        return dg.map_sum(root_term, ITEMS, x)

    def arrays(x):
        return total(dg.map_sum(lambda i, x: np.sqrt(x - X + np.abs(i + 1.0)), ITEMS, x))

    message = message_of(lambda: dg.value_and_grad(scalar)(X))
    assert message == (
        "model 'root_term', backward pass, item 17: the gradient with respect to argument 1 has "
        "inf at [0] (3 of 3 entries); argument 0 is finite; argument 1 is finite"
    )
    message = message_of(lambda: dg.value_and_grad(arrays)(X))
    assert ", backward pass, item 17: the cotangent of argument 1 has inf at [0]" in message


def test_items_that_are_differentiated_are_told():
    def term(pair, x):
        return np.sqrt(pair[0]) * pair[1] * np.sum(x)

    def fun(p, x):
        return dg.map_sum(term, dg.zip(p, ITEMS), x, grainsize=4)

    message = message_of(lambda: dg.value_and_grad(fun, (0, 1))(np.abs(ITEMS + 1.0), X))
    assert "item 17: the gradient with respect to argument 0 has -inf" in message


def test_slices_and_partitions_are_told():
    def slices(x):
        return dg.reduce_sum(lambda s, x: np.sum(np.log(np.outer(s, x))), ITEMS, x, grainsize=8)

    assert ", item 16: the value has NaN" in message_of(lambda: dg.grad(slices)(X))
    bag = dask.bag.from_sequence(ITEMS.tolist(), npartitions=4)

    def partitions(x):
        return dg.map_sum(scalar_term, bag, x)

    assert ", item 7 of partition 1: the value" in message_of(lambda: dg.grad(partitions)(X))


def test_so_is_that_of_gradients_item_by_item(scheduler):
    message = message_of(lambda: dg.per_item(root_term, ITEMS)(X))
    assert ", item 17: the gradient with respect to argument 1 has inf at [0]" in message


def test_a_cotangent_that_is_handed_to_a_sum_is_told(scheduler):
    _, pullback = dg.vjp(lambda x: dg.map_sum(array_term, ITEMS[:8], x, grainsize=4), X)
    message = message_of(lambda: pullback(X * np.nan))
    assert "model 'array_term', backward pass: the cotangent that arrives at its value" in message
    assert "has NaN at [0] (3 of 3 entries)" in message


def test_terms_whose_cotangents_overflow_when_they_are_added():
    def fun(x):
        return total(dg.map_sum(lambda item, x: item * x, [1e308] * 4, x, grainsize=4))

    message = message_of(lambda: dg.grad(fun)(X * 1e-300))
    assert message.startswith("sum over '<lambda>': the cotangent from items 0 to 3 is not finite")


def test_no_model_runs_again_to_be_looked_at(tmp_path):
    log = tmp_path / "runs"

    def counted(item, x):
        probes.write(log, str(item))
        return np.log(item * x)

    message_of(lambda: dg.grad(lambda x: total(dg.map_sum(counted, ITEMS, x, grainsize=64)))(X))
    assert len(probes.lines(log)) == 18


def test_items_that_are_not_finite_are_no_error_by_themselves():
    data = dask.bag.from_sequence([1.0, np.nan, np.inf], npartitions=2)
    with dg.debug_nans():
        value, _ = dg.value_and_grad(
            lambda x: dg.map_sum(lambda i, x: np.sum(x) if np.isnan(i) else 2.0, data, x)
        )(X)
    assert value == np.sum(X) + 4.0


def test_terms_that_overflow_when_they_are_added():
    def fun(x):
        return dg.map_sum(lambda item, x: item * np.mean(x), [1e308] * 4, x, grainsize=2)

    for compute in (lambda: dg.grad(fun)(X), lambda: fun(X).compute()):
        message = message_of(compute)
        assert message.startswith("sum over '<lambda>': the value")
        assert "but each of its terms is" in message


def test_a_factor_that_is_not_finite_is_told_by_the_sum():
    def fun(x):
        return dg.map_sum(lambda item, x: item * np.sum(x), [1.0, 2.0], x) ** 0.5

    message = message_of(lambda: dg.grad(fun)(0.0 * X))
    assert message.startswith("model 'power', backward pass: the gradient with respect to arg")


# ------------------------------------------------------------------------------------ the switch


def test_the_context_is_that_of_one_thread():
    found = []

    def compute():
        found.append(logarithm(X - 1.5).compute())

    with dg.debug_nans():
        thread = threading.Thread(target=compute)
        thread.start()
        thread.join()
    assert np.isnan(found[0][0])


def test_the_context_ends_after_an_error():
    message_of(logarithm(-X).compute)
    assert np.isnan(logarithm(-X).compute()[0])


def test_tasks_are_watched_only_within_the_context():
    def functions():
        tasks = TaskGraph()
        build_values(tasks, [logarithm(X)])
        return [(task.fun.fun, task.fun.must_be_finite) for task in tasks._tasks.values()]

    assert functions() == [(evaluate, False)]
    with dg.debug_nans():
        assert functions() == [(evaluate, True)]
    assert functions() == [(evaluate, False)]


def test_the_bits_are_the_same():
    def fun(x):
        return dg.map_sum(scalar_term, np.abs(ITEMS), x) + root(x)

    value, gradient = dg.value_and_grad(fun)(X)
    with dg.debug_nans():
        watched_value, watched_gradient = dg.value_and_grad(fun)(X)
    assert watched_value == value
    assert watched_gradient.tobytes() == gradient.tobytes()


def test_what_is_not_finite_is_told_in_words():
    assert trouble({"a": [1.0, "text", None, np.arange(3)]}) is None
    assert trouble(np.float32(np.nan)) == "has NaN"
    assert trouble([1.0, complex(0.0, -np.inf)]) == "has -infj of its entry [1]"
