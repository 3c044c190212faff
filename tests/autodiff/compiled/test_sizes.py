"""Models of items of many sizes: the bits of the tape, and one source wherever calls are alike."""

import gc
import itertools
import weakref
from typing import NamedTuple

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import daskgrad as dg
from daskgrad.autodiff.compiled import families, structures, ways
from daskgrad.autodiff.compiled.backend import prepare
from daskgrad.autodiff.compiled.recording import record

LOG_2PI = np.log(2.0 * np.pi)
X = np.array([0.4, -0.3, 0.7, 0.2])
TABLE = np.cos(np.arange(300.0))


class Item(NamedTuple):
    size: int
    y: np.ndarray  # (n,)
    z: np.ndarray  # (n, 4)


def make_items(sizes, seed=0):
    random = np.random.default_rng(seed)
    return [Item(n, random.normal(size=n), random.normal(size=(n, 4))) for n in sizes]


def recurrent(item, x):
    state = x[0]
    for n in range(item.size):
        state = np.tanh(x[1] * state + item.y[n])
    return state


def by_cholesky(item, x):
    covariance = np.exp(x[0]) * item.z @ item.z.T + np.exp(x[1]) * np.eye(len(item.y))
    root = np.linalg.cholesky(covariance)
    return np.sum(np.log(np.diag(root))) + np.sum(np.linalg.solve(root, item.y - x[2]) ** 2)


def shifted(item, x):
    total = 0.0
    for lag in (1, 2):
        if lag < item.size:
            total = total + np.sum((x[0] * item.y[lag:]) * (x[1] * item.y[:-lag])) / item.size
    return total


def largest_of_half(item, x):
    return np.max(item.y[: max(1, item.size // 2)]) * np.sum(x**2) + np.max(
        np.outer(item.y, x)[: (item.size + 1) // 2]
    )


ALIKE = {  # which sizes from 4 on have one source
    "a product": lambda item, x: np.sum(np.tanh(item.z @ x)) / len(item.y),
    "a mean": lambda item, x: np.mean(item.y * x[1]) + np.mean((item.z * x) ** 2, axis=0)[1],
    "a variance": lambda item, x: np.var(item.z @ x) + np.std(item.z * x),
    "a size as a number": lambda item, x: item.size * (LOG_2PI + x[0]) + np.sum(item.y * x[1]),
    "arange": lambda item, x: np.sum(np.arange(len(item.y)) * item.y * x[0]),
    "a list as an index": lambda item, x: np.sum((item.z @ x)[list(range(item.size))[::-1]] ** 2),
    "a triangle": lambda item, x: np.sum(np.tril(np.outer(item.y * x[0], item.y)) ** 2),
    "a mask": lambda item, x: np.sum(
        np.where(np.tri(item.size) > 0.0, np.outer(item.y * x[0], item.y), x[1])
    ),
    "of a table": lambda item, x: np.sum(TABLE[: item.size] * item.y) * x[0],
    "reshape": lambda item, x: np.sum((item.z * x).reshape(2 * item.size, 2)[:, 1] ** 2),
    "concatenate": lambda item, x: np.sum(np.concatenate([x, item.y * x[0], item.y]) ** 2),
    "cumsum": lambda item, x: np.sum(np.cumsum(item.y * x[0]) ** 2),
    "einsum": lambda item, x: np.einsum("ij,j,i->", item.z, x, item.y),
    "cholesky": by_cholesky,
    "the largest of a half": largest_of_half,
    "of Fortran's order": lambda item, x: np.sum((item.z.T * x[:, None]).T @ x),
    "a complex number": lambda item, x: np.sum(np.abs(np.fft.fft(item.y * x[0])) ** 2),
}
UNLIKE = {  # where the size decides which calls are made
    "a loop": recurrent,
    "a branch": lambda item, x: (
        np.sum(item.y * x[0]) if len(item.y) > 10 else np.sum((item.z @ x) ** 2)
    ),
    "lags": shifted,
    "an axis": lambda item, x: np.sum((item.z * x).sum(axis=item.size % 2) ** 2),
    "a branch on data": lambda item, x: (
        np.sum(item.y * x[0]) if item.y[0] > 0.0 else np.sum(item.y**2 * x[1])
    ),
    "a selection": lambda item, x: np.sum((item.z @ x)[item.y > 0.0] ** 2),
    "an impure constant": lambda item, x: np.sum(item.y * x[0]) * (1.0 + (item.size == 6)),
    "roll": lambda item, x: np.sum(np.roll(item.y * x[0], item.size // 2) * item.y),
    "text": lambda item, x: np.sum(item.y * x[0]) * len(f"{item.size}"),
}
SIZES = [5, 3, 8, 5, 12, 3, 4, 8, 2, 1, 6, 5, 30, 11, 4, 1, 2, 7, 9, 10]


def programs_of(model):
    return prepare(model.model.fun).programs


def entries_of(model):
    """The sizes of a model's items, and the sources that they share."""
    made = programs_of(model)
    (family,) = made._families.values()
    return list(made._entries.values()), family


def compare_sweeps(fun, items, sweeps=4):
    """Sums over items, by programs and by the tape, at several points; the compiled model."""
    model, plain = dg.delayed(fun, compile=True), dg.delayed(fun, compile=False)
    for sweep in range(sweeps):
        x = X * (1.0 + 0.1 * sweep)
        values, pulled = zip(
            *[value_and_pulled(lambda x, m=m: dg.map_sum(m, items, x), x) for m in (model, plain)],
            strict=True,
        )
        assert_same(*values)
        assert_same(*pulled)
    return model


def assert_same(found, expected):
    assert np.asarray(found).tobytes() == np.asarray(expected).tobytes()


def value_and_pulled(fun, x):
    value, pull = dg.vjp(fun, x)
    return value, pull(np.cos(np.arange(np.size(value))).reshape(np.shape(value)))


@pytest.fixture
def eager(monkeypatch):
    """Whatever may be tried is tried, at once."""
    monkeypatch.setattr(families, "SHARE_OF_TRIALS", np.inf)
    monkeypatch.setattr(families, "SHARE_OF_FIRST", np.inf)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ALIKE)
def test_sizes_share_a_source(name, synchronous, eager):
    model = compare_sweeps(ALIKE[name], make_items([n for n in SIZES if n > 3]))
    entries, family = entries_of(model)
    assert all([len(entry.ways) == 1 for entry in entries]), [each.refusal for each in entries]
    assert len(family._sources) == 1
    compare_sweeps(ALIKE[name], make_items(SIZES, 1))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", UNLIKE)
def test_sizes_that_make_other_calls(name, synchronous, eager):
    compare_sweeps(UNLIKE[name], make_items(SIZES))
    compare_sweeps(UNLIKE[name], make_items(SIZES, 1))


def test_a_model_runs_once_for_each_size(synchronous, eager):
    runs = itertools.count()

    def counted(item, x):
        next(runs)
        return np.sum(np.tanh(item.z @ x))

    items = make_items(range(2, 42))
    model = dg.delayed(counted, compile=True)
    gradient = dg.grad(lambda x: dg.map_sum(model, items, x))
    for _ in range(20):
        gradient(X)
    assert next(runs) < 80  # once for each, and what is compared


def test_what_is_made_takes_a_share_of_the_time(synchronous):
    """A family whose sizes have nothing in common does not try each."""
    model = compare_sweeps(recurrent, make_items(range(2, 102)), 1)
    entries, family = entries_of(model)
    assert sum([entry._structure is not None for entry in entries]) < 60
    assert len(family._sources) < 10


def structure(fun, *arrays):
    recording = record(fun, arrays, [True] * len(arrays))
    structures.generalize(recording, (0,))
    return recording.structure


def test_a_recording_that_is_released_goes_at_once():
    """In circles the garbage collector would have to find thousands of steps."""
    gc.disable()
    try:
        recording = record(lambda x: [np.sum(np.exp(x) * 2.0)], [np.ones(3)], [True])
        structures.generalize(recording, (0,))
        gone = weakref.ref(recording)
        recording.release()
        del recording
        assert gone() is None
    finally:
        gc.enable()


A, B = np.ones((4, 3)), np.ones((5, 7))


@pytest.mark.parametrize(
    ("fun", "one", "other"),
    [
        (lambda x: [np.sum(x * 2.0)], A[0], np.ones(1)),
        (lambda x: [np.sum(x * 2.0)], A, np.asfortranarray(B)),
        (lambda x: [np.sum(x * 2.0)], A, B.astype(np.float32)),
        (lambda x: [np.sum(x, axis=len(x) % 2)], A, B),
        (lambda x: [np.sum(x * (2.0 if len(x) == 4 else 2))], A, B),
        (lambda x: [np.sum(x[: 4 if len(x) == 4 else None])], A, B),
        (lambda x: [np.sum(x), bool(x[0, 0] > 0.0)][:1], A, -B),
        (lambda x: [np.exp(x) + np.sin(x) * (np.exp if len(x) == 4 else np.sin)(x)], A, B),
    ],
)
def test_what_tells_structures_apart(fun, one, other):
    assert structure(fun, one) == structure(fun, one + 1.0)
    assert structure(fun, one) != structure(fun, other)
    assert structure(of_any_size, A) == structure(of_any_size, B)


def of_any_size(x):
    return [np.sum(x[: len(x) // 2].reshape(-1) ** 2.0) / x.size * np.eye(len(x))]


def test_trials_take_a_share_of_the_time_of_the_tape():
    family = families.Family("model", None, True)
    family.calls = 10
    for _ in range(5):
        family.count_taped(1.0)
    assert family.may_try(comes_again=False)
    family.count_trial(1.0 + 10.0 * families.SHARE_OF_FIRST, is_hit=True)
    assert family.may_try(comes_again=False), "what the tape would have taken is no trial's"
    family.count_trial(1.5, is_hit=True)
    assert not family.may_try(comes_again=False)
    assert family.may_try(comes_again=True)
    family.count_trial(10.0 * families.SHARE_OF_TRIALS, is_hit=False)
    assert not family.may_try(comes_again=True)
    assert not family.may_spend()


def test_what_programs_save_pays_for_sources_and_trials():
    family = families.Family("model", None, True)
    for _ in range(10):
        family.count_taped(1.0)
    family.count_compared(own=0.5, pulled=0.5)  # so that a program saves a second
    family.count_written(30.0)

    def may_spend(calls):
        family.calls = calls
        return family.may_spend()

    share = families.SHARE_OF_TRIALS * 1.5  # of a call on the tape with its pullback
    pays = int((30.0 + 10.0) / (1.0 + share)) + 1
    assert [may_spend(calls) for calls in (12, pays - 1, pays)] == [False, False, True]
    family.count_trial(1.5 + 20.0, is_hit=True)
    assert not may_spend(pays + 1)
    assert may_spend(pays + 20)


@pytest.mark.parametrize(("sizes", "in_a_row"), [(0, 0), (100, 5), (1000, families.IN_A_ROW)])
def test_trials_are_made_in_a_row(sizes, in_a_row):
    family = families.Family("model", None, True)
    family.sizes = sizes
    for _ in range(10):
        family.count_taped(1.0)
    for _ in range(20):
        family.count_trial(3.0, is_hit=False)

    def may_spend(calls):
        family.calls = calls
        return family.may_spend()

    paid = int((20 + in_a_row) * 3.0 / families.SHARE_OF_TRIALS)
    found = [may_spend(calls) for calls in (10, paid - 1, paid + 1)]
    assert found == [False, False, True]
    for _ in range(in_a_row):
        assert family.may_spend()
        family.count_trial(3.0, is_hit=False)
    family.count_trial(3.0, is_hit=False)
    assert not family.may_spend()


def test_sizes_are_not_tried_where_each_has_its_own_structure():
    family = families.Family("model", None, True)
    family.calls = 1000
    family.count_taped(1.0)

    def tries(structures):
        for number, structure in enumerate(structures):
            if not family.may_try(comes_again=True):
                return number
            family.count_trial(0.0, is_hit=False)
            family.is_common(structure, object())
        return len(structures)

    assert tries([0, 1, 2, 3] * 25) == 100
    assert tries(range(100, 1000)) < 200


def test_a_size_that_is_met_once_is_left_to_the_tape(synchronous, monkeypatch):
    def fun(item, x):
        return np.sum(np.tanh(item.z @ x)) * item.size

    monkeypatch.setattr(families, "SHARE_OF_TRIALS", np.inf)
    monkeypatch.setattr(families, "SHARE_OF_FIRST", 0.0)
    # whatever the clock says: on a busy machine the tape may take longer than a trial
    monkeypatch.setattr(families.Family, "count_trial", lambda family, *_: family.spend(1.0))
    items = make_items(range(2, 32))
    entries, _ = entries_of(compare_sweeps(fun, [items[0]] * 4 + items, 1))
    assert 0 < sum([bool(entry.ways) for entry in entries]) < 4
    entries, _ = entries_of(compare_sweeps(fun, items, 1))
    assert all([entry.ways for entry in entries])


def test_other_values_end_the_sharing(synchronous, eager, monkeypatch):
    """The comparison of a new size finds a source that is not its own, and two such end all."""

    def structure_of_any(recording, order):
        generalize(recording, order)
        recording.structure = (len(recording.steps),)

    generalize = structures.generalize
    monkeypatch.setattr(ways, "generalize", structure_of_any)
    fun = lambda item, x: np.sum((item.z * x).sum(axis=item.size % 2) ** 2)  # noqa: E731
    model = compare_sweeps(fun, make_items([3, 3, 3, 4, 5, 6, 7, 8, 9, 4, 6] * 2))
    entries, family = entries_of(model)
    assert family.failures == families.MOST_FAILURES
    assert "of another size differs" in next(filter(None, [each.refusal for each in entries]))


def test_ragged_sums_on_a_cluster(client):
    compare_sweeps(ALIKE["a product"], make_items([*SIZES[:8], *range(20, 30)]), 3)


def test_explain_tells_which_sizes_have_programs(synchronous, eager):
    def fun(item, x):
        return np.sum((item.z * 2.5) @ x) / item.size

    model = compare_sweeps(fun, make_items([3, 4, 5, 6]))
    said = dg.explain(model, make_items([9])[0], X)
    assert "Of 4 sizes that there were, 4 have programs, of 1 source." in said
    assert "* 2.5" in said
    assert "/ 9" in said
    assert " = (9, 4)" not in dg.explain(lambda x: np.sum(x), X)


def test_programs_keep_no_more_than_a_megabyte_of_arrays(synchronous, eager):
    """A number of Python's may decide on an array of the model's own, which is kept with it."""

    def model(number, x):
        return np.sum(np.full(2**14, 1.0 + number) * x[0])

    made, numbers = dg.delayed(model, compile=True), list(range(20))
    for _ in range(5):
        found = dg.grad(lambda x: dg.map_sum(made, numbers, x))(X)
    assert found[0] == 2**14 * sum([1.0 + number for number in numbers])
    entries = prepare(model).programs._entries.values()
    assert 2 < sum([bool(entry.ways) for entry in entries]) <= 8
    assert any(["1,048,576 bytes" in (entry.refusal or "") for entry in entries])


@pytest.mark.parametrize("choice", [True, "auto"])
def test_items_whose_arrays_stand_at_other_places_are_not_taken_for_each_other(choice, synchronous):
    """They are of one structure, and later sums know what earlier ones have found."""

    def model(item, x):
        first, second = item
        return np.sum(first * x[0]) + 3.0 * np.sum(second * x[1])

    arrays = [np.linspace(1.0, 2.0, 3 + n % 2) for n in range(60)]
    items = [(array, 2) if n % 2 else (3, array) for n, array in enumerate(arrays)]

    def gradient(choice):
        made = dg.delayed(model, compile=choice)
        return dg.grad(lambda x: dg.map_sum(made, items, x, grainsize=64))(np.array([0.3, 0.4]))

    expected = gradient(False)
    for _ in range(4):
        assert_array_equal(gradient(choice), expected)


def test_another_way_is_written_before_it_is_tried_again(monkeypatch):
    """A call that may try, and then may not write, must not go on so for ever."""

    def branches(y, x):
        return np.sum(np.exp(y) * x[0]) if np.sum(y) > 0.0 else np.sum(np.sin(y) * x[1])

    gradient = dg.value_and_grad(dg.delayed(branches, compile=True), argnums=1)
    ones = [np.ones(size) for size in (5, 3)]
    for y in ones * 8:
        gradient(y, X)
    (family,) = prepare(branches).programs._families.values()
    assert len(family._sources) == 1
    turns = itertools.cycle([True, False])
    monkeypatch.setattr(families.Family, "may_spend", lambda self: next(turns))
    for y in ones * 4:
        gradient(-y, X)
    assert len(family._sources) == 2
