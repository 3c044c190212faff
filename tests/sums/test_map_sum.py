"""Sums: against plain loops, and the same bits wherever and however they are cut."""

import contextlib
import functools

import autograd
import autograd.numpy as np
import dask
import optree
import pytest
from autograd.numpy.numpy_boxes import ArrayBox
from distributed import Client, LocalCluster
from lengths import in_short
from numpy.testing import assert_allclose, assert_array_equal
from samples import decades

import daskgrad as dg

N = 37
X = np.linspace(0.2, 1.3, 5)


@pytest.fixture(autouse=True)
def _synchronous():
    with dask.config.set(scheduler="sync"):
        yield


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


def with_two(item, w, x):
    return np.sum(item * w["a"] * x) + w["b"] * item[0]


def whole(y):
    return np.sum(y)


def settled(y):
    """A function of a sum whose derivative is no power of two."""
    return np.tanh(1e-9 * np.sum(y)) + 0.3 * np.log(3.0 + np.sum(y) ** 2)


def settled_tree(t):
    return settled(t["sum"]) + settled(t["both"][0] + 3.0 * t["both"][1])


def whole_slice(items, x):
    return np.sum(np.array([np.dot(item, np.sin(x)) for item in items]))


def slice_of_list(items, x):
    return sum([dot(item, x) for item in items])


# -------------------------------------------------------------------- one program, many places

SUMS = {
    "scalars over a list": lambda x, g: dg.map_sum(dot, LIST, x, grainsize=g),
    "scalars over a tuple": lambda x, g: dg.map_sum(dot, tuple(LIST), x, grainsize=g),
    "scalars over ragged items": lambda x, g: dg.map_sum(ragged, RAGGED, x, grainsize=g),
    "a nonlinear operator": lambda x, g: dg.map_sum(dot, LIST, x, grainsize=g) ** 3 * 1.1,
    "a nonlinear model": lambda x, g: dg.delayed(settled)(dg.map_sum(dot, LIST, x, grainsize=g)),
    "arrays": lambda x, g: dg.delayed(settled)(dg.map_sum(waves, LIST, x, grainsize=g)),
    "trees": lambda x, g: dg.delayed(settled_tree)(dg.map_sum(tree, LIST, x, grainsize=g)),
    "rows": lambda x, g: dg.map_sum(dot, decades(N, 5), x, grainsize=g),
    "rows with strides": lambda x, g: dg.map_sum(dot, decades(10, N).T[:, ::2], x, grainsize=g),
    "items with strides": lambda x, g: dg.map_sum(
        strided, [decades(40, 60, seed=n)[:, ::2] for n in range(5)], x, grainsize=g
    ),
    "keeping tapes": lambda x, g: dg.delayed(settled)(
        dg.map_sum(dg.delayed(dot, keep="tape"), LIST, x, grainsize=g)
    ),
    "recomputing": lambda x, g: dg.map_sum(dg.delayed(dot, keep="recompute"), LIST, x, grainsize=g),
    "keeping gradients": lambda x, g: dg.delayed(settled)(
        dg.map_sum(dg.delayed(dot, keep="gradient"), LIST, x, grainsize=g)
    ),
    "two shared inputs": lambda x, g: dg.delayed(settled)(
        dg.map_sum(with_two, LIST, {"a": x, "b": dg.delayed(whole)(x)}, x, grainsize=g)
    ),
    "placed items": lambda x, g: dg.delayed(settled)(dg.map_sum(dot, dg.place(LIST, g), x)),
    "placed rows": lambda x, g: dg.map_sum(dot, dg.place(decades(5, N).T, g), x),
}


def strided(item, x):
    return np.sum(np.dot(item.T, np.sin(item[:, 0] * x[0]))) * x[1]


def value_and_gradient(name, grainsize):
    value, gradient = dg.value_and_grad(lambda x: SUMS[name](x, grainsize))(X)
    return np.asarray(value).tobytes(), gradient.tobytes()


@functools.cache
def expected(name):
    with dask.config.set(scheduler="sync"):
        return value_and_gradient(name, 1)


@pytest.mark.parametrize("name", SUMS)
def test_the_bits_of_a_sum_do_not_depend_on_the_grainsize(name):
    for grainsize in (2, 3, 4, 7, 8, 16, 32, 64, 1000):
        assert value_and_gradient(name, grainsize) == expected(name), grainsize


@in_short("name", SUMS, *list(SUMS)[::2])
def test_the_bits_of_a_sum_do_not_depend_on_the_scheduler(name, every_scheduler):
    results = every_scheduler(lambda: value_and_gradient(name, 8))
    assert set(results.values()) == {expected(name)}


@in_short("threads", [1, 2, 7], 1, 7)
def test_the_bits_of_a_sum_do_not_depend_on_the_number_of_threads(threads):
    with dask.config.set(scheduler="threads", num_workers=threads):
        for name in SUMS:
            for grainsize in (1, 4, "auto"):
                assert value_and_gradient(name, grainsize) == expected(name), (name, grainsize)


@in_short(("workers", "grainsizes"), [(7, (4, 16)), (1, (1, 16)), (7, (1, 16))], (7, (4, 16)))
def test_the_bits_of_a_sum_do_not_depend_on_the_number_of_workers(workers, grainsizes):
    with cluster_in_process(workers):
        for name in SUMS:
            for grainsize in grainsizes:
                assert value_and_gradient(name, grainsize) == expected(name), (name, grainsize)


@contextlib.contextmanager
def cluster_in_process(workers):
    with (
        LocalCluster(
            n_workers=workers,
            threads_per_worker=1,
            processes=False,
            dashboard_address="127.0.0.1:0",
        ) as cluster,
        Client(cluster),
    ):
        yield


@pytest.mark.parametrize("workers", [1, 7])
def test_the_bits_of_a_graph_do_not_depend_on_the_number_of_workers(workers):
    with dask.config.set(scheduler="sync"):
        expected = graph_of_strided_values()
    with cluster_in_process(workers):
        assert graph_of_strided_values() == expected


def test_the_bits_of_a_graph_do_not_depend_on_the_memory_layout(every_scheduler):
    """A view becomes a copy when it moves, and BLAS and sums give other bits on a copy."""
    results = every_scheduler(graph_of_strided_values)
    assert set(results.values()) == {results["sync"]}
    view = DATA.T[:, ::2]
    assert np.sum(view) != np.sum(view.copy()), "else this cannot fail"


def strided_matrix(x):
    """A view of every other row, columns first; big enough for its layout to matter."""
    return (DATA * x[0]).T[:, ::2]


def repeated(x):
    return np.concatenate([x] * 12)


DATA = np.random.default_rng(9).normal(size=(60, 122))


def graph_of_strided_values():
    total, first_column = dg.delayed(whole), dg.delayed(dot)

    def objective(x):
        matrix = dg.delayed(strided_matrix)(x)
        column = dg.delayed(repeated)(x)
        return dg.sum(
            [
                total(matrix),
                total(matrix[3]),
                first_column(matrix[5, :], np.ones(30)),
                first_column(DATA[:, 7], column),
                first_column(DATA.T[11][::-1], column),
            ]
        )

    value, gradient = dg.value_and_grad(objective)(X)
    return np.asarray(value).tobytes(), gradient.tobytes()


def test_the_sums_of_these_tests_are_sensitive_to_the_order():
    """If a plain loop gave the same bits, the tests of this page could not fail."""
    for turn in (1, -1):
        different = []
        for x in (X, X[::-1], 2.0 * X, X**2):  # one sum may be the same by chance
            values = [dot(item, x) for item in LIST[::turn]]
            gradients = [autograd.grad(dot, 1)(item, x) for item in LIST[::turn]]
            loop = functools.reduce(np.add, values), functools.reduce(np.add, gradients)
            found = dg.value_and_grad(lambda x: dg.map_sum(dot, LIST, x))(x)
            for own, other in zip(found, loop, strict=True):
                assert_allclose(own, other, rtol=1e-12)
            different.append([np.any(own != other) for own, other in zip(found, loop, strict=True)])
        assert np.all(np.any(different, axis=0))


# ---------------------------------------------------------------------- against plain loops


PLAIN = {
    "scalars over a list": lambda x: sum([dot(item, x) for item in LIST]),
    "scalars over ragged items": lambda x: sum([ragged(item, x) for item in RAGGED]),
    "a nonlinear operator": lambda x: sum([dot(item, x) for item in LIST]) ** 3 * 1.1,
    "a nonlinear model": lambda x: settled(sum([dot(item, x) for item in LIST])),
    "arrays": lambda x: settled(sum([waves(item, x) for item in LIST])),
    "trees": lambda x: settled_tree(plain_sum([tree(item, x) for item in LIST])),
    "rows with strides": lambda x: sum([dot(item, x) for item in decades(10, N).T[:, ::2]]),
    "keeping tapes": lambda x: settled(sum([dot(item, x) for item in LIST])),
    "recomputing": lambda x: sum([dot(item, x) for item in LIST]),
    "keeping gradients": lambda x: settled(sum([dot(item, x) for item in LIST])),
    "two shared inputs": lambda x: settled(
        sum([with_two(item, {"a": x, "b": np.sum(x)}, x) for item in LIST])
    ),
    "placed items": lambda x: settled(sum([dot(item, x) for item in LIST])),
}


def plain_sum(trees):
    return optree.tree_map(lambda *leaves: sum(leaves), *trees)


def require_plain(objective, plain, x=X, rtol=1e-11):
    value, gradient = dg.value_and_grad(objective)(x)
    assert_allclose(value, plain(x), rtol=rtol)
    assert_allclose(gradient, autograd.grad(plain)(x), rtol=rtol)


@pytest.mark.parametrize("grainsize", [1, 8])
@pytest.mark.parametrize("name", PLAIN)
def test_a_sum_is_the_plain_loop(name, grainsize):
    require_plain(lambda x: SUMS[name](x, grainsize), PLAIN[name])


def test_a_sum_is_the_plain_loop_on_every_scheduler(scheduler):
    for name in ("trees", "two shared inputs", "placed items"):
        require_plain(lambda x, name=name: SUMS[name](x, 8), PLAIN[name])


@pytest.mark.parametrize("grainsize", [1, 3, 5, 100, "auto"])
@pytest.mark.parametrize(
    ("partial_sum", "sliced"),
    [
        (slice_of_list, LIST),
        (slice_of_list, tuple(LIST)),
        (whole_slice, np.array(LIST)),
        (whole_slice, np.array(LIST).T.copy().T),
    ],
)
def test_reduce_sum_is_the_plain_loop(partial_sum, sliced, grainsize):
    plain = PLAIN["a nonlinear model"]
    require_plain(
        lambda x: dg.delayed(settled)(dg.reduce_sum(partial_sum, sliced, x, grainsize=grainsize)),
        plain,
    )


def test_reduce_sum_over_placed_slices(every_scheduler):
    def summed():
        placed = dg.place(LIST, 8)
        value, gradient = dg.value_and_grad(lambda x: dg.reduce_sum(slice_of_list, placed, x))(X)
        return value.tobytes(), gradient.tobytes()

    results = every_scheduler(summed)
    value, gradient = dg.value_and_grad(
        lambda x: dg.reduce_sum(slice_of_list, LIST, x, grainsize=8)
    )(X)
    assert set(results.values()) == {(value.tobytes(), gradient.tobytes())}


def test_reduce_sum_hands_out_slices_of_the_grainsize_as_it_is():
    def sizes(items, x):
        return np.array([float(len(items) == 5), 1.0]) * x

    node = dg.reduce_sum(sizes, LIST, dg.variable(1.0), grainsize=5)
    assert_array_equal(node.compute(), [7.0, 8.0])


def test_a_sum_of_sums_of_nodes():
    def objective(x):
        y = dg.delayed(np.sin)(x)
        inner = [dg.map_sum(waves, LIST[:n], y) for n in (1, 2, 5)]
        return dg.delayed(settled)(dg.sum([dg.sum(inner), y, inner[0], dg.sum([y, y, y])]))

    def plain(x):
        y = np.sin(x)
        inner = [sum([waves(item, y) for item in LIST[:n]]) for n in (1, 2, 5)]
        return settled(sum(inner) + y + inner[0] + y + y + y)

    require_plain(objective, plain)


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
    for found, right in zip(
        [*gp, gx], [*autograd.grad(plain)(p, X), autograd.grad(plain, 1)(p, X)], strict=True
    ):
        assert_allclose(found, right, rtol=1e-14)


def test_items_may_be_a_variable():
    """The gradient with respect to the items has the items' own structure."""
    items = [np.arange(3.0), np.arange(2.0), np.arange(4.0)]
    for given in (items, tuple(items)):
        value, gradient = dg.value_and_grad(
            lambda p: dg.map_sum(lambda a, s: s * np.sum(a**2), p, 2.0)
        )(given)
        assert value == 2.0 * sum([np.sum(item**2) for item in items])
        assert type(gradient) is type(given)
        for found, item in zip(gradient, items, strict=True):
            assert_array_equal(found, 4.0 * item)


def test_shared_arguments_may_be_pytrees_with_nodes_at_any_depth():
    def model(item, shared, *rest):
        return item * shared["a"][0] * np.sum(shared["b"]["c"]) + rest[0] * item**2

    def objective(p):
        shared = {"a": [dg.delayed(np.cos)(p["s"]), "text"], "b": {"c": p["v"]}}
        return dg.map_sum(model, [0.5, 1.5, -2.5], shared, p["s"], grainsize=2)

    def plain(p):
        shared = {"a": [np.cos(p["s"]), "text"], "b": {"c": p["v"]}}
        return sum([model(item, shared, p["s"]) for item in (0.5, 1.5, -2.5)])

    p = {"s": 0.3, "v": np.array([1.0, 2.0])}
    value, gradient = dg.value_and_grad(objective)(p)
    assert_allclose(value, plain(p), rtol=1e-15)
    right = autograd.grad(plain)(p)
    assert_allclose(gradient["s"], right["s"], rtol=1e-14)
    assert_allclose(gradient["v"], right["v"], rtol=1e-14)


@pytest.mark.parametrize("keep", ["auto", "tape", "recompute", "gradient"])
@pytest.mark.parametrize("count", [1, 6])
def test_keep_changes_what_is_kept_and_not_the_gradient(keep, count):
    model = dg.delayed(dot, keep=keep)
    require_plain(
        lambda x: dg.map_sum(model, LIST[:count], x, grainsize=2) ** 2,
        lambda x: sum([dot(item, x) for item in LIST[:count]]) ** 2,
    )


@pytest.mark.parametrize("keep", ["auto", "tape", "recompute"])
def test_terms_that_do_not_depend_on_a_variable_add_nothing(keep):
    def model(item, x):
        return 3.0 if item < 0 else item * x**2

    for items in ([-1.0, 2.0], [2.0, -1.0], [-1.0, -1.0, 2.0, -1.0, 2.0]):
        positive = sum([item for item in items if item > 0])
        for grainsize in (2, 8):
            gradient = dg.grad(
                lambda x, items=items, grainsize=grainsize: dg.map_sum(
                    dg.delayed(model, keep="auto"), items, x, grainsize=grainsize
                )
            )(1.5)
            assert gradient == 3.0 * positive


def test_the_pullback_of_a_sum_of_arrays_is_its_transposed_jacobian(random):
    value, pullback = dg.vjp(lambda x: dg.map_sum(waves, LIST, x, grainsize=4), X)
    v, y = random.normal(size=5), random.normal(size=5)
    jacobian = autograd.jacobian(lambda x: sum([waves(item, x) for item in LIST]))(X)
    assert_allclose(value, sum([waves(item, X) for item in LIST]), rtol=1e-13)
    assert_allclose(np.dot(pullback(y)[0], v), np.dot(jacobian @ v, y), rtol=1e-12)


def test_a_sum_of_scalars_keeps_its_bits_in_a_vjp():
    """The gradient is scaled once, after it has been added up, as in ``value_and_grad``."""
    _, gradient = dg.value_and_grad(lambda x: dg.map_sum(dot, LIST, x) * 0.7)(X)
    for grainsize in (1, 4, 64):
        _, pullback = dg.vjp(lambda x, g=grainsize: dg.map_sum(dot, LIST, x, grainsize=g), X)
        assert_array_equal(pullback(np.float64(0.7))[0], gradient)


def test_float32_stays_float32():
    items = [np.float32(n) / 7 for n in range(20)]
    x = np.linspace(0, 1, 4, dtype=np.float32)
    value, gradient = dg.value_and_grad(
        lambda x: dg.map_sum(lambda a, x: np.sum(np.sin(a * x)), items, x) ** 2
    )(x)
    assert value.dtype == np.float32
    assert gradient.dtype == np.float32


def test_nothing_is_traced_for_a_value_alone():
    def model(item, x):
        assert not isinstance(x, ArrayBox)
        return item * x

    assert dg.map_sum(model, [1.0, 2.0, 3.0], dg.variable(2.0), grainsize=2).compute() == 12.0


# ------------------------------------------------------------------------------------ errors


def test_an_empty_sum_is_an_error():
    for empty in ([], (), np.zeros((0, 3))):
        with pytest.raises(ValueError, match="empty"):
            dg.map_sum(dot, empty, X)
        with pytest.raises(ValueError, match="empty"):
            dg.reduce_sum(dot, empty, X)
    with pytest.raises(ValueError, match="no nodes"):
        dg.sum([])


@pytest.mark.parametrize("grainsize", [0, -1, 1.5, True, "all", None])
def test_a_grainsize_is_a_number_of_items(grainsize):
    with pytest.raises(ValueError, match="grainsize must be the number of items"):
        dg.map_sum(dot, LIST, X, grainsize=grainsize)
    with pytest.raises(ValueError, match="grainsize must be the number of items"):
        dg.reduce_sum(slice_of_list, LIST, X, grainsize=grainsize)


def test_another_grainsize_than_that_of_the_shards_is_an_error():
    placed = dg.place(LIST, 4)
    with pytest.raises(ValueError, match="placed with grainsize 4, and grainsize=8"):
        dg.map_sum(dot, placed, X, grainsize=8)
    assert dg.map_sum(dot, placed, X, grainsize=4).compute() is not None


def test_items_that_are_no_items_are_an_error():
    for wrong in (3.0, "text", {"a": 1.0}, np.float64(1.0), iter([1.0])):
        with pytest.raises(TypeError, match="items must be a list"):
            dg.map_sum(dot, wrong, X)


def test_terms_of_several_shapes_are_an_error():
    with pytest.raises(ValueError, match="one structure and shape"):
        dg.map_sum(lambda a, x: x[:a] * 1.0, [1, 2], dg.variable(X)).compute()


def test_dg_sum_takes_nodes_alone():
    with pytest.raises(TypeError, match=r"found float64.* in place 1"):
        dg.sum([dg.variable(1.0), np.float64(2.0)])


def test_an_error_names_the_item():
    def model(item, x):
        if item == 5:
            raise ArithmeticError("no")
        return item * x

    with pytest.raises(ArithmeticError) as caught:
        dg.grad(lambda x: dg.map_sum(model, list(range(8)), x, grainsize=2))(1.0)
    assert any("'model', item 5" in note for note in caught.value.__notes__)
    with pytest.raises(ArithmeticError) as caught:
        dg.grad(lambda x: dg.map_sum(model, list(range(8)), x, name="prior"))(1.0)
    assert any("'prior', item 5" in note for note in caught.value.__notes__)


def test_a_sum_of_real_and_complex_terms_has_a_derivative_for_both():
    """The cotangent of the sum is complex; that of a real term is its real part."""
    z = 1.5 - 0.5j

    def real(x):
        return x**2

    def turned(x):
        return x * z

    def objective(x):
        total = dg.sum([dg.delayed(real)(x), dg.delayed(turned)(x)])
        return dg.delayed(squared_norm)(total)

    x = np.array([0.3, 0.7])
    gradient = dg.grad(objective)(x)
    expected = autograd.grad(lambda x: squared_norm(real(x) + turned(x)))(x)
    assert_allclose(gradient, expected, rtol=1e-14)


def squared_norm(z):
    return np.sum(np.real(z * np.conj(z)))


@pytest.mark.parametrize("grainsize", [1, 2, 4])
def test_terms_of_two_precisions_are_scaled_each_in_its_own(grainsize):
    def term(item, narrow, wide):
        return np.sum(item * narrow) if item.dtype == np.float16 else np.sum(item * wide)

    items = [np.ones(3, "f2"), np.ones(3), 2.0 * np.ones(3)]
    narrow, wide = np.ones(3, "f2"), np.ones(3)
    total = dg.vjp(lambda n, w: dg.map_sum(term, items, n, w, grainsize=grainsize), narrow, wide)
    for cotangent in (0.1, 1000.1):  # neither is a number of half precision
        assert_allclose(total[1](cotangent)[1], 3.0 * cotangent * np.ones(3), rtol=1e-15)


def test_blocks_of_real_and_of_complex_terms_are_scaled_once():
    items = [np.ones(3), 1j * np.ones(3)]

    def term(item, x):
        return np.sum(item * x)

    def objective(x):
        return dg.delayed(squared_norm)(dg.map_sum(term, items, x, grainsize=1))

    x = np.array([1.0, 2.0, 3.0])
    expected = autograd.grad(lambda x: squared_norm(sum(term(item, x) for item in items)))(x)
    assert_allclose(dg.grad(objective)(x), expected, rtol=1e-14)


@pytest.mark.parametrize("grainsize", [1, 2, 4])
@pytest.mark.parametrize("keep", ["auto", "gradient", "tape", "recompute"])
def test_a_term_may_be_an_integer_where_it_has_nothing_to_say(keep, grainsize):
    def term(item, x):
        return 0 if len(item) == 0 else np.sum(item * x) ** 2

    items = [np.ones(3), np.zeros(0), 2.0 * np.ones(3)]

    def objective(x):
        model = dg.delayed(term, keep=keep)
        return dg.delayed(np.sin)(dg.map_sum(model, items, x, grainsize=grainsize))

    x = np.array([0.1, 0.2, 0.3])
    expected = autograd.grad(lambda x: np.sin(sum(term(item, x) for item in items)))(x)
    assert_allclose(dg.grad(objective)(x), expected, rtol=1e-14)
