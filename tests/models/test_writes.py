"""An error of a write into an argument names the model and says what to do."""

import ctypes

import autograd.numpy as anp
import numpy as np
import pytest
import scipy.sparse.csgraph

import daskgrad as dg

X = np.array([0.3, 0.5, 0.9])
C = np.array([1.0, 2.0, 3.0])

pytestmark = pytest.mark.usefixtures("synchronous")


def notes(error):
    return " ".join(getattr(error, "__notes__", []))


def plus(c):
    c += 1.0


def at_item(c):
    c[0] += 1.0


def assign(c):
    c[1:] = 0.0


def assign_index(c):
    index = [0]
    c[index] = C[index]


def flat(c):
    c.flat[0] = 1.0


def sort(c):
    c.sort()


def out(c):
    np.multiply(C, 2.0, out=c)


def positional_out(c):
    np.negative(C, c)


def shuffle(c):
    np.random.default_rng(0).shuffle(c)


def put(c):
    np.put(c, [0], 1.0)


def copyto(c):
    np.copyto(
        c,
        1.0,
    )


def place(c):
    np.place(c, c > 1, [0.0])


def fill(c):
    c.fill(0.0)


def draw(c):
    np.random.default_rng(0).random(3, out=c)


def memory(c):
    memoryview(c)[0] = 1.0


def real(c):
    c.real = 1.0


def dot_out(c):
    np.dot(C, np.eye(3), out=c)


def resize(c):
    c.resize(5, refcheck=False)


def as_ctypes(c):
    np.ctypeslib.as_ctypes(c)[0] = 1.0


def view(c):
    part = c[1:]
    part[0] = 1.0


def in_helper(c):
    assign(c)


def unwritten(c):
    ctypes.c_double.from_buffer(c)


WRITES = [
    *(plus, at_item, assign, assign_index, flat, sort, out, positional_out, shuffle, put, copyto),
    *(place, fill, draw, memory, as_ctypes, dot_out, resize, real, view, in_helper, unwritten),
]


@pytest.mark.parametrize("write", WRITES, ids=lambda write: write.__name__)
def test_the_model_is_named(write):
    def model(x, b, c):
        write(c)
        return anp.sum(x * b * c)

    given = C.copy()
    node = dg.delayed(model, name="reactor")
    for ask in (
        lambda: dg.grad(lambda x: node(x, C, given))(X),
        lambda: dg.grad(lambda x: node(x, c=given, b=C))(X),
        lambda: node(X, C, given).compute(),
    ):
        with pytest.raises((ValueError, TypeError)) as caught:
            ask()
        assert "model 'reactor' may have written into an argument" in notes(caught.value)
        assert "copy the array first" in notes(caught.value)
    np.testing.assert_array_equal(given, C)


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
