"""Convolutions and filters, as in ``scipy.signal``, differentiated in all their arrays.

Arrays may be lists of traced numbers, too, as coefficients of filters are.
"""

from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from daskgrad.autodiff.rules import scipy_signal as rules
from daskgrad.autodiff.rules.twins import operand
from daskgrad.autodiff.tape import value
from daskgrad.scipy.dispatch import dispatched

MODES = ("full", "same", "valid")


@dispatched
def convolve(in1: Any, in2: Any, mode: str = "full", method: str = "auto") -> Any:
    """The convolution of two arrays with the same number of axes."""
    return convolved("convolve", in1, in2, mode, method, None)


@dispatched
def fftconvolve(in1: Any, in2: Any, mode: str = "full", axes: Any = None) -> Any:
    """The convolution, by Fourier transforms; along ``axes`` alone, other axes are broadcast."""
    return convolved("fftconvolve", in1, in2, mode, "fftconvolve", axes)


@dispatched
def oaconvolve(in1: Any, in2: Any, mode: str = "full", axes: Any = None) -> Any:
    """As ``fftconvolve``, by blocks: quicker if one array is much longer than the other."""
    return convolved("oaconvolve", in1, in2, mode, "oaconvolve", axes)


@dispatched
def correlate(in1: Any, in2: Any, mode: str = "full", method: str = "auto") -> Any:
    """The cross-correlation; of complex arrays, with the conjugate of ``in2``."""
    in2 = operand(in2)
    turned = rules.flip(np.conj(in2), tuple(range(np.ndim(in2))))
    return convolved("correlate", in1, turned, mode, method, None)


def convolved(name: str, in1: Any, in2: Any, mode: str, by: str, axes: Any) -> Any:
    """The function of this name; ``by``: the method, or the name again."""
    if by not in ("auto", "direct", "fft", name):
        raise ValueError(f"signal.{name} takes method 'auto', 'direct' or 'fft', not {by!r}")
    if mode not in MODES:
        raise ValueError(f"signal.{name} takes mode 'full', 'same' or 'valid', not {mode!r}")
    a, b = operand(in1), operand(in2)
    if np.ndim(a) != np.ndim(b):
        raise ValueError(
            f"signal.{name}: in1 has {np.ndim(a)} axes, in2 {np.ndim(b)}; they must have as many"
        )
    if np.ndim(a) == 0:
        return a * b
    if not np.size(a) or not np.size(b):
        return np.array([])
    axes, size = axes_of(axes, np.ndim(a)), np.shape(a)
    if name in ("fftconvolve", "oaconvolve"):
        axes = tuple([n for n in axes if np.shape(a)[n] != 1 and np.shape(b)[n] != 1])
        a, b = broadcast(a, b, axes)
    if mode == "valid" and axes:
        return valid(name, a, b, by, axes)
    result = rules.convolution(a, b, "full", by, axes) if axes else a * b
    if mode != "same":
        return result
    begins = [(length - n) // 2 for length, n in zip(np.shape(result), size, strict=True)]
    return result[tuple([slice(m, m + n) for m, n in zip(begins, size, strict=True)])]


def axes_of(axes: Any, ndim: int) -> tuple[int, ...]:
    if axes is None:
        return tuple(range(ndim))
    numbers = tuple([normalize_axis_index(axis, ndim) for axis in np.atleast_1d(axes)])
    if not numbers or len(set(numbers)) < len(numbers):
        raise ValueError(f"axes are {axes!r}; give each of the axes of the convolution once")
    return numbers


def broadcast(a: Any, b: Any, axes: tuple[int, ...]) -> list[Any]:
    """Both arrays, of the same lengths along all other axes."""
    first, second = np.shape(a), np.shape(b)
    others = [n for n in range(len(first)) if n not in axes]
    common = np.broadcast_shapes(*[tuple([shape[n] for n in others]) for shape in (first, second)])
    lengths = dict(zip(others, common, strict=True))
    shapes = [
        tuple([lengths.get(n, shape[n]) for n in range(len(shape))]) for shape in (first, second)
    ]
    return [
        array if np.shape(array) == shape else np.broadcast_to(array, shape)
        for array, shape in zip((a, b), shapes, strict=True)
    ]


def valid(name: str, a: Any, b: Any, by: str, axes: tuple[int, ...]) -> Any:
    first, second = ([np.shape(array)[n] for n in axes] for array in (a, b))
    if all(m >= n for m, n in zip(first, second, strict=True)):
        return rules.convolution(a, b, "valid", by, axes)
    if all(m <= n for m, n in zip(first, second, strict=True)):
        return rules.convolution(b, a, "valid", by, axes)
    raise ValueError(
        f"signal.{name}: for mode='valid' one array must be at least as long as the other along "
        f"every axis; their lengths are {first} and {second}"
    )


# ----------------------------------------------------------------------------------- filters


@dispatched
def lfilter(b: Any, a: Any, x: Any, axis: int = -1, zi: Any = None) -> Any:
    """``x`` filtered with the transfer function ``b / a``; with ``zi`` also the final state."""
    b, a, x = operand(b), operand(a), operand(x)
    for name, coefficients in (("b", b), ("a", a)):
        if np.ndim(coefficients) != 1 or not np.size(coefficients):
            raise ValueError(
                f"signal.lfilter: {name} has the shape {np.shape(coefficients)}, not a vector"
            )
    if value(a)[0] == 0.0:
        raise ValueError("signal.lfilter: a[0] is zero; take the leading zeros away")
    b, poles = b / a[0], a[1:] / a[0]
    rows = np.moveaxis(x, axis, -1)
    states = max(np.size(b), np.size(a)) - 1
    expected = (*np.shape(rows)[:-1], states)
    if zi is None:
        filtered = rules.lfilter(b, poles, rows, np.zeros(expected, value(rows).dtype))
        return np.moveaxis(filtered, -1, axis)
    begin = operand(zi)
    if np.ndim(begin) == np.ndim(x):
        begin = np.moveaxis(begin, axis, -1)
    if np.ndim(begin) != np.ndim(x) or not fits(np.shape(begin), expected):
        raise ValueError(
            f"signal.lfilter: zi has the shape {np.shape(zi)}; it must be that of x with "
            f"{states} along the axis {axis}"
        )
    begin = np.broadcast_to(begin, expected)
    filtered = rules.lfilter(b, poles, rows, begin)
    delays = np.concatenate([np.zeros(1), poles])
    end = tail(b, rows, states) - tail(delays, filtered, states)  # the outputs still to come
    end = end + rules.fit(begin[..., np.shape(rows)[-1] :], states)
    return np.moveaxis(filtered, -1, axis), np.moveaxis(end, -1, axis)


def fits(shape: tuple, expected: tuple) -> bool:
    pairs = zip(shape[:-1], expected[:-1], strict=True)
    return shape[-1] == expected[-1] and all(m in (1, n) for m, n in pairs)


def tail(coefficients: Any, rows: Any, count: int) -> Any:
    """The next ``count`` sums of delayed entries, with zeros beyond both ends of the rows."""
    *stack, size = np.shape(rows)
    before = np.zeros((*stack, max(count - size, 0)))
    last = [before, rows[..., max(size - count, 0) :], np.zeros((*stack, count))]
    return rules.at_rest(coefficients, rules.NOTHING, np.concatenate(last, axis=-1))[..., count:]


@dispatched
def sosfilt(sos: Any, x: Any, axis: int = -1, zi: Any = None) -> Any:
    """``x`` through sections of second order, the rows of ``sos``; with ``zi`` also the states."""
    sos, filtered = operand(sos), operand(x)
    if np.ndim(sos) != 2 or np.shape(sos)[1] != 6:
        raise ValueError(f"signal.sosfilt: sos has the shape {np.shape(sos)}, not (sections, 6)")
    if not np.all(value(sos)[:, 3] == 1.0):
        raise ValueError("signal.sosfilt: sos[:, 3] must be 1; divide the rows by it")
    if zi is None:
        for n in range(np.shape(sos)[0]):
            filtered = lfilter(sos[n, :3], sos[n, 3:], filtered, axis)
        return filtered
    begins, ends = operand(zi), []
    for n in range(np.shape(sos)[0]):
        filtered, end = lfilter(sos[n, :3], sos[n, 3:], filtered, axis, begins[n])
        ends.append(end)
    return filtered, np.stack(ends)
