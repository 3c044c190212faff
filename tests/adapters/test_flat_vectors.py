"""Functions of pytrees as functions of vectors, with SciPy's own optimisers."""

import warnings

import numpy as np
import pytest
import scipy.optimize
from adapted import ITEMS, A, B, expected, in_threads, over
from numpy.testing import assert_allclose

import daskgrad as dg

TREE = {"a": A, "b": B, "count": 3, "name": "x"}


def by_tree(items):
    return lambda p: over(items)(p["a"], p["b"])


def test_value_and_gradient_are_those_of_the_tree():
    flat, x0, unravel = dg.adapters.flat(by_tree(ITEMS), TREE)
    expected_value, by_a, by_b = expected()
    assert_allclose(x0, [A, *B.ravel()])
    value, gradient = flat(x0)
    assert type(value) is float
    assert_allclose(value, expected_value)
    assert_allclose(gradient, [by_a, *by_b.ravel()])
    tree = unravel(x0 + 1.0)
    assert {key: tree[key] for key in ("count", "name")} == {"count": 3, "name": "x"}
    assert_allclose(tree["b"], B + 1.0)
    single = {"w": np.ones((2, 1), np.float32), "c": 1.0}  # the tree's dtypes come back
    _, x0, unravel = dg.adapters.flat(lambda p: p, single)
    assert x0.dtype == float
    assert unravel(x0)["w"].dtype == np.float32
    assert np.ndim(unravel(x0)["c"]) == 0


@pytest.mark.parametrize("method", ["BFGS", "L-BFGS-B", "trust-ncg", "Newton-CG", "SLSQP"])
def test_minimisers_find_the_minimum(method):
    flat, x0, unravel = dg.adapters.flat(by_tree(ITEMS), TREE)
    hessp = {"hessp": flat.hessp} if method in ("trust-ncg", "Newton-CG") else {}
    found = scipy.optimize.minimize(flat, x0, jac=True, method=method, tol=1e-9, **hessp)
    _, by_a, by_b = expected(*[unravel(found.x)[key] for key in "ab"])
    assert_allclose([by_a, *by_b.ravel()], 0.0, atol=1e-3)


def test_products_with_the_hessian_are_differences_of_gradients(random):
    flat, x0, _ = dg.adapters.flat(by_tree(ITEMS), TREE)
    p = random.normal(size=x0.size)
    slope = (flat(x0 + 1e-5 * p)[1] - flat(x0 - 1e-5 * p)[1]) / 2e-5
    assert_allclose(flat.hessp(x0, p), slope, rtol=1e-6)


def test_bounds_are_trees_of_numbers_and_arrays():
    flat, x0, _ = dg.adapters.flat(by_tree(ITEMS), TREE)
    upper = {"a": None, "b": [[0.1, 1.0], [2.0, 3.0]], "count": None, "name": None}
    bounds = flat.bounds({**TREE, "a": 0.2, "b": -0.5}, {**upper, "b": np.array(upper["b"])})
    assert_allclose(bounds.lb, [0.2, *[-0.5] * 4])
    assert_allclose(bounds.ub, [np.inf, 0.1, 1.0, 2.0, 3.0])
    found = scipy.optimize.minimize(
        flat, np.clip(x0, bounds.lb, bounds.ub), jac=True, bounds=bounds
    )
    assert np.all(found.x >= bounds.lb)
    assert np.any(found.x == bounds.lb)
    assert_allclose(flat.bounds().lb, -np.inf)


def test_a_scale_divides_parameters_and_changes_nothing_else():
    sizes = np.array([[1e3, 2.0], [0.5, 1e-3]])
    scale = {"a": 100.0, "b": sizes, "count": None, "name": None}
    plain, x, unravel = dg.adapters.flat(by_tree(ITEMS), TREE)
    flat, y, unscaled = dg.adapters.flat(by_tree(ITEMS), TREE, scale=scale)
    vector = np.array([100.0, *sizes.ravel()])
    assert_allclose(y, x / vector)
    assert_allclose(unscaled(y)["b"], unravel(x)["b"])
    assert_allclose(flat(y)[0], plain(x)[0])
    assert_allclose(flat(y)[1], vector * plain(x)[1])
    assert_allclose(flat.hessp(y, np.ones(5)), vector * plain.hessp(x, vector))
    assert_allclose(flat.hessian(y), plain.hessian(x) * np.outer(vector, vector))
    assert_allclose(flat.covariance(y), plain.covariance(x))
    limit = {**TREE, "a": 1.0, "b": 2.0}
    assert_allclose(flat.bounds(upper=limit).ub, plain.bounds(upper=limit).ub / vector)


def test_threads_share_it_over_placed_items(client):
    with dg.place(ITEMS) as shards:
        flat, x0, _ = dg.adapters.flat(by_tree(shards), TREE)
        found = in_threads(lambda n: flat(x0 + n), range(8))
    for n, (value, gradient) in enumerate(found):
        wanted, by_a, by_b = expected(A + n, B + n)
        assert_allclose(value, wanted)
        assert_allclose(gradient, [by_a, *by_b.ravel()])


def test_no_module_bears_the_name_of_an_adapter():
    """Python puts a module in the adapter's place when another module imports it."""
    homes = dg.adapters.ON_DEMAND
    assert not {home.rpartition(".")[2] for home in homes.values()} & homes.keys()


def test_hessian_covariance_and_names_of_a_tree():
    def loss(p):
        return (
            np.sum(p["a"] ** 2) * 3.0 + p["b"] ** 2 * p["a"][0] + np.sum(p["c"] * p["c"] * p["a"])
        )

    tree = {"a": np.array([1.0, 2.0]), "b": 0.5, "c": np.array([0.1, 0.2]), "n": 3}
    flat, x0, _ = dg.adapters.flat(dg.delayed(loss), tree)
    expected = np.array(
        [
            [6.0, 0.0, 1.0, 0.2, 0.0],
            [0.0, 6.0, 0.0, 0.0, 0.4],
            [1.0, 0.0, 2.0, 0.0, 0.0],
            [0.2, 0.0, 0.0, 2.0, 0.0],
            [0.0, 0.4, 0.0, 0.0, 4.0],
        ]
    )
    np.testing.assert_allclose(flat.hessian(x0), expected, atol=1e-12)
    np.testing.assert_allclose(flat.covariance(x0), np.linalg.inv(expected), atol=1e-12)
    assert flat.names == ["a[0]", "a[1]", "b", "c[0]", "c[1]"]


def test_a_covariance_of_a_saddle_names_the_direction():
    flat, x0, _ = dg.adapters.flat(
        lambda p: p["up"] ** 2 - p["down"] ** 2, {"up": 1.0, "down": 1.0}
    )
    with pytest.raises(np.linalg.LinAlgError, match=r"eigenvalue is -2 .*1\.00 down.*add a prior"):
        flat.covariance(x0)


@pytest.mark.parametrize("rows_meet", [False, True])
def test_the_hessian_of_parameters_of_items_takes_few_products(rows_meet, monkeypatch):
    def term(item, x):
        number, slope, size = item
        return np.sum(np.exp(slope * x * number) * size**2)

    def loss(p):
        total = dg.map_sum(term, dg.zip(np.arange(1.0, 31.0) / 30, p["w"], p["s"]), p["x"])
        total += dg.reduce_sum(lambda rows: np.sum(np.exp(rows)), np.sin(p["s"]), grainsize=8)
        return total + (np.sum(p["w"]) ** 2 if rows_meet else np.sum(p["w"] ** 2))

    random = np.random.default_rng(0)
    tree = {
        "x": random.normal(size=2),
        "w": random.normal(size=(30, 2)),
        "s": random.normal(size=30),
    }
    flat, x0, _ = dg.adapters.flat(loss, tree)
    products, hessp = [], flat.hessp
    monkeypatch.setattr(flat, "hessp", lambda x, p: products.append(p) or hessp(x, p))
    matrix = flat.hessian(x0)
    assert len(products) == 2 + 3 + 1
    expected = np.stack([hessp(x0, row) for row in np.eye(92)])
    assert_allclose(matrix, expected, atol=1e-9 * np.max(np.abs(expected)))


def test_rows_that_meet_a_little_beside_large_numbers_are_seen():
    def loss(p):
        return 1e14 * np.sum(p["x"] ** 2) + np.sum(p["w"] ** 2) + np.prod(p["w"][:2])

    flat, x0, _ = dg.adapters.flat(dg.delayed(loss), {"x": np.ones(()) * 0.5, "w": np.ones(40)})
    names = flat.names
    assert flat.hessian(x0)[names.index("w[0]"), names.index("w[1]")] == 1.0


JOINT = {  # a term of an effect and what is shared, the effects, and how far the latter moves
    "their scale is shared": (lambda z, s: z**2 * np.exp(0.2 * s), np.zeros(40), "-4.0"),
    "two of a group": (
        lambda z, s: (z[0] ** 2 + z[0] * z[1] + z[1] ** 2) * np.exp(0.2 * s),
        np.zeros((40, 2)),
        "-8.0",
    ),
    "their scale moves with them": (lambda z, s: 2.0 * np.exp(z - s) - 2.0 * z, np.zeros(40), ""),
    "they are drawn around what is shared": (lambda z, s: (z - s) ** 2, np.zeros(40), ""),
    "too little": (lambda z, s: z**2 * np.exp(0.02 * s), np.zeros(40), ""),
}


@pytest.mark.parametrize("case", JOINT)
def test_a_joint_maximum_that_the_integral_over_effects_moves_is_warned_of(case):
    term, effects, moves = JOINT[case]

    def joint(p):
        return dg.map_sum(lambda z, s: 0.5 * term(z, s), p["z"], p["s"]) + 0.5 * p["s"] ** 2

    flat, x0, _ = dg.adapters.flat(joint, {"s": 0.0, "z": effects})
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        covariance = flat.covariance(x0)
    assert np.all(np.diag(covariance) > 0.0)
    message = "s is estimated jointly with the effects of 40 groups (z[0"
    assert [str(entry.message).startswith(message) for entry in caught] == [True] * bool(moves)
    assert all(f"it moves by {moves} standard errors" in str(entry.message) for entry in caught)
