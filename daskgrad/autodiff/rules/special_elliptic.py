"""SciPy's elliptic integrals and functions: their slopes.

The formulas divide by the parameter m; where it is small, power series take their place.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import autograd.numpy as anp
import numpy as np

from daskgrad.autodiff.rules.declaration import Refusal, plain
from daskgrad.autodiff.rules.special import Row, choose, enter, polynomial, special

NEAR, AWAY = 0.1, 0.5
FIRST = [math.comb(2 * n, n) / 4.0**n for n in range(20)]  # of (1 - m)^(-1/2)
SECOND = [-c / (2 * n - 1) for n, c in enumerate(FIRST)]  # of (1 - m)^(1/2)


def series(coefficients: Sequence[float]) -> list[float]:
    """The coefficients of a complete integral's slope."""
    return [
        0.5 * math.pi * n * c * first
        for n, (c, first) in enumerate(zip(coefficients, FIRST, strict=True))
    ][1:]


def k_by_m(m, complement, k, e):
    """dK/dm (DLMF 19.4.1), where ``rest`` is 1 - m."""
    near = np.abs(plain(m)) < NEAR
    safe = anp.where(near, AWAY, m)
    far = (e - complement * k) / (2.0 * safe * complement)
    return anp.where(near, polynomial(series(FIRST), anp.where(near, m, 0.0)), far)


def by_m(m: Any, inside: Callable, outside: Callable) -> Any:
    """``outside(m)``, or ``inside(m)`` where m is small."""
    return choose(np.abs(plain(m)) < NEAR, m, inside, outside, 0.0, AWAY)


def e_slope(ans, m):
    """dE/dm (DLMF 19.4.2)."""
    return by_m(
        m,
        lambda m: polynomial(series(SECOND), m),
        lambda m: (special.ellipe(m) - special.ellipk(m)) / (2.0 * m),
    )


def powers(coefficients: Sequence[float], phi: Any, m: Any) -> Any:
    """Σ n cₙ mⁿ⁻¹ ∫ sin²ⁿ, by the recursion of these integrals."""
    sine, cosine = anp.sin(phi), anp.cos(phi)
    integral, power, total = phi, sine * cosine, 0.0
    for n in range(1, len(coefficients)):
        integral = ((2 * n - 1) * integral - power) / (2.0 * n)
        power = power * sine**2
        total = total + n * coefficients[n] * m ** (n - 1) * integral
    return total


def f_by_m(phi, m):
    """dF/dm (DLMF 19.4.7)."""

    def far(m):
        root = anp.sqrt(1.0 - m * anp.sin(phi) ** 2)
        parts = special.ellipeinc(phi, m) / (1.0 - m) - special.ellipkinc(phi, m)
        return (parts - 0.5 * m * anp.sin(2.0 * phi) / ((1.0 - m) * root)) / (2.0 * m)

    return by_m(m, lambda m: powers(FIRST, phi, m), far)


def e_by_m(phi, m):
    """dE(φ, m)/dm (DLMF 19.4.6)."""
    return by_m(
        m,
        lambda m: powers(SECOND, phi, m),
        lambda m: (special.ellipeinc(phi, m) - special.ellipkinc(phi, m)) / (2.0 * m),
    )


def jacobi_by_m(ans, u, m):
    """From u = F(φ, m), which gives the slope of the amplitude φ."""
    sn, cn, dn, amplitude = ans
    slope = -dn * f_by_m(amplitude, m)
    return cn * slope, -sn * slope, -(0.5 * sn**2 + m * sn * cn * slope) / dn, slope


def jacobi_by_u(ans, u, m):
    sn, cn, dn = ans[0], ans[1], ans[2]
    return cn * dn, -sn * dn, -m * sn * cn, dn


def agm_by_b(ans, a, b):
    """From M = π a / (2 K(1 - b²/a²)) (DLMF 19.8.5)."""
    complement = (b / a) ** 2
    m, k = 1.0 - complement, special.ellipkm1(complement)
    return 2.0 * ans * complement * k_by_m(m, complement, k, special.ellipe(m)) / (k * b)


enter(
    {
        "ellipk": [lambda ans, m: k_by_m(m, 1.0 - m, ans, special.ellipe(m))],
        "ellipkm1": [lambda ans, p: -k_by_m(1.0 - p, p, ans, special.ellipe(1.0 - p))],
        "ellipe": [e_slope],
        "ellipkinc": [
            lambda ans, phi, m: 1.0 / anp.sqrt(1.0 - m * anp.sin(phi) ** 2),
            lambda ans, phi, m: f_by_m(phi, m),
        ],
        "ellipeinc": [
            lambda ans, phi, m: anp.sqrt(1.0 - m * anp.sin(phi) ** 2),
            lambda ans, phi, m: e_by_m(phi, m),
        ],
        "ellipj": [jacobi_by_u, jacobi_by_m],
        "agm": [lambda ans, a, b: agm_by_b(ans, b, a), agm_by_b],
    }
)

# --------------------------------------------------------------------- Carlson's symmetric ones


def require_distinct(name: str, x: Any, y: Any) -> None:
    """The formulas divide by the difference."""
    gap = np.abs(plain(x) - plain(y))
    if np.any(gap <= 1e-4 * (np.abs(plain(x)) + np.abs(plain(y)))):
        raise Refusal(
            f"special.{name} has no derivative rule where two arguments are equal, or nearly so; "
            f"write it with special.elliprc or special.elliprf, to which it comes down there"
        )


ARCTAN = [(-1.0) ** n / (2 * n + 1) for n in range(20)]


def rc_by_y(ans, x, y):
    """From arctan(√u) / √(u x), u = y/x - 1 (DLMF 19.2.18)."""
    near = np.abs(plain(y) - plain(x)) < NEAR * np.abs(plain(x))
    some_x, some_y = anp.where(near, x, 1.0), anp.where(near, y, 1.0)
    steps = [n * c for n, c in enumerate(ARCTAN)][1:]
    close = polynomial(steps, some_y / some_x - 1.0) / some_x**1.5
    y = anp.where(near, x + 1.0, y)
    return anp.where(near, close, 0.5 * (anp.sqrt(x) / y - ans) / (y - x))


def rc_by_x(ans, x, y):
    """By homogeneity, of degree -1/2."""
    return -(0.5 * ans + y * rc_by_y(ans, x, y)) / x


def symmetric(count: int, slope: Callable) -> Row:
    """The slopes by as many first arguments, among which f is symmetric, from its slope by x."""

    def by(n: int) -> Callable:
        return lambda ans, *args: slope(ans, *args[n:count], *args[:n], *args[count:])

    return list(map(by, range(count)))


def rd_slope(ans, x, y, z):
    """By x (DLMF 19.18.1 in partial fractions)."""
    require_distinct("elliprd", x, z)
    return (ans - special.elliprd(y, z, x)) / (2.0 * (z - x))


def rd_by_z(ans, x, y, z):
    """By homogeneity, of degree -3/2."""
    parts = x * rd_slope(ans, x, y, z) + y * rd_slope(ans, y, x, z)
    return -(1.5 * ans + parts) / z


def rj_slope(ans, x, y, z, p):
    require_distinct("elliprj", x, p)
    return (ans - special.elliprd(y, z, x)) / (2.0 * (p - x))


def rj_by_p(ans, x, y, z, p):
    parts = x * rj_slope(ans, x, y, z, p) + y * rj_slope(ans, y, z, x, p)
    return -(1.5 * ans + parts + z * rj_slope(ans, z, x, y, p)) / p


def rg_slope(ans, x, y, z):
    """By x, of R_G = ¼ ∫ Σ x/(t + x) t dt / s(t) (DLMF 19.23.7)."""
    return 0.25 * (special.elliprf(x, y, z) - x * special.elliprd(y, z, x) / 3.0)


enter(
    {
        "elliprc": [rc_by_x, rc_by_y],
        "elliprf": symmetric(3, lambda ans, x, y, z: special.elliprd(y, z, x) / -6.0),
        "elliprd": [*symmetric(2, rd_slope), rd_by_z],
        "elliprg": symmetric(3, rg_slope),
        "elliprj": [*symmetric(3, rj_slope), rj_by_p],
    }
)
