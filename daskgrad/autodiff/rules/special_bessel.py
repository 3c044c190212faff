"""SciPy's Bessel functions and their relatives: their slopes. By the order there is none.

The second of two results is often the derivative of the first; its own slope is from the
differential equation.
"""

import math
import operator
from collections.abc import Callable

import autograd.numpy as anp
import numpy as np

from daskgrad.autodiff.rules.declaration import Refusal, plain
from daskgrad.autodiff.rules.special import (
    ORDER,
    PARAMETER,
    Row,
    choose,
    enter,
    polynomial,
    require_real,
    special,
)

# ----------------------------------------------------------------------------- Bessel's functions


def cylinder(name, combined=operator.sub, factor=0.5, of_value=0.0, is_scaled=False):
    """(C(v - 1) ∓ C(v + 1)) / 2 (DLMF 10.6.1, 10.29.1), and ``of_value`` times C from an
    exponential factor; ``is_scaled``: by exp(-|Im z|), which is one for real numbers."""

    def slope(ans, v, z):
        if is_scaled:
            require_real(name, z)
        fun = getattr(special, name)
        between = factor * combined(fun(v - 1, z), fun(v + 1, z))
        return between + of_value * ans if of_value else between

    return slope


def ive_slope(ans, n, x):
    if anp.iscomplexobj(x):
        raise Refusal(
            "special.ive has no derivative rule for a complex x2; write special.iv(n, z) * "
            "np.exp(-np.abs(np.real(z)))"
        )
    return cylinder("ive", operator.add)(ans, n, x) - anp.sign(x) * ans


def struve_slope(name: str, sign: float) -> Callable:
    """DLMF 11.4.27 and 11.4.31."""

    def slope(ans, v, x):
        fun = getattr(special, name)
        power = (0.5 * x) ** (1.0 * v) * (special.rgamma(v + 1.5) / math.sqrt(math.pi))
        return 0.5 * (fun(v - 1, x) + sign * fun(v + 1, x) + power)

    return slope


def besselpoly_slope(ans, a, power, v):
    """For ∫ x^λ J(2ax) from 0 to 1, with J' = v J/z - J(v + 1) (DLMF 10.6.2)."""
    return ans * v / a - 2.0 * special.besselpoly(a, power + 1.0, v + 1.0)


enter(
    {
        **{name: [ORDER, cylinder(name)] for name in ("jv", "yn", "yv", "hankel1", "hankel2")},
        "jve": [ORDER, cylinder("jve", is_scaled=True)],
        "yve": [ORDER, cylinder("yve", is_scaled=True)],
        "hankel1e": [ORDER, cylinder("hankel1e", of_value=-1j)],
        "hankel2e": [ORDER, cylinder("hankel2e", of_value=1j)],
        "iv": [ORDER, cylinder("iv", operator.add)],
        "ive": [ORDER, ive_slope],
        "kv": [ORDER, cylinder("kv", operator.add, -0.5)],
        "kve": [ORDER, cylinder("kve", operator.add, -0.5, 1.0)],
        "kn": [
            ORDER,
            lambda ans, n, x: -0.5 * (special.kn(np.abs(n - 1), x) + special.kn(n + 1, x)),
        ],
        "k0": [lambda ans, x: -special.k1(x)],
        "k1": [lambda ans, x: -special.k0(x) - ans / x],
        "k0e": [lambda ans, x: ans - special.k1e(x)],
        "k1e": [lambda ans, x: ans - special.k0e(x) - ans / x],
        "i0e": [lambda ans, x: special.i1e(x) - anp.sign(x) * ans],
        "i1e": [lambda ans, x: 0.5 * (special.i0e(x) + special.ive(2, x)) - anp.sign(x) * ans],
        "struve": [ORDER, struve_slope("struve", -1.0)],
        "modstruve": [ORDER, struve_slope("modstruve", 1.0)],
        "besselpoly": [besselpoly_slope, PARAMETER, ORDER],
        "wright_bessel": [
            PARAMETER,
            PARAMETER,
            lambda ans, a, b, x: special.wright_bessel(a, a + b, x),
        ],
        "log_wright_bessel": [
            PARAMETER,
            PARAMETER,
            lambda ans, a, b, x: anp.exp(special.log_wright_bessel(a, a + b, x) - ans),
        ],
    }
)

# -------------------------------------------------------------------------- integrals from 0 to x


def over(x, odd, limit):
    """An odd function over x, or their limit at zero."""
    is_zero = plain(x) == 0.0
    return (
        anp.where(is_zero, limit, odd / anp.where(is_zero, 1.0, x)) if np.any(is_zero) else odd / x
    )


def quotient(name: str, sign: float) -> Callable:
    """sign · (f(x) - 1) / x for J₀ and I₀; a power series where it cancels."""
    powers = [sign * sign**n / (4.0**n * math.factorial(n) ** 2) for n in range(1, 16)]

    def slope(x):
        return choose(
            np.abs(plain(x)) < 1.0,
            x,
            lambda x: x * polynomial(powers, x**2),
            lambda x: sign * (getattr(special, name)(x) - 1.0) / x,
            0.0,
            2.0,
        )

    return slope


enter(
    {
        "itj0y0": [lambda ans, x: (special.j0(x), special.y0(x))],
        "iti0k0": [lambda ans, x: (special.i0(x), special.k0(x))],
        "it2j0y0": [lambda ans, x: (quotient("j0", -1.0)(x), -special.y0(x) / x)],
        "it2i0k0": [lambda ans, x: (quotient("i0", 1.0)(x), -special.k0(x) / x)],
        "itstruve0": [lambda ans, x: special.struve(0, x)],
        "it2struve0": [lambda ans, x: -over(x, special.struve(0, x), 2.0 / math.pi)],
        "itmodstruve0": [lambda ans, x: special.modstruve(0, x)],
        "itairy": [lambda ans, x: (*special_airy(x), *special_airy(-x))],
    }
)


def special_airy(x):
    parts = special.airy(x)
    return parts[0], parts[2]


# --------------------------------------------------------------------------- Airy's, and Kelvin's


def airye_slope(ans, z):
    """Ai has the factor exp(ζ), Bi the factor exp(-|Re ζ|), with ζ' = √z."""
    require_real("airye", z)
    ai, slope_ai, bi, slope_bi = ans
    positive = plain(z) > 0.0
    root = anp.where(positive, anp.sqrt(anp.where(positive, z, 1.0)), 0.0)
    return (
        slope_ai + root * ai,
        z * ai + root * slope_ai,
        slope_bi - root * bi,
        z * bi - root * slope_bi,
    )


enter(
    {
        "airy": [lambda ans, z: (ans[1], z * ans[0], ans[3], z * ans[2])],
        "airye": [airye_slope],
        "ber": [lambda ans, x: special.berp(x)],
        "bei": [lambda ans, x: special.beip(x)],
        "ker": [lambda ans, x: special.kerp(x)],
        "kei": [lambda ans, x: special.keip(x)],
        "berp": [lambda ans, x: -special.bei(x) - over(x, ans, 0.0)],
        "beip": [lambda ans, x: special.ber(x) - over(x, ans, 0.5)],
        "kerp": [lambda ans, x: -special.kei(x) - ans / x],
        "keip": [lambda ans, x: special.ker(x) - ans / x],
        "kelvin": [
            lambda ans, x: (
                ans[2],
                ans[3],
                1j * ans[0] - over(x, ans[2], 0.5j),
                1j * ans[1] - ans[3] / x,
            )
        ],
    }
)

# ------------------------------------------------------------- parabolic, Mathieu's, and spheroidal


def mathieu(value: str, is_modified: bool = False) -> Row:
    """y'' = (2q cos 2x - a) y, with x in degrees and y' by radians (DLMF 28.2.1); modified ones:
    y'' = (a - 2q cosh 2x) y (DLMF 28.20.1)."""

    def slope(ans, m, q, x):
        a = getattr(special, value)(m, q)
        if is_modified:
            return ans[1], (a - 2.0 * q * anp.cosh(2.0 * x)) * ans[0]
        unit = math.pi / 180.0
        return unit * ans[1], unit * (2.0 * q * anp.cos(2.0 * unit * x) - a) * ans[0]

    return [ORDER, PARAMETER, slope]


def spheroidal(name: str, has_value: bool) -> Row:
    """(1 - s x²) y'' = 2 s x y' - (λ - c² x² - m² / (1 - s x²)) y for the angular functions, with
    -c² for the oblate ones (DLMF 30.2.1); their radial ones are of an imaginary x (30.11)."""
    sign = 1.0 if name.startswith("pro") else -1.0

    def slope(ans, m, n, c, *others):
        x = others[-1]
        value = others[0] if has_value else getattr(special, f"{name[:3]}_cv")(m, n, c)
        if name.startswith("obl_rad"):
            whole = 1.0 + x**2
            force = (value - c**2 * x**2 - m**2 / whole) * ans[0]
            return ans[1], (force - 2.0 * x * ans[1]) / whole
        whole = 1.0 - x**2
        force = (value - sign * c**2 * x**2 - m**2 / whole) * ans[0]
        return ans[1], (2.0 * x * ans[1] - force) / whole

    return [ORDER, ORDER, PARAMETER, *["the eigenvalue"] * has_value, slope]


SPHEROIDAL = "pro_ang1 pro_rad1 pro_rad2 obl_ang1 obl_rad1 obl_rad2".split()

enter(
    {
        "pbdv": [ORDER, lambda ans, v, x: (ans[1], (0.25 * x**2 - v - 0.5) * ans[0])],
        "pbvv": [ORDER, lambda ans, v, x: (ans[1], (0.25 * x**2 - v - 0.5) * ans[0])],
        "pbwa": [PARAMETER, lambda ans, a, x: (ans[1], (a - 0.25 * x**2) * ans[0])],
        "mathieu_a": [ORDER, PARAMETER],
        "mathieu_b": [ORDER, PARAMETER],
        "mathieu_cem": mathieu("mathieu_a"),
        "mathieu_sem": mathieu("mathieu_b"),
        **dict.fromkeys(("mathieu_modcem1", "mathieu_modcem2"), mathieu("mathieu_a", True)),
        **dict.fromkeys(("mathieu_modsem1", "mathieu_modsem2"), mathieu("mathieu_b", True)),
        "pro_cv": [ORDER, ORDER, PARAMETER],
        "obl_cv": [ORDER, ORDER, PARAMETER],
        **{name: spheroidal(name, False) for name in SPHEROIDAL},
        **{f"{name}_cv": spheroidal(name, True) for name in SPHEROIDAL},
    }
)
