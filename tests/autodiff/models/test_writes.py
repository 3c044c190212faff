"""An error of a write into an argument names the model and says what to do."""

import ctypes

import autograd.numpy as anp
import numpy as np
import pytest
from inputs import C, X, notes

import daskgrad as dg

pytestmark = pytest.mark.usefixtures("synchronous")

WRITES = """
c += 1.0
c[0] += 1.0
c[1:] = 0.0
c[[0]] = C[[0]]
c[1:][0] = 1.0
c.flat[0] = 1.0
c.real = 1.0
c.sort()
c.fill(0.0)
c.resize(5, refcheck=False)
np.multiply(C, 2.0, out=c)
np.negative(C, c)
np.dot(C, np.eye(3), out=c)
np.put(c, [0], 1.0)
np.copyto(c, 1.0)
np.place(c, c > 1, [0.0])
np.random.default_rng(0).shuffle(c)
np.random.default_rng(0).random(3, out=c)
memoryview(c)[0] = 1.0
np.ctypeslib.as_ctypes(c)[0] = 1.0
ctypes.c_double.from_buffer(c)
"""


@pytest.mark.parametrize("statement", WRITES.strip().split("\n"))
def test_the_model_is_named(statement):
    def model(x, b, c):
        exec(statement, {"np": np, "ctypes": ctypes, "C": C, "c": c})
        return anp.sum(x * b * c)

    kept = C.copy()
    node = dg.delayed(model, name="reactor")
    for ask in (
        lambda: dg.grad(lambda x: node(x, C, kept))(X),
        lambda: dg.grad(lambda x: node(x, c=kept, b=C))(X),
        lambda: node(X, C, kept).compute(),
    ):
        with pytest.raises((ValueError, TypeError)) as caught:
            ask()
        assert "model 'reactor' may have written into an argument" in notes(caught.value)
        assert "copy the array first" in notes(caught.value)
    np.testing.assert_array_equal(kept, C)


def test_an_item_is_told_by_its_place():
    def term(item, x):
        if item[0] == 3.0:
            item[0] = 0.0
        return anp.sum(item * x)

    items = [np.full(3, float(n)) for n in range(6)]
    for fun in (
        lambda: dg.grad(lambda x: dg.map_sum(term, items, x, grainsize=2))(X),
        lambda: dg.map_sum(term, np.array(items), X, grainsize=2).compute(),
        lambda: dg.per_item(term, items)(X),
    ):
        with pytest.raises(ValueError, match="read-only") as caught:
            fun()
        assert "model 'term', item 3 may have written into" in notes(caught.value)


def test_also_of_a_sum_inside_a_model():
    def term(item, x):
        item[0] = 0.0
        return anp.sum(item * x)

    model = dg.delayed(lambda x: dg.map_sum(term, [C, C], x), name="outer")
    with pytest.raises(ValueError, match="read-only") as caught:
        dg.grad(model)(X)
    assert "in item 0 of a sum of 'term' inside a model" in notes(caught.value)
    assert "model 'outer' may have written into" in notes(caught.value)


def test_compiled_code_that_only_wants_memory_to_write_into_is_told_so():
    import scipy.sparse.csgraph

    def model(x, matrix):
        return anp.sum(x) * scipy.sparse.csgraph.maximum_flow(matrix, 0, 2).flow_value

    matrix = scipy.sparse.csr_array(np.triu(np.arange(9, dtype=np.int32).reshape(3, 3), 1))
    with pytest.raises(ValueError, match="buffer source array is read-only") as caught:
        dg.grad(lambda x: dg.delayed(model)(x, matrix))(X)
    assert "or passed it to compiled code that may" in notes(caught.value)


def test_other_errors_are_not_explained():
    def full(x):
        raise OSError("the file system is read-only")

    def locked(x):
        raise ValueError("the database is read-only")

    def opened(x):
        with open(__file__) as file:
            file.write("")

    def own(x):
        np.broadcast_to(1.0, 3).sum()
        raise ValueError("shapes do not match")

    for fun in (full, locked, opened, own):
        with pytest.raises((OSError, ValueError)) as caught:
            dg.grad(dg.delayed(fun))(X)
        assert "copy the array first" not in notes(caught.value)
