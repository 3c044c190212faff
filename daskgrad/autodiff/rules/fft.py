"""Fourier: real transforms and their inverses, written with complex transforms.

autograd's rules for these hold for ``norm=None`` and even lengths alone; for other calls they
are wrong without an error, or missing.
"""

from collections.abc import Callable
from typing import Any

import autograd.numpy as anp
import numpy as np
from autograd.numpy import fft

from daskgrad.autodiff.rules.declaration import always, declare, equivalent, plain, shape_of

LINE, LINES = "n axis norm", "s axes norm"  # the keywords of one transform, and of several


def line_needed(a, n=None, axis=-1, norm=None):
    """autograd ignores ``norm``, and is right only for even lengths that ``n`` does not change."""
    size = shape_of(a)[axis]
    return norm is not None or n is not None or size % 2 == 1


@equivalent(fft.rfft, needed=line_needed, keywords=LINE)
def rfft(a, n=None, axis=-1, norm=None):
    size = shape_of(a)[axis] if n is None else n
    return half(fft.fft(a, n, axis, norm), size, axis)


def half(spectrum, size, axis):
    """The first ``size // 2 + 1`` entries along an axis, zeros after its end."""
    count = size // 2 + 1
    missing = count - shape_of(spectrum)[axis]
    if missing > 0:
        shape = list(shape_of(spectrum))
        shape[axis] = missing
        spectrum = anp.concatenate([spectrum, np.zeros(shape)], axis=axis)
    return anp.moveaxis(anp.moveaxis(spectrum, axis, 0)[:count], 0, axis)


def inverse_line_needed(a, n=None, axis=-1, norm=None):
    """As for ``rfft``."""
    return norm is not None or n is not None


@equivalent(fft.irfft, needed=inverse_line_needed, keywords=LINE)
def irfft(a, n=None, axis=-1, norm=None):
    """The other half of the spectrum is the conjugate of the first, backwards."""
    size = 2 * (shape_of(a)[axis] - 1) if n is None else n
    first = anp.moveaxis(half(a, size, axis), axis, -1)
    mirrored = anp.conj(first[..., 1 : (size + 1) // 2][..., ::-1])
    spectrum = anp.concatenate([first, mirrored], axis=-1)
    return anp.moveaxis(anp.real(fft.ifft(spectrum, norm=norm)), -1, axis)


def lines(a: Any, s: Any, axes: Any, is_inverse: bool = False) -> list[tuple[int, int]]:
    """The length and the axis of each transform, as NumPy has them; the last one is real."""
    shape = shape_of(a)
    if axes is None:
        axes = range(len(shape)) if s is None else range(len(shape) - len(s), len(shape))
    sizes = [shape[n] for n in axes] if s is None else list(s)
    if s is None and is_inverse:
        sizes[-1] = 2 * (sizes[-1] - 1)
    return list(zip(sizes, axes, strict=True))


def are_repeated(a, s=None, axes=None, norm=None):
    """autograd refuses axes that are named twice."""
    return axes is not None and len({n % np.ndim(plain(a)) for n in axes}) < len(axes)


def forward(
    fun: Callable, last: Callable, other: Callable, default: Any, needed: Callable = always
) -> None:
    """The last axis is transformed first, of real numbers for ``rfft``; then the others."""

    def program(a, s=None, axes=default, norm=None):
        *others, (size, axis) = lines(a, s, axes)
        a = last(a, size, axis, norm)
        for size, axis in reversed(others):
            a = other(a, size, axis, norm)
        return a

    declare(fun, program=program, needed=needed, keywords=LINES)


def inverse(fun: Callable, default: Any) -> None:
    def program(a, s=None, axes=default, norm=None):
        *others, (size, axis) = lines(a, s, axes, is_inverse=True)
        for length, place in others:
            a = fft.ifft(a, length, place, norm)
        return fft.irfft(a, size, axis, norm)

    declare(fun, program=program, keywords=LINES)


forward(fft.rfft2, fft.rfft, fft.fft, (-2, -1))
forward(fft.rfftn, fft.rfft, fft.fft, None)
inverse(fft.irfft2, (-2, -1))
inverse(fft.irfftn, None)
for line, *several in (fft.fft, fft.fft2, fft.fftn), (fft.ifft, fft.ifft2, fft.ifftn):
    for fun in several:
        forward(fun, line, line, None, needed=are_repeated)
declare(fft.ifft, fft.fft, keywords=LINE)
declare(fft.fftshift, fft.ifftshift, keywords="axes")


SWAPPED = {None: "forward", "backward": "forward", "forward": "backward", "ortho": "ortho"}


@equivalent(fft.hfft, keywords=LINE)
def hfft(a, n=None, axis=-1, norm=None):
    return fft.irfft(anp.conj(a), n, axis, SWAPPED[norm])


@equivalent(fft.ihfft, keywords=LINE)
def ihfft(a, n=None, axis=-1, norm=None):
    return anp.conj(fft.rfft(a, n, axis, SWAPPED[norm]))
