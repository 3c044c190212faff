"""Derivatives of programs from the literature, against JAX's of their twins, and by the laws."""

import functools
from importlib.util import find_spec

import numpy as np
import optree
import pytest
from problems import PROBLEMS

import daskgrad as dg

pytestmark = [pytest.mark.optional, pytest.mark.usefixtures("synchronous")]

if find_spec("jax") is None:
    pytest.skip("the programs' derivatives are compared with JAX's", allow_module_level=True)

CLOSE = 1e-10  # the error of a leaf, in parts of the leaf's norm
EXACT = 1e-12  # that of an inner product, in parts of the norms' product


# ------------------------------------------------------------------- what JAX makes of the twins


@functools.cache
def by_jax(problem):
    """The value, the Jacobian (a gradient where the value is a scalar) and a scalar's Hessian."""
    import jax

    fun, wrt = problem.jax_fun, argnums(problem)

    def derivatives(primals):
        first = jax.jacrev(fun, wrt)(*primals)
        second = jax.hessian(fun, wrt)(*primals) if problem.is_scalar else None
        return fun(*primals), first, second

    with jax.enable_x64(True):
        return optree.tree_map(np.asarray, jax.jit(derivatives)(problem.primals))


def argnums(problem):
    return 0 if len(problem.primals) == 1 else tuple(range(len(problem.primals)))


def vjp_by_jax(problem):
    value, jacobian, _ = by_jax(problem)
    blocks = table(jacobian, value, problem.primals)
    y = leaves(cotangent(problem))
    pulled = [total(map(applied_to_rows, y, column)) for column in zip(*blocks, strict=True)]
    return value, shaped_like(problem.primals, pulled)


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


def require_close(result, expected):
    assert optree.tree_structure(result) == optree.tree_structure(expected)
    for leaf, right in zip(leaves(result), leaves(expected), strict=True):
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


def over(problems):
    return pytest.mark.parametrize("problem", problems, ids=lambda problem: problem.name)


@over(PROBLEMS)
def test_products_with_the_jacobian_and_its_transpose(problem):
    value, pullback = dg.vjp(problem.fun, *problem.primals)
    transposed = pullback(cotangent(problem))
    require_close((value, transposed), vjp_by_jax(problem))
    again, applied = dg.jvp(problem.fun, problem.primals, tangents(problem))
    require_close((again, applied), jvp_by_jax(problem))
    require_adjoint(tangents(problem), transposed, cotangent(problem), applied)


@over(SCALARS)
def test_gradients_and_second_derivatives(problem):
    value, gradient, hessian = by_jax(problem)
    require_close(
        dg.value_and_grad(problem.fun, argnums(problem))(*problem.primals), (value, gradient)
    )
    require_close(dg.hessian(problem.fun, argnums(problem))(*problem.primals), hessian)
    x, y = tangents(problem), random_like(problem.primals, 3)
    _, applied = product = dg.hvp(problem.fun, problem.primals, x)
    require_close(product, hvp_by_jax(problem))
    _, transposed = dg.hvp(problem.fun, problem.primals, y)
    require_adjoint(x, transposed, y, applied)


@over(VECTORS)
@pytest.mark.parametrize("mode", ["forward", "reverse", "auto"])
def test_jacobians(problem, mode):
    jacobian = dg.jacobian(problem.fun, argnums(problem), mode=mode)(*problem.primals)
    require_close(jacobian, by_jax(problem)[1])


# --------------------------------------------------------------------------- tests of the tests


def test_the_comparison_finds_an_error_of_a_part_in_a_billion():
    value, gradient, _ = by_jax(PROBLEMS[0])
    wrong = gradient + 1e-9 * np.linalg.norm(gradient) * np.eye(len(gradient))[0]
    with pytest.raises(AssertionError):
        require_close((value, wrong), (value, gradient))


@over(PROBLEMS)
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
