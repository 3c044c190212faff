"""Blocks of JAX models: many items in one call of XLA, with bits that do not depend on the cut."""

import collections

import dask
import numpy as np
import pytest
from comparisons import bits
from libraries import arrays_of
from numpy.testing import assert_allclose, assert_array_equal

import daskgrad as dg

pytestmark = [pytest.mark.optional, pytest.mark.usefixtures("synchronous")]

RANDOM = np.random.default_rng(0)
P = np.array([1.3, 0.7])


@pytest.fixture(autouse=True, scope="module")
def library():
    """JAX takes long to import: tests are collected without it."""
    global blocks, compiled, jax, jnp, loops
    jnp = arrays_of("jax")
    import jax

    from daskgrad.autodiff.libraries.jax import blocks, compiled
    from daskgrad.autodiff.libraries.jax import blocks as loops


def model_of(fun, **options):
    return dg.delayed(fun, backend="jax", **options)


def summed(model, items, grainsize, **options):
    """Value and gradient of a sum over items."""
    return dg.value_and_grad(
        lambda *p: dg.map_sum(model, items, *p, grainsize=grainsize, **options)
    )


def density(x, p):
    """One whose bits XLA changes in a loop, where x has few entries; workers import it."""
    import jax.numpy as jnp

    r = jnp.sum(jnp.exp(-p[0] * (x + p[1])))
    return r**2 + r**3 + 0.25 * r**4


@pytest.fixture
def calls(monkeypatch):
    """How many items each call of a loop went through, and how many items were called alone."""
    found = collections.defaultdict(list)
    each, forward = loops.XlaLoop._each, compiled.JitProgram.forward

    def counted_each(self, count, results):
        found["together"].append(count)
        return each(self, count, results)

    def counted_forward(self, *args):
        found["alone"].append(1)
        return forward(self, *args)

    monkeypatch.setattr(loops.XlaLoop, "_each", counted_each)
    monkeypatch.setattr(compiled.JitProgram, "forward", counted_forward)
    return found


# ------------------------------------------------------------------------------------- the bits


def solved(x, p):
    a = jnp.outer(x, x) + p[0] * jnp.eye(x.size)
    lower = jnp.linalg.cholesky(a)
    y = jax.scipy.linalg.cho_solve((lower, True), jnp.sin(x) * p[1])
    return jnp.dot(x, y) + jnp.sum(jnp.log(jnp.diag(lower)))


def layers(x, p):
    w = jnp.cos(p[0] * jnp.arange(x.size * 5.0)).reshape(5, x.size)
    return jnp.sum(jnp.tanh(w @ x) ** 2) * p[1]


def steps(x, p):
    def step(carry, entry):
        carry = jnp.sin(carry * p[0] + entry)
        return carry, carry * p[1]

    return jnp.sum(jax.lax.scan(step, 0.3, x)[1])


MODELS = {
    "sum": density,
    "cholesky": solved,
    "matrix": layers,
    "scan": steps,
    "fft": lambda x, p: jnp.sum(jnp.abs(jnp.fft.fft(x * p[0])) ** 2) * p[1],
    "sort": lambda x, p: jnp.sum(jnp.sort(x * p[0]) * jnp.cumsum(x)) * p[1],
}


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("width", [1, 7])
def test_the_bits_do_not_depend_on_the_cut(model, width):
    """Neither those of the sum, nor those of any item."""
    items, fun = RANDOM.random((37, width)), model_of(MODELS[model])
    for summation in ("pairwise", "compensated"):
        sums = [summed(fun, items, g, summation=summation) for g in (1, 2, 8, 64)]
        assert len({tuple(bits(each(P))) for each in sums}) == 1
    terms = [bits(dg.per_item(fun, items, gradient="full", grainsize=g)(P)) for g in (1, 2, 64)]
    assert terms[0] == terms[1] == terms[2]


@pytest.mark.parametrize("model", MODELS)
def test_the_bits_of_an_item_do_not_depend_on_its_place_or_company(model):
    """Nor on what came before it, nor on where its row begins in memory."""
    items, fun = list(RANDOM.random((23, 7))), model_of(MODELS[model])
    values, gradients = dg.per_item(fun, items, gradient="full")(P)
    for shift in (1, 2, 3, 11):
        moved = items[shift:] + items[:shift]
        others = dg.per_item(fun, np.array(moved), gradient="full", grainsize=16)(P)
        assert_array_equal(others[0], np.roll(values, -shift))
        assert_array_equal(others[1], np.roll(gradients, -shift, 0))
    for number in (0, 7, 22):
        value, gradient = dg.value_and_grad(lambda p, n=number: dg.map_sum(fun, [items[n]], p))(P)
        assert value == values[number]
        assert_array_equal(gradient, gradients[number])


def test_the_bits_are_those_of_every_scheduler_and_of_placed_items(every_scheduler, client):
    items, fun = RANDOM.random((40, 13)), model_of(density)

    def compute(items=items):
        return bits(dg.value_and_grad(lambda p: dg.map_sum(fun, items, p))(P))

    found = every_scheduler(compute)
    with dask.config.set({"daskgrad.inline.seconds": 60}):
        found["in line"] = compute()
    for grainsize in (1, 8):
        with dg.place(items, grainsize=grainsize) as shards:
            found[f"placed by {grainsize}"] = compute(shards)
    assert len({tuple(each) for each in found.values()}) == 1, found


# ------------------------------------------------------------------------------- calls of XLA


def test_items_go_through_xla_many_at_a_time(calls):
    """1,000 of them in as many calls as a loop's length makes it."""
    summed(model_of(density), RANDOM.random((1000, 13)), 1024)(P)
    assert calls == {"together": [256, 256, 256, 232]}


def test_what_is_held_at_a_time_is_bounded(monkeypatch, calls):
    monkeypatch.setattr(blocks, "HELD", 4000)
    items = list(RANDOM.random((100, 20)))
    values, _ = dg.per_item(model_of(density), items, grainsize=128)(P)
    assert max(calls["together"]) <= 4000 // 160
    assert sum(calls["together"]) == len(values) == 100


@pytest.mark.parametrize(
    ("fun", "options", "cotangent"),
    [
        (lambda x, p: {"value": jnp.sum(x * p), "n": 2}, {}, {"value": 1.0, "n": None}),
        (lambda x, p: (jnp.sum(x * p), jnp.argmax(x)), {}, (1.0, None)),
        (lambda x, p: x * p, {}, np.ones(2)),
        (lambda x, p: jnp.sum(x * p), {"keep": "tape"}, 1.0),
        (lambda x, p: jnp.sum(x * p), {"keep": "recompute"}, 1.0),
    ],
    ids=["beside an int", "beside an index", "an array", "tape", "recompute"],
)
def test_what_is_more_than_one_number_is_called_alone(fun, options, cotangent, calls):
    items = RANDOM.random((5, 2))
    _, pullback = dg.vjp(lambda p: dg.map_sum(model_of(fun, **options), items, p), P)
    assert_allclose(pullback(cotangent)[0], items.sum(0), rtol=1e-13)
    assert "together" not in calls


def test_a_model_with_effects_is_called_item_by_item_in_order(calls):
    seen = []

    def fun(x, p):
        jax.debug.callback(lambda x: seen.append(float(x[0])), x, ordered=True)
        return jnp.sum(x * p)

    items = np.arange(12.0).reshape(6, 2)
    summed(model_of(fun), items, 8)(P)
    jax.effects_barrier()
    assert seen == items[:, 0].tolist()
    assert "together" not in calls


def test_large_items_are_called_alone(calls):
    summed(model_of(density), RANDOM.random((3, 10_000)), 4)(P)
    summed(model_of(lambda x, w: jnp.sum(w * x)), [1.0, 2.0], 4)(np.ones(10_000))
    assert "together" not in calls


# ------------------------------------------------------------------------------ kinds of items


def term_of_tree(item, p):
    factor = {"sin": jnp.sin, "cos": jnp.cos}[item["name"]]
    return jnp.sum(factor(item["x"] * p["scale"])) * item["n"] + jnp.sum(item["k"] * p["shift"])


TREES = [
    {
        "x": RANDOM.random(2 + n % 2),
        "name": ("sin", "cos")[n % 3 == 0],
        "n": n % 2,
        "k": np.arange(3) + n,
    }
    for n in range(24)
]
PARAMETERS = {"scale": np.float64(0.7), "shift": np.array([0.1, 0.2, 0.3])}
KINDS = {  # a term, items, parameters, and how many items go through a loop at a time
    "ragged": (density, [RANDOM.random(3 + n % 4) for n in range(16)], P, [4] * 4),
    "pytrees": (term_of_tree, TREES, PARAMETERS, [4, 8, 8, 4]),
    "complex": (
        lambda x, z: jnp.sum(jnp.abs(x * z) ** 2),
        RANDOM.random((6, 2)),
        np.array([1.0 + 2.0j, 0.5 - 1.0j]),
        [6],
    ),
}


@pytest.mark.parametrize("name", KINDS)
def test_items_of_one_kind_go_together_and_derivatives_are_those_of_jax(name, calls):
    """Items and parameters may be pytrees, with integers and strings."""
    term, items, parameters, together = KINDS[name]
    value, gradient = summed(model_of(term), items, 64)(parameters)
    assert calls == {"together": together}
    with jax.enable_x64(True):
        expected = jax.value_and_grad(lambda p: sum(term(item, p) for item in items))(parameters)
    assert_allclose(value, expected[0], rtol=1e-13)
    for found, other in zip(*map(jax.tree_util.tree_leaves, (gradient, expected[1])), strict=True):
        assert_allclose(found, other, rtol=1e-12)


@pytest.mark.parametrize("as_array", [True, False])
def test_items_that_are_differentiated_get_a_gradient_each(as_array, calls):
    data, own = RANDOM.random((20, 5)), RANDOM.random((20, 5))
    own = own if as_array else [row[: 3 + n % 3] for n, row in enumerate(own)]

    def term(pair, p):
        z, x = pair
        return jnp.sum(jnp.exp(-z * p[0])) * jnp.sum(x) * p[1]

    _, (gradients, gradient) = dg.value_and_grad(
        lambda z, p: dg.map_sum(model_of(term), dg.zip(z, data), p, grainsize=8), (0, 1)
    )(own, P)
    with jax.enable_x64(True):
        each = [jax.grad(term)((z, x), P)[0] for z, x in zip(own, data, strict=True)]
        whole = jax.grad(lambda p: sum(term(pair, p) for pair in zip(own, data, strict=True)))(P)
    assert_allclose(gradient, whole, rtol=1e-12)
    for found, expected in zip(gradients, each, strict=True):
        assert_allclose(found, expected, rtol=1e-12)
    assert sum(calls["together"]) == 20


def test_python_floats_do_not_widen_single_precision(calls):
    """They take the precision of the arrays that they meet, as in a call alone."""
    p = P.astype(np.float32)
    model = model_of(lambda c, p: jnp.sum(p * c))
    items = [0.1, 0.2, 0.3]
    value, gradient = summed(model, items, 4)(p)
    assert sum(calls["together"]) == 3
    assert value.dtype == gradient.dtype == np.float32
    with jax.enable_x64(True):
        alone = [jax.value_and_grad(lambda p, c=c: jnp.sum(p * c))(p) for c in items]
    expected = (np.asarray(alone[0][1]) + alone[1][1]) + alone[2][1]
    assert_array_equal(gradient, expected)


def test_numbers_and_arrays_of_other_precisions_are_other_kinds(calls):
    items = [np.float32(0.5), np.float64(0.5), np.int32(3), 0.5, 2, True]
    model = model_of(lambda c, p: jnp.sum(p * c))
    values, _ = dg.per_item(model, items, grainsize=8)(P)
    assert_allclose(values, [float(item) * np.sum(P) for item in items])
    assert sorted(calls["together"]) == [1] * 6


def test_dicts_of_other_orders_are_other_kinds():
    """A model may go by the order of a dict's keys."""
    model = model_of(lambda item, p: jnp.sum(p) * next(iter(item.values())))
    items = [{"a": 1.0, "b": 10.0}, {"b": 10.0, "a": 1.0}] * 2
    values, _ = dg.per_item(model, items, grainsize=8)(P)
    assert_allclose(values, np.array([1.0, 10.0, 1.0, 10.0]) * np.sum(P))


def test_a_parameter_that_no_item_uses_has_no_gradient():
    model = model_of(lambda x, p, q: jnp.sum(x * p))
    items = RANDOM.random((4, 2))
    with pytest.warns(UserWarning, match="does not depend on 'q'"):
        _, (p, q) = dg.value_and_grad(
            lambda p, q: dg.map_sum(model, items, p, q, grainsize=4), (0, 1)
        )(P, P)
    assert_allclose(p, items.sum(0))
    assert_array_equal(q, np.zeros(2))


def test_terms_that_use_no_parameter_at_all_have_no_gradient():
    items = [0.5 * k for k in range(20)]
    term = model_of(lambda x, p: x**2)
    value, gradient = dg.value_and_grad(lambda p: dg.map_sum(term, items, p) + p[0] + p[1])(P)
    assert value == sum([x**2 for x in items]) + P[0] + P[1]
    assert_array_equal(gradient, [1.0, 1.0])


def test_a_number_in_a_dict_keeps_its_structure():
    model = model_of(lambda x, p: {"loss": jnp.sum(x * p)})
    value, pullback = dg.vjp(lambda p: dg.map_sum(model, RANDOM.random((4, 2)), p, grainsize=4), P)
    assert list(value) == ["loss"]
    assert_allclose(pullback({"loss": 2.0})[0], 2.0 * pullback({"loss": 1.0})[0])


def test_what_is_random_is_called_alone_and_right():
    def noisy(pair, p):
        x, generator = pair
        return jnp.sum(p * x) + generator.normal()

    items = dg.zip(np.ones((4, 2)), dg.random.generators(0, 4))
    found = [summed(model_of(noisy), items, 4)(P) for _ in "ab"]
    assert bits(found[0]) == bits(found[1])


def test_other_derivatives_are_right():
    items, fun = RANDOM.random((20, 5)), model_of(density)
    v = np.array([0.3, -0.2])
    with jax.enable_x64(True):
        total = lambda p: sum(density(x, p) for x in items)  # noqa: E731
        gradient, product = map(np.asarray, jax.jvp(jax.grad(total), (P,), (v,)))
    for grainsize in (4, 32):
        summed = lambda p, g=grainsize: dg.map_sum(fun, items, p, grainsize=g)  # noqa: E731
        found = dg.hvp(summed, (P,), (v,))
        assert_allclose(found[0][0], gradient, rtol=1e-12)
        assert_allclose(found[1][0], product, rtol=1e-12)
        assert_allclose(dg.jvp(summed, (P,), (v,))[1], gradient @ v, rtol=1e-12)


# -------------------------------------------------------------------------------------- errors


def test_an_error_while_tracing_names_the_item():
    def picky(x, p):
        if x.size == 3:
            raise ValueError("three is too many")
        return jnp.sum(x) * p[0]

    items = [np.ones(2), np.ones(4), np.ones(3), np.ones(2)]
    with pytest.raises(ValueError, match="three is too many") as caught:
        summed(model_of(picky), items, 4)(P)
    assert "model 'picky', item 2" in "\n".join(caught.value.__notes__)


def test_an_error_while_running_names_the_item():
    """Others of its kind were in the same call."""

    def root(x):
        if x < 0:
            raise ValueError("negative")
        return np.sqrt(x)

    def fun(x, p):
        like = jax.ShapeDtypeStruct((), x.dtype)
        return jax.lax.stop_gradient(jax.pure_callback(root, like, x)) * jnp.sum(p)

    with pytest.raises(Exception, match="negative") as caught:
        summed(model_of(fun), [1.0, 2.0, -1.0, 3.0], 4)(P)
    assert "item 2" in "\n".join(caught.value.__notes__)


def test_an_error_that_does_not_come_again_names_the_block(monkeypatch):
    def fails(*_):
        raise MemoryError("no room for the rows")

    monkeypatch.setattr(loops.XlaLoop, "run", fails)
    with pytest.raises(MemoryError, match="no room") as caught:
        summed(model_of(density), [np.ones(3)] * 4, 4)(P)
    assert "items 0 to 3" in "\n".join(caught.value.__notes__)


def test_nans_are_traced_to_their_item():
    items = RANDOM.random((8, 3))
    items[5, 1] = np.nan
    with dg.debug_nans(), pytest.raises(FloatingPointError, match=r"item 5.*NaN"):
        summed(model_of(density), items, 8)(P)
