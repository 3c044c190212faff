"""Sums: against plain loops, and the same bits wherever and however they are cut."""

import functools

import autograd
import autograd.numpy as np
import dask
import optree
import pytest
from distributed import Client, LocalCluster
from lengths import in_short
from numpy.testing import assert_allclose, assert_array_equal
from samples import decades

import daskgrad as dg

pytestmark = pytest.mark.usefixtures("synchronous")

N = 37
X = np.linspace(0.2, 1.3, 5)
LIST = [decades(5, seed=1300 + number) for number in range(N)]
RAGGED = [decades(5, seed=number)[: 1 + number % 5] for number in range(N)]


# ------------------------------------------------------------------------------- the terms


def dot(item, x):
    return np.dot(item, np.sin(x))


def ragged(item, x):
    return np.sum(item * x[: len(item)] ** 2)


def waves(item, x):
    return np.sin(x) * item


def tree(item, x):
    return {"sum": np.sum(item * x), "both": (item * x, np.cos(x) * item[0])}


def strided(item, x):
    return np.sum(np.dot(item.T, np.sin(item[:, 0] * x[0]))) * x[1]


def with_two(item, w, x):
    return np.sum(item * w["a"] * x) + w["b"] * item[0]


def whole(y):
    return np.sum(y)


def settled(y):
    return np.tanh(1e-9 * np.sum(y)) + 0.3 * np.log(3.0 + np.sum(y) ** 2)


def settled_tree(t):
    return settled(t["sum"]) + settled(t["both"][0] + 3.0 * t["both"][1])


def slice_of_rows(items, x):
    return np.sum(np.array([np.dot(item, np.sin(x)) for item in items]))


def slice_of_list(items, x):
    return sum([dot(item, x) for item in items])


# -------------------------------------------------------------------- one program, many places


def plain_sum(terms):
    return optree.tree_map(lambda *leaves: sum(leaves), *terms)


def row(model, items, of=None, keep="auto", place=False):
    def ours(x, grainsize):
        over = dg.place(items, grainsize) if place else items
        total = dg.map_sum(dg.delayed(model, keep=keep), over, x, grainsize=grainsize)
        return total if of is None else dg.delayed(of)(total)

    def plain(x):
        total = plain_sum([model(item, x) for item in items])
        return total if of is None else of(total)

    return ours, plain


SUMS = {
    "scalars over a list": row(dot, LIST),
    "scalars over a tuple": row(dot, tuple(LIST)),
    "scalars over ragged items": row(ragged, RAGGED),
    "a nonlinear operator": (
        lambda x, g: dg.map_sum(dot, LIST, x, grainsize=g) ** 3 * 1.1,
        lambda x: sum([dot(item, x) for item in LIST]) ** 3 * 1.1,
    ),
    "a nonlinear model": row(dot, LIST, settled),
    "arrays": row(waves, LIST, settled),
    "one array": row(waves, LIST[:1], settled, "recompute"),
    "trees": row(tree, LIST, settled_tree),
    "rows": row(dot, decades(N, 5)),
    "rows with strides": row(dot, decades(10, N).T[:, ::2]),
    "items with strides": row(strided, [decades(40, 60, seed=n)[:, ::2] for n in range(5)]),
    "keeping tapes": row(dot, LIST, settled, "tape"),
    "recomputing": row(dot, LIST, settled, "recompute"),
    "keeping gradients": row(dot, LIST, settled, "gradient"),
    "two shared inputs": (
        lambda x, g: dg.delayed(settled)(
            dg.map_sum(with_two, LIST, {"a": x, "b": dg.delayed(whole)(x)}, x, grainsize=g)
        ),
        lambda x: settled(sum([with_two(a, {"a": x, "b": np.sum(x)}, x) for a in LIST])),
    ),
    "placed items": row(dot, LIST, settled, place=True),
    "placed rows": row(dot, decades(5, N).T, place=True),
}


def value_and_gradient(name, grainsize):
    value, gradient = dg.value_and_grad(lambda x: SUMS[name][0](x, grainsize))(X)
    return np.asarray(value).tobytes(), gradient.tobytes()


@functools.cache
def expected(name):
    with dask.config.set(scheduler="sync"):
        return value_and_gradient(name, 1)


@pytest.mark.parametrize("name", SUMS)
def test_the_bits_of_a_sum_do_not_depend_on_the_grainsize(name):
    for grainsize in (2, 3, 4, 7, 8, 16, 32, 64, 1000):
        assert value_and_gradient(name, grainsize) == expected(name), grainsize


@in_short("threads", [1, 2, 7], 7)
def test_the_bits_of_a_sum_do_not_depend_on_the_number_of_threads(threads):
    with dask.config.set(scheduler="threads", num_workers=threads):
        for name in SUMS:
            for grainsize in (1, 4, "auto"):
                assert value_and_gradient(name, grainsize) == expected(name), (name, grainsize)


WORKERS = {"one": (1, (16,), 2), "seven": (7, (4,), 2), "at length": (7, (1, 4, 16), 1)}


@in_short("case", WORKERS, "one", "seven")
def test_the_bits_do_not_depend_on_the_number_of_workers(case):
    workers, grainsizes, step = WORKERS[case]
    options = {"processes": False, "dashboard_address": "127.0.0.1:0"}
    with (
        LocalCluster(n_workers=workers, threads_per_worker=1, **options) as cluster,
        Client(cluster),
    ):
        for name in list(SUMS)[::step]:
            for grainsize in grainsizes:
                assert value_and_gradient(name, grainsize) == expected(name), (name, grainsize)


def test_the_sums_of_these_tests_are_sensitive_to_the_order():
    """If a plain loop gave the same bits, the tests of this page could not fail."""
    for turn in (1, -1):
        different = []
        for x in (X, X[::-1], 2.0 * X, X**2):  # one sum may be the same by chance
            values = [dot(item, x) for item in LIST[::turn]]
            gradients = [autograd.grad(dot, 1)(item, x) for item in LIST[::turn]]
            loop = functools.reduce(np.add, values), functools.reduce(np.add, gradients)
            tree_sums = dg.value_and_grad(lambda x: dg.map_sum(dot, LIST, x))(x)
            for ours, other in zip(tree_sums, loop, strict=True):
                assert_allclose(ours, other, rtol=1e-12)
            different.append([np.any(a != b) for a, b in zip(tree_sums, loop, strict=True)])
        assert np.all(np.any(different, axis=0))


# ---------------------------------------------------------------------- against plain loops


def require_plain(objective, plain, x=X, rtol=1e-11):
    value, gradient = dg.value_and_grad(objective)(x)
    assert_allclose(value, plain(x), rtol=rtol)
    assert_allclose(gradient, autograd.grad(plain)(x), rtol=rtol)


@pytest.mark.parametrize("grainsize", [1, 8])
@pytest.mark.parametrize("name", SUMS)
def test_a_sum_is_the_plain_loop(name, grainsize):
    ours, plain = SUMS[name]
    require_plain(lambda x: ours(x, grainsize), plain)


@pytest.mark.parametrize("grainsize", [1, 3, 5, 100, "auto"])
def test_reduce_sum_is_the_plain_loop(grainsize):
    for partial_sum, sliced in (
        (slice_of_list, LIST),
        (slice_of_list, tuple(LIST)),
        (slice_of_rows, np.array(LIST)),
        (slice_of_rows, np.array(LIST).T.copy().T),
    ):

        def objective(x, fun=partial_sum, sliced=sliced):
            return dg.delayed(settled)(dg.reduce_sum(fun, sliced, x, grainsize=grainsize))

        require_plain(objective, SUMS["a nonlinear model"][1])


@pytest.mark.parametrize("count", [1, 2, 7, 8, 9, 63, 64, 65, 200])
def test_a_sum_of_nodes_is_added_as_a_sum_over_items_is(count):
    items = [decades(5, seed=number) for number in range(count)]
    model = dg.delayed(dot)
    value, gradient = dg.value_and_grad(lambda x: dg.sum([model(a, x) for a in items]))(X)
    other, other_gradient = dg.value_and_grad(lambda x: dg.map_sum(dot, items, x, grainsize=4))(X)
    assert value == other
    assert_array_equal(gradient, other_gradient)


@pytest.mark.parametrize("grainsize", [1, 4])
def test_items_may_hold_variables_and_nodes(grainsize):
    def model(item, x):
        return np.sum(item["a"] * x**2) * item["b"]

    def objective(p, x):
        items = [{"a": p[0], "b": 2.0}, {"a": dg.delayed(np.sin)(p[1]), "b": 3.0}] * 3
        return dg.map_sum(model, items, x, grainsize=grainsize)

    def plain(p, x):
        return 3 * model({"a": p[0], "b": 2.0}, x) + 3 * model({"a": np.sin(p[1]), "b": 3.0}, x)

    p = [np.linspace(1.0, 2.0, 5), np.linspace(-1.0, 0.3, 5)]
    value, (gp, gx) = dg.value_and_grad(objective, argnums=(0, 1))(p, X)
    assert_allclose(value, plain(p, X), rtol=1e-14)
    right = [*autograd.grad(plain)(p, X), autograd.grad(plain, 1)(p, X)]
    for gradient, other in zip([*gp, gx], right, strict=True):
        assert_allclose(gradient, other, rtol=1e-14)


@pytest.mark.parametrize("constant", [3.0, 0])
@pytest.mark.parametrize("keep", ["auto", "gradient", "tape", "recompute"])
def test_terms_that_do_not_depend_on_a_variable_add_nothing(keep, constant):
    def term(item, x):
        return constant if item < 0 else np.sum(item * x) ** 2

    x = np.array([0.1, 0.2, 0.3])
    for items in ([-1.0, 2.0], [2.0, -1.0], [-1.0, -1.0, 2.0, -1.0, 2.0]):
        for grainsize in (1, 2, 8):

            def objective(x, items=items, grainsize=grainsize):
                total = dg.map_sum(dg.delayed(term, keep=keep), items, x, grainsize=grainsize)
                return dg.delayed(np.sin)(total)

            right = autograd.grad(lambda x: np.sin(sum([term(a, x) for a in items])))(x)  # noqa: B023
            assert_allclose(dg.grad(objective)(x), right, rtol=1e-14)


def test_a_sum_of_scalars_keeps_its_bits_in_a_vjp():
    """The gradient is scaled once, after it has been added up, as in ``value_and_grad``."""
    _, gradient = dg.value_and_grad(lambda x: dg.map_sum(dot, LIST, x) * 0.7)(X)
    for grainsize in (1, 4, 64):
        _, pullback = dg.vjp(lambda x, g=grainsize: dg.map_sum(dot, LIST, x, grainsize=g), X)
        assert_array_equal(pullback(np.float64(0.7))[0], gradient)


# -------------------------------------------------------------------- kinds and precisions


def squared_norm(z):
    return np.sum(np.real(z * np.conj(z)))


def test_a_sum_of_real_and_complex_terms_has_a_derivative_for_both():
    """The cotangent of the sum is complex; that of a real term is its real part."""
    z, items, x = 1.5 - 0.5j, [np.ones(2), 1j * np.ones(2)], np.array([0.3, 0.7])
    square, turned = dg.delayed(lambda x: x**2), dg.delayed(lambda x: x * z)
    for ours, plain in (
        (lambda x: dg.sum([square(x), turned(x)]), lambda x: x**2 + x * z),
        (
            lambda x: dg.map_sum(lambda item, x: np.sum(item * x), items, x, grainsize=1),
            lambda x: sum([np.sum(item * x) for item in items]),
        ),
    ):
        gradient = dg.grad(lambda x, ours=ours: dg.delayed(squared_norm)(ours(x)))(x)
        right = autograd.grad(lambda x, plain=plain: squared_norm(plain(x)))(x)
        assert_allclose(gradient, right, rtol=1e-14)


@pytest.mark.parametrize("grainsize", [1, 2, 4])
def test_terms_of_two_precisions_are_scaled_each_in_its_own(grainsize):
    def term(item, narrow, wide):
        return np.sum(item * narrow) if item.dtype == np.float16 else np.sum(item * wide)

    items = [np.ones(3, "f2"), np.ones(3), 2.0 * np.ones(3)]
    narrow, wide = np.ones(3, "f2"), np.ones(3)
    total = dg.vjp(lambda n, w: dg.map_sum(term, items, n, w, grainsize=grainsize), narrow, wide)
    for cotangent in (0.1, 1000.1):  # neither is a number of half precision
        assert_allclose(total[1](cotangent)[1], 3.0 * cotangent * np.ones(3), rtol=1e-15)


@pytest.mark.parametrize("stage", ["value", "forward"])
def test_no_group_of_blocks_depends_on_itself(stage):
    """Else Dask's scheduler sends all of its tasks to where the parameters are."""
    items = list(np.linspace(0.0, 1.0, 20)[:, None] * np.ones(5))
    x = dg.variable(X)
    node = dg.map_sum(dot, items, x, grainsize=1)
    collection = node if stage == "value" else dg.differentiate(node, x)[1]
    graph = {key: task.dependencies for key, task in collection.__dask_graph__().items()}

    def group(key):
        return key[0].rpartition("-")[0]

    inner = {group(key) for key, inputs in graph.items() if group(key) in map(group, inputs)}
    assert inner == {f"{stage}-sum-of-dot"}
    assert len([key for key in graph if group(key) == f"{stage}-dot"]) == len(items)
