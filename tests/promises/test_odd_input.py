"""Input that looks odd and is right, as a table: what comes in, and what must come out."""

import collections
import functools

import autograd.numpy as anp
import dask.array as da
import numpy as np
import pytest
import scipy.sparse
from inputs import X, differences, energy
from numpy.testing import assert_allclose, assert_array_equal

import daskgrad as dg

pytestmark = pytest.mark.usefixtures("synchronous")

LOCKED = X.copy()
LOCKED.flags.writeable = False
GRID = np.arange(12.0).reshape(3, 4) + 0.5


def term(item, x):
    return anp.sum(item * x)


# ------------------------------------------------------------------------ what is differentiated

PARAMETERS = {
    "0-d": np.array(0.3),
    "a float": 0.3,
    "NumPy's number": np.float64(0.3),
    "one entry": np.array([0.3]),
    "empty": np.zeros(0),
    "empty, two axes": np.zeros((0, 3)),
    "read-only": LOCKED,
    "strided": GRID[:, ::2],
    "reversed": X[::-1],
    "transposed": GRID.T,
    "Fortran order": np.asfortranarray(GRID),
    "broadcast": np.broadcast_to(0.5, (2, 3)),
    "half precision": X.astype(np.float16),
    "single precision": X.astype(np.float32),
    "long double": X.astype(np.longdouble),
    "another byte order": X.astype(">f8"),
    "unaligned": np.frombuffer(b"\0" + X.tobytes(), dtype=np.uint8)[1:].view(float),
    "a memory map": None,
}


def parameter(kind, tmp_path):
    if PARAMETERS[kind] is not None:
        return PARAMETERS[kind]
    mapped = np.memmap(tmp_path / "x", dtype=float, mode="w+", shape=3)
    mapped[:] = X
    return mapped


@pytest.mark.parametrize("kind", PARAMETERS)
def test_a_parameter_of_any_layout_and_precision(kind, tmp_path):
    x = parameter(kind, tmp_path)
    tolerance = 10 * float(np.finfo(np.asarray(x).dtype).eps)
    value, gradient = dg.value_and_grad(energy)(x)
    assert_allclose(value, np.sum(np.asarray(x) ** 2), rtol=tolerance)
    assert_allclose(gradient, 2 * np.asarray(x), rtol=tolerance)
    assert np.shape(gradient) == np.shape(x)
    assert gradient.dtype == np.asarray(x).dtype
    inside, slope = dg.value_and_grad(lambda x: dg.map_sum(lambda i, x: i * anp.sum(x), [1, 2], x))(
        x
    )
    assert_allclose(inside, 3 * np.sum(np.asarray(x)), rtol=tolerance)
    assert_allclose(slope, np.full(np.shape(x), 3.0))


def test_also_on_a_cluster_which_sends_arrays_in_its_own_way(client):
    for kind in ("0-d", "read-only", "strided", "half precision", "long double", "broadcast"):
        x = PARAMETERS[kind]
        tolerance = 10 * float(np.finfo(x.dtype).eps)
        value, gradient = dg.value_and_grad(energy)(x)
        assert_allclose(value, np.sum(x**2), rtol=tolerance)
        assert_allclose(gradient, 2 * x, rtol=tolerance)
        assert gradient.dtype == x.dtype


PYTREES = {
    "a huge integer beside": ({"x": 2.0, "n": 10**400}, {"x": 3.0, "n": None}),
    "keys of several kinds": ({"x": 2.0, 1: 5, (1, 2): "text"}, {"x": 3.0, 1: None, (1, 2): None}),
    "NaN for a key": ({"x": 2.0, float("nan"): None}, None),
    "an ordered dict": (
        collections.OrderedDict(x=2.0, b=1),
        collections.OrderedDict(x=3.0, b=None),
    ),
    "a default dict": (collections.defaultdict(list, x=2.0), {"x": 3.0}),
    "dates beside": ({"x": 2.0, "t": np.zeros(2, "M8[D]")}, {"x": 3.0, "t": None}),
    "structured beside": ({"x": 2.0, "s": np.zeros(2, [("a", float)])}, {"x": 3.0, "s": None}),
    "empty lists beside": ({"x": 2.0, "l": [], "d": {}}, {"x": 3.0, "l": [], "d": {}}),
}


@pytest.mark.parametrize("kind", PYTREES)
def test_what_has_no_derivative_stands_beside_what_has(kind):
    parameters, expected = PYTREES[kind]
    gradient = dg.grad(dg.delayed(lambda p: 3.0 * p["x"]))(parameters)
    assert gradient["x"] == 3.0
    assert type(gradient) is type(parameters)
    assert expected is None or gradient == expected


# ---------------------------------------------------------------------------------- items

ITEMS = {
    "a tuple": ((1.0, 2.0), 3.0),
    "a named tuple": (collections.namedtuple("Pair", "a b")(1.0, 2.0), 3.0),
    "a range": (range(1, 6, 2), 9.0),
    "integers, huge": ([10**20, 1], 1e20),
    "booleans": ([True, False, True], 2.0),
    "strided rows": (np.arange(6.0)[::2], 6.0),
    "read-only": (LOCKED, 1.7),
    "half precision": (X.astype(np.float16), 1.7),
    "long double": (X.astype(np.longdouble), 1.7),
    "a small broadcast array": (np.broadcast_to(2.0, 4), 8.0),
    "a Dask array of one block": (da.from_array(X, chunks=3), 1.7),
}


@pytest.mark.parametrize("kind", ITEMS)
def test_items_of_any_kind(kind):
    items, total = ITEMS[kind]
    value, gradient = dg.value_and_grad(lambda x: dg.map_sum(term, items, x))(X)
    assert_allclose(gradient, np.full(3, total), rtol=1e-3)
    assert_allclose(value, total * np.sum(X), rtol=1e-3)


SUMS_OVER_A_RANGE = {
    "reduce_sum": lambda x: dg.reduce_sum(
        lambda numbers, x: sum(numbers) * anp.sum(x), range(5), x, grainsize=2
    ),
    "zip": lambda x: dg.map_sum(lambda ab, x: ab[0] * ab[1] * anp.sum(x), ZIPPED_RANGES, x),
    "place": lambda x: dg.map_sum(term, dg.place(range(5)), x),
    "in a model": lambda x: dg.delayed(lambda x: dg.map_sum(term, range(5), x))(x),
    "slices in a model": lambda x: dg.delayed(
        lambda x: dg.reduce_sum(lambda n, x: sum(n) * anp.sum(x), range(5), x, grainsize=2)
    )(x),
}
ZIPPED_RANGES = dg.zip(range(1, 5), range(4, 0, -1))


@pytest.mark.parametrize("kind", SUMS_OVER_A_RANGE)
def test_a_range_is_a_list_of_items(kind):
    value, gradient = dg.value_and_grad(SUMS_OVER_A_RANGE[kind])(X)
    total = 20.0 if kind == "zip" else 10.0
    assert_allclose(gradient, np.full(3, total))
    assert_allclose(value, total * np.sum(X))


OTHER_ITEMS = {
    "strings": (np.array(["a", "bcd"]), len, 4),
    "dates": (np.array(["1970-01-02", "1970-01-04"], "M8[D]"), lambda d: d.astype(int), 4),
    "structured": (np.ones(4, [("a", float)]), lambda row: row["a"], 4),
    "a record array": (np.rec.array(np.ones(4, [("a", float)])), lambda row: row["a"], 4),
    "dicts": ([{"n": 1}, {"n": 3}], lambda item: item["n"], 4),
    "None": ([None, None, None, None], lambda item: 1, 4),
    "masked arrays": (
        [np.ma.masked_array([1.0, 2.0, 3.0], [0, 1, 0])],
        lambda item: item.sum(),
        4,
    ),
    "sparse matrices": ([scipy.sparse.csr_array(4 * np.eye(1))], lambda item: item.sum(), 4),
}


@pytest.mark.parametrize("kind", OTHER_ITEMS)
def test_items_that_are_no_numbers(kind):
    items, number, total = OTHER_ITEMS[kind]
    fun = lambda x: dg.map_sum(lambda i, x: number(i) * anp.sum(x), items, x)  # noqa: E731
    assert_array_equal(dg.grad(fun)(X), np.full(3, float(total)))


# --------------------------------------------------------------------------------- values

SUMS = {
    "booleans of Python": ([True, True, False], 2),
    "booleans of NumPy": ([np.bool_(True)] * 3, 3),
    "arrays of booleans": ([np.array([True, False])] * 3, [3, 0]),
    "bytes": ([np.int8(100)] * 3, 300),
    "arrays of bytes": ([np.array([100, -100], np.int8)] * 3, [300, -300]),
    "unsigned bytes": ([np.array([200], np.uint8)] * 3, [600]),
    "short and long": (
        [np.array([2**14], np.int16), np.array([2**40]), np.array([1])],
        [2**14 + 2**40 + 1],
    ),
    "huge integers": ([10**30, 1, -1], 10**30),
    "half precision": ([np.float16(0.5)] * 3, 1.5),
    "empty arrays": ([np.zeros(0)] * 3, []),
    "0-d arrays": ([np.array(1.0)] * 3, 3.0),
    "masked by hand": ([np.where([True, False], 1.0, 0.0)] * 3, [3.0, 0.0]),
}


@pytest.mark.parametrize("summation", ["pairwise", "compensated"])
@pytest.mark.parametrize("kind", SUMS)
def test_a_sum_of_terms_is_exact_where_it_can_be(kind, summation):
    """Booleans and short integers are counted, as ``np.sum`` does, and do not overflow."""
    terms, total = SUMS[kind]
    places = list(range(len(terms)))
    for grainsize in (1, "auto"):
        summed = dg.map_sum(terms.__getitem__, places, grainsize=grainsize, summation=summation)
        assert_array_equal(summed.compute(), total)
    if summation == "pairwise":
        nodes = [dg.delayed(terms.__getitem__)(place) for place in places]
        assert_array_equal(dg.sum(nodes).compute(), total)
        inside = dg.delayed(lambda: dg.map_sum(terms.__getitem__, places))
        assert_array_equal(inside().compute(), total)


def test_a_masked_argument_is_masked_in_the_model():
    masked = np.ma.masked_array([1.0, 2.0, 3.0], [0, 1, 0])
    gradient = dg.grad(lambda x: dg.delayed(lambda x, m: anp.sum(m * x))(x, masked))(X)
    assert_array_equal(gradient, [1.0, 0.0, 3.0])


def test_a_table_is_an_argument_with_its_labels():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"a": pandas.Categorical(["u", "v", "u"]), "b": X})

    def model(x, frame):
        assert list(frame["a"].cat.categories) == ["u", "v"]
        return anp.sum(x * (frame["a"] == "u").to_numpy() * frame["b"].to_numpy())

    gradient = dg.grad(lambda x: dg.delayed(model)(x, frame))(X)
    assert_array_equal(gradient, X * [1.0, 0.0, 1.0])


# --------------------------------------------------------------------------------- functions


class Quadratic:
    def __init__(self, factor=1.0):
        self.factor = factor

    def __call__(self, x):
        return self.factor * anp.sum(x**2)

    def method(self, x):
        return self.factor * anp.sum(x**2)

    @classmethod
    def of_class(cls, x):
        return cls()(x)

    @staticmethod
    def static(x):
        return anp.sum(x**2)


FUNCTIONS = {
    "an object that is called": Quadratic(2.0),
    "a bound method": Quadratic(2.0).method,
    "a class method": Quadratic.of_class,
    "a static method": Quadratic.static,
    "a partial": functools.partial(lambda a, x: a * anp.sum(x**2), 2.0),
    "a keyword of a partial": functools.partial(lambda x, a: a * anp.sum(x**2), a=2.0),
    "NumPy's own": anp.sum,
    "with defaults": lambda x, a=2.0: a * anp.sum(x**2),
    "with *args": lambda *args: anp.sum(args[0] ** 2),
    "another model's": energy,
    "with a cache": functools.lru_cache(lambda a: lambda x: a * anp.sum(x**2))(2.0),
}


@pytest.mark.parametrize("kind", FUNCTIONS)
def test_whatever_can_be_called_is_a_model(kind):
    fun = FUNCTIONS[kind]
    plain = fun.model.fun if fun is energy else fun
    gradient = dg.grad(dg.delayed(fun, name="model"))(X)
    assert_allclose(gradient, differences(plain, X), atol=1e-8)


def test_a_cotangent_may_come_from_pandas():
    pandas = pytest.importorskip("pandas")
    _, pullback = dg.vjp(dg.delayed(lambda x: 2.0 * x), X)
    assert_array_equal(pullback(pandas.Series(X))[0], 2.0 * X)


@pytest.mark.parametrize(
    "seed", [3, np.int64(3), 10**30, [1, 2], (1, 2), range(1, 3), np.array([1, 2])]
)
def test_seeds_are_integers_of_any_kind(seed):
    first, again = dg.random.generators(seed, np.int64(2)), dg.random.generators(seed, 2)
    assert [g.random() for g in first] == [g.random() for g in again]
