"""Derivatives through eigenvectors and singular vectors where eigenvalues are nearly equal."""

import warnings

import autograd.numpy as np
import numpy
import pytest
from numpy.testing import assert_allclose

import daskgrad as dg

RANDOM = numpy.random.default_rng(4)
Q = numpy.linalg.qr(RANDOM.normal(size=(4, 4)))[0]
W = RANDOM.normal(size=(4, 4))
V = RANDOM.normal(size=(4, 4))


def expm(A):
    from daskgrad.scipy import linalg  # SciPy takes long to import

    return linalg.expm(A)


def exponential(A):
    values, vectors = np.linalg.eigh(A + A.T)
    return np.sum(np.dot(vectors * np.exp(values), vectors.T) * W)


def general_exponential(A):
    values, vectors = np.linalg.eig(A)
    return np.real(np.sum(np.dot(vectors * np.exp(values), np.linalg.inv(vectors)) * W))


def polar(A):
    u, _, vh = np.linalg.svd(A)
    return np.sum(np.dot(u, vh) * W)


def projector(A):
    vector = np.linalg.eigh((A + A.T) / 2)[1][:, -1:]
    return np.sum(np.dot(vector, vector.T) * W)


def trace_of_cube(A):
    return np.sum(np.linalg.eigvalsh((A + A.T) / 2) ** 3)


def general_trace_of_cube(A):
    return np.real(np.sum(np.linalg.eigvals(A) ** 3))


def norm(A):
    return np.linalg.norm(A, 2)


def near(gap):
    return Q @ numpy.diag([1.0, 1.0 + gap, 2.0, 3.0]) @ Q.T


def differences_by(fun, x):
    """The slope along V."""
    steps = [(fun(x + h * V) - fun(x - h * V)) / (2.0 * h) for h in (1e-3, 5e-4)]
    return (4.0 * steps[1] - steps[0]) / 3.0


SERIES = {  # without eigenvectors
    exponential: lambda A: np.sum(expm(A + A.T) * W),
    general_exponential: lambda A: np.sum(expm(A) * W),
}


def slopes(fun, x):
    """By differences, in reverse and in forward mode."""
    model = dg.delayed(fun)
    return (
        differences_by(fun, x),
        numpy.sum(dg.grad(model)(x) * V),
        dg.jvp(model, (x,), (V,))[1],
    )


SMOOTH = [exponential, general_exponential, polar]
CLOSE = [0.0, 1e-16, 3e-15]


@pytest.mark.parametrize("gap", CLOSE)
@pytest.mark.parametrize("compile", [False, True])
@pytest.mark.parametrize("fun", SMOOTH)
def test_noise_is_refused_in_reverse_mode_and_announced_in_forward_mode(fun, compile, gap):
    model = dg.delayed(fun, compile=compile)
    with pytest.raises(NotImplementedError, match=r"equal (eigen|singular ).*smallest gap.*expm"):
        dg.grad(model)(near(gap))
    with pytest.warns(RuntimeWarning, match=r"few right digits.*smallest gap.*expm"):
        dg.jvp(model, (near(gap),), (V,))


@pytest.mark.parametrize("gap", [1e-10, 1e-11])
@pytest.mark.parametrize("fun", SMOOTH)
def test_a_warning_tells_how_many_digits_are_left(fun, gap):
    expected = differences_by(SERIES.get(fun, fun), near(gap))
    with pytest.warns(RuntimeWarning, match=r"has about \d+ right digits") as caught:
        gradient = dg.grad(dg.delayed(fun))(near(gap))
    digits = int(str(caught[0].message).split("has about ")[1].split()[0])
    assert 3 <= digits <= 7
    error = abs(numpy.sum(gradient * V) / expected - 1.0)
    assert error < 10.0 ** (1 - digits)


@pytest.mark.parametrize("fun", SMOOTH[:2])
def test_at_the_zero_matrix_there_is_a_word(fun):
    if fun is exponential:  # of the other one cotangents of vectors are exactly zero
        with pytest.raises(NotImplementedError, match=r"smallest gap 0\.0"):
            dg.grad(dg.delayed(fun))(numpy.zeros((4, 4)))
    with pytest.warns(RuntimeWarning, match=r"few right digits.*smallest gap 0\.0"):
        dg.jvp(dg.delayed(fun), (numpy.zeros((4, 4)),), (V,))


def test_small_matrices_have_the_digits_of_large_ones():
    def fun(A):
        vectors = np.linalg.eig(A)[1]
        return np.sum(np.real(vectors / vectors[:1]) ** 2)

    x = near(1.0) + 0.1 * V
    large, small = dg.grad(dg.delayed(fun))(x), dg.grad(dg.delayed(fun))(1e-18 * x)
    assert_allclose(1e-18 * small, large, rtol=1e-9, atol=1e-12)


def slopes_quietly(fun, x):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return slopes(fun, x)


@pytest.mark.parametrize("gap", CLOSE)
@pytest.mark.parametrize("fun", [projector, trace_of_cube, general_trace_of_cube, norm])
def test_what_does_not_use_vectors_of_equal_values_is_right(fun, gap):
    model, x = dg.delayed(fun), near(gap)
    differences, reverse, forward = slopes_quietly(fun, x)
    assert_allclose([reverse, forward], differences, rtol=1e-7)
    assert numpy.sum(dg.grad(model)(x) * V) == reverse  # without a warning


def test_eigenvalues_that_are_equal_to_the_last_bit_are_differentiated():
    sizes = numpy.array([1.0, 1.0, 2.0, 3.0])
    gradient = dg.grad(dg.delayed(general_trace_of_cube))(numpy.diag(sizes))
    assert_allclose(gradient, numpy.diag(3.0 * sizes**2))


def half_squares(A):
    return np.sum((np.linalg.eigvalsh((A + A.T) / 2) - 1.0) ** 2) / 2


CURVED = {  # functions with equal values where their slopes are equal, some of them zero
    "eigh": half_squares,
    "eig": lambda A: np.real(np.sum(np.linalg.eigvals(A) ** 2)),
    "svd": lambda A: np.sum((np.linalg.svdvals(A) - 1.0) ** 2),
}


@pytest.mark.parametrize("compile", [False, True])
@pytest.mark.parametrize("fun", CURVED)
def test_second_derivatives_at_equal_values_are_refused(fun, compile):
    model = dg.delayed(CURVED[fun], compile=compile)
    for sizes in ([1.0, 1.0], [0.0, 0.0], [1.0, 1.0, 2.0]):
        x = numpy.diag(sizes)
        with pytest.raises(NotImplementedError, match=rf"linalg.{fun} .*second.*equal.*trace"):
            dg.hvp(model, (x,), (numpy.ones_like(x),))


def test_second_derivatives_at_nearly_equal_values_are_announced():
    x, v = numpy.diag([1.0, 1.0 + 1e-11]), numpy.array([[0.0, 1.0], [1.0, 0.0]])
    with pytest.warns(RuntimeWarning, match="few right digits"):
        dg.hvp(dg.delayed(half_squares), (x,), (v,))
    product = dg.hvp(dg.delayed(half_squares), (numpy.diag([1.0, 2.0]),), (v,))[1][0]
    assert_allclose(product, v, rtol=1e-12)


DEFECTIVE = {
    "a Jordan block": [[1.0, 1.0], [0.0, 1.0]],
    "three": [[2.0, 1.0, 0.0], [0.0, 2.0, 1.0], [0.0, 0.0, 2.0]],
    "turned": [[3.0, 1.0], [-1.0, 1.0]],
    "zeros": [[0.0, 1.0], [0.0, 0.0]],
    "with parallel vectors": [[0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [0.0, 0.0, 0.0]],
}


@pytest.mark.parametrize("compile", [False, True])
@pytest.mark.parametrize("name", DEFECTIVE)
def test_eigenvalues_of_defective_matrices_are_refused_in_both_modes(name, compile):
    x = numpy.array(DEFECTIVE[name])
    for values in (np.linalg.eigvals, lambda A: np.linalg.eig(A)[0]):
        model = dg.delayed(lambda A: np.real(np.sum(values(A) ** 2)), compile=compile)  # noqa: B023
        with numpy.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with pytest.raises(NotImplementedError, match=r"eigvals .*nearly defective.*trace"):
                dg.grad(model)(x)
            with pytest.raises(NotImplementedError, match="nearly defective"):
                dg.jvp(model, (x,), (numpy.ones_like(x),))


def test_eigenvalues_of_nearly_defective_matrices_are_announced():
    def one(A):
        return np.real(np.linalg.eigvals(A)[0])

    x = numpy.array([[1.0, 1.0], [1e-10, 1.0]])
    with pytest.warns(RuntimeWarning, match=r"about 6 digits.*nearly defective"):
        dg.grad(dg.delayed(one))(x)
    with pytest.warns(RuntimeWarning, match="nearly defective"):
        dg.jvp(dg.delayed(one), (x,), (numpy.eye(2),))
