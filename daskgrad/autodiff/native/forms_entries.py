"""Entries: functions of single entries, in LLVM's terms, with NumPy's answers for NaN and signs."""

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from autograd.numpy import numpy_wrapper

from daskgrad.autodiff.native.writer import (
    ENTRIES,
    FAILED,
    OF_FIRST,
    EntryForm,
    TextWriter,
    Unwritable,
    number,
)
from daskgrad.autodiff.rules.math_elementwise import pull_chosen, share

Args = Sequence[tuple[str, str]]  # registers and their types
Result = tuple[str, str]
INFINITE = "0x7FF0000000000000"


def entry(*funs: Any, is_exact: bool = True) -> Callable:
    """Enters a function of registers of real numbers."""

    def enter(fun: Callable[..., str]) -> Callable:
        def make(w: TextWriter, args: Args, kind: str) -> Result:
            if kind != "double":
                raise Unwritable("a function of real numbers has other values")
            return fun(w, *doubles(w, args)), "double"

        ENTRIES.update(dict.fromkeys(funs, EntryForm(make, is_exact)))
        return fun

    return enter


def test(*funs: Any) -> Callable:
    """Enters a function that tells whether something is so."""

    def enter(fun: Callable[[TextWriter, Args], str]) -> Callable:
        def make(w: TextWriter, args: Args, kind: str) -> Result:
            return fun(w, args), "i1"

        ENTRIES.update(dict.fromkeys(funs, EntryForm(make, True)))
        return fun

    return enter


def doubles(w: TextWriter, args: Args) -> list[str]:
    return [w.as_type(reg, type, "double") for reg, type in args]


def are_whole(args: Args) -> bool:
    return all([type != "double" for _, type in args])


# ----------------------------------------------------------------------------------- arithmetic


def enter_arithmetic(op: str, *funs: Any) -> None:
    def make(w: TextWriter, args: Args, kind: str) -> Result:
        if kind == "i8":
            raise Unwritable("arithmetic of truth values")
        x, y = [w.as_type(*arg, kind) for arg in args]
        return w.put(f"{op[1:] if kind == 'i64' else op} {kind} {x}, {y}"), kind

    ENTRIES.update(dict.fromkeys(funs, EntryForm(make, True)))


enter_arithmetic("fadd", np.add, operator.add)
enter_arithmetic("fsub", np.subtract, operator.sub)
enter_arithmetic("fmul", np.multiply, operator.mul)


@entry(np.divide, operator.truediv)
def divided(w, x, y):
    return w.put(f"fdiv double {x}, {y}")


@entry(np.negative, operator.neg)
def negative(w, x):
    return w.put(f"fneg double {x}")


@entry(np.square)
def square(w, x):
    return w.put(f"fmul double {x}, {x}")


@entry(np.reciprocal)
def reciprocal(w, x):
    return w.put(f"fdiv double 1.0, {x}")


@entry(np.positive, operator.pos)
def positive(w, x):
    return x


@entry(np.maximum)
def larger(w, x, y):
    return chosen(w, "oge", x, y)


@entry(np.minimum)
def smaller(w, x, y):
    return chosen(w, "ole", x, y)


def chosen(w: TextWriter, how: str, x: str, y: str) -> str:
    """The first number if the comparison is so, or if it is NaN."""
    is_so = w.put(f"fcmp {how} double {x}, {y}")
    is_nan = w.put(f"fcmp uno double {x}, {x}")
    return w.put(f"select i1 {w.put(f'or i1 {is_so}, {is_nan}')}, double {x}, double {y}")


for fun in (np.maximum, np.minimum):  # of zeros with two signs
    ENTRIES[fun] = ENTRIES[fun]._replace(is_exact=False)


@entry(np.clip, is_exact=False)
def clipped(w, x, low, high):
    return smaller(w, larger(w, x, low), high)


@entry(np.sign)
def sign(w, x):
    low = w.put(f"select i1 {w.put(f'fcmp olt double {x}, 0.0')}, double -1.0, double {x}")
    low = w.put(f"select i1 {w.put(f'fcmp oeq double {x}, 0.0')}, double 0.0, double {low}")
    return w.put(f"select i1 {w.put(f'fcmp ogt double {x}, 0.0')}, double 1.0, double {low}")


@entry(pull_chosen.fun)
def pulled_of_chosen(w, g, x, ans, y):
    is_equal = w.put(f"fcmp oeq double {x}, {y}")
    part = w.put(f"select i1 {is_equal}, double 0.5, double 1.0")
    is_chosen = w.put(f"fcmp oeq double {x}, {ans}")
    part = w.put(f"select i1 {is_chosen}, double {part}, double 0.0")
    return w.put(f"fmul double {g}, {part}")


# ------------------------------------------------------------------------------------ functions

LIBM: dict[str, tuple] = {
    **{name: (getattr(np, name),) for name in "exp log sin cos tan sinh cosh tanh".split()},
    **{name: (getattr(np, name),) for name in "exp2 log2 log10 log1p expm1 cbrt hypot".split()},
    **{name: (getattr(np, f"arc{name[1:]}"),) for name in "asin acos atan".split()},
    **{name: (getattr(np, f"arc{name[1:]}"),) for name in "asinh acosh atanh atan2".split()},
    "pow": (np.power, operator.pow),
}
INTRINSICS: dict[str, tuple] = {
    "sqrt": (np.sqrt,),
    "fabs": (np.abs, np.fabs, operator.abs),
    **{name: (getattr(np, name),) for name in "floor ceil rint trunc".split()},
}


def enter_calls(functions: dict[str, tuple], form: str, is_exact: bool) -> None:
    for name, funs in functions.items():
        full_name = form.format(name)
        entry(*funs, is_exact=is_exact)(lambda w, *regs, name=full_name: w.call(name, *regs))


enter_calls(LIBM, "{}", False)
enter_calls(INTRINSICS, "llvm.{}.f64", True)


@entry(np.logaddexp, is_exact=False)
def log_of_sum(w, x, y):
    gap = w.call("llvm.fabs.f64", w.put(f"fsub double {x}, {y}"))
    rest = w.call("log1p", w.call("exp", w.put(f"fneg double {gap}")))
    return w.put(f"fadd double {larger(w, x, y)}, {rest}")


@entry(share.fun, is_exact=False)
def share_of_sum(w, x, y, total):
    return w.call("exp", w.put(f"fsub double {x}, {total}"))


def density(w, x, loc, scale):
    """The logarithm of a normal density; a scale that is not positive is for SciPy."""
    gap = w.put(f"fdiv double {w.put(f'fsub double {x}, {loc}')}, {scale}")
    half = w.put(f"fmul double {w.put(f'fmul double {gap}, {gap}')}, -0.5")
    rest = w.put(f"fsub double {half}, {number(np.log(np.sqrt(2.0 * np.pi)))}")
    w.mark(FAILED, w.put(f"fcmp ule double {scale}, 0.0"))
    return w.put(f"fsub double {rest}, {w.call('log', scale)}")


# ---------------------------------------------------------------------------- choices and tests

COMPARISONS: dict[str, tuple] = {
    "gt": (np.greater, operator.gt),
    "ge": (np.greater_equal, operator.ge),
    "lt": (np.less, operator.lt),
    "le": (np.less_equal, operator.le),
    "eq": (np.equal, operator.eq),
    "ne": (np.not_equal, operator.ne),
}


def enter_comparison(how: str, *funs: Any) -> None:
    def compared(w: TextWriter, args: Args) -> str:
        if are_whole(args):
            x, y = [w.as_type(*arg, "i64") for arg in args]
            return w.put(f"icmp {how if how in ('eq', 'ne') else 's' + how} i64 {x}, {y}")
        x, y = doubles(w, args)
        return w.put(f"fcmp {'une' if how == 'ne' else 'o' + how} double {x}, {y}")

    test(*funs)(compared)


for how, funs in COMPARISONS.items():
    enter_comparison(how, *funs)


def enter_logic(op: str, is_logical: bool, *funs: Any) -> None:
    def joined(w: TextWriter, args: Args) -> str:
        if not (is_logical or all([type in ("i1", "i8") for _, type in args])):
            raise Unwritable("bits of integers")
        x, y = [w.as_type(*arg, "i1") for arg in args]
        return w.put(f"{op} i1 {x}, {y}")

    test(*funs)(joined)


enter_logic("and", True, np.logical_and)
enter_logic("or", True, np.logical_or)
enter_logic("and", False, operator.and_, np.bitwise_and)
enter_logic("or", False, operator.or_, np.bitwise_or)
enter_logic("xor", True, np.logical_xor)
enter_logic("xor", False, operator.xor, np.bitwise_xor)


@test(np.logical_not, operator.not_)
def negated(w, args):
    return w.put(f"xor i1 {w.as_type(*args[0], 'i1')}, true")


@test(operator.invert, np.invert)
def inverted(w, args):
    if args[0][1] not in ("i1", "i8"):
        raise Unwritable("bits of integers")
    return negated(w, args)


@test(np.isnan)
def is_nan(w, args):
    (x,) = doubles(w, args)
    return w.put(f"fcmp uno double {x}, {x}")


@test(np.isfinite)
def is_finite(w, args):
    return w.put(f"fcmp one double {w.call('llvm.fabs.f64', *doubles(w, args))}, {INFINITE}")


@test(np.isinf)
def is_infinite(w, args):
    return w.put(f"fcmp oeq double {w.call('llvm.fabs.f64', *doubles(w, args))}, {INFINITE}")


def where(w: TextWriter, args: Args, kind: str) -> Result:
    is_so = w.as_type(*args[0], "i1")
    x, y = [w.as_type(*arg, kind) for arg in args[1:]]
    return w.put(f"select i1 {is_so}, {kind} {x}, {kind} {y}"), kind


def as_kind(w: TextWriter, args: Args, kind: str) -> Result:
    return w.as_type(*args[0], kind), kind


ENTRIES[np.where] = EntryForm(where, True)
AS_KIND = (numpy_wrapper._astype.fun, np.real, np.copy, np.ascontiguousarray, np.asarray)
ENTRIES.update(dict.fromkeys(AS_KIND, EntryForm(as_kind, True)))
OF_FIRST.update(AS_KIND)
