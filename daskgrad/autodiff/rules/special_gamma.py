"""SciPy's gamma, zeta and hypergeometric functions, exponential integrals, orthogonal polynomials:
their slopes. By the degree and by parameters there is none."""

import math
from collections.abc import Callable

import autograd.numpy as anp
import numpy as np
from autograd.core import primitive_vjps
from autograd.scipy import special as autograds
from scipy.special import bernoulli

from daskgrad.autodiff.rules.declaration import Refusal, declare, equivalent, plain
from daskgrad.autodiff.rules.math_elementwise import slopes_adjoint
from daskgrad.autodiff.rules.special import (
    DEGREE,
    ORDER,
    PARAMETER,
    choose,
    enter,
    polynomial,
    special,
)

# ------------------------------------------------------- products of gamma functions, and poles


def is_pole(x):
    """Whether the gamma function is infinite, and its reciprocal zero."""
    x = plain(x)
    return (np.real(x) <= 0) & (np.real(x) == np.floor(np.real(x))) & (np.imag(x) == 0)


def at_poles(x, near, far):
    """``near(x)`` at the poles, elsewhere ``far(x)``."""
    return choose(is_pole(x), x, near, far, 0.0, 1.0)


def reflection_slope(x):
    """The derivative of 1 / Γ(x) = sin(πx) Γ(1 - x) / π (DLMF 5.5.3)."""
    sine = anp.sin(math.pi * x) / math.pi
    return special.gamma(1.0 - x) * (anp.cos(math.pi * x) - sine * special.psi(1.0 - x))


@equivalent(autograds.rgamma, needed=lambda x: bool(np.any(is_pole(x))))
def rgamma(x):
    """autograd's derivative is NaN at the poles of the gamma function."""
    return at_poles(
        x, lambda x: anp.sin(math.pi * x) * special.gamma(1.0 - x) / math.pi, autograds.rgamma
    )


def is_reflected(x, step):
    """Whether ψ(x + step) - ψ(x) is a difference of poles, or of large numbers next to them."""
    x, step = plain(x), plain(step)
    is_left = (np.real(x) < 0.5) & (np.real(x + step) < 0.5)
    return is_left & (step == np.floor(np.real(step)))


def psi_difference(x, step):
    """ψ(x + step) - ψ(x), by ψ(x) = ψ(1 - x) - π cot πx for whole steps, where cotangents cancel
    (DLMF 5.5.4)."""
    return choose(
        is_reflected(x, step),
        x,
        lambda x: special.psi(1.0 - x - step) - special.psi(1.0 - x),
        lambda x: special.psi(x + step) - special.psi(x),
        -1.0 - np.abs(plain(step)),
        1.0 + np.abs(plain(step)),
    )


def poch_by_z(ans, z, m):
    if np.any(is_reflected(z, m)):
        is_near = is_reflected(z, m)
        apart = poch_by_z(ans, anp.where(is_near, 1.0, z), anp.where(is_near, 1.0, m))
        return anp.where(is_near, ans * psi_difference(z, m), apart)
    return ans * special.psi(z + m) + at_poles(
        z, lambda z: special.gamma(z + m) * reflection_slope(z), lambda z: -ans * special.psi(z)
    )


def binom_by(ans, n, x):
    """By one of the two factors Γ(x) in the denominator."""
    return at_poles(
        x,
        lambda x: (
            special.beta(1.0 - x, n + 1.0)
            * (anp.cos(math.pi * x) - anp.sin(math.pi * x) / math.pi * special.psi(1.0 - x))
        ),
        lambda x: -ans * special.psi(x),
    )


def binom_by_n(ans, n, k):
    if np.any(is_reflected(n + 1.0, -k)):
        is_near = is_reflected(n + 1.0, -k)
        apart = binom_by_n(ans, anp.where(is_near, 1.0, n), anp.where(is_near, 1.0, k))
        return anp.where(is_near, -ans * psi_difference(n + 1.0, -k), apart)
    return ans * special.psi(n + 1.0) + binom_by(ans, n, n - k + 1.0)


def binom_by_k(ans, n, k):
    return binom_by(ans, n, k + 1.0) - binom_by(ans, n, n - k + 1.0)


def beta_slope(fun, place):
    """By one argument; a beta function is zero at poles of Γ(a + b) alone."""

    def slope(ans, *args):
        x, other = args[place], args[1 - place]
        ratio = -psi_difference(x, other)
        if fun is autograds.betaln:
            return ratio
        is_zero = is_pole(x + other) & ~is_pole(x) & ~is_pole(other)
        if not np.any(is_zero):
            return ans * ratio
        x, other = (anp.where(is_zero, arg, 0.5) for arg in (x, other))
        steep = special.gamma(x) * special.gamma(other) * reflection_slope(x + other)
        return anp.where(is_zero, steep, ans * anp.where(is_zero, 0.0, ratio))

    return slope


def declare_beta(fun):
    """autograd's derivatives are NaN at poles, and lose their digits next to them."""
    autograds_rule = primitive_vjps[fun]
    slopes = slopes_adjoint(beta_slope(fun, 0), beta_slope(fun, 1))

    def adjoint(argnums, ans, args, kwargs):
        is_regular = np.all((plain(args[0]) > 0.0) & (plain(args[1]) > 0.0))
        return (autograds_rule if is_regular else slopes)(argnums, ans, args, kwargs)

    declare(fun, adjoint=adjoint)


for fun in (autograds.beta, autograds.betaln):
    declare_beta(fun)


enter(
    {
        "loggamma": [lambda ans, z: special.psi(z)],
        "poch": [poch_by_z, lambda ans, z, m: ans * special.psi(z + m)],
        "binom": [binom_by_n, binom_by_k],
    }
)

# --------------------------------------------------------------------------- exponential integrals

LOGARITHM = [-((-1.0) ** n) / (n + 1) for n in range(24)]


def expn_slope(ans, n, x):
    """-E(n - 1, x); SciPy has no E of negative order."""
    some = np.where(np.asarray(n) == 0, 1, n)
    return anp.where(
        np.asarray(n) == 0, -anp.exp(-x) * (1.0 + x) / x**2, -special.expn(some - 1, x)
    )


def sinc(x):
    return anp.sin(x) / x if anp.iscomplexobj(x) else anp.sinc(x / math.pi)


def sinhc(x):
    if anp.iscomplexobj(x):
        return anp.sinh(x) / x
    return 0.5 * (special.exprel(x) + special.exprel(-x))


def spence_slope(ans, z):
    return choose(
        np.abs(plain(z) - 1.0) < 0.1,
        z - 1.0,
        lambda u: polynomial(LOGARITHM, u),
        lambda u: -anp.log(1.0 + u) / u,
        0.0,
        1.0,
    )


def modfresnel(i: complex) -> Callable:
    """For the root of -1 in the exponent."""
    shift = np.exp(-0.25 * i * math.pi) / math.sqrt(math.pi)
    return lambda ans, x: (-anp.exp(i * x**2), -2.0 * i * x * ans[1] - shift)


ZETA_TERMS, BERNOULLI = 12, bernoulli(20)[2::2]


def zeta_by_s(ans, s, q=1.0):
    """From the sum formula of Euler and Maclaurin, term by term (DLMF 25.11.28)."""
    if np.any(plain(s) < -4.0):
        raise Refusal("the derivative of special.zeta by x is not implemented for x < -4")
    end = q + float(ZETA_TERMS)
    log = anp.log(end)
    total = sum([-anp.log(q + float(n)) * (q + float(n)) ** -s for n in range(ZETA_TERMS)])
    power = end ** (1.0 - s) / (s - 1.0)
    total = total - power * (log + 1.0 / (s - 1.0)) - 0.5 * log * end**-s
    factor, slope = s * end ** (-s - 1.0), end ** (-s - 1.0) * (1.0 - s * log)
    for n, number in enumerate(BERNOULLI, 1):
        total = total + float(number) / math.factorial(2 * n) * slope
        more = (s + 2.0 * n - 1.0) * (s + 2.0 * n) / end**2
        slope = slope * more + factor * (2.0 * s + 4.0 * n - 1.0) / end**2
        factor = factor * more
    return total


enter(
    {
        "exp1": [lambda ans, z: -anp.exp(-z) / z],
        "expi": [lambda ans, z: anp.exp(z) / z],
        "expn": [ORDER, expn_slope],
        "sici": [lambda ans, z: (sinc(z), anp.cos(z) / z)],
        "shichi": [lambda ans, z: (sinhc(z), anp.cosh(z) / z)],
        "spence": [spence_slope],
        "_lambertw": [
            lambda ans, z, k, tol: anp.exp(-ans) / (1.0 + ans),
            "the branch",
            "the tolerance",
        ],
        "_zeta": [zeta_by_s, lambda ans, s, q: -s * special._zeta(s + 1.0, q)],
        "_riemann_zeta": [zeta_by_s],
        "zetac": [zeta_by_s],
        "fresnel": [lambda ans, z: (anp.sin(0.5 * math.pi * z**2), anp.cos(0.5 * math.pi * z**2))],
        "modfresnelp": [modfresnel(1j)],
        "modfresnelm": [modfresnel(-1j)],
        "wrightomega": [lambda ans, z: ans / (1.0 + ans)],
    }
)

# ------------------------------------------------------- hypergeometric functions, polynomials


def lowered(n, slope):
    """``slope(n)``, which has a polynomial of degree n - 1; zero for a constant."""
    is_constant = np.asarray(n) == 0
    if not np.any(is_constant):
        return slope(n)
    return anp.where(is_constant, 0.0, slope(np.where(is_constant, 1, n)))


def jacobi(n, a, b, x):
    """DLMF 18.9.15."""
    return lowered(
        n, lambda n: 0.5 * (n + a + b + 1.0) * special.eval_jacobi(n - 1, a + 1.0, b + 1.0, x)
    )


def gegenbauer(n, a, x):
    """DLMF 18.9.19."""
    return lowered(n, lambda n: 2.0 * a * special.eval_gegenbauer(n - 1, a + 1.0, x))


def laguerre(n, a, x):
    """DLMF 18.9.23."""
    return lowered(n, lambda n: -special.eval_genlaguerre(n - 1, a + 1.0, x))


def first_kind(n, x):
    """DLMF 18.9.21."""
    return lowered(n, lambda n: n * special.eval_chebyu(n - 1, x))


def sh_jacobi(ans, n, p, q, x):
    scale = special.binom(2.0 * n + p - 1.0, n)
    return 2.0 * jacobi(n, p - q, q - 1.0, 2.0 * x - 1.0) / scale


def legendre(ans, m, v, x):
    """DLMF 14.10.5; near the ends 14.10.1, and the limits at them for whole m."""
    ends = 1.0 - np.abs(plain(x)) < 1e-2
    if not np.any(ends):
        return (v * x * ans - (v + m) * special.lpmv(m, v - 1.0, x)) / (x**2 - 1.0)
    is_end = np.abs(plain(x)) == 1.0
    safe = anp.where(is_end, 0.5, x)
    m = np.asarray(m, float)
    lower = special.lpmv(np.where(m == 0.0, 1.0, m - 1.0), v, safe)  # P of order -1 is one of 1
    lower = np.where(m == 0.0, -1.0, (v + m) * (v - m + 1.0)) * lower
    upper = special.lpmv(m + 1.0, v, safe)
    near = 0.5 * (lower - upper) / anp.sqrt(1.0 - safe**2)
    order, twice = np.abs(m), v * (v + 1.0)
    limits = [0.5 * twice, np.where(twice, np.inf, 0.0), -0.25 * (v - 1.0) * (v + 2.0) * twice]
    limit = np.select([order == n for n in range(3)], limits, 0.0)
    turned = np.where(plain(x) < 0.0, np.where((v + order) % 2.0, 1.0, -1.0), 1.0)
    middle = legendre(ans, m, v, anp.where(ends, 0.5, x))
    return anp.where(is_end, limit * turned, anp.where(ends, near, middle))


enter(
    {
        "hyp0f1": [PARAMETER, lambda ans, v, z: special.hyp0f1(v + 1.0, z) / v],
        "hyp1f1": [
            PARAMETER,
            PARAMETER,
            lambda ans, a, b, x: a / b * special.hyp1f1(a + 1.0, b + 1.0, x),
        ],
        "hyp2f1": [
            PARAMETER,
            PARAMETER,
            PARAMETER,
            lambda ans, a, b, c, z: a * b / c * special.hyp2f1(a + 1.0, b + 1.0, c + 1.0, z),
        ],
        "hyperu": [
            PARAMETER,
            PARAMETER,
            lambda ans, a, b, x: -a * special.hyperu(a + 1.0, b + 1.0, x),
        ],
        "eval_legendre": [DEGREE, lambda ans, n, x: jacobi(n, 0.0, 0.0, x)],
        "eval_sh_legendre": [DEGREE, lambda ans, n, x: 2.0 * jacobi(n, 0.0, 0.0, 2.0 * x - 1.0)],
        "eval_chebyt": [DEGREE, lambda ans, n, x: first_kind(n, x)],
        "eval_chebyu": [DEGREE, lambda ans, n, x: gegenbauer(n, 1.0, x)],
        "eval_chebyc": [DEGREE, lambda ans, n, x: first_kind(n, 0.5 * x)],
        "eval_chebys": [DEGREE, lambda ans, n, x: 0.5 * gegenbauer(n, 1.0, 0.5 * x)],
        "eval_sh_chebyt": [DEGREE, lambda ans, n, x: 2.0 * first_kind(n, 2.0 * x - 1.0)],
        "eval_sh_chebyu": [DEGREE, lambda ans, n, x: 2.0 * gegenbauer(n, 1.0, 2.0 * x - 1.0)],
        "eval_hermite": [
            DEGREE,
            lambda ans, n, x: lowered(n, lambda n: 2.0 * n * special.eval_hermite(n - 1, x)),
        ],
        "eval_hermitenorm": [
            DEGREE,
            lambda ans, n, x: lowered(n, lambda n: n * special.eval_hermitenorm(n - 1, x)),
        ],
        "eval_laguerre": [DEGREE, lambda ans, n, x: laguerre(n, 0.0, x)],
        "eval_genlaguerre": [DEGREE, PARAMETER, lambda ans, n, a, x: laguerre(n, a, x)],
        "eval_gegenbauer": [DEGREE, PARAMETER, lambda ans, n, a, x: gegenbauer(n, a, x)],
        "eval_jacobi": [DEGREE, PARAMETER, PARAMETER, lambda ans, n, a, b, x: jacobi(n, a, b, x)],
        "eval_sh_jacobi": [DEGREE, PARAMETER, PARAMETER, sh_jacobi],
        "lpmv": [ORDER, DEGREE, legendre],
    }
)
