"""Inputs: checks of arguments, outputs and cotangents of derivatives, and warnings for users."""

import sys
import warnings
import weakref
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import optree
from dask.utils import format_bytes

from daskgrad.autodiff.models.finite import is_debugging
from daskgrad.autodiff.models.tracing import is_real_scalar
from daskgrad.autodiff.tape.boxes import NESTED, TAPE_BOXES
from daskgrad.autodiff.values import cotangents
from daskgrad.autodiff.values.cotangents import Cotangent, Leaves, is_differentiable, nbytes
from daskgrad.autodiff.values.descriptions import (
    describe,
    function_name,
    is_integer,
    is_number,
)
from daskgrad.autodiff.values.elsewhere import Elsewhere
from daskgrad.autodiff.values.memory import of_its_own
from daskgrad.autodiff.values.trees import flatten
from daskgrad.autodiff.values.vectors import still
from daskgrad.graph.activity import Graph
from daskgrad.graph.delayed import delayed
from daskgrad.graph.nodes import Constant, Node, as_node, same
from daskgrad.graph.operators import OF_DASK
from daskgrad.graph.variables import OTHER_DERIVATIVE, ChunkedVariable, Variable
from daskgrad.sums.item_sum import ReductionNode
from daskgrad.sums.sources import Source
from daskgrad.tasks.collections import is_collection, is_dask_array

Argnums = int | Sequence[int]


def require_argnums(argnums: Argnums, count: int, name: str) -> list[int]:
    if type(argnums) is int and 0 <= argnums < count:  # nearly always
        return [argnums]
    is_sequence = isinstance(argnums, Sequence | np.ndarray)
    numbers: list[Any] = list(argnums) if is_sequence else [argnums]  # type: ignore[arg-type]
    for number in numbers:
        if not (is_integer(number) and 0 <= number < count):
            raise ValueError(
                f"argnums={argnums!r} of {name!r} must be numbers of positional arguments, counted "
                f"from 0; it was called with {count}"
            )
    if len(set(numbers)) < len(numbers):
        raise ValueError(f"argnums={argnums!r} of {name!r} names an argument twice")
    return numbers


def require_argnums_kind(argnums: Any, name: str) -> None:
    """Raises unless ``argnums`` are numbers; by mistake they often are an argument."""
    numbers = argnums if isinstance(argnums, list | tuple | range | np.ndarray) else [argnums]
    if np.ndim(argnums) > 1 or not len(numbers) or not all(map(is_integer, numbers)):
        raise ValueError(
            f"argnums={describe(argnums)} of {name!r} must be numbers of positional arguments; the "
            f"arguments themselves go in a second call, as in dg.value_and_grad(fun)(x)"
        )


def require_function(fun: Any, derivative: str, place: str = "first") -> None:
    if not callable(fun):
        raise TypeError(
            f"the {place} argument of dg.{derivative} must be a function that calls models; "
            f"found {describe(fun)}"
        )


def require_differentiable(fun: Any, argnums: Any, derivative: str) -> str:
    """Checks a function and the numbers of its arguments; returns the function's name."""
    require_function(fun, derivative)
    name = function_name(fun)
    require_argnums_kind(argnums, name)
    return name


def as_argnums(results: Sequence[Any], argnums: Argnums) -> Any:
    """The only result if ``argnums`` is a number, else a tuple."""
    return results[0] if is_integer(argnums) else tuple(results)


def has_derivative(value: Any) -> bool:
    return any(cotangents.is_differentiable(leaf) for leaf in flatten(value)[0])


def require_derivative(value: Any, argument: str, name: str) -> None:
    if has_derivative(value):
        return
    if is_dask_array(value):
        raise TypeError(
            f"argument {argument!r} of {name!r} is a dask Array; its derivative is one, too, which "
            f"dg.differentiate returns: x = dg.variable(array), "
            f"dg.differentiate({name}(x), x); or compute it first"
        )
    if not TAPE_BOXES.isdisjoint(map(type, flatten(value)[0])):
        raise TypeError(
            f"argument {argument!r} of {name!r} is a traced value of a model, within which "
            f"{name!r} is differentiated; {NESTED}"
        )
    raise TypeError(
        f"argument {argument!r} of {name!r} is {describe(value)}, which has no derivative; "
        f"pass float or complex numbers or NumPy arrays of them (np.asarray converts others, "
        f"x.astype(float) integers; a dataclass must be registered with optree: "
        f"optree.dataclasses.register_node(its_class, namespace='daskgrad')), or leave it out"
    )


def require_no_node(value: Any, argument: str) -> None:
    for leaf in flatten(value)[0]:
        if isinstance(leaf, Node):
            raise TypeError(f"{argument!r} holds {leaf!r}, which {OTHER_DERIVATIVE}")


def require_own_variables(graph: Graph, variables: Sequence[Variable], name: str) -> None:
    """Raises for a derivative inside another one: its variables would be constants here."""
    ours = set(variables)
    for node in graph.order:
        if isinstance(node, Variable) and node.root.is_recorded and node.root not in ours:
            raise TypeError(f"the output of {name!r} depends on {node!r}, which {OTHER_DERIVATIVE}")


def require_node(output: Any) -> None:
    if not isinstance(output, Node):
        raise TypeError(
            f"differentiate needs a node, which is what calling a model returns; "
            f"found {describe(output)}"
        )


def require_variables(wrt: Sequence[Any]) -> None:
    for leaf in wrt:
        if not isinstance(leaf, Variable | ChunkedVariable):
            raise TypeError(
                f"wrt must be a variable that dg.variable made, or a pytree of them; "
                f"found {describe(leaf)}"
            )


def checked_leaves(derivative: Any, value: Any, subject: str, kind: str) -> Leaves:
    """The leaves of a tangent or cotangent in the structure, shapes and dtypes of a value."""
    leaves, structure = flatten(derivative)
    primals, expected = flatten(value)
    if structure != expected:
        raise ValueError(
            f"{subject}: expected the structure of the {kind}, {describe(value)}; "
            f"found {describe(derivative)}"
        )
    pairs = zip(leaves, primals, strict=True)
    return tuple([cotangents.check(leaf, primal, subject) for leaf, primal in pairs])


def checked_tangent(tangent: Any, primal: Any, argument: str) -> Any:
    """A tangent in the structure, shapes and dtypes of its primal; zeros for ``None``."""
    if tangent is None:
        return still(primal)
    checked = checked_leaves(tangent, primal, f"tangent of {argument!r}", "primal")
    return cotangents.gradient(*flatten(primal), checked)


def require_tangents(primals: Any, tangents: Any, derivative: str, name: str) -> None:
    """Raises unless primals and tangents are two tuples with an entry for each argument."""
    for kind, values in (("primals", primals), ("tangents", tangents)):
        if not isinstance(values, list | tuple):
            raise TypeError(
                f"{derivative} of {name!r} takes {kind} as a tuple, one entry for each argument; "
                f"found {describe(values)}: write (x,) for a single one"
            )
    if len(primals) != len(tangents):
        raise ValueError(
            f"{derivative} of {name!r} takes one tangent for each primal; found {len(primals)} "
            f"primals and {len(tangents)} tangents"
        )
    for number, (primal, tangent) in enumerate(zip(primals, tangents, strict=True)):
        if tangent is not None and not has_derivative(primal):
            checked_tangent(tangent, primal, f"argument {number} of {name}")


# -------------------------------------------------------------------------------------------------
# Outputs: checks of the values of differentiated functions, and of their cotangents.


def require_real_scalar(value: Any, name: str) -> None:
    """Raises unless a value is one real number: perhaps no backward task has checked it."""
    if not is_real_scalar([value]):
        raise TypeError(
            f"the gradient of {name!r} was asked for, but its value is {describe(value)}; "
            f"{cotangents.ONE_REAL_NUMBER}"
        )


def as_number(output: Any, name: str) -> Node:
    """The node of an output that is one real number."""
    node = node_of(output)
    if node is not None:
        return node
    if is_number(output):
        return Constant(np.float64(output))
    raise TypeError(
        f"{name!r} must return a node, whose value is one real number; found {describe(output)}"
        + (": add the nodes up, or use vjp" if holds_node(output) else instead_of(output))
    )


def as_output(output: Any, name: str) -> Node:
    """The node of an output that may be a pytree of nodes."""
    node = node_of(output)
    if node is not None:
        return node
    if holds_node(output):
        return PACK(output)
    raise TypeError(
        f"{name!r} must return a node or a pytree of nodes; found {describe(output)}"
        f"{instead_of(output)}"
    )


def instead_of(output: Any) -> str:
    """Advice about Dask's own functions."""
    return f", which holds no derivative: {OF_DASK}" if is_collection(output) else ""


def holds_node(value: Any) -> bool:
    return any([node_of(leaf) is not None for leaf in flatten(value)[0]])


def node_of(leaf: Any) -> Node | None:
    """A leaf that is a node, or the node of an array of nodes; else None."""
    is_array = isinstance(leaf, np.ndarray) and leaf.dtype.hasobject
    return as_node(leaf) if is_array or isinstance(leaf, Node) else None


PACK = delayed(same, name="output")


def checked_cotangent(cotangent: Any, value: Any, name: str) -> Cotangent:
    """A cotangent in the structure, shapes and dtypes of the value."""
    return Cotangent(
        of_its_own(checked_leaves(cotangent, value, f"cotangent of {name!r}", "value"))
    )


def unstack(cotangent: Any, value: Any, name: str) -> list[Cotangent] | None:
    """The cotangents of a stack; ``None`` if it is a single cotangent."""
    leaves, structure = flatten(cotangent)
    primals, expected = flatten(value)
    if structure != expected or any(hasattr(leaf, "__dask_graph__") for leaf in leaves):
        return None  # ``checked_cotangent`` decides whether that is an error
    pairs = zip(leaves, primals, strict=True)
    shapes = [(np.shape(leaf), np.shape(primal)) for leaf, primal in pairs if leaf is not None]
    counts = {shape[0] for shape, _ in shapes if shape}
    if len(counts) != 1 or not all([shape and shape[1:] == one for shape, one in shapes]):
        return None
    (count,) = counts
    if not count:
        raise ValueError(f"the stack of cotangents of {name!r} is empty; pass at least one")
    rows = [[None if leaf is None else leaf[n] for leaf in leaves] for n in range(count)]
    return [checked_cotangent(optree.tree_unflatten(structure, row), value, name) for row in rows]


# -------------------------------------------------------------------------------------------------
# Notices: warnings for users.

TIMES = 3  # that items are sent before the user is warned
HEAVY = 2**20  # bytes in all

_sent: weakref.WeakKeyDictionary[Any, dict] = weakref.WeakKeyDictionary()  # by client


def warn_of_independent(names: Sequence[str], name: str) -> None:
    """Warns of variables of these names."""
    for independent in names:
        warnings.warn(
            f"the output of {name!r} does not depend on {independent!r}; its gradient is zero",
            stacklevel=outside(),
        )


def warn_of_shipping(graph: Graph, client: Any) -> None:
    """Warns when the items of a sum are sent to a cluster for the third time; the sum's name and
    the first array among the items identify them."""
    if client is None or is_debugging():  # under ``debug_nans`` items are always sent
        return
    sent = _sent.setdefault(client, {})
    for name, items in items_sent(graph):
        leaves = [items] if isinstance(items, np.ndarray) else flatten(items[0])[0]
        first = next((leaf for leaf in leaves if isinstance(leaf, np.ndarray)), None)
        known, times = sent.get((name, len(items)), (None, 0))
        if first is None or times == TIMES:
            continue
        times = times + 1 if known is not None and known() is first else 1
        sent[name, len(items)] = weakref.ref(first), times
        size = TIMES * nbytes(flatten(items)[0]) if times == TIMES else 0
        if size >= HEAVY:
            warnings.warn(
                f"the {len(items)} items of the sum over {name!r} were sent to the cluster {TIMES} "
                f"times, {format_bytes(size)} in all; put them there once, with shards = "
                f"dg.place(items), or dg.place(dg.zip(a, b)), and sum over shards",
                stacklevel=outside(),
            )


def items_sent(graph: Graph) -> Iterator[tuple[str, Any]]:
    """The items that travel with the tasks of sums, except items of variables, which change."""
    for node in graph.order:
        for source in node.items.sources if isinstance(node, ReductionNode) else ():
            is_here = type(source) is Source and not isinstance(source.items, Elsewhere)
            if is_here and source.variable is None:
                yield node.name, source.items


def outside() -> int:
    """The stacklevel of the first frame outside of this package, for a warning of the caller."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back and frame.f_globals.get("__name__", "").startswith("daskgrad."):
        level, frame = level + 1, frame.f_back
    return level


# -------------------------------------------------------------------------------------------------
# Sparse: which leaves of the arguments should have ``Rows`` as gradients.

Sparse = bool | str | Iterable[str]
RowsWanted = bool | tuple[str, ...]  # all, none, or paths


def as_rows_wanted(sparse: Sparse, name: str) -> RowsWanted:
    """TypeError unless it is True, False, a path, or several."""
    if isinstance(sparse, bool):
        return sparse
    paths: tuple[str, ...] = (sparse,) if isinstance(sparse, str) else ()
    if isinstance(sparse, Iterable) and not isinstance(sparse, str | np.ndarray):
        paths = tuple(sparse)
    is_none = isinstance(sparse, list | tuple | set | frozenset) and not paths
    if not is_none and not (paths and all(isinstance(path, str) and path for path in paths)):
        raise TypeError(
            f"sparse of {name!r} must be True, False, or paths of leaves such as 'W' or "
            f"'params.W'; found {describe(sparse)}"
        )
    return paths


def ask_for_rows(variables: Sequence[Variable], wanted: RowsWanted, name: str) -> None:
    """Asks for rows as the gradients of some leaves; ValueError for a path that names no array."""
    paths = () if isinstance(wanted, bool) else wanted
    unused = set(paths)
    for variable in variables:
        asked = []
        for number, (leaf, names) in enumerate(leaves_with_names(variable)):
            around = {p for p in paths if any(f"{name}.".startswith(f"{p}.") for name in names)}
            is_array = isinstance(leaf, np.ndarray | Elsewhere) and leaf.ndim
            if is_array and is_differentiable(leaf):
                unused -= around
                if wanted is True or around:
                    asked.append(number)
        variable.asked = tuple(asked)
    if unused:
        known = [names[0] for variable in variables for _, names in leaves_with_names(variable)]
        raise ValueError(
            f"sparse of {name!r} names {', '.join(map(repr, sorted(unused)))}, and no float array "
            f"is called so; the leaves of the arguments that are differentiated are "
            f"{', '.join(map(repr, known))}"
        )


def leaves_with_names(variable: Variable) -> Iterable[tuple[object, tuple[str, str]]]:
    """The leaves of an argument, each with its paths, with and without the argument's name."""
    for leaf, accessor in zip(variable.leaves, variable.structure.accessors(), strict=True):
        entries = list(map(name_of, accessor))
        yield leaf, (".".join([variable.name, *entries]), ".".join(entries))


def name_of(entry: optree.PyTreeEntry) -> str:
    """An index, a key, or the name of a field."""
    written = entry.codify("")
    return written[1:] if written.startswith(".") else str(entry.entry)
