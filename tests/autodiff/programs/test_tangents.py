"""Tangents of compiled models, and their gradients: jvp, hvp and Jacobians by programs."""

import itertools

import autograd
import numpy as np
import pytest
from functions_all import TABLE as FUNCTIONS
from functions_all import in_runs
from numpy.testing import assert_array_equal
from recorded import entries_of
from sweep import calls_of
from test_derivatives_within import MATRIX, cube, root
from test_programs import compare

import daskgrad as dg
from daskgrad.autodiff.programs import backend
from daskgrad.autodiff.programs.store import CALLS
from daskgrad.autodiff.tape import linearize
from daskgrad.autodiff.values.trees import flatten

TABLE = np.cos(np.arange(15.0)).reshape(3, 5)
ITEMS = [np.sin(np.arange(5.0) + n) for n in range(40)]


def loss(x):
    return np.sum(np.log1p(np.exp(TABLE @ x))) + 0.5 * np.sum(x * x)


def vector(x):
    return np.tanh(TABLE @ x) * np.sum(x**2)


def tree(p):
    return {"a": p["w"] * np.sum(p["b"]), "b": (p["b"][1:] ** 2, 3, "label")}


def with_gradient(x):
    return np.sum(autograd.grad(loss)(x) ** 2)


def complex_valued(x):
    return np.exp(1j * x) * x[0]


def term(item, x):
    return np.sum(np.tanh(item * x)) + np.sum(x**2)


def points(count=7):
    random = np.random.default_rng(3)
    return [(random.normal(size=5), random.normal(size=5)) for _ in range(count)]


def jvp(m, x, v):
    return dg.jvp(m, (x,), (v,))


def hvp(m, x, v):
    return dg.hvp(m, (x,), (v,))


ASKED = {  # of a model, at a point and along a direction
    "jvp": (loss, jvp),
    "jvp of a vector": (vector, jvp),
    "jvp of a tree": (tree, lambda m, x, v: dg.jvp(m, ({"w": x, "b": v},), ({"w": v, "b": x},))),
    "jvp of complex numbers": (complex_valued, jvp),
    "jvp along one of two": (term, lambda m, x, v: dg.jvp(m, (x, v), (None, x))),
    "jvp of a custom rule": (lambda x: np.sum(cube(x) * x), jvp),
    "hvp of a custom rule": (lambda x: np.sum(cube(x) * x), hvp),
    "jvp of a root": (lambda x: np.sum(root(x, MATRIX) * x), jvp),
    "hvp": (loss, hvp),
    "hvp of a gradient": (with_gradient, hvp),
    "hessian": (loss, lambda m, x, v: dg.hessian(m)(x)),
    "jacobian": (vector, lambda m, x, v: dg.jacobian(m, mode="forward")(x)),
    "gnvp": (vector, lambda m, x, v: dg.gnvp(m, dg.delayed(np.sum), (x,), (v,))),
    "jvp of a sum": (term, lambda m, x, v: jvp(lambda x: dg.map_sum(m, ITEMS, x), x, v)),
    "hvp of a sum": (term, lambda m, x, v: hvp(lambda x: dg.map_sum(m, ITEMS, x), x, v)),
    "hvp of two nodes": (loss, lambda m, x, v: hvp(lambda x: m(x * m(x)), x, v)),
}


@pytest.mark.usefixtures("synchronous")
@pytest.mark.parametrize("name", ASKED)
def test_it_is_compiled_and_has_the_bits_of_the_tape(name):
    model, asked = ASKED[name]

    def fun(*args):  # with programs of its own
        return model(*args)

    for x, v in points():
        found = asked(dg.delayed(fun, compile=True), x, v)
        expected = asked(dg.delayed(model, compile=False), x, v)
        pairs = zip(flatten(found)[0], flatten(expected)[0], strict=True)
        for one, other in pairs:
            assert type(one) is type(other)
            assert_array_equal(one, other)
    entries = [*entries_of(fun, True), *entries_of(fun, False)]
    assert entries
    assert all(entry.ways and not entry.refusal for entry in entries)


@pytest.mark.usefixtures("synchronous")
def test_results_are_the_callers():
    """What a program returns may be a constant of it, or an argument."""
    model = dg.delayed(lambda x: {"x": x, "one": np.ones(5) * 1.0, "sum": np.sum(x)}, compile=True)
    for x, v in points():
        value, tangent = dg.jvp(model, (x,), (v,))
        for each in (value, tangent):
            for name in ("x", "one"):
                each[name] += 1.0
        assert_array_equal(value["one"], 2.0)
        assert_array_equal(tangent["one"], 1.0)
        assert_array_equal(value["x"] - 1.0, (x + 1.0) - 1.0)


@pytest.mark.long
def test_workers_keep_programs_of_tangents(client):
    """Models arrive anew in each task; their programs go by what was sent."""
    model, plain = dg.delayed(loss, compile=True), dg.delayed(loss, compile=False)
    for x, v in points(2 * CALLS):
        found = dg.hvp(lambda x: model(x) + model(2.0 * x), (x,), (v,))
        expected = dg.hvp(lambda x: plain(x) + plain(2.0 * x), (x,), (v,))
        assert_array_equal(found, expected)
    counts = client.run(ways_that_arrived)
    assert sum(counts.values()) >= 1


def ways_that_arrived():
    sent = [each for programs, _ in backend._sent.values() for each in programs._entries.values()]
    return sum([len(entry.ways) for entry in sent])


# ------------------------------------------------------------------ of every function, as a model

FEW = FUNCTIONS[::20]


def test_tangents_have_the_bits_of_the_tape():
    assert refusals_of(FEW, 1, "d") <= 0.1 * len(FEW)


@pytest.mark.long
@in_runs
def test_tangents_have_the_bits_of_the_tape_in_every_dtype(entries):
    refusals_of(entries, 4, "d")
    refusals_of(entries, 1, "fD")


def refusals_of(entries, count, dtypes):
    """Compares tangents and their gradients; the number of calls that cannot be recorded."""
    refused = 0
    for entry in entries:
        for call, dtype in itertools.product(itertools.islice(calls_of(entry), count), dtypes):
            arrays = call.arrays(dtype)
            both = [*arrays]
            both += [np.cos(3.0 * each + 1.0).astype(np.asarray(each).dtype) for each in arrays]
            choices = [[], [*range(len(both))]]
            refused += not compare(dual_of(call, len(arrays)), both, choices, call.name)
    return refused


def dual_of(call, count):
    def values_and_tangents(*arrays):
        outputs, push = linearize(call, arrays[:count])
        pushed = push(arrays[count:])
        return [*outputs, *[tangent for tangent in pushed if tangent is not None]]

    return values_and_tangents
