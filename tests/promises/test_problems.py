"""Derivatives of programs from the literature, against JAX's of their twins, and by the laws."""

import functools

import numpy as np
import optree
import pytest
from problems import PROBLEMS

import daskgrad as dg

jax = pytest.importorskip("jax", reason="the programs' derivatives are compared with JAX's")

pytestmark = pytest.mark.optional

CLOSE = 1e-10  # the error of a leaf, in parts of the leaf's norm
EXACT = 1e-12  # that of an inner product, in parts of the norms' product


# ------------------------------------------------------------------- what JAX makes of the twins


@functools.cache
def by_jax(problem):
    """The value, the Jacobian (a gradient where the value is a scalar) and a scalar's Hessian."""
    fun, wrt = problem.jax_fun, argnums(problem)

    def derivatives(primals):
        first = jax.jacrev(fun, wrt)(*primals)
        second = jax.hessian(fun, wrt)(*primals) if problem.is_scalar else None
        return fun(*primals), first, second

    with jax.enable_x64(True):
        return optree.tree_map(np.asarray, jax.jit(derivatives)(problem.primals))


def argnums(problem):
    return 0 if len(problem.primals) == 1 else tuple(range(len(problem.primals)))


def jacobian_by_jax(problem):
    return by_jax(problem)[1]


def hessian_by_jax(problem):
    return by_jax(problem)[2]


def vjp_by_jax(problem):
    value, jacobian, _ = by_jax(problem)
    blocks = table(jacobian, value, problem.primals)
    y = leaves(cotangent(problem))
    pulled = [total(map(applied_to_rows, y, column)) for column in zip(*blocks, strict=True)]
    return value, shaped_like(problem.primals, pulled)


def grad_by_jax(problem):
    return by_jax(problem)[:2]


def jvp_by_jax(problem):
    value, jacobian, _ = by_jax(problem)
    return value, times_tangent(jacobian, value, problem)


def hvp_by_jax(problem):
    _, gradient, hessian = by_jax(problem)
    gradient = shaped_like(problem.primals, leaves(gradient))
    return gradient, times_tangent(hessian, problem.primals, problem)


def times_tangent(derivative, of, problem):
    """A derivative ``of`` a pytree, applied to the problem's tangents."""
    x = leaves(tangents(problem))
    rows = table(derivative, of, problem.primals)
    return shaped_like(of, [total(map(applied_to_columns, row, x)) for row in rows])


def table(derivative, of, wrt):
    """The blocks of a Jacobian: a row for each leaf of the value, an entry for each argument's."""
    blocks, width = leaves(derivative), len(leaves(wrt))
    assert len(blocks) == width * len(leaves(of))
    return [blocks[start : start + width] for start in range(0, len(blocks), width)]


def applied_to_columns(block, x):
    return np.tensordot(block, x, axes=np.ndim(x))


def applied_to_rows(y, block):
    return np.tensordot(y, block, axes=np.ndim(y))


def total(terms):
    return functools.reduce(np.add, terms)


# ----------------------------------------------------------------- what daskgrad makes of them


def vjp(problem):
    value, pullback = dg.vjp(problem.fun, *problem.primals)
    return value, pullback(cotangent(problem))


def grad(problem):
    return dg.value_and_grad(problem.fun, argnums(problem))(*problem.primals)


def jvp(problem):
    return dg.jvp(problem.fun, problem.primals, tangents(problem))


def hvp(problem):
    return dg.hvp(problem.fun, problem.primals, tangents(problem))


def jacobian(problem, mode="auto"):
    return dg.jacobian(problem.fun, argnums(problem), mode=mode)(*problem.primals)


def hessian(problem):
    return dg.hessian(problem.fun, argnums(problem))(*problem.primals)


# ------------------------------------------------------------------------ pytrees of arrays


def leaves(tree):
    return optree.tree_leaves(tree)


def shaped_like(tree, leaves):
    return optree.tree_unflatten(optree.tree_structure(tree), leaves)


def random_like(tree, seed):
    random = np.random.default_rng(seed)
    return optree.tree_map(lambda leaf: random.normal(size=np.shape(leaf) or None), tree)


def tangents(problem):
    return random_like(problem.primals, 1)


def cotangent(problem):
    return random_like(by_jax(problem)[0], 2)


def inner(first, second):
    return sum([np.vdot(a, b) for a, b in zip(leaves(first), leaves(second), strict=True)])


def norm(tree):
    return np.sqrt(inner(tree, tree))


def require_close(found, expected):
    assert optree.tree_structure(found) == optree.tree_structure(expected)
    for leaf, right in zip(leaves(found), leaves(expected), strict=True):
        assert np.shape(leaf) == right.shape
        assert np.asarray(leaf).dtype == right.dtype
        assert norm(leaf - right) <= CLOSE * norm(right)


def require_adjoint(x, transposed_y, y, applied_x):
    """⟨Ax, y⟩ = ⟨x, Aᵀy⟩."""
    scale = max(norm(applied_x) * norm(y), norm(x) * norm(transposed_y))
    assert abs(inner(applied_x, y) - inner(x, transposed_y)) <= EXACT * scale


# ---------------------------------------------------------------------------------- the tests

SCALARS = [problem for problem in PROBLEMS if problem.is_scalar]
VECTORS = [problem for problem in PROBLEMS if not problem.is_scalar]


def each(problems):
    return pytest.mark.parametrize("problem", problems, ids=lambda problem: problem.name)


def on(*schedulers):
    return pytest.mark.parametrize("scheduler", schedulers, indirect=True)


@each(PROBLEMS)
@on("threads", "cluster")
def test_vjp(problem, scheduler):
    require_close(vjp(problem), vjp_by_jax(problem))


@each(SCALARS)
@on("threads", "cluster")
def test_grad(problem, scheduler):
    require_close(grad(problem), grad_by_jax(problem))


@each(PROBLEMS)
@on("threads", "cluster")
def test_jvp(problem, scheduler):
    require_close(jvp(problem), jvp_by_jax(problem))


@each(SCALARS)
@on("threads", "cluster")
def test_hvp(problem, scheduler):
    require_close(hvp(problem), hvp_by_jax(problem))


@each(VECTORS)
@pytest.mark.parametrize("mode", ["forward", "reverse", "auto"])
@on("threads", "cluster")
def test_jacobian(problem, mode, scheduler):
    require_close(jacobian(problem, mode), jacobian_by_jax(problem))


@each(SCALARS)
@on("threads", "cluster")
def test_hessian(problem, scheduler):
    require_close(hessian(problem), hessian_by_jax(problem))


@each(PROBLEMS)
@on("threads")
def test_the_vjp_is_the_transpose_of_the_jvp(problem, scheduler):
    _, applied = jvp(problem)
    _, transposed = vjp(problem)
    require_adjoint(tangents(problem), transposed, cotangent(problem), applied)


@each(SCALARS)
@on("threads")
def test_the_hvp_is_symmetric(problem, scheduler):
    x, y = tangents(problem), random_like(problem.primals, 3)
    _, applied = dg.hvp(problem.fun, problem.primals, x)
    _, transposed = dg.hvp(problem.fun, problem.primals, y)
    require_adjoint(x, transposed, y, applied)


# --------------------------------------------------------------------------- tests of the tests


@each(PROBLEMS[:1])
def test_the_comparison_finds_an_error_of_a_part_in_a_billion(problem):
    value, gradient = grad_by_jax(problem)
    wrong = gradient + 1e-9 * np.linalg.norm(gradient) * np.eye(len(gradient))[0]
    with pytest.raises(AssertionError):
        require_close((value, wrong), (value, gradient))


@each(PROBLEMS)
def test_every_leaf_of_the_arguments_matters(problem):
    """A derivative that is zero is easily right."""
    value, jacobian, _ = by_jax(problem)
    for column in zip(*table(jacobian, value, problem.primals), strict=True):
        assert norm(column) > 0.0


def test_the_problems_are_many_and_of_all_kinds():
    assert len(PROBLEMS) >= 22
    assert len({problem.name for problem in PROBLEMS}) == len(PROBLEMS)
    kinds = {(problem.kind, problem.is_scalar) for problem in PROBLEMS}
    assert len(kinds) == 4
