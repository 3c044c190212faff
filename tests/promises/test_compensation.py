"""Compensated sums: within their bound, against exact arithmetic, however they are cut."""

import itertools
import math
from fractions import Fraction

import autograd.numpy as np
import dask
import dask.array
import dask.bag
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from lengths import in_short
from numpy.testing import assert_array_equal

import daskgrad as dg
from daskgrad.autodiff.models.pullbacks import sum_values
from daskgrad.autodiff.values import addition as compensation
from daskgrad.autodiff.values import cotangents
from daskgrad.autodiff.values.addition import (
    final_leaves,
    pairwise,
    two_sum,
)

LARGEST = float(np.finfo(float).max)
ULP_OF_LARGEST = 2.0**971

pytestmark = pytest.mark.usefixtures("synchronous")


# --------------------------------------------------------------------------- exact arithmetic


def exact(number):
    """A float of any dtype as a rational number."""
    return Fraction(*number.as_integer_ratio())


def bound(terms, u):
    """u |s| + (1 + u) γ(L) γ(2L) Σ|x|, in exact arithmetic: what the module promises."""
    numbers, u = list(map(exact, terms)), Fraction(u)
    levels = math.ceil(math.log2(len(numbers)))
    first, second = (k * u / (1 - k * u) for k in (levels, 2 * levels))
    return u * abs(sum(numbers)) + (1 + u) * first * second * sum(map(abs, numbers))


def is_within_the_bound(result, terms):
    """For one real sum: ``result`` has the dtype of the terms."""
    u = exact(np.finfo(np.asarray(result).dtype).eps / 2)
    return abs(exact(result) - sum(map(exact, terms))) <= bound(terms, u)


def are_within(results, columns):
    return [is_within_the_bound(r, terms) for r, terms in zip(results, columns, strict=True)]


def ill_conditioned(count, condition, seed):
    """Numbers whose sum is about ``condition`` times smaller than the sum of their sizes.

    T. Ogita, S. M. Rump and S. Oishi, "Accurate sum and dot product", algorithm 6.1, for sums:
    one half is random, over all exponents; the other cancels what has been added up so far, down
    to ever smaller numbers. Then they are shuffled.
    """
    random = np.random.default_rng(seed)
    half = count // 2
    bits = math.log2(condition)
    exponents = np.round(random.uniform(0, bits, half))
    exponents[0], exponents[-1] = np.round(bits), 0
    numbers = list(random.uniform(-1, 1, half) * 2.0**exponents)
    for exponent in np.round(np.linspace(bits, 0, count - half)):
        numbers.append(random.uniform(-1, 1) * 2.0**exponent - math.fsum(numbers))
    return [numbers[place] for place in random.permutation(count)]


def condition_number(numbers):
    return math.fsum(map(abs, numbers)) / abs(math.fsum(numbers))


def compensated(terms):
    """The sum of leaves along the tree."""
    (total,) = final_leaves(pairwise([(term,) for term in terms], compensation.add))
    return total


def plain(terms):
    (total,) = pairwise([(term,) for term in terms], cotangents.add)
    return total


# ------------------------------------------------------------------------------------ TwoSum

finite = st.floats(allow_nan=False, allow_infinity=False)
huge = st.integers(-4, 4).map(lambda k: k * ULP_OF_LARGEST / 2)
near_the_largest = st.one_of(huge, huge.map(lambda x: LARGEST - abs(x)), st.just(-LARGEST))


@given(st.one_of(finite, near_the_largest), st.one_of(finite, near_the_largest))
@example(-1.5 * ULP_OF_LARGEST, LARGEST)  # TwoSum alone overflows, unless operands are swapped
@example(LARGEST, -1.5 * ULP_OF_LARGEST)
@example(1.5 * ULP_OF_LARGEST, -LARGEST)
@example(5e-324, 2.0**-1022)
def test_the_error_of_an_addition_is_exact(a, b):
    with np.errstate(over="ignore"):
        results = [two_sum(a, b), two_sum(np.float64(a), np.float64(b))]
        arrays = two_sum(np.array([a, 1.0]), np.array([b, 2.0]))
    for total, error in [*results, (arrays[0][0], arrays[1][0])]:
        if np.isfinite(a + b):
            assert Fraction(float(total)) + Fraction(float(error)) == Fraction(a) + Fraction(b)
        else:
            assert (total, error) == (a + b, 0.0)


# ------------------------------------------------------------------------------- the bound

CONDITIONS = [1e2, 1e8, 1e14, 1e20, 1e25, 1e30]


@given(st.integers(20, 300), st.sampled_from(CONDITIONS), st.integers(0, 1000))
def test_ill_conditioned_sums_are_within_the_bound(count, condition, seed):
    terms = ill_conditioned(count, condition, seed)
    assert is_within_the_bound(compensated(terms), terms)
    total = compensated([np.array([term, -term, 1.0]) for term in terms])
    assert total[0] == -total[1] == compensated(terms)
    assert total[2] == count


@pytest.mark.parametrize("condition", CONDITIONS[1:])
def test_plain_addition_is_not_within_the_bound(condition):
    """So the tests of the bound can fail."""
    sums = [ill_conditioned(200, condition, seed) for seed in range(20)]
    assert are_within(map(plain, sums), sums).count(False) >= 15
    assert all(are_within(map(compensated, sums), sums))
    assert all(condition / 100 < condition_number(terms) < condition * 1e4 for terms in sums)


@pytest.mark.parametrize("dtype", "efdgFDG")
def test_every_dtype_is_within_its_bound(dtype):
    if dtype.isupper():
        both = [ill_conditioned(100, 1e6, seed) for seed in (3, 4)]
        terms = [np.array([x + 1j * y]).astype(dtype) for x, y in zip(*both, strict=True)]
    else:
        terms = list(np.random.default_rng(5).uniform(-1, 1, 200).astype(dtype) / 3)
        terms += [-term for term in terms] + [terms[7] / 8]
    total = compensated(terms)
    assert total.dtype == np.dtype(dtype)
    parts = {part: [np.ravel(part(term))[0] for term in terms] for part in (np.real, np.imag)}
    for part, numbers in parts.items():
        assert is_within_the_bound(np.ravel(part(total))[0], numbers)
    if dtype in "fdgF":  # of half precision few terms are within the bound in any case
        assert not is_within_the_bound(np.ravel(np.real(plain(terms)))[0], parts[np.real])


# ------------------------------------------------------- infinities, integers, mixed dtypes


@pytest.mark.parametrize(
    "terms",
    [
        [np.inf, 1.0, 0.1, -3.0],
        [0.1, 0.2, -np.inf, 0.3],
        [0.1, np.inf, 0.2, -np.inf, 0.3],
        [0.1, np.nan, 0.2],
        [np.inf, np.nan],
        [LARGEST, LARGEST, 1.0],
        [LARGEST, LARGEST, -LARGEST, -LARGEST],
        [0.1, 0.2, 0.3, np.inf],
    ],
)
def test_sums_that_are_not_finite_are_those_of_plain_addition(terms):
    for make in (np.float64, lambda x: np.array([x, x])):
        made = list(map(make, terms))
        with np.errstate(all="ignore"):
            assert_array_equal(compensated(made), plain(made))


def test_an_entry_that_is_not_finite_leaves_the_others_corrected():
    terms = ill_conditioned(64, 1e20, seed=2)
    arrays = [np.array([term, np.inf if place == 9 else 1.0]) for place, term in enumerate(terms)]
    assert compensated(arrays).tolist() == [compensated(terms), np.inf]


def test_integers_are_added_exactly_and_stay_integers():
    assert compensated([2**60, 1, -(2**60)]) == 1
    assert type(compensated([2**60, 1, -(2**60)])) is int
    assert compensated(list(np.array([2**60, 1, -(2**60)]))).dtype == np.int64
    assert compensated([np.array([2**60, 3]), np.array([1, 4])]).tolist() == [2**60 + 1, 7]
    assert type(sum_values([True, True], "compensated")) is type(sum_values([True, True]))


# --------------------------------------------------------------------- sums over many models

N = 203
NUMBERS = ill_conditioned(N, 1e22, seed=11)
OTHERS = ill_conditioned(N, 1e19, seed=12)
ROWS = np.array([NUMBERS, OTHERS, NUMBERS[::-1]]).T.copy()
COLUMNS = [list(column) for column in ROWS.T]
ONES = np.ones(3)


def scaled(item, x):
    """Its value at one, and its derivative, are the item."""
    return item * x


def inner(item, x):
    return np.sum(item * x)


def paired(pair, x):
    """Scalar terms; the gradient of an entry of x is an entry of the first part."""
    return np.sum(pair[0] * x) + 0.0 * pair[1]


def paired_rows(pair, x):
    return pair[0] * x + 0.0 * pair[1]


def over(items, model=scaled, at=1.0, **fixed):
    def results(**options):
        def objective(x):
            return dg.map_sum(model, items() if callable(items) else items, x, **fixed, **options)

        value, gradient = dg.value_and_grad(objective)(at)
        return [value, *np.ravel(gradient), objective(dg.variable(at)).compute()]

    return results


def pulled(items, model=scaled, keep="auto"):
    """Not fused: values are added in the forward pass, cotangents in the backward pass."""

    def results(**options):
        value, pullback = dg.vjp(
            lambda x: dg.map_sum(
                dg.delayed(model, keep=keep), items() if callable(items) else items, x, **options
            ),
            ONES,
        )
        return [*value, *pullback(ONES)[0]]

    return results


def of_slices(grainsize=1, **options):
    def objective(x):
        return dg.reduce_sum(lambda items, x: items[0] * x, NUMBERS, x, grainsize=1, **options)

    return [*dg.value_and_grad(objective)(1.0), objective(dg.variable(1.0)).compute()]


def of_nodes(grainsize=1, **options):
    model = dg.delayed(scaled)

    def objective(x):
        return dg.sum([model(number, x) for number in NUMBERS], **options)

    return [dg.value_and_grad(objective)(1.0)[0], objective(dg.variable(1.0)).compute()]


def of_items_that_hold_nodes(**options):
    one = dg.variable(1.0)
    items = [number * one for number in NUMBERS]
    by_slice = {**options, "grainsize": 1}
    summed = dg.reduce_sum(lambda slice_, x: slice_[0] * x, items, one, **by_slice)
    return [dg.map_sum(scaled, items, one, **options).compute(), summed.compute()]


def beside_items(as_items):
    """The shared inputs' gradients; the gradient of an item is one term's, and nothing is added."""

    def results(**options):
        items = as_items(ROWS)
        _, (rows, shared) = dg.value_and_grad(
            lambda p, x: dg.map_sum(inner, p, x, **options), (0, 1)
        )(items, 3.0 * ONES)
        assert_array_equal(rows, np.full(ROWS.shape, 3.0))
        _, pullback = dg.vjp(lambda p, x: dg.map_sum(scaled, p, x, **options), items, ONES)
        rows, pulled = pullback(ONES)
        assert_array_equal(rows, np.ones(ROWS.shape))
        return [*shared, *pulled]

    return results


def bag(*stops):
    """A bag of the rows, cut there; partitions may be empty."""
    runs = [list(ROWS[start:stop]) for start, stop in itertools.pairwise([0, *stops, N])]
    return dask.bag.Bag({("rows", n): run for n, run in enumerate(runs)}, "rows", len(runs))


def gradient_over(items, model):
    return lambda **options: over(items, model, ONES)(**options)[1:-1]


def without_grainsize(results):
    """The items' own cut holds."""
    return lambda grainsize, **options: results(**options)


KINDS = {
    "a zip": lambda: dg.zip(ROWS, NUMBERS),
    "a zip with placed items": lambda: dg.zip(dg.place(list(ROWS), 16), list(NUMBERS)),
    "a zip of dask Arrays": lambda: dg.zip(
        dask.array.from_array(ROWS, chunks=(17, 2)), dask.array.from_array(NUMBERS, chunks=50)
    ),
}
BAGS = {
    "a bag with empty partitions": lambda: bag(0, 9, 9, 9, 140, N),
}
TWICE, THRICE = [NUMBERS] * 2, [NUMBERS] * 3
KEEPS = ("auto", "tape", "recompute", "gradient")

SUMS = {  # name: a function of summation and grainsize, whose results are sums of these columns
    "scalars": (over(NUMBERS), THRICE),
    **{f"scalars, {k}": (over(NUMBERS, dg.delayed(scaled, keep=k)), THRICE) for k in KEEPS[1:]},
    **{f"arrays, {keep}": (pulled(ROWS, keep=keep), 2 * COLUMNS) for keep in KEEPS[:3]},
    "slices": (of_slices, THRICE),
    "nodes": (of_nodes, TWICE),
    "items that hold nodes": (of_items_that_hold_nodes, TWICE),
    "beside rows that are differentiated": (beside_items(np.array), 2 * COLUMNS),
    **{
        f"{terms} over {name}": (without_grainsize(results(items, model)), columns)
        for kinds, scalar, array in ((KINDS, paired, paired_rows), (BAGS, inner, scaled))
        for name, items in kinds.items()
        for terms, results, model, columns in (
            ("scalars", gradient_over, scalar, COLUMNS),
            ("arrays", pulled, array, 2 * COLUMNS),
        )
    },
}
SIZES = (16, 1, 3, 64, 1000, "auto")
CASES = [(name, size) for size in SIZES for name in SUMS]
CASES = [case for case in CASES if case[1] == 16 or " over " not in case[0]]
SHORT = [case for case in CASES if case[1] == 16 or case[0] in ("scalars", "arrays, auto")]


@in_short(("name", "grainsize"), CASES, *SHORT)
def test_a_sum_is_that_of_the_tree_over_all_its_terms(name, grainsize):
    results, columns = SUMS[name]
    sums = results(grainsize=grainsize, summation="compensated")
    assert [np.asarray(s).dtype for s in sums] == [np.asarray(terms[0]).dtype for terms in columns]
    assert all(are_within(sums, columns))
    if "a bag" not in name:  # whose tree is that of its partitions
        assert sums == list(map(compensated, columns))
    assert not any(are_within(results(grainsize=grainsize, summation="pairwise"), columns))
