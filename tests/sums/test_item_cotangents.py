"""Items that are differentiated: against plain autograd, in blocks, and with the same bits."""

import autograd
import autograd.numpy as np
import dask
import optree
import pytest
from comparisons import bits
from lengths import in_short
from numpy.testing import assert_allclose, assert_array_equal
from policies import Never, moving
from samples import decades

import daskgrad as dg
from daskgrad.autodiff.models.determinism import NondeterministicModelError
from daskgrad.autodiff.models.tracing import Active
from daskgrad.autodiff.models.travel import CONFIG
from daskgrad.sums.block_tasks import Summand, capture_block
from daskgrad.sums.item_cotangents import item_cotangents_of, without_items

pytestmark = pytest.mark.usefixtures("synchronous")

N = 21
X = np.linspace(0.2, 1.3, 4)
ROWS = decades(N, 4)
NUMBERS = decades(N, seed=1)
RAGGED = [decades(1 + n % 4, seed=n) for n in range(N)]
TREES = [{"a": decades(1 + n % 3, seed=n), "b": (n, float(n) / 7)} for n in range(N)]
DATA = [decades(4, seed=100 + n) for n in range(N)]


# ------------------------------------------------------------------------------- the terms


def energy(item, x):
    return np.sum(np.sin(item * x[: np.size(item)])) + np.dot(x, x)


def squares(item):
    return np.sum(item**2)


def tree_energy(item, x):
    return np.sum(item["a"] ** 2) * x[0] + item["b"][0] * np.sin(item["b"][1] * x[1])


def wave(item, x):
    return {"sum": np.sum(item) * x, "first": np.ravel(item)[0] * np.cos(x[0])}


def joint(item, x):
    a, data, b = item
    return np.sum(np.sin(a * data) * x) * b


def joint_wave(item, x):
    a, data, b = item
    return a * data * x + b


def slices(items, x):
    return sum([energy(item, x) for item in items])


def zipped_slices(items, x):
    numbers, data = items
    return sum([n * np.dot(d, x) for n, d in zip(numbers, data, strict=True)])


def settled(total):
    """A function whose derivative is no power of two."""
    return sum([np.sum(np.sin(1e-12 * leaf)) for leaf in optree.tree_leaves(total)]) * 0.7


def plain_sum(terms):
    return optree.tree_map(lambda *leaves: sum(leaves), *terms)


def row(model, items, of=None, keep="auto"):
    """Items, a sum over them by x and the grainsize, and the plain loop."""

    def ours(p, x, g):
        total = dg.map_sum(dg.delayed(model, keep=keep), p, x, grainsize=g)
        return total * 0.3 if of is None else dg.delayed(of)(total)

    def plain(p, x):
        total = plain_sum([model(a, x) for a in p])
        return total * 0.3 if of is None else of(total)

    return items, ours, plain


def zipped(p):
    return [(p[0][n], DATA[n], p[1][n]) for n in range(N)]


SUMS = {
    "rows": row(energy, ROWS),
    "numbers": row(energy, NUMBERS),
    "a list": row(energy, RAGGED),
    "a tuple": row(energy, tuple(RAGGED)),
    "trees": row(tree_energy, TREES),
    "a model of the sum": row(energy, RAGGED, settled),
    "array-valued terms": row(wave, RAGGED, settled),
    "array-valued terms of rows": row(wave, ROWS, settled),
    "keeping tapes": row(energy, ROWS, keep="tape"),
    "recomputing": row(energy, RAGGED, keep="recompute"),
    "keeping gradients": row(energy, ROWS, settled, "gradient"),
    "a part of a variable": (
        {"items": RAGGED, "other": 2.0},
        lambda p, x, g: dg.map_sum(energy, p["items"], x, grainsize=g) * p["other"],
        lambda p, x: sum([energy(a, x) for a in p["items"]]) * p["other"],
    ),
    "a zip": (
        (ROWS, list(NUMBERS)),
        lambda p, x, g: dg.map_sum(joint, dg.zip(p[0], DATA, p[1]), x, grainsize=g) * 0.3,
        lambda p, x: sum([joint(item, x) for item in zipped(p)]) * 0.3,
    ),
    "a zip of array-valued terms": (
        (ROWS, list(NUMBERS)),
        lambda p, x, g: dg.delayed(settled)(
            dg.map_sum(joint_wave, dg.zip(p[0], DATA, p[1]), x, grainsize=g)
        ),
        lambda p, x: settled(sum([joint_wave(item, x) for item in zipped(p)])),
    ),
    "nothing else": (
        ROWS,
        lambda p, x, g: dg.map_sum(squares, p, grainsize=g) * 0.3 + x[0],
        lambda p, x: sum([squares(a) for a in p]) * 0.3 + x[0],
    ),
    "an item that is shared": (
        ROWS,
        lambda p, x, g: dg.map_sum(
            lambda a, p, x: np.dot(a, x) * np.sin(p[0, 0]), p, p, x, grainsize=g
        ),
        lambda p, x: sum([np.dot(a, x) * np.sin(p[0, 0]) for a in p]),
    ),
    "twice side by side": (
        NUMBERS,
        lambda p, x, g: dg.map_sum(
            lambda ab, x: ab[0] * np.sin(ab[1]) * x[0], dg.zip(p, p), x, grainsize=g
        ),
        lambda p, x: sum([a * np.sin(a) * x[0] for a in p]),
    ),
}


def plain_gradients(name):
    """By autograd, for the leaves that have a derivative."""
    items, _, plain = SUMS[name]
    leaves, structure = optree.tree_flatten(items)
    places = [n for n, leaf in enumerate(leaves) if not isinstance(leaf, int)]

    def of_leaves(some, x):
        mixed = list(leaves)
        for place, leaf in zip(places, some, strict=True):
            mixed[place] = leaf
        return plain(optree.tree_unflatten(structure, mixed), x)

    some = [leaves[place] for place in places]
    gradients = dict(zip(places, autograd.grad(of_leaves)(some, X), strict=True))
    by_leaf = [gradients.get(place) for place in range(len(leaves))]
    return optree.tree_unflatten(structure, by_leaf), autograd.grad(of_leaves, 1)(some, X)


def require_close(gradient, right):
    leaves, structure = optree.tree_flatten(gradient, none_is_leaf=True)
    others, other_structure = optree.tree_flatten(right, none_is_leaf=True)
    assert structure == other_structure
    for a, b in zip(leaves, others, strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            scale = np.max(np.abs(b)) if np.size(b) else 1.0
            assert_allclose(a, b, rtol=1e-9, atol=1e-12 * scale)


def value_and_gradients(name, grainsize):
    items, summed, _ = SUMS[name]
    return dg.value_and_grad(lambda p, x: summed(p, x, grainsize), argnums=(0, 1))(items, X)


@pytest.mark.parametrize("grainsize", [1, 4, 64])
@pytest.mark.parametrize("name", SUMS)
def test_the_gradient_of_the_items_is_that_of_the_plain_loop(name, grainsize):
    value, gradients = value_and_gradients(name, grainsize)
    assert_allclose(value, SUMS[name][2](SUMS[name][0], X), rtol=1e-11)
    require_close(gradients, plain_gradients(name))


@in_short("name", SUMS, *list(SUMS)[::3])
def test_the_bits_do_not_depend_on_the_grainsize(name):
    expected = bits(value_and_gradients(name, 1))
    for grainsize in (2, 3, 8, 16, 64, "auto"):
        assert bits(value_and_gradients(name, grainsize)) == expected, grainsize


@pytest.mark.parametrize("name", ["rows", "a list", "trees"])
def test_the_shared_gradient_has_the_bits_of_a_sum_over_constants(name):
    items, summed, _ = SUMS[name]
    value, gradient = dg.value_and_grad(lambda x: summed(items, x, 4))(X)
    other, (_, other_gradient) = value_and_gradients(name, 8)
    assert bits((value, gradient)) == bits((other, other_gradient))


@pytest.mark.parametrize("items", [RAGGED, ROWS])
def test_every_way_to_a_derivative(items):
    def objective(p):
        return dg.map_sum(energy, p, X, grainsize=8)

    value, gradient = dg.value_and_grad(objective)(items)
    other, pullback = dg.vjp(objective, items)
    assert other == value
    assert bits(pullback(1.0)[0]) == bits(gradient)
    p = dg.variable(items)
    assert bits(dask.compute(*dg.differentiate(objective(p), p))) == bits((value, gradient))
    assert objective(p).compute() == value
    for grainsize in (1, 4, 64):  # the cotangent scales once
        _, pullback = dg.vjp(lambda p, g=grainsize: dg.map_sum(energy, p, X, grainsize=g), items)
        scaled = dg.grad(lambda p: dg.map_sum(energy, p, X) * 0.7)(items)
        assert bits(pullback(0.7)[0]) == bits(scaled)


@pytest.mark.parametrize("grainsize", [1, 4, 5, "auto"])
def test_slices_of_items_that_are_differentiated(grainsize):
    for items in (ROWS, RAGGED):
        gradients = dg.grad(
            lambda p, x: dg.reduce_sum(slices, p, x, grainsize=grainsize) * 0.3, (0, 1)
        )(items, X)
        require_close(gradients, plain_gradients("rows" if items is ROWS else "a list"))
    gradient = dg.grad(
        lambda p: dg.reduce_sum(zipped_slices, dg.zip(p, DATA), X, grainsize=grainsize)
    )(NUMBERS)
    assert_allclose(gradient, [np.dot(data, X) for data in DATA], rtol=1e-14)


def test_items_that_are_not_asked_for_are_constants():
    p, x = dg.variable(RAGGED), dg.variable(X)
    _, gradient = dask.compute(*dg.differentiate(dg.map_sum(energy, p, x), x))
    assert bits(gradient) == bits(dg.grad(lambda x: dg.map_sum(energy, RAGGED, x))(X))
    both = dg.map_sum(joint, dg.zip(dg.variable(ROWS), DATA, q := dg.variable(NUMBERS)), x)
    _, gradient = dask.compute(*dg.differentiate(both, q))
    right = [joint((ROWS[n], DATA[n], 1.0), X) for n in range(N)]
    assert_allclose(gradient, right, rtol=1e-12)
    _, gradient = dask.compute(*dg.differentiate(dg.map_sum(squares, p), p[3]))
    assert_array_equal(gradient, 2.0 * RAGGED[3])


def test_items_on_which_no_term_depends_get_zeros():
    def some(item, x):
        return np.sum(item) * x[0] if np.ravel(item)[0] > 0 else np.sum(x)

    for items in (ROWS, RAGGED):
        expected = [X[0] * (a[0] > 0) * np.ones(len(a)) for a in items]
        for grainsize in (1, 4):
            found = dg.grad(lambda p, g=grainsize: dg.map_sum(some, p, X, grainsize=g))(items)
            for a, b in zip(found, expected, strict=True):
                assert_array_equal(a, b)
    with pytest.warns(UserWarning, match="does not depend on 'p'"):
        gradient = dg.grad(lambda p: dg.map_sum(lambda a: 1.0, p) * 2.0)(ROWS)
    assert_array_equal(gradient, np.zeros_like(ROWS))


def test_real_items_of_a_complex_sum():
    z, items = 1.5 - 0.5j, [np.ones(2), np.ones(1), np.ones(3), np.ones(4)]

    def term(item):
        return np.sum(item * z) if len(item) > 2 else np.sum(item)

    def norm(total):
        return np.real(total * np.conj(total))

    right = autograd.grad(lambda items: norm(sum([term(item) for item in items])))(items)
    for grainsize in (1, 2):
        gradient = dg.grad(
            lambda p, g=grainsize: dg.delayed(norm)(dg.map_sum(term, p, grainsize=g))
        )(items)
        require_close(gradient, right)


@pytest.mark.parametrize("grainsize", [1, 2, 4])
def test_the_factor_is_that_of_the_whole_sum(grainsize):
    """A block of terms of half precision alone would round it."""
    items = [np.ones(2, "f2"), np.full(3, 3.0, "f2"), np.ones(2)]
    _, pullback = dg.vjp(
        lambda p: dg.map_sum(lambda a: np.sum(a * a), p, grainsize=grainsize), items
    )
    for cotangent in np.linspace(0.1, 0.2, 20):
        (found,) = pullback(cotangent)
        for gradient, item in zip(found, items, strict=True):
            assert gradient.dtype == item.dtype
            assert_array_equal(gradient, (cotangent * 2.0 * item.astype(float)).astype(item.dtype))


# --------------------------------------------------------------- what moves, and what is lost


def test_tapes_of_items_are_traced_again_where_they_moved():
    def pulled():
        _, pullback = dg.vjp(lambda p: dg.map_sum(wave, p, X, grainsize=8), ROWS)
        return bits(pullback({"sum": np.ones(4), "first": 1.0})[0])

    with dask.config.set({"scheduler": moving, CONFIG: Never()}):
        moved = pulled()
    assert moved == pulled()


def test_a_model_that_changes_its_mind_is_found():
    calls = []

    def changing(item):
        calls.append(item)
        return np.sum(item) * len(calls)

    node = dg.map_sum(changing, dg.variable(ROWS))
    summand = Summand(node.call, (Active(0, watched=False),))
    first, second = [capture_block(node.model, summand, 0, [], ROWS) for _ in ("once", "again")]
    item_cotangents_of(first, 0, without_items(first), node.model)
    with pytest.raises(NondeterministicModelError, match="'changing' is not deterministic"):
        item_cotangents_of(second, 0, without_items(first), node.model)


# ----------------------------------------------------------------------------------------- cost


def test_each_term_runs_once():
    calls = []

    def term(item, x):
        calls.append(1)
        return np.sum(item * x)

    for objective in (
        lambda p, x: dg.map_sum(term, p, x, grainsize=4),
        lambda p, x: dg.delayed(np.sin)(dg.map_sum(term, p, x, grainsize=4)),
    ):
        calls.clear()
        dg.grad(objective, argnums=(0, 1))(ROWS, X)
        assert len(calls) == N
