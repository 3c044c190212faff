"""``daskgrad.scipy.signal``: SciPy's values; derivatives in both modes and of second order."""

import numpy as np
import pytest
import scipy.signal
from functions_checked import check_against_scipy, checking
from lengths import in_short
from numpy.testing import assert_allclose

import daskgrad as dg
from daskgrad.autodiff.rules import scipy_signal as rules
from daskgrad.scipy import signal

check = checking(signal, scipy.signal)
random = np.random.default_rng(5)
M, K, V = random.normal(size=(3, 4)), random.normal(size=(2, 3)), random.normal(size=6)
SECTIONS = np.array([[1.0, 0.3, 0.2, 1.0, 0.1, 0.4], [0.5, 0.3, 0.2, 1.0, -0.3, 0.2]])

MODES = ("full", "same", "valid")
CONVOLVING = ("convolve", "correlate", "fftconvolve", "oaconvolve")
CONVOLUTIONS = [(name, mode) for name in CONVOLVING for mode in MODES]
BY_AXES = [(name, mode) for name in CONVOLVING[2:] for mode in MODES]
SHORT = [("convolve", "same"), ("correlate", "valid"), ("fftconvolve", "full")]


@in_short(("name", "mode"), CONVOLUTIONS, *SHORT)
def test_convolutions(name, mode):
    check(lambda s, m: getattr(s, name)(m, K, mode), M)
    check(lambda s, m: getattr(s, name)(K, m, mode), M)
    check(lambda s, m: getattr(s, name)(m, m[:2, :3] ** 2, mode), M)
    check(lambda s, m: getattr(s, name)(m[0, :3], m[1], mode), M)


@in_short(("name", "mode"), BY_AXES, ("oaconvolve", "valid"))
def test_convolutions_along_axes(name, mode):
    """Other axes are broadcast, and so are those of length one."""
    check(lambda s, m: getattr(s, name)(m, m[:1, :2], mode, axes=1), M)
    check(lambda s, m: getattr(s, name)(m[:1], m[:, 1:], mode, axes=[-1]), M)
    check(lambda s, m: getattr(s, name)(m[:, :1], m[:2], mode), M)
    check(lambda s, m: getattr(s, name)(m[:1], m[:, :1], mode, axes=0), M)


def test_methods_and_complex_convolutions():
    for method in ("direct", "fft"):
        check(lambda s, m, how=method: s.convolve(m, K, method=how), M)
        check(lambda s, m, how=method: s.correlate(K, m, "same", how), M)
    turned = K * np.exp(1j * K)
    check(lambda s, m: np.abs(s.correlate(m * (1.0 + 2.0j), turned * m[0, 0])) ** 2, M)


FILTERS = {
    "moving average": lambda s, v: s.lfilter(v[:3], [2.0], M * v[4]),
    "recursive": lambda s, v: s.lfilter([1.0], np.stack([2.0 * v[1], v[2], 0.3]), v),
    "both, along the first axis": lambda s, v: s.lfilter(v[:2], v[1:5], M * v[5], axis=0),
    "of a state": lambda s, v: s.lfilter(v[:2], v[1:5], M, 0, v[3:].reshape(3, 1) ** 2)[0],
    "the state after it": lambda s, v: s.lfilter(v[:2], v[1:5], M * v[0], zi=M[:, :3] * v[1])[1],
    "the state of a short one": lambda s, v: s.lfilter(v, [v[0]], v[:2], zi=v[:5] ** 2)[1],
    "by averages, of a state": lambda s, v: s.lfilter(v[:3], [1.0], v, zi=v[:2] ** 2)[0],
    "sections": lambda s, v: s.sosfilt(SECTIONS, np.outer(v, v), axis=0),
    "sections of states": lambda s, v: s.sosfilt(SECTIONS, v**2, zi=v[:4].reshape(2, 2))[0],
    "the states of sections": lambda s, v: s.sosfilt(SECTIONS, v**2, zi=v[:4].reshape(2, 2))[1],
}


@in_short("name", FILTERS, "both, along the first axis", "of a state", "the state after it")
def test_filters(name):
    check(FILTERS[name], V)


def test_coefficients_may_be_lists_of_traced_numbers():
    pairs = (
        (
            lambda v: signal.lfilter([1.0, v[0]], [1.0, -v[1], 0.2], V),
            lambda v: signal.lfilter(
                np.stack([1.0 + 0.0 * v[0], v[0]]), np.concatenate([[1.0], -v[1:2], [0.2]]), V
            ),
        ),
        (
            lambda v: signal.sosfilt([[1.0, v[0], 0.2, 1.0, 0.1, v[1]]], V),
            lambda v: signal.lfilter(
                np.concatenate([[1.0], v[:1], [0.2]]), np.concatenate([[1.0, 0.1], v[1:2]]), V
            ),
        ),
    )
    for pair in pairs:
        of_list, of_array = (
            dg.grad(dg.delayed(lambda v, fun=fun: np.sum(fun(v) ** 2)))(V) for fun in pair
        )
        assert_allclose(of_list, of_array)
        assert np.all(of_list[:2])


def test_of_an_empty_series_and_without_a_state():
    model = dg.delayed(lambda v: np.sum(signal.lfilter(v[:2], v[1:], np.zeros((3, 0)))) + v[0])
    np.testing.assert_array_equal(dg.grad(model)(V), np.arange(6) == 0)
    found, end = signal.lfilter([2.0], [1.0], V, zi=np.zeros(0))
    assert_allclose(found, 2.0 * V)
    assert end.shape == (0,)


def test_of_plain_arrays_scipys_values():
    numerator, denominator = scipy.signal.butter(8, 0.2)
    x = random.normal(size=(2, 100))
    expected = scipy.signal.lfilter(numerator, denominator, x)
    np.testing.assert_array_equal(signal.lfilter(numerator, denominator, x), expected)
    single = [each.astype(np.float32) for each in (numerator, denominator, x)]
    assert signal.lfilter(*single).dtype == np.float32


REFUSED = {
    "not .most.": lambda: signal.convolve(M, K, "most"),
    "method 'auto'.*not 'slow'": lambda: signal.correlate(M, K, method="slow"),
    "method 'auto'.*not 'quick'": lambda: signal.convolve(M, K, method="quick"),
    "in1 has 2 axes, in2 1": lambda: signal.convolve(M, V),
    "at least as long as the other": lambda: signal.convolve(M[:1], M[:, :2], "valid"),
    "axis 2 is out of bounds": lambda: signal.fftconvolve(M, K, axes=[0, 2]),
    "each of the axes of the convolution once": lambda: signal.fftconvolve(M, K, axes=[1, -1]),
    r"b has the shape \(3, 4\), not a vector": lambda: signal.lfilter(M, [1.0], V),
    r"a\[0\] is zero": lambda: signal.lfilter([1.0], [0.0, 1.0], V),
    r"zi has the shape \(3,\).*2 along": lambda: signal.lfilter([1.0] * 3, [1.0], V, zi=V[:3]),
    "not .sections, 6": lambda: signal.sosfilt(V, V),
    "divide the rows": lambda: signal.sosfilt(2.0 * SECTIONS, V),
}


@pytest.mark.parametrize("message", REFUSED)
def test_errors(message):
    with pytest.raises(ValueError, match=message):
        REFUSED[message]()


def test_the_sums_over_delays():
    """They are a part of the gradients of filters, which only third orders differentiate."""

    def expected(m):
        n, other = np.shape(m)[1], m**2 + M
        return np.stack([np.sum(m[:, k:] * other[:, : n - k]) for k in range(3)])

    check_against_scipy(lambda m: rules.lagged(m, m**2 + M, 3), expected, M)
