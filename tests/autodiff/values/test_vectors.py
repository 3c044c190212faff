"""Directions: random vectors in the shape of a pytree."""

import numpy as np

from daskgrad.autodiff.values.vectors import inner, is_double, move_along, random_like, still
from daskgrad.derivatives.checks.directional import DIRECTIONS

X = np.array([0.3, -0.5, 0.9])


def test_directions_are_of_norm_one_on_average_and_differ(random):
    value = {"w": np.zeros((20, 30)), "n": 3, "z": np.zeros(50, dtype=complex)}
    drawn = [random_like(value, random) for _ in range(DIRECTIONS)]
    for direction in drawn:
        assert direction["n"] is None
        assert direction["z"].dtype == complex
        norm = np.sqrt(np.sum(direction["w"] ** 2) + np.sum(np.abs(direction["z"]) ** 2))
        assert 0.8 < norm < 1.25
    assert not np.array_equal(drawn[0]["w"], drawn[1]["w"])


def test_the_inner_product_is_that_of_autograds_cotangents():
    assert inner({"a": X, "n": None}, {"a": X, "n": None}) == np.sum(X * X)
    assert inner(1.0 + 2.0j, 3.0 - 1.0j) == 3.0 + 2.0  # Re(ab), not Re(a* b)


def test_a_point_is_moved_in_its_own_dtype():
    value = {"x": np.float32([1.0, 2.0]), "n": 3}
    there = move_along(value, 0.5, {"x": np.float32([2.0, 0.0]), "n": None})
    assert there["x"].dtype == np.float32
    assert there["x"].tolist() == [2.0, 2.0]
    assert there["n"] == 3


def test_the_zero_direction_has_the_shape_of_the_value():
    value = {"x": np.float32([1.0, 2.0]), "n": 3, "z": 1j}
    direction = still(value)
    assert direction["x"].tolist() == [0.0, 0.0]
    assert direction["x"].dtype == np.float32
    assert direction["n"] is None
    assert direction["z"] == 0.0


def test_double_precision_is_told():
    assert is_double({"x": X, "n": 3, "s": "text", "f": 1.0})
    assert not is_double({"x": X, "y": np.float32(1.0)})
    assert not is_double((X, 1j))
