"""Methods of arrays: traced arrays have them, or say what to write."""

import numpy as np
import pytest
from inputs import MATRIX, C, X, notes
from numpy.testing import assert_array_equal

import daskgrad as dg

pytestmark = pytest.mark.usefixtures("synchronous")

PHASES = np.exp(1j * C)
METHODS = {  # a model by methods, and the same by functions
    "dot": (lambda x: x.dot(MATRIX).dot(x), lambda x: np.dot(np.dot(x, MATRIX), x)),
    "copy": (lambda x: np.sum(x.copy() * x), lambda x: np.sum(np.copy(x) * x)),
    "real": (lambda x: np.sum((x * PHASES).real), lambda x: np.sum(np.real(x * PHASES))),
    "imag": (lambda x: np.sum((x * PHASES).imag ** 2), lambda x: np.sum(np.imag(x * PHASES) ** 2)),
    "conj": (
        lambda x: np.sum(((x * PHASES).conj() * x * (x * PHASES).conjugate()).real),
        lambda x: np.sum(np.real(np.conj(x * PHASES) * x * np.conj(x * PHASES))),
    ),
    "item": (lambda x: x[0].item() ** 2 * x.item(1), lambda x: x[0] ** 2 * x[1]),
    "item by indices": (
        lambda x: (x * MATRIX).item(1, 2) * x[2:].item(),
        lambda x: (x * MATRIX)[1, 2] * x[2],
    ),
    "mT": (
        lambda x: np.sum((x * MATRIX).mT * x),
        lambda x: np.sum(np.swapaxes(x * MATRIX, -1, -2) * x),
    ),
}


@pytest.mark.parametrize("how", [False, True], ids=["tape", "compiled"])
@pytest.mark.parametrize("name", METHODS)
def test_methods_have_the_bits_of_the_functions(name, how):
    method, function = [dg.delayed(model, compile=how) for model in METHODS[name]]
    assert METHODS[name][0](X) == METHODS[name][1](X)
    for fun in (dg.value_and_grad, lambda f: lambda x: dg.hvp(f, (x,), (C,))[1]):
        for _ in range(3):  # the third is compiled
            for one, other in zip(fun(method)(X), fun(function)(X), strict=True):
                assert_array_equal(one, other)


@pytest.mark.parametrize("how", [False, "auto", True])
def test_methods_of_data_are_those_of_arrays(how):
    """``data.dot(x)`` makes an array of traced numbers, whose sums have other bits."""
    model = dg.delayed(lambda x, a: np.sum(a.dot(x)) * a.item(0, 0) ** 3, compile=how)
    expected = dg.grad(lambda x: dg.delayed(lambda x: np.sum(MATRIX.dot(x)), compile=False)(x))(X)
    for _ in range(20):
        found = dg.grad(lambda x: model(x, MATRIX))(X)
        assert_array_equal(found, expected * MATRIX.item(0, 0) ** 3)


REFUSED = {
    "sort": (lambda x: x.sort(), r"'ArrayBox' object has no attribute 'sort'.*write np.sort\(x\)"),
    "nbytes": (lambda x: x.nbytes * x[0], r"write dg.value\(x\).nbytes"),
    "tolist": (lambda x: x.tolist(), r"write list\(x\), or dg.value\(x\).tolist"),
    "+=": (lambda x: np.zeros(3).__iadd__(x), r"np.add writes .* total = total \+ x"),
    "out=": (lambda x: np.multiply(x, C, out=np.zeros(3)), "np.multiply writes .* no out="),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_there_says_what_to_write(name):
    model, told = REFUSED[name]
    with pytest.raises((AttributeError, TypeError), match=told) as caught:
        dg.grad(dg.delayed(model))(X)
    assert "Functions of numpy" in notes(caught.value)


def test_an_attribute_with_another_value_is_an_error_where_an_array_has_it():
    def model(x, name):
        assert getattr(x, "_typ", None) is getattr(x, "is_integer", None) is None
        return np.sum(x) * getattr(x, name, 8)

    assert_array_equal(dg.grad(dg.delayed(model))(X, "is_one"), np.full(3, 8.0))
    with pytest.raises(TypeError, match=r"write dg.value\(x\).nbytes"):
        dg.grad(dg.delayed(model))(X, "nbytes")
