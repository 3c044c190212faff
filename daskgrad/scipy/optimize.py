"""Roots and minima, as in ``scipy.optimize``.

SciPy finds them, with plain numbers. Solutions are differentiated by the implicit function
theorem, with respect to ``args`` and to what the functions close over, in all orders; they have
SciPy's values, and derivatives as accurate as SciPy's tolerances. Not differentiated are starting
points and brackets, on which a solution does not depend. A solution that SciPy did not find, or at
which the Jacobian is singular, has none: an error says so. The functions are called with plain
numbers, and with traced ones: they are written in plain NumPy. Source: A. Griewank and A. Walther,
Evaluating Derivatives, 2008, chapter 15.
"""

from collections.abc import Callable
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

    The Jacobian that the derivative needs is taken of ``fun``, in a pullback for each number in x;
    ``jac`` is for SciPy. RuntimeError if there is a derivative to take and no root was found.
    """
    args = as_tuple(args)
    function = Function(fun, args, has_jacobian=jac is True)
    found = scipy.optimize.root(
        function.plain,
        value(as_array(x0)),
        method=method,
        jac=PlainFunction(jac, args) if callable(jac) else jac,
        tol=tol,
        callback=callback,
        options=options,
    )
    found.x = solution("optimize.root", function, found.x, found.success, found.message)
    return found


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
    args = as_tuple(args)
    function = Function(f, args, has_jacobian=fprime is True)
    slopes = [PlainFunction(each, args) if callable(each) else each for each in (fprime, fprime2)]
    found = scipy.optimize.root_scalar(
        function.plain,
        method=method,
        bracket=None if bracket is None else [float(value(end)) for end in bracket],
        fprime=slopes[0],
        fprime2=slopes[1],
        x0=value(x0),
        x1=value(x1),
        xtol=xtol,
        rtol=rtol,
        maxiter=maxiter,
        options=options,
    )
    what = "optimize.root_scalar"
    found.root = solution(what, function, found.root, found.converged, found.flag)
    return found


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
    function = Function(f, as_tuple(args))
    found, results = scipy.optimize.brentq(
        function.plain,
        float(value(a)),
        float(value(b)),
        xtol=xtol,
        rtol=rtol,
        maxiter=maxiter,
        full_output=True,
        disp=disp,
    )
    results.root = solution("optimize.brentq", function, found, results.converged, results.flag)
    return (results.root, results) if full_output else results.root


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

    The gradient, whose root x is, and the Hessian are taken of ``fun``; ``jac``, ``hess`` and
    ``hessp`` are for SciPy. SciPy's own tolerances leave x with some six digits, and so its
    derivatives; a ``tol`` and ``jac`` give more. RuntimeError as of ``root``. NotImplementedError
    if there is a derivative to take under constraints, or with x at a bound.
    """
    args = as_tuple(args)
    function = Function(fun, args, has_jacobian=jac is True)
    if bounds is not None and not isinstance(bounds, scipy.optimize.Bounds):
        bounds = [[value(end) for end in pair] for pair in bounds]
    if constraints and (function.plain.is_traced or PlainFunction(lambda: constraints).is_traced):
        raise_constrained()
    plain = [PlainFunction(each, args) if callable(each) else each for each in (jac, hess, hessp)]
    found = scipy.optimize.minimize(
        function.plain,
        value(as_array(x0)),
        method=method,
        jac=plain[0],
        hess=plain[1],
        hessp=plain[2],
        bounds=bounds,
        constraints=constraints,
        tol=tol,
        callback=callback,
        options=options,
    )
    if depth_of(function(found.x)):
        require_inside(found.x, bounds, constraints)
        slopes = Gradient(function)
        found.x = solution("optimize.minimize", slopes, found.x, found.success, found.message)
        found.fun = function(found.x)
    return found


def as_tuple(args: Any) -> tuple:
    return args if isinstance(args, tuple) else (args,)


class Function:
    """A function that is given to SciPy: ``plain``, for numbers, and as the model has it.

    With ``has_jacobian`` it returns two results, of which SciPy alone uses the second one.
    """

    def __init__(self, fun: Callable, args: tuple, has_jacobian: bool = False):
        self.plain = PlainFunction(fun, args)
        self._fun, self._args, self._has_jacobian = fun, args, has_jacobian

    def __call__(self, x: Any) -> Any:
        return self._first(self._fun(x, *self._args))

    def inner(self, x: Any) -> Any:
        """The plain function's result before it is turned into numbers, for traced x."""
        return self._first(self.plain.unchanged(x))

    def _first(self, found: Any) -> Any:
        return as_array(found[0] if self._has_jacobian else found)


NEAR = 1e-3  # of x and one, is the longest step of Newton's method from what SciPy calls a root


def solution(what: str, function: Any, x: Any, is_found: bool, message: str) -> Any:
    """The root x of a function, with derivatives if the function is traced."""
    if not is_found and depth_of(function(x)):
        raise RuntimeError(f"{what} found no solution, and so no derivative: {message}")
    shape = np.shape(x)

    def flat(fun: Callable) -> Callable:
        return lambda vector: np.reshape(fun(np.reshape(vector, shape)[()]), (-1,))

    vector = np.reshape(x, (-1,))
    inner = flat(function.inner)
    found = corrected(flat(function), vector, lambda x: jacobian(inner, x), what, NEAR)
    return x if found is vector else np.reshape(found, shape)


class Gradient:
    """The gradient of a function, with the same two ways to call it."""

    def __init__(self, function: Function):
        self._function = function

    def __call__(self, x: Any) -> Any:
        return gradient(self._function, x)

    def inner(self, x: Any) -> Any:
        return gradient(self._function.inner, x)


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
        bounds = scipy.optimize.Bounds(
            *[
                [end if pair[n] is None else pair[n] for pair in bounds]
                for n, end in enumerate((-np.inf, np.inf))
            ]
        )
    room = np.minimum(x - bounds.lb, bounds.ub - x)
    if np.any(room <= NEAR * 1e-3 * (1.0 + np.abs(x))):
        raise NotImplementedError(
            f"optimize.minimize has no derivative where x is at a bound: x[{np.argmin(room)}] is "
            f"{x[np.argmin(room)]:.6g}; leave such entries out of x"
        )
