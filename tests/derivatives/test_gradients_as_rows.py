"""Gradients as rows: for every form of indexing, through graphs and sums."""

import collections

import autograd.numpy as np
import dask
import numpy
import pytest
from lengths import in_short
from probes import whole_programs
from samples import decades

import daskgrad as dg
from daskgrad import Rows
from daskgrad.autodiff.programs import store
from daskgrad.autodiff.programs.backend import prepare
from daskgrad.placed import call
from daskgrad.placed.messages import unpack

SHAPE = (9, 7)
W = decades(*SHAPE)
S = numpy.array([3, 1, 3, -1])
T = numpy.array([0, 6, 2])
MASK = numpy.arange(9) % 4 == 0
COLUMNS = numpy.arange(7) % 3 == 1
BOTH = numpy.arange(63).reshape(SHAPE) % 5 == 0


def same(found, expected):
    assert found.dtype == expected.dtype
    assert found.shape == expected.shape
    assert found.tobytes() == expected.tobytes()


def both(fun, *args, **options):
    """The gradient of the first argument, asked for as rows, and as an array."""
    model = dg.delayed(fun)
    return dg.grad(model, sparse=True, **options)(*args), dg.grad(model, **options)(*args)


# ------------------------------------------------------------------------------ forms of indices

FORMS = {
    "integers": lambda w: w[S],
    "a list": lambda w: w[[2, 2, 0]],
    "nothing": lambda w: w[numpy.array([], int)],
    "an empty list": lambda w: w[[]],
    "an ellipsis and integers": lambda w: w[..., T],
    "columns": lambda w: w[:, T],
    "rows, then columns": lambda w: w[S][:, T],
    "columns, then rows": lambda w: w[:, T][S],
    "np.ix_": lambda w: w[numpy.ix_(S, T)],
    "broadcast integers": lambda w: w[S[:, None], T],
    "pointwise": lambda w: w[S[:3], T],
    "pointwise, lists": lambda w: w[[1, 1, 8], [0, 0, 5]],
    "a matrix of rows": lambda w: w[S.reshape(2, 2)],
    "a row": lambda w: w[4],
    "a 0-d array": lambda w: w[numpy.array(5)],
    "an entry": lambda w: w[4, -1],
    "a column": lambda w: w[:, 3],
    "an integer and integers": lambda w: w[4, T],
    "integers and an integer": lambda w: w[S, 2],
    "a slice": lambda w: w[2:5],
    "a slice with a step": lambda w: w[1:8:3],
    "a slice backwards": lambda w: w[7:2:-2],
    "two slices": lambda w: w[2:5, 1:-1],
    "integers and a slice": lambda w: w[S, 1:4],
    "a slice and integers": lambda w: w[2:6, T],
    "an empty slice": lambda w: w[5:5],
    "None and rows": lambda w: w[None, S],
    "rows and None": lambda w: w[S, :, None],
    "a mask": lambda w: w[MASK],
    "a mask of columns": lambda w: w[:, COLUMNS],
    "a mask of entries": lambda w: w[BOTH],
    "a mask and integers": lambda w: w[MASK, T],
    "no row": lambda w: w[numpy.zeros(9, bool)],
    "nested": lambda w: w[2:][S][:, T][1:, 0],
    "of the transpose": lambda w: w.T[T],
    "the transpose of rows": lambda w: w[S].T,
    "np.transpose, from the end": lambda w: np.transpose(w, (-1, -2))[T],
    "np.swapaxes": lambda w: np.swapaxes(w, 0, -1)[T],
    "np.moveaxis": lambda w: np.moveaxis(w[S], -1, 0)[T],
    "a loop": lambda w: np.stack([w[k] * (k + 1.0) for k in (1, 5, 1)]),
    "an iteration": lambda w: sum([row * row for row in w[S]]),
    "np.take": lambda w: np.take(w, S, axis=0),
    "np.take of the last axis": lambda w: np.take(w, T, axis=-1),
    "np.take, flat": lambda w: np.take(w, [0, 62, 5, 5]),
    "np.take, wrapped": lambda w: np.take(w, [10, -12], axis=0, mode="wrap"),
    "np.take, clipped": lambda w: np.take(w, [10, -12, 3], axis=0, mode="clip"),
    "two uses": lambda w: w[S] @ w[T].T,
    "rows and columns": lambda w: np.sum(w[S]) * w[:, T],
    "uint8": lambda w: w[S[:3].astype(numpy.uint8)],
    "tuples": lambda w: w[(0, 1), (2, 0)],
    "many of one row": lambda w: w[numpy.arange(40) % 2] * numpy.arange(1.0, 41.0)[:, None],
    "found inside": lambda w: w[np.argsort(w[4, :5] @ np.ones((5, 9)) + np.arange(9.0))[:3]],
}

VARIED = ("integers", "columns", "np.ix_", "pointwise", "two slices", "two uses", "a row")

DENSE = {
    "itself": lambda w: w * 2.0,
    "all of it": lambda w: w[:],
    "rows and all": lambda w: w[S] + np.sum(w, 0),
    "derived": lambda w: (2.0 * w)[S],
    "its transpose": lambda w: w.T @ w,
}


@pytest.mark.parametrize("dtype", [numpy.float64, numpy.float32])
@pytest.mark.parametrize("name", [*FORMS, *DENSE])
def test_every_form_has_the_bits_of_the_array(name, dtype):
    fun = {**FORMS, **DENSE}[name]
    found, expected = both(lambda w: np.sum(np.sin(fun(w)) * 3.0), W.astype(dtype))
    assert isinstance(found, Rows) == (name in FORMS)
    same(found.to_dense() if isinstance(found, Rows) else found, expected)
    if isinstance(found, Rows):
        assert (numpy.diff(found.indices) > 0).all()


def waves(part):
    return np.sum(np.sin(part) * 3.0)


def scaled(part):
    return np.sum(part * -3.0)


def weighted(part):
    """The cotangent of the part is one number for each of the first axis."""
    count, ones = int(numpy.prod(part.shape[:1])), [1] * len(part.shape[1:])
    weights = numpy.cos(numpy.arange(float(count)))
    return np.sum(weights.reshape([*part.shape[:1], *ones]) * part)


@pytest.mark.parametrize("outer", [waves, scaled, weighted])
@in_short("name", [*FORMS, *DENSE], *VARIED, "nested", "of the transpose", "itself")
def test_compiled_or_not_every_form_has_the_same_rows(name, outer):
    """In more calls than a model is compiled after, with other numbers and with other sizes."""
    fun = {**FORMS, **DENSE}[name]
    model = dg.delayed(lambda w: outer(fun(w)), compile=True)
    taped = dg.delayed(lambda w: outer(fun(w)), compile=False)
    for step in range(12):
        w = decades(9 + (step % 3) * (name in VARIED), 7, seed=step)
        found = dg.grad(model, sparse=True)(w)
        expected = dg.grad(taped, sparse=True)(w)
        assert type(found) is type(expected)
        if isinstance(found, Rows):
            assert found.axes == expected.axes
            same(found.indices, expected.indices)
            same(found.values, expected.values)
        else:
            same(found, expected)


COMPILED = {
    "two": lambda w, s: np.sin(w[s]) * w[s, 1:2],
    "rows": lambda w, s: w[s],
    "columns": lambda w, s: w[:, s],
    "pages of rows": lambda w, s: w[s.reshape(2, -1)],
    "pages of columns": lambda w, s: w[:, s.reshape(2, -1)],
    "entries": lambda w, s: w[s, s],
}


@pytest.mark.parametrize("outer", [waves, scaled, weighted])
@pytest.mark.parametrize("name", COMPILED)
def test_selections_of_what_is_asked_for_are_compiled(name, outer):
    """And pass the comparison with the tape: a program that does not is given up."""
    model = dg.delayed(lambda w, s: outer(COMPILED[name](w, s)), compile=True)
    for _ in range(12):
        dg.grad(model, sparse=True)(W, numpy.array([3, 0, -1, 3]))
    (entry,) = prepare(model.model.fun).programs._entries.values()
    assert entry.ways, entry.refusal


CUBE = decades(4, 5, 6)
CUBES = {
    "together": lambda c: c[1:3, [0, 2, 2], [5, 0, 1]],
    "apart": lambda c: c[[0, 2, 2], :, [5, 0, 1]],
    "an integer apart": lambda c: c[2, :, [5, 0, 1]],
    "with None": lambda c: c[[0, 2, 2], None, :, [5, 0, 1]],
    "an empty ellipsis between": lambda c: c[:, 1, ..., [5, 0, 1]],
    "an empty ellipsis, then rows": lambda c: c[:, 1, ..., [5, 0, 1]][[0, 2]],
    "a broadcast": lambda c: c[[[0], [3]], :, [5, 0, 1]],
    "a mask of two axes": lambda c: c[numpy.arange(20).reshape(4, 5) % 3 == 0],
    "the middle": lambda c: c[:, [1, 1]],
    "an integer in the middle": lambda c: c[:, 2],
    "transposed": lambda c: np.transpose(c, (2, 0, 1))[[1, 1, 5], 2],
    "axes moved": lambda c: np.moveaxis(c, (0, 1), (2, 0))[2, [1, 1, 3]],
    "in steps": lambda c: c[[0, 3, 3]][:, 1:4][..., [5, 2]],
}


@pytest.mark.parametrize("name", CUBES)
def test_forms_of_three_axes(name):
    found, expected = both(lambda c: np.sum(np.sin(CUBES[name](c))), CUBE)
    assert isinstance(found, Rows)
    same(found.to_dense(), expected)


def of_a_buffer(w):
    """An index that is refilled while the tape holds it."""
    index, total = numpy.zeros(2, int), 0.0
    for k in range(3):
        index[:] = [k, k + 1]
        total = total + np.sum(w[index] ** 2)
    return total


OTHERS = {
    "rows of a vector": (lambda v: np.sum(v[S] ** 3), decades(9)),
    "a slice of a vector": (lambda v: np.sum(v[2:4] ** 3), decades(9)),
    "an entry of a vector": (lambda v: v[3] ** 3, decades(9)),
    "rows of a vector, then a slice": (lambda v: np.sum(v[S][1:] ** 3), decades(9)),
    "a sum in single precision": (
        lambda w: np.sum(w[numpy.zeros(40, int)] * decades(40, 7, seed=2)),
        W.astype(numpy.float32),
    ),
    "complex parameters": (lambda w: np.sum(np.abs(w[S]) ** 2), W + 1j),
    "a refilled index": (of_a_buffer, W),
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_arrays(name):
    found, expected = both(*OTHERS[name])
    assert isinstance(found, Rows)
    same(found.to_dense(), expected)


def test_fields_have_their_names():
    pair = collections.namedtuple("pair", "weights bias")
    model = dg.delayed(lambda p: np.sum(p.weights[S]) + np.sum(p.bias[T]))
    found = dg.grad(model, sparse="p.weights")(pair(W, decades(8)))
    assert isinstance(found.weights, Rows)
    assert not isinstance(found.bias, Rows)


def test_rows_of_a_pullback_are_the_callers():
    _, pullback = dg.vjp(dg.delayed(lambda w: np.sum(np.sin(w[S]))), W, sparse=True)
    (first,) = pullback(1.0)
    before = first.values.copy()
    first.values[...] = 0.0
    same(pullback(1.0)[0].values, before)


def test_a_rule_may_return_rows():
    lookup = dg.custom_vjp(lambda w: np.sum(w[S] ** 2))
    lookup.defvjp(
        lambda w: (np.sum(w[S] ** 2), w), lambda w, g: (Rows(SHAPE, (0,), S % 9, 2 * g * w[S]),)
    )
    numpy.testing.assert_allclose(
        dg.grad(dg.delayed(lookup))(W), both(lambda w: np.sum(w[S] ** 2), W)[1]
    )


def test_new_gradient_functions_share_their_programs(monkeypatch):
    made, plain = [], store.make_way
    monkeypatch.setattr(store, "make_way", lambda *given: made.append(1) or plain(*given))
    model = dg.delayed(lambda w: np.sum(np.sin(w[S])), compile=True)
    with dask.config.set({"daskgrad.inline.seconds": 60}):
        for _ in range(60):
            for sparse in (False, True, "w", ["w"]):
                dg.grad(model, sparse=sparse)(W)
    assert len(made) == 3 + 2  # and the model's own, for arrays and rows


# ------------------------------------------------------------------------------ what is asked for


def loss(params, x):
    hidden = np.sin(params["W1"][S] @ x) + params["b"]
    return np.sum(params["layers"][0]["W"][T] @ hidden[:3]) + params["scale"] * np.sum(hidden)


PARAMS = {
    "W1": W,
    "b": decades(4),
    "layers": [{"W": decades(8, 3)}],
    "scale": 2.0,
    "count": 3,
}


@pytest.mark.parametrize(
    ("sparse", "rows"),
    [
        (True, {"W1", "W"}),
        ("W1", {"W1"}),
        ("params.W1", {"W1"}),
        ("layers", {"W"}),
        (["layers.0.W", "W1"], {"W1", "W"}),
        ("params", {"W1", "W"}),
        (["b"], set()),
        ((path for path in ["W1"]), {"W1"}),
        ([], set()),
        (False, set()),
    ],
)
def test_leaves_are_asked_for_by_their_paths(sparse, rows):
    found = dg.grad(dg.delayed(loss), sparse=sparse)(PARAMS, decades(7))
    expected = dg.grad(dg.delayed(loss))(PARAMS, decades(7))
    kinds = {"W1": found["W1"], "W": found["layers"][0]["W"], "b": found["b"]}
    assert {name for name, leaf in kinds.items() if isinstance(leaf, Rows)} == rows
    for name, leaf in kinds.items():
        wanted = expected["layers"][0]["W"] if name == "W" else expected[name]
        same(leaf.to_dense() if name in rows else leaf, wanted)
    assert found["scale"] == expected["scale"]
    assert found["count"] is None


def test_what_nothing_uses_has_no_rows():
    with pytest.warns(UserWarning, match="does not depend"):
        found = dg.grad(dg.delayed(lambda w, x: np.sum(x)), (0, 1), sparse="w")(W, W)
    assert len(found[0].indices) == 0
    assert found[0].shape == SHAPE
    assert isinstance(found[1], numpy.ndarray)


# ------------------------------------------------------------------------------ graphs and sums


def chain(w):
    picked = w[S]
    return dg.delayed(lambda p: np.sum(np.sin(p)))(picked) + dg.delayed(
        lambda w: np.sum(w[2:4] ** 2)
    )(w)


def term(item, w):
    rows, factor = item
    return np.sum(np.sin(w[rows]) * factor)


ITEMS = [(numpy.array([n % 9, 3 * n % 9, n % 9]), n + 1.0) for n in range(13)]


def in_sum(w):
    return dg.map_sum(term, ITEMS, w, grainsize=4)


def scaled_sum(w):
    return 3.0 * dg.map_sum(term, ITEMS, w, grainsize=2) + chain(w)


def compensated(w):
    return dg.map_sum(term, ITEMS, w, grainsize=4, summation="compensated")


def of_arrays(w):
    """A sum whose terms are arrays keeps a tape of each block."""
    terms = dg.map_sum(lambda item, w: np.sin(w[item[0]]) * item[1], ITEMS, w, grainsize=4)
    return dg.delayed(lambda y: np.sum(y * y))(terms)


PROGRAMS = [chain, in_sum, scaled_sum, compensated, of_arrays]


@pytest.mark.parametrize("program", PROGRAMS)
def test_gradients_and_products_with_the_hessian(program):
    same(dg.grad(program, sparse=True)(W).to_dense(), dg.grad(program)(W))
    direction = decades(*SHAPE, seed=5)
    found = dg.hvp(program, (W,), (direction,), sparse=True)
    expected = dg.hvp(program, (W,), (direction,))
    for ours, theirs in zip(found, expected, strict=True):
        assert isinstance(ours[0], Rows)
        same(ours[0].to_dense(), theirs[0])


def test_a_use_that_is_dense_makes_it_an_array():
    def mixed(w):
        return chain(w) + dg.delayed(lambda w: np.sum(w * w))(w)

    found, expected = dg.grad(mixed, sparse=True)(W), dg.grad(mixed)(W)
    same(found, expected)


def test_many_cotangents():
    model = dg.delayed(lambda w: np.sin(w[S, 2]))
    value, pullback = dg.vjp(model, W, sparse=True)
    cotangents = numpy.eye(len(value))
    (found,) = pullback(cotangents)
    (expected,) = dg.vjp(model, W)[1](cotangents)
    assert len(found) == 4
    for rows, array in zip(found, expected, strict=True):
        same(rows.to_dense(), array)


@pytest.mark.parametrize("grainsize", [1, 4, 16])
def test_gradients_of_single_items(grainsize):
    """Items that use nothing of the array are there, too."""

    def some(item, w, b):
        rows, factor = item
        return factor * np.sum(b) + (np.sum(np.sin(w[rows])) if factor > 5.0 else 0.0)

    def asked(**options):
        return dg.per_item(some, ITEMS, argnums=(0, 1), grainsize=grainsize, **options)(W, T * 1.0)

    values, (rows, ones) = asked(gradient="full", sparse="w")
    expected, (arrays, dense) = asked(gradient="full")
    same(values, expected)
    same(ones, dense)
    assert [len(each.indices) > 0 for each in rows] == [factor > 5.0 for _, factor in ITEMS]
    same(numpy.stack([each.to_dense() for each in rows]), arrays)
    numpy.testing.assert_allclose(asked(sparse=True)[1], asked()[1], rtol=1e-14)


def test_workers_return_rows_alone(client, monkeypatch):
    wide, received = decades(20000, 50), []

    def counted(frames):
        received.append(sum([memoryview(frame).nbytes for frame in frames]))
        return unpack(frames)

    monkeypatch.setattr(call, "unpack", counted)
    with dg.place(ITEMS, grainsize=2) as shards:
        found = dg.grad(lambda w: dg.map_sum(term, shards, w), sparse=True)(wide)
    expected = dg.grad(in_sum)(wide)
    same(found.to_dense(), expected)
    assert 0 < sum(received) < 20_000 < expected.nbytes


def test_what_is_not_finite_is_found_among_rows():
    model = dg.delayed(lambda w: np.sum(np.sqrt(w[S])), name="root")
    w = numpy.ones(SHAPE)
    w[1, 2] = 0.0
    with (
        pytest.warns(RuntimeWarning),
        pytest.raises(FloatingPointError, match=r"'root'.* has inf at \[0, 2\].* of its Rows\(3"),
        dg.debug_nans(),
    ):
        dg.grad(model, sparse=True)(w)


@pytest.mark.parametrize("sparse", [True, "w", ["p.inner"]])
def test_the_program_of_a_compiled_model_has_the_same_rows(sparse):
    def plain(w, c, p):
        return np.sum(np.sin(w[S] * c)) + np.sum(p["inner"][T] * p["scale"])

    model, taped = dg.delayed(plain, compile=True), dg.delayed(plain, compile=False)
    step, slow = dg.value_and_grad(model, (0, 2), sparse=sparse), dg.value_and_grad(taped, (0, 2))
    kinds = (sparse != ["p.inner"], sparse != "w")
    for number in range(30):
        w, p = decades(9, 7, seed=number), {"inner": decades(8), "scale": 0.5}
        with dask.config.set({"daskgrad.inline.seconds": 60}):
            value, found = step(w, 2.0, p)
        expected = slow(w, 2.0, p)
        assert value == expected[0]
        rows = [found[0], found[1]["inner"]]
        assert tuple(isinstance(each, Rows) for each in rows) == kinds
        dense = [each.to_dense() if isinstance(each, Rows) else each for each in rows]
        same(dense[0], expected[1][0])
        same(dense[1], expected[1][1]["inner"])
        assert found[1]["scale"] == expected[1][1]["scale"]
    assert whole_programs(step)[0]
