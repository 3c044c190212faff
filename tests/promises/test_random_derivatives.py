"""Forward mode and second order on random programs: laws that hold for whatever they compute."""

import autograd
import autograd.numpy as np
import dask
import optree
import programs
import pytest
from hypothesis import HealthCheck, given, settings
from numpy.testing import assert_allclose, assert_array_equal

import daskgrad as dg

pytestmark = [
    pytest.mark.filterwarnings("ignore:the output of .* does not depend on:UserWarning"),
    pytest.mark.filterwarnings("ignore:Output seems independent of input:UserWarning"),
    pytest.mark.filterwarnings(  # threads of a cluster draw while a strategy does
        "ignore:Do not use the `random` module:hypothesis.errors.HypothesisDeprecationWarning"
    ),
]

with_fixture = {"deadline": None, "suppress_health_check": list(HealthCheck)}


def like(tree, random):
    """A random direction in the shape of a tree of arrays."""
    return optree.tree_map(lambda leaf: random.standard_normal(np.shape(leaf))[()], tree)


def inner(first, second):
    return np.dot(flat(first), flat(second))


def flat(tree):
    return np.concatenate([np.ravel(leaf) for leaf in optree.tree_leaves(tree)])


def close(first, second, scale, bound=1e-12):
    return abs(first - second) <= bound * max(1.0, scale)


def many_outputs(program):
    """The program with all its outputs side by side, not added up."""

    def fun(*arguments):
        values = programs.start(*arguments)
        for step in program.steps:
            values.append(programs.do(step, values, programs.DASKGRAD))
        return {"values": [values[number] for number in program.output]}

    return fun


def require_transpose(program, random):
    fun, primals = many_outputs(program), program.arguments
    directions = like(primals, random)
    value, tangent = dg.jvp(fun, primals, directions)
    again, pullback = dg.vjp(fun, *primals)
    assert_array_equal(flat(value), flat(again))
    cotangent = like(value, random)
    pulled = pullback(cotangent)
    size = magnitude(tangent, cotangent) + magnitude(pulled, directions)
    assert close(inner(tangent, cotangent), inner(directions, pulled), size)


def magnitude(first, second):
    """What the rounding error of an inner product is relative to."""
    return np.dot(np.abs(flat(first)), np.abs(flat(second)))


@settings(max_examples=30, **with_fixture)
@given(programs.programs())
def test_a_jacobian_and_its_transpose_agree(program):
    with dask.config.set(scheduler="sync"):
        require_transpose(program, np.random.default_rng(0))


@pytest.mark.long
@settings(max_examples=100, **with_fixture)
@given(programs.programs())
def test_a_jacobian_and_its_transpose_agree_at_length(program):
    with dask.config.set(scheduler="sync"):
        require_transpose(program, np.random.default_rng(0))


@pytest.mark.long
@settings(max_examples=30, **with_fixture)
@given(program=programs.programs())
def test_a_jacobian_and_its_transpose_agree_on_every_scheduler(scheduler, program):
    require_transpose(program, np.random.default_rng(0))


def product_by_autograd(program, directions):
    """The Hessian-vector product of the plain program, reverse over reverse, as one vector."""

    def plain(vector):
        return program.plain(*programs.shaped(vector, program.arguments))

    along = flat(directions)
    return autograd.grad(lambda v: np.dot(autograd.grad(plain)(v), along))(flat(program.arguments))


def require_symmetric_hessian(program):
    random, primals = np.random.default_rng(0), program.arguments
    one, other = like(primals, random), like(primals, random)
    with dask.config.set(scheduler="sync"):
        gradients = dg.grad(program, argnums=(0, 1, 2))(*primals)
        again, products = dg.hvp(program, primals, one)
        _, others = dg.hvp(program, primals, other)
        _, tangent = dg.jvp(program, primals, one)
    expected = product_by_autograd(program, one)
    scale = max(np.max(np.abs(expected)), np.max(np.abs(flat(gradients))))
    assert_allclose(flat(again), flat(gradients), 1e-12, 1e-12 * scale)
    assert_allclose(flat(products), expected, 1e-9, 1e-10 * max(1.0, scale))
    size = magnitude(products, other) + magnitude(others, one)
    assert close(inner(products, other), inner(others, one), size, 1e-10)
    assert close(tangent, inner(gradients, one), magnitude(gradients, one))


@settings(max_examples=30, **with_fixture)
@given(programs.programs())
def test_a_hessian_vector_product_is_autograds_and_the_hessian_is_symmetric(program):
    require_symmetric_hessian(program)


@pytest.mark.long
@settings(max_examples=100, **with_fixture)
@given(programs.programs())
def test_a_hessian_vector_product_is_autograds_at_length(program):
    require_symmetric_hessian(program)


def require_same_bits(program, every_scheduler):
    directions = like(program.arguments, np.random.default_rng(0))
    results = every_scheduler(
        lambda: flat(dg.hvp(program, program.arguments, directions)).tobytes()
    )
    assert len(set(results.values())) == 1


@settings(max_examples=4, **with_fixture)
@given(program=programs.programs())
def test_hessian_vector_products_are_the_same_bits_on_every_scheduler(every_scheduler, program):
    require_same_bits(program, every_scheduler)


@pytest.mark.long
@settings(max_examples=12, **with_fixture)
@given(program=programs.programs())
def test_hessian_vector_products_are_the_same_bits_at_length(every_scheduler, program):
    require_same_bits(program, every_scheduler)
