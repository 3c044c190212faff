"""Recording: one call of a user's function, with variables for some arguments.

``fun`` is ordinary Python that calls models. It runs once, in the calling thread.
"""

import functools
import weakref
from collections import defaultdict
from collections.abc import Callable, Iterable, MutableMapping, Sequence
from sys import getrefcount
from typing import Any

import numpy as np

from daskgrad.autodiff.models.as_called import UsersRun
from daskgrad.autodiff.tape.boxes import ARRAY
from daskgrad.autodiff.tape.questions import answer, answer_arguments
from daskgrad.autodiff.values import cotangents
from daskgrad.autodiff.values.cotangents import Cotangent, Leaves, Seed
from daskgrad.autodiff.values.descriptions import argument_name, function_name
from daskgrad.autodiff.values.trees import BOXES, map_leaves
from daskgrad.derivatives.inputs import (
    Argnums,
    RowsWanted,
    as_number,
    as_output,
    ask_for_rows,
    checked_tangent,
    has_derivative,
    require_argnums,
    require_derivative,
    require_function,
    require_no_node,
    require_own_variables,
    require_tangents,
    warn_of_independent,
)
from daskgrad.graph.activity import Graph
from daskgrad.graph.in_place import usable
from daskgrad.graph.nodes import Node
from daskgrad.graph.variables import Variable, borrow_variable, copy_variable, for_user

# -------------------------------------------------------------------------------------------------
# Ownership: whether the caller may have an array itself, or needs a copy.
#
# A pullback may return its argument, an array that it keeps, or one array for two inputs, and all
# consumers share a cotangent. So users get a copy of a gradient, unless Python's reference counts
# say that nobody else has it. NumPy uses these counts to decide whether an operation may write into
# its operand (``numpy/_core/src/multiarray/temp_elide.c``).


def take_cotangent(arrived: MutableMapping[Any, Cotangent], key: Any) -> Cotangent:
    """Takes a cotangent out of ``arrived``; copies arrays if anybody else holds them, their memory,
    or the cotangent."""
    if isinstance(arrived[key], Seed):
        return arrived.pop(key)
    leaves, holders, of_leaves = count_references(arrived, key)
    if holders != ALONE:
        of_leaves = [SHARED] * len(leaves)
    return Cotangent(tuple(map(own_leaf, leaves, of_leaves)))


def count_references(
    arrived: MutableMapping[Any, Cotangent], key: Any
) -> tuple[Leaves, tuple[int, int], list[tuple[int, int]]]:
    """The leaves of a cotangent, and counts of references: to the cotangent and its tuple of
    leaves; and for each leaf, to the leaf and to its base."""
    cotangent = arrived.pop(key)
    leaves = cotangent.leaves
    holders = getrefcount(cotangent), getrefcount(leaves)
    of_leaves = [(getrefcount(leaf), getrefcount(getattr(leaf, "base", None))) for leaf in leaves]
    return leaves, holders, of_leaves


# This Python's counts if nobody else holds anything.
_, ALONE, (ALONE_LEAF,) = count_references({"": Cotangent((np.zeros(2).reshape(1, 2),))}, "")
SHARED = (-1, -1)


def own_leaf(leaf: Any, holders: tuple[int, int]) -> Any:
    """An array itself if nobody else holds it and it covers its memory; else a copy."""
    if not isinstance(leaf, np.ndarray) or type(leaf) in BOXES:
        return leaf
    memory = leaf if leaf.base is None else leaf.base
    checked = slice(1 if memory is leaf else 2)  # many hold None
    is_alone = holders[checked] == ALONE_LEAF[checked]
    is_whole = type(memory) is np.ndarray and memory.flags.owndata and memory.nbytes == leaf.nbytes
    return leaf if is_alone and is_whole and leaf.flags.writeable else leaf.copy()


# --------------------------------------------------------------------------------------- recording

# in NumPy's messages about an array of nodes, which ``np.array([x[0], x[1]])`` is
OF_OBJECTS = ("array element with a sequence", "loop of ufunc does not support", "dtype('O')")


class RecordedFunction:
    """One call of a user's function with variables in the place of some arguments.

    ``numbers``: the positions of these arguments. ``borrows``: does not copy the arguments, since
    ``give_back`` ends the recording before the caller can write into them. ``skipped``: how many
    arguments of the function precede ``args``. ``sparse``: which gradients should be rows.
    ``shown_name``: its name for observers. ``is_kept``: somebody keeps its nodes;
    ``has_computed``: the function has asked for values.
    """

    is_kept = has_computed = False

    def __init__(
        self,
        fun: Callable,
        name: str,
        argnums: Argnums,
        args: Sequence[Any],
        borrows: bool = False,
        skipped: int = 0,
        sparse: RowsWanted = False,
    ):
        self.fun = fun
        self.name = self.shown_name = name
        self.args = list(args)
        self.numbers = require_argnums(argnums, len(args), name)
        self.variables: list[Variable] = []
        make = borrow_variable if borrows else copy_variable
        for number in self.numbers:
            argument = argument_name(fun, skipped + number)
            require_no_node(args[number], argument)
            require_derivative(args[number], argument, name)
            variable = self.args[number] = make(args[number], argument)
            variable.is_recorded = True
            self.variables.append(variable)
        if sparse:
            ask_for_rows(self.variables, sparse, name)

    def run(self, **kwargs: Any) -> Any:
        answer(self.fun)
        answer_arguments(self.args)
        recording = UsersRun()

        def result() -> Any:
            try:
                output = self.fun(*map(for_user, self.args), **kwargs)
            except (TypeError, ValueError) as error:
                if any([sign in str(error) for sign in OF_OBJECTS]):
                    error.add_note(f"daskgrad: between models, {ARRAY}")
                raise
            return map_leaves(usable_leaf, output) if recording.closing else output

        output = recording.run(result)
        self.has_computed = recording.has_computed
        return output

    def graph(self, **kwargs: Any) -> Graph:
        """The graph of the function, which returns a node or a pytree of nodes."""
        return self.graph_of(as_output(self.run(**kwargs), self.name))

    def scalar_graph(self, **kwargs: Any) -> Graph:
        """The graph of the function, which returns a node of one real number."""
        output = as_number(self.run(**kwargs), self.name)
        return self.graph_of(output, output_is_scalar=True)

    def graph_of(
        self, output: Node, extras: Sequence[Node] = (), output_is_scalar: bool = False
    ) -> Graph:
        graph = Graph(output, self.variables, extras, output_is_scalar)
        require_own_variables(graph, self.variables, self.name)
        return graph

    def in_places(self, results: Sequence[Any]) -> tuple:
        """One entry for each argument; ``None`` leaves for an argument that is no variable."""
        by_number = dict(zip(self.numbers, results, strict=True))
        return tuple(
            [
                by_number[number] if number in by_number else map_leaves(lambda _: None, arg)
                for number, arg in enumerate(self.args)
            ]
        )

    def gather(self, arrived: dict[Variable, Cotangent], is_last: bool = False) -> list[Any]:
        """As ``gather_gradients``; warns of variables that the output does not depend on."""
        gradients, independent = gather_gradients(self.variables, arrived, is_last)
        warn_of_independent([variable.name for variable in independent], self.name)
        return gradients

    def give_back(self) -> None:
        """Ends the use of the arguments: variables that somebody still holds get copies."""
        variables = list(map(weakref.ref, self.variables))
        self.variables, self.args = [], []
        for reference in variables:
            variable = reference()
            if variable is not None:
                self.is_kept = True
                variable.own_arrays()


def shown_name(name: str, graph: Graph) -> str:
    """A function's name for observers: a lambda has the names of its models."""
    calls = [node for node in graph.order if node.model is not None and not node.is_light]
    names = list(dict.fromkeys([node.name for node in calls]))
    if name != "<lambda>" or not names:
        return name
    return ", ".join([*names[:3], "…"] if len(names) > 3 else names)


def usable_leaf(leaf: Any) -> Any:
    return usable(leaf) if isinstance(leaf, Node) and leaf.changed else leaf


def gather_gradients(
    variables: Sequence[Variable], arrived: dict[Variable, Cotangent], is_last: bool = False
) -> tuple[list[Any], list[Variable]]:
    """The gradient of each variable, from the cotangents of its parts; and the variables that no
    cotangent arrived at. ``is_last``: takes the cotangents from the dict."""
    gradients, independent, parts = [], [], by_root(arrived)
    for root in variables:
        cotangents_of_parts = [
            (part.first_leaf, take_cotangent(arrived, part) if is_last else arrived[part])
            for part in parts[root]
        ]
        leaves = cotangents.assemble(root.leaves, cotangents_of_parts, are_owned=is_last)
        if cotangents.is_zero(leaves):
            independent.append(root)
        gradients.append(cotangents.gradient(root.leaves, root.structure, leaves, root.asked))
    return gradients, independent


def by_root(variables: Iterable[Variable]) -> dict[Variable, list[Variable]]:
    """Variables and parts of variables by their roots, in the order of their leaves."""
    by: dict[Variable, list[Variable]] = defaultdict(list)
    for variable in variables:
        by[variable.root].append(variable)
    for parts in by.values():
        parts.sort(key=lambda part: (part.first_leaf, -len(part.leaves)))
    return by


def document(derivative: Callable, fun: Callable, kind: str) -> Callable:
    """Gives a derivative the name and the docstring of its function."""
    name = function_name(fun)
    functools.update_wrapper(derivative, fun, ("__module__",), ())
    derivative.__name__ = f"{kind.replace(' ', '_')}_of_{name}"
    derivative.__doc__ = f"The {kind} of {name}.\n\n{getattr(fun, '__doc__', None) or ''}"
    return derivative


def record_at(
    primals: Any, tangents: Any, fun: Callable, derivative: str, with_zeros: bool = True
) -> RecordedFunction:
    """A call of ``fun`` with variables for the primals that have a derivative; without
    ``with_zeros`` a primal is a constant if its tangent is ``None``."""
    require_function(fun, derivative)
    name = function_name(fun)
    require_tangents(primals, tangents, derivative, name)
    numbers = [
        number
        for number, (primal, tangent) in enumerate(zip(primals, tangents, strict=True))
        if (with_zeros or tangent is not None) and has_derivative(primal)
    ]
    return RecordedFunction(fun, name, numbers, primals)


def tangent_variables(
    recorded: RecordedFunction, tangents: Sequence[Any]
) -> dict[Variable, tuple[Variable, ...]]:
    """For each variable a second one, which holds its tangent."""
    return {
        v: (copy_variable(checked_tangent(tangent, v.primal, v.name), f"tangent of {v.name}"),)
        for v, tangent in zip(recorded.variables, tangents, strict=True)
    }
