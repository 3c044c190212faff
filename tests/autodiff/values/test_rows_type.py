"""Rows as users see them: made by hand, added, multiplied, gathered, shown, sent."""

import pickle

import dask.base
import numpy as np
import pytest
from samples import decades
from scipy import sparse

from daskgrad import Rows

SHAPE = (5, 4)
VALUES = np.arange(1.0, 9.0).reshape(2, 4)
ROWS = Rows(SHAPE, (0,), [3, 1], VALUES)
COLUMNS = Rows(SHAPE, (1,), [2], np.arange(5.0)[np.newaxis])
ENTRIES = Rows(SHAPE, (0, 1), [7, 0, 7], [1.0, 2.0, 4.0])
ALL = {"rows": ROWS, "columns": COLUMNS, "entries": ENTRIES}
DENSE = np.arange(20.0).reshape(SHAPE)


@pytest.mark.parametrize("name", ALL)
def test_it_is_an_array_with_zeros(name):
    expected = np.zeros(SHAPE)
    if name == "rows":
        expected[[3, 1]] = VALUES
    elif name == "columns":
        expected[:, 2] = np.arange(5.0)
    else:
        expected[0, 0], expected[1, 3] = 2.0, 5.0
    np.testing.assert_array_equal(ALL[name].to_dense(), expected)


@pytest.mark.parametrize("other", ALL)
@pytest.mark.parametrize("name", ALL)
def test_arithmetic_is_that_of_arrays(name, other):
    one, two = ALL[name], ALL[other]
    a, b = one.to_dense(), two.to_dense()
    for found, expected in [
        (one + two, a + b),
        (one - two, a - b),
        (-one, -a),
        (2.0 * one, 2.0 * a),
        (one * np.float64(3.0), 3.0 * a),
        (one / 4, a / 4),
        (sum([one, two, one]), a + b + a),
        (one.expand((0, 1)), a),
    ]:
        assert isinstance(found, Rows)
        np.testing.assert_array_equal(found.to_dense(), expected)
        assert (np.diff(found.indices) > 0).all()
    for found, expected in [
        (one + DENSE, a + DENSE),
        (DENSE + one, a + DENSE),
        (DENSE - one, DENSE - a),
        (one - DENSE, a - DENSE),
    ]:
        assert type(found) is np.ndarray
        np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(DENSE, np.arange(20.0).reshape(SHAPE))
    assert one.dot(DENSE) == np.sum(a * DENSE)
    assert one.dot(two) == np.sum(a * b)
    assert one.norm() == pytest.approx(np.linalg.norm(a))


@pytest.mark.parametrize("dtypes", [("f8", "u1"), ("u1", "f8"), ("i8", "i1"), ("u1", "u1")])
def test_differences_of_narrow_integers_are_those_of_arrays(dtypes):
    least = [np.iinfo(dtype).min or 1 if dtype != "f8" else 3.0 for dtype in dtypes]
    one, two = [
        Rows((3, 2), (0,), [place], np.full((1, 2), value, dtype))
        for place, value, dtype in zip((0, 1), least, dtypes, strict=True)
    ]
    expected = one.to_dense() - two.to_dense()
    for found in [(one - two).to_dense(), one - two.to_dense(), one.to_dense() - two]:
        np.testing.assert_array_equal(found, expected)
        assert found.dtype == expected.dtype


@pytest.mark.parametrize("name", ALL)
def test_entries_are_gathered_and_scattered(name):
    rows, array = ALL[name], DENSE.copy()
    rows.scatter(array, rows.gather(array) - 100.0)
    changed = rows.expand((0, 1)).indices
    expected = DENSE.ravel().copy()
    expected[changed] -= 100.0
    np.testing.assert_array_equal(array.ravel(), expected)
    np.testing.assert_array_equal(rows.gather(rows.to_dense()), rows.values)


FAR = {  # arrays, an indexed axis, and whether entries of a row are far apart in memory
    "columns": (decades(600, 40), 1, True),
    "columns of the transpose": (decades(40, 600).T, 1, False),
    "rows in Fortran's order": (np.asfortranarray(decades(40, 600)), 0, True),
    "columns, backwards": (decades(600, 40), 1, True),
    "rows": (decades(40, 600), 0, False),
    "short columns": (decades(60, 40), 1, False),
    "columns of a narrow array": (decades(600, 4), 1, False),
    "a middle axis": (decades(30, 40, 20), 1, False),
    "a last axis": (decades(30, 20, 40), 2, True),
}


@pytest.mark.parametrize("name", FAR)
def test_entries_are_changed_where_they_stand_if_they_are_far_apart(name, monkeypatch):
    monkeypatch.setattr("daskgrad.autodiff.values.rows.LARGE", 0)
    given, axis, is_far = FAR[name]
    array = np.array(given, order="K")
    array = array[::-1, ::-1] if "backwards" in name else array
    chosen, shapes = [0, 2, 3], []
    rest = np.moveaxis(array, axis, 0).shape[1:]
    rows = Rows(array.shape, (axis,), chosen, decades(3, *rest, seed=1))

    def change(pairs):
        for entries, values in pairs:
            shapes.append(entries.shape)
            assert np.shares_memory(entries, array) == is_far
            entries -= values

    expected = array.copy()
    np.moveaxis(expected, axis, 0)[chosen] -= rows.values
    rows.change(array, rows.values, change)
    np.testing.assert_array_equal(array, expected)
    assert shapes == ([rest] * 3 if is_far else [(3, *rest)])


@pytest.mark.parametrize(
    ("name", "kind"), [("rows", "csr"), ("columns", "csc"), ("entries", "coo")]
)
def test_as_scipy_knows_it(name, kind):
    matrix = ALL[name].to_scipy()
    assert sparse.issparse(matrix)
    assert matrix.format == kind
    np.testing.assert_array_equal(matrix.toarray(), ALL[name].to_dense())
    with pytest.raises(ValueError, match="has 3"):
        Rows((2, 3, 4), (0,), [1], np.ones((1, 3, 4))).to_scipy()


LOOPS = [((0,), 30, (4,)), ((0, 1), 200, ()), ((1,), 9, (5,)), ((0,), 500, (4,))]
LOOPS += [((0,), 300, rest) for rest in [(1,), (2,), (3,), (64,), (1000,), (2, 1), (1, 5)]]


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.complex128])
def test_repeated_indices_have_the_bits_of_a_loop(dtype):
    """Rows of one number are added up pairwise by NumPy, if one lets it."""
    random = np.random.default_rng(1)
    for axes, count, rest in LOOPS:
        shape = SHAPE if count != 300 else (5, *rest)
        size = int(np.prod([shape[axis] for axis in axes]))
        indices = random.choice([0, *[size - 2] * 4, *range(size)], count)
        values = random.normal(size=(count, *rest)) * 10.0 ** random.integers(-8, 8, (count, *rest))
        values, loop = values.astype(dtype), np.zeros((size, *rest), dtype)
        for index, value in zip(indices, values, strict=True):
            loop[index] += value
        rows = Rows(shape, axes, indices, values)
        assert rows.values.tobytes() == loop[rows.indices].tobytes()


def test_numbers_that_are_odd_and_right():
    assert (ROWS + np.int64(0)) is ROWS
    np.testing.assert_array_equal((ROWS - 0).to_dense(), ROWS.to_dense())
    np.testing.assert_array_equal((0 - ROWS).to_dense(), -ROWS.to_dense())
    assert Rows((3,), (0,), [2, 1], [1, 2]).to_dense().tolist() == [0, 2, 1]
    assert Rows((3,), (0,), [], []).to_dense().tolist() == [0.0, 0.0, 0.0]
    assert Rows((2,), (0,), [1], np.float32([1e30])).norm() == pytest.approx(1e30)
    for axes in ((5,), (-1,)):
        with pytest.raises(ValueError, match="are 0 to 1"):
            ROWS.expand(axes)


def test_it_tells_what_it_is_and_nothing_makes_an_array_of_it_unasked():
    assert repr(ROWS) == "Rows(2 of float64[5, 4] along axis 0)"
    assert repr(ENTRIES) == "Rows(2 of float64[5, 4] along axes 0, 1)"
    np.testing.assert_array_equal(np.stack(ENTRIES.places), [[0, 1], [0, 3]])
    for ask in (
        *(np.asarray, np.sum, lambda rows: np.add(rows, DENSE), lambda rows: rows * DENSE),
        *(lambda rows: rows + 1.0, lambda rows: "a" + rows, lambda rows: rows - None),
    ):
        with pytest.raises(TypeError):
            ask(ROWS)
    with pytest.raises(TypeError, match="to_dense"):
        np.asarray(ROWS)


def test_it_travels_out_of_band_and_dask_knows_its_size():
    wide = Rows((10**6, 100), (0,), np.arange(1000), np.ones((1000, 100)))
    buffers = []
    packed = pickle.dumps(wide, protocol=5, buffer_callback=buffers.append)
    assert len(packed) < 500
    assert sum([len(each.raw()) for each in buffers]) == wide.nbytes == 1000 * 8 * 101
    assert pickle.loads(packed, buffers=buffers).dot(wide) == 100_000.0
    assert dask.sizeof.sizeof(wide) == pytest.approx(wide.nbytes, rel=0.01)
    one, two = Rows(SHAPE, (0,), [1], VALUES[:1]), Rows(SHAPE, (0,), [1], VALUES[:1])
    assert dask.base.tokenize(one) == dask.base.tokenize(two) != dask.base.tokenize(-one)
