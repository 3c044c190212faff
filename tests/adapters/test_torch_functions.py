"""Sums as functions of PyTorch's tensors."""

import numpy as np
import pytest
from adapted import ITEMS, A, B, expected, in_threads, over
from numpy.testing import assert_allclose

import daskgrad as dg

pytestmark = pytest.mark.optional
torch = pytest.importorskip("torch")


def point(a=A, b=B, dtype=torch.float64):
    return [torch.tensor(x, dtype=dtype, requires_grad=True) for x in (a, b)]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_value_and_gradients_are_part_of_a_program(dtype):
    a, b = point(dtype=dtype)
    value = dg.adapters.as_torch(over(ITEMS))(torch.exp(a), b * 2.0)
    (value * 3.0).backward()
    wanted, by_a, by_b = expected(np.exp(A), 2.0 * B)
    assert value.dtype == dtype
    assert_allclose(value.detach(), wanted, rtol=1e-6)
    assert_allclose(a.grad, 3.0 * by_a * np.exp(A), rtol=1e-5)
    assert_allclose(b.grad, 6.0 * by_b, rtol=1e-5)
    assert (a.grad.dtype, b.grad.dtype) == (dtype, dtype)


def test_its_own_check_of_gradients_holds():
    assert torch.autograd.gradcheck(dg.adapters.as_torch(over(ITEMS)), point())


@pytest.mark.parametrize("dtype", [torch.complex128, torch.complex64])
def test_gradients_of_complex_tensors_are_those_of_pytorch(dtype):
    def distance(np, z):
        return np.sum(np.real(z * z * (1.0 + 2.0j)) + np.abs(z) ** 3)

    ours, theirs = torch.tensor([[1.0 + 2.0j, 0.5 - 1.0j]] * 2, dtype=dtype)
    ours, theirs = ours.clone().requires_grad_(), theirs.clone().requires_grad_()
    value = dg.adapters.as_torch(dg.delayed(lambda z: distance(np, z)))(2.0j * ours)
    wanted = distance(torch, 2.0j * theirs)
    (value * 3.0).backward()
    (wanted * 3.0).backward()
    assert (value.dtype, ours.grad.dtype) == (wanted.dtype, dtype)
    assert_allclose(value.detach(), wanted.detach(), rtol=1e-5)
    assert_allclose(ours.grad, theirs.grad, rtol=1e-5)


def test_only_what_requires_a_gradient_is_differentiated():
    runs = []

    def traced(item, a, b):
        runs.append((type(a), type(b)))
        return np.sum((b @ item - a) ** 2)

    called = dg.adapters.as_torch(lambda a, b: dg.delayed(traced, compile=False)(ITEMS[0], a, b))
    a, b = point()
    called(a, b.detach()).backward()
    assert b.grad is None
    (kinds,) = runs
    assert kinds[1] is np.ndarray
    with torch.no_grad():
        value = called(a, b)
    assert not value.requires_grad
    assert runs[-1][1] is np.ndarray


def test_threads_share_it_over_placed_items(client):
    with dg.place(ITEMS) as shards:
        called = dg.adapters.as_torch(over(shards))

        def gradient(n):
            a, b = point(A + n)
            called(a, b).backward()
            return a.grad.item()

        found = in_threads(gradient, range(6))
    assert_allclose(found, [expected(A + n)[1] for n in range(6)])


def test_twice_is_an_error_and_models_errors_are_raised_as_they_are():
    a, b = point()
    value = dg.adapters.as_torch(over(ITEMS))(a, b)
    (gradient,) = torch.autograd.grad(value, a, create_graph=True)
    with pytest.raises(RuntimeError, match=r"cannot differentiate '.*' twice; dg.hvp can"):
        (gradient * a).backward()

    def broken(a):
        raise ZeroDivisionError("broken")

    with pytest.raises(ZeroDivisionError, match="broken"):
        dg.adapters.as_torch(lambda a: dg.delayed(broken)(a))(a)
