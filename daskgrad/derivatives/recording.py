"""One call of a user's function, with variables in the place of what is differentiated.

``fun`` is ordinary Python that calls models. It runs once, in the calling thread.
"""

import functools
import weakref
from collections import defaultdict
from collections.abc import Callable, Iterable, MutableMapping, Sequence
from sys import getrefcount
from typing import Any

import numpy as np

from daskgrad.autodiff.values import cotangents
from daskgrad.autodiff.values.cotangents import Cotangent, Leaves, Seed
from daskgrad.autodiff.values.descriptions import argument_name, function_name
from daskgrad.autodiff.values.trees import BOXES, map_leaves
from daskgrad.derivatives.inputs import (
    Argnums,
    Asked,
    ask_for_rows,
    require_argnums,
    require_derivative,
    require_no_node,
    require_own_variables,
    warn_of_independent,
)
from daskgrad.graph.activity import Graph
from daskgrad.graph.nodes import Node
from daskgrad.graph.variables import Variable, borrow_variable, copy_variable, for_user

# -------------------------------------------------------------------------------------------------
# Ownership: whether the caller may have an array itself, or needs a copy.
#
# A pullback may return its argument, an array that it keeps, or one array for two inputs, and a
# cotangent belongs to all its consumers. So a gradient is copied before the user may write into it,
# unless Python's reference counts say that nobody else has it. NumPy uses the same counts to decide
# whether an operation may write into its operand (``numpy/_core/src/multiarray/temp_elide.c``).


def take_cotangent(arrived: MutableMapping[Any, Cotangent], key: Any) -> Cotangent:
    """Takes a cotangent out of ``arrived``; its arrays belong to the caller alone.

    They are copied if anybody else holds them, the memory that they show, or the cotangent.
    """
    if isinstance(arrived[key], Seed):
        return arrived.pop(key)
    leaves, holders, of_leaves = count_references(arrived, key)
    if holders != ALONE:
        of_leaves = [SHARED] * len(leaves)
    return Cotangent(tuple(map(own_leaf, leaves, of_leaves)))


def count_references(
    arrived: MutableMapping[Any, Cotangent], key: Any
) -> tuple[Leaves, tuple[int, int], list[tuple[int, int]]]:
    """The leaves of a cotangent, and numbers of references: to the cotangent and to the tuple of
    its leaves; and for each leaf, to it and to the array whose memory it shows.
    """
    cotangent = arrived.pop(key)
    leaves = cotangent.leaves
    holders = getrefcount(cotangent), getrefcount(leaves)
    of_leaves = [(getrefcount(leaf), getrefcount(getattr(leaf, "base", None))) for leaf in leaves]
    return leaves, holders, of_leaves


# The counts of this version of Python if nobody else holds anything.
_, ALONE, (ALONE_LEAF,) = count_references({"": Cotangent((np.zeros(2).reshape(1, 2),))}, "")
SHARED = (-1, -1)


def own_leaf(leaf: Any, holders: tuple[int, int]) -> Any:
    """An array itself if nobody else holds it and it shows all of its memory; else a copy."""
    if not isinstance(leaf, np.ndarray) or type(leaf) in BOXES:
        return leaf
    memory = leaf if leaf.base is None else leaf.base
    checked = slice(1 if memory is leaf else 2)  # many hold None
    is_alone = holders[checked] == ALONE_LEAF[checked]
    is_whole = type(memory) is np.ndarray and memory.flags.owndata and memory.nbytes == leaf.nbytes
    return leaf if is_alone and is_whole and leaf.flags.writeable else leaf.copy()


# --------------------------------------------------------------------------------------- recording


class Recording:
    """One call of a user's function with variables in the place of some arguments.

    ``numbers`` are those of these arguments. ``borrows``: does not copy the arguments, since
    ``give_back`` ends the recording before the caller can write into them. ``skipped``: how many
    arguments of the function precede ``args``. ``sparse``: which gradients should be rows.
    """

    def __init__(
        self,
        fun: Callable,
        name: str,
        argnums: Argnums,
        args: Sequence[Any],
        borrows: bool = False,
        skipped: int = 0,
        sparse: Asked = False,
    ):
        self.fun = fun
        self.name = name
        self.args = list(args)
        self.numbers = require_argnums(argnums, len(args), name)
        self.variables: list[Variable] = []
        for number in self.numbers:
            argument = argument_name(fun, skipped + number)
            require_no_node(args[number], argument)
            require_derivative(args[number], argument, name)
            made = (borrow_variable if borrows else copy_variable)(args[number], argument)
            made.is_recorded = True
            self.variables.append(made)
            self.args[number] = made
        if sparse:
            ask_for_rows(self.variables, sparse, name)

    def graph(
        self, output: Node, extras: Sequence[Node] = (), output_is_scalar: bool = False
    ) -> Graph:
        graph = Graph(output, self.variables, extras, output_is_scalar)
        require_own_variables(graph, self.variables, self.name)
        return graph

    def run(self, **kwargs: Any) -> Any:
        return self.fun(*map(for_user, self.args), **kwargs)

    def in_places(self, results: Sequence[Any]) -> tuple:
        """One entry for each argument, with ``None`` leaves for those that are not variables."""
        rest, args = iter(results), enumerate(self.args)
        return tuple(
            [next(rest) if n in self.numbers else map_leaves(lambda _: None, x) for n, x in args]
        )

    def gather(self, arrived: dict[Variable, Cotangent], is_last: bool = False) -> list[Any]:
        """The gradient of each variable, with a warning for those that nothing arrived at.

        ``is_last``: the cotangents are taken out of ``arrived``, for no further use.
        """
        gradients, independent = gather_gradients(self.variables, arrived, is_last)
        warn_of_independent(independent, self.name)
        return gradients

    def give_back(self) -> None:
        """Ends the use of the arguments: variables that somebody still holds get copies."""
        variables = list(map(weakref.ref, self.variables))
        self.variables, self.args = [], []
        for reference in variables:
            held = reference()
            if held is not None:
                held.own_arrays()


def gather_gradients(
    variables: Sequence[Variable], arrived: dict[Variable, Cotangent], is_last: bool = False
) -> tuple[list[Any], list[Variable]]:
    """The gradient of each variable, from the cotangents that arrived at its parts.

    Also which of the variables nothing arrived at. ``is_last``: takes the cotangents from the dict.
    """
    gradients, independent, parts = [], [], by_root(arrived)
    for root in variables:
        found = [
            (node.first_leaf, take_cotangent(arrived, node) if is_last else arrived[node])
            for node in parts[root]
        ]
        leaves = cotangents.assemble(root.leaves, found, are_owned=is_last)
        if cotangents.is_zero(leaves):
            independent.append(root)
        gradients.append(cotangents.gradient(root.leaves, root.structure, leaves, root.asked))
    return gradients, independent


def by_root(nodes: Iterable[Variable]) -> dict[Variable, list[Variable]]:
    """For each root those of the nodes that are it or its parts, in the order of their leaves."""
    found: dict[Variable, list[Variable]] = defaultdict(list)
    for node in nodes:
        found[node.root].append(node)
    for parts in found.values():
        parts.sort(key=lambda node: (node.first_leaf, -len(node.leaves)))
    return found


def document(derivative: Callable, fun: Callable, what: str) -> Callable:
    """Gives a derivative the name and the docstring of its function."""
    name = function_name(fun)
    functools.update_wrapper(derivative, fun, ("__module__",), ())
    derivative.__name__ = f"{what.replace(' ', '_')}_of_{name}"
    derivative.__doc__ = f"The {what} of {name}.\n\n{getattr(fun, '__doc__', None) or ''}"
    return derivative
