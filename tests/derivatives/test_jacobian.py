"""Jacobians in both modes, pullbacks of stacked cotangents, and how often models run for them."""

import autograd
import autograd.numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from samples import decades

import daskgrad as dg
from daskgrad.autodiff.models.local_jacobians import PER_PRODUCT
from daskgrad.autodiff.tape.dependence import Dependence
from daskgrad.autodiff.tape.forward import Push
from daskgrad.autodiff.tape.reverse import AutogradTape
from daskgrad.derivatives.evaluation import evaluate_again_if_lost
from daskgrad.derivatives.jacobian import FEW
from daskgrad.graph.activity import Graph
from daskgrad.tasks.supervision import LostError

pytestmark = pytest.mark.usefixtures("synchronous")

X = np.linspace(0.2, 1.3, 4)
ROWS = decades(9, 4) / 1e6
MODES = ("forward", "reverse", "auto")


def squash(x):
    return np.tanh(x) * np.sum(x)


def stretch(x):
    return np.outer(np.sin(x), np.array([1.0, 2.0, -1.0])) * x[0]


def wave(item, x):
    return np.sin(item * x)


squash_, stretch_ = dg.delayed(squash), dg.delayed(stretch)

FUNCTIONS = {
    "model": (squash_, squash),
    "chain": (lambda x: stretch_(squash_(x)), lambda x: stretch(squash(x))),
    "fan": (
        lambda x: dg.sum([squash_(x), 2.0 * x, squash_(squash_(x))]),
        lambda x: squash(x) + 2.0 * x + squash(squash(x)),
    ),
    "sum": (
        lambda x: dg.map_sum(wave, ROWS, x, grainsize=2),
        lambda x: np.sum(np.sin(ROWS * x), axis=0),
    ),
    "number": (
        lambda x: dg.map_sum(lambda i, x: np.dot(i, x) ** 2, ROWS, x),
        lambda x: np.sum((ROWS @ x) ** 2),
    ),
    "variable": (lambda x: x, lambda x: x),
    "part": (lambda x: x[1:3], lambda x: x[1:3]),
    "recomputed": (dg.delayed(squash, keep="recompute"), squash),
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_it_is_autograds(name, mode):
    fun, plain = FUNCTIONS[name]
    found = dg.jacobian(fun, mode=mode)(X)
    expected = autograd.jacobian(plain)(X)
    assert found.shape == expected.shape
    assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("mode", MODES)
def test_trees_in_trees(mode):
    def model(p, y):
        return {"a": p["w"] * y[0] + p["b"], "n": 3, "s": np.sum(p["w"] ** 2)}

    p = {"w": X, "b": 0.5, "k": 2}
    y = np.array([2.0, 3.0])
    found = dg.jacobian(dg.delayed(model), argnums=(0, 1), mode=mode)(p, y)
    assert_allclose(found["a"][0]["w"], 2.0 * np.eye(4))
    assert_allclose(found["a"][0]["b"], np.ones(4))
    assert_allclose(found["a"][1], np.stack([X, 0.0 * X], axis=1))
    assert_allclose(found["s"][0]["w"], 2 * X)
    assert found["n"] is found["a"][0]["k"] is None
    assert dg.jacobian(dg.delayed(model), mode=mode)(p, y)["s"]["w"].shape == (4,)


@pytest.mark.parametrize("mode", MODES)
def test_an_output_that_depends_on_nothing_has_a_jacobian_of_zeros(mode):
    with pytest.warns(UserWarning, match="does not depend on 'x'"):
        found = dg.jacobian(lambda x: squash_(np.ones(3)), mode=mode)(X)
    assert_array_equal(found, np.zeros((3, 4)))


SHAPES = [((0,), (4,)), ((4,), (0,)), ((0, 1), (3,)), ((2, 1), (0,)), ((2, 1), (3,))]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("of", "by"), SHAPES)
def test_it_has_the_shapes_and_the_dtype_of_both_also_without_entries(of, by, mode):
    model = dg.delayed(lambda x: np.ones(of, x.dtype) * np.sum(x))
    found = dg.jacobian(model, mode=mode)(np.ones(by, np.float32))
    assert_array_equal(found, np.ones(of + by))
    assert found.dtype == np.float32


# ------------------------------------------------------------------------------- by structure


def heat(u):
    """A residual for each point of a grid, of three neighbours."""
    v = np.concatenate([[0.0], u, np.array([1.0])])
    return np.tanh(v[2:] - 2 * v[1:-1] + v[:-2]) + u**3


def moves(u):
    square = np.reshape(u[::-1], (4, 3))
    return np.stack([square[0] * square[1], np.where(square[2] > 0, square[3], 0.0)]).T


MATRIX = np.random.default_rng(0).normal(size=(12, 12))
GRID = np.linspace(-0.5, 0.7, 12)
heat_ = dg.delayed(heat)


def wide(v):
    return np.sin(MATRIX[:3] @ v)


def mixed(v):
    return np.sin(MATRIX @ v)


def beside_a_constant(v):
    return np.concatenate([v[:2], np.ones(3)])


def with_total(u):
    return np.append(heat(u), np.sum(u))


def with_total_(u):
    return dg.delayed(np.append)(heat_(u), dg.delayed(np.sum)(u))


def number(v):
    return v[1] ** 2 * np.sum(v[:3])


def narrow(v):
    return np.cos(MATRIX[:, :3] @ v)


STRUCTURES = {  # a graph, the same in plain NumPy, entries of the matrix, products of the models
    "a stencil": (heat_, heat, 12 * 3 - 2, 3),
    "a stencil of a stencil": (lambda u: heat_(heat_(u)), lambda u: heat(heat(u)), 12 * 5 - 6, 8),
    "what moves": (dg.delayed(moves), moves, 3 * 3, 2),
    "a dense model": (dg.delayed(mixed), mixed, 144, 12),
    "few values": (lambda u: dg.delayed(wide)(heat_(u)), lambda u: wide(heat(u)), 3 * 12, 3 + 3),
    "a bottleneck": (
        lambda u: dg.delayed(narrow)(dg.delayed(wide)(u)),
        lambda u: narrow(wide(u)),
        144,
        3 + 3,
    ),
    "a part": (lambda u: heat_(u[2:6]) * u[0], lambda u: heat(u[2:6]) * u[0], 4 * 4 - 2, 3 + 4),
    "itself": (lambda u: u, lambda u: u, 12, 0),
    "a number": (lambda u: u[1] ** 2 * dg.delayed(np.sum)(u[:3]), number, 3, 3),
    "a constant": (dg.delayed(beside_a_constant), beside_a_constant, 2, 0),
    "a row of all": (with_total_, with_total, 3 * 12 - 2 + 12, 3 + 1),
}


@pytest.fixture
def products(monkeypatch):
    """The tangents that are pushed along models, and the cotangents that are pulled back."""
    made, within = [], []  # a rule for tangents may itself pull

    def count(cls, name):
        method = getattr(cls, name)

        def counted(*args):
            made.extend([name] * (not within))
            within.append(name)
            try:
                return method(*args)
            finally:
                within.pop()

        monkeypatch.setattr(cls, name, counted)

    count(Push, "__call__")
    count(AutogradTape, "pull")
    return made


@pytest.mark.parametrize("name", STRUCTURES)
def test_the_entries_of_the_matrix_follow_from_the_graph(name, products):
    fun, plain, entries, count = STRUCTURES[name]
    found = dg.jacobian(fun, sparse=True)(GRID)
    assert len(products) == count
    expected = autograd.jacobian(plain)(GRID)
    assert found.nnz == entries
    assert found.has_canonical_format
    assert_allclose(found.toarray().reshape(expected.shape), expected, rtol=1e-12, atol=1e-14)
    assert_array_equal(dg.jacobian(fun)(GRID), found.toarray().reshape(expected.shape))


def test_what_has_no_structure_is_a_matrix_with_all_entries():
    fun = FUNCTIONS["sum"][0]
    for mode in MODES:
        found = dg.jacobian(fun, mode=mode, sparse=True)(X)
        assert found.nnz == 16
        assert_array_equal(found.toarray(), dg.jacobian(fun, mode=mode)(X))


def test_blocks_of_trees_are_matrices():
    fun = dg.delayed(lambda p: {"a": np.outer(p["w"], p["w"]), "n": 3, "s": p["b"]})
    found = dg.jacobian(fun, sparse=True)({"w": X, "b": 0.5, "k": 2})
    assert found["n"] is found["a"]["k"] is None
    assert (found["a"]["w"].shape, found["a"]["w"].nnz) == ((16, 4), 16 * 4)
    assert (found["s"]["b"].toarray(), found["a"]["b"].nnz) == (1.0, 0)


def test_of_few_values_by_very_many_numbers_no_structure_is_looked_for(products, monkeypatch):
    monkeypatch.setattr(Dependence, "__init__", None)
    x = np.linspace(0.0, 1.0, FEW * PER_PRODUCT + 1)
    waves, total = (dg.delayed(fun, compile=False) for fun in (np.sin, np.sum))
    found = dg.jacobian(lambda x: total(waves(x)))(x)
    assert products == ["pull", "pull"]
    assert_array_equal(found, np.cos(x))


def test_a_dense_model_after_one_with_structure_is_pulled_back_along_the_graph(products):
    square, third = np.random.default_rng(2).normal(size=(90, 90)), np.arange(90) % 3
    groups = dg.delayed(lambda x: np.sin(np.sum(np.reshape(x, (3, 30)), axis=1))[third] * x)
    dense = dg.delayed(lambda x: np.tanh(square @ x))
    x = np.linspace(0.0, 1.0, 90)
    found = dg.jacobian(lambda x: dense(groups(x)))(x)
    assert products.count("__call__") == 40  # of the first model, before the second one gave up
    assert products.count("pull") == 2 * 90
    assert_array_equal(found, dg.jacobian(lambda x: dense(groups(x)), mode="reverse")(x))


def test_a_rule_for_gradients_alone_is_pulled_back():
    cube = dg.custom_vjp(lambda x: x**3)
    cube.defvjp(lambda x: (x**3, x), lambda x, g: (3.0 * x**2 * g,))
    assert_allclose(dg.jacobian(dg.delayed(cube))(X), np.diag(3.0 * X**2), rtol=1e-12)


def test_a_model_that_runs_again_to_be_pulled_back_draws_the_same_numbers():
    model = dg.delayed(lambda x, random: np.sum(x**2 * random.normal(size=4)))
    found = dg.jacobian(lambda x: model(x, np.random.default_rng(5)))(X)
    assert_allclose(found, 2.0 * X * np.random.default_rng(5).normal(size=4))


@pytest.mark.filterwarnings("ignore:divide by zero")
def test_slopes_that_are_not_finite_are_an_error_while_nans_are_debugged():
    with dg.debug_nans(), pytest.raises(FloatingPointError, match=r"model 'sqrt'.* has inf"):
        dg.jacobian(dg.delayed(np.sqrt))(np.zeros(2))


# ------------------------------------------------------------------------------- many at once


@pytest.mark.parametrize("name", ["model", "chain", "fan", "sum", "variable"])
def test_a_pullback_takes_a_stack_of_cotangents(name):
    value, pullback = dg.vjp(FUNCTIONS[name][0], X)
    stack = np.random.default_rng(0).normal(size=(7, *value.shape))
    (found,) = pullback(stack)
    assert_array_equal(found, np.stack([pullback(cotangent)[0] for cotangent in stack]))


def test_a_stack_for_trees_and_several_arguments():
    _, pullback = dg.vjp(lambda x, y, n: {"a": squash_(x), "b": y * n}, X, 2.0, 3)
    stack = {"a": np.eye(4), "b": np.arange(4.0)}
    of_x, of_y, of_n = pullback(stack)
    assert_allclose(of_x, autograd.jacobian(squash)(X))
    assert_array_equal(of_y, 3.0 * np.arange(4.0))
    assert of_n is None
    with pytest.warns(UserWarning, match="does not depend on 'x'"):
        half = pullback({"a": None, "b": np.arange(5.0)})
    assert half[0].shape == (5, 4)


# ---------------------------------------------------------------- what was wrong once


@pytest.mark.parametrize("mode", MODES)
def test_of_holomorphic_functions(mode):
    z = X + 0.5j
    for fun, slope in ((np.tanh, np.cosh(z) ** -2), (np.sin, np.cos(z))):
        found = dg.jacobian(lambda z, fun=fun: dg.delayed(fun)(z), mode=mode)(z)
        assert_allclose(found, np.diag(slope), rtol=1e-13)


def test_a_stack_is_pulled_back_through_items_of_classes_of_their_own():
    class Track(list):
        weight = 2.0

    model = dg.delayed(lambda item, x: x * item.weight, keep="recompute")
    _, pullback = dg.vjp(lambda x: dg.map_sum(model, [Track([1.0])], x), X)
    assert_array_equal(pullback(np.eye(4))[0], 2.0 * np.eye(4))


def test_what_is_lost_while_it_is_made_again_is_made_once_more():
    """Another thread may place the items again while this one computes with the old ones."""
    node = dg.map_sum(wave, dg.place(ROWS), dg.variable(X))
    prepared = []

    def prepare():
        prepared.append(1)
        if len(prepared) == 1:
            raise LostError("again")

    def evaluate():
        if not prepared:
            raise LostError("lost")
        return 5

    assert evaluate_again_if_lost(Graph(node, []), evaluate, prepare) == 5
    assert len(prepared) == 2
