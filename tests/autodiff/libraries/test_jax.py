"""Models of the JAX backend: compiled once for each kind of call, and right wherever they run."""

import dataclasses
import os
import threading
from concurrent.futures import ThreadPoolExecutor

import autograd.numpy as anp
import dask
import numpy as np
import optree
import pytest
from libraries import arrays_of
from numpy.testing import assert_allclose, assert_array_equal
from probes import lines, write
from waiting import wait_until

import daskgrad as dg

pytestmark = pytest.mark.optional

X = np.linspace(0.1, 1.0, 5)


@pytest.fixture(autouse=True, scope="module")
def library():
    """JAX takes long to import: tests are collected without it."""
    global compiled, jax, jnp, arrays
    jnp = arrays_of("jax")
    import jax

    from daskgrad.autodiff.libraries.jax import arrays, compiled


@pytest.fixture
def log(tmp_path):
    """A file to which a model writes whenever its Python code runs."""
    path = tmp_path / "log"
    path.touch()
    return str(path)


def model_of(fun, **options):
    return dg.delayed(fun, backend="jax", **options)


def close(found, expected):
    assert_allclose(found, expected, rtol=1e-13, atol=1e-13)


# ------------------------------------------------------------------------------------- compiled


@pytest.mark.parametrize("scheduler", ["sync", "cluster"], indirect=True)
@pytest.mark.parametrize("place", [list, dg.place])
def test_a_model_is_traced_once_in_a_process(place, scheduler, log):
    """For however many evaluations and terms of one shape."""

    def term(item, x):
        write(log, f"{os.getpid()}")
        return jnp.sum(jnp.sin(item * x))

    items = [np.full(5, float(n)) for n in range(40)]
    shards = place(items)
    options = {"grainsize": 4} if place is list else {}
    fun = dg.value_and_grad(lambda x: dg.map_sum(model_of(term), shards, x, **options))
    for scale in (1.0, 2.0, 3.0):
        _, gradient = fun(X * scale)
        close(gradient, sum(item * np.cos(item * X * scale) for item in items))
    ran = lines(log)
    assert len(ran) == len(set(ran))


def test_threads_compile_a_model_once(log, gate, monkeypatch):
    entered, forward = [], compiled.JitProgram.forward

    def counted(self, *args):
        entered.append(1)
        return forward(self, *args)

    def waits(x, n):
        write(log, "ran")
        gate.wait()
        return jnp.sum(x) * n

    monkeypatch.setattr(compiled.JitProgram, "forward", counted)
    model = model_of(waits)
    gradient = dg.grad(lambda x: dg.sum([model(x, float(n)) for n in range(16)]))
    with (
        dask.config.set(scheduler="threads", num_workers=8),
        ThreadPoolExecutor(1) as pool,
    ):
        done = pool.submit(gradient, X)
        wait_until(lambda: len(entered) == 8)
        gate.open()
        close(done.result(), np.full(5, 120.0))
    assert lines(log) == ["ran"]


def test_a_pullback_is_compiled_once(synchronous, monkeypatch):
    """For each combination of cotangents that arrive."""
    pulled, original = [], arrays.JaxOutputs.pull

    def counting(self, *args):
        pulled.append(self)
        return original(self, *args)

    monkeypatch.setattr(arrays.JaxOutputs, "pull", counting)
    model = model_of(lambda x: {"a": jnp.sin(x), "b": jnp.cos(x)})
    for _ in range(3):
        _, pullback = dg.vjp(lambda x: model(x), X)
        for c in (1.0, 2.0):
            close(pullback({"a": c * X, "b": c * X})[0], c * X * (np.cos(X) - np.sin(X)))
    assert len(pulled) == 1


@pytest.mark.parametrize("keep", ["auto", "tape", "gradient"])
def test_the_gradient_of_one_number_is_compiled_with_it(keep, synchronous, monkeypatch):
    """Whatever stands beside it; any cotangent scales it, in the dtypes of the arguments."""

    def refuse(self, *args):
        raise AssertionError("a second program")

    monkeypatch.setattr(arrays.JaxOutputs, "pull", refuse)

    def fun(x, z):
        return jnp.sum(jnp.sin(x) * jnp.abs(z) ** 2)

    z = (X + 1j * X[::-1]).astype("c8")
    for single in (False, True):
        x = X.astype("f4") if single else X
        value, pullback = dg.vjp(lambda x, z: model_of(fun, keep=keep)(x, z), x, z)
        assert value.dtype == x.dtype
        for factor in (1.0, -2.5, 0.0):
            x_bar, z_bar = pullback(factor)
            assert (x_bar.dtype, z_bar.dtype) == (x.dtype, z.dtype)
            assert_allclose(x_bar, factor * np.cos(X) * np.abs(z) ** 2, rtol=1e-6)
            assert_allclose(z_bar, factor * 2.0 * np.sin(X) * z.conj(), rtol=1e-6)
    model = model_of(lambda x: {"a": jnp.sum(x**2), "n": 3, "i": jnp.arange(2)})
    close(dg.grad(lambda x: dg.delayed(lambda d: d["a"] * d["n"])(model(x)))(X), 6.0 * X)


@pytest.mark.parametrize(
    ("calls", "traces"),
    [
        ([(1.0, "a"), (2.0, "a"), (3.0, "a")], 1),
        ([(X, "a"), (X * 2.0, "a"), (np.arange(5.0), "a")], 1),
        ([(np.float64(1.0), "a"), (np.float64(3.0), "a")], 1),
        ([(2, "a"), (3, "a"), (2, "a")], 2),
        ([(1, "a"), (1.0, "a"), (True, "a")], 3),
        ([(1.0, "a"), (1.0, "b"), (1.0, None)], 3),
        ([(np.ones(5), "a"), (np.ones((2, 5)), "a"), (np.ones(5, "f4"), "a")], 3),
        ([({"f": 2.0}, "a"), ([2.0], "a")], 2),
    ],
)
def test_what_is_another_kind_of_call(calls, traces, log, synchronous):
    """Entries of arrays and floats may differ; ints, strings, structures, shapes, dtypes not."""

    def fun(x, factor, text):
        write(log, "ran")
        (factor,) = jax.tree_util.tree_leaves(factor)
        return jnp.sum(jnp.sin(x) * factor) * (1.0 if text == "a" else 2.0)

    for factor, text in calls:
        gradient = dg.grad(lambda x, f=factor, t=text: model_of(fun)(x, f, t))(X)
        number = np.asarray(optree.tree_leaves(factor)[0])
        factors = np.broadcast_to(number, (*number.shape[:-1], 5)).reshape(-1, 5)
        assert_allclose(gradient, np.cos(X) * factors.sum(0) * (1.0 if text == "a" else 2.0))
    assert len(lines(log)) == traces


def test_the_order_of_a_dicts_keys_is_a_part_of_the_kind(synchronous):
    """Models may go by it; structures that differ in nothing else are equal."""

    def fun(x, steps):
        for name, factor in steps.items():
            x = factor * x if name == "times" else x + factor
        return jnp.sum(x**2)

    for steps, inner in (({"times": 2.0, "plus": 3.0}, 3.0), ({"plus": 3.0, "times": 2.0}, 6.0)):
        close(dg.grad(lambda x, s=steps: model_of(fun)(x, s))(X), 4.0 * (2.0 * X + inner))


def test_what_a_model_refers_to_may_change(synchronous):
    """A compiled model would keep what it saw at first."""
    factors = [2.0]
    table = {"offset": np.ones(5)}

    def fun(x):
        return jnp.sum((x + table["offset"]) ** factors[0])

    for factor in (2.0, 3.0):
        factors[0] = factor
        for offset in (0.0, 1.0):
            table["offset"][:] = offset
            close(dg.grad(lambda x: model_of(fun)(x))(X), factor * (X + offset) ** (factor - 1))


def test_the_oldest_programs_are_dropped(synchronous, monkeypatch, log):
    def fun(x, n):
        write(log, f"{n}")
        return jnp.sum(x) * n

    monkeypatch.setattr(compiled, "MOST_KEPT", 2)
    monkeypatch.setattr(compiled, "_programs", {})
    for n in (1, 2, 1, 3, 1, 2):
        dg.grad(lambda x, n=n: model_of(fun)(x, n))(X)
    assert lines(log) == ["1", "2", "3", "2"]
    assert len(compiled._programs) <= 2


class Strange:
    """An argument of which nobody knows whether it changes."""

    def __init__(self, factor):
        self.factor = factor


def test_a_call_with_another_kind_of_argument_is_not_compiled(synchronous, log):
    strange = Strange(2.0)

    def fun(x, other):
        write(log, "ran")
        return jnp.sum(jnp.sin(x) * other.factor)

    for factor in (2.0, 3.0):
        strange.factor = factor
        close(dg.grad(lambda x: model_of(fun)(x, strange))(X), factor * np.cos(X))
        close(model_of(fun)(X, strange).compute(), factor * np.sin(X).sum())
    assert len(lines(log)) == 4


def test_a_function_that_cannot_be_pickled_is_not_compiled():
    lock, factors = threading.Lock(), [2.0]

    def fun(x):
        with lock:
            return jnp.sum(jnp.sin(x) * factors[0])

    with dask.config.set(scheduler="threads"):
        for factor in (2.0, 3.0):
            factors[0] = factor
            close(dg.grad(lambda x: model_of(fun)(x))(X), factor * np.cos(X))


# ------------------------------------------------------------------------------------ structures


@optree.dataclasses.dataclass(namespace="daskgrad")
class State:
    position: np.ndarray
    name: str = dataclasses.field(default="state")


def test_values_keep_their_structure_and_what_is_no_array(client):
    def fun(x, steps, state):
        path = [state.position * n for n in range(steps)]
        return {"path": path, "steps": steps, "state": State(jnp.sin(x), state.name), "none": None}

    def last(value):
        return anp.sum(value["path"][-1]) + anp.sum(value["state"].position) * value["steps"]

    def graph(x, state):
        return dg.delayed(last)(model_of(fun)(x, 3, state))

    state = State(X * 2.0, "first")
    x, moved = dg.grad(graph, (0, 1))(X, state)
    close(x, 3.0 * np.cos(X))
    close(moved.position, np.full(5, 2.0))
    assert moved.name is None
    value = model_of(fun)(X, 3, state).compute()
    assert value["state"].name == "first"
    assert value["steps"] == 3
    assert len(value["path"]) == 3


def test_the_structure_of_a_value_may_depend_on_shapes(synchronous):
    def fun(x):
        return [x * n for n in range(x.shape[0])], x.shape[0]

    for _ in range(2):
        for size in (2, 4):
            parts, count = dg.vjp(lambda x: model_of(fun)(x), np.ones(size))[0]
            assert len(parts) == count == size


def test_an_argument_may_be_used_twice(synchronous):
    model = model_of(lambda a, b, c: jnp.sum(a * b * c))
    close(dg.grad(lambda x: model(x, X, x))(X), 2.0 * X * X)
    y = np.float64(2.0)
    value, (x, s) = dg.value_and_grad(lambda x, s: model(x, s, x), (0, 1))(X, y)
    close(value, 2.0 * X @ X)
    close(x, 4.0 * X)
    close(s, X @ X)


def test_rules_of_their_own_survive_compilation(synchronous):
    """Checkpoints, loops, custom rules and inner compilations are part of what is compiled."""

    def fun(x):
        inner = jax.jit(lambda y: with_slope(2.0)(y) * 2.0)
        return (
            jnp.sum(jax.checkpoint(inner)(x))
            + jax.lax.scan(lambda c, e: (c * jnp.cos(e), e), 1.0, x)[0]
        )

    expected = 4.0 * np.cos(X) - np.prod(np.cos(X)) * np.tan(X)
    close(dg.grad(lambda x: model_of(fun)(x))(X), expected)


# ----------------------------------------------------------------------------------------- dtypes


def test_the_processs_own_precision_is_left_alone(synchronous):
    before = jnp.zeros(2).dtype
    assert dg.grad(lambda x: model_of(lambda x: jnp.sum(x * jnp.ones(5)))(x))(X).dtype == "f8"
    assert jnp.zeros(2).dtype == before == np.float32
    assert jax.config.jax_enable_x64 is False


def test_results_belong_to_the_caller(synchronous):
    """JAX's own arrays cannot be written to."""
    value, pullback = dg.vjp(lambda x: model_of(lambda x: x * 2.0)(x), X)
    value += 1.0
    close(pullback(X)[0], 2.0 * X)
    found = model_of(lambda x: x)(X).compute()
    found += 1.0
    assert X[0] == 0.1
    model = model_of(lambda x: {"x": x, "constant": np.zeros(2)})
    for _ in range(2):  # constants are kept with the compiled model, and handed out as copies
        for value in (model(X).compute(), dg.vjp(lambda x: model(x), X)[0]):
            assert_array_equal(value["constant"], np.zeros(2))
            value["constant"] += 1.0


def test_constants_of_jax_are_arrays_like_others(client, log):
    def fun(x, c, key):
        write(log, f"{os.getpid()}")
        return jnp.sum(x * c * jax.random.normal(key, (5,)))

    with jax.enable_x64(True):
        drawn = np.asarray(jax.random.normal(jax.random.PRNGKey(1), (5,)))
    for factor in (1.0, 2.0):
        constant = jnp.full(5, factor)
        gradient = dg.grad(lambda x, c=constant: model_of(fun)(x, c, jax.random.PRNGKey(1)))(X)
        close(gradient, factor * drawn)
    assert len(lines(log)) == len(set(lines(log)))


def test_a_function_may_refer_to_arrays_of_jax(client):
    constant = jnp.full(5, 2.0)
    close(dg.grad(lambda x: model_of(lambda x: jnp.sum(x * constant), name="m")(x))(X), 2.0)


# --------------------------------------------------------------------------------- JAX's functions


def with_slope(factor):
    """The sine, whose rule says that it is so many times as steep."""

    @jax.custom_vjp
    def sine(x):
        return jnp.sin(x)

    sine.defvjp(lambda x: (jnp.sin(x), x), lambda x, g: (factor * g * jnp.cos(x),))
    return sine


def test_functions_with_rules_of_their_own_travel(client):
    @jax.custom_jvp
    def pushed(x):
        return jnp.sin(x)

    pushed.defjvp(lambda x, t: (jnp.sin(x[0]), 4.0 * t[0] * jnp.cos(x[0])))
    for function, factor in ((with_slope(2.0), 2.0), (pushed, 4.0)):
        model = model_of(lambda x, f=function: jnp.sum(f(x)), name="m")
        close(dg.grad(lambda x, m=model: m(x))(X), factor * np.cos(X))


def test_a_function_that_is_compiled_already_is_a_model(client):
    model = model_of(jax.jit(lambda x: jnp.sum(jnp.sin(x))), name="m")
    close(dg.grad(lambda x: model(x))(X), np.cos(X))


# ----------------------------------------------------------------------------------------- errors


MISTAKES = {
    "numpy": lambda x: np.sum(np.sin(x)),
    "float": lambda x: float(x[0]),
    "branch": lambda x: jnp.sum(x) if x[0] > 0 else 0.0,
    "mask": lambda x: jnp.sum(x[x > 0.5]),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_model_that_is_not_written_for_jax_gets_a_hint(mistake, synchronous):
    model = model_of(MISTAKES[mistake], name="mistaken")
    for stage, compute in (
        ("forward", lambda: dg.grad(lambda x: model(x))(X)),
        ("value", lambda: model(X).compute()),
    ):
        with pytest.raises(Exception) as caught:  # noqa: PT011  JAX has a class for each
            compute()
        notes = "".join(caught.value.__notes__)
        assert f"{stage} pass of model 'mistaken', called with (float64[5])" in notes
        assert "Use jax.numpy instead of numpy" in notes
        assert type(caught.value).__module__ == "jax.errors"


def test_an_assignment_gets_a_hint(synchronous):
    with pytest.raises(TypeError) as caught:
        dg.grad(lambda x: model_of(lambda x: x.__setitem__(0, 1.0))(x))(X)
    assert "x.at[i].set(y)" in "".join(caught.value.__notes__)


class Opaque:
    def __init__(self, x):
        self.x = x


def test_a_value_whose_arrays_cannot_be_found_is_an_error(synchronous):
    model = model_of(lambda x: Opaque(jnp.sum(x)))
    for compute in (lambda: dg.grad(lambda x: model(x))(X), lambda: model(X).compute()):
        with pytest.raises(TypeError, match="backend 'jax' returned Opaque; expected arrays"):
            compute()


def test_a_model_that_failed_may_be_right_later(synchronous, tmp_path):
    """What failed while it was compiled is compiled again."""

    def fun(x, path):
        if not os.path.exists(path):
            raise FileNotFoundError(path)
        return jnp.sum(x)

    path = str(tmp_path / "there")
    with pytest.raises(FileNotFoundError):
        dg.grad(lambda x: model_of(fun)(x, path))(X)
    write(path, "now")
    assert_array_equal(dg.grad(lambda x: model_of(fun)(x, path))(X), np.ones(5))
