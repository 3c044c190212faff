"""The table of the sweep: special functions and distributions of SciPy."""

import autograd.scipy.special as special
import autograd.scipy.stats as stats
import numpy as np
from functions_linalg import POSITIVE, hermitian
from functions_numpy import (
    ARRAYS,
    COLUMN,
    FLIPPED,
    PAIRS,
    SIGNED,
    STACK,
    UFUNC,
    UFUNC_REASONS,
    A,
    B,
    S,
    V,
    W,
    spaced,
)
from sweep import Held, Wrt, function

TRIPLES = [(A, B, V), (S, S, S), (V, A, B), (A, S, COLUMN)]


def ufunc(name, inputs, refused=None, **options):
    function(getattr(special, name), inputs, refused=UFUNC | (refused or {}),
        reasons=UFUNC_REASONS | options.pop("reasons", {}), **options)


for name in ("psi", "digamma"):
    ufunc(name, ARRAYS, reasons={"complex": "its derivative, polygamma, is of real numbers"})
for name in "gamma gammaln rgamma j0 j1 i0 i1 erf erfc erfinv expit".split():
    ufunc(name, ARRAYS + SIGNED)
for name in ("y0", "y1", "logit"):
    ufunc(name, ARRAYS)
ufunc("rgamma", [(np.array([-2.0, -1.0, 0.0, 0.3]),)])
ufunc("erfcinv", ARRAYS)
ufunc("gammasgn", ARRAYS + SIGNED)
for name in ("beta", "betaln"):
    ufunc(name, PAIRS)
ORDER = {"x1": Wrt((S + 1.0, Held(A)))}
for name in ("jn", "yn"):
    ufunc(name, [(2, A), (0, V), (np.arange(4), A), (1, S), (np.arange(3)[:, None], V)],
        refused={"x1": Wrt((S, Held(A)))} if name == "jn" else {})
for name in ("iv", "ive"):
    ufunc(name, reasons={"complex": "not holomorphic, and refused"} if name == "ive" else {},
        inputs=[(2, A), (0, V), (np.arange(4), A), (1, S), (Held(np.array(1.5)), V), (0, FLIPPED)],
        refused=ORDER)
function(special.polygamma, [(0, A), (1, V), (2, S), (np.arange(4), A), (1, COLUMN),
    (np.arange(3)[:, None], V)], refused={"n": Wrt((S - S + 2.0, Held(A)))},
    reasons={"complex": "real"})
function(special.multigammaln, [(S + 2.0, 2), (A + 2.0, 3), (V + 1.0, 1)])
function(special.logsumexp, [(S,), (A,), (STACK,), (FLIPPED,)],
    axis=[0, 1, -1, (0, 1), (-1, -2), (2, 0)], keepdims=[True], b=[2.0, A],
    also=[dict(b=2.0, axis=-1, keepdims=True)], refused={"return_sign": True})

POINTS = [(A, B + 1.0, V + 0.5), (S, S, S), (V, A, B), (A, S, COLUMN)]
SCALED = ([(x, m, s) for x, m, s in TRIPLES] + [(x,) for x, _, _ in TRIPLES] + [(x, m) for x, m,
    _ in TRIPLES])
DISTRIBUTION = {"complex": "of real numbers"}
SHIFTED = {"loc": 1, "scale": 2.0}  # autograd has no rule for these
for name in ("pdf", "cdf", "sf", "logpdf", "logcdf", "logsf"):
    function(getattr(stats.norm, name), SCALED, reasons=DISTRIBUTION, name=f"norm.{name}")
for name in ("pdf", "logpdf", "cdf", "logcdf"):
    function(getattr(stats.t, name), [(x, m + 2.0) for x, m,
        _ in TRIPLES] + [(x, m + 2.0, s, x + 1.0) for x, m, s in TRIPLES], reasons=DISTRIBUTION,
        name=f"t.{name}")
for name in ("pdf", "logpdf", "cdf"):
    function(getattr(stats.beta, name), TRIPLES, refused=SHIFTED, reasons=DISTRIBUTION,
        name=f"beta.{name}")
    function(getattr(stats.gamma, name), PAIRS, refused=SHIFTED, reasons=DISTRIBUTION,
        name=f"gamma.{name}")
    function(getattr(stats.chi2, name), [*PAIRS, (A, 3), (V, np.array([1, 2, 3, 4]))],
        refused=SHIFTED, reasons=DISTRIBUTION, name=f"chi2.{name}")
for name in ("pmf", "logpmf", "cdf"):
    function(getattr(stats.poisson, name), [(2, A), (np.array([0, 1, 2, 3]), V),
        (np.array([0, 1, 2, 3]), A), (3, S), (np.array([[1], [2], [0]]), W)],
        refused={"k": Wrt((S + 2.3, Held(A))), "loc": 1}, reasons=DISTRIBUTION,
        name=f"poisson.{name}")

SIMPLEX = np.array([0.2, 0.3, 0.5])


def of_covariance(fun):
    return lambda x, m, c, **kwargs: fun(x, m, hermitian(c), **kwargs)


for name in ("pdf", "logpdf"):
    function(getattr(stats.dirichlet, name), [(Held(SIMPLEX), V[:3] + 1.0)],
        reasons={"complex": "real", "x": "in a test of its own: points must add up to one"},
        name=f"dirichlet.{name}")
    function(getattr(stats.multivariate_normal, name),
        [(V[:3].copy(), W[:3].copy(), POSITIVE), (spaced(31, 2, 3), W[:3].copy(), POSITIVE),
        (A[:, :3].copy(), V[:3].copy(), POSITIVE), (STACK[..., :3].copy(), W[:3].copy(), POSITIVE)],
        allow_singular=[False], adapt=of_covariance, reasons={"complex": "real"},
        name=f"multivariate_normal.{name}")
function(stats.multivariate_normal.entropy, [(V[:3].copy(), POSITIVE)], adapt=lambda fun: lambda m,
    c: fun(m, hermitian(c)), reasons={"complex": "real"}, name="multivariate_normal.entropy")
