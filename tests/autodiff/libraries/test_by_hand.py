"""Models that bring their own gradient: everywhere where models work."""

from typing import NamedTuple

import dask
import numpy as np
import pytest
from inputs import notes
from lengths import in_short
from numpy.testing import assert_allclose, assert_array_equal
from probes import functions_run, peak_bytes

import daskgrad as dg
from daskgrad.autodiff.values.trees import flatten

random = np.random.default_rng(6)
X = random.normal(size=4)
ITEMS = list(random.normal(size=(40, 4)))
ROWS = np.array(ITEMS)
Z = X + 1j * random.normal(size=4)


def energy(x):
    return np.sum(np.sin(x)), np.cos(x)


def term(item, x):
    return np.sum(np.exp(-item * x)), (None, -item * np.exp(-item * x))


def scaled(own, x):
    return own * np.sum(x**2), (np.sum(x**2), 2.0 * own * x)


def slice_sum(rows, x):
    return np.sum((rows @ x) ** 2), (None, 2.0 * rows.T @ (rows @ x))


def tree(p, scale=1.0):
    value = scale * (np.sum(p["w"] ** 2) + p["b"] ** 3)
    return value, {"w": 2.0 * scale * p["w"], "b": 3.0 * scale * p["b"] ** 2, "n": None}


class Pair(NamedTuple):
    row: np.ndarray
    weight: int


def of_pair(pair, x):
    row, weight = pair
    return weight * np.dot(row, x), (None, weight * row)


def of_one(zipped, x):
    (item,) = zipped
    return term(item, x)


def of_any(item, x):
    size = float(len(item))
    return size * np.sum(x**2), (None, 2.0 * size * x)


def empties(item, p):
    factor = item * p.pop("n")
    return factor * np.sum(p["w"] ** 2), (None, {"w": 2.0 * factor * p["w"], "b": 0.0, "n": None})


def product(item, first, second):
    return item * np.dot(first, second), (None, item * second, item * first)


def squares(pair):
    return np.dot(*pair), pair[::-1]


def modulus(z):
    return np.sum(np.abs(z) ** 2), 2.0 * np.conj(z)


def traced(fun):
    return dg.delayed(lambda *args, **kwargs: fun(*args, **kwargs)[0], name=fun.__name__)


MODELS = [energy, term, scaled, slice_sum, tree, of_pair, of_one, of_any, empties, product, squares]
MODELS += [modulus]
BY_HAND = {fun.__name__: dg.delayed(fun, gradient=True) for fun in MODELS}
TRACED = {fun.__name__: traced(fun) for fun in MODELS}
TREE = {"w": X, "b": 0.3, "n": 2}


def summed(name, items, **options):
    """A program: the sum of a model of that name over items."""
    return lambda models, x: dg.map_sum(models[name], items, x, **options)


PROGRAMS = {  # of models by name, and of arguments
    "alone": (lambda m, x: m["energy"](x), X),
    "in a graph": (lambda m, x: m["energy"](2.0 * x) * 3.0 + m["term"](X, x), X),
    "one variable in two arguments": (lambda m, x: m["product"](2.0, x, x), X),
    "one variable in a list": (lambda m, x: m["squares"]([x, x]), X),
    "items and one variable in two arguments": (
        lambda m, x: dg.map_sum(m["product"], list(ROWS[:, 0]), x, x),
        X,
    ),
    "a tree": (lambda m, p: m["tree"](p, scale=2.0), TREE),
    "complex": (lambda m, z: m["modulus"](z), Z),
    "a complex graph": (lambda m, z: m["modulus"](dg.delayed(lambda z: z * (1 + 2j))(z)), Z),
    "items": (summed("term", ITEMS), X),
    "rows": (summed("term", ROWS, grainsize=4), X),
    "compensated": (summed("term", ROWS, summation="compensated"), X),
    "a mean": (lambda m, x: dg.map_mean(m["term"], ITEMS, x), X),
    "slices": (lambda m, x: dg.reduce_sum(m["slice_sum"], ROWS, x, grainsize=8), X),
    "a zip": (summed("of_pair", dg.zip(ROWS, list(ROWS[:, 0]))), X),
    "a zip of one collection": (summed("of_one", dg.zip(ITEMS)), X),
    "items of any structure": (
        summed("of_any", [(), {"a": 1.0}, [2, X], (X,), ((1.0,), 2), "name"]),
        X,
    ),
    "a dict that each call empties": (summed("empties", ITEMS[0].tolist()), TREE),
    "pairs": (summed("of_pair", list(zip(ITEMS, ROWS[:, 0], strict=True))), X),
    "named pairs": (summed("of_pair", [Pair(x, n) for n, x in enumerate(ITEMS)]), X),
    "pairs in Fortran order": (summed("of_pair", [(row, 2.0) for row in ROWS.T.copy().T]), X),
    "pairs and lists": (summed("of_pair", [(ITEMS[0], 2), [ITEMS[1], 3.0]] * 4), X),
    "parameters of each item": (lambda m, x: dg.map_sum(m["scaled"], x, x), X),
    "items that are differentiated": (
        lambda m, x: dg.map_sum(m["scaled"], [x[0], x[1], 0.5], x),
        X,
    ),
    "placed": (lambda m, x: dg.map_sum(m["term"], dg.place(ITEMS, 4), x), X),
}


def assert_close(found, expected):
    for one, other in zip(flatten(found)[0], flatten(expected)[0], strict=True):
        assert (one is None) == (other is None)
        if one is not None:
            assert type(one) is type(other)
            assert_allclose(one, other, rtol=1e-13)


def both(name):
    program, x = PROGRAMS[name]
    return lambda x: program(BY_HAND, x), lambda x: program(TRACED, x), x


@in_short("name", PROGRAMS, "in a graph", "parameters of each item")
def test_the_gradient_is_the_models_on_a_cluster(name, client):
    mine, traced, x = both(name)
    assert_close(dg.value_and_grad(mine)(x), dg.value_and_grad(traced)(x))


@pytest.mark.parametrize("name", PROGRAMS)
def test_in_line_it_has_the_bits_of_the_graph(name):
    mine, traced, x = both(name)
    with dask.config.set({"daskgrad.inline.seconds": 60}):
        found = dg.value_and_grad(mine)(x)
        assert_close(found, dg.value_and_grad(traced)(x))
    with dask.config.set(scheduler="sync"):
        expected = dg.value_and_grad(mine)(x)
        for one, other in zip(flatten(found)[0], flatten(expected)[0], strict=True):
            assert np.asarray(one).tobytes() == np.asarray(other).tobytes()


@pytest.mark.parametrize("name", PROGRAMS)
def test_tangents_and_held_pullbacks(name, synchronous):
    mine, traced, x = both(name)
    if x is not TREE:
        tangent = np.cos(np.abs(x)) * (1.0 if np.isrealobj(x) else 1 - 0.5j)
        assert_close(dg.jvp(mine, (x,), (tangent,)), dg.jvp(traced, (x,), (tangent,)))
    (value, pull), (expected, other) = dg.vjp(mine, x), dg.vjp(traced, x)
    assert_close((value, pull(1.0), pull(-2.5)), (expected, other(1.0), other(-2.5)))


@pytest.mark.parametrize("keep", ["auto", "gradient", "tape", "recompute"])
def test_what_is_kept(keep, synchronous):
    model = dg.delayed(energy, gradient=True, keep=keep)
    found = dg.value_and_grad(lambda x: model(x) * 2.0)(X)
    assert_close(found, (2.0 * np.sum(np.sin(X)), 2.0 * np.cos(X)))


def test_a_decorator_and_a_model_of_a_model(synchronous):
    @dg.delayed(gradient=True, name="mine")
    def model(x):
        """Documented."""
        return np.sum(x), np.ones_like(x)

    assert model.__doc__ == "Documented."
    again = dg.delayed(model, name="again")
    assert repr(again) == "<model again>"
    assert_array_equal(dg.grad(again)(X), np.ones(4))
    assert model(X).compute() == np.sum(X)
    assert dg.map_sum(model, ITEMS).compute() == pytest.approx(np.sum(ROWS))


def test_values_and_norms_of_each_item(synchronous):
    assert_close(dg.per_item(BY_HAND["term"], ITEMS)(X), dg.per_item(TRACED["term"], ITEMS)(X))


def test_it_is_checked():
    assert dg.check_grads(BY_HAND["energy"], modes=["reverse", "forward"])(X)
    wrong = dg.delayed(lambda x: (np.sum(x**2), x), gradient=True, name="wrong")
    with pytest.raises(AssertionError, match="wrong"):
        dg.check_grads(lambda x: wrong(x) + BY_HAND["energy"](x), modes=["reverse"])(X)


def test_a_buffer_of_the_functions_own_may_be_used_again():
    buffer = np.zeros(4)

    def reuses(item, x):
        np.multiply(item, 2.0 * x, out=buffer)
        return np.sum(item * x**2), (None, buffer)

    expected = (np.sum(ROWS @ X**2), np.sum(ROWS, 0) * 2.0 * X)
    with dask.config.set({"daskgrad.inline.seconds": 60}):
        model = dg.delayed(reuses, gradient=True)
        for items in (ITEMS, ROWS):
            found = dg.value_and_grad(lambda x, items=items: dg.map_sum(model, items, x))(X)
            assert_close(found, expected)
        both = dg.value_and_grad(lambda x: model(ROWS[0], x) + model(ROWS[1], x))
        assert_close(both(X), (np.sum(ROWS[:2] @ X**2), np.sum(ROWS[:2], 0) * 2.0 * X))
        first = dg.grad(model, 1)(ITEMS[0], X)
        kept = first.copy()
        dg.grad(model, 1)(ITEMS[1], X)
        assert_array_equal(first, kept)
        assert not np.shares_memory(first, buffer)


def test_large_gradients_are_added_as_they_come():
    model = dg.delayed(lambda item, x: (item * x[0], (None, np.full_like(x, item))), gradient=True)
    x = np.zeros(2**18)
    gradient = dg.value_and_grad(lambda x: dg.map_sum(model, [1.0] * 64, x))
    with dask.config.set({"daskgrad.inline.seconds": 60}):
        assert gradient(x)[1][-1] == 64.0
        assert peak_bytes(lambda: gradient(x)) < 12 * x.nbytes


def small_term(item, x):
    return np.float64(item * x[0]), (None, item * x)


@pytest.mark.parametrize("model", ["by hand", "compiled"])
def test_the_bits_of_a_sum_do_not_depend_on_the_cut_or_on_who_adds(model):
    items = list(random.normal(size=300) * 10.0 ** random.uniform(-8, 8, size=300))
    fun = dg.delayed(small_term, gradient=True)
    if model == "compiled":
        fun = dg.delayed(lambda item, x: np.sum(item * x * x), compile=True)

    def bits(grainsize, **how):
        gradient = dg.value_and_grad(
            lambda x: dg.map_sum(fun, items, x, grainsize=grainsize, **how)
        )
        value, slope = gradient(X)
        return value.tobytes(), slope.tobytes()

    with dask.config.set({"daskgrad.inline.seconds": 60}):
        expected = bits(1)
        for grainsize in (2, 64, 256, 512, "auto"):
            assert bits(grainsize) == expected
        assert bits(1, summation="compensated") == bits(512, summation="compensated")


def test_how_many_calls_a_term_costs():
    fun = dg.delayed(small_term, gradient=True)

    def calls(count):
        gradient = dg.value_and_grad(lambda x: dg.map_sum(fun, [1.0] * count, x))
        gradient(X)
        return len(functions_run(gradient, X))

    with dask.config.set({"daskgrad.inline.seconds": 60}):
        assert (calls(1024) - calls(512)) / 512 < 2.0


def test_an_argument_as_gradient_is_copied(synchronous):
    model = dg.delayed(lambda x: (0.5 * np.sum(x**2), x), gradient=True)
    gradient = dg.grad(model)(X)
    assert gradient.flags.writeable
    assert not np.shares_memory(gradient, X)


SECOND = {
    "hvp": lambda model: dg.hvp(model, (X,), (X,)),
    "hessian": lambda model: dg.hessian(model)(X),
    "of a sum": lambda model: dg.hvp(lambda x: dg.map_sum(BY_HAND["term"], ITEMS, x), (X,), (X,)),
}


@pytest.mark.parametrize("name", SECOND)
def test_there_are_no_second_derivatives(name, synchronous):
    with pytest.raises(NotImplementedError, match="there is no rule for that gradient") as caught:
        SECOND[name](BY_HAND["energy"])
    assert "model 'energy'" in notes(caught.value) or "model 'term'" in notes(caught.value)


FAILING = {  # at item 7
    ValueError: lambda item, x: (np.sum(x), (None, np.ones_like(x if item != 7 else x[:3]))),
    StopIteration: lambda item, x: (np.sum(x) if item != 7 else next(iter(())), (None, x)),
}
POINTS = {"double": X, "single": X.astype(np.float32), "large": np.ones(5000)}


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("kind", FAILING)
def test_the_item_is_named_and_a_stop_of_the_model_ends_no_sum(kind, point, synchronous):
    model = dg.delayed(FAILING[kind], gradient=True, name="fails")
    with dask.config.set({"daskgrad.inline.seconds": 60}):
        for items in (list(range(30)), np.arange(30)):
            with pytest.raises(kind) as caught:
                dg.grad(lambda x, i=items: dg.map_sum(model, i, x, grainsize=32))(POINTS[point])
            assert "model 'fails', item 7" in notes(caught.value)


def test_writing_into_an_argument_is_an_error(synchronous):
    def writes(item, x):
        row = item["row"] if isinstance(item, dict) else item
        row = item.row if isinstance(item, Pair) else row
        row[0] = 1.0
        return np.sum(x), (None, np.ones(4))

    model = dg.delayed(writes, gradient=True)
    trees = [Pair(item, 1) for item in ITEMS], [{"row": item} for item in ITEMS]
    sums = [lambda x, i=items: dg.map_sum(model, i, x) for items in (ITEMS, ROWS, *trees)]
    with dask.config.set({"daskgrad.inline.seconds": 60}):
        for fun in (*sums, lambda x: model(X, x)):
            with pytest.raises(ValueError, match="read-only") as caught:
                dg.grad(fun)(X)
            assert "may have written into an argument" in notes(caught.value)


def test_nans_are_found(synchronous):
    model = dg.delayed(lambda i, x: (np.sum(x), (None, np.full(4, np.nan))), gradient=True)
    with dg.debug_nans(), pytest.raises(FloatingPointError, match=r"model .*gradient .* has NaN"):
        dg.grad(lambda x: dg.map_sum(model, ITEMS, x))(X)


def test_explain_says_that_there_is_nothing_to_compile():
    assert "brings its own gradient" in dg.explain(BY_HAND["energy"], X)
