"""Taylor's test: how fast the remainders of an expansion along a random line fall."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from daskgrad.autodiff.values.vectors import inner, random_like, size
from daskgrad.derivatives.checks.directional import (
    Checked,
    require_double,
    require_order,
    scalar_of,
)
from daskgrad.derivatives.hessian import hvp
from daskgrad.derivatives.inputs import require_function
from daskgrad.random import require_seed

STEPS = 0.03125 * 0.5 ** np.arange(7)  # along a direction of norm one
CLEAR = 100  # times the rounding errors: a remainder tells a rate from there on


def taylor_rates(fun: Callable, order: int = 1, seed: int = 0) -> Callable[..., tuple[float, ...]]:
    """A function that returns at which rates the remainders of Taylor's expansion of ``fun`` fall.

    Along a random direction v of all float arguments, with the gradient g and the Hessian H, the
    remainders ``|f(x+εv) - f(x)|`` and ``|f(x+εv) - f(x) - ε⟨g, v⟩|`` fall as ε and ε², and with
    ε²⟨Hv, v⟩/2 subtracted as ε³: the rates are near 1, 2 and 3. If the last one is lower, a
    derivative is wrong. If the value is not one real number, f is its product with a random
    cotangent. Source: P. E. Farrell et al., "Automated derivation of the adjoint of high-level
    transient finite element programs", SIAM J. Sci. Comput. 35, 2013, section 5.

    Parameters
    ----------
    fun:
        returns a node or a pytree of nodes, as for ``vjp``.
    order:
        1: with the gradient, two rates; 2: with a Hessian-vector product (``hvp``), too, three.
    seed:
        the seed of the direction and the cotangent.

    Returns
    -------
    function
        A function of ``fun``'s arguments that returns the rates, one a remainder. Each is the rate
        at the last halving of ε with a remainder above rounding errors; ``inf`` if there is none,
        as for the second remainder of a linear function. A rate is higher where a derivative
        vanishes.

    Raises
    ------
    TypeError
        if arguments or values are not real numbers in double precision.

    See Also
    --------
    check_grads

    Examples
    --------
    >>> rates = dg.taylor_rates(dg.delayed(lambda x: np.sum(np.exp(x))))(np.ones(3))
    >>> [round(rate) for rate in rates]
    [1, 2]
    """
    require_function(fun, "taylor_rates")
    require_order(order)
    require_seed(seed, "dg.taylor_rates")

    def rates(*args: Any) -> tuple[float, ...]:
        checked = Checked.of(fun, args)
        expansion = Expansion(checked, order, np.random.default_rng(seed))
        return tuple([expansion.rate(kept) for kept in range(order + 1)])

    return rates


class Expansion:
    """The expansion of a function along a random line, up to an order."""

    def __init__(self, checked: Checked, order: int, random: np.random.Generator):
        self._checked = checked
        value = checked.evaluate(*checked.args)
        require_double(checked, value, "rates")
        self._cotangent = random_like(value, random)
        self._along = {n: random_like(checked.args[n], random) for n in checked.numbers}
        self._terms = [inner(self._cotangent, value), *self._derivatives(value, order)]
        self._steps = [
            inner(self._cotangent, checked.evaluate(*checked.moved(step, self._along)))
            for step in STEPS
        ]
        self._noise = float(np.finfo(float).eps) * size(self._cotangent, value)

    def _derivatives(self, value: Any, order: int) -> list[float]:
        """⟨g, v⟩ and, for order 2, ⟨Hv, v⟩ / 2."""
        checked = self._checked
        if order == 1:
            return [self._product(checked.pull(self._cotangent))]
        scalar = scalar_of(checked.fun, value, self._cotangent)
        factor = self._cotangent if scalar is checked.fun else 1.0
        derivatives = hvp(scalar, checked.args, checked.tangents(self._along))
        first, second = [float(factor) * self._product(gradients) for gradients in derivatives]
        return [first, second / 2]

    def _product(self, gradients: Sequence[Any]) -> float:
        return sum([inner(v, gradients[number]) for number, v in self._along.items()])

    def rate(self, kept: int) -> float:
        """The rate of the remainder after the term of order ``kept``."""
        terms = self._terms[: kept + 1]
        expanded = sum([term * STEPS**power for power, term in enumerate(terms)])
        remainders = np.abs(np.asarray(self._steps) - expanded)
        if not np.all(np.isfinite(remainders)):
            return math.nan
        clear = remainders > CLEAR * self._noise
        last = max([k for k in range(1, len(STEPS)) if clear[k - 1] and clear[k]], default=0)
        return math.log2(remainders[last - 1] / remainders[last]) if last else math.inf
