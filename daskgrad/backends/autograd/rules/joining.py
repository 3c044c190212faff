"""Joining: functions of plain NumPy that join arrays, or make grids of them, and lists of these."""

from collections.abc import Callable
from typing import Any

import autograd.numpy as anp
import numpy as np
from autograd.tracer import isbox

from daskgrad.backends.autograd.rules.declaration import plain
from daskgrad.backends.autograd.rules.twins import composed, shape_of


def at_least(fun: Callable, primitive: Callable) -> None:
    @composed(fun)
    def twin(*arys: Any) -> Any:
        """autograd's rule is that of one array."""
        parts = [primitive(array) for array in arys]
        return parts[0] if len(parts) == 1 else tuple(parts)


at_least(np.atleast_1d, anp.atleast_1d)
at_least(np.atleast_2d, anp.atleast_2d)
at_least(np.atleast_3d, anp.atleast_3d)


@composed(np.dstack)
def dstack(tup: Any) -> Any:
    return anp.concatenate([anp.atleast_3d(array) for array in tup], axis=2)


@composed(np.block)
def block(arrays: Any) -> Any:
    leaves, depth = [], 0
    level = [arrays]
    while level:
        leaves += [each for each in level if not isinstance(each, list)]
        level = [each for part in level if isinstance(part, list) for each in part]
        depth += bool(level)
    ndim = max([depth, *map(np.ndim, map(plain, leaves))])

    def join(part: Any, axis: int) -> Any:
        if isinstance(part, list):
            return anp.concatenate([join(each, axis + 1) for each in part], axis=axis)
        shape = shape_of(part)
        return anp.reshape(part, (1,) * (ndim - len(shape)) + shape)

    return join(arrays, -depth)


@composed(np.diagflat)
def diagflat(v: Any, k: int = 0) -> Any:
    return anp.diag(anp.ravel(v), k)


@composed(np.broadcast_arrays)
def broadcast_arrays(*args: Any, subok: bool = False) -> Any:
    shape = np.broadcast_shapes(*map(shape_of, args))
    return tuple([anp.broadcast_to(anp.array(array), shape) for array in args])


@composed(np.meshgrid)
def meshgrid(*xi: Any, copy: bool = True, sparse: bool = False, indexing: str = "xy") -> Any:
    plains = [plain(x) for x in xi]
    made: Any = np.meshgrid(*plains, sparse=True, indexing=indexing)  # type: ignore[call-overload]
    grids = tuple([anp.reshape(x, each.shape) for x, each in zip(xi, made, strict=True)])
    return grids if sparse else broadcast_arrays(*grids)


@composed(np.ix_)
def ix_(*args: Any) -> Any:
    made = np.ix_(*[plain(arg) for arg in args])
    pairs = zip(args, made, strict=True)
    return tuple([anp.reshape(arg, one.shape) if isbox(arg) else one for arg, one in pairs])


@composed(np.apply_along_axis)
def apply_along_axis(func1d: Callable, axis: int, arr: Any, *args: Any, **kwargs: Any) -> Any:
    arr = anp.moveaxis(anp.array(arr), axis, -1)
    *around, _ = shape_of(arr)
    axis = axis % (len(around) + 1)
    rows = [anp.array(func1d(arr[place], *args, **kwargs)) for place in np.ndindex(*around)]
    value = anp.reshape(anp.stack(rows), (*around, *shape_of(rows[0])))
    ndim = np.ndim(plain(rows[0]))
    return anp.moveaxis(value, tuple(range(-ndim, 0)), tuple(range(axis, axis + ndim)))


@composed(np.apply_over_axes)
def apply_over_axes(func: Callable, a: Any, axes: Any) -> Any:
    found = anp.array(a)
    for axis in np.atleast_1d(axes):
        reduced = func(found, int(axis) % np.ndim(plain(found)))
        is_kept = np.ndim(plain(reduced)) == np.ndim(plain(found))
        found = reduced if is_kept else anp.expand_dims(reduced, int(axis))
    return found
