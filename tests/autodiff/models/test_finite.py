"""The first number that is not finite is told with its model, pass, item and arguments."""

import re
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import autograd.numpy as np
import dask
import dask.bag
import probes
import pytest
from tables import pattern, rows_of

import daskgrad as dg
from daskgrad.autodiff.models.finite import trouble
from daskgrad.autodiff.models.pullbacks import evaluate
from daskgrad.graph.nodes import build_values
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


def require_message(compute, message):
    assert re.fullmatch(pattern(message), message_of(compute)), message


def require_message_of(call, message):
    require_message(partial(eval, call, globals()), message)


@dg.delayed
def logarithm(x):
    return np.log(x)


@dg.delayed
def total(x):
    return np.sum(x)


@dg.delayed
def root(x):
    return np.sum(np.sqrt(x))


@dg.delayed
def roots(x):
    return np.sqrt(x)


@dg.delayed
def square(x):
    return {"a": x * x}


ITEMS = np.where(np.arange(40) == 17, -1.0, 1.0 + np.arange(40))
SLOPES = np.abs(ITEMS + 1.0)  # roots of which have no slope at item 17


def scalar_term(item, x):
    return np.sum(np.log(item * x))


def array_term(item, x):
    return np.log(item * x)


def root_term(item, x):
    return np.sum(np.sqrt(x - X + np.abs(item + 1.0)))


def roots_term(item, x):
    return np.sqrt(x - X + np.abs(item + 1.0))


def pair_term(pair, x):
    return np.sqrt(pair[0]) * pair[1] * np.sum(x)


def scaled(item, x):
    return item * x


def scaled_mean(item, x):
    return item * np.mean(x)


def summed(term, items=ITEMS, **options):
    return lambda x: dg.map_sum(term, items, x, **options)


def summed_in_total(term, items=ITEMS, **options):
    return lambda x: total(dg.map_sum(term, items, x, **options))


def sliced(x):
    return dg.reduce_sum(lambda s, x: np.sum(np.log(np.outer(s, x))), ITEMS, x, grainsize=8)


def partitioned(x):
    return dg.map_sum(scalar_term, dask.bag.from_sequence(ITEMS.tolist(), npartitions=4), x)


def paired(p, x):
    return dg.map_sum(pair_term, dg.zip(p, ITEMS), x, grainsize=4)


def doubly_big(x):
    s = dg.delayed(np.sum, name="small")(1e-300 * x)
    bigger = dg.delayed(lambda s: 1e308 * s, name="big")
    return bigger(s) + bigger(s)


def many_arguments():
    model = dg.delayed(lambda a, n, tree, key: a * tree["w"][1] * key, name="model")
    tree = {"w": [1.0, np.array([[1.0, 2.0], [np.inf, 4.0]])]}
    return model(2.0, 3, tree, key=-np.inf).compute()


def pulled(fun, cotangent):
    return dg.vjp(fun, X)[1](cotangent)


# What is computed, and what the error says.
EVERYWHERE = """
dg.grad(lambda x: total(logarithm(2.0 * x)))(X - 1.5)
  -> model 'logarithm', forward pass: the value has NaN at [0] (2 of 3 entries)...; argument 0 is
     finite
dg.value_and_grad(lambda x: root(x))(X - 0.5)
  -> model 'root', backward pass: the gradient with respect to argument 0 has inf at [0] (1 of 3
     entries); argument 0 is finite
logarithm(X - 1.5).compute() -> model 'logarithm', value pass: the value has NaN at [0]...
dg.jvp(lambda x: root(2.0 * x), (X - 0.5,), (X,))
  -> model 'root', value pass: the value has inf of its entry...
dg.grad(summed(scalar_term, list(ITEMS)))(X)
  -> model 'scalar_term', forward pass, item 17: the value has NaN...
dg.value_and_grad(summed(root_term))(X)
  -> model 'root_term', backward pass, item 17: the gradient with respect to argument 1 has inf at
     [0] (3 of 3 entries); argument 0 is finite; argument 1 is finite
dg.per_item(root_term, ITEMS)(X)
  -> ..., item 17: the gradient with respect to argument 1 has inf at [0]...
pulled(summed(array_term, ITEMS[:8], grainsize=4), X * np.nan)
  -> model 'array_term', backward pass: the cotangent that arrives at its value...has NaN at [0]
     (3 of 3 entries)...
"""
HERE = """
dg.grad(lambda x: total(roots(x) * 2.0))(X - 0.5)
  -> model 'roots', backward pass: the cotangent of argument 0 has inf...
pulled(lambda x: square(x), {"a": X * np.nan})
  -> model 'square', backward pass: the cotangent that arrives at its value...has NaN at [0] (3 of
     3 entries) of its entry ['a']...
dg.grad(lambda x: total(x) * total(logarithm(X - 1.5)))(X) -> model 'logarithm', value pass...
many_arguments()
  -> model 'model', value pass: the value has -inf at [0, 0] (4 of 4 entries); argument 0 is
     finite; argument 1 is finite; argument 2 has inf at [1, 0] (1 of 4 entries) of its entry
     ['w'][1]; key has -inf
dg.grad(doubly_big)(X) -> backward pass: the sum of 2 cotangents of one value is not finite...
dg.hvp(lambda x: root(x), (X - 0.5,), (X,)) -> model 'root', forward pass: the value has inf...
dg.jacobian(lambda x: roots(2.0 * x) * 2.0, mode="forward")(X - 0.5) -> model 'roots', ... has ...
dg.jacobian(lambda x: roots(2.0 * x) * 2.0, mode="reverse")(X - 0.5) -> model 'roots', ... has ...
dg.value_and_grad(summed_in_total(roots_term))(X)
  -> ..., backward pass, item 17: the cotangent of argument 1 has inf at [0]...
dg.value_and_grad(paired, (0, 1))(SLOPES, X)
  -> ...item 17: the gradient with respect to argument 0 has -inf...
dg.grad(sliced)(X) -> ..., item 16: the value has NaN...
dg.grad(partitioned)(X) -> ..., item 7 of partition 1: the value...
dg.grad(summed_in_total(scaled, [1e308] * 4, grainsize=4))(X * 1e-300)
  -> sum over 'scaled': the cotangent from items 0 to 3 is not finite...
dg.grad(summed(scaled_mean, [1e308] * 4, grainsize=2))(X)
  -> sum over 'scaled_mean': the value...but each of its terms is...
summed(scaled_mean, [1e308] * 4, grainsize=2)(X).compute()
  -> sum over 'scaled_mean': the value...but each of its terms is...
dg.grad(lambda x: summed(scaled_mean, [1.0, 2.0])(x) ** 0.5)(0.0 * X)
  -> model 'power', backward pass: the gradient with respect to arg...
"""


def test_the_first_number_that_is_not_finite_is_told_on_every_scheduler(scheduler):
    for call, message in rows_of(EVERYWHERE):
        require_message_of(call, message)
    assert np.isnan(dg.value_and_grad(lambda x: total(logarithm(x)))(X - 1.5)[0]), "outside"


@pytest.mark.parametrize(
    ("call", "message"), rows_of(HERE), ids=[call for call, _ in rows_of(HERE)]
)
def test_the_first_number_that_is_not_finite_is_told(call, message):
    require_message_of(call, message)


@pytest.mark.parametrize("summation", ["pairwise", "compensated"])
@pytest.mark.parametrize("grainsize", [1, 8, 64])
def test_the_item_of_a_sum_is_told(grainsize, summation):
    options = {"grainsize": grainsize, "summation": summation}
    finite = "; argument 0 is finite; argument 1 is finite"
    for fun, term in (
        (summed(scalar_term, **options), "scalar_term"),
        (summed_in_total(array_term, **options), "array_term"),
    ):
        nan = "item 17: the value has NaN..."
        require_message(partial(dg.grad(fun), X), f"model '{term}', forward pass, {nan}{finite}")
        require_message(fun(dg.variable(X)).compute, f"model '{term}', value pass, {nan}")


def test_also_over_placed_items_and_in_line(client):
    with dask.config.set({"daskgrad.inline.seconds": 10.0}), dg.place(ITEMS, 2) as shards:
        gradient = dg.grad(summed(scalar_term, shards))
        gradient(X)
        require_message(lambda: gradient(X), "..., forward pass, item 17: the value has NaN...")
        with dask.config.set(scheduler="threads"):
            in_line = dg.grad(summed(scalar_term))
            require_message(lambda: in_line(X), "..., forward pass, item 17: ...")


# ----------------------------------------------------------------------------------- no errors


def test_an_argument_may_be_infinite_where_the_value_is_not():
    model = dg.delayed(lambda x, bound: np.sum(np.minimum(x, bound)), name="model")
    with dg.debug_nans():
        assert dg.grad(lambda x: model(x, np.inf))(X).tolist() == [1.0, 1.0, 1.0]


def test_watched_nodes_can_be_persisted_and_used_by_others(client):
    with dg.debug_nans():
        kept = logarithm(X).persist()
        later = dask.delayed(np.sum)(logarithm(X))
        assert later.compute() == np.sum(np.log(X))
    assert total(kept).compute() == np.sum(np.log(X))
    assert np.array_equal(kept.compute(), np.log(X))


def test_only_the_term_that_failed_runs_again_for_its_line(tmp_path):
    log = tmp_path / "runs"

    def counted(item, x):
        probes.write(log, str(item))
        return np.log(item * x)

    message_of(lambda: dg.grad(summed_in_total(counted, grainsize=64))(X))
    assert len(probes.lines(log)) == 19


def branch_term(item, x):
    return np.sum(np.where(x > X, np.sqrt(x - X - np.abs(item + 1.0)), 0.0))


LINE = "daskgrad: invalid value encountered in ...: ..., line ...: return np.sum(np."


@pytest.mark.parametrize(
    ("compute", "note"),
    [
        (lambda: dg.grad(summed(scalar_term))(X), f"{LINE}log(item * x))"),
        (lambda: summed(scalar_term)(X).compute(), f"{LINE}log(item * x))"),
        (lambda: dg.grad(summed(branch_term))(X), f"{LINE}where(x > X, ..."),
        (
            lambda: dg.grad(summed(root_term))(X),
            "daskgrad: divide by zero encountered in ..., in the derivative: ..., line ...: "
            "return np.sum(np.sqrt(x - X + np.abs(item + 1.0)))",
        ),
        (lambda: dg.grad(summed(scaled_mean, [np.inf]))(X), ""),  # no call of NumPy has the error
    ],
)
def test_a_note_has_the_line(compute, note):
    with dg.debug_nans(), pytest.raises(FloatingPointError) as caught:
        compute()
    assert re.fullmatch(pattern(note), "".join(getattr(caught.value, "__notes__", [])))


def test_items_that_are_not_finite_are_no_error_by_themselves():
    data = dask.bag.from_sequence([1.0, np.nan, np.inf], npartitions=2)
    with dg.debug_nans():
        value, _ = dg.value_and_grad(summed(lambda i, x: np.sum(x) if np.isnan(i) else 2.0, data))(
            X
        )
    assert value == np.sum(X) + 4.0


# ------------------------------------------------------------------------------------ the switch


def test_the_context_is_that_of_one_thread():
    with dg.debug_nans(), ThreadPoolExecutor(1) as executor:
        value = executor.submit(logarithm(X - 1.5).compute).result()
    assert np.isnan(value[0])


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
