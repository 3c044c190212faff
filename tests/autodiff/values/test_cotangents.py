"""Laws of cotangents: adding, None, projecting, checking; and that nobody's array is changed."""

from collections import namedtuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from daskgrad.autodiff.values.cotangents import Cotangent, add, cast, check, project
from daskgrad.autodiff.values.descriptions import describe

# ------------------------------------------------------------------------------------- add

SHAPES = ((), (3,), (2, 2), (0,))


def leaves(seed, missing):
    """A cotangent of four leaves, read-only, some of them ``None``."""
    random = np.random.default_rng(seed)
    made = []
    for number, shape in enumerate(SHAPES):
        leaf = random.standard_normal(shape)[()] if shape == () else random.standard_normal(shape)
        if isinstance(leaf, np.ndarray):
            leaf.flags.writeable = False
        made.append(None if number in missing else leaf)
    return tuple(made)


cotangents = st.builds(leaves, st.integers(0, 1000), st.sets(st.integers(0, len(SHAPES) - 1)))


def same_bits(first, second):
    return [a if a is None else (np.shape(a), np.asarray(a).tobytes()) for a in first] == [
        b if b is None else (np.shape(b), np.asarray(b).tobytes()) for b in second
    ]


@given(cotangents, cotangents)
def test_adding_is_adding_where_none_is_zero(a, b):
    """The sum belongs to who asked for it; what was added belongs to somebody else."""
    total, nothing = add(a, b), (None,) * len(a)
    assert same_bits(total, add(b, a))
    assert same_bits(add(a, nothing), a)
    assert same_bits(add(nothing, a), a)
    assert add(nothing, nothing) == nothing
    for first, second, leaf in zip(a, b, total, strict=True):
        present = [term for term in (first, second) if term is not None]
        if present:
            np.testing.assert_array_equal(leaf, sum(present))
        else:
            assert leaf is None
        if isinstance(leaf, np.ndarray) and leaf.size:
            assert leaf.flags.writeable
            assert not any(isinstance(x, np.ndarray) and np.shares_memory(leaf, x) for x in present)


@given(cotangents, cotangents, cotangents)
def test_what_is_owned_may_be_overwritten_and_nothing_else(a, b, c):
    """All inputs are read-only: writing into one would raise."""
    expected = add(add(a, b), c)
    owned = add(a, b)
    total = add(owned, c, True)
    assert same_bits(total, expected)
    for mine, before, other in zip(total, owned, c, strict=True):
        if isinstance(before, np.ndarray) and other is not None:
            assert mine is before


# --------------------------------------------------------------------- project, cast, check


def test_projecting_gives_shape_and_dtype_of_the_leaf():
    for cotangent, leaf in (
        (2.0, np.float32(1.0)),
        (2, 1.0),
        (np.array([2.0]), 1.0),
        (np.full((1, 3), 2.0), np.ones(3)),
        (np.full(3, 2.0), np.ones((3, 1), np.float32)),
        (np.full(3, 2.0 + 5.0j), np.ones(3)),
        (np.full(3, 2.0 + 0.0j), np.ones(3, np.float32)),
        (np.full(3, 2.0), np.ones(3, complex)),
    ):
        projected = project(cotangent, leaf)
        assert (projected.shape, projected.dtype) == (np.shape(leaf), np.asarray(leaf).dtype)
        np.testing.assert_array_equal(projected, np.full(np.shape(leaf), 2.0))
        again = project(projected, leaf)
        assert again is projected or not np.shape(leaf)  # a projection; nothing is copied twice
    with pytest.raises(ValueError, match="reshape"):
        project(np.ones(3), np.ones(2))
    g = np.ones(3)
    assert cast(g, np.zeros(2)) is project(g, np.zeros(3)) is g
    assert project(None, np.ones(3)) is None


def test_a_cotangent_of_the_right_kind_is_taken_in_the_leafs_dtype():
    for cotangent, leaf in (
        (1.0, 2.0),
        (1, 2.0),
        (True, np.float32(2.0)),
        (np.ones(3), np.ones(3, np.float32)),
        (np.ones(3, int), np.ones(3)),
        ([1.0, 1.0], np.ones(2)),
        (np.ones(3), np.ones(3, complex)),
    ):
        checked = check(cotangent, leaf, "cotangent of 'model'")
        assert checked.dtype == np.asarray(leaf).dtype
        np.testing.assert_array_equal(checked, cotangent)
    for leaf in (np.ones(3), 3):
        assert check(None, leaf, "x") is None


# -------------------------------------------------------------------------------- describe

Point = namedtuple("Point", "x y")


def test_a_value_is_described_in_a_few_words():
    for value, text in (
        (np.ones((2, 3)), "float64[2, 3]"),
        (np.float32(1.0), "float32[]"),
        ({"a": np.ones(2), "b": 1}, "{'a': float64[2], 'b': 1}"),
        ([1.0, "x", None], "list(1.0, 'x', None)"),
        ((True,), "tuple(True)"),
        (Point(1, 2), "Point(1, 2)"),
        (list(range(100)), "list(0, 1, 2, 3, 4, 5, ... 94 more)"),
        ("x" * 100, "'" + "x" * 36 + "..."),
        (10**100, "1" + "0" * 36 + "..."),
        (object(), "object"),
        (len, "builtin_function_or_method"),
    ):
        assert describe(value) == text
    assert len(describe([[np.ones(10)] * 300] * 300)) < 800
    assert repr(Cotangent((np.ones(3), None))) == "Cotangent(float64[3], None)"
