"""Adjoints that go through products of matrices, against autograd's."""

import autograd.numpy as anp
import numpy as np
import pytest
from autograd.core import make_vjp
from numpy.testing import assert_allclose, assert_array_equal

from daskgrad.backends.autograd import trace
from daskgrad.backends.autograd.rules.contractions import contract, plan_of, read

SIZES = dict(zip("abijkl", (2, 3, 4, 5, 6, 7), strict=True))
SUBSCRIPTS = [
    *("ij,jk->ik", "ij,kj->ik", "ij,kj->ki", "ij,jk", "ki,kj->ij", "ij,j->i", "i,ij->j", "i,i->"),
    *("i,j->ij", "ij,ij->ij", "ij,ij->i", "ij,ij->", "ijk,jk->i", "ijk,kjl->li", "aij,ajk->aik"),
    *("aij,akj->kai", "abij,bajk->abik", "aij,jk->aik", "aij,jk,akl->ail", "ij,jk,kl->il"),
    *(
        "i,j,k->ijk",
        "ij,ik,il->jkl",
        "aij,ik,akl->ajl",
        "ij,jk,kl,la->ia",
        "ij,ji->",
        "a,aij,bij->b",
    ),
]


def pulled_by_autograd(fun, arrays, g):
    return [
        make_vjp(lambda x, n=n: fun(*arrays[:n], x, *arrays[n + 1 :]), array)[0](g)
        for n, array in enumerate(arrays)
    ]


def assert_autograds(fun, *arrays, random):
    (value,), tape = trace(lambda *boxes: [fun(*boxes)], arrays)
    g = random.standard_normal(np.shape(value)).astype(value.dtype)[()]
    found = tape.pull([g])
    for each, expected in zip(found, pulled_by_autograd(fun, arrays, g), strict=True):
        assert (each.shape, each.dtype) == (expected.shape, expected.dtype)
        precision = 1e-13 if value.dtype == np.float64 else 1e-5
        assert_allclose(each, expected, precision, precision * np.max(np.abs(expected)))


@pytest.mark.parametrize("dtype", ["d", "f"])
@pytest.mark.parametrize("subscripts", SUBSCRIPTS)
def test_contractions(subscripts, dtype, random):
    shapes = [[SIZES[letter] for letter in term] for term in read(subscripts)[0]]
    arrays = [random.standard_normal(shape).astype(dtype) for shape in shapes]
    assert_autograds(lambda *args: anp.einsum(subscripts, *args), *arrays, random=random)


def test_axes_of_length_one(random):
    for shapes in (((1, 3), (3, 1)), ((4, 1), (1, 2)), ((1, 1), (1, 5))):
        arrays = [random.standard_normal(shape) for shape in shapes]
        assert_autograds(lambda *args: anp.einsum("ij,jk->ik", *args), *arrays, random=random)


def test_an_axis_of_length_one_may_stand_for_none():
    """autograd's cotangent of an empty operand would have the other one's entries."""
    _, tape = trace(
        lambda *args: [anp.einsum("ij,ij->", *args)], [np.ones((0, 5)), np.ones((1, 5))]
    )
    first, second = tape.pull([np.float64(1.0)])
    assert first.shape == (0, 5)
    assert_array_equal(second, np.zeros((1, 5)))


def test_operands_that_are_cheapest_together_come_first():
    """A vector is taken before two matrices are multiplied, whatever their order."""
    a, b, g = np.ones((50, 60)), np.ones((60, 70)), np.ones(70)
    plan = plan_of("i,ij,jk->k", 0, np.ones(50), a, b)
    assert [product.subscripts for _, product in plan] == ["jk,k->j", "j,ij->i"]
    assert [product.multiply for _, product in plan] == ["dot", "dot"]
    assert_array_equal(contract(plan, g, a, b), a @ (b @ g))


MATRICES = {
    "solve of a vector": (anp.linalg.solve, (4,)),
    "solve of a matrix": (anp.linalg.solve, (4, 3)),
    "inv": (anp.linalg.inv, None),
    "cholesky": (lambda a: anp.linalg.cholesky(anp.dot(a, a.T)), None),
    "trace": (anp.trace, None),
}


@pytest.mark.parametrize("dtype", ["d", "f"])
@pytest.mark.parametrize("name", MATRICES)
def test_matrices(name, dtype, random):
    fun, shape = MATRICES[name]
    matrix = (random.standard_normal((4, 4)) + 6.0 * np.eye(4)).astype(dtype)
    others = [] if shape is None else [random.standard_normal(shape).astype(dtype)]
    for first in (matrix, np.asfortranarray(matrix)):
        assert_autograds(fun, first, *others, random=random)


@pytest.mark.parametrize("shape", [(4, 4), (3, 5), (5, 3), (1, 1)], ids=str)
def test_traces_of_any_shape(shape, random):
    assert_autograds(anp.trace, random.standard_normal(shape), random=random)


@pytest.mark.parametrize("name", MATRICES)
def test_second_derivatives_are_those_of_autograd(name, random):
    """A cotangent that somebody differentiates is a box, for which the same rules hold."""
    fun, shape = MATRICES[name]
    matrix = random.standard_normal((4, 4)) + 6.0 * np.eye(4)
    others = [] if shape is None else [random.standard_normal(shape)]

    def slope(pull, x):
        return anp.sum(pull(lambda a: anp.sum(anp.sin(fun(a, *others))), x) ** 2)

    def by_tape(fun, x):
        (_,), tape = trace(lambda a: [fun(a)], [x])
        return tape.pull([np.float64(1.0)])[0]

    def by_autograd(fun, x):
        return make_vjp(fun, x)[0](np.float64(1.0))

    found = by_tape(lambda x: slope(by_tape, x), matrix)
    expected = by_autograd(lambda x: slope(by_autograd, x), matrix)
    assert_allclose(found, expected, 1e-10, 1e-12)
