"""SciPy's linear algebra; imported once autograd's module for it is."""

from collections.abc import Callable
from typing import Any

import autograd.numpy as anp
import numpy as np
from autograd.core import primitive_jvps
from autograd.scipy import linalg

from daskgrad.backends.autograd.rules.declaration import declare, equivalent, plain


def solve_triangular_needed(
    a: Any, b: Any, trans: Any = 0, lower: bool = False, unit_diagonal: bool = False, **kwargs: Any
) -> bool:
    """autograd does not look at ``unit_diagonal``, and does not conjugate."""
    return unit_diagonal or (trans in (2, "C") and np.iscomplexobj(plain(a)))


@equivalent(
    linalg.solve_triangular,
    needed=solve_triangular_needed,
    arrays=2,
    keywords="trans lower unit_diagonal check_finite",
)
def solve_triangular(
    a: Any, b: Any, trans: Any = 0, lower: bool = False, unit_diagonal: bool = False, **kwargs: Any
) -> Any:
    """With the unit diagonal written out, and conjugated explicitly."""
    if unit_diagonal:
        size = np.shape(plain(a))[-1]
        a = a * (1.0 - np.eye(size)) + np.eye(size)
    if trans in (2, "C"):
        a, trans = anp.conj(a), 1
    return linalg.solve_triangular(a, b, trans=trans, lower=lower)


# ---------------------------------------------------------------------------------- banded


def shift(row: Any, by: int) -> Any:
    """The entries ``by`` places further on, zeros beyond the ends."""
    count = np.shape(plain(row))[0]
    places = np.arange(count) + by
    inside = (places >= 0) & (places < count)
    inside = inside.reshape((count,) + (1,) * (np.ndim(plain(row)) - 1))
    return anp.where(inside, row[np.clip(places, 0, count - 1)], 0.0)


def solve_banded_adjoint(
    argnums: tuple, ans: Any, args: tuple, kwargs: dict
) -> Callable[[Any], tuple]:
    """For ``A x = b`` with A by its diagonals: row r of ``ab`` has ``A[j + r - upper, j]`` at j."""
    (lower, upper), ab, *_ = args
    rows = lower + upper + 1
    flipped = anp.array([shift(ab[rows - 1 - r], r - lower) for r in range(rows)])

    def solve_banded_pullback(g: Any) -> tuple:
        b = linalg.solve_banded((upper, lower), flipped, g)
        columns = [anp.reshape(part, (np.shape(plain(part))[0], -1)) for part in (b, ans)]
        parts = [shift(columns[0], r - upper) * columns[1] for r in range(rows)]
        a = -anp.array([anp.sum(part, axis=1) for part in parts])
        return tuple([{1: a, 2: b}[argnum] for argnum in argnums])

    return solve_banded_pullback


declare(linalg.solve_banded, adjoint=solve_banded_adjoint, keywords="check_finite")

# ------------------------------------------------------------------------------------- roots


def sqrtm_adjoint(argnums: tuple, ans: Any, args: tuple, kwargs: dict) -> Callable[[Any], tuple]:
    """autograd's rule, extended to complex matrices, of which it drops the imaginary part."""
    turned = anp.transpose(ans)

    def sqrtm_pullback(g: Any) -> tuple:
        return (linalg.solve_sylvester(turned, turned, g),)

    return sqrtm_pullback


declare(linalg.sqrtm, adjoint=sqrtm_adjoint, tangent=primitive_jvps[linalg.sqrtm])
