"""implicit: roots and fixed points, differentiated without the solver's iterations."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from daskgrad.autodiff.models.custom_vjp import Rule
from daskgrad.autodiff.tape.implicit import Root
from daskgrad.autodiff.tape.rule_calls import RuleCall
from daskgrad.autodiff.values.descriptions import describe
from daskgrad.autodiff.values.protection import read_only
from daskgrad.autodiff.values.trees import flatten


def implicit(
    solver: Callable, residual: Callable, linear_solver: Callable | None = None
) -> "Implicit":
    """The function that a solver computes, with the derivative of the root that it finds.

    ``x = solver(*args)`` is a root: ``residual(x, *args) = 0``. A fixed point ``x = g(x, *args)``
    is a root of ``residual = lambda x, *args: g(x, *args) - x``. The implicit function theorem
    gives the derivative: the solver's iterations are not differentiated, and it runs once for a
    value and its derivative, in both modes.

    Parameters
    ----------
    solver:
        any function that returns x: a real array, or a pytree of real arrays; other leaves (the
        number of steps, for example) have no derivative. It need not use autograd.numpy.
    residual:
        a function of x and the solver's arguments, written with autograd.numpy. It returns as many
        real numbers as x has, in any structure.
    linear_solver:
        for large x, a function of (product, rhs) that returns the vector v with ``product(v) =
        rhs``. ``product`` multiplies a vector by ∂F/∂x in forward mode, and by its transpose in
        reverse mode, for the cost of a tangent or a pullback of the residual. For example::

            def linear_solver(product, rhs):
                operator = scipy.sparse.linalg.LinearOperator((len(rhs),) * 2, product)
                return scipy.sparse.linalg.gmres(operator, rhs, rtol=1e-12)[0]

        If not given, ∂F/∂x is made as a dense matrix, and checked.

    Returns
    -------
    function
        A function with the solver's arguments. It is a model (``dg.delayed``, ``dg.map_sum``), the
        solver on plain arrays, and may be called within models, ``autograd.grad`` and nested
        derivatives, as a ``dg.custom_vjp`` may. Positional arguments are pytrees, and may be
        differentiated; keyword arguments are passed to solver and residual unchanged.

        Not checked: that x is a root, and that the residual takes its arguments in this order;
        ``dg.check_grads`` finds both. The derivative belongs to the root near x, and is as accurate
        as the tolerances of the solver and the ``linear_solver``, to first order. For n numbers in
        x the dense matrix costs n pullbacks of the residual and about n³ operations. Models of
        backends other than autograd do not support it.

        Source: the implicit function theorem; in reverse mode B. Christianson, "Reverse
        accumulation and implicit functions", Optimization Methods and Software 9, 1998.

    Raises
    ------
    LinAlgError
        if ∂F/∂x is singular to working precision: then x is not an isolated root. With a
        ``linear_solver``, it must find this itself.
    ValueError
        if the number of entries differs between the residual and x.
    TypeError
        if the residual or x is not real.

    See Also
    --------
    custom_vjp, finite_difference

    Examples
    --------
    >>> def newton(a):  # finds the square root
    ...     x = a
    ...     for _ in range(30):
    ...         x = 0.5 * (x + a / x)
    ...     return x
    >>> root = dg.implicit(newton, lambda x, a: x**2 - a)
    >>> dg.value_and_grad(dg.delayed(root))(4.0)
    (np.float64(2.0), np.float64(0.25))
    """
    return Implicit(solver, residual, linear_solver)


class Implicit(Rule):
    """The function that a solver computes; its values are roots of the residual."""

    def __init__(self, solver: Callable, residual: Callable, linear_solver: Callable | None = None):
        super().__init__(solver, "dg.implicit")
        for parameter, fun in (("residual", residual), ("linear_solver", linear_solver)):
            if not (callable(fun) or (fun is None and parameter == "linear_solver")):
                raise TypeError(
                    f"the {parameter} of {self.name!r} must be a function; found {describe(fun)}"
                )
        self.residual = residual
        self.linear_solver = linear_solver

    def rules(self) -> list[Callable]:
        return [fun for fun in (self.residual, self.linear_solver) if fun is not None]

    def run_again(self) -> list[Callable]:
        return [self.residual]

    def run(self, args: tuple, kwargs: dict) -> tuple[Any, Any]:
        """The root; a node of the outer trace if arguments are its boxes."""
        return self(*args, **kwargs), None

    def run_recorded(self, args: tuple, kwargs: dict, active: Sequence[int]) -> tuple[Any, Any]:
        return self.run(args, kwargs)

    def pullback(self, call: RuleCall, active: Sequence[int]) -> Callable[[Any], Any]:
        root = Root(call, self.residual)
        return root.pullback(active, self._solve(root, call, transposed=True))

    def push(self, call: RuleCall, tangents: tuple) -> Any:
        root = Root(call, self.residual)
        return root.push(tangents, self._solve(root, call, transposed=False))

    def _solve(self, root: Root, call: RuleCall, transposed: bool) -> Callable[[Any], Any]:
        if self.linear_solver is None:
            return root.dense(transposed)
        system = LinearSystem(self, self.linear_solver, transposed)
        return functools.partial(system.solved, call)


class LinearSystem:
    """Systems with ∂F/∂x or its transpose; solutions are implicit functions, too, and so results
    of the user's linear solver can be differentiated again."""

    def __init__(self, function: Implicit, linear_solver: Callable, transposed: bool):
        self._function = function
        self._linear_solver = linear_solver
        self._transposed = transposed
        self._solution = Implicit(self.solver, self.residual, linear_solver)

    def solved(self, call: RuleCall, rhs: Any) -> Any:
        call.require_unchanged()
        return self._solution(call.value, call.args, rhs, kwargs=call.kwargs)

    def solver(self, x: Any, args: tuple, rhs: Any, kwargs: dict) -> Any:
        result = self._linear_solver(self._product(x, args, kwargs), read_only(np.asarray(rhs)))
        if isinstance(result, tuple):  # with a status, as many of SciPy's solvers return it
            raise TypeError(f"{self._must_return(rhs.shape, result)}: take the solution out of it")
        solution = np.asarray(result)
        if solution.shape != rhs.shape or solution.dtype.kind not in "fiu":
            raise ValueError(self._must_return(rhs.shape, result))
        return solution

    def _must_return(self, shape: tuple, result: Any) -> str:
        return (
            f"the linear_solver of {self._function.name!r} must return a vector of real numbers of "
            f"shape {shape}; found {describe(result)}"
        )

    def residual(self, solution: Any, x: Any, args: tuple, rhs: Any, kwargs: dict) -> Any:
        return self._product(x, args, kwargs)(solution) - rhs

    def _product(self, x: Any, args: tuple, kwargs: dict) -> Callable[[Any], Any]:
        leaves, structure = flatten(args)
        call = RuleCall(self._function, tuple(leaves), structure, kwargs, x, None)
        return Root(call, self._function.residual).product(self._transposed)
