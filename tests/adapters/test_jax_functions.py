"""Sums as functions of JAX's arrays."""

import numpy as np
import pytest
from adapted import ITEMS, A, B, expected, in_threads, over
from numpy.testing import assert_allclose

import daskgrad as dg

pytestmark = pytest.mark.optional
jax = pytest.importorskip("jax")


@pytest.fixture(autouse=True)
def double():
    with jax.enable_x64(True):
        yield


@pytest.mark.parametrize("is_compiled", [False, True])
def test_value_and_gradients_are_part_of_a_program(is_compiled):
    called = dg.adapters.as_jax(over(ITEMS))

    def program(a, b):
        return 3.0 * called(jax.numpy.exp(a), 2.0 * b)

    both = jax.value_and_grad(program, (0, 1))
    value, (by_a, by_b) = (jax.jit(both) if is_compiled else both)(A, B)
    wanted = expected(np.exp(A), 2.0 * B)
    assert_allclose(value, 3.0 * wanted[0])
    assert_allclose(by_a, 3.0 * wanted[1] * np.exp(A))
    assert_allclose(by_b, 6.0 * wanted[2])
    assert_allclose(jax.jit(program)(A, B), 3.0 * wanted[0])


def test_arguments_may_be_trees_with_integers():
    called = dg.adapters.as_jax(lambda p, n: over(ITEMS)(p["a"], p["b"]) * n)
    tree, (_, by_a, by_b) = {"a": A, "b": B}, expected()
    gradient = jax.jit(jax.grad(called))(tree, 2)
    assert_allclose(gradient["a"], 2.0 * by_a)
    assert_allclose(gradient["b"], 2.0 * by_b)


def test_single_precision_stays_single():
    called = dg.adapters.as_jax(over(ITEMS))
    value, gradient = jax.value_and_grad(called)(np.float32(A), B.astype(np.float32))
    assert (value.dtype, gradient.dtype) == (np.float32, np.float32)
    assert_allclose(gradient, expected()[1], rtol=1e-5)


def test_gradients_of_complex_arrays_are_those_of_jax():
    def distance(np, z, x):
        return np.sum(np.real(z * z * (1.0 + 2.0j) * x) + np.abs(z) ** 3)

    called = dg.adapters.as_jax(dg.delayed(lambda z, x: distance(np, z, x)))
    point = np.array([1.0 + 2.0j, 0.5 - 1.0j]), np.float32(2.0)
    ours = jax.value_and_grad(lambda z, x: called(2.0j * z, x), (0, 1))(*point)
    theirs = jax.value_and_grad(lambda z, x: distance(jax.numpy, 2.0j * z, x), (0, 1))(*point)
    for found, wanted in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        assert found.dtype == wanted.dtype
        assert_allclose(found, wanted)


def test_mapped_it_is_called_for_each():
    called = dg.adapters.as_jax(over(ITEMS))
    points = np.arange(3.0)
    found = jax.vmap(jax.grad(called), (0, None))(points, B)
    assert_allclose(found, [expected(a)[1] for a in points])


def test_threads_share_it_over_placed_items(client):
    with dg.place(ITEMS) as shards:
        gradient = jax.jit(jax.grad(dg.adapters.as_jax(over(shards))))
        with jax.enable_x64(True):
            gradient(A, B)
        found = in_threads(lambda n: in_double(gradient, A + n), range(6))
    assert_allclose(found, [expected(A + n)[1] for n in range(6)])


def in_double(gradient, a):
    with jax.enable_x64(True):  # of this thread
        return float(gradient(a, B))


def test_errors_reach_the_caller():
    def broken(a):
        raise ZeroDivisionError("broken")

    with pytest.raises(jax.errors.JaxRuntimeError, match=r"ZeroDivisionError: broken"):
        dg.adapters.as_jax(lambda a: dg.delayed(broken)(a))(A)
    with pytest.raises(TypeError, match="was called on no floating-point number"):
        dg.adapters.as_jax(lambda a: dg.delayed(np.square)(a))(3)
