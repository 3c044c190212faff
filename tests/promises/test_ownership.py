"""Nothing that a user gets shares memory with anything else, and little is copied for that."""

import copy

import autograd
import autograd.numpy as np
import dask
import numpy
import pytest
from clusters import cluster
from distributed import Client
from probes import forget_evaluations, in_threads, peak_bytes

import daskgrad as dg
from daskgrad.autodiff.values.cotangents import Cotangent
from daskgrad.derivatives.recording import take_cotangent

SAVED = numpy.full(3, 2.0)  # which a rule of the user's own keeps


def with_pullback(backward):
    """The sum of an array, with a rule whose cotangent is what ``backward(x, g)`` makes of it."""

    @dg.custom_vjp
    def total(x):
        return np.sum(x)

    total.defvjp(lambda x: (np.sum(x), x), lambda x, g: (backward(x, g),))
    return total


MODELS = {
    "a new array": with_pullback(lambda x, g: g * numpy.ones(3)),
    "the argument": with_pullback(lambda x, g: x),
    "a view of the argument": with_pullback(lambda x, g: x[::-1]),
    "what is kept": with_pullback(lambda x, g: SAVED),
    "a part of what is kept": with_pullback(lambda x, g: SAVED[:]),
    "a broadcast number": with_pullback(lambda x, g: numpy.broadcast_to(g, (3,))),
    "autograd's sum": lambda x: np.sum(x),
    "shifted": lambda x: np.sum((x + 1.0) * SAVED),
    "one array for two": lambda x: np.sum(np.tanh(x[0] + x[1]) * SAVED),
    "linear": lambda x: np.dot(x, SAVED),
}

FUNCTIONS = {
    "one model": lambda model: lambda x, y: model(x) + 0.0 * model(y),
    "two uses": lambda model: lambda x, y: model(x) + model(x) + model(y),
    "items": lambda model: lambda x, y: dg.map_sum(item_of(model), [1.0, 2.0, 3.0], x, y),
    "one item": lambda model: lambda x, y: dg.map_sum(item_of(model), [1.0], x, y),
}


def item_of(model):
    fun = model.model.fun
    return lambda item, x, y: item * (fun(x) + fun(y))


def trees(model):
    make = (lambda: [numpy.ones(3), numpy.ones(3)]) if model == "one array for two" else None
    return tuple([(make or (lambda: numpy.arange(3.0)))() for _ in range(2)])


def arrays(*values):
    return [leaf for value in values for leaf in numpy_leaves(value)]


def numpy_leaves(value):
    if isinstance(value, list | tuple):
        return [leaf for entry in value for leaf in numpy_leaves(entry)]
    return [value] if isinstance(value, numpy.ndarray) else []


def require_apart(gradients, *others):
    """Each of the gradients may be written into, and nothing else changes."""
    ours = arrays(gradients)
    assert ours, "else this cannot fail"
    for number, gradient in enumerate(ours):
        assert gradient.flags.writeable
        for other in (*ours[:number], *ours[number + 1 :], *arrays(*others)):
            assert not numpy.shares_memory(gradient, other)


@pytest.fixture(scope="module")
def in_one_process():
    with cluster(processes=False, host=None, n_workers=1) as client:
        yield client.cluster


@pytest.fixture(params=["in line", "threads", "in one process"])
def where(request, monkeypatch):
    """Where, and the models that are worth the time there."""
    forget_evaluations(monkeypatch)
    if request.param == "in line":
        with dask.config.set({"daskgrad.inline.seconds": 60, "scheduler": "sync"}):
            yield MODELS
    elif request.param == "in one process":
        with Client(request.getfixturevalue("in_one_process")):
            yield {name: MODELS[name] for name in ("the argument", "what is kept")}
    else:
        with dask.config.set(scheduler=request.param):
            yield MODELS


def test_gradients_share_no_memory(where):
    for name, plain in where.items():
        model = dg.delayed(plain, name="model")
        for function in FUNCTIONS.values():
            x, y = trees(name)
            first = dg.value_and_grad(function(model), (0, 1))(x, y)
            require_apart(first[1], x, y, SAVED)


def test_pullbacks_that_are_held_return_new_arrays_each_time(where):
    for name, plain in where.items():
        x, y = trees(name)
        function = FUNCTIONS["one model"](dg.delayed(plain, name="model"))
        value, pullback = dg.vjp(function, x, y)
        require_apart((pullback(1.0), pullback(1.0)), x, y, value, SAVED)


def test_values_and_auxiliaries_share_no_memory_with_arguments_and_gradients(where):
    same = dg.delayed(lambda x: x, name="same")
    total = dg.delayed(lambda x: np.sum(x**2), name="total")

    def fun(x):
        y = same(x)
        return total(y), (y, x, same(y))

    x = numpy.arange(3.0)
    for argument in (x, frozen(x)):
        (_, aux), gradient = dg.value_and_grad(fun, has_aux=True)(argument)
        require_apart((gradient, *aux), x)


def frozen(array):
    array = array.copy()
    array.flags.writeable = False
    return array


def test_identities_hand_the_cotangent_on_and_its_owner_keeps_it():
    x, g = numpy.ones(3), numpy.full(3, 2.0)
    _, pullback = dg.vjp(lambda x, y: x + y, x, numpy.ones(3))
    first = pullback(g)
    require_apart((first, pullback(g)), g, x)
    first[0][:] = 7.0
    numpy.testing.assert_array_equal(g, 2.0)


# ------------------------------------------------------------------------------- arguments


def test_a_pullback_that_is_held_does_not_see_what_is_written_later(where):
    x = numpy.arange(3.0)
    _, pullback = dg.vjp(dg.delayed(lambda x: np.sum(x**2), name="total"), x)
    x[:] = 7.0
    numpy.testing.assert_array_equal(pullback(1.0)[0], [0.0, 2.0, 4.0])


@pytest.mark.parametrize("time", range(4))  # a scheduler may have forgotten the first evaluation
def test_nodes_that_outlive_the_call_keep_the_argument_as_it_was(time, where):
    kept = []
    model = dg.delayed(lambda w: np.sum(w["a"] ** 2) + np.sum(w["b"][0]), name="model")
    part = dg.delayed(lambda a: 1.0 * a, name="part")
    term = dg.delayed(lambda item: np.sum(item), name="term")

    def fun(w, rows):
        node = model(w)
        turned = term(rows[:, ::-1])
        kept.extend([node, part(w["b"][0]), dg.map_sum(term, rows[1:]), w["a"], turned])
        return node + kept[2] + kept[4]

    w = {"a": numpy.ones(3), "b": [numpy.full(2, 5.0)]}
    rows = numpy.ones((4, 2))
    dg.value_and_grad(fun, (0, 1))(w, rows)
    for array in (w["a"], w["b"][0], rows):
        array[:] = -7.0
    value, b, total, a, all_rows = dask.compute(*kept)
    assert value == 13.0
    assert total == 6.0
    assert all_rows == 8.0
    numpy.testing.assert_array_equal(b, [5.0, 5.0])
    numpy.testing.assert_array_equal(a, [1.0, 1.0, 1.0])


def test_what_was_stopped_outlives_the_call_as_it_was(where):
    kept = []
    total = dg.delayed(lambda a: np.sum(a), name="total")

    def fun(w):
        stopped = dg.stop_gradient(w)
        kept.extend([total(stopped["a"]), total(dg.stop_gradient(w["b"])[0]), stopped["b"][1]])
        kept.append(dg.map_sum(total, stopped["a"]))
        return total(w["a"])

    w = {"a": numpy.ones((2, 3)), "b": [numpy.full(2, 5.0), numpy.zeros(2)]}
    dg.grad(fun)(w)
    for array in (w["a"], *w["b"]):
        array[:] = -7.0
    a, b, zeros, sum_of_a = dask.compute(*kept)
    assert (a, b, sum_of_a) == (6.0, 10.0, 6.0)
    numpy.testing.assert_array_equal(zeros, [0.0, 0.0])


def test_what_is_made_of_an_argument_within_the_call_does_not_see_later_writes(where):
    kept = {}
    total = dg.delayed(lambda x: np.sum(x**2), name="total")

    def fun(x):
        kept["copied"] = copy.copy(x)
        kept["computed"] = x.compute()
        kept["again"] = x.compute()
        kept["persisted"] = x.persist()
        kept["plain task"] = dask.delayed(lambda a: 1.0 * a)(x)
        kept["value"], kept["gradient"] = dg.differentiate(total(x), x)
        return total(x)

    x = numpy.arange(3.0)
    gradient = dg.value_and_grad(fun)(x)[1]
    require_apart((kept["computed"], kept["again"], kept["persisted"].compute(), gradient), x)
    kept["computed"][:] = 5.0
    x[:] = -7.0
    numpy.testing.assert_array_equal(kept["again"], numpy.arange(3.0))
    for made in ("persisted", "copied", "plain task"):
        numpy.testing.assert_array_equal(kept[made].compute(), numpy.arange(3.0))
    assert kept["value"].compute() == 5.0
    numpy.testing.assert_array_equal(kept["gradient"].compute(), 2.0 * numpy.arange(3.0))


def test_a_part_that_is_computed_within_the_call_is_a_copy(where):
    computed = []

    def fun(w):
        computed.append(w["a"][0].compute())
        computed.append(dask.delayed(lambda a: a)(w["a"]))
        return dg.delayed(lambda a: np.sum(a), name="total")(w["a"][0])

    w = {"a": [numpy.ones(3)]}
    dg.value_and_grad(fun)(w)
    require_apart(computed[0], w)
    w["a"][0][:] = -7.0
    numpy.testing.assert_array_equal(computed[1].compute()[0], numpy.ones(3))


def test_nodes_that_outlive_a_call_that_failed_do_so_too():
    kept = []
    model = dg.delayed(lambda x: np.sum(x), name="model")

    def fun(x):
        kept.append(model(x))
        raise KeyboardInterrupt

    x = numpy.ones(3)
    with pytest.raises(KeyboardInterrupt):
        dg.value_and_grad(fun)(x)
    x[:] = -7.0
    assert kept[0].compute() == 3.0


@pytest.mark.parametrize("change", [numpy.asfortranarray, lambda x: x[::2], frozen])
def test_arguments_of_any_layout_are_borrowed_as_they_are(change):
    x = change(numpy.arange(12.0).reshape(4, 3))
    flags, before = str(x.flags), x.copy()
    gradient = dg.grad(dg.delayed(lambda x: np.sum(x**2), name="total"))(x)
    numpy.testing.assert_array_equal(gradient, 2.0 * before)
    numpy.testing.assert_array_equal(x, before)
    assert str(x.flags) == flags


# ------------------------------------------------------------------------------------ taken


@pytest.mark.parametrize("shape", [(3,), (3, 1)], ids=["its own memory", "all of another's"])
def test_what_nobody_else_holds_is_taken_as_it_is(shape):
    array = numpy.ones(3)
    array = array if shape == (3,) else array.reshape(shape)
    address = array.ctypes.data
    arrived = {"x": Cotangent((array, None, numpy.float64(1.0)))}
    del array
    result = take_cotangent(arrived, "x")
    assert result.leaves[0].ctypes.data == address
    assert result.leaves[1:] == (None, 1.0)
    assert not arrived


HOLDERS = {
    "the array": lambda array: ((array,), array),
    "a view of it": lambda array: ((array,), array[1:]),
    "its memory": lambda array: ((array,), memoryview(array)),
    "two leaves": lambda array: ((array, array), None),
    "the rest of its memory": lambda array: ((array[1:],), None),
    "read-only": lambda array: ((frozen(array),), None),
    "a list": lambda array: ((array,), [array]),
    "its owner": lambda array: ((array.reshape(3, 1),), array),
    "another view": lambda array: ((array.reshape(3, 1),), array[:1]),
}


@pytest.mark.parametrize("held", HOLDERS)
def test_what_others_hold_is_copied(held):
    array = numpy.ones(3)
    leaves, holder = HOLDERS[held](array)
    del array
    addresses = [leaf.ctypes.data for leaf in leaves]
    arrived = {"x": Cotangent(leaves)}
    del leaves
    result = take_cotangent(arrived, "x")
    assert not {leaf.ctypes.data for leaf in result.leaves} & set(addresses) or held == "read-only"
    assert all(leaf.flags.writeable for leaf in result.leaves)
    require_apart(result.leaves)
    del holder


def test_a_cotangent_or_tuple_that_others_hold_is_copied():
    for hold in (lambda c: c, lambda c: c.leaves, lambda c: {"y": c}):
        arrived = {"x": Cotangent((numpy.ones(3),))}
        address, held = arrived["x"].leaves[0].ctypes.data, hold(arrived["x"])
        assert take_cotangent(arrived, "x").leaves[0].ctypes.data != address
        del held


def test_it_is_so_in_threads_that_switch_all_the_time(quick_switches):
    def take(thread, number):
        array = numpy.ones(3)
        arrived, address = {"x": Cotangent((array,))}, array.ctypes.data
        result = take_cotangent(arrived, "x").leaves[0]
        same.append(result.ctypes.data == address)

    same: list[bool] = []
    in_threads(take, threads=4, times=200)
    assert len(same) == 800
    assert not any(same)


# ---------------------------------------------------------------------------------- memory


def peak(call):
    call()
    return peak_bytes(call)


W = numpy.random.default_rng(0).normal(size=(2000, 250))  # 4 MB
PICKED = numpy.arange(50)
DENSE = {
    "rows": lambda W: np.sum(np.dot(W[PICKED], np.ones(250))),
    "product": lambda W: np.sum(np.dot(W, np.ones(250)) ** 2),
    "elementwise": lambda W: np.sum(np.tanh(W) ** 2),
    "shifted": lambda W: np.sum((W + 1.0) ** 2),
    "reshaped": lambda W: np.sum(np.dot(np.reshape(W, (250, 2000)), np.ones(2000)) ** 2),
}


@pytest.mark.parametrize("name", DENSE)
def test_a_gradient_takes_no_more_memory_than_autograds(name):
    model = DENSE[name]
    with dask.config.set({"scheduler": "sync", "daskgrad.inline.seconds": 60}):
        result = peak(lambda: dg.value_and_grad(dg.delayed(model, name="model"))(W))
    assert result <= 1.2 * peak(lambda: autograd.value_and_grad(model)(W))


def test_a_graph_in_threads_takes_no_more_either():
    model = DENSE["rows"]
    with dask.config.set({"scheduler": "threads", "daskgrad.inline.seconds": 0}):
        result = peak(lambda: dg.value_and_grad(dg.delayed(model, name="model"))(W))
    assert result <= 1.2 * W.nbytes
