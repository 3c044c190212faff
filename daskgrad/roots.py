"""Roots: implicit functions and fixed points, differentiated without their iterations."""

from collections.abc import Callable, Sequence
from typing import Any

from daskgrad.backends.autograd.roots import pull_root, push_root
from daskgrad.backends.autograd.ruled import Call
from daskgrad.cotangents import describe
from daskgrad.rules import Ruled


def implicit(solver: Callable, residual: Callable) -> "Implicit":
    """The function that a solver computes, with the derivative of the root that it finds.

    ``x = solver(*args)`` is a root: ``residual(x, *args) = 0``. A fixed point ``x = g(x, *args)``
    is one of ``residual = lambda x, *args: g(x, *args) - x``. The derivative follows from the
    implicit function theorem: the solver's iterations are not differentiated, and it runs once for
    a value and its derivative, in both modes.

    Parameters
    ----------
    solver:
        any function that returns x: a real array, or a pytree of such; other leaves in it (the
        number of steps, say) have no derivative. It need not be written with autograd.numpy.
    residual:
        a function of x and the solver's arguments, written with autograd.numpy. It returns as many
        real numbers as x has, in any structure.

    Returns
    -------
    A function that is called as the solver was: a model (``dg.delayed``, ``dg.map_sum``), plain on
    plain arrays, and for use within models, ``autograd.grad`` and nested derivatives, as what
    ``dg.custom_vjp`` makes. Positional arguments are pytrees, and may be differentiated; keyword
    arguments are passed to solver and residual as they are.

    The derivative is that of the root near x: as good as the solver's tolerance, to first order. It
    costs n pullbacks of the residual, which runs twice, and some n³ operations with its dense n × n
    Jacobian, for n numbers in x. Where that is much, write the adjoint solve with
    ``dg.custom_vjp``. Within a model of another backend than autograd it is not supported.

    Raises
    ------
    LinAlgError
        where the Jacobian of the residual with respect to x is singular, to working precision: x is
        no isolated root there.
    ValueError, TypeError
        where the residual has another number of entries than x, or either is not real.
    """
    return Implicit(solver, residual)


class Implicit(Ruled):
    """The function that a solver computes, and the residual of which its values are roots."""

    def __init__(self, solver: Callable, residual: Callable):
        super().__init__(solver, "dg.implicit")
        if not callable(residual):
            raise TypeError(
                f"the residual of {self.name!r} must be a function; found {describe(residual)}"
            )
        self.residual = residual

    def rules(self) -> list[Callable]:
        return [self.residual]

    def run(self, args: tuple, kwargs: dict) -> tuple[Any, Any]:
        """The root; in an outer trace, where the arguments are boxes, a node of that."""
        return self(*args, **kwargs), None

    def pullback(self, call: Call, active: Sequence[int]) -> Callable[[Any], Any]:
        return pull_root(call, self.residual, active)

    def push(self, call: Call, tangents: tuple) -> Any:
        return push_root(call, self.residual, tangents)
