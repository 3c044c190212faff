"""Fingerprints know a value again, forgive rounding, and tell other values apart."""

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from daskgrad.autodiff.values.fingerprints import SAMPLES, agree, fingerprint

FLOATS = ("float16", "float32", "float64", "complex64", "complex128")


def same(first, second):
    """Whether two values, of one leaf each, agree; in both directions."""
    prints = fingerprint([first]), fingerprint([second])
    assert agree(*prints) == agree(*prints[::-1])
    return agree(*prints)


any_array = st.sampled_from([*FLOATS, "int64", "uint8", "bool"]).flatmap(
    lambda dtype: arrays.arrays(dtype, arrays.array_shapes(min_dims=0, max_dims=3, min_side=0))
)


@given(any_array)
def test_a_value_agrees_with_itself(array):
    """With NaN, infinities, subnormals and overflowing norms among the entries."""
    copy, print_ = array.copy(), fingerprint([array, 1.5, "text"])
    assert same(array, copy)
    assert agree(print_, pickle.loads(pickle.dumps(print_)))
    array[...] = 1
    assert agree(print_, fingerprint([copy, 1.5, "text"])), "it is no part of its value"


@pytest.mark.parametrize("dtype", FLOATS)
def test_rounding_is_forgiven(dtype, random):
    x = random.standard_normal(1000).astype(dtype)
    eps = np.finfo(dtype).eps
    other = (x * (1.0 + 4 * eps * random.uniform(-1, 1, 1000))).astype(dtype)
    assert same(x, other)
    assert same(x[0], other[0])


@pytest.mark.parametrize("size", [1, 2, 10, SAMPLES, SAMPLES + 1, 1000, 100_000])
@pytest.mark.parametrize("dtype", FLOATS[1:])
def test_another_value_is_caught(dtype, size, random):
    x = (1.0 + random.uniform(size=size)).astype(dtype)
    assert not same(x, (1.0 + random.uniform(size=size)).astype(dtype))  # another draw
    assert not same(x, -x)
    assert not same(x, x * 1.01)
    assert not same(x, np.zeros_like(x))
    if size > 1:
        assert not same(x, x[::-1])
        assert not same(x, np.roll(x, 1))
    if size > 9:
        assert not same(x, random.permutation(x))
    if size in (10, 1000):
        assert not same(x, x.reshape(2, -1))
        assert not same(x, x[:-1])


def test_the_sample_and_the_norm_each_catch_what_the_other_does_not(random):
    x = random.standard_normal(10_000)
    (first,), (second,) = fingerprint([x]), fingerprint([random.permutation(x)])
    assert first[2] == pytest.approx(second[2], rel=1e-12)
    assert not agree((first,), (second,))
    other = x.copy()
    other[1] += 10.0
    (second,) = fingerprint([other])
    assert np.array_equal(first[3], second[3])
    assert not agree((first,), (second,))


def test_one_changed_entry_of_a_small_array_is_caught(random):
    x = random.standard_normal(SAMPLES)
    for place in range(SAMPLES):
        other = x.copy()
        other[place] += 1e-3
        assert not same(x, other)
    assert same(np.array([1e12, 1.0]), np.array([1e12, 1.5])), "to the norm of the whole leaf"


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex128])
def test_nan_equals_nan_and_an_infinity_itself(dtype):
    nan, inf = np.nan, np.inf
    x = np.array([1.0, nan, inf, 4.0], dtype)
    assert same(x, x.copy())
    for other in ([1, 2, inf, 4], [1, nan, -inf, 4], [1, nan, inf, 5], [nan, 1, inf, 4]):
        assert not same(x, np.array(other, dtype))
    for number, other in ((inf, -inf), (inf, nan), (1.0, nan)):
        assert same(dtype(number), dtype(number))
        assert same(dtype(other), dtype(other))
        assert not same(dtype(number), dtype(other))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("extreme", ["max", "tiny", "smallest_subnormal"])
def test_the_largest_and_the_smallest_numbers_are_told_apart(dtype, extreme):
    """Squares of likelihoods vanish at exp(-400), squares of large energies overflow."""
    unit = float(getattr(np.finfo(dtype), extreme))
    factor = {"max": 0.25, "tiny": 4.0, "smallest_subnormal": 1.0}[extreme]
    x = (np.array([1.0, 2.0, 4.0, -4.0]) * (factor * unit)).astype(dtype)
    for first in (x, np.resize(x, 1000)):
        assert same(first, first.copy())
        if extreme == "tiny":
            rounded = first.copy()
            rounded[0] *= 1.0 + 4 * np.finfo(dtype).eps
            assert not np.array_equal(first, rounded)
            assert same(first, rounded)
        assert not same(first, -first)
        assert not same(first, np.roll(first, 1))
    for first, second in zip(x, np.roll(x, 1), strict=True):
        assert same(first, first)
        assert not same(first, second)


def test_numbers_and_other_leaves():
    for first, second in (
        (1.0, 1.0 + 1e-14),
        (1.0, np.float64(1.0)),
        (0.0, -0.0),
        (np.float32(1.0), np.float32(1.0 + 1e-6)),
        *[(leaf, leaf) for leaf in (np.array(2.0), 1 + 2j, "text", None, 3, True)],
    ):
        assert same(first, second)
    for first, second in (
        *((1.0, 1.0 + 1e-6), (1.0, -1.0), (0.0, 1e-300), (1 + 2j, 1 - 2j), ("text", "test")),
        *((3, 4), (True, 1), (1, 1.0), (None, 0.0), (1.0, np.ones(1)), (np.ones(2), "text")),
        (np.float64(1.0), np.float32(1.0)),
        (np.ones(2), np.ones(2, np.float32)),
        (np.ones(2), np.ones(2, int)),
    ):
        assert not same(first, second)


@pytest.mark.parametrize("dtype", ["int64", "uint8", "bool", "int8"])
def test_integers_are_compared_exactly(dtype, random):
    x = random.integers(0, 2, 10_000).astype(dtype)
    for place in (0, 1, 4321, 9999):
        other = x.copy()
        other[place] = 1 - other[place]
        assert not same(x, other)
    assert not same(x, x.reshape(100, 100))
    assert same(x, x.copy())


def test_layout_does_not_matter(random):
    for x in (random.standard_normal((30, 40)), random.integers(0, 9, (30, 40))):
        assert same(x, np.asfortranarray(x))
        assert same(x[:, ::2], x[:, ::2].copy())


def test_leaves_are_compared_one_by_one():
    assert agree(fingerprint([1.0, np.ones(2)]), fingerprint([1.0, np.ones(2)]))
    assert not agree(fingerprint([1.0, np.ones(2)]), fingerprint([np.ones(2), 1.0]))
    assert not agree(fingerprint([1.0]), fingerprint([1.0, 1.0]))
    assert agree(fingerprint([]), fingerprint([]))
    for dtype in ("float64", "int64"):
        assert len(pickle.dumps(fingerprint([np.ones(1_000_000, dtype)]))) < 1500
    assert len(fingerprint([np.ones(1_000_000)])[0][3]) <= SAMPLES
