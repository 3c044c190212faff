"""The protocol of backends, for each of them; registered ones; missing ones."""

import importlib
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import autograd
import autograd.numpy as anp
import numpy as np
import pytest
from clusters import cluster, holder_of
from lengths import in_short
from libraries import BACKENDS, OPTIONAL, arrays_of, as_numpy, require
from numpy.testing import assert_allclose, assert_array_equal
from probes import lines, write
from schedulers import SCHEDULERS

import daskgrad as dg
from daskgrad.autodiff.libraries import registry
from daskgrad.autodiff.models.pullbacks import capture
from daskgrad.autodiff.models.tracing import Active

A = np.linspace(0.1, 1.0, 4)
B = np.linspace(-1.0, 0.5, 4)


@pytest.fixture(params=BACKENDS)
def name(request):
    require(request.param)
    return request.param


@pytest.fixture
def backend(name):
    return registry.load(name)


@pytest.fixture
def xp(name):
    return arrays_of(name)


def product_and_sum(xp):
    """A function of two arrays with outputs of all kinds."""

    def fun(a, b):
        return [xp.sin(a) * b, 7, xp.sum(xp.exp(a)), "text", None]

    return fun


def close(found, expected):
    assert_allclose(found, expected, rtol=1e-14, atol=1e-14)


# -------------------------------------------------------------------------------------- reverse


def test_functions_travel_as_bytes_and_outputs_are_numpy_arrays_and_plain_leaves(backend, xp):
    sent = backend.dumps(product_and_sum(xp))
    assert isinstance(sent, bytes)
    outputs, _ = backend.trace(backend.loads(sent), [A, B])
    assert type(outputs[0]) is np.ndarray
    close(outputs[0], np.sin(A) * B)
    assert type(outputs[1]) is int
    assert outputs[1] == 7
    assert isinstance(outputs[2], np.float64 | np.ndarray)
    assert np.shape(outputs[2]) == ()
    assert outputs[3:] == ["text", None]


def test_cotangents_are_pulled_back_any_number_of_times(backend, xp, random):
    """The pullback is that of autograd, whichever cotangents are missing."""
    _, reference = registry.load("autograd").trace(product_and_sum(anp), [A, B])
    _, tape = backend.trace(product_and_sum(xp), [A, B])
    c = random.standard_normal(4)
    for cotangents in ([c, None, 2.0, None, None], [c, None, None, None, None], [c] + [None] * 4):
        kept = c.copy()
        for found, expected in zip(tape.pull(cotangents), reference.pull(cotangents), strict=True):
            close(found, expected)
        assert_array_equal(c, kept)
    assert tape.pull([None] * 5) == [None, None]
    a, b = tape.pull([None, None, np.float64(1.0), None, None])
    close(a, np.exp(A))
    assert b is None or not np.any(b)


def test_cotangents_are_pulled_back_from_any_thread(backend, xp):
    _, tape = backend.trace(product_and_sum(xp), [A, B])
    cotangents = [B, None, 1.0, None, None]
    with ThreadPoolExecutor(8) as pool:
        for pulled in pool.map(tape.pull, [cotangents] * 8):
            assert_array_equal(pulled, tape.pull(cotangents))


def test_read_only_arrays_are_taken_and_left_alone(backend, xp):
    a, b, c = A.copy(), B.copy(), A.copy()
    for array in (a, b, c):
        array.flags.writeable = False
    _, tape = backend.trace(product_and_sum(xp), [a, b])
    close(tape.pull([c, None, None, None, None])[1], np.sin(A) * A)


@pytest.mark.parametrize("dtype", ["f4", "f8", "c8", "c16"])
def test_dtypes_survive(backend, xp, dtype):
    a, b = A.astype(dtype), B.astype(dtype)
    outputs, tape = backend.trace(lambda a, b: [xp.sin(a) * b], [a, b])
    value = backend.run(lambda a, b: xp.sin(a) * b, (a, b), {})
    _, push = backend.linearize(lambda a, b: [xp.sin(a) * b], [a, b])
    for array in (outputs[0], value, *tape.pull([a]), as_numpy(push([a, b])[0])):
        assert array.dtype == dtype
    assert_allclose(value, outputs[0], rtol=1e-6)


def test_complex_numbers_follow_autograds_convention(backend, xp, random):
    """⟨c, Jv⟩ is the real part of the sum of c * Jv, without conjugates; real and complex mixed."""
    z = random.standard_normal(4) + 1j * random.standard_normal(4)
    c = random.standard_normal(4) + 1j * random.standard_normal(4)

    def fun(xp):
        return lambda z, a: [xp.exp(z) * a, xp.sum(xp.real(z * z) * a)]

    outputs, tape = backend.trace(fun(xp), [z, A])
    expected, reference = registry.load("autograd").trace(fun(anp), [z, A])
    for found, other in zip(outputs, expected, strict=True):
        close(found, other)
    for found, other in zip(tape.pull([c, 1.5]), reference.pull([c, 1.5]), strict=True):
        close(found, np.asarray(other, found.dtype))


def test_outputs_without_derivative_have_none(backend, xp):
    outputs, tape = backend.trace(lambda a: [xp.floor(a), a.shape[0], a > 0.5], [A])
    assert_array_equal(outputs[0], np.floor(A))
    assert outputs[1] == 4
    assert_array_equal(outputs[2], A > 0.5)
    (pulled,) = tape.pull([np.ones(4), None, None])
    assert pulled is None or not np.any(pulled)
    outputs, push = backend.linearize(lambda a: [a > 0.5, 3, "text"], [A])
    assert_array_equal(as_numpy(outputs[0]), A > 0.5)
    assert push([A]) == [None, None, None]


def test_what_a_tape_holds_has_a_size(backend, xp):
    big = np.ones(100_000)
    _, tape = backend.trace(lambda a: [xp.sin(xp.exp(a))], [big])
    assert 8e5 <= sum(array.nbytes for array in tape.held_arrays()) <= 4e6


def test_a_tape_outlives_its_trace(backend, xp):
    tapes = [backend.trace(lambda a, n=n: [xp.sin(a) * n], [A])[1] for n in (1.0, 2.0, 3.0)]
    for n, tape in zip((1.0, 2.0, 3.0), tapes, strict=True):
        close(tape.pull([B])[0], n * np.cos(A) * B)


def test_a_value_is_made_of_numpy_arrays(backend, xp):
    def fun(x, scale, kind="k"):
        return {"a": xp.sin(x["w"]) * scale, "b": [3, kind, (xp.sum(x["w"]), None)]}

    value = backend.run(fun, ({"w": A}, 2.0), {"kind": "other"})
    assert type(value["a"]) is np.ndarray
    close(value["a"], 2.0 * np.sin(A))
    assert value["b"][:2] == [3, "other"]
    assert type(value["b"][2]) is tuple
    close(value["b"][2][0], np.sum(A))
    assert isinstance(value["b"][2][0], np.ndarray | np.generic)
    assert value["b"][2][1] is None


# -------------------------------------------------------------------------------------- forward


def test_tangents_are_pushed_forward_any_number_of_times(backend, xp, random):
    """⟨c, push(t)⟩ = ⟨pull(c), t⟩, and the push is linear."""
    outputs, push = backend.linearize(product_and_sum(xp), [A, B])
    close(as_numpy(outputs[0]), np.sin(A) * B)
    assert outputs[1] == 7
    assert outputs[3:] == ["text", None]
    _, tape = backend.trace(product_and_sum(xp), [A, B])
    for _ in range(3):
        s, t, c = random.standard_normal((3, 4))
        pushed = push([s, t])
        pulled = tape.pull([c, None, 0.3, None, None])
        left = c @ as_numpy(pushed[0]) + 0.3 * as_numpy(pushed[2])
        assert left == pytest.approx(pulled[0] @ s + pulled[1] @ t, rel=1e-13)
        assert pushed[1] is None
        assert pushed[3:] == [None, None]
        close(as_numpy(push([2.0 * s, 2.0 * t])[0]), 2.0 * as_numpy(pushed[0]))
    pushed = push([None, B])  # what is missing is zero
    close(as_numpy(pushed[0]), np.sin(A) * B)
    assert pushed[2] is None or not np.any(as_numpy(pushed[2]))
    for each in push([None, None]):
        assert each is None or not np.any(as_numpy(each))


class Slope:
    """The directional derivative of a function, as the function of a model."""

    def __init__(self, backend, fun):
        self.backend = backend
        self.fun = fun

    def __call__(self, x, v):
        _, push = registry.load(self.backend).linearize(lambda x: [self.fun(x)], [x])
        return push([v])[0]


def cubic(xp):
    def fun(x):
        return xp.sum(xp.sin(x) * x**3)

    return fun


@in_short("scheduler", SCHEDULERS, "sync", "cluster", indirect=True)
def test_reverse_over_forward_is_a_hessian_vector_product(name, xp, scheduler):
    """A directional derivative is a model like any other."""
    slope = dg.delayed(Slope(name, cubic(xp)), name="slope", backend=name)
    gradient, hessian = autograd.grad(cubic(anp))(A), autograd.hessian(cubic(anp))(A)
    assert_allclose(slope(dg.variable(A), B).compute(), gradient @ B, rtol=1e-12)
    value, (x, v) = dg.value_and_grad(slope, (0, 1))(A, B)
    assert_allclose(value, gradient @ B, rtol=1e-12)
    assert_allclose(x, hessian @ B, rtol=1e-12)
    assert_allclose(v, gradient, rtol=1e-12)


# ----------------------------------------------------------------------------------- registered


class Halving:
    """A backend of a script: autograd, with all cotangents halved."""

    def __init__(self, factor=0.5):
        self.factor = factor
        backend = registry.load("autograd")
        self.dumps, self.loads, self.run = backend.dumps, backend.loads, backend.run

    def trace(self, fun, arrays):
        outputs, tape = registry.load("autograd").trace(fun, arrays)
        return outputs, HalvingTape(tape, self.factor)

    def linearize(self, fun, arrays):
        raise NotImplementedError("forward mode")


class HalvingTape:
    def __init__(self, tape, factor):
        self.tape = tape
        self.factor = factor

    def pull(self, cotangents):
        return [each if each is None else self.factor * each for each in self.tape.pull(cotangents)]

    def held_arrays(self):
        return self.tape.held_arrays()


@pytest.fixture
def fresh_registry(monkeypatch):
    """What a test registers is forgotten after it, and what others have registered until then."""
    names = {*registry.NAMES, *registry.UNNAMED} & registry._loaded.keys()
    own = {name: registry._loaded[name] for name in names}
    monkeypatch.setattr(registry, "_loaded", own)


def local_backend():
    """A backend that can only travel by value: its class is not to be found in any module."""

    class Local(Halving):
        pass

    return Local()


@in_short("scheduler", SCHEDULERS, "sync", "cluster", indirect=True)
@pytest.mark.parametrize("make", [Halving, local_backend])
def test_a_registered_object_travels_with_its_models(make, fresh_registry, scheduler):
    dg.register_backend("halving", make())
    model = dg.delayed(lambda x: anp.sum(anp.sin(x)), name="model", backend="halving")
    term = dg.delayed(lambda item, x: anp.sum(x * item), name="term", backend="halving")
    value, gradient = dg.value_and_grad(lambda x: model(x) + dg.map_sum(term, [A, B], x))(A)
    close(value, np.sum(np.sin(A)) + A @ (A + B))
    close(gradient, 0.5 * np.cos(A) + 0.5 * (A + B))
    assert model(A).compute() == np.sum(np.sin(A))
    told = dg.explain(dg.delayed(anp.sum, name="total", backend="halving"), A)
    assert told.startswith("'total' is not compiled: only models of autograd are")
    assert "'halving'" in told


def test_a_registered_object_travels_as_it_is_when_the_model_is_sent(fresh_registry, client):
    backend = local_backend()
    dg.register_backend("halving", backend)
    model = dg.delayed(lambda x: anp.sum(anp.sin(x)), backend="halving")
    term = dg.delayed(lambda item, x: anp.sum(anp.sin(x) * item), name="m", backend="halving")
    with dg.place([A, B]) as shards:
        gradient = dg.grad(lambda x: dg.map_sum(term, shards, x))(A)
    close(gradient, 0.5 * np.cos(A) * (A + B))
    for factor in (0.5, 0.25):
        backend.factor = factor
        close(dg.grad(lambda x: model(x))(A), factor * np.cos(A))


def test_a_module_travels_by_its_path(fresh_registry, client):
    module = importlib.import_module("daskgrad.autodiff.tape")
    dg.register_backend("again", module)
    assert registry.sent("again") == registry.SentBackend("again", module.__name__, b"")
    model = dg.delayed(lambda x: anp.sum(anp.sin(x)), backend="again")
    close(dg.grad(lambda x: model(x))(A), np.cos(A))


def test_a_newer_backend_takes_the_place_of_an_older_one_of_its_name(fresh_registry):
    dg.register_backend("halving", Halving(0.5))
    dg.register_backend("halving", Halving(0.125))
    model = dg.delayed(lambda x: anp.sum(x), backend="halving")
    close(dg.grad(lambda x: model(x))(A), np.full(4, 0.125))
    with pytest.raises(ValueError, match=r"choose one of autograd, jax, torch, halving, or"):
        dg.delayed(abs, backend="halfing")


# -------------------------------------------------------------------------------------- missing


def hidden(library):
    return f"import sys\nsys.modules[{library!r}] = None\n"


@in_short("name", OPTIONAL, "jax")
def test_a_missing_library_is_an_error_that_names_the_extra(name):
    """When the model is made; without it daskgrad works."""
    code = hidden(name) + (
        "import daskgrad as dg\n"
        "try:\n"
        f"    dg.delayed(abs, backend={name!r})\n"
        "except ModuleNotFoundError as error:\n"
        "    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert f"backend '{name}' needs {name}, which is not installed on" in done.stdout
    assert f'pip install "daskgrad[{name}]"' in done.stdout


@pytest.mark.optional
@pytest.mark.parametrize("name", OPTIONAL)
def test_a_library_that_a_worker_lacks_is_an_error_of_the_model(name, tmp_path):
    xp = arrays_of(name)
    preload = tmp_path / "preload.py"
    preload.write_text(hidden(name))
    model = dg.delayed(lambda x: xp.sum(x), name="model", backend=name)
    total = dg.delayed(lambda item, x: xp.sum(x), name="term", backend=name)
    with cluster({"distributed.worker.preload": [str(preload)]}, n_workers=1):
        for fun in (lambda x: model(x), lambda x: dg.map_sum(total, [A, B], x)):
            with pytest.raises(ModuleNotFoundError, match=rf"daskgrad\[{name}\]") as caught:
                dg.grad(fun)(A)
            assert "forward pass of model" in "".join(caught.value.__notes__)
        with pytest.raises(ModuleNotFoundError, match=rf"daskgrad\[{name}\]"):
            model(A).compute()


# --------------------------------------------------------------------- models of each backend


@pytest.mark.parametrize("keep", ["auto", "tape", "gradient", "recompute"])
def test_all_ways_to_keep_give_the_same_gradient(name, xp, keep, synchronous):
    model = dg.delayed(lambda x, c: xp.sum(xp.sin(x) * c), name="m", backend=name, keep=keep)
    value, gradient = dg.value_and_grad(lambda x: model(x, B) * 3.0)(A)
    close(value, 3.0 * np.sin(A) @ B)
    close(gradient, 3.0 * np.cos(A) * B)


@pytest.mark.optional
@pytest.mark.parametrize("name", OPTIONAL)
def test_a_captured_call_is_pickled_without_the_library(name):
    xp = arrays_of(name)
    node = dg.delayed(lambda x: xp.sin(x), name="m", backend=name)(dg.variable(A))
    captured = capture(node.model, node.call, (Active(0, watched=False),), [A])
    assert not captured.pullback.is_empty
    data = pickle.dumps(captured)
    assert name.encode() not in data
    assert pickle.loads(data).pullback.is_empty


@pytest.mark.optional
@pytest.mark.parametrize("name", OPTIONAL)
def test_a_pullback_whose_worker_retires_is_traced_again_elsewhere(name, tmp_path, frail):
    xp, log = arrays_of(name), str(tmp_path / "log")

    def exponential(x):
        write(log, "ran")
        return xp.exp(x)

    model = dg.delayed(exponential, name="model", backend=name)
    value, pullback = dg.vjp(lambda x: model(x), A)
    close(value, np.exp(A))
    assert lines(log) == ["ran"]
    frail.retire_workers([holder_of(frail, "forward-model")], close_workers=True)
    close(pullback(B)[0], np.exp(A) * B)
    close(pullback(A)[0], np.exp(A) * A)
    assert lines(log) == ["ran", "ran"]


def test_items_that_are_differentiated(name, xp, synchronous):
    model = dg.delayed(lambda item, x: xp.sum(xp.sin(item[0] * x) * item[1]), backend=name)
    data, p = [B * n for n in range(5)], np.linspace(0.5, 1.5, 5)
    rows = list(zip(p, data, strict=True))
    for_each, shared = dg.grad(
        lambda p, x: dg.map_sum(model, dg.zip(p, data), x, grainsize=2), (0, 1)
    )(p, A)
    close(for_each, [np.sum(A * np.cos(q * A) * d) for q, d in rows])
    close(shared, sum(q * np.cos(q * A) * d for q, d in rows))


def test_an_argument_that_is_not_used_has_a_zero_gradient_and_a_warning(name, xp, synchronous):
    def fun(x, y, z):
        return {"value": xp.sum(xp.sin(x)), "unused": y.shape[0], "rounded": (z > 0.5) * 1}

    model = dg.delayed(fun, backend=name)
    last = dg.delayed(lambda d: d["value"] + d["unused"] + anp.sum(d["rounded"]))
    with pytest.warns(UserWarning, match="does not depend") as caught:
        x, y, z = dg.grad(lambda x, y, z: last(model(x, y, z)), (0, 1, 2))(A, A, A)
    assert [str(each.message).split("'")[3] for each in caught] == ["y", "z"]
    close(x, np.cos(A))
    for gradient in (y, z):
        assert_array_equal(gradient, np.zeros(4))


def test_a_sum_inside_a_model_is_a_loop(name, xp, synchronous):
    def fun(x, items):
        return dg.map_sum(lambda item, x: xp.sum(item * x), items, x)

    close(dg.grad(lambda x: dg.delayed(fun, backend=name)(x, [A, B]))(A), A + B)


def test_an_error_of_the_models_own_gets_no_hint(name, synchronous):
    def fails(x):
        raise ValueError("of its own")

    with pytest.raises(ValueError, match="of its own") as caught:
        dg.grad(lambda x: dg.delayed(fails, backend=name)(x))(A)
    assert not any(word in "".join(caught.value.__notes__) for word in ("numpy", "torch"))


HALVES = {"jax": lambda x: x.astype("bfloat16") * 2, "torch": lambda x: x.bfloat16() * 2}


@pytest.mark.optional
@pytest.mark.parametrize("name", OPTIONAL)
def test_half_precision_that_numpy_lacks_comes_out_as_single(name, synchronous):
    require(name)
    model = dg.delayed(HALVES[name], backend=name)
    value, pullback = dg.vjp(lambda x: model(x), A)
    assert value.dtype == model(A).compute().dtype == np.float32
    assert_allclose(value, 2.0 * A, rtol=1e-2)
    assert_allclose(pullback(value)[0], 4.0 * A, rtol=1e-2)
