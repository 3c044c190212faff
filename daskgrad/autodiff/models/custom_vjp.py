"""Rule: the base of functions that define their own derivative instead of being traced."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

from daskgrad.autodiff.models.model import Model
from daskgrad.autodiff.tape.rule_calls import RuleCall, call_rule
from daskgrad.autodiff.values.descriptions import (
    argument_name,
    describe,
    function_name,
    require_pair,
)
from daskgrad.autodiff.values.trees import flatten, is_named


class Rule:
    """A function with its own rules: on plain arrays it just runs, on boxes it is one node.

    ``is_first_order``: it has no second derivatives, and its arguments are never boxes.
    """

    is_first_order = False

    def __init__(self, fun: Callable, caller: str):
        if not callable(fun):
            raise TypeError(f"the argument of {caller} must be a function; found {describe(fun)}")
        if isinstance(getattr(fun, "model", None), Model):
            raise TypeError(
                f"the argument of {caller} must be a plain function; found {fun!r}; apply "
                f"dg.delayed to the result instead"
            )
        functools.update_wrapper(self, fun)
        self.fun = fun
        self.name = self.__name__ = function_name(fun)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        for leaf in flatten((args, kwargs))[0]:
            if hasattr(leaf, "__dask_graph__"):
                raise TypeError(
                    f"{self.name!r} was called on {describe(leaf)}, which has no value yet; make a "
                    f"model of it with dg.delayed, and call that"
                )
        return call_rule(self, args, kwargs)

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Pickles it by name if its module has it and its rules."""
        modules = {getattr(rule, "__module__", "") for rule in self.rules()}
        if is_named(self) and modules <= {self.__module__}:
            return self.__qualname__  # type: ignore[attr-defined]
        return super().__reduce_ex__(protocol)

    def rules(self) -> list[Callable]:
        """The user's functions that define the derivative."""
        return []

    def run_again(self) -> list[Callable]:
        """The user's functions that are evaluated again, at the call's own arguments."""
        return []

    def argument(self, number: int) -> str:
        """A positional argument, for an error."""
        return f"{argument_name(self.fun, number)!r} of {self.name!r}"

    def run(self, args: tuple, kwargs: dict) -> tuple[Any, Any]:
        """The value, and the residuals for the pullback; arguments may be boxes."""
        raise NotImplementedError

    def run_recorded(
        self, args: tuple, kwargs: dict, active: Sequence[int]
    ) -> tuple[Any, Any] | None:
        """As ``run``, on boxes of a recording, so that a program makes the calls of run and
        pullback one by one; None if each is one call of it."""
        return None

    def pullback(self, call: RuleCall, active: Sequence[int]) -> Callable[[Any], Any]:
        """The map from a cotangent of the value to one (or ``None``) for each positional argument;
        the arguments' leaves at the places ``active`` are differentiated."""
        raise NotImplementedError

    def push(self, call: RuleCall, tangents: tuple) -> Any:
        """The tangent of the value, from tangents of the positional arguments."""
        raise NotImplementedError


class custom_vjp(Rule):
    """Gives a function a derivative that you define; a decorator.

    For code that cannot be traced (a solver in C or Fortran, a sparse factorisation), or has a
    better derivative than its steps::

        @dg.custom_vjp
        def solve(matrix, rhs):
            return np.linalg.solve(matrix, rhs)

        def forward(matrix, rhs):
            x = solve(matrix, rhs)
            return x, (matrix, x)                          # the value, and residuals

        def backward(residuals, cotangent):
            matrix, x = residuals
            w = solve(matrix.T, cotangent)
            return -np.outer(w, x), w                      # a cotangent for each argument

        solve.defvjp(forward, backward)

    Call the result as you called the function: on plain arrays it is the function. It is a model
    (``dg.delayed(solve)``, ``dg.map_sum(solve, ...)``), and may be called within models,
    ``autograd.grad`` and nested derivatives. Models of backends other than autograd do not support
    it.

    Positional arguments and values are pytrees; integers, strings and other leaves that are not
    floating-point numbers have no derivative. Nor have keyword arguments, which ``forward`` and
    ``jvp`` get, too. The function must not depend on any other differentiated value.

    While a derivative is taken, ``forward`` runs once instead of the function and returns its
    value. Rules get plain arrays. Nested derivatives differentiate the rules, which then get
    autograd's boxes: write rules with autograd.numpy, and call the decorated function for its
    value. Not promised: that the rules are right; check them with ``dg.check_grads`` (with
    ``modes=["reverse"]`` if there is no ``jvp``). Complex numbers follow autograd's convention.
    Source of the interface: JAX's ``custom_vjp``.

    Returns
    -------
    function
        The function; ``defvjp`` and ``defjvp`` give it its rules.

    See Also
    --------
    implicit, finite_difference, check_grads

    Examples
    --------
    >>> @dg.custom_vjp
    ... def length(x):
    ...     return np.sqrt(np.sum(x**2))
    >>> def length_forward(x):
    ...     value = length(x)
    ...     return value, (x, value)
    >>> def length_backward(residuals, cotangent):
    ...     x, value = residuals
    ...     return (cotangent * x / value,)
    >>> length.defvjp(length_forward, length_backward)
    >>> dg.grad(dg.delayed(length))(np.array([3.0, 4.0]))
    array([0.6, 0.8])
    """

    def __init__(self, fun: Callable):
        super().__init__(fun, "dg.custom_vjp")
        self.forward: Callable | None = None
        self.backward: Callable | None = None
        self.jvp: Callable | None = None

    def defvjp(self, forward: Callable, backward: Callable) -> None:
        """Defines the rule for reverse mode.

        ``forward(*args)`` returns ``(value, residuals)``; the residuals are a pytree.
        ``backward(residuals, cotangent)`` returns a tuple with a cotangent for each positional
        argument, in the argument's structure and shapes, or ``None`` for no derivative. Its
        ``cotangent`` has the structure of the value, with ``None`` for leaves without derivative.
        """
        self.forward = self._function(forward, "defvjp")
        self.backward = self._function(backward, "defvjp")

    def defjvp(self, jvp: Callable) -> None:
        """Defines the rule for forward mode: ``jvp(primals, tangents) -> (value, tangent)``.

        ``primals`` and ``tangents`` have an entry for each positional argument; tangents are zero
        for leaves that are not differentiated, and ``None`` for leaves without derivative.
        """
        self.jvp = self._function(jvp, "defjvp")

    def rules(self) -> list[Callable]:
        return [rule for rule in (self.forward, self.backward, self.jvp) if rule is not None]

    def _function(self, rule: Any, method: str) -> Callable:
        if not callable(rule):
            raise TypeError(
                f"the arguments of {method} of {self.name!r} must be functions; found "
                f"{describe(rule)}"
            )
        return rule

    def run(self, args: tuple, kwargs: dict) -> tuple[Any, Any]:
        if self.forward is not None:
            return self._pair(self.forward(*args, **kwargs), "forward", "(value, residuals)")
        if self.jvp is None:
            raise self._has_no_rule("a derivative", "defvjp(forward, backward) or defjvp(jvp)")
        return self(*args, **kwargs), None

    def pullback(self, call: RuleCall, active: Sequence[int]) -> Callable[[Any], Any]:
        if self.backward is None:
            raise self._has_no_rule("a derivative in reverse mode", "defvjp(forward, backward)")
        return functools.partial(self.backward, call.residuals)

    def push(self, call: RuleCall, tangents: tuple) -> Any:
        if self.jvp is None:
            raise self._has_no_rule("a derivative in forward mode", "defjvp(jvp)")
        pair = self.jvp(call.args, tangents, **call.kwargs)
        return self._pair(pair, "jvp", "(value, tangent)")[1]

    def _pair(self, pair: Any, rule: str, expected: str) -> tuple[Any, Any]:
        function = f"the {rule} function of {self.name!r}"
        return require_pair(pair, f"{function} must return a pair {expected}")

    def _has_no_rule(self, purpose: str, missing: str) -> NotImplementedError:
        return NotImplementedError(
            f"{self.name!r} has no rule for {purpose}; define one with {self.name}.{missing}"
        )
