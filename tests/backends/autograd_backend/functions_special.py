"""The table of the sweep: SciPy's ufuncs, each at points of its domain."""

import numpy as np
import scipy.special
from autograd.tracer import trace_primitives_map
from functions_numpy import UFUNC, UFUNC_REASONS
from sweep import Held, Wrt, function

from daskgrad.backends.autograd.rules.slopes import special

ALIKE = dict.fromkeys(UFUNC, "refused as of all ufuncs, of which the first entries test it")


def at(*numbers):
    return np.array(numbers)


def enter(rows, reason=""):
    """A row is a name and arguments: arrays are differentiated, and ``Held`` and integers are
    not; what is held in all rows, and is no integer, must be refused or is piecewise constant."""
    for name, *inputs in rows:
        assert name in dir(scipy.special)
        fun = getattr(special, name)
        assert fun is trace_primitives_map[getattr(scipy.special, name)]
        names = [f"x{n + 1}" for n in range(fun.fun.nin)] if fun.fun.nin > 1 else ["x"]
        refused = {names[n]: Wrt(tuple(with_box(inputs[0], n))) for n in refused_of(fun, inputs[0])}
        is_complex = any("D" in kinds.split("->")[0] for kinds in fun.fun.types)
        reasons = {} if is_complex and not reason else {"complex": reason or "of real numbers"}
        function(
            fun,
            inputs,
            refused=refused,
            reasons=ALIKE | UFUNC_REASONS | reasons,
            name=f"special.{name}",
        )


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

enter(
    [
        ("ndtr", (X,), (COLUMN,)),
        ("log_ndtr", (X,), (at(-40.0, -3.0, 5.0),)),
        ("ndtri", (P,)),
        ("ndtri_exp", (-Y,)),
        ("erfcx", (X,), (at(24.0, 26.0, 80.0),)),
        ("erfi", (X,)),
        ("dawsn", (X,), (at(24.0, 26.0, -80.0),)),
        ("wofz", (X + 0.3j,)),
        ("voigt_profile", (X, Y, Z), (X, COLUMN, Z)),
        ("owens_t", (X, Z), (Y, COLUMN)),
        ("nrdtrimn", (P, Y, X)),
        ("nrdtrisd", (X, P, Y)),
        ("xlogy", (Y, Z), (at(0.0, 1.0), Y[:2]), (COLUMN, Y)),
        ("xlog1py", (Y, Z), (at(0.0, 1.0), Y[:2])),
        ("entr", (Y,)),
        ("rel_entr", (Y, Z), (COLUMN, Y)),
        ("kl_div", (Y, Z), (COLUMN, Y)),
        ("huber", (Z, X), (COLUMN, X)),
        ("pseudo_huber", (Z, X)),
        ("log_expit", (X,)),
        ("expm1", (X,)),
        ("log1p", (Y,)),
        ("exprel", (X,), (at(-0.0, 0.9, 1.1),)),
        ("exp2", (X,)),
        ("exp10", (X,)),
        ("cbrt", (X,)),
        ("cosm1", (X,)),
        ("sindg", (X * 50,)),
        ("cosdg", (X * 50,)),
        ("tandg", (X * 50,)),
        ("cotdg", (X * 50,)),
        ("radian", (Y, Z, X)),
        ("round", (X,)),
        ("powm1", (Y, X)),
        ("boxcox", (Y, X), (Y, at(0.0, 0.0, 1e-3, 2.0))),
        ("boxcox1p", (Y, X), (Y, at(0.0, 0.0, 1e-3, 2.0))),
        ("inv_boxcox", (Y, Z), (Y, at(0.0, 0.0, 1e-3, 2.0))),
        ("inv_boxcox1p", (Y, Z), (Y, at(0.0, 0.0, 1e-3, 2.0))),
        ("tklmbda", (at(-0.6, 0.2, 0.9), at(0.3, 1.4, 0.7))),
    ]
)

enter(
    [
        ("gammainc", (Y, Z), (COLUMN, Y), (at(5.0, 9.0, 0.2), at(2.0, 14.0, 0.1))),
        ("gammaincc", (Y, Z), (COLUMN, Y), (at(5.0, 9.0, 0.2), at(2.0, 14.0, 0.1))),
        ("gammaincinv", (Y, P)),
        ("gammainccinv", (Y, P)),
        ("betainc", (Y, Z, P), (COLUMN, Y, P[::-1])),
        ("betaincc", (Y, Z, P), (COLUMN, Y, P[::-1])),
        ("betaincinv", (Y, Z, P)),
        ("betainccinv", (Y, Z, P)),
        ("btdtria", (P, Z, P[::-1])),
        ("btdtrib", (Y, P, P[::-1])),
        ("loggamma", (Y,)),
        ("poch", (Y, Z)),
        ("binom", (Y, Z), (COLUMN, Z)),
        ("exp1", (Y,)),
        ("expi", (X,)),
        ("expn", (2, Y), (np.arange(4), Y)),
        ("sici", (Y,), (at(40.0),)),
        ("shichi", (Y,)),
        ("spence", (Y,), (at(0.95, 1.0, 1.05),)),
        ("fresnel", (X,)),
        ("modfresnelp", (Y,)),
        ("modfresnelm", (Y,)),
        ("wrightomega", (X,)),
    ]
)
