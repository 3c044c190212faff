"""Corrections: calls for which autograd's own rules are wrong or missing, put right or refused.

Found by a sweep over all differentiated functions and their parameters, which runs with the tests.
The modules are grouped by field; those for SciPy's functions are imported after autograd's modules
of them, since SciPy need not be there.
"""

import importlib
import sys
import threading
from collections.abc import Callable

from autograd.core import primitive_jvps, primitive_vjps

from daskgrad.backends.autograd.rules.declaration import ADJOINTS as ADJOINTS
from daskgrad.backends.autograd.rules.declaration import EQUIVALENTS as EQUIVALENTS
from daskgrad.backends.autograd.rules.declaration import KEYWORDS as KEYWORDS
from daskgrad.backends.autograd.rules.declaration import REFUSED as REFUSED
from daskgrad.backends.autograd.rules.declaration import TANGENTS as TANGENTS
from daskgrad.backends.autograd.rules.declaration import Equivalent as Equivalent

OF_NUMPY = ("arrangements", "elementwise", "fourier", "linalg", "products", "reductions")
OF_SCIPY = {  # autograd's modules, and our corrections of their functions
    "autograd.scipy.special": "special",
    "autograd.scipy.linalg": "scipy_linalg",
    "autograd.scipy.stats": "distributions",
}
KNOWN: set[Callable] = set()  # the functions of NumPy and SciPy that autograd has rules for

_awaited = dict(OF_SCIPY)
_rules = 0
_entries: list[Callable[[], None]] = []
_settling = threading.Lock()


def entered_by(enter: Callable[[], None]) -> None:
    """Calls a function that enters the corrections, now and whenever there are more."""
    _entries.append(enter)
    enter()


def settle() -> None:
    """Imports the corrections of what autograd has got rules for since.

    It is asked wherever a function without a rule of ours is met, and where autograd's table is as
    long as it was, nothing is to be done.
    """
    global _rules
    count = len(primitive_vjps)
    if count == _rules:
        return
    with _settling:  # nobody goes on before all corrections are there
        names = [name for name in list(_awaited) if name in sys.modules]
        for name in names:
            importlib.import_module(f"{__name__}.{_awaited[name]}")
        KNOWN.update(*map(primitives_of, ["autograd.numpy", *names]))
        for enter in _entries if names else ():
            enter()
        for name in names:
            _awaited.pop(name, None)
        _rules = count


def primitives_of(package: str) -> set[Callable]:
    """The primitives with rules that are in a package and its modules."""
    found: set[Callable] = set()
    for name, module in list(sys.modules.items()):
        if name == package or name.startswith(f"{package}."):
            found.update(filter(has_rule, vars(module).values()))
    return found


def has_rule(thing: object) -> bool:
    try:
        return thing in primitive_vjps or thing in primitive_jvps or thing in KEYWORDS
    except TypeError:  # not hashable
        return False


for field in OF_NUMPY:
    importlib.import_module(f"{__name__}.{field}")
settle()
