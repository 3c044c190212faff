"""What happens to a pullback that leaves its process; the bits are the same whatever happens."""

import logging

import autograd.numpy as np
import dask
import numpy
import pytest
from clusters import cluster, holder_of
from comparisons import assert_same
from dask.sizeof import sizeof
from lengths import in_short
from numpy.testing import assert_array_equal
from policies import Always, Never, Only, captured_under, moved, moving, under
from probes import lines, write

import daskgrad as dg
from daskgrad.autodiff.libraries import registry
from daskgrad.autodiff.models import travel
from daskgrad.autodiff.models.pullbacks import capture, pull_back
from daskgrad.autodiff.models.tracing import Active
from daskgrad.autodiff.models.travel import Measured, sent
from daskgrad.autodiff.values.cotangents import Cotangent
from daskgrad.autodiff.values.trees import flatten
from daskgrad.tasks.task_functions import TaskFunction

X = np.linspace(0.1, 1.0, 6)


# ------------------------------------------------------------------------------------ decisions


@pytest.mark.parametrize(
    ("tape", "to_network", "to_disk"),
    [
        (Measured(nbytes=100, steps=10, seconds=1e-4), False, False),
        (Measured(nbytes=100, steps=10, seconds=1.0), True, True),
        (Measured(nbytes=10**8, steps=10, seconds=0.5), False, True),
        (Measured(nbytes=10**9, steps=10, seconds=0.5), False, False),
        (Measured(nbytes=100, steps=10**6, seconds=10.0), False, False),
    ],
)
def test_a_tape_goes_along_where_that_is_quicker(tape, to_network, to_disk):
    chosen = dg.PullbackPolicy()
    assert chosen.sends(tape, to_disk=False) is to_network
    assert chosen.sends(tape, to_disk=True) is to_disk


def test_costs_can_be_set():
    tape = Measured(nbytes=10**6, steps=1000, seconds=0.05)
    assert not dg.PullbackPolicy().sends(tape, to_disk=False)
    assert dg.PullbackPolicy(step_seconds=1e-6).sends(tape, to_disk=False)
    assert not dg.PullbackPolicy(step_seconds=1e-6, network_rate=1e6).sends(tape, to_disk=False)
    assert dg.PullbackPolicy(step_seconds=1e-6, network_rate=1e6).sends(tape, to_disk=True)
    assert dg.PullbackPolicy(unseen_bytes=10**6).keeps(tape, unseen=0)
    assert not dg.PullbackPolicy(unseen_bytes=10**6).keeps(tape, unseen=1)


def test_what_is_measured():
    def two_steps(x):
        return np.sin(x) * np.ones(1000)[:, None]

    measured = captured_under(Always(), two_steps, X).pullback.measured()
    assert measured.steps == 3  # and the argument itself
    assert measured.nbytes == 8 * 1000 + X.nbytes
    assert 0.0 < measured.seconds < 60.0


def test_a_policy_that_fails_leaves_the_tape_behind(caplog):
    """Nothing may be raised where a result is pickled: the cluster would hang."""

    class Failing(dg.PullbackPolicy):
        def sends(self, tape, to_disk):
            raise KeyError("gone")

    caplog.set_level(logging.INFO, "daskgrad")
    assert moved(captured_under(Failing(), np.sin, X)).pullback.is_empty
    assert "KeyError: 'gone'" in caplog.text


# ------------------------------------------------------------------------------- how it travels


def test_a_policy_is_loaded_where_it_is_asked_and_not_before(client):
    """The scheduler never loads it, nor does a worker that has nothing to ask."""

    class Unloadable(dg.PullbackPolicy):
        def __reduce__(self):
            return fail, ()

    with under(Unloadable()):
        _, gradient = dg.value_and_grad(lambda x: dg.delayed(np.sum)(dg.delayed(np.sin)(x)))(X)
    assert_array_equal(gradient, np.cos(X))


def fail():
    raise OSError("the policy was loaded")


# --------------------------------------------------------------------------------- the same bits


@dg.custom_vjp
def ruled(x, scale):
    return {"y": np.cumsum(x) * scale, "n": 3}


def ruled_forward(x, scale):
    return {"y": np.cumsum(x) * scale, "n": 3}, (scale, np.cumsum(x)[::-1][::2])


def ruled_backward(residuals, cotangent):
    scale, kept = residuals
    return np.cumsum(cotangent["y"][::-1])[::-1] * scale * (1.0 + 0.0 * kept.sum()), None


ruled.defvjp(ruled_forward, ruled_backward)


@dg.custom_vjp
def plain_ruled(x):
    return np.sin(x)


plain_ruled.defvjp(lambda x: (np.sin(x), x), lambda x, g: (np.cos(x) * g,))
plain_ruled.defjvp(lambda p, t: (np.sin(p[0]), np.cos(p[0]) * t[0]))


def residual(y, x):
    return y**3 + y - np.sin(x)


def newton(x):
    y = numpy.zeros_like(x)
    for _ in range(60):
        y = y - (y**3 + y - numpy.sin(x)) / (3 * y**2 + 1)
    return y


root = dg.implicit(newton, residual)


def through_custom_vjp(x):
    return ruled(np.tanh(x), 2.0)["y"] + plain_ruled(x)


def through_implicit(x):
    return root(x * 2.0) * x


def term(item, x):
    return np.sin(item * x)


def with_nested_sum(x):
    return dg.map_sum(term, [1.0, 2.0, 3.0], x) * x


def with_strides(x):
    matrix = np.outer(x, x)[:, ::-1]
    return np.dot(matrix.T[::2], x) + np.sum(matrix[::2, 1::2] ** 2.0) + x[::2].sum()


def with_pytree(x):
    return {"a": np.sin(x[:3]), "b": [x[3], (x[4:] * 1j, "word")]}


def consumed(y):
    leaves = [leaf for leaf in flatten(y)[0] if not isinstance(leaf, str)]
    return sum([np.sum(np.tanh(np.real(leaf) + np.imag(leaf))) for leaf in leaves])


MODELS = [through_custom_vjp, through_implicit, with_nested_sum, with_strides, with_pytree]


def value_and_grad_of(model):
    return dg.value_and_grad(lambda x: dg.delayed(consumed)(dg.delayed(model)(x)))(X)


def array_sum(x):
    y = dg.map_sum(term, [numpy.arange(6.0) * n for n in range(8)], x, grainsize=3)
    return dg.delayed(consumed)(y)


def smooth(x):
    return dg.delayed(consumed)(dg.delayed(through_smooth)(x))


def through_smooth(x):
    return np.sin(x) * x[::-1] + plain_ruled(x) ** 2


PROGRAMS = {
    **{model.__name__: lambda model=model: value_and_grad_of(model) for model in MODELS},
    "a sum of arrays": lambda: dg.value_and_grad(array_sum)(X),
    "a compensated sum of arrays": lambda: dg.vjp(
        lambda x: dg.map_sum(term, [X, 2 * X, 1e9 * X], x, summation="compensated"), X
    )[1](X),
    "items": lambda: dg.value_and_grad(
        lambda rows, x: dg.delayed(consumed)(dg.map_sum(term, rows, x)), argnums=(0, 1)
    )(numpy.arange(24.0).reshape(4, 6), X),
    "hvp": lambda: dg.hvp(smooth, (X,), (X[::-1].copy(),)),
    "hessian": lambda: dg.hessian(smooth)(X),
    "jacobian": lambda: dg.jacobian(lambda x: dg.delayed(through_custom_vjp)(x), mode="reverse")(X),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_tapes_that_went_along_give_the_same_bits(name, monkeypatch, caplog):
    caplog.set_level(logging.INFO, "daskgrad")
    if name == "hessian":  # compiled pullbacks of several outputs stay where they are
        monkeypatch.setattr(registry, "COMPILED", {})
    unpacked, unpack = [], travel.unpack
    monkeypatch.setattr(travel, "unpack", lambda tape: unpacked.append(1) or unpack(tape))
    with dask.config.set(scheduler="sync"):
        expected = PROGRAMS[name]()
    with dask.config.set(scheduler=moving), under(Never()):
        assert_same(PROGRAMS[name](), expected)
    assert not unpacked
    assert "is traced again" in caplog.text
    caplog.clear()
    with dask.config.set(scheduler=moving), under(Always()):
        assert_same(PROGRAMS[name](), expected)
    assert unpacked
    assert "is traced again" not in caplog.text  # other loggers may say something


def test_dask_is_told_the_size_of_a_tape_that_came_along():
    def heavy(x):
        return np.sum(np.sin(x) * np.ones((1000, 6)), axis=0)

    captured = captured_under(Always(), heavy, X)
    arrived = moved(captured)
    assert 48_000 < sizeof(arrived) < 60_000
    arrived.pullback.unpack()
    assert 48_000 < sizeof(arrived) < 60_000
    assert sizeof(moved(captured_under(Never(), heavy, X))) < 1000


# --------------------------------------------------------------------- spilled, moved, or both

SPILL_ALL = {
    "distributed.worker.memory.target": 1e-9,
    "distributed.worker.memory.spill": False,
    "distributed.worker.memory.pause": False,
    "distributed.worker.memory.terminate": False,
}


def counted(x, path):
    write(path, "ran")
    return np.sin(x) * x[::-1]


def held(log):
    return dg.vjp(lambda x: dg.delayed(consumed)(dg.delayed(counted)(x, log)), X)


@pytest.fixture
def gradient(log):
    with dask.config.set(scheduler="sync"):
        result = held(log)[1](1.0)[0]
    log.write_text("")
    return result


@in_short("to_disk", [True, False], True)
def test_what_is_spilled_is_told_from_what_moves(to_disk, log, gradient):
    """Dask gives the serializers of its messages a context, and those of its spill files none."""
    with cluster(SPILL_ALL) as client:
        with under(Only(to_disk=to_disk)):
            _, pullback = held(log)
        on_disk = client.run(lambda dask_worker: len(dask_worker.data.disk))
        assert sum(on_disk.values()) > 0, "the test needs spilled results"
        assert_array_equal(pullback(1.0)[0], gradient)
        assert len(lines(log)) == (1 if to_disk else 2)


@in_short("to_disk", [True, False], False)
def test_what_moves_is_told_from_what_is_spilled(to_disk, log, gradient, frail):
    with under(Only(to_disk=to_disk)):
        _, pullback = held(log)
    holder = holder_of(frail, "forward-counted")
    frail.retire_workers([holder], close_workers=True)
    assert_array_equal(pullback(1.0)[0], gradient)
    assert len(lines(log)) == (2 if to_disk else 1)


# ----------------------------------------------------------------- what was traced again is kept


@pytest.mark.parametrize(("limit", "runs"), [(0, 4), (10**6, 2)])
def test_a_tape_that_was_traced_again_is_kept_within_the_limit(limit, runs, log):
    chosen = Never(unseen_bytes=limit)
    node = dg.delayed(counted)(dg.variable(X), log)
    call, active = (node.model, node.call), (Active(0, watched=False),)
    captured = moved(TaskFunction(capture, sent(chosen))(*call, active, [X]))
    expected = np.cos(X) * X[::-1] + np.sin(X)[::-1]
    for _ in range(3):
        pulled = TaskFunction(pull_back, sent(chosen))(
            captured, Cotangent((np.ones(6),)), *call, active, [X]
        )
        numpy.testing.assert_allclose(pulled.leaves[0], expected, rtol=1e-15)
    assert len(lines(log)) == runs


@pytest.mark.parametrize(("limit", "runs"), [(0, 24), (10**6, 16)])
def test_a_sum_of_arrays_keeps_what_was_traced_again(limit, runs, log, frail):
    """Its pullbacks are one object; they are kept, and counted, together."""
    items = [numpy.arange(6.0) * n for n in range(8)]

    def logged_term(item, x):
        write(log, "ran")
        return np.sin(item * x)

    with dask.config.set(scheduler="sync"):
        expected = dg.vjp(lambda x: dg.map_sum(term, items, x, grainsize=8), X)[1](X)[0]
    with under(Never(unseen_bytes=limit)):
        _, pullback = dg.vjp(lambda x: dg.map_sum(logged_term, items, x, grainsize=8), X)
    frail.retire_workers([holder_of(frail, "forward-logged-term")], close_workers=True)
    for _ in range(2):
        assert_array_equal(pullback(X)[0], expected)
    assert len(lines(log)) == runs
