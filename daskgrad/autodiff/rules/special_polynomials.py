"""SciPy's hypergeometric functions and orthogonal polynomials: their slopes.

Derivatives by the degree and by parameters are refused.
"""

import autograd.numpy as anp
import numpy as np

from daskgrad.autodiff.rules.special import DEGREE, ORDER, PARAMETER, enter, special


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
    """DLMF 14.10.5."""
    return (v * x * ans - (v + m) * special.lpmv(m, v - 1.0, x)) / (x**2 - 1.0)


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
