"""Roots and minima, as in ``scipy.optimize``.

SciPy finds them, with plain numbers. Solutions are differentiated by the implicit function theorem,
with respect to ``args`` and to the functions' closures, in all orders. They have SciPy's values,
and derivatives as accurate as SciPy's tolerances. A solution does not depend on starting points and
brackets, which get no derivative. If SciPy found no solution, or the Jacobian is singular, the
derivative is an error. The functions are called with plain numbers, and with traced ones: they are
written in plain NumPy. Source: A. Griewank and A. Walther, Evaluating Derivatives, 2008, chapter
15.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NoReturn

import numpy as np
import scipy.optimize

from daskgrad.autodiff.tape import value
from daskgrad.autodiff.tape.implicit import (
    PlainFunction,
    as_array,
    corrected,
    depth_of,
    gradient,
    jacobian,
)
from daskgrad.scipy.dispatch import dispatched, with_fields


@with_fields
def root(
    fun: Callable,
    x0: Any,
    args: Any = (),
    method: str = "hybr",
    jac: Any = None,
    tol: float | None = None,
    callback: Callable | None = None,
    options: dict | None = None,
) -> Any:
    """A root of a function of a vector; ``.x`` is differentiated.

    The derivative needs the Jacobian of ``fun``, a pullback for each number in x; ``jac`` is for
    SciPy. RuntimeError if there is a derivative to take and no root was found.
    """
    function = Function(fun, args, has_jacobian=jac is True)
    result = scipy.optimize.root(
        function.plain,
        value(as_array(x0)),
        method=method,
        jac=function.beside(jac),
        tol=tol,
        callback=callback,
        options=options,
    )
    result.x = solution("optimize.root", function, result.x, result.success, result.message)
    return result


@with_fields
def root_scalar(
    f: Callable,
    args: Any = (),
    method: str | None = None,
    bracket: Any = None,
    fprime: Any = None,
    fprime2: Any = None,
    x0: Any = None,
    x1: Any = None,
    xtol: float | None = None,
    rtol: float | None = None,
    maxiter: int | None = None,
    options: dict | None = None,
) -> Any:
    """A root of a function of a number; ``.root`` is differentiated.

    ``fprime`` and ``fprime2`` are for SciPy. RuntimeError as of ``root``.
    """
    function = Function(f, args, has_jacobian=fprime is True)
    result = scipy.optimize.root_scalar(
        function.plain,
        method=method,
        bracket=None if bracket is None else [float(value(end)) for end in bracket],
        fprime=function.beside(fprime),
        fprime2=function.beside(fprime2),
        x0=value(x0),
        x1=value(x1),
        xtol=xtol,
        rtol=rtol,
        maxiter=maxiter,
        options=options,
    )
    name = "optimize.root_scalar"
    result.root = solution(name, function, result.root, result.converged, result.flag)
    return result


@dispatched
def brentq(
    f: Callable,
    a: Any,
    b: Any,
    args: Any = (),
    xtol: float = 2e-12,
    rtol: float = 4.0 * float(np.finfo(float).eps),
    maxiter: int = 100,
    full_output: bool = False,
    disp: bool = True,
) -> Any:
    """The root of a function of a number between ``a`` and ``b``, where its sign changes.

    RuntimeError if there is a derivative to take and no root was found, or the sign changes in a
    jump.
    """
    function = Function(f, args)
    root, results = scipy.optimize.brentq(
        function.plain,
        float(value(a)),
        float(value(b)),
        xtol=xtol,
        rtol=rtol,
        maxiter=maxiter,
        full_output=True,
        disp=disp,
    )
    results.root = solution("optimize.brentq", function, root, results.converged, results.flag)
    return (results.root, results) if full_output else results.root


@with_fields
def minimize(
    fun: Callable,
    x0: Any,
    args: Any = (),
    method: Any = None,
    jac: Any = None,
    hess: Any = None,
    hessp: Any = None,
    bounds: Any = None,
    constraints: Any = (),
    tol: float | None = None,
    callback: Callable | None = None,
    options: dict | None = None,
) -> Any:
    """A minimum of a function of a vector; ``.x`` and ``.fun`` are differentiated.

    x is the root of the gradient of ``fun``, which is differentiated; ``jac``, ``hess`` and
    ``hessp`` are for SciPy. SciPy's own tolerances leave x with some six digits, and so its
    derivatives; a ``tol`` and ``jac`` give more. RuntimeError as of ``root``. NotImplementedError
    if there is a derivative to take under constraints, or with x at a bound.
    """
    function = Function(fun, args, has_jacobian=jac is True)
    if bounds is not None and not isinstance(bounds, scipy.optimize.Bounds):
        bounds = [[value(end) for end in pair] for pair in bounds]
    if constraints and (function.plain.is_traced or PlainFunction(lambda: constraints).is_traced):
        raise_constrained()
    result = scipy.optimize.minimize(
        function.plain,
        value(as_array(x0)),
        method=method,
        jac=function.beside(jac),
        hess=function.beside(hess),
        hessp=function.beside(hessp),
        bounds=bounds,
        constraints=constraints,
        tol=tol,
        callback=callback,
        options=options,
    )
    if depth_of(function(result.x)):
        require_inside(result.x, bounds, constraints)
        found = result.x, result.success, result.message
        result.x = solution("optimize.minimize", function, *found, is_minimum=True)
        result.fun = function(result.x)
    return result


class Function:
    """A function for SciPy, ``plain``, and as the model has it.

    With ``has_jacobian`` it returns two results; the second one is for SciPy alone.
    """

    def __init__(self, fun: Callable, args: Any, has_jacobian: bool = False):
        self._args = args if isinstance(args, tuple) else (args,)
        self.plain = PlainFunction(fun, self._args)
        self._fun, self._has_jacobian = fun, has_jacobian

    def __call__(self, x: Any) -> Any:
        return self._first(self._fun(x, *self._args))

    def beside(self, fun: Any) -> Any:
        """Another function of these arguments, for SciPy; other options as they are."""
        return PlainFunction(fun, self._args) if callable(fun) else fun

    def inner(self, x: Any) -> Any:
        """The plain function's result before it is turned into numbers, for traced x."""
        return self._first(self.plain.unchanged(x))

    def _first(self, result: Any) -> Any:
        return as_array(result[0] if self._has_jacobian else result)


NEAR = 1e-3  # of x and one: the longest step of Newton's method from SciPy's root


def solution(
    name: str, function: Function, x: Any, is_found: bool, message: str, is_minimum: bool = False
) -> Any:
    """The root x of a function, or its minimum, with derivatives if the function is traced."""
    shape = np.shape(x)

    def flat(fun: Callable) -> Callable:
        zero = partial(gradient, fun) if is_minimum else fun
        return lambda vector: np.reshape(zero(np.reshape(vector, shape)[()]), (-1,))

    vector, equations = np.reshape(x, (-1,)), flat(function)
    if not is_found and depth_of(equations(vector)):
        raise RuntimeError(f"{name} found no solution, and so no derivative: {message}")
    root = corrected(equations, vector, partial(jacobian, flat(function.inner)), name, NEAR)
    return x if root is vector else np.reshape(root, shape)


def raise_constrained() -> NoReturn:
    raise NotImplementedError(
        "optimize.minimize has no derivative with constraints=; put them into fun, or write the "
        "conditions of optimality for optimize.root"
    )


def require_inside(x: np.ndarray, bounds: Any, constraints: Any) -> None:
    """NotImplementedError under constraints, and at a bound: there x is the root of nothing."""
    if constraints:
        raise_constrained()
    if bounds is None:
        return
    if not isinstance(bounds, scipy.optimize.Bounds):
        lows = [-np.inf if low is None else low for low, _ in bounds]
        highs = [np.inf if high is None else high for _, high in bounds]
        bounds = scipy.optimize.Bounds(lows, highs)
    room = np.minimum(x - bounds.lb, bounds.ub - x)
    if np.any(room <= NEAR * 1e-3 * (1.0 + np.abs(x))):
        raise NotImplementedError(
            f"optimize.minimize has no derivative where x is at a bound: x[{np.argmin(room)}] is "
            f"{x[np.argmin(room)]:.6g}; leave such entries out of x"
        )
