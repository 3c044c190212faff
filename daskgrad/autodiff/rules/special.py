"""SciPy's special functions: ufuncs that autograd does not know become primitives, by tables.

A table has a row for each function. A row has for each argument a *slope*, the derivative at each
entry as a function ``(ans, *args)`` (a tuple for several results), or ``zero``, or a text for an
argument whose derivative is refused. Slopes are written in functions that have rules, so that all
orders follow. The modules ``special_*`` are the tables, by field.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import autograd.numpy as anp
import numpy as np
import scipy.special
from autograd.core import primitive_vjps
from autograd.extend import defvjp_argnums, primitive
from autograd.scipy import special as autograds
from autograd.tracer import trace_primitives_map

from daskgrad.autodiff.rules.declaration import (
    KNOWN,
    Refusal,
    declare,
    equivalent,
    plain,
    require_derivative,
    shape_of,
)
from daskgrad.autodiff.rules.math_elementwise import slopes_adjoint
from daskgrad.autodiff.rules.math_reductions import extreme_needed, normal_axes
from daskgrad.autodiff.values.trees import substitute

ORDER, DEGREE, PARAMETER = "the order", "the degree", "a parameter"
COUNT = "a number of trials"

Row = Sequence[Any]  # slopes, and texts


class Ufuncs:
    """SciPy's special functions as primitives, by their names."""

    def __getattr__(self, name: str) -> Any:
        ufunc = getattr(scipy.special._ufuncs, name)
        return trace_primitives_map.get(ufunc) or primitive(ufunc)


special = Ufuncs()


def zero(ans: Any, *args: Any) -> float:
    """The slope of a piecewise constant function."""
    return 0.0


def enter(table: Mapping[str, Row]) -> None:
    """Declares the rules of a table's functions; an older SciPy has fewer."""
    for name, row in table.items():
        if hasattr(scipy.special._ufuncs, name):
            declare_slopes(getattr(special, name), row)


def declare_slopes(fun: Callable, row: Row) -> None:
    """Declares them to autograd, too, since a model may call its ``grad``."""
    refused = {n: f"x{n + 1}, {slope}" for n, slope in enumerate(row) if isinstance(slope, str)}
    by_slopes = slopes_adjoint(*row)

    def adjoint(argnums, ans, args, kwargs):
        require_derivative(fun, argnums)
        return by_slopes(argnums, ans, args, kwargs)

    declare(fun, adjoint=adjoint, refused=refused)
    if fun not in primitive_vjps:
        defvjp_argnums(fun, adjoint)
    KNOWN.add(fun)


def inverse(
    row: Row,
    solved: int,
    value: Callable | None = None,
    largest: float = 1e99,
    least: float = 1e-40,
) -> list[Any]:
    """The slopes of the function that solves ``f(args) = y`` for one of them, and has y in its
    place; ``row`` has f's slopes. With f's ``value`` they are zero where SciPy's search ends at a
    bound, the largest or the least one, or elsewhere than at a solution."""

    def slope_by(place: int) -> Callable | str:
        if isinstance(row[place], str) or row[place] is zero:
            return row[place]

        def slope(ans, *args):
            y, original = args[solved], substitute(args, [solved], [ans])
            steep = row[solved](y, *original)
            by = 1.0 / steep if place == solved else -row[place](y, *original) / steep
            if value is None:
                return by
            size, wanted = np.abs(plain(ans)), plain(y)
            with np.errstate(all="ignore"):
                gap = np.abs(value(*map(plain, original)) - wanted)
            is_solution = (size > least) & (size < largest) & (gap <= WRONG * np.abs(wanted))
            return by if np.all(is_solution) else anp.where(is_solution, by, 0.0)

        return slope

    return list(map(slope_by, range(len(row))))


WRONG = 1e-4  # relative error of a value at what is no solution


def choose(near, x, inside, outside, at, away):
    """``inside(x)`` where ``near``, elsewhere ``outside(x)``; each is computed only where it is
    meant, and at a number where it is smooth otherwise."""
    return anp.where(near, inside(anp.where(near, x, at)), outside(anp.where(near, away, x)))


def polynomial(coefficients: Sequence[float], x: Any) -> Any:
    """By Horner's rule; the constant comes first."""
    total: Any = 0.0
    for coefficient in reversed(coefficients):
        total = total * x + coefficient
    return total


def require_real(name: str, *args: Any) -> None:
    if any(anp.iscomplexobj(arg) for arg in args):
        raise Refusal(
            f"special.{name} has no derivative rule for complex numbers, of which it is no "
            f"holomorphic function; write it with the unscaled function"
        )


# --------------------------------------------------------------------- autograd's own functions

declare(  # autograd does not sum over broadcast axes
    autograds.polygamma,
    adjoint=slopes_adjoint(None, lambda ans, n, x: autograds.polygamma(n + 1, x)),
    refused={0: "n, the order"},
)


def logsumexp_needed(a, axis=None, b=1.0, *args, **kwargs):
    """autograd wants weights of the array's shape, and axes in order."""
    if extreme_needed(a, axis) or b is None:
        return True
    is_number = isinstance(b, int | float)  # in a tenth of the time
    return not is_number and np.shape(b) not in ((), shape_of(a))


@equivalent(autograds.logsumexp, needed=logsumexp_needed, keywords="axis b keepdims")
def logsumexp(a, axis=None, b=1.0, keepdims=False):
    b = 1.0 if b is None else b
    if np.ndim(b):
        a = anp.broadcast_to(a, np.broadcast_shapes(shape_of(a), np.shape(b)))
        b = np.broadcast_to(b, shape_of(a))
    axis = normal_axes(axis, np.ndim(plain(a)))
    return autograds.logsumexp(a, axis=axis, b=b, keepdims=keepdims)
