"""variable: what a user differentiates with respect to."""

from typing import Any

from daskgrad.graph.chunked_variables import chunked_variable
from daskgrad.graph.variables import copy_variable
from daskgrad.tasks.collections import is_dask_array
from daskgrad.values.descriptions import describe


def variable(value: Any, name: str | None = None) -> Any:
    """A leaf to differentiate with respect to.

    ``value`` is any pytree of float or complex arrays and numbers; it is copied. Integer, boolean
    and string leaves may stand in it, and have no derivative. Items of dicts, lists and tuples
    (``x["w"]``, ``w, b = x``) are variables, too. A named tuple or a dataclass with a field that is
    called as an attribute of variables, such as ``name`` or ``leaves``, is itself returned, with
    variables for its fields.

    Or it is a dask Array of these, whose chunks stay where they are: ``dg.array(x)`` and
    ``dg.grid(x)`` take such a variable, and ``dg.differentiate`` returns its gradient as a dask
    Array of the same chunks.

    Raises
    ------
    TypeError
        if the value is or holds a node, an array of Python objects, or a subclass of NumPy's array
        such as a masked array, if a dask Array has no float or complex numbers, or if the name is
        not a string.
    ValueError
        for a broadcast array whose copy would take more than a gigabyte, and for a dask Array whose
        chunks are not known.

    Examples
    --------
    >>> x = dg.variable(np.array([3.0, 4.0]), name="position")
    >>> dg.delayed(np.sum)(x**2).compute()
    np.float64(25.0)
    """
    if not (name is None or isinstance(name, str)):
        raise TypeError(f"the name of a variable must be a string; found {describe(name)}")
    name = name or "variable"
    if is_dask_array(value):
        return chunked_variable(value, name)
    return copy_variable(value, name).for_user()
