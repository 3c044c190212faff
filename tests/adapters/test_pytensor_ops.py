"""Sums as terms of PyTensor's and PyMC's models."""

import warnings

import numpy as np
import pytest
from adapted import ITEMS, A, B, expected, in_threads, over
from numpy.testing import assert_allclose

import daskgrad as dg

pytestmark = [
    pytest.mark.optional,
    pytest.mark.filterwarnings("ignore"),  # of several libraries below PyTensor, PyMC and ArviZ
]
pytensor = pytest.importorskip("pytensor")
from pytensor import tensor  # noqa: E402


@pytest.fixture(params=["FAST_COMPILE", None])
def mode(request):
    return request.param


def test_value_and_gradients_are_part_of_a_program(mode):
    a, b = tensor.dscalar("a"), tensor.dmatrix("b")
    value = 3.0 * dg.adapters.as_pytensor(over(ITEMS))(tensor.exp(a), 2.0 * b)
    program = pytensor.function([a, b], [value, *tensor.grad(value, [a, b])], mode=mode)
    wanted = expected(np.exp(A), 2.0 * B)
    value, by_a, by_b = program(A, B)
    assert_allclose(value, 3.0 * wanted[0])
    assert_allclose(by_a, 3.0 * wanted[1] * np.exp(A))
    assert_allclose(by_b, 6.0 * wanted[2])


def test_arguments_may_be_in_single_precision(mode):
    """Of the value's dtype is what is computed, too, which compiled programs rely on."""
    squares = dg.delayed(lambda a, b: np.sum(b**2) * a)
    a, b = tensor.fscalar("a"), tensor.fmatrix("b")
    value = dg.adapters.as_pytensor(lambda a, b: squares(a, b))(a, b)
    outputs = [value, 2.0 * value, *tensor.grad(value, [a, b])]
    found = pytensor.function([a, b], outputs, mode=mode)(np.float32(A), B.astype(np.float32))
    wanted = A * np.sum(B**2)
    for each, output, number in zip(
        found, outputs, (wanted, 2.0 * wanted, np.sum(B**2), 2.0 * A * B), strict=True
    ):
        assert each.dtype == output.dtype
        assert_allclose(each, number, rtol=1e-6)


def test_the_models_run_once_for_value_and_gradient():
    runs = []

    def counted(a):
        runs.append(None)
        return a**2

    a = tensor.dscalar("a")
    value = dg.adapters.as_pytensor(lambda a: dg.delayed(counted, compile=False)(a))(a)
    pytensor.function([a], [value, tensor.grad(value, a)])(3.0)
    assert len(runs) == 1


def test_integers_are_data():
    called = dg.adapters.as_pytensor(lambda a, n: dg.delayed(lambda a, n: a**n)(a, n))
    a, n = tensor.dscalar("a"), tensor.lscalar("n")
    value = called(a, n)
    assert pytensor.function([a, n], tensor.grad(value, a))(3.0, 2) == 6.0
    with pytest.raises(TypeError, match="was called on no floating-point number"):
        called(n, n)


def test_the_gradient_of_the_gradient_is_an_error():
    a = tensor.dscalar("a")
    value = dg.adapters.as_pytensor(lambda a: dg.delayed(np.square)(a))(a)
    with pytest.raises(NotImplementedError, match="cannot be differentiated"):
        tensor.grad(tensor.grad(value, a), a)


def test_threads_share_it_over_placed_items(client):
    with dg.place(ITEMS) as shards:
        a = tensor.dscalar("a")
        value = dg.adapters.as_pytensor(lambda a: over(shards)(a, B))(a)
        program = pytensor.function([a], tensor.grad(value, a), trust_input=False)
        found = in_threads(lambda n: program.copy()(A + n), range(6))
    assert_allclose(found, [expected(A + n)[1] for n in range(6)])


def test_a_sum_is_a_term_of_a_model_of_pymc():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pymc = pytest.importorskip("pymc")
    data = np.random.default_rng(0).normal(1.5, 1.0, 200)

    def log_likelihood(x, mu):
        return -0.5 * (x - mu) ** 2

    with pymc.Model():
        mu = pymc.Normal("mu", 0.0, 10.0)
        total = dg.adapters.as_pytensor(lambda mu: dg.map_sum(log_likelihood, data, mu))
        pymc.Potential("likelihood", total(mu))
        options = {"cores": 1, "chains": 2, "progressbar": False, "random_seed": 1}
        found = pymc.sample(draws=300, tune=200, **options)
    draws = found.posterior["mu"].values
    assert abs(draws.mean() - data.mean()) < 5 * draws.std() / np.sqrt(100)
    assert_allclose(draws.std(), 1 / np.sqrt(200), rtol=0.3)
