"""Dependence: finds the arrays that the outputs of a traced function depend on.

JAX's own pullback returns zeros for the others, which look like derivatives.
"""

from typing import Any

from jax.extend.core import Literal


def reached(jaxpr: Any, count: int, ends: int) -> list[bool]:
    """For the first ``count`` arguments, whether one of the first ``ends`` results uses them."""
    needed = variables(jaxpr.outvars[:ends])
    for equation in reversed(jaxpr.eqns):
        if not needed.isdisjoint(equation.outvars):
            needed |= variables(equation.invars)
    return [argument in needed for argument in jaxpr.invars[:count]]


def variables(atoms: Any) -> set[Any]:
    return {atom for atom in atoms if not isinstance(atom, Literal)}
