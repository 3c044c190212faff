"""The table of the sweep: SciPy's ufuncs, each at points of its domain."""

import numpy as np
import scipy.special
from autograd.tracer import trace_primitives_map
from functions_numpy import UFUNC, UFUNC_REASONS
from sweep import Held, Wrt, function

from daskgrad.autodiff.rules.special import special

ALIKE = dict.fromkeys(UFUNC, "refused as of all ufuncs, of which the first entries test it")


REFUSED_KEYWORDS = {name: UFUNC[name] for name in UFUNC if name != "out"}


def at(*numbers):
    return np.array(numbers)


def enter(rows, reason="", keywords=None):
    """A row is a name and arguments: arrays are differentiated, and ``Held`` and integers are
    not; what is held in all rows, and is no integer, must be refused or is piecewise constant."""
    for name, *inputs in rows:
        fun = getattr(special, name)
        assert fun is trace_primitives_map[getattr(scipy.special._ufuncs, name)]
        names = [f"x{n + 1}" for n in range(fun.fun.nin)] if fun.fun.nin > 1 else ["x"]
        refused = {names[n]: Wrt(tuple(with_box(inputs[0], n))) for n in refused_of(fun, inputs[0])}
        is_complex = any("D" in kinds.split("->")[0] for kinds in fun.fun.types)
        reasons = {} if is_complex and not reason else {"complex": reason or "of real numbers"}
        function(fun, inputs, refused=refused | (keywords or {}),
            reasons=({"out": ALIKE["out"]} if keywords else ALIKE) | UFUNC_REASONS | reasons,
            name=f"special.{name}")


def refused_of(fun, args):
    return [n for n, arg in enumerate(args) if isinstance(arg, Held | int)]


def with_box(args, place):
    """The arguments, of which one is differentiated instead."""
    for n, arg in enumerate(args):
        arg = arg.value if isinstance(arg, Held) else arg
        yield np.asarray(arg, float) if n == place else Held(arg)


X = at(-1.3, -0.4, 0.7, 2.1)
P = at(0.15, 0.4, 0.62, 0.9)
Y = at(0.3, 0.8, 1.9, 3.2)
Z = at(1.2, 0.45, 2.3, 0.7)
COLUMN = at([0.6], [1.7])

enter([("ndtr", (X,), (COLUMN,)), ("airy", (X,))], keywords=REFUSED_KEYWORDS)
enter([("log_ndtr", (X,), (at(-40.0, -3.0, 5.0),)), ("ndtri", (P,)), ("ndtri_exp", (-Y,)),
    ("erfcx", (X,), (at(24.0, 26.0, 80.0),)), ("erfi", (X,)),
    ("dawsn", (X,), (at(24.0, 26.0, -80.0),)), ("wofz", (X + 0.3j,)),
    ("voigt_profile", (X, Y, Z), (X, COLUMN, Z)), ("owens_t", (X, Z), (Y, COLUMN)),
    ("nrdtrimn", (P, Y, X)), ("nrdtrisd", (X, P, Y)),
    ("xlogy", (Y, Z), (at(0.0, 1.0), Y[:2]), (COLUMN, Y)),
    ("xlog1py", (Y, Z), (at(0.0, 1.0), Y[:2])), ("entr", (Y,)), ("rel_entr", (Y, Z), (COLUMN, Y)),
    ("kl_div", (Y, Z), (COLUMN, Y)), ("huber", (Z, X), (COLUMN, X)), ("pseudo_huber", (Z, X)),
    ("log_expit", (X,)), ("expm1", (X,)), ("log1p", (Y,)), ("exprel", (X,), (at(-0.0, 0.9, 1.1),)),
    ("exp2", (X,)), ("exp10", (X,)), ("cbrt", (X,)), ("cosm1", (X,)), ("sindg", (X * 50,)),
    ("cosdg", (X * 50,)), ("tandg", (X * 50,)), ("cotdg", (X * 50,)), ("radian", (Y, Z, X)),
    ("round", (X,)), ("powm1", (Y, X)), ("boxcox", (Y, X), (Y, at(0.0, 0.0, 1e-3, 2.0))),
    ("boxcox1p", (Y, X), (Y, at(0.0, 0.0, 1e-3, 2.0))),
    ("inv_boxcox", (Y, Z), (Y, at(0.0, 0.0, 1e-3, 2.0))),
    ("inv_boxcox1p", (Y, Z), (Y, at(0.0, 0.0, 1e-3, 2.0))),
    ("tklmbda", (at(-0.6, 0.2, 0.9), at(0.3, 1.4, 0.7)))])

enter([("gammainc", (Y, Z), (COLUMN, Y), (at(5.0, 9.0, 0.2), at(2.0, 14.0, 0.1))),
    ("gammaincc", (Y, Z), (COLUMN, Y), (at(5.0, 9.0, 0.2), at(2.0, 14.0, 0.1))),
    ("gammaincinv", (Y, P)), ("gammainccinv", (Y, P)), ("betainc", (Y, Z, P), (COLUMN, Y, P[::-1])),
    ("betaincc", (Y, Z, P), (COLUMN, Y, P[::-1])), ("betaincinv", (Y, Z, P)),
    ("betainccinv", (Y, Z, P)), ("btdtria", (P, Z, P[::-1])), ("btdtrib", (Y, P, P[::-1])),
    ("loggamma", (Y,)), ("poch", (Y, Z), (at(-2.0, -1.0, 0.0), at(3.0, 2.5, 1.0))),
    ("binom", (Y, Z), (COLUMN, Z), (at(2.0, 0.0, 3.0, 1.5), at(3.0, 1.0, 5.0, -1.0))),
    ("exp1", (Y,)), ("expi", (X,)), ("expn", (2, Y), (np.arange(4), Y)),
    ("sici", (Y,), (at(40.0),)), ("shichi", (Y,)), ("spence", (Y,), (at(0.95, 1.0, 1.05),)),
    ("_lambertw", (Y + 0.4j, np.array(0), Held(np.array(1e-8)))),
    ("_zeta", (at(1.5, 2.5, 3.0, 9.0), Z), (COLUMN + 1.0, Z)),
    ("_riemann_zeta", (at(-2.5, -0.3, 0.4, 3.0),)), ("zetac", (at(-2.5, -0.3, 0.4, 3.0),)),
    ("fresnel", (X,)), ("modfresnelp", (Y[:3],)), ("modfresnelm", (Y[:3],)), ("wrightomega", (X,))])

K, N = np.array([0, 1, 3]), np.array([2, 3, 4])
Q = at(0.2, 0.5, 0.7)

enter([("chdtr", (Y, Z), (COLUMN, Y)), ("chdtrc", (Y, Z)), ("chdtri", (Y, P)), ("chdtriv", (P, Y)),
    ("gdtr", (Z, Y, Y)), ("gdtrc", (Z, Y, Y)), ("gdtria", (P, Y, Y)), ("gdtrib", (Z, P, Y)),
    ("gdtrix", (Z, Y, P)), ("pdtr", (at(0.3, 1.5, 3.4), Q), (K, Q)),
    ("pdtrc", (at(0.3, 1.5, 3.4), Q)), ("pdtri", (K, Q)),
    ("pdtrik", (at(0.4, 0.6, 0.8), at(2.0, 3.0, 5.0))), ("fdtr", (Y, Z, Y)), ("fdtrc", (Y, Z, Y)),
    ("fdtri", (Y, Z, P)), ("fdtridfd", (at(2.0, 3.0), at(0.3, 0.4), at(0.6, 0.7))),
    ("stdtr", (Y, X), (COLUMN, X)), ("stdtrit", (Y + 1.0, P)),
    ("stdtridf", (at(0.8, 0.9), at(1.0, 1.6))), ("bdtr", (K + 0.5, N, Q), (K, N, Q)),
    ("bdtrc", (K + 0.5, N, Q), (K, N, Q)), ("bdtri", (K + 0.5, N, Q)),
    ("bdtrik", (at(0.5, 0.6, 0.4), at(8.0, 9.0, 12.0), Q)), ("bdtrin", (at(1.0, 2.0, 3.0), Q, Q)),
    ("nbdtr", (K, Held(N + 1.0), Q)), ("nbdtrc", (K, Held(N + 1.0), Q)),
    ("nbdtri", (K, Held(N + 1.0), Q)), ("nbdtrik", (Q, at(6.0, 7.0, 9.0), Q)),
    ("nbdtrin", (at(1.0, 2.0, 3.0), Q, Q)), ("chndtr", (Y, Held(Z), Z)),
    ("chndtrix", (P, Held(Z), Z)), ("chndtrinc", (at(3.0, 4.0), Held(at(2.0, 3.0)), at(0.3, 0.2))),
    ("kolmogorov", (at(0.5, 0.9, 1.1, 1.7),)), ("kolmogi", (P,)), ("smirnov", (3, Q), (N, Q)),
    ("smirnovi", (4, Q)), ("ellipk", (at(-2.0, -0.05, 0.0, 0.7),)),
    ("ellipkm1", (at(0.1, 0.95, 1.0, 2.0),)), ("ellipe", (at(-2.0, -0.05, 0.0, 0.7),)),
    ("ellipkinc", (X, P), (X, at(-2.0, -0.05, 0.0, 0.05))),
    ("ellipeinc", (X, P), (X, at(-2.0, -0.05, 0.0, 0.05))), ("ellipj", (X, P), (COLUMN, P)),
    ("agm", (Y, Z), (Y, Y), (Y, Y + 0.01)), ("elliprc", (Y, Z), (Y, Y), (Y, -Z)),
    ("elliprf", (Y, Z, at(0.5, 2.0, 0.9, 1.8)), (Y, Z, Z + 0.5)),
    ("elliprd", (Y, Z, at(0.5, 2.0, 0.9, 1.8))), ("elliprg", (Y, Z, at(0.5, 2.0, 0.9, 1.8))),
    ("elliprj", (Y, Z, at(0.5, 2.0, 0.9, 1.8), at(0.9, 0.3, 1.3, 2.4)))])

HALF, POSITIVE = Held(at(0.5, 1.2, 2.0, 0.0)), Held(at(0.5, 1.2, 2.0, 1.0))
ONE, TWO, THREE = (Held(np.array(n)) for n in (1.0, 2.0, 3.0))
REAL = "of real numbers, or not holomorphic"

for names, *inputs in (
    ("yv kv kve hankel1 hankel2 hankel1e hankel2e", (2, Y), (HALF, Y)),
    ("kn", (2, Y), (np.arange(4), Y)),
    ("i0e", (X,)),
    ("i1e", (X,), (at(0.05),)),
    ("struve modstruve", (2, X), (HALF, Y)),
    ("besselpoly", (Y, ONE, TWO), (Y, HALF, HALF)),
    ("wright_bessel log_wright_bessel", (ONE, TWO, Y), (HALF, ONE, Y)),
    ("itairy", (Y[:2] / 8.0,)),  # its series ends at 1e-5
    ("k0 k1 k0e k1e itj0y0 iti0k0 it2j0y0 it2i0k0 itstruve0 it2struve0 itmodstruve0", (Y,)),
    ("ber bei ker kei berp beip kerp keip kelvin", (Y,)),
    ("pbdv pbvv pbwa", (HALF, X)),
    ("mathieu_cem mathieu_sem", (TWO, POSITIVE, X * 30)),
    ("mathieu_modcem1 mathieu_modcem2 mathieu_modsem1 mathieu_modsem2", (TWO, POSITIVE, Y)),
    ("hyp0f1", (POSITIVE, X)),
    ("hyp1f1", (HALF, TWO, X)),
    ("hyp2f1", (HALF, TWO, THREE, X / 4.0)),
    ("hyperu", (HALF, TWO, Y)),
):
    enter([(name, *inputs) for name in names.split()])
enter([("jve", (2, Y), (HALF, X + 2.0)), ("yve", (2, Y)), ("airye", (Y,))], reason=REAL)

enter([(f"{kind}_ang1", (ONE, THREE, TWO, Q)) for kind in ("pro", "obl")])
RADIAL = [f"{kind}_rad{n}" for kind in ("pro", "obl") for n in (1, 2)]
enter([(name, (ONE, THREE, TWO, Q + 1.5)) for name in RADIAL])
EIGENVALUES = Held(special.pro_cv(1.0, 3.0, 2.0)), Held(special.obl_cv(1.0, 3.0, 2.0))
enter([(f"{name}_cv", (ONE, THREE, TWO, EIGENVALUES[name.startswith("obl")],
    Q + 1.5)) for name in RADIAL])

enter([(f"{kind}_ang1_cv", (ONE, THREE, TWO, value, Q)) for kind,
    value in zip(("pro", "obl"), EIGENVALUES, strict=True)])

DEGREES = np.array([0, 1, 2, 5])
enter([(name, (3, X), (DEGREES, X)) for name in (*("eval_legendre", "eval_chebyt", "eval_chebyu",
    "eval_chebyc", "eval_chebys"), *("eval_sh_legendre", "eval_sh_chebyt", "eval_sh_chebyu",
    "eval_laguerre"))])
enter([("eval_hermite", (DEGREES, X)), ("eval_hermitenorm", (DEGREES, X)),
    ("eval_genlaguerre", (3, ONE, X), (DEGREES, HALF, X)),
    ("eval_gegenbauer", (3, ONE, X), (DEGREES, ONE, X)),
    ("eval_jacobi", (3, ONE, TWO, X), (DEGREES, HALF, ONE, X)),
    ("eval_sh_jacobi", (3, THREE, TWO, X), (DEGREES, THREE, ONE, X)),
    ("lpmv", (1, 3, Q), (ONE, Held(at(1.5, 2.0, 3.0)), -Q))])

# ------------------------------------------------------------------------------ refused altogether

REFUSED = {"chndtridf": (2.0, 0.4, 1.0), "ncfdtr": (2.0, 3.0, 0.5, 1.0),
    "ncfdtri": (2.0, 3.0, 0.5, 0.4), "ncfdtridfd": (2.0, 0.3, 0.5, 1.0),
    "ncfdtridfn": (0.4, 3.0, 0.5, 1.0), "ncfdtrinc": (2.0, 3.0, 0.4, 1.0),
    "nctdtr": (2.0, 0.5, 1.0), "nctdtrit": (2.0, 0.5, 0.4), "nctdtridf": (0.4, 0.5, 1.0),
    "nctdtrinc": (2.0, 0.4, 1.0), "mathieu_a": (2.0, 0.5), "mathieu_b": (2.0, 0.5),
    "pro_cv": (1.0, 2.0, 0.5), "obl_cv": (1.0, 2.0, 0.5)}
enter([(name, tuple(Held(np.array(n)) for n in args)) for name, args in REFUSED.items()])
