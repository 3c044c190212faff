"""Declarations: rules and refusals of one primitive, declared in one call.

autograd's rules hold for all primitives without a declaration. A declaration may have

``adjoint``, ``tangent``
    rules of our own: ``(argnums, ans, args, kwargs) -> pullback`` and ``(argnums, tangents, ans,
    args, kwargs) -> tangent``, as autograd's. Without a tangent, forward mode transposes the
    adjoint.
``program``
    a few lines of other functions that give the same value and have right rules; they are traced
    when a call is recorded, so that both modes and all orders follow from their rules. The program
    replaces calls for which it is ``needed``, since the adjoint and tangent, or autograd's own
    rule, are wrong or missing. The first ``arrays`` arguments have derivatives.
``keywords``
    the parameters that its rule uses and that may be passed by keyword; a call with any other
    keyword is refused.
``refused``
    positions and names of arguments without an implemented derivative; autograd returns zero.

Rules and programs have no annotations if every parameter is an array, a number or a box of both.
"""

import functools
import importlib
import inspect
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import autograd.numpy as anp
import numpy as np
from autograd.core import VJPNode, primitive_jvps, primitive_vjps
from autograd.numpy.numpy_boxes import ArrayBox as ArrayBox  # autograd's, before it is replaced
from autograd.tracer import box_types, isbox, notrace_primitives

from daskgrad.autodiff.values.descriptions import function_name
from daskgrad.autodiff.values.trees import map_leaves, substitute


class Diverged(Exception):
    """The data takes another way through the model than when it was recorded."""


class Refusal(NotImplementedError):
    """A call has no rule; the message tells what to write instead."""


def always(*args: Any, **kwargs: Any) -> bool:
    return True


class Declaration(NamedTuple):
    adjoint: Callable | None = None
    tangent: Callable | None = None
    program: Callable | None = None
    needed: Callable[..., bool] = always
    arrays: int = 1
    keywords: frozenset[str] = frozenset()
    refused: Mapping[int, str] = {}


DECLARED: dict[Callable, Declaration] = {}


def declare(*funs: Callable, keywords: str = "", **rules: Any) -> None:
    """Declares the rules of a primitive, or of several with the same rules."""
    for fun in funs:
        if fun in DECLARED:
            raise ValueError(f"the rules of {fun.__name__!r} are declared twice; declare them once")
        DECLARED[fun] = Declaration(keywords=frozenset(keywords.split()), **rules)


def declares(role: str) -> Callable:
    """A decorator that declares a function in this role for a primitive, with further rules."""

    def decorator(*funs: Callable, **rules: Any) -> Callable:
        def enter(rule: Callable) -> Callable:
            declare(*funs, **{role: rule, **rules})
            return rule

        return enter

    return decorator


equivalent, adjoint_of = declares("program"), declares("adjoint")


def refusing(message: str) -> Callable:
    """The program of a function that has no derivative."""

    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise Refusal(message)

    return refuse


def of_one(rule: Callable) -> Callable:
    """The adjoint of a function of one array, ``rule(g, ans, *args, **kwargs)``."""
    return lambda argnums, ans, args, kwargs: lambda g: (rule(g, ans, *args, **kwargs),)


def each_of(*rules: Callable) -> Callable:
    """The adjoint from a rule for each argument, ``rule(g, *args)``."""
    return lambda argnums, ans, args, kwargs: lambda g: tuple([rules[n](g, *args) for n in argnums])


def linear_in_each(fun: Callable) -> Callable:
    """The tangent of a function that is linear in each of its arrays."""

    def tangent(argnums, tangents, ans, args, kwargs):
        pairs = zip(argnums, tangents, strict=True)
        return added([fun(*substitute(args, [n], [t]), **kwargs) for n, t in pairs])

    return tangent


def added(parts: Sequence[Any]) -> Any:
    """A sum that begins with its first term, not with zero."""
    return sum(parts[1:], parts[0])


def quick(fun: Callable, holds: Callable, pullback_of: Callable) -> Callable:
    """The adjoint with ``pullback_of(argnums, ans, *args)`` where it ``holds(ans, args, kwargs)``
    and a cotangent is real and of the value's dtype; otherwise autograd's rule."""
    autograds = primitive_vjps[fun]

    def adjoint(argnums, ans, args, kwargs):
        general = autograds(argnums, ans, args, kwargs)
        if not holds(ans, args, kwargs):
            return general
        pull, dtype = pullback_of(argnums, ans, *args), ans.dtype
        return lambda g: pull(g) if is_real_like(dtype, g) else general(g)

    return adjoint


def plain(value: Any) -> Any:
    """The value in a box, through all traces."""
    while isbox(value):
        if hasattr(value, "plain"):  # it is recorded, and stays so
            return value.plain()
        value = value._value
    return value


def unboxed(leaf: Any) -> Any:
    """The plain value in a box, through all traces; other leaves as they are. Arrays are copies,
    since the trace goes on with its own. Objects that hold boxes have a method of this name."""
    value = leaf
    while isbox(value) and not hasattr(value, "unboxed"):
        value = value._value
    if value is leaf and (isbox(leaf) or not hasattr(leaf, "unboxed")):
        return leaf
    if hasattr(value, "unboxed"):
        return value.unboxed()
    return value.copy() if isinstance(value, np.ndarray) else map_leaves(unboxed, value)


def class_of(value: Any) -> type:
    """The class of a value, or of the array or number in a box."""
    kind = type(value)
    is_boxed = kind in box_types and hasattr(kind, "class_of_value")
    return value.class_of_value() if is_boxed else kind


def strong(value: Any, beside: Any = None) -> Any:
    """One of Python's floats or complex numbers, or a box of one, as the number of NumPy's that it
    is ``beside`` others with such a result."""
    kind = class_of(value)
    if kind is not float and kind is not complex:
        return value
    zero = np.result_type(kind(), getattr(beside, "dtype", np.float64)).type()
    return value - (zero.real if kind is float else zero)


NUMPYS: set[type] = {np.ndarray, np.float64}  # and boxes of these


def numpys(argnums: tuple, ans: Any, args: tuple) -> tuple:
    """The arguments of a call with NumPy's numbers in the place of Python's at ``argnums``."""
    return tuple(substitute(args, argnums, [strong(args[n], ans) for n in argnums]))


@functools.cache
def on_numpys(rule: Callable) -> Callable:
    """A rule that gets NumPy's numbers in the place of Python's, which raise errors of a division
    by zero and of overflow, and do not equal the rounded ones that NumPy computed with."""

    def strong_rule(argnums: tuple, *others: Any) -> Any:  # ..., ans, args, kwargs
        for argnum in argnums:
            if type(others[-2][argnum]) not in NUMPYS:
                *first, ans, args, kwargs = others
                return rule(argnums, *first, ans, numpys(argnums, ans, args), kwargs)
        return rule(argnums, *others)

    return strong_rule


def shape_of(array: Any) -> tuple[int, ...]:
    return np.shape(plain(array))


USUAL = {np.ndarray, np.float64, float, int, bool, tuple}  # types of arguments; no box has them


def kernel(fun: Callable) -> Any:
    """A function of arrays that the compiler records as one call, whatever it does; a trace of the
    model's own goes through it."""

    @functools.wraps(fun)
    def called(*args: Any) -> Any:
        if USUAL.issuperset(map(type, args)):
            return fun(*args)
        boxes = list(filter(isbox, args))
        if boxes and all(map(is_recorded, boxes)):
            return boxes[0].record_call(fun, args)
        return fun(*args)

    called.fun = fun  # type: ignore[attr-defined]
    return called


def namespace_of(*values: Any) -> Any:
    """The module whose functions take these values: NumPy, or autograd's for boxes."""
    return anp if any(map(isbox, values)) else np


def is_real_like(dtype: Any, *values: Any) -> bool:
    """Whether these are arrays and numbers of NumPy's, or boxes of them, of this dtype, which is
    real."""
    for value in values:
        is_known = type(value) in REAL or isinstance(value, ArrayBox)
        if not is_known or getattr(value, "dtype", None) != dtype:
            return False
    return dtype is not None and dtype.kind == "f"


def is_real(value: Any) -> bool:
    if type(value) is np.ndarray:  # in half the time
        return value.dtype.kind == "f"
    return is_real_like(getattr(value, "dtype", None), value)


REAL = {np.ndarray, np.float64, np.float32}


def is_plain(g: Any) -> bool:
    """Whether a cotangent is a NumPy array or number, not a box or a subclass."""
    kind = type(g)
    if kind is np.ndarray or kind is np.float64:
        return True
    return is_recorded(g) and isinstance(g, np.ndarray | np.float64)


def is_recorded(value: Any) -> bool:
    """Whether this is an array that a program is being recorded of."""
    return hasattr(type(value), "record_call")


# -------------------------------------------------------------------------------------------------
# Known functions: imports the modules with our rules when autograd has rules of their functions.
#
# The first trace imports them, since a client that traces nothing needs none. SciPy is optional,
# and takes long to import: the modules with rules of its functions are imported after autograd's
# modules for them.

KNOWN: set[Callable] = set()  # the functions of NumPy and SciPy that have rules

OURS = {  # autograd's modules, and ours with the rules of their functions
    "autograd.numpy": "fft indexing indexing_selections linalg linalg_matrices linalg_norms "
    "linalg_products manipulation math_along_axes math_elementwise math_reductions padding "
    "polynomials statistics twins",
    "autograd.scipy.special": "special special_bessel special_distributions special_elliptic "
    "special_errors special_gamma",
    "autograd.scipy.linalg": "scipy_linalg",
    "autograd.scipy.stats": "scipy_stats",
}

_awaited = {
    name: [f"{__package__}.{field}" for field in fields.split()] for name, fields in OURS.items()
}
_rules = 0
_settling = threading.Lock()


def settle() -> None:
    """Imports our rules for functions that autograd has got rules for since the last call; cheap if
    its table has not grown."""
    global _rules
    count = len(primitive_vjps)
    if count == _rules:
        return
    with _settling:  # other threads wait until all rules are declared
        names = [name for name in list(_awaited) if name in sys.modules]
        for name in names:
            for module in _awaited[name]:
                importlib.import_module(module)
        KNOWN.update(*map(primitives_of, {"autograd.numpy", *names}))
        for name in names:
            _awaited.pop(name, None)
        _rules = count


def import_after(library: str, module: str) -> None:
    """Has settle import a module once ``library``, one of autograd's modules, is imported."""
    global _rules
    with _settling:
        _awaited.setdefault(library, []).append(module)
        _rules = 0


def learn(ufunc: Callable) -> None:
    """Imports the rules of SciPy's special functions if a ufunc is one of these."""
    special = sys.modules.get("scipy.special._ufuncs")
    if special is not None and getattr(special, ufunc.__name__, None) is ufunc:
        importlib.import_module("autograd.scipy.special")
        settle()


def primitives_of(package: str) -> set[Callable]:
    """The primitives with rules that are in a package and its modules."""
    modules = [
        module
        for name, module in sys.modules.copy().items()  # other threads import meanwhile
        if f"{name}.".startswith(f"{package}.")
    ]
    present = {id(thing) for module in modules for thing in vars(module).copy().values()}
    known = [*primitive_vjps, *primitive_jvps, *DECLARED]
    return {fun for fun in known if id(fun) in present}


def without_derivative() -> set[Callable]:
    """autograd's current functions without derivative, unless we have an adjoint. Every trace asks
    first, so the first one imports our rules."""
    settle()
    return _of_these(len(notrace_primitives[VJPNode]))  # the set only grows


@functools.lru_cache(maxsize=1)
def _of_these(count: int) -> set:
    declared = list(DECLARED.items())  # other threads may declare more meanwhile
    return notrace_primitives[VJPNode] - {fun for fun, known in declared if known.adjoint}


# -------------------------------------------------------------------------------------------------
# Refusals: raises for calls whose rule would be wrong, and explains errors of rules.

NOTHING = Declaration()

INSTEAD = {
    "out": "take the value that the function returns",
    "where": "choose with np.where",
    "dtype": "convert with .astype",
}


def require_seen(fun: Any, kwargs: dict) -> None:
    """Raises unless the rule of a primitive of NumPy or SciPy uses all keywords of the call."""
    settle()
    strange = kwargs.keys() - DECLARED.get(fun, NOTHING).keywords
    if not strange or fun not in KNOWN:
        return
    unseen = sorted([name for name in strange if not is_default(fun, name, kwargs[name])])
    if unseen:
        instead = [INSTEAD[name] for name in unseen if name in INSTEAD] or ["write it without"]
        raise Refusal(
            f"autograd's rule for {fun.__name__!r} does not look at {'=, '.join(unseen)}=, and its "
            f"derivative would be wrong; {', '.join(instead)}"
        )


def is_default(fun: Any, name: str, value: Any) -> bool:
    """Whether a keyword has no effect; NumPy itself passes some with their defaults."""
    if value is None or value is np._NoValue or (name == "where" and value is True):
        return True
    parameter = inspect.signature(fun.fun).parameters.get(name)
    return parameter is not None and value is parameter.default


def require_derivative(fun: Any, argnums: tuple) -> None:
    """Raises if the derivative by one of these arguments is not implemented."""
    refused = DECLARED[fun].refused
    for argnum in argnums:
        if argnum in refused:
            raise Refusal(
                f"the derivative of {fun.__name__!r} with respect to {refused[argnum]}, is not "
                f"implemented; pass the plain number, dg.value(...), if you do not need this "
                f"derivative; otherwise use dg.finite_difference"
            )


def missing(fun: Callable, argnums: tuple) -> Callable:
    raise NotImplementedError(missing_rule(fun, argnums))


def explain(error: Exception, fun: Callable, argnums: tuple) -> None:
    """Raises a clearer error if a rule has failed because it does not support the call."""
    if isinstance(error, Refusal):
        return
    if isinstance(error, NotImplementedError) and not str(error).startswith(UNDEFINED):
        raise NotImplementedError(narrow_rule(fun, error)) from error
    if isinstance(error, NotImplementedError) or (
        isinstance(error, KeyError) and error.args[0] in argnums
    ):
        raise NotImplementedError(missing_rule(fun, argnums)) from error
    if isinstance(error, TypeError) and "argument" in str(error):
        raise TypeError(narrow_rule(fun, error)) from error  # np.clip(box) falls back on TypeError


UNDEFINED = ("VJP of ", "JVP of ")  # autograd's messages for missing rules begin so


def missing_rule(fun: Callable, argnums: tuple) -> str:
    return (
        f"the primitive {function_name(fun)!r} has no derivative rule for its argument "
        f"{', '.join(map(str, argnums))}; write the model without it, or define the rule with "
        f"autograd.extend.defvjp"
    )


def narrow_rule(fun: Callable, error: Exception) -> str:
    name = function_name(fun)
    return f"the rule of the primitive {name!r} does not take all arguments of this call: {error}"
