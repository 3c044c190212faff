"""Random numbers: generators that give every run of a model the same numbers.

A task may run more than once for one gradient: its worker died, its pullback moved, or a value and
its gradient are asked for one after the other. A model that draws from NumPy's global state, or
from a generator of its own that goes on where the last run stopped, then returns another value. So
a generator is an argument of the model, and each run gets copies of those among its arguments, in
the state in which they were handed over.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.random import BitGenerator, Generator, RandomState, SeedSequence


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

    Raises
    ------
    TypeError, ValueError
        for a seed that is none, such as a generator, or is negative, and for an n that is no count.

    Source: ``SeedSequence.spawn`` (M. E. O'Neill, "PCG", 2014, for the default generator).
    """
    require_seed(seed, "dg.random.generators")
    if isinstance(n, bool) or not isinstance(n, int | np.integer) or n < 0:
        raise ValueError(f"dg.random.generators makes n generators, n = 0, 1, ...; found n={n!r}")
    return [np.random.default_rng(child) for child in SeedSequence(seed).spawn(int(n))]


def require_seed(seed: Any, asked: str) -> None:
    """An integer or several, none of them negative."""
    numbers = seed if isinstance(seed, list | tuple | range | np.ndarray) else [seed]
    if np.ndim(numbers) == 1 and len(numbers) and all(map(is_seed, numbers)):
        return
    raise (TypeError if not all(map(is_integer, numbers)) else ValueError)(
        f"the seed of {asked} is an integer or a sequence of integers, zero or more, so that the "
        f"same numbers can be drawn again; found {seed!r}"
        + (": draw one from it, with .integers(2**32)" if isinstance(seed, STATEFUL) else "")
    )


def is_integer(number: Any) -> bool:
    return isinstance(number, int | np.integer) and not isinstance(number, bool)


def is_seed(number: Any) -> bool:
    return is_integer(number) and number >= 0


STATEFUL = (Generator, BitGenerator, RandomState, SeedSequence)
