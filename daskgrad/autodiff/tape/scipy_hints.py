"""Hints about SciPy: what to write in the place of a function of SciPy's that takes no traced
values."""

import importlib
import importlib.util
from collections.abc import Iterable
from types import FrameType
from typing import Any

INSTEAD = {  # of SciPy's public functions, where NumPy has another name for it
    "scipy.interpolate.interp1d": "np.interp(t, x, y)",
    "scipy.linalg.cholesky": "np.linalg.cholesky(a), which is the lower factor",
    "scipy.spatial.distance.cdist": "np.linalg.norm(a[:, None] - b[None], axis=-1)",
}
NUMPYS = {"scipy.linalg": "numpy.linalg", "scipy.fft": "numpy.fft", "scipy.fftpack": "numpy.fft"}


def advice_about_scipy(frames: Iterable[FrameType]) -> str:
    """Advice for the call of SciPy that the outermost of these frames belongs to; or nothing."""
    for frame in frames:
        path = public_path(frame)
        if path:
            return f"{'.'.join(path)} takes no traced values; {instead_of(*path)}"
    return ""


def public_path(frame: FrameType) -> tuple[str, ...]:
    """The public module and name of the function or method that a frame runs, or nothing."""
    package, *inner = frame.f_globals.get("__name__", "").split(".")
    if package != "scipy" or not inner or inner[0].startswith("_"):
        return ()
    public = [part for n, part in enumerate(inner) if not any(p[0] == "_" for p in inner[: n + 1])]
    owner, *rest = frame.f_code.co_qualname.split(".")
    methods = [rest[-1]] if rest and not rest[-1].startswith("_") else []
    for module in [".".join([package, *public[:end]]) for end in range(len(public), 0, -1)]:
        for name in [*names_of(frame.f_locals.get("self")), owner]:
            if has(module, name):
                return (module, name, *methods)
    return ()


def names_of(self: Any) -> list[str]:
    """The names under which an object's class or its distribution may be public."""
    owners = [getattr(self, "dist", None), self]
    kinds = [kind for owner in owners if owner is not None for kind in type(owner).__mro__]
    names = [kind.__name__.removesuffix("_gen").removesuffix("_frozen") for kind in kinds]
    return [name for name in names if not name.startswith("_") and name != "object"]


def instead_of(module: str, name: str, *methods: str) -> str:
    """Advice about a public function, class or distribution of SciPy's."""
    ours = f"daskgrad.{module}"
    if has(ours, name):
        thing = getattr(importlib.import_module(ours), name)
        return f"write {'.'.join([ours, name, *[m for m in methods if hasattr(thing, m)]])}"
    numpys = NUMPYS.get(module)
    if f"{module}.{name}" in INSTEAD:
        return f"write {INSTEAD[f'{module}.{name}']}"
    if numpys and has(numpys, name):
        return f"write {numpys.replace('numpy', 'np')}.{name}"
    there = "it is not in daskgrad.scipy"
    if exists(ours):
        known = [key for key in dir(importlib.import_module(ours)) if has(module, key)]
        there = f"{ours} has {', '.join(known)}"
    return f"{there}; or give it a rule with dg.custom_vjp, or differences, dg.finite_difference"


def exists(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # its package is not there
        return False


def has(module: str, name: str) -> bool:
    """Whether a module has a public function or class of this name."""
    if name.startswith("_") or not exists(module):
        return False
    return callable(getattr(importlib.import_module(module), name, None))
