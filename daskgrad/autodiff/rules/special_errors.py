"""SciPy's error functions, elementary ones, and functions of information theory: their slopes."""

import math
from collections.abc import Callable

import autograd.numpy as anp
import numpy as np

from daskgrad.autodiff.rules.declaration import plain
from daskgrad.autodiff.rules.special import choose, enter, inverse, polynomial, special, zero

ROOT_2 = math.sqrt(2.0)
ROOT_PI = math.sqrt(math.pi)
ROOT_2PI = math.sqrt(2.0 * math.pi)
DEGREE = math.pi / 180.0

# ------------------------------------------------------------------------- errors, and the normal

FAR = 10.0  # the slopes of erfcx and dawsn cancel; from here on their series is exact
ODD = [math.prod(range(1, 2 * n, 2)) for n in range(1, 15)]  # (2n - 1)!!


def tail(sign, x):
    """Σ signⁿ (2n - 1)!! / (2x²)ⁿ, n from 1 (DLMF 7.12.1, for the Dawson integral 7.12.1, too)."""
    step = sign / (2.0 * x**2)
    return step * polynomial([float(odd) for odd in ODD], step)


def normal_density(x):
    return anp.exp(-0.5 * x**2) / ROOT_2PI


def with_tail(size: Callable, near: Callable, far: Callable) -> Callable:
    """The slope ``near(x)``; of real numbers ``far(x)`` where their ``size`` is beyond FAR."""

    def slope(ans, x):
        if anp.iscomplexobj(x):
            return near(x)
        return choose(size(plain(x)) > FAR, x, far, near, 2.0 * FAR, 0.0)

    return slope


def log_ndtr_slope(ans, x):
    """By ``erfcx`` on the left, where density and probability vanish."""
    if anp.iscomplexobj(x):
        return anp.exp(-0.5 * x**2 - special.log_ndtr(x)) / ROOT_2PI
    return choose(
        plain(x) < 0.0,
        x,
        lambda x: ROOT_2 / ROOT_PI / special.erfcx(x / -ROOT_2),
        lambda x: normal_density(x) / special.ndtr(x),
        -1.0,
        1.0,
    )


def voigt(x, sigma, gamma):
    """z and w'(z) of the profile Re w(z) / (σ √2π), z = (x + iγ) / (σ √2)."""
    z = (x + 1j * gamma) / (sigma * ROOT_2)
    return z, 2j / ROOT_PI - 2.0 * z * special.wofz(z)


def voigt_by_sigma(ans, x, sigma, gamma):
    z, slope = voigt(x, sigma, gamma)
    return -anp.real(special.wofz(z) + slope * z) / (ROOT_2PI * sigma**2)


enter(
    {
        "ndtr": [lambda ans, x: normal_density(x)],
        "log_ndtr": [log_ndtr_slope],
        "ndtri": [lambda ans, y: ROOT_2PI * anp.exp(0.5 * ans**2)],
        "ndtri_exp": inverse([log_ndtr_slope], 0),
        "erfcx": [
            with_tail(
                np.positive,
                lambda x: 2.0 * x * special.erfcx(x) - 2.0 / ROOT_PI,
                lambda x: 2.0 / ROOT_PI * tail(-1.0, x),
            )
        ],
        "erfi": [lambda ans, x: 2.0 / ROOT_PI * anp.exp(x**2)],
        "dawsn": [
            with_tail(np.abs, lambda x: 1.0 - 2.0 * x * special.dawsn(x), lambda x: -tail(1.0, x))
        ],
        "wofz": [lambda ans, z: 2j / ROOT_PI - 2.0 * z * ans],
        "voigt_profile": [
            lambda ans, x, s, g: anp.real(voigt(x, s, g)[1]) / (2.0 * ROOT_PI * s**2),
            voigt_by_sigma,
            lambda ans, x, s, g: -anp.imag(voigt(x, s, g)[1]) / (2.0 * ROOT_PI * s**2),
        ],
        "owens_t": [
            lambda ans, h, a: -0.5 * normal_density(h) * special.erf(a * h / ROOT_2),
            lambda ans, h, a: anp.exp(-0.5 * h**2 * (1.0 + a**2)) / (2.0 * math.pi * (1.0 + a**2)),
        ],
        "nrdtrimn": [
            lambda ans, p, sd, x: -sd * ROOT_2PI * anp.exp(0.5 * special.ndtri(p) ** 2),
            lambda ans, p, sd, x: -special.ndtri(p),
            lambda ans, p, sd, x: 1.0,
        ],
        "nrdtrisd": [
            lambda ans, mean, p, x: -1.0 / special.ndtri(p),
            lambda ans, mean, p, x: (
                -(x - mean)
                * ROOT_2PI
                * anp.exp(0.5 * special.ndtri(p) ** 2)
                / special.ndtri(p) ** 2
            ),
            lambda ans, mean, p, x: 1.0 / special.ndtri(p),
        ],
    }
)

# -------------------------------------------------------------------------- information, penalties


def nonzero(x, y):
    """``y``, but 1 where both vanish: there ``x / y`` is taken for zero."""
    return anp.where((plain(x) == 0) & (plain(y) == 0), 1.0, y)


def pseudo_huber_by_delta(ans, delta, r):
    """δ (s - 1)² / s, s² = 1 + (r/δ)², without the cancellation of s - 1."""
    square = (r / delta) ** 2
    s = anp.sqrt(1.0 + square)
    return delta * (square / (s + 1.0)) ** 2 / s


enter(
    {
        "xlogy": [lambda ans, x, y: anp.log(y), lambda ans, x, y: x / nonzero(x, y)],
        "xlog1py": [lambda ans, x, y: special.log1p(y), lambda ans, x, y: x / nonzero(x, 1.0 + y)],
        "entr": [lambda ans, x: -anp.log(x) - 1.0],
        "rel_entr": [lambda ans, x, y: anp.log(x / y) + 1.0, lambda ans, x, y: -x / nonzero(x, y)],
        "kl_div": [lambda ans, x, y: anp.log(x / y), lambda ans, x, y: (y - x) / nonzero(x, y)],
        "huber": [
            lambda ans, delta, r: anp.where(
                np.abs(plain(r)) <= plain(delta), 0.0, anp.abs(r) - delta
            ),
            lambda ans, delta, r: anp.where(
                np.abs(plain(r)) <= plain(delta), r, delta * np.sign(plain(r))
            ),
        ],
        "pseudo_huber": [
            pseudo_huber_by_delta,
            lambda ans, delta, r: r / anp.sqrt(1.0 + (r / delta) ** 2),
        ],
        "expit": [lambda ans, x: ans * special.expit(-x)],
        "log_expit": [lambda ans, x: special.expit(-x)],
    }
)

# --------------------------------------------------------------------------------------- elementary

EXPREL = [(n + 1.0) / math.factorial(n + 2) for n in range(24)]
POWERS = [(-1.0) ** (n + 1) * (1.0 - 1.0 / n) for n in range(2, 24)]


def exprel_slope(ans, x):
    return choose(
        np.abs(plain(x)) < 1.0,
        x,
        lambda x: polynomial(EXPREL, x),
        lambda x: (anp.exp(x) - special.exprel(x)) / x,
        0.0,
        2.0,
    )


def power_slope(log, power):
    """The derivative of log · exprel(λ log) = (x^λ - 1) / λ by λ."""
    is_zero = np.isneginf(plain(log))
    at_zero = 1.0 / anp.where(plain(power) == 0, 1.0, power) ** 2
    log = anp.where(is_zero, 0.0, log)
    return anp.where(is_zero, at_zero, log**2 * exprel_slope(None, power * log))


def root_slope(y, power):
    """The derivative of log(1 + λy) / λ by λ."""
    return y**2 * choose(
        np.abs(plain(y * power)) < 0.1,
        y * power,
        lambda u: polynomial(POWERS, u),
        lambda u: (u / (1.0 + u) - special.log1p(u)) / u**2,
        0.0,
        1.0,
    )


def tklmbda_slope(top):
    """From the quantile function x = (p^λ - (1 - p)^λ) / λ; zero outside of the support."""

    def slope(ans, x, power):
        inside = (plain(ans) > 0.0) & (plain(ans) < 1.0)
        p = anp.where(inside, ans, 0.5)
        steep = p ** (power - 1.0) + (1.0 - p) ** (power - 1.0)  # dx/dp
        return anp.where(inside, top(p, power) / steep, 0.0)

    return slope


enter(
    {
        "expm1": [lambda ans, x: anp.exp(x)],
        "log1p": [lambda ans, x: 1.0 / (1.0 + x)],
        "exprel": [exprel_slope],
        "exp2": [lambda ans, x: math.log(2.0) * ans],
        "exp10": [lambda ans, x: math.log(10.0) * ans],
        "cbrt": [lambda ans, x: 1.0 / (3.0 * ans**2)],
        "cosm1": [lambda ans, x: -anp.sin(x)],
        "sindg": [lambda ans, x: DEGREE * special.cosdg(x)],
        "cosdg": [lambda ans, x: -DEGREE * special.sindg(x)],
        "tandg": [lambda ans, x: DEGREE * (1.0 + ans**2)],
        "cotdg": [lambda ans, x: -DEGREE * (1.0 + ans**2)],
        "radian": [
            lambda ans, *parts: DEGREE,
            lambda ans, *parts: DEGREE / 60.0,
            lambda ans, *parts: DEGREE / 3600.0,
        ],
        "round": [zero],
        "powm1": [lambda ans, x, y: y * x ** (y - 1.0), lambda ans, x, y: x**y * anp.log(x)],
        "boxcox": [
            lambda ans, x, power: x ** (power - 1.0),
            lambda ans, x, power: power_slope(anp.log(x), power),
        ],
        "boxcox1p": [
            lambda ans, x, power: (1.0 + x) ** (power - 1.0),
            lambda ans, x, power: power_slope(special.log1p(x), power),
        ],
        "inv_boxcox": [
            lambda ans, y, power: ans / (1.0 + power * y),
            lambda ans, y, power: ans * root_slope(y, power),
        ],
        "inv_boxcox1p": [
            lambda ans, y, power: (1.0 + ans) / (1.0 + power * y),
            lambda ans, y, power: (1.0 + ans) * root_slope(y, power),
        ],
        "tklmbda": [
            tklmbda_slope(lambda p, power: 1.0),
            tklmbda_slope(
                lambda p, power: (
                    power_slope(anp.log(1.0 - p), power) - power_slope(anp.log(p), power)
                )
            ),
        ],
    }
)
