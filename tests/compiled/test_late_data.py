"""Models that do something else with data that comes late, at a call that is not compared."""

import dataclasses

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import daskgrad as dg

X = np.linspace(-1.0, 1.0, 5)
KNOWN = {4.0: 7.0}
ONES = np.ones(3)
LATE = 9  # calls before it

pytestmark = pytest.mark.usefixtures("synchronous")


def of_array(x, data):
    return np.sum(x) * (2.0 if isinstance(data, np.ndarray) and np.max(data) > 3.0 else 1.0)


def of_float(x, data):
    return np.sum(x) * (2.0 if isinstance(data, float) and data > 3.0 else 1.0)


def changed_in_place(x, data):
    mine = data * 1.0
    other = mine
    mine *= data[0]
    return np.sum(x) * np.sum(other)


def factor(x, matrix):
    try:
        root = np.linalg.cholesky(matrix)
    except np.linalg.LinAlgError:
        root = np.linalg.cholesky(matrix + 5.0 * np.eye(2))
    return np.sum(x) * np.sum(root)


def has_entry(x, number):
    try:
        x[number]
    except IndexError:
        return np.sum(x)
    return 2.0 * np.sum(x)


def strict(x, data):
    try:
        with np.errstate(all="raise"):
            return np.sum(x) * np.sum(1.0 / data)
    except FloatingPointError:
        return np.sum(x)


def mean_of_some(x, data):
    return np.mean(np.concatenate([x[data[0] > 1.0].ravel(), x]))


MODELS = {
    "isinstance of an array": (of_array, ONES, 4.0 * ONES),
    "isinstance of a float": (of_float, 2.0, 4.0),
    "1 / 0.0": (lambda x, data: np.sum(x) * (1.0 / data), 2.0, 0.0),
    "Python adds bools": (lambda x, a: np.sum(x) * ((a > 1.0) + (a > 2.0)), 1.5, 3.0),
    "a complex power": (lambda x, a: np.sum(x * np.abs(a**0.5)), 2.0, -2.0),
    "a dict": (lambda x, data: np.sum(x) * KNOWN.get(data, 1.0), 1.5, 4.0),
    "in place": (changed_in_place, ONES, 2.0 * ONES),
    "an error is caught first": (factor, -np.eye(2), np.eye(2)),
    "an error is caught late": (factor, np.eye(2), -np.eye(2)),
    "an index that is not used": (has_entry, np.int64(2), np.int64(20)),
    "floating-point errors": (strict, ONES, 0.0 * ONES),
    "an index of one bool": (mean_of_some, 2.0 * ONES, 0.0 * ONES),
    "the order of a dict": (
        lambda x, data: np.sum(x) * next(iter(data.values())),
        {"a": 2.0, "b": 3.0},
        {"b": 3.0, "a": 2.0},
    ),
}


def outcome(gradient, *args):
    with np.errstate(all="ignore"):
        try:
            return gradient(*args)
        except ArithmeticError as error:
            return type(error), str(error)


@pytest.mark.parametrize("name", MODELS)
def test_data_that_comes_late_has_the_values_of_the_model(name):
    model, early, late = MODELS[name]
    found, expected = (
        dg.value_and_grad(dg.delayed(model, compile=is_compiled)) for is_compiled in (True, False)
    )
    for data in [early] * LATE + [late]:
        for one, other in zip(outcome(found, X, data), outcome(expected, X, data), strict=True):
            assert_array_equal(one, other)


def test_the_order_of_a_dict_in_a_sum():
    def term(item, x):
        return np.sum(x) * next(iter(item.values()))

    items = [{"a": 2.0, "b": 3.0}] * LATE + [{"b": 3.0, "a": 2.0}] * 2
    found, expected = (
        dg.value_and_grad(lambda x, c=c: dg.map_sum(dg.delayed(term, compile=c), items, x))(X)
        for c in (True, False)
    )
    assert found[0] == expected[0]
    assert_array_equal(found[1], expected[1])


@dataclasses.dataclass(frozen=True)
class Scaled:
    name: str
    scale: float = dataclasses.field(compare=False)

    def __call__(self, x):
        return np.sum(x) * self.scale


def test_equal_models_have_programs_of_their_own():
    one, other = (dg.value_and_grad(dg.delayed(Scaled("a", n), compile=True)) for n in (1.0, 2.0))
    for _ in range(LATE):
        one(X + 1.0)
    assert other(X + 1.0)[0] == 2.0 * one(X + 1.0)[0]
