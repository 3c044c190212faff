"""Random numbers: generators that give every run of a model the same numbers.

A task may run more than once for one gradient: its worker died, its pullback moved, or a value and
its gradient are asked for one after the other. A model that draws from NumPy's global state, or
from a generator of its own that goes on where the last run stopped, then returns another value. So
a generator is an argument of the model, and each run gets copies of those among its arguments, in
the state in which they were handed over.
"""

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np
import optree
from numpy.random import BitGenerator, Generator, RandomState, SeedSequence

from daskgrad.structures import flatten


def generators(seed: int | Sequence[int], n: int) -> list[Generator]:
    """Generators of ``n`` independent streams of random numbers, as arguments or items of models.

    ``dg.map_sum(model, dg.zip(items, dg.random.generators(seed, len(items))), x)`` gives each item
    its own. A model that gets one draws the same numbers however often and wherever it runs: each
    run gets a copy in the state that the generator has now, also when it is traced again, in
    threads, on a cluster, in line, and in a sum inside a model. Your own generator is not advanced.
    So two terms, or two models, that get the same generator draw the same numbers; and two
    evaluations do, until you advance it (``generator.random()``) or make new ones.

    That holds for all generators of NumPy (``Generator``, ``BitGenerator``, ``RandomState``,
    ``SeedSequence``) among the arguments and items, at any depth of dicts, lists, tuples and
    registered dataclasses; not for those in closures, globals or attributes of other objects.

    Parameters
    ----------
    seed:
        an integer or a sequence of integers: the same one gives the same streams.
    n:
        how many.

    Source: ``SeedSequence.spawn`` (M. E. O'Neill, "PCG", 2014, for the default generator).
    """
    if seed is None or isinstance(seed, bool | float):
        raise TypeError(
            f"the seed of dg.random.generators is an integer or a sequence of integers, so that "
            f"the same numbers can be drawn again; found {seed!r}"
        )
    if isinstance(n, bool) or not isinstance(n, int | np.integer) or n < 0:
        raise ValueError(f"dg.random.generators makes n generators, n = 0, 1, ...; found n={n!r}")
    return [np.random.default_rng(child) for child in SeedSequence(seed).spawn(int(n))]


# ------------------------------------------------------------------------------ in each run

STATEFUL = (Generator, BitGenerator, RandomState, SeedSequence)

# Classes whose objects are leaves and hold no generator; those of the libraries, with the boxes of
# their traces, are added when they are met. This is asked of all arguments in every run.
BARE: set[type] = {np.ndarray, np.float64, float, int, bool, str, bytes, type(None)}
LIBRARIES = ("numpy", "autograd", "jax", "jaxlib", "torch")


def with_own_generators(leaves: list[Any]) -> list[Any]:
    """The arguments of one run of a model, with copies in the place of generators."""
    if BARE.issuperset(map(type, leaves)):
        return leaves
    memo: dict[int, Any] = {}  # one copy for each, wherever it stands
    return [leaf if type(leaf) in BARE else own(leaf, memo) for leaf in leaves]


def own(argument: Any, memo: dict[int, Any]) -> Any:
    """An argument with copies of the generators in it; the argument itself where there are none."""
    if not holds_generator(argument):
        return argument
    leaves, structure = flatten(argument)
    return optree.tree_unflatten(structure, [copied(leaf, memo) for leaf in leaves])


def copied(leaf: Any, memo: dict[int, Any]) -> Any:
    return copy.deepcopy(leaf, memo) if isinstance(leaf, STATEFUL) else leaf


def holds_generator(argument: Any) -> bool:
    kind = type(argument)
    if isinstance(argument, STATEFUL):
        return True
    if kind is list or kind is tuple or kind is dict:
        parts = argument.values() if kind is dict else argument
        return not BARE.issuperset(map(type, parts)) and any(map(holds_generator, parts))
    if kind.__module__.partition(".")[0] in LIBRARIES:
        BARE.add(kind)
    if kind in BARE:
        return False
    return any(isinstance(leaf, STATEFUL) for leaf in flatten(argument)[0])
