"""Manipulation: functions that only move entries of their arguments to other places."""

from collections.abc import Callable
from functools import partial
from typing import Any

import autograd.numpy as anp
import numpy as np
from autograd.numpy import numpy_wrapper
from autograd.tracer import getval, isbox

from daskgrad.autodiff.rules.declaration import always, declare, equivalent, plain, shape_of
from daskgrad.autodiff.rules.twins import TWINS, as_array, composed


def places_of(x: Any) -> np.ndarray:
    """The place of every entry in the flat array, in the array's own memory layout."""
    places = np.empty_like(getval(x), dtype=np.intp, subok=False)
    places[...] = np.arange(places.size).reshape(places.shape)
    return places


def arrangement(fun: Callable, needed: Callable[..., bool], keywords: str) -> None:
    def program(x, *args, **kwargs):
        return anp.ravel(x)[fun.fun(places_of(x), *args, **kwargs)]  # type: ignore[attr-defined]

    declare(fun, program=program, needed=needed, keywords=keywords)


# -------------------------------------------------------------------------------------- axes


for fun, keywords, needed in (
    # autograd negates the shift, which may be a tuple
    (anp.roll, "shift axis", lambda a, shift, axis=None: not isinstance(shift, int)),
    # autograd refuses negative axes
    (anp.rollaxis, "axis start", lambda a, axis, start=0: axis < 0 or start < 0),
    # autograd does not look at the axes
    (anp.rot90, "k axes", lambda m, k=1, axes=(0, 1): tuple(axes) != (0, 1)),
    # autograd reshapes the cotangent in this order, but its memory layout may differ
    (anp.ravel, "order", lambda a, order="C": order not in ("C", "F")),
    (anp.diagonal, "offset axis1 axis2", always),
    (anp.diag, "k", lambda v, k=0: np.ndim(plain(v)) == 2),
    # autograd supposes a number of repeats, above zero, for each axis
    (anp.tile, "reps", lambda A, reps: np.size(reps) != np.ndim(plain(A)) or not np.all(reps)),
    # as for ``ravel``; and autograd does not take ``copy``
    (
        anp.reshape,
        "order shape copy",
        lambda a, shape, order="C", *, copy=None: order not in ("C", "F", None) or copy is not None,
    ),
    # autograd is right for one number of repeats, along an axis that is counted from 0
    (
        anp.repeat,
        "repeats axis",
        lambda a, repeats, axis=None: (
            not (isinstance(repeats, int) and np.ndim(plain(a)) and (axis is None or axis >= 0))
        ),
    ),
):
    arrangement(fun, needed, keywords)

# ------------------------------------------------------------------------------- parts, copies


def is_vector(a, *args, **kwargs):
    return np.ndim(plain(a)) == 1


declare(anp.copy, program=lambda a, order="K", subok=False: anp.array(a), keywords="order subok")
declare(  # autograd joins the parts of a vector along the second axis
    anp.hsplit,
    program=lambda ary, indices_or_sections: anp.split(ary, indices_or_sections, axis=0),
    needed=is_vector,
    keywords="indices_or_sections",
)
declare(  # autograd compares the shapes axis by axis, from the first one on
    anp.broadcast_to,
    program=lambda array, shape, subok=False: array * np.ones(shape, plain(array).dtype),
    needed=lambda array, shape, subok=False: (
        subok or not isinstance(shape, tuple) or len(shape) != np.ndim(plain(array))
    ),
    keywords="shape subok",
)


def triangle(fun, m, k=0):
    """autograd does not add up the rows that NumPy makes of a vector."""
    return m * fun(np.ones(2 * shape_of(m), plain(m).dtype), k)


for fun in (anp.triu, anp.tril):
    declare(fun, program=partial(triangle, fun), needed=is_vector, keywords="k")

# -------------------------------------------------------------------------------------- sorting


def sort_needed(a, axis=-1, kind=None, order=None, **kwargs):
    """autograd refuses arrays of several axes."""
    return not is_vector(a) or bool(kwargs)


def sort_adjoint(argnums, ans, args, kwargs):
    order = np.argsort(plain(args[0]), *args[1:], **kwargs)
    return lambda g: (g[np.argsort(order)],)


@equivalent(
    anp.sort, adjoint=sort_adjoint, needed=sort_needed, keywords="axis kind stable descending"
)
def sort(a, axis=-1, kind=None, order=None, **settings):
    return sort_by(np.argsort, a, axis, kind=kind, **settings)


@equivalent(anp.sort_complex)
def sort_complex(a):
    ordered = sort_by(np.argsort, a, -1)
    return ordered if anp.iscomplexobj(ordered) else ordered + 0j


@equivalent(
    anp.partition, needed=lambda *args, **kwargs: not is_vector(*args), keywords="kth axis kind"
)
def partition(a, kth, axis=-1, kind="introselect", order=None):
    return sort_by(np.argpartition, a, axis, kth=kth, kind=kind)


def sort_by(arguments, a, axis, **kwargs):
    """An array in the order that ``arguments`` (``np.argsort``) finds in its numbers."""
    if axis is None:
        a, axis = anp.ravel(a), -1
    order = arguments(plain(a), axis=axis, **kwargs)
    return anp.ravel(a)[np.take_along_axis(places_of(a), order, axis)]


# -------------------------------------------------------------------------------- put together


def joined_tangent(argnums, tangents, ans, args, kwargs):
    """All at once; autograd's rule joins as many arrays for each of them."""
    axis, *arrays = args
    parts = [np.zeros_like(plain(array)) for array in arrays]
    for argnum, tangent in zip(argnums, tangents, strict=True):
        parts[argnum - 1] = tangent
    return anp.concatenate(parts, axis)


@equivalent(
    numpy_wrapper.concatenate_args,
    needed=lambda axis, *args: axis is None,
    arrays=10**9,
    tangent=joined_tangent,
)
def concatenate_args(axis, *args):
    """autograd does not flatten its arguments."""
    return anp.concatenate([anp.ravel(arg) for arg in args])


def array_needed(array_args, array_kwargs, *args):
    """autograd takes each entry of the cotangent, whatever axes were put before."""
    return len(array_args) > 1 or bool(array_kwargs.get("ndmin"))


@equivalent(numpy_wrapper.array_from_args, needed=array_needed, arrays=10**9)
def array_from_args(array_args, array_kwargs, *args):
    made = np.array([plain(arg) for arg in args], *array_args, **array_kwargs)
    return anp.reshape(anp.array(list(args)), made.shape)


declare(anp.expand_dims, anp.squeeze, keywords="axis")
declare(anp.array_split, anp.split, keywords="indices_or_sections axis")
declare(anp.vsplit, anp.dsplit, keywords="indices_or_sections")
declare(numpy_wrapper.make_diagonal, keywords="offset axis1 axis2")


# -------------------------------------------------------------------------------------------------
# Joining: functions of plain NumPy that join arrays, or make grids of them, and lists of these.


def of_each(primitive, *arrays):
    """autograd's rule is for one array."""
    parts = [primitive(array) for array in arrays]
    return parts[0] if len(parts) == 1 else tuple(parts)


for name in ("atleast_1d", "atleast_2d", "atleast_3d"):
    TWINS[getattr(np, name)] = partial(of_each, getattr(anp, name))


@composed(np.dstack)
def dstack(tup):
    return anp.concatenate([anp.atleast_3d(array) for array in tup], axis=2)


def put_together(join, arrays, *args, dtype=None, casting="same_kind", **options):
    """autograd takes no ``dtype``, which NumPy's deprecated ``row_stack`` passes on, and finds no
    traced value in a list among the arrays."""
    whole = join(arrays if isbox(arrays) else list(map(as_array, arrays)), *args, **options)
    return whole if dtype is None else anp.astype(whole, dtype)


for name in ("concatenate", "vstack", "hstack"):
    TWINS[getattr(np, name)] = partial(put_together, getattr(anp, name))


@composed(np.block)
def block(arrays):
    leaves, depth = [], 0
    level = [arrays]
    while level:
        leaves += [entry for entry in level if not isinstance(entry, list)]
        level = [entry for part in level if isinstance(part, list) for entry in part]
        depth += bool(level)
    ndim = max([depth, *map(np.ndim, map(plain, leaves))])

    return joined(arrays, -depth, ndim)


def joined(part, axis, ndim):
    """The entries of nested lists, of at least ``ndim`` axes, one beside the other."""
    if isinstance(part, list):
        return anp.concatenate([joined(entry, axis + 1, ndim) for entry in part], axis=axis)
    shape = shape_of(part)
    return anp.reshape(part, (1,) * (ndim - len(shape)) + shape)


@composed(np.diagflat)
def diagflat(v, k=0):
    return anp.diag(anp.ravel(v), k)


@composed(np.broadcast_arrays)
def broadcast_arrays(*args, subok=False):
    shape = np.broadcast_shapes(*map(shape_of, args))
    return tuple([anp.broadcast_to(anp.array(array), shape) for array in args])


@composed(np.meshgrid)
def meshgrid(*xi, copy=True, sparse=False, indexing="xy"):
    plains = [plain(x) for x in xi]
    made: Any = np.meshgrid(*plains, sparse=True, indexing=indexing)
    grids = tuple([anp.reshape(x, grid.shape) for x, grid in zip(xi, made, strict=True)])
    return grids if sparse else broadcast_arrays(*grids)


@composed(np.ix_)
def ix_(*args):
    made = np.ix_(*[plain(arg) for arg in args])
    pairs = zip(args, made, strict=True)
    return tuple([anp.reshape(arg, one.shape) if isbox(arg) else one for arg, one in pairs])


@composed(np.apply_along_axis)
def apply_along_axis(func1d, axis, arr, *args, **kwargs):
    arr = anp.moveaxis(anp.array(arr), axis, -1)
    *around, _ = shape_of(arr)
    axis = axis % (len(around) + 1)
    rows = [anp.array(func1d(arr[place], *args, **kwargs)) for place in np.ndindex(*around)]
    value = anp.reshape(anp.stack(rows), (*around, *shape_of(rows[0])))
    ndim = np.ndim(plain(rows[0]))
    return anp.moveaxis(value, tuple(range(-ndim, 0)), tuple(range(axis, axis + ndim)))


@composed(np.apply_over_axes)
def apply_over_axes(func, a, axes):
    result = anp.array(a)
    for axis in np.atleast_1d(axes):
        reduced = func(result, int(axis) % np.ndim(plain(result)))
        is_kept = np.ndim(plain(reduced)) == np.ndim(plain(result))
        result = reduced if is_kept else anp.expand_dims(reduced, int(axis))
    return result
