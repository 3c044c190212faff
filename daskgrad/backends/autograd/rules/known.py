"""Known functions: imports the modules with our rules when autograd has rules of their functions.

The first trace imports them, since a client that traces nothing needs none. SciPy is optional, and
takes long to import: the modules with rules of its functions are imported after autograd's modules
for them.
"""

import functools
import importlib
import sys
import threading
from collections.abc import Callable

from autograd.core import VJPNode, primitive_jvps, primitive_vjps
from autograd.tracer import notrace_primitives

from daskgrad.backends.autograd.rules.declaration import DECLARED

KNOWN: set[Callable] = set()  # the functions of NumPy and SciPy that have rules

OURS = {  # autograd's modules, and ours with the rules of their functions
    "autograd.numpy": "arithmetic arrangements constants counting cumulation elementwise filters "
    "fourier indexing inplace joining linalg matrices norms padding "
    "polynomials products reductions roots selections statistics ufuncs",
    "autograd.scipy.special": "special special_bessel special_distributions special_elliptic "
    "special_errors special_gamma special_incomplete special_polynomials",
    "autograd.scipy.linalg": "scipy_linalg",
    "autograd.scipy.stats": "distributions",
}

_awaited = {
    name: [f"{__package__}.{field}" for field in fields.split()] for name, fields in OURS.items()
}
_rules = 0
_settling = threading.Lock()


def settle() -> None:
    """Imports our rules for functions that autograd has got rules for since the last call.

    Called for each function whose rule is not known yet; does nothing if autograd's table has not
    grown.
    """
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
    there = {id(thing) for module in modules for thing in vars(module).copy().values()}
    known = [*primitive_vjps, *primitive_jvps, *DECLARED]
    return {fun for fun in known if id(fun) in there}


def without_derivative() -> set[Callable]:
    """autograd's current functions without derivative, except those with an adjoint of ours.

    Every trace begins by asking for them: the first one imports our rules.
    """
    settle()
    return _of_these(len(notrace_primitives[VJPNode]))  # the set only grows


@functools.lru_cache(maxsize=1)
def _of_these(count: int) -> set:
    declared = list(DECLARED.items())  # other threads may declare more meanwhile
    return notrace_primitives[VJPNode] - {fun for fun, known in declared if known.adjoint}
