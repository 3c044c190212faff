"""Plain NumPy and scipy.special in a model: the bits of autograd's functions, in all traces."""

import dataclasses
import warnings

import autograd
import autograd.numpy as anp
import numpy as np
import pytest
import scipy.special
from functions_all import TABLE
from inputs import C, X, differences
from numpy.testing import assert_allclose, assert_array_equal
from sweep import calls_of

import daskgrad as dg
from daskgrad.backends.autograd import linearize, trace

SPACES = ((np, anp), (np.linalg, anp.linalg), (np.fft, anp.fft))


def plain_twin(entry):
    """NumPy's or SciPy's own function, where an entry of the table has autograd's."""
    for plain, traced in SPACES:
        if getattr(traced, entry.name, None) is entry.fun:
            return getattr(plain, entry.name, None)
    twin = getattr(scipy.special, entry.name, None)
    return twin if isinstance(twin, np.ufunc) else None


TWINS = [(entry, twin) for entry in TABLE if (twin := plain_twin(entry)) is not None]


NOT_ASKED = ("array", "full", "full_like")  # NumPy asks no list and no fill value


def pulled(call, arrays):
    """Values and cotangents, or the kind of the error."""
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            outputs, tape = trace(call, arrays)
        except (NotImplementedError, TypeError) as error:
            return [type(error)]
        return outputs + tape.pull([np.ones_like(output) for output in outputs])


def test_many_functions_have_a_plain_twin():
    assert len(TWINS) > 200


@pytest.mark.parametrize("most", [2, pytest.param(12, marks=pytest.mark.long)])
@pytest.mark.parametrize(("entry", "twin"), TWINS, ids=[entry.name for entry, _ in TWINS])
def test_a_plain_call_has_the_bits_of_autograds(entry, twin, most):
    if entry.name in NOT_ASKED:
        pytest.skip("NumPy does not ask: the value is an array of boxes")
    plain_entry = dataclasses.replace(entry, fun=twin)
    pairs = list(zip(calls_of(entry), calls_of(plain_entry), strict=True))[:most]
    for traced, plain in pairs:
        arrays = traced.arrays("d")
        for one, other in zip(pulled(traced, arrays), pulled(plain, arrays), strict=True):
            assert_array_equal(one, other, err_msg=plain.name, strict=True)


def program(x):
    """Plain NumPy and SciPy, of all kinds that NumPy asks for."""
    folded = np.linalg.solve(np.outer(x, x) + np.eye(3), np.concatenate([x[:1], C[1:]]))
    spectrum = np.abs(np.fft.fft(x)) ** 2
    return np.sum(np.where(C > 1.0, folded, x) * scipy.special.gammaln(x)) + np.mean(spectrum)


def of_autograd(x):
    special = pytest.importorskip("autograd.scipy.special")
    folded = anp.linalg.solve(anp.outer(x, x) + np.eye(3), anp.concatenate([x[:1], C[1:]]))
    spectrum = anp.abs(anp.fft.fft(x)) ** 2
    return anp.sum(anp.where(C > 1.0, folded, x) * special.gammaln(x)) + anp.mean(spectrum)


DERIVATIVES = {
    "reverse": dg.value_and_grad,
    "forward": lambda fun: lambda x: dg.jvp(fun, (x,), (C,)),
    "second": lambda fun: lambda x: dg.hvp(fun, (x,), (C,)),
}


@pytest.mark.parametrize("derivative", DERIVATIVES)
def test_a_plain_program_has_the_bits_of_autograds_in_every_mode(derivative):
    of = DERIVATIVES[derivative]
    plain, traced = of(dg.delayed(program))(X), of(dg.delayed(of_autograd))(X)
    for one, other in zip(plain, traced, strict=True):
        assert_array_equal(one, other)


def test_a_plain_program_is_differentiated_in_nested_traces():
    slope = dg.delayed(lambda x: autograd.grad(program)(x))
    found = dg.grad(lambda x: slope(x) @ C)(X)
    _, (product,) = dg.hvp(dg.delayed(program), (X,), (C,))
    assert_allclose(found, product, rtol=1e-12)


class Theirs:
    """An array of another library, which has its own answer."""

    def __array_function__(self, fun, types, args, kwargs):
        return "theirs"


def test_arrays_of_other_libraries_are_asked_too():
    answers = []

    def model(x):
        answers.append(np.concatenate([x, Theirs()]))
        return np.sum(x)

    dg.grad(dg.delayed(model))(X)
    assert answers == ["theirs"]


CALLS = {
    "add.reduce": lambda x: np.add.reduce(x[:, None] * C, axis=1)[0],
    "add.reduce of rows": lambda x: np.sum(np.add.reduce(np.outer(x, C)) ** 2),
    "multiply.reduce": lambda x: np.multiply.reduce(x),
    "maximum.reduce": lambda x: np.maximum.reduce(x * C),
    "minimum.reduce": lambda x: np.minimum.reduce(x * C, keepdims=True)[0],
    "add.accumulate": lambda x: np.sum(np.add.accumulate(x) ** 2),
    "multiply.outer": lambda x: np.sum(np.multiply.outer(x, C) ** 2),
    "subtract.outer": lambda x: np.sum(np.subtract.outer(C, x) ** 2),
    "sum by name": lambda x: np.sum(a=x * x),
    "clip by name": lambda x: np.sum(np.clip(C, a_min=x[0], a_max=2.0)),
    "dot by name": lambda x: np.dot(a=x, b=C),
    "tile by name": lambda x: np.sum(np.tile(A=x, reps=2) ** 2),
    "linalg.solve by name": lambda x: np.sum(np.linalg.solve(a=np.diag(C), b=x)),
    "select of arrays": lambda x: np.sum(np.select([C > 2.0, C > 0.5], [x, x**2], 3.0) * C),
    "select of the default": lambda x: np.sum(np.select([C > 1.0], [C], default=x[0])),
}


@pytest.mark.parametrize("name", CALLS)
def test_calls_that_primitives_do_not_take_are_differentiated(name):
    """Methods of ufuncs, traced values by name, and lists of them."""
    fun = CALLS[name]
    _, push = linearize(lambda x: [fun(x)], [X])
    _, tape = trace(lambda x: [fun(x)], [X])
    assert_allclose(tape.pull([1.0])[0], differences(fun, X), rtol=1e-7)
    assert_allclose([push([unit])[0] for unit in np.eye(3)], tape.pull([1.0])[0], rtol=1e-12)


def test_a_refusal_of_a_ufunc_tells_what_to_write():
    with pytest.raises(NotImplementedError, match=r"'jv'.*the order"):
        dg.grad(dg.delayed(lambda x: scipy.special.jv(x[0], 1.0)))(X)


def test_select_of_unequal_lists_is_numpys_error():
    with pytest.raises(ValueError, match="length"):
        dg.grad(dg.delayed(lambda x: np.sum(np.select([C > 1.0], [x, x]))))(X)
