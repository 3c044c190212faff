"""Delayed: models whose calls are recorded."""

import functools
import inspect
from collections.abc import Callable
from typing import Any

from daskgrad.autodiff.libraries import registry
from daskgrad.autodiff.libraries.by_hand import WithGradient
from daskgrad.autodiff.models.as_called import eager_tape
from daskgrad.autodiff.models.model import KEEP, Model
from daskgrad.autodiff.values.descriptions import describe, function_name, require_choice
from daskgrad.graph.nodes import CallNode
from daskgrad.tasks.collections import is_collection
from daskgrad.tasks.settings import setting

COMPILE = ("auto", True, False, registry.NATIVE)


class DelayedModel:
    """A model whose calls are recorded; made by ``delayed``."""

    def __init__(self, model: Model):
        self.model = model
        self.__wrapped__ = model.fun.fun if type(model.fun) is WithGradient else model.fun
        self.__name__ = model.name
        self.__doc__ = self.__wrapped__.__doc__

    def __repr__(self) -> str:
        return f"<model {self.model.name}>"

    def __call__(self, *args: Any, **kwargs: Any) -> CallNode:
        return call(self.model, args, kwargs)


def call(model: Model, args: tuple, kwargs: dict[str, Any]) -> Any:
    """A call of a model: recorded, or run."""
    tape = eager_tape()
    return CallNode(model, args, kwargs) if tape is None else tape.call(model, args, kwargs)


def delayed(
    fun: Callable | None = None,
    name: str | None = None,
    backend: str = "autograd",
    keep: str = "auto",
    compile: bool | str = "auto",
    gradient: bool = False,
) -> Any:
    """Makes a function a model: calling it records a node, and nothing runs.

    Also a decorator, with or without arguments.

    Parameters
    ----------
    fun:
        a function of arrays and other arguments that returns numbers, arrays, or dicts, lists and
        tuples of them. It may run more than once for one gradient (if its pullback moved between
        processes), so it must return the same value for the same arguments. It must not write into
        arrays, which others use and which are read-only while it runs; lists and dicts are its own.
    name:
        its name in task keys, errors and the dashboard; the function's name if not given.
    backend:
        the library that it is written for, which differentiates it: "autograd", "jax", "torch", or
        a name that ``register_backend`` made known.
    keep:
        the residuals between the two passes: the "tape"; the "gradient" (if the model returns one
        real number); none ("recompute": the model runs again in the backward pass); or "auto": a
        real number's gradient in sums, and if it is no larger than the tape, or than 64 kB; else
        the tape.
    compile:
        whether the NumPy calls of the model and of its pullback are recorded once for each kind of
        arguments, and later calls run these instead of the model. The bits are the same. "auto":
        if a call is repeated often, and the model's code is plainly a function of its arguments
        alone; ``True``: the user vouches for that; ``False``: never; "native": the user vouches,
        and the calls become machine code, which has other bits (``docs/native.md``).
        ``daskgrad.compile`` in ``dask.config`` changes the meaning of "auto". Calls are compared
        with the model now and then; ``dg.explain`` tells the state of a model (see
        ``docs/backends.md``).
    gradient:
        whether ``fun`` returns a pair (value, gradient), as SciPy's ``jac=True`` functions do. The
        value is one real number. The gradient of a function of one positional argument is in that
        argument's structure; else it is a tuple with an entry for each positional argument, None
        for an argument without a derivative. Complex arguments follow autograd's convention, as
        ``value_and_grad`` does. Nothing is traced, so ``fun`` may do anything. There are no second
        derivatives. A right gradient is not promised: ``dg.check_grads`` checks it.

    Returns
    -------
    function
        The model: it takes the arguments of ``fun`` and returns a node. A decorator without
        ``fun``.

    Raises
    ------
    TypeError
        if ``fun`` cannot be called, is async or yields, or the name is not a string.
    ValueError
        for an unknown backend, ``keep`` or ``compile``; if a model of a backend other than autograd
        is to be compiled; if a model with its own gradient is to be compiled, or has a backend.
    ModuleNotFoundError
        if the backend's library is not installed; the message names the extra.

    See Also
    --------
    custom_vjp, finite_difference, register_backend, explain

    Examples
    --------
    >>> @dg.delayed
    ... def energy(x):
    ...     return np.sum(x**2)
    >>> dg.value_and_grad(lambda x: energy(x) + energy(3.0 * x))(np.array([1.0, 2.0]))
    (np.float64(50.0), array([20., 40.]))
    """
    if fun is None:
        return functools.partial(
            delayed, name=name, backend=backend, keep=keep, compile=compile, gradient=gradient
        )
    if isinstance(fun, DelayedModel):
        fun = fun.model.fun
    if type(fun) is WithGradient:
        fun, gradient = fun.fun, True
    if not callable(fun) or is_collection(fun):
        raise TypeError(f"dg.delayed makes a model of a function; found {describe(fun)}")
    if inspect.iscoroutinefunction(fun) or inspect.isgeneratorfunction(fun):
        raise TypeError(
            f"a model is a function that returns numbers; {function_name(fun)!r} is async or "
            f"yields: wrap it in a function that runs it to its end"
        )
    require_name(name, "a model")
    require_choice(keep, KEEP, "keep")
    mode = setting("compile") if compile == "auto" else compile
    if mode not in COMPILE:
        raise ValueError(f"compile must be 'auto', True, False or 'native'; found {describe(mode)}")
    if gradient:
        is_compiled = compile in (True, registry.NATIVE)
        if is_compiled or backend != "autograd":
            option = f"compile={compile!r}" if is_compiled else f"backend={backend!r}"
            raise ValueError(
                f"gradient=True is for a function that returns its own gradient, so no library "
                f"differentiates it; found {option}: leave one of them out"
            )
        made = WithGradient(fun, name or function_name(fun))
        return DelayedModel(Model(made, made.name, registry.BY_HAND, keep))
    compiled = registry.compiled(backend, mode)  # which is loaded when it is needed
    registry.load(compiled if compiled == registry.NATIVE else backend)
    return DelayedModel(Model(fun, name or function_name(fun), compiled, keep))


def require_name(name: Any, of: str) -> None:
    if not (name is None or isinstance(name, str)):
        raise TypeError(f"the name of {of} must be a string; found {describe(name)}")


def as_model(fun: Any, name: str | None = None) -> Model:
    """The model of a plain function or of a result of ``delayed``; ``name`` replaces its name."""
    if not callable(fun):
        raise TypeError(
            f"the first argument must be a model, which is a function; found {describe(fun)}"
        )
    require_name(name, "a sum")
    model = fun.model if isinstance(fun, DelayedModel) else delayed(fun).model
    return model if name is None else model._replace(name=name)
