"""Arguments are read-only while a model runs, in every path; lists and dicts are its own."""

import autograd.numpy as anp
import dask
import dask.array as da
import numpy as np
import pytest
import scipy.sparse
import scipy.sparse.linalg
from autograd.extend import defvjp, primitive
from inputs import X, named, notes
from numpy.testing import assert_allclose, assert_array_equal

import daskgrad as dg

pytestmark = pytest.mark.usefixtures("synchronous")


def spoil(array):
    array[...] = 7.0


# The paths: each is given a victim, an array of threes that a model writes into.


def model(x, victim):
    spoil(victim)
    return anp.sum(x)


def term(victim, x):
    return model(x, victim)


def shared(item, x, victim):
    return model(x, victim) * item


def nested_item(x, victim):
    return dg.map_sum(term, [victim.copy()], x)


def nested_shared(x, victim):
    return dg.map_sum(shared, [1.0], x, victim.copy())


def gradient(fun, *args, **options):
    return lambda victim: dg.grad(
        lambda x: dg.delayed(fun, **options)(x, *[arg(victim) for arg in args])
    )(X)


def sum_of(fun, items, *others, add_up=dg.map_sum, **options):
    def run(victim):
        return lambda x: add_up(fun, items(victim), x, *[o(victim) for o in others], **options)

    return run


def graded(summed):
    return lambda victim: dg.grad(summed(victim))(X)


def computed(summed):
    return lambda victim: summed(victim)(X).compute()


def itself(victim):
    return victim


def listed(victim):
    return [np.ones(3), victim]


def rows(victim):
    return np.broadcast_to(victim, (3, 3)).copy()


SUMS = {
    "items": sum_of(term, listed),
    "compensated": sum_of(term, listed, summation="compensated"),
    "rows": sum_of(term, rows),
    "rows of dask": sum_of(term, lambda victim: da.from_array(rows(victim), chunks=2)),
    "zip": sum_of(
        lambda pair, x: term(pair[1], x), lambda victim: dg.zip([1.0, 2.0], listed(victim))
    ),
    "zipped rows": sum_of(
        lambda pair, x: term(pair[1], x), lambda victim: dg.zip([1.0, 2.0, 3.0], rows(victim))
    ),
    "shared": sum_of(shared, lambda _: [1.0, 2.0], itself),
    "slices": sum_of(term, itself, add_up=dg.reduce_sum, grainsize=2),
    "slices of a list": sum_of(
        lambda items, x: term(items[0], x), listed, add_up=dg.reduce_sum, grainsize=2
    ),
    "placed": sum_of(term, lambda victim: dg.place(listed(victim))),
    "over nodes": sum_of(term, lambda victim: [dg.delayed(np.copy)(victim)]),
}

PATHS = {
    "computed": lambda victim: dg.delayed(model)(X, victim).compute(),
    "inactive": lambda victim: dg.grad(
        lambda x: dg.delayed(anp.sum)(x) * dg.delayed(lambda c: model(1.0, c))(victim)
    )(X),
    "a constant": gradient(model, itself),
    "kept: gradient": gradient(model, itself, keep="gradient"),
    "kept: tape": gradient(model, itself, keep="tape"),
    "kept: nothing": gradient(model, itself, keep="recompute"),
    "a large constant": gradient(model, lambda _: np.full(2**14, 3.0)),
    "in a pytree": gradient(
        lambda x, tree: model(x, tree["a"][0]), lambda victim: {"a": [victim, 1.0]}
    ),
    "a keyword": lambda victim: dg.grad(lambda x: dg.delayed(model)(x, victim=victim))(X),
    "a node's value": gradient(model, lambda victim: dg.delayed(np.copy)(victim)),
    "integers beside parameters": lambda victim: dg.grad(
        dg.delayed(lambda p: model(p["x"], p["n"]))
    )({"x": X, "n": victim.astype(int)}),
    "jvp": lambda victim: dg.jvp(lambda x: dg.delayed(model)(x, victim), (X,), (X,)),
    "hvp": lambda victim: dg.hvp(lambda x: dg.delayed(model)(x, victim), (X,), (X,)),
    "vjp": lambda victim: dg.vjp(lambda x: dg.delayed(model)(x, victim), X),
    "jacobian": lambda victim: dg.jacobian(lambda x: dg.delayed(model)(x, victim))(X),
    "items that are differentiated": lambda victim: dg.grad(
        lambda v: dg.map_sum(lambda item, x: model(item["x"] * x, item["n"]), v, X)
    )([{"x": X, "n": victim.astype(int)}]),
    "per item": lambda victim: dg.per_item(term, listed(victim))(X),
    "per row": lambda victim: dg.per_item(term, rows(victim))(X),
    "per item, shared": lambda victim: dg.per_item(shared, [1.0, 2.0])(X, victim),
    "nested item": gradient(nested_item, itself),
    "nested shared": gradient(nested_shared, itself),
    **{f"{name}, computed": computed(summed) for name, summed in SUMS.items()},
    **{f"{name}, differentiated": graded(summed) for name, summed in SUMS.items()},
}


@pytest.mark.parametrize("path", PATHS)
def test_a_write_into_an_argument_is_an_error_that_names_the_model(path):
    victim = np.full(3, 3.0)
    with pytest.raises(ValueError, match="read-only") as caught:
        PATHS[path](victim)
    assert "written into" in notes(caught.value)
    assert "copy the array first" in notes(caught.value)
    assert_array_equal(victim, np.full(3, 3.0))
    assert victim.flags.writeable


def test_also_on_every_scheduler(scheduler):
    for path in ("computed", "a constant", "items, differentiated", "rows, differentiated"):
        with pytest.raises(ValueError, match="read-only") as caught:
            PATHS[path](np.full(3, 3.0))
        assert "copy the array first" in notes(caught.value)


def test_also_where_placed_items_are(client):
    with dask.config.set({"daskgrad.inline.seconds": 10.0}), dg.place(listed(X)) as items:
        total = dg.grad(lambda x: dg.map_sum(term, items, x))
        for _ in range(2):
            with pytest.raises(ValueError, match="read-only") as caught:
                total(X)
            assert "model 'term', item" in notes(caught.value)
        fine = dg.grad(lambda x: dg.map_sum(lambda i, x: anp.sum(i * x), items, x))(X)
        assert_array_equal(fine, X + 1.0)


# --------------------------------------------------------------------------- rules and solvers


def require_refusal(ask, message="may have written into"):
    with pytest.raises(ValueError, match="read-only") as caught:
        ask()
    assert message in notes(caught.value)


def with_rules(forward=None, backward=None, jvp=None):
    ruled = dg.custom_vjp(named(lambda x: np.sum(x), "ruled"))
    ruled.defvjp(
        forward or (lambda x: (np.sum(x), x)),
        backward or (lambda kept, c: (c * np.ones(3),)),
    )
    ruled.defjvp(jvp or (lambda primals, tangents: (np.sum(primals[0]), np.sum(tangents[0]))))
    return ruled


def writing(place, result):
    """A rule that writes into one of its arguments, or into the first array in it."""

    def rule(*args):
        victim = args[place]
        spoil(victim[0] if isinstance(victim, tuple) else victim)
        return result

    return rule


RULES = {
    "forward": (with_rules(forward=writing(0, (1.0, None))), dg.grad),
    "residuals": (
        with_rules(lambda x: (np.sum(x), x.copy()), writing(0, (np.ones(3),))),
        dg.grad,
    ),
    "primals": (with_rules(jvp=writing(0, (1.0, 1.0))), None),
    "tangents": (with_rules(jvp=writing(1, (1.0, 1.0))), None),
}


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("of_what", ["arguments", "values in between"])
def test_a_rule_cannot_write_into_what_it_is_given(rule, of_what):
    ruled, reverse = RULES[rule]
    fun = (lambda x: ruled(x)) if of_what == "arguments" else (lambda x: ruled(2.0 * x))
    node = dg.delayed(fun, name="model")
    require_refusal(
        lambda: reverse(node)(X) if reverse else dg.jvp(node, (X,), (X,)),
        "model 'model' may have written into",
    )


def test_a_primitive_of_the_users_own_cannot_write_into_what_is_differentiated():
    @primitive
    def halved(x):
        x /= 2.0
        return np.sum(x)

    defvjp(halved, lambda ans, x: lambda g: g * np.full(3, 0.5))
    total = dg.grad(lambda x: dg.map_sum(lambda i, x: halved(x), [1, 2], x))
    for ask in (dg.grad(dg.delayed(halved)), total, dg.grad(dg.delayed(lambda x: halved(x)))):
        with pytest.raises(ValueError, match="read-only") as caught:
            ask(X)
        assert "may have written into" in notes(caught.value)
    with pytest.raises(ValueError, match="read-only"):
        dg.grad(lambda v: dg.map_sum(lambda item, x: halved(item), v, X))([X, X])


def test_a_cotangent_that_a_rule_is_given_belongs_to_others_too():
    doubled = dg.custom_vjp(lambda x: 2.0 * x)

    def backward(_, cotangent):
        cotangent *= 2.0
        return (cotangent,)

    doubled.defvjp(lambda x: (2.0 * x, None), backward)
    node = dg.delayed(lambda x: anp.sum((doubled(x) + x) ** 2), name="model")
    require_refusal(lambda: dg.grad(node)(X), "and of the rules of dg.custom_vjp")


def test_a_black_box_cannot_write_into_its_arguments():
    def box(x, c):
        spoil(x)
        return np.sum(x)

    boxed = dg.finite_difference(box)
    for ask in (
        lambda: dg.grad(lambda x: boxed(x, X))(X),
        lambda: dg.grad(dg.delayed(lambda x: boxed(x, X)))(X),
        lambda: dg.jvp(lambda x: boxed(x, X), (X,), (X,)),
        lambda: dg.grad(lambda x: dg.map_sum(lambda i, x: boxed(x, X), [1, 2], x))(X),
    ):
        require_refusal(ask)


def test_a_black_box_cannot_write_into_displaced_arguments():
    calls = []

    def box(x, y):
        calls.append(1)
        if len(calls) > 1:
            y += 1.0
        return np.sum(x) + np.sum(y)

    boxed = dg.finite_difference(box)
    with pytest.raises(ValueError, match="read-only"):
        dg.grad(dg.delayed(lambda x, y: boxed(x, y)), argnums=(0, 1))(X, X)


SOLVERS = {
    "solver": (lambda a: spoil(a), lambda x, a: x - a, None),
    "root": (lambda a: a * 1.0, lambda x, a: spoil(x) or x - a, None),
    "right hand side": (
        lambda a: a * 1.0,
        lambda x, a: x - a,
        lambda product, rhs: spoil(rhs) or rhs,
    ),
}


@pytest.mark.parametrize("part", SOLVERS)
def test_a_solver_and_its_parts_cannot_write_into_what_they_are_given(part):
    function = dg.implicit(*SOLVERS[part])
    with pytest.raises((ValueError, TypeError)) as caught:
        dg.grad(dg.delayed(lambda a: anp.sum(function(2.0 * a)), name="model"))(X)
    assert "read-only" in str(caught.value) or "does not support item assign" in str(caught.value)


# ------------------------------------------------------------------------------- other objects


def test_a_masked_array_keeps_its_mask_and_its_numbers():
    masked = np.ma.masked_array([1.0, 2.0, 3.0], [0, 1, 0])
    for value in (5.0, np.ma.masked):

        def write(x, m, value=value):
            m[0] = value
            return anp.sum(x)

        with pytest.raises(ValueError, match="read-only"):
            dg.grad(lambda x, write=write: dg.delayed(write)(x, masked))(X)
    assert masked.tolist() == [1.0, None, 3.0]
    masked[0] = np.ma.masked  # still the user's own
    assert masked.tolist() == [None, None, 3.0]


@pytest.mark.parametrize("kind", ["csr_array", "csc_array", "coo_array", "bsr_array", "dia_array"])
def test_a_sparse_matrix_keeps_its_numbers(kind):
    matrix = getattr(scipy.sparse, kind)(np.diag([1.0, 2.0, 3.0]))

    def write(x, matrix):
        matrix.data *= 2.0
        return anp.sum(x)

    with pytest.raises(ValueError, match="read-only"):
        dg.grad(lambda x: dg.delayed(write)(x, matrix))(X)
    assert_array_equal(matrix.toarray(), np.diag([1.0, 2.0, 3.0]))
    matrix.data *= 2.0

    def read(matrix, x):
        assert isinstance(matrix, getattr(scipy.sparse, kind))
        return matrix @ x

    assert_array_equal(dg.delayed(read)(matrix, X).compute(), [2.0, 4.0, 6.0] * X)


UNORDERED = ([5.0, 2.0, 3.0, 4.0, 5.0, 6.0], [2, 0, 1, 1, 2, 2], [0, 2, 4, 6])


@pytest.mark.parametrize("kind", ["csr_array", "csc_array", "lil_array", "dok_array"])
def test_a_sparse_matrix_that_scipy_puts_in_order_is_each_runs_own(kind):
    matrix = scipy.sparse.csr_array(UNORDERED, shape=(3, 3))
    matrix = matrix.T if kind == "csc_array" else matrix.asformat(kind[:3])
    entries, dense = matrix.nnz, matrix.toarray()

    def model(x, matrix):
        compressed = matrix if kind.startswith("cs") else matrix.tocsr()
        value = np.sum(scipy.sparse.linalg.spsolve(compressed, X))
        matrix[0, 0] = 7.0
        return anp.sum(x) * value

    expected = np.sum(np.linalg.solve(dense, X))
    for _ in range(2):
        gradient = dg.grad(lambda x: dg.delayed(model)(x, matrix))(X)
        assert_allclose(gradient, [expected] * 3, rtol=1e-12)
    assert_array_equal(matrix.toarray(), dense)
    assert matrix.nnz == entries


@pytest.mark.parametrize("as_items", [list, np.asarray])
def test_a_row_of_a_structured_array_is_each_runs_own(as_items):
    table = np.zeros(3, dtype=[("mass", float), ("charge", int)])

    def term(row, x):
        row["mass"] += 1.0
        return anp.sum(x) * row["mass"]

    for _ in range(2):
        summed = dg.grad(lambda x: dg.map_sum(term, as_items(table), x))(X)
        assert_array_equal(summed, [3.0] * 3)
    assert not table["mass"].any()


def test_a_table_of_pandas_keeps_its_columns():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"a": [1.0, 2.0]})

    def model(frame):
        frame.loc[0, "a"] = 5.0
        frame["b"] = 1.0
        return frame["a"].sum()

    assert [dg.delayed(model)(frame).compute() for _ in range(2)] == [7.0, 7.0]
    assert frame.to_dict("list") == {"a": [1.0, 2.0]}
    series = frame["a"]
    assert dg.delayed(lambda s: s.__setitem__(0, 4.0) or s.sum())(series).compute() == 6.0
    assert series.tolist() == [1.0, 2.0]


def grow(x, numbers):
    numbers.append(1.0)
    return anp.sum(x) * len(numbers)


def grow_dict(x, numbers):
    numbers["more"] = numbers.get("more", 0) + 1
    return anp.sum(x) * numbers["more"]


def grow_item(item, x):
    item["list"].append(1.0)
    return anp.sum(x) * len(item["list"])


def test_a_list_or_dict_that_a_model_changes_is_its_own(scheduler):
    """Also that of a term that runs again, and of the value of another node."""
    numbers, table, items = [1.0], {}, [{"list": [1.0]}, {"list": []}]
    node = dg.delayed(lambda x: [1.0])
    for _ in range(2):
        assert_array_equal(dg.grad(lambda x: dg.delayed(grow)(x, numbers))(X), [2.0] * 3)
        assert_array_equal(dg.grad(lambda x: dg.delayed(grow_dict)(x, table))(X), [1.0] * 3)
        assert_array_equal(dg.grad(lambda x: dg.map_sum(grow_item, items, x))(X), [3.0] * 3)
        summed = dg.grad(lambda x: dg.map_sum(lambda i, x, n: grow(x, n), [1, 2], x, numbers))
        assert_array_equal(summed(X), [4.0] * 3)
    assert numbers == [1.0]
    assert table == {}
    assert items == [{"list": [1.0]}, {"list": []}]

    def twice(x):
        value = node(1.0)
        return dg.delayed(grow)(x, value) + dg.delayed(grow)(x, value)

    assert_array_equal(dg.grad(twice)(X), [4.0] * 3)


@pytest.mark.parametrize(("made", "change"), [(set, set.add), (bytearray, bytearray.append)])
def test_a_set_that_a_model_changes_is_its_own(made, change):
    kept = made()

    def model(x, held):
        change(held, len(held))
        return anp.sum(x) * len(held)

    for _ in range(2):
        assert_array_equal(dg.grad(lambda x: dg.delayed(model)(x, kept))(X), [1.0] * 3)
    assert not kept


def test_a_list_of_a_sum_inside_a_model_is_each_terms_own():
    def model(x):
        numbers = [1.0]
        total = dg.map_sum(lambda i, x, n: grow(x, n), [1, 2], x, numbers)
        assert numbers == [1.0]
        return total

    assert_array_equal(dg.grad(dg.delayed(model))(X), [4.0] * 3)


# ----------------------------------------------------------------------- what a model returns


def test_gradients_and_values_are_writeable(scheduler):
    identity, total = dg.delayed(lambda x: x), dg.delayed(anp.sum)
    (_, aux), gradient = dg.value_and_grad(
        lambda x: (total(identity(x)), {"c": identity(X), "x": identity(x)}), has_aux=True
    )(X)
    value, pullback = dg.vjp(identity, X)
    (pulled,) = pullback(X)
    pushed = dg.jvp(identity, (X,), (X,))
    rows, norms = dg.per_item(lambda i, x: anp.sum(i * x), [X, X], gradient="full")(X)
    for array in (gradient, aux["c"], aux["x"], value, pulled, *pushed, rows, norms):
        array += 1.0
    assert_array_equal(X, [0.3, 0.5, 0.9])
