"""Lists of traced numbers that ``np.array`` makes arrays of: NumPy computes with their entries."""

import dask
import numpy as np
import pytest
from numpy.testing import assert_array_equal

import daskgrad as dg
from daskgrad.autodiff.programs.backend import prepare

ITEMS = [np.random.default_rng(number).normal(size=20) for number in range(6)]
P = np.array([0.9, 0.31])

MODELS = {
    "difference": lambda y, item: np.sum((y - item) ** 2),
    "reflected difference": lambda y, item: np.sum((item - y) ** 2),
    "subtract": lambda y, item: np.sum(np.subtract(item, y) ** 2),
    "product with a number of the item": lambda y, item: np.sum(y * item[3]) ** 2,
    "number of the item before a product": lambda y, item: np.sum(item[3] * y) ** 2,
    "quotient": lambda y, item: np.sum(y / (1.0 + item**2)),
    "power": lambda y, item: np.sum(y ** np.abs(item)),
    "dot": lambda y, item: np.dot(y, item) ** 2,
    "dot of the item": lambda y, item: np.dot(item, y) ** 2,
    "matmul": lambda y, item: (y @ item) ** 2,
    "outer": lambda y, item: np.sum(np.outer(y, item[:3]) ** 2),
    "maximum": lambda y, item: np.sum(np.maximum(y, item)),
    "comparison": lambda y, item: np.sum(y) if (y > item).all() else np.sum(y * 2.0),
    "matrix of the item": lambda y, item: np.sum((y * item.reshape(2, 10)[:, ::-1].ravel()) ** 2),
    "spread": lambda y, item: np.sum((y[:, None] - item[:4]) ** 2),
    "its own sum": lambda y, item: np.sum(y**2) + item[0],
}


def model_of(name):
    use = MODELS[name]

    def model(item, p):
        level, levels = 1.0, []
        for _ in range(20):
            level = level * p[0] + p[1]
            levels.append(level)
        return use(np.array(levels), item)

    return model


@pytest.mark.parametrize("name", MODELS)
def test_a_program_has_the_bits_of_the_model(name):
    model = model_of(name)
    compiled, plain = (dg.delayed(model, compile=choice) for choice in (True, False))
    for parts in (lambda m, p: dg.map_sum(m, ITEMS, p), lambda m, p: m(ITEMS[1], p)):
        with dask.config.set({"scheduler": "sync", "daskgrad.inline.seconds": 60}):
            for number in range(16):
                p = P + 0.01 * number
                value, gradient = dg.value_and_grad(lambda p: parts(compiled, p))(p)  # noqa: B023
                expected = dg.value_and_grad(lambda p: parts(plain, p))(p)  # noqa: B023
                assert value == expected[0]
                assert_array_equal(gradient, expected[1])
    assert prepare(model, True).programs.has_programs()


def test_an_array_of_data_alone_is_an_array_of_numbers():
    def model(item, p):
        return np.sum(np.array([item[0], item[1] * 2.0] * 10) * p[0])

    for number in range(16):
        value = dg.value_and_grad(dg.delayed(model, compile=True), 1)(ITEMS[0], P + number)[0]
        assert value == model(ITEMS[0], P + number)
