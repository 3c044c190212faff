"""dg.array: values and derivatives are those of the whole array, for any chunks."""

import autograd
import autograd.numpy as anp
import dask
import dask.array as da
import numpy as np
import pytest
from numpy.testing import assert_allclose

import daskgrad as dg

SHAPE = (5, 6)
GENERATOR = np.random.default_rng(0)
X, Y = GENERATOR.uniform(0.5, 2.0, (2, *SHAPE))
ROW, COLUMN = GENERATOR.uniform(0.5, 2.0, 6), GENERATOR.uniform(0.5, 2.0, (5, 1))
WEIGHTS = GENERATOR.normal(size=SHAPE)
CHUNKS = [-1, 1, (2, 3), ((1, 4), (2, 1, 3)), ((2, 2, 1), -1)]

# What is done, with NumPy or a library that is like it; the result is weighed and summed up.
PROGRAMS = {
    "operators": lambda np, x, y: (x + y) * x - y / x + 2.0 * x - (1.0 - y) + x**2 + 2.0**y - (-x),
    "ufuncs": lambda np, x, y: (
        np.exp(-x) + np.log(y) * np.sqrt(x) + np.sin(x) * np.cos(y) + np.tanh(x - y)
    ),
    "more ufuncs": lambda np, x, y: (
        np.logaddexp(x, y) + np.arctan2(x, y) + np.log1p(x) * np.expm1(y) + np.square(x)
    ),
    "extrema of two": lambda np, x, y: np.maximum(x, y) * np.minimum(x, 1.0) + np.abs(x - y),
    "where": lambda np, x, y: np.where(x > y, x * y, x - y) + np.where(x < 1.0, 1.0, x),
    "a row": lambda np, x, y: x * ROW + ROW / y,
    "a column": lambda np, x, y: x * COLUMN + COLUMN - y,
    "a sum along each axis": lambda np, x, y: (
        x / np.sum(x, axis=0) + y / np.sum(x, axis=1, keepdims=True)
    ),
    "a mean": lambda np, x, y: x - np.mean(x) + y * np.mean(y, axis=(0, 1), keepdims=True),
    "means along axes": lambda np, x, y: x - x.mean(axis=0) + y.mean(axis=1, keepdims=True),
    "a product": lambda np, x, y: np.prod(x, axis=0) + y / np.prod(y, axis=1, keepdims=True),
    "extrema": lambda np, x, y: x - np.max(x, axis=0) + np.min(y, axis=1, keepdims=True) * y.max(),
    "norms": lambda np, x, y: x / np.linalg.norm(x) + y / np.linalg.norm(y, axis=0),
    "a matrix product": lambda np, x, y: x @ (y.T @ x),
    "dot": lambda np, x, y: np.dot(x, np.dot(y.T, x)),
    "matrix times vector": lambda np, x, y: x * (y @ ROW).sum(),
    "tensordot": lambda np, x, y: np.tensordot(np.tensordot(x, y, ((0,), (0,))), x, ((0,), (1,))).T,
    "a full contraction": lambda np, x, y: x * np.tensordot(x, y, 2),
    "transposes": lambda np, x, y: (x.T * np.transpose(y)).T + np.transpose(x.T, (1, 0)),
    "slices": lambda np, x, y: np.concatenate([x[2:4], y[:2], x[4:]]) + x[2] + y[-1, 3] * x,
    "columns": lambda np, x, y: np.concatenate([x[:, 2:5], y[:, :3]], axis=1) * x[..., 1:2],
    "stacks": lambda np, x, y: (
        np.sum(np.stack([x, x * y, y]), axis=0) + np.stack([x, y], 2)[..., 1]
    ),
}


def weighed(np, result):
    return np.sum(result * WEIGHTS) + np.sum(result) ** 2


def by_chunks(name, chunks):
    def program(point):
        x, y = [dg.array(point[key], chunks).rechunk((2, 3)) for key in "xy"]
        return weighed(np, PROGRAMS[name](np, x, y))

    return program


def whole(np, name):
    return lambda x, y: weighed(np, PROGRAMS[name](np, x, y))


POINT = {"x": X, "y": Y}


pytestmark = pytest.mark.usefixtures("synchronous")


@pytest.mark.parametrize("name", PROGRAMS)
def test_value_and_gradient_are_those_of_the_whole_array(name):
    fun = whole(anp, name)
    wanted = [autograd.grad(fun, number)(X, Y) for number in (0, 1)]
    for chunks in CHUNKS:
        value, gradient = dg.value_and_grad(by_chunks(name, chunks))(POINT)
        assert_allclose(value, fun(X, Y), rtol=1e-12)
        for key, expected in zip("xy", wanted, strict=True):
            assert_allclose(gradient[key], expected, rtol=1e-10, atol=1e-10)


@pytest.mark.optional
@pytest.mark.parametrize("name", PROGRAMS)
def test_both_modes_agree_with_jax(name, random):
    jax = pytest.importorskip("jax")
    with jax.enable_x64(True):
        fun = whole(jax.numpy, name)
        tangents = random.normal(size=(2, *SHAPE))
        wanted = jax.grad(fun, (0, 1))(X, Y)
        value, slope = jax.jvp(fun, (X, Y), tuple(tangents))
    for chunks in CHUNKS:
        program = by_chunks(name, chunks)
        gradient = dg.grad(program)(POINT)
        for key, expected in zip("xy", wanted, strict=True):
            assert_allclose(gradient[key], expected, rtol=1e-9, atol=1e-9)
        direction = dict(zip("xy", tangents, strict=True))
        result = dg.jvp(program, (POINT,), (direction,))
        assert_allclose(result, (value, slope), rtol=1e-9)


@pytest.mark.parametrize("fun", ["max", "min"])
@pytest.mark.parametrize("axis", [None, 0, 1])
def test_equal_entries_have_equal_parts_of_an_extreme_for_any_chunks(fun, axis):
    x = np.array([[3.0, 1.0, 3.0, 1.0, 3.0], [1.0, 1.0, 3.0, 3.0, 1.0], [1.0, 3.0, 1.0, 1.0, 1.0]])

    tangent = np.cos(np.arange(15.0)).reshape(3, 5)

    def whole(x):
        return anp.sum(getattr(anp, fun)(x, axis=axis) ** 2)

    wanted = autograd.grad(whole)(x)
    twice = autograd.grad(lambda x: anp.sum(autograd.grad(whole)(x) * tangent))(x)
    for chunks in (-1, 1, 2, ((1, 2), (1, 3, 1))):

        def by_chunks(x, chunks=chunks):
            result = getattr(dg.array(x, chunks), fun)(axis=axis)
            return dg.delayed(np.square)(result) if axis is None else (result**2).sum()

        assert_allclose(dg.grad(by_chunks)(x), wanted, rtol=1e-14)
        slope = dg.jvp(by_chunks, (x,), (tangent,))[1]
        assert_allclose(slope, np.vdot(wanted, tangent), rtol=1e-14)
        _, (product,) = dg.hvp(by_chunks, (x,), (tangent,))
        assert_allclose(product, twice, rtol=1e-14)


@pytest.mark.parametrize("name", ["operators", "a mean", "a matrix product", "slices"])
def test_tangents_and_hessian_products(name, random):
    tangent = {key: random.normal(size=SHAPE) for key in POINT}
    program = by_chunks(name, (2, 4))
    gradient = dg.grad(program)
    slope = sum([np.vdot(gradient(POINT)[key], tangent[key]) for key in POINT])
    assert_allclose(dg.jvp(program, (POINT,), (tangent,))[1], slope, rtol=1e-11)
    _, (product,) = dg.hvp(program, (POINT,), (tangent,))
    ends = [gradient({k: POINT[k] + h * tangent[k] for k in POINT}) for h in (1e-5, -1e-5)]
    for key in POINT:
        wanted = (ends[0][key] - ends[1][key]) / 2e-5
        assert_allclose(product[key], wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("scheduler", ["sync", "cluster"], indirect=True)
def test_data_are_dask_arrays_and_parameters_variables(scheduler):
    """Logistic regression: the data stay in chunks, and are no variables."""
    data, labels = GENERATOR.normal(size=(40, 3)), GENERATOR.integers(0, 2, 40).astype(float)
    chunked, marks = da.from_array(data, chunks=(7, 3)), da.from_array(labels, chunks=7)

    def loss(w):
        score = dg.array(chunked) @ dg.array(w)
        return np.sum(np.logaddexp(0.0, score) - dg.array(marks) * score)

    def plainly(w):
        score = data @ w
        return anp.sum(anp.logaddexp(0.0, score) - labels * score)

    w = np.array([0.3, -0.2, 0.5])
    value, gradient = dg.value_and_grad(loss)(w)
    assert_allclose(value, plainly(w), rtol=1e-12)
    assert_allclose(gradient, autograd.grad(plainly)(w), rtol=1e-12)


@pytest.mark.parametrize("shape", [(6,), (5, 1), (2, 5, 6)])
@pytest.mark.parametrize("model", [lambda x: x, dg.delayed(anp.exp)], ids=["a variable", "a node"])
def test_the_value_of_a_node_is_not_cut_and_so_must_fit_each_chunk(model, shape):
    x = np.ones(shape)
    with pytest.raises(ValueError, match=r"a dg\.array and a node.*not cut into chunks"):
        dg.value_and_grad(lambda x: np.sum(dg.array(X, chunks=(1, 1)) * model(x)))(x)
    if len(shape) == X.ndim - 1 or 1 in shape:
        value = dg.value_and_grad(lambda x: np.sum(dg.array(X, chunks=-1) * model(x)))(x)[0]
        assert_allclose(value, np.sum(X * model(dg.variable(x)).compute()))


def test_the_gradient_of_a_grid_is_a_grid():
    grid = dg.grid(X, (2, 2))
    gradient = dg.grad(lambda g: np.sum(dg.array(g) ** 2))(grid)
    assert gradient.chunks == grid.chunks
    assert_allclose(gradient.to_array(), 2.0 * X)


def test_blocks_may_go_through_models():
    def cube(block, factor):
        return factor * block**3

    def shift(padded):
        return padded[1:-1] * padded[2:]

    def program(x):
        array = dg.array(x, 4)
        return np.sum(array.map_blocks(cube, 2.0) * array.map_overlap(shift, depth=1))

    x = GENERATOR.normal(size=10)
    wanted = autograd.grad(lambda x: anp.sum(2.0 * x**3 * x * anp.roll(x, -1)))(x)
    assert_allclose(dg.grad(program)(x), wanted, rtol=1e-11)


def test_dasks_functions_and_arrays_do_not_detach():
    def program(x):
        array = dg.array(x, (2, 3))
        mixed = da.from_array(Y, chunks=(2, 3)) + array
        return np.sum(da.sin(array) * mixed) + da.from_array(Y, chunks=(2, 3)).sum()

    wanted = autograd.grad(lambda x: anp.sum(anp.sin(x) * (Y + x)))(X)
    assert_allclose(dg.grad(program)(X), wanted, rtol=1e-12)


@pytest.mark.parametrize("scheduler", ["sync", "cluster"], indirect=True)
def test_arrays_are_collections(scheduler):
    array = dg.array(X, (2, 3))
    assert repr(array) == "<dg.array of shape (5, 6), float64, 3 x 2 chunks>"
    assert (array.ndim, array.size, len(array), np.shape(array)) == (2, 30, 5, SHAPE)
    double = 2.0 * array
    assert_allclose(double.compute(), 2.0 * X)
    assert_allclose(double.persist().compute(), 2.0 * X)
    back = double.to_dask_array()
    assert back.chunks == array.chunks
    assert_allclose(back.compute(), 2.0 * X)
    assert ((array > 1.0).dtype, np.stack([array, array]).chunks[0]) == (bool, (1, 1))


@pytest.mark.parametrize("make", [np.array, da.asarray], ids=["NumPy", "dask"])
def test_arrays_of_constants_are_collections_too(make):
    array = dg.array(make(X), (2, 4))
    assert_allclose(array.compute(), X)
    kept = array.persist()
    assert_allclose(kept.compute(), X)
    assert_allclose(np.concatenate([array, kept * 2.0]).compute(), np.concatenate([X, 2.0 * X]))
    first, twice = dask.compute(array.blocks[0], (array * 2.0).blocks[0])
    assert_allclose(2.0 * first, twice)
    assert_allclose(dg.grad(lambda y: (dg.array(y, (2, 4)) * kept).sum())(Y), X)


def test_integers_and_booleans_have_dtypes():
    counts = dg.array(np.arange(6), 2)
    assert counts.sum().compute() == 15
    assert (counts / 2).dtype == float
    assert np.where(counts > 2, counts, 0).compute().tolist() == [0, 0, 0, 3, 4, 5]
