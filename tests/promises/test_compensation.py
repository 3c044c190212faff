"""Compensated sums: within their bound, against exact arithmetic, however they are cut."""

import math
import pickle
from fractions import Fraction
from typing import get_args

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
from daskgrad.models.determinism import NondeterministicModelError
from daskgrad.models.tracing import Active
from daskgrad.sums import map_sum as sums
from daskgrad.sums.adding import sum_values
from daskgrad.sums.block_tasks import Summand, capture_block, evaluate_block, pull_back_block
from daskgrad.values import compensated as compensation
from daskgrad.values import cotangents
from daskgrad.values.addition import ADDITIONS
from daskgrad.values.compensated import Unrounded, UnroundedValue, final_leaves, two_sum
from daskgrad.values.cotangents import Cotangent
from daskgrad.values.summation import pairwise

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


def unit_roundoff(dtype):
    return Fraction(*(np.finfo(dtype).eps / 2).as_integer_ratio())


def is_within_the_bound(result, terms):
    """For one real sum: ``result`` has the dtype of the terms."""
    error = abs(exact(result) - sum(map(exact, terms)))
    return error <= bound(terms, unit_roundoff(np.asarray(result).dtype))


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
@example(-1.5 * ULP_OF_LARGEST, LARGEST)
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


def test_two_sum_alone_overflows_next_to_the_largest_float():
    """So the retry with the operands swapped is needed."""
    a, b = -1.5 * ULP_OF_LARGEST, LARGEST
    assert math.isfinite(a + b)
    assert not math.isfinite(compensation._rounding_error(a, b, a + b))


@pytest.mark.parametrize("dtype", ["e", "f", "d", "g"])
def test_the_error_of_an_addition_is_exact_in_every_float_dtype(dtype, random):
    a = (random.normal(size=200) * 10.0 ** random.uniform(-4, 4, 200)).astype(dtype)
    b = (random.normal(size=200) * 10.0 ** random.uniform(-4, 4, 200)).astype(dtype)
    total, error = two_sum(a, b)
    assert total.dtype == error.dtype == np.dtype(dtype)
    assert np.any(error != 0.0)
    for x, y, s, e in zip(a, b, total, error, strict=True):
        assert exact(s) + exact(e) == exact(x) + exact(y)
        assert two_sum(x, y) == (s, e)
        assert type(two_sum(x, y)[0]) is type(s)


@pytest.mark.parametrize(
    "values", [(np.inf, 1.0), (np.inf, -np.inf), (np.nan, 1.0), (1e308, 1e308)]
)
def test_a_sum_that_is_not_finite_gets_no_correction(values):
    a, b = values
    with np.errstate(all="ignore"):
        expected = np.float64(a) + np.float64(b)
        for make in (float, np.float64, lambda x: np.array([x, 0.1]), lambda x: np.full(2, x + 0j)):
            total, error = two_sum(make(a), make(b))
            assert_array_equal(np.ravel(total)[0].real, expected)
            assert np.all(np.isfinite(error))
            assert np.ravel(error)[0] == 0.0


def test_real_and_imaginary_part_are_corrected_each_for_itself():
    a, b = np.array([complex(np.inf, 1.0)]), np.array([complex(1.0, 2.0**-60)])
    total, error = two_sum(a, b)
    assert total[0] == complex(np.inf, 1.0)
    assert error[0] == complex(0.0, 2.0**-60)


def test_the_correction_warns_of_nothing_where_plain_addition_does_not():
    """Warnings are errors in these tests."""
    with np.errstate(all="raise"):
        assert two_sum(np.float64(np.inf), np.float64(1.0)) == (np.inf, 0.0)
        two_sum(np.array([np.inf, np.nan, LARGEST]), np.array([1.0, 1.0, -1.5 * ULP_OF_LARGEST]))


# ------------------------------------------------------------------------------- the bound


@given(st.lists(finite.filter(lambda x: abs(x) < 1e300), min_size=1, max_size=200))
def test_any_sum_is_within_the_bound(terms):
    assert is_within_the_bound(compensated(terms), terms)
    assert is_within_the_bound(compensated(list(map(np.float64, terms))), terms)


finite_float32 = st.floats(width=32, min_value=-(2.0**100), max_value=2.0**100)


@given(st.lists(finite_float32, min_size=1, max_size=200))
def test_any_sum_of_float32_is_within_the_bound(terms):
    terms = list(map(np.float32, terms))
    total = compensated(terms)
    assert total.dtype == np.float32
    assert is_within_the_bound(total, terms)


@given(st.lists(st.floats(-1e-310, 1e-310), min_size=1, max_size=50))
def test_sums_of_subnormals_are_exact(terms):
    assert compensated(terms) == math.fsum(terms)


CONDITIONS = [1e2, 1e8, 1e14, 1e20, 1e25, 1e30]


@given(st.integers(20, 300), st.sampled_from(CONDITIONS), st.integers(0, 1000))
def test_ill_conditioned_sums_are_within_the_bound(count, condition, seed):
    terms = ill_conditioned(count, condition, seed)
    assert is_within_the_bound(compensated(terms), terms)
    arrays = [np.array([term, -term, 1.0]) for term in terms]
    total = compensated(arrays)
    assert total[0] == -total[1] == compensated(terms)
    assert total[2] == count


@pytest.mark.parametrize("condition", CONDITIONS[1:])
def test_plain_addition_is_not_within_the_bound(condition):
    """So the tests of the bound can fail."""
    sums = [ill_conditioned(200, condition, seed) for seed in range(20)]
    within = [is_within_the_bound(plain(terms), terms) for terms in sums]
    assert within.count(False) >= 15
    for terms in sums:
        assert condition / 100 < condition_number(terms) < condition * 1e4
        assert is_within_the_bound(compensated(terms), terms)


@pytest.mark.parametrize("condition", CONDITIONS[:3])
def test_up_to_a_condition_of_1_over_u_the_sum_is_as_good_as_rounded(condition):
    terms = ill_conditioned(200, condition, seed=1)
    assert abs(compensated(terms) - math.fsum(terms)) <= 2.0**-52 * abs(math.fsum(terms))


@pytest.mark.parametrize("dtype", ["F", "D", "G"])
def test_complex_sums_are_within_the_bound_in_both_parts(dtype):
    real, imaginary = (ill_conditioned(100, 1e6, seed) for seed in (3, 4))
    terms = [np.array([x + 1j * y]).astype(dtype) for x, y in zip(real, imaginary, strict=True)]
    total = compensated(terms)
    assert total.dtype == np.dtype(dtype)
    for part in (np.real, np.imag):
        assert is_within_the_bound(part(total)[0], [part(term)[0] for term in terms])
    if dtype == "F":
        assert not is_within_the_bound(np.real(plain(terms))[0], [np.real(t)[0] for t in terms])


@pytest.mark.parametrize("dtype", ["e", "f", "d", "g"])
def test_every_float_dtype_is_within_its_bound(dtype):
    terms = list(np.random.default_rng(5).uniform(-1, 1, 200).astype(dtype) / 3)
    terms += [-term for term in terms] + [terms[7] / 8]
    total = compensated(terms)
    assert total.dtype == np.dtype(dtype)
    assert is_within_the_bound(total, terms)
    if dtype != "e":  # whose u is so large that so few terms are within the bound in any case
        assert not is_within_the_bound(plain(terms), terms)


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
    total = compensated(arrays)
    assert total[1] == np.inf
    assert total[0] == compensated(terms)


def test_integers_are_added_exactly_and_stay_integers():
    assert compensated([2**60, 1, -(2**60)]) == 1
    assert type(compensated([2**60, 1, -(2**60)])) is int
    assert compensated(list(np.array([2**60, 1, -(2**60)]))).dtype == np.int64
    assert compensated([np.array([2**60, 3]), np.array([1, 4])]).tolist() == [2**60 + 1, 7]
    assert type(sum_values([True, True], "compensated")) is type(sum_values([True, True]))


def test_partial_sums_of_several_dtypes_are_added_in_their_common_one():
    terms = [3, np.float32(0.1), np.float64(1e20), 1, np.float64(-1e20), np.float64(1e-9)]
    total = compensated(terms)
    assert total.dtype == np.float64
    assert total == math.fsum(map(float, terms))
    mixed = compensated([np.float64(1e20), 1j * np.ones(1), 2.0 * np.ones(1), np.float64(-1e20)])
    assert mixed[0] == 2.0 + 1j


def test_a_single_term_is_returned_as_it_is():
    term = np.ones(3)
    assert compensated([term]) is term
    assert compensated([None, None]) is None
    assert compensated([None, term, None]) is term


def test_adding_changes_no_term():
    terms = [np.full(3, 0.1 * k) for k in range(20)]
    for term in terms:
        term.flags.writeable = False
    compensated(terms)


def test_an_unrounded_sum_moves_and_tells_its_real_size():
    total = compensation.add_leaf(np.full(1000, 0.1), np.full(1000, 0.2))
    assert isinstance(total, Unrounded)
    assert total.__sizeof__() >= 16_000
    assert_array_equal(pickle.loads(pickle.dumps(total)).low, total.low)
    value = sum_values([{"a": np.full(1000, 0.1)}, {"a": np.full(1000, 0.2)}], "compensated", False)
    assert isinstance(value, UnroundedValue)
    assert value.__sizeof__() >= 16_000
    moved = sum_values([pickle.loads(pickle.dumps(value)), {"a": np.ones(1000)}], "compensated")
    assert moved["a"][0] == math.fsum([0.1, 0.2, 1.0])


# --------------------------------------------------------------------- sums over many models

N = 203
NUMBERS = ill_conditioned(N, 1e22, seed=11)
OTHERS = ill_conditioned(N, 1e19, seed=12)
ROWS = np.array([NUMBERS, OTHERS, NUMBERS[::-1]]).T.copy()
ONES = np.ones(3)


def scaled(item, x):
    """Its value at one, and its derivative, are the item."""
    return item * x


def inner(item, x):
    return np.sum(item * x)


def tree(item, x):
    return {"sum": item[0] * x[0], "rows": (item * x, 1)}


def total_of_tree(t):
    return t["sum"] + np.sum(t["rows"][0])


def turned(item, x):
    return item[0] * x + 1j * item[1] * x


def columns(rows):
    return [list(column) for column in np.asarray(rows).T]


def all_within(results, sums):
    return all(is_within_the_bound(r, terms) for r, terms in zip(results, sums, strict=True))


def value_gradient_and_value_alone(objective, x):
    value, gradient = dg.value_and_grad(objective)(x)
    return value, gradient, objective(dg.variable(x)).compute()


def scalars(keep="auto", items=NUMBERS):
    """A sum of scalar terms, whose blocks are added up with their gradients (fused)."""

    def objective(x, **options):
        return dg.map_sum(dg.delayed(scaled, keep=keep), items, x, **options)

    return objective


SIZES = (1, 16, 1000)
KEEPS = [(keep, n) for keep in ("auto", "tape", "recompute", "gradient") for n in SIZES]
SHORT = (("auto", 1), ("tape", 16), ("recompute", 1000))


@in_short(("keep", "grainsize"), KEEPS[:9], *SHORT)
def test_value_and_pullback_of_a_sum_of_arrays_are_within_the_bound(keep, grainsize):
    """Not fused: the values are added in the forward pass, the cotangents in the backward pass."""

    def value_and_pulled(summation):
        value, pullback = dg.vjp(
            lambda x: dg.map_sum(
                dg.delayed(scaled, keep=keep), ROWS, x, grainsize=grainsize, summation=summation
            ),
            ONES,
        )
        return [*value, *pullback(ONES)[0]]

    assert all_within(value_and_pulled("compensated"), 2 * columns(ROWS))
    for found, column in zip(value_and_pulled("pairwise"), 2 * columns(ROWS), strict=True):
        assert not is_within_the_bound(found, column)


def test_a_sum_of_trees_with_numbers_arrays_and_integers():
    def objective(x, grainsize):
        return dg.map_sum(tree, ROWS, x, grainsize=grainsize, summation="compensated")

    for grainsize in (1, 16, 1000):
        value = objective(dg.variable(ONES), grainsize).compute()
        assert all_within([value["sum"], *value["rows"][0]], [NUMBERS, *columns(ROWS)])
        assert value["rows"][1] == N
        gradient = dg.grad(lambda x, g=grainsize: dg.delayed(total_of_tree)(objective(x, g)))(ONES)
        assert_array_equal(gradient[1:], [compensated(OTHERS), compensated(NUMBERS[::-1])])


def test_a_sum_of_complex_terms_is_within_the_bound_in_both_parts():
    for grainsize in (1, 16, 1000):
        value, pullback = dg.vjp(
            lambda x, g=grainsize: dg.map_sum(
                turned, ROWS, x, grainsize=g, summation="compensated"
            ),
            np.array([1.0 + 0j]),
        )
        (gradient,) = pullback(np.array([1.0 + 0j]))
        for found in (value, gradient):
            parts = [found[0].real, abs(found[0].imag)]
            sign = np.sign(math.fsum(OTHERS))
            assert all_within(parts, [NUMBERS, [sign * number for number in OTHERS]])


def test_a_sum_of_float32_terms_stays_float32_and_within_the_bound():
    items = [np.float32(x) for x in ill_conditioned(100, 1e8, seed=3)]
    value, gradient, alone = value_gradient_and_value_alone(
        lambda x: scalars(items=items)(x, grainsize=4, summation="compensated"), np.float32(1.0)
    )
    for found in (value, gradient, alone):
        assert found.dtype == np.float32
        assert is_within_the_bound(np.float32(found), items)


def test_a_single_item_needs_no_addition():
    def objective(model, x):
        return dg.delayed(np.sum)(dg.map_sum(model, ROWS[:1], x, summation="compensated"))

    for model in (scaled, inner):
        value, gradient = dg.value_and_grad(lambda x, m=model: objective(m, x))(ONES)
        assert value == np.sum(ROWS[0])
        assert_array_equal(gradient, ROWS[0])


def test_reduce_sum_adds_its_slices_in_this_way():
    def first_ones(items, x):
        return items[0] * x

    def objective(x, summation):
        return dg.reduce_sum(first_ones, NUMBERS, x, grainsize=1, summation=summation)

    found = value_gradient_and_value_alone(lambda x: objective(x, "compensated"), 1.0)
    assert set(found) == {compensated(NUMBERS)}
    assert not is_within_the_bound(objective(dg.variable(1.0), "pairwise").compute(), NUMBERS)


def test_a_sum_of_nodes_is_within_the_bound():
    model = dg.delayed(scaled)

    def objective(x, summation):
        return dg.sum([model(number, x) for number in NUMBERS], summation=summation)

    value, _, alone = value_gradient_and_value_alone(lambda x: objective(x, "compensated"), 1.0)
    assert value == alone == compensated(NUMBERS)
    assert not is_within_the_bound(objective(dg.variable(1.0), "pairwise").compute(), NUMBERS)


def test_items_that_hold_nodes_are_added_in_this_way():
    one = dg.variable(1.0)
    items = [number * one for number in NUMBERS]
    for summed in (
        dg.map_sum(scaled, items, one, summation="compensated"),
        dg.reduce_sum(
            lambda slice_, x: slice_[0] * x, items, one, grainsize=1, summation="compensated"
        ),
    ):
        assert summed.compute() == compensated(NUMBERS)


def test_infinities_and_nan_are_those_of_plain_addition():
    for odd in ([np.inf], [np.inf, -np.inf], [np.nan], [LARGEST, LARGEST]):
        items = [*NUMBERS[:20], *map(np.float64, odd), *NUMBERS[20:40]]
        for grainsize in (1, 4, 64):
            with np.errstate(all="ignore"):
                found, expected = (
                    value_gradient_and_value_alone(
                        lambda x, g=grainsize, s=summation, i=items: scalars(items=i)(
                            x, grainsize=g, summation=s
                        ),
                        1.0,
                    )
                    for summation in ("compensated", "pairwise")
                )
            assert_array_equal(found, expected)


# ------------------------------------------------------------------- over every kind of items


def paired(pair, x):
    """Scalar terms; the gradient of an entry of x is an entry of the first part."""
    return np.sum(pair[0] * x) + 0.0 * pair[1]


def paired_rows(pair, x):
    return pair[0] * x + 0.0 * pair[1]


def empty_in_between():
    """A bag of the rows, with empty partitions at the beginning, in the middle and at the end."""
    runs = [[], list(ROWS[:9]), [], [], list(ROWS[9:140]), list(ROWS[140:]), []]
    return dask.bag.Bag({("rows", n): run for n, run in enumerate(runs)}, "rows", len(runs))


KINDS = {
    "a zip": lambda: dg.zip(ROWS, NUMBERS),
    "a zip with placed items": lambda: dg.zip(dg.place(list(ROWS), 16), list(NUMBERS)),
    "a zip of dask Arrays": lambda: dg.zip(
        dask.array.from_array(ROWS, chunks=(17, 2)), dask.array.from_array(NUMBERS, chunks=50)
    ),
    "Delayed": lambda: [dask.delayed(tuple)(pair) for pair in zip(ROWS, NUMBERS, strict=True)],
}


def value_gradient_value_and_pulled(term, rows, items):
    """Of scalar terms value and gradient; of terms that are arrays value and pullback."""
    value, gradient = dg.value_and_grad(
        lambda x: dg.map_sum(term, items, x, summation="compensated")
    )(ONES)
    waves, pullback = dg.vjp(lambda x: dg.map_sum(rows, items, x, summation="compensated"), ONES)
    return [np.asarray(found) for found in (value, gradient, waves, pullback(ONES)[0])]


@in_short("kind", KINDS, "a zip with placed items")
def test_every_kind_of_items_is_within_the_bound_with_the_same_bits(kind, every_scheduler):
    plain = value_gradient_value_and_pulled(paired, paired_rows, dg.zip(list(ROWS), list(NUMBERS)))
    assert all_within(plain[1], columns(ROWS))
    assert all_within([*plain[2], *plain[3]], 2 * columns(ROWS))
    expected = [array.tobytes() for array in plain]
    for found in every_scheduler(
        lambda: value_gradient_value_and_pulled(paired, paired_rows, KINDS[kind]())
    ).values():
        assert [array.tobytes() for array in found] == expected


@pytest.mark.parametrize(
    "bag", [empty_in_between, lambda: dask.bag.from_sequence(list(ROWS), npartitions=1)]
)
def test_a_bag_is_within_the_bound_with_empty_partitions_or_a_single_one(bag, every_scheduler):
    found = every_scheduler(lambda: value_gradient_value_and_pulled(inner, scaled, bag()))
    for _, gradient, waves, pulled in found.values():
        assert all_within([*gradient, *waves, *pulled], 3 * columns(ROWS))
    values = [dg.map_sum(scaled, bag(), dg.variable(ONES), summation="compensated").compute()]
    assert all_within(values[0], columns(ROWS))
    slices = dg.reduce_sum(
        lambda rows, x: np.sum(rows) * x, bag(), dg.variable(1.0), summation="compensated"
    )
    assert np.isfinite(slices.compute())


def test_a_bag_without_items_is_an_error():
    nothing = dask.bag.Bag({("none", 0): []}, "none", 1)
    for differentiate in (dg.grad, lambda fun: lambda x: dg.vjp(fun, x)):
        with pytest.raises(ValueError, match="no partition of the items of model 'inner'"):
            differentiate(lambda x: dg.map_sum(inner, nothing, x, summation="compensated"))(ONES)


@in_short("grainsize", SIZES, 16)
@pytest.mark.parametrize("as_items", [np.array, list])
def test_the_shared_inputs_are_compensated_beside_items_that_are_differentiated(
    grainsize, as_items
):
    """The gradient of an item is one term's, and nothing is added."""

    def both(summation):
        return dg.value_and_grad(
            lambda p, x: dg.map_sum(inner, p, x, grainsize=grainsize, summation=summation), (0, 1)
        )(as_items(ROWS), 3.0 * ONES)

    _, (own, shared) = both("compensated")
    assert_array_equal(own, np.full(ROWS.shape, 3.0))
    assert all_within(shared, columns(ROWS))
    for found, column in zip(both("pairwise")[1][1], columns(ROWS), strict=True):
        assert not is_within_the_bound(found, column)
    _, pullback = dg.vjp(
        lambda p, x: dg.map_sum(scaled, p, x, grainsize=grainsize, summation="compensated"),
        as_items(ROWS),
        ONES,
    )
    own, shared = pullback(ONES)
    assert_array_equal(own, np.ones(ROWS.shape))
    assert all_within(shared, columns(ROWS))


def test_inside_a_model_only_plain_additions_are_differentiated():
    for add_up in (dg.map_sum, dg.reduce_sum):
        model = dg.delayed(lambda x, a=add_up: a(inner, ROWS, x, summation="compensated"))
        with pytest.raises(ValueError, match="'compensated' was asked for inside a model"):
            dg.grad(model)(ONES)


# --------------------------------------------------------------------- the same bits everywhere


def compensated_sums(grainsize, items=ROWS):
    options = {"grainsize": grainsize, "summation": "compensated"}
    if not isinstance(items, np.ndarray):
        options.pop("grainsize")
    value, gradient = dg.value_and_grad(lambda x: dg.map_sum(inner, items, x, **options))(ONES)
    waves, pullback = dg.vjp(lambda x: dg.map_sum(scaled, items, x, **options), ONES)
    kept, pulled = dg.vjp(lambda x: dg.map_sum(inner, items, x, **options), ONES)
    alone = dg.map_sum(inner, items, dg.variable(ONES), **options).compute()
    assert value == kept == alone
    (of_waves,), (of_kept,) = pullback(0.3 * ONES), pulled(np.float64(0.7))
    arrays = [value, gradient, waves, of_waves, of_kept]
    return tuple([np.asarray(array).tobytes() for array in arrays])


GRAINSIZES = (1, 2, 3, 8, 16, 64, 128, 1000, "auto")
FIVE = (1, 3, 64, 1000, "auto")


@in_short("grainsizes", [FIVE, GRAINSIZES], FIVE)
def test_the_bits_do_not_depend_on_the_grainsize(grainsizes):
    found = {compensated_sums(grainsize) for grainsize in grainsizes}
    assert len(found) == 1


def test_the_bits_do_not_depend_on_the_scheduler(every_scheduler):
    results = every_scheduler(lambda: compensated_sums(16))
    assert set(results.values()) == {compensated_sums(1)}


def test_the_bits_are_the_same_for_placed_items(every_scheduler):
    results = every_scheduler(lambda: compensated_sums(None, dg.place(ROWS, 16)))
    assert set(results.values()) == {compensated_sums(1)}


# -------------------------------------------------------------------- what moves between tasks


class Block:
    """The tasks of one of several blocks of a sum of ``fun(item, x)``."""

    def __init__(self, fun):
        node = dg.map_sum(fun, ROWS, dg.variable(ONES))
        active = (Active(1, watched=False),)
        self.model, self.sum = (
            node.model,
            Summand(node.call, active, "compensated", is_partial=True),
        )

    def evaluate(self):
        return evaluate_block(self.model, self.sum, 0, [ONES], ROWS[:8])

    def capture(self):
        return capture_block(self.model, self.sum, 0, [ONES], ROWS[:8])

    def pull_back(self, captured, elsewhere):
        one = Cotangent((np.ones(np.shape(compensation.rounded_value(captured.value)))[()],))
        return pull_back_block(captured, one, self.model, self.sum, 0, [ONES], elsewhere, ROWS[:8])


@pytest.mark.parametrize("fun", [scaled, inner])
def test_a_block_that_has_moved_gives_the_same_unrounded_sums(fun):
    block = Block(fun)
    captured = block.capture()
    moved, elsewhere = pickle.loads(pickle.dumps((captured, captured.value)))
    pulled, pulled_again = block.pull_back(captured, elsewhere), block.pull_back(moved, elsewhere)
    for here, there in (
        (pulled.leaves[0], pulled_again.leaves[0]),
        (captured.value.leaves[0], block.evaluate().leaves[0]),
    ):
        assert isinstance(here, Unrounded)
        assert_array_equal(here.high, there.high)
        assert_array_equal(here.low, there.low)
        assert np.any(here.low != 0.0)


def test_a_block_whose_value_others_saw_differently_is_an_error():
    block = Block(scaled)
    captured = block.capture()
    other = Block(lambda item, x: 1.001 * item * x).capture().value
    with pytest.raises(NondeterministicModelError, match="'scaled' is not deterministic"):
        block.pull_back(captured, other)


def test_a_compensated_sum_has_the_tasks_of_a_pairwise_one():
    def tasks(summation):
        x = dg.variable(ONES)
        node = dg.map_sum(inner, ROWS, x, summation=summation) ** 2
        collections = [node, *dg.differentiate(node, x)[:1]]
        return [len(dict(collection.__dask_graph__())) for collection in collections]

    assert tasks("compensated") == tasks("pairwise")


# ------------------------------------------------------------------------------------ errors


@pytest.mark.parametrize("wrong", ["kahan", None, 2, ["pairwise"], True])
def test_an_unknown_summation_is_an_error_that_names_the_choices(wrong):
    x = dg.variable(1.0)
    for summed in (
        lambda: dg.map_sum(scaled, [1.0], x, summation=wrong),
        lambda: dg.reduce_sum(scaled, [1.0], x, summation=wrong),
        lambda: dg.sum([x, x], summation=wrong),
    ):
        with pytest.raises(ValueError, match=r"one of 'pairwise', 'compensated'; found"):
            summed()


def test_the_choices_are_those_of_the_signature():
    assert get_args(sums.Summation) == tuple(ADDITIONS)


def test_terms_of_several_shapes_are_told_by_their_own_shapes():
    for items in ([2, 2, 1], [2, 2, 2, 1, 1]):
        with pytest.raises(ValueError, match=r"found float64\[2\] and float64\[1\]"):
            dg.map_sum(
                lambda a, x: x[:a] * 1.0,
                items,
                dg.variable(ONES),
                grainsize=2,
                summation="compensated",
            ).compute()


def test_strings_are_not_added():
    with pytest.raises(TypeError, match="must be numbers; found 'a'"):
        sum_values([{"name": "a"}, {"name": "b"}], "compensated")


def test_the_gradient_of_a_sum_of_arrays_names_their_shape():
    with pytest.raises(TypeError, match=r"float64\[3\]"), dask.config.set(scheduler="sync"):
        dg.grad(lambda x: dg.map_sum(scaled, ROWS, x, summation="compensated"))(ONES)
