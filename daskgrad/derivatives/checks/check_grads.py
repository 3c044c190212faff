"""check_grads: whether a derivative is right, and otherwise which model's rule is wrong."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

from daskgrad.autodiff.values.descriptions import Report, require_number
from daskgrad.autodiff.values.vectors import is_double
from daskgrad.derivatives.checks.directional import (
    DIRECTIONS,
    FORWARD,
    SECOND,
    Checked,
    Fault,
    Settings,
    first_fault,
    require_order,
)
from daskgrad.derivatives.checks.first_wrong_rule import find_wrong_rule
from daskgrad.derivatives.checks.taylor import taylor_rates
from daskgrad.derivatives.inputs import require_function
from daskgrad.random import require_seed

MODES = ("forward", "reverse")


def check_grads(
    fun: Callable,
    order: int = 1,
    modes: Sequence[str] = MODES,
    rtol: float = 1e-6,
    atol: float = 1e-8,
    seed: int = 0,
) -> Callable[..., Report]:
    """A function that checks the derivatives of ``fun`` at the arguments that it is called with.

    In three random directions v of each float argument, and with a random cotangent c of the value,
    ⟨c, f(x + εv) - f(x - εv)⟩ / 2ε, extrapolated to ε → 0 from two steps (Richardson), must equal
    ⟨pullback(c), v⟩ in reverse mode and ⟨c, tangent⟩ of ``jvp`` in forward mode. The check is as
    strict as the dtype allows. In double precision it finds a rule that is off by a thousandth; a
    rule that is wrong in a few entries of a large array may escape it.

    Costs one gradient, and for each float argument (a dict is one) 12 values and 3 tangents; order
    2 costs 3 Hessian-vector products more, and 12 gradients for each argument. ``dg.progress``
    shows how far each of these is.

    Parameters
    ----------
    fun:
        returns a node or a pytree of nodes, as for ``vjp``.
    order:
        1: gradients; 2: Hessian-vector products, too (``hvp`` of the value, or of its product with
        c if it is not one real number), against differences of gradients. Needs real numbers in
        double precision.
    modes:
        "forward", "reverse", or both: the modes that are checked to first order.
    rtol, atol:
        how much a derivative may differ, besides rounding errors of the differences.
    seed:
        the seed of the directions and of the cotangent.

    Returns
    -------
    Callable
        the function, which returns a report (a string) of what agreed.

    Raises
    ------
    AssertionError
        if they differ. The message has the argument, both numbers, the rates of Taylor's test
        (``taylor_rates``), and the first model of the graph with a wrong derivative: each active
        call, and each item of a sum, is checked alone, in this process.

    See Also
    --------
    taylor_rates, debug_nans

    Examples
    --------
    >>> dg.check_grads(dg.delayed(lambda x: np.sum(np.sin(x))))(np.ones(3))  # or an AssertionError
    the derivatives of '<lambda>' agree with differences: order 1, forward and reverse, in 3 ...
    """
    require_function(fun, "check_grads")
    require_order(order)
    require_seed(seed, "dg.check_grads")
    for name, tolerance in (("rtol", rtol), ("atol", atol)):
        require_number(tolerance, name)
    settings = Settings(order, require_modes(modes), rtol, atol, seed)

    def check(*args: Any) -> Report:
        checked = Checked.of(fun, args)
        fault = first_fault(checked, settings)
        if fault is not None:
            raise AssertionError(explain(fault, fun, args, settings))
        return Report(
            f"the derivatives of {checked.name!r} agree with differences: order {order}, "
            f"{' and '.join(settings.modes)}, in {DIRECTIONS} directions of each argument"
        )

    return check


def explain(fault: Fault, fun: Callable, args: tuple, settings: Settings) -> str:
    """The message: the wrong derivative, the rates of Taylor's test, and the model to blame."""
    try:
        rates = describe_rates(fault, fun, args, settings)
        culprit = find_wrong_rule(fault.checked, functools.partial(first_fault, settings=settings))
    except Exception as error:
        error.add_note(f"daskgrad: this error arose while daskgrad looked for why {fault}")
        raise
    return f"{fault}{rates}\n{culprit}"


def describe_rates(fault: Fault, fun: Callable, args: tuple, settings: Settings) -> str:
    """The rates of Taylor's test; nothing if it does not use the wrong derivative."""
    order = 2 if fault.kind == SECOND else 1
    if fault.kind == FORWARD or not is_double((args, fault.checked.evaluate(*args))):
        return ""
    rates = taylor_rates(fun, order, settings.seed)(*args)
    actual = ", ".join([f"{rate:.2f}" for rate in rates])
    right = ", ".join(map(str, range(1, order + 2)))
    return f"\nTaylor's remainders fall at the rates {actual}, where {right} is right"


def require_modes(modes: Any) -> tuple[str, ...]:
    named = tuple(modes) if isinstance(modes, list | tuple | set | frozenset) else (modes,)
    if not named or not all(isinstance(mode, str) and mode in MODES for mode in named):
        raise ValueError(f"modes must be some of {', '.join(map(repr, MODES))}; found {modes!r}")
    return named
