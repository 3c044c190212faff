"""Random numbers: generators that give every run of a model the same numbers.

A task may run more than once for one gradient: its worker died, its pullback moved, or somebody
asks for a value and then for its gradient. A model that draws from NumPy's global state, or from
its own generator, which continues where the last run stopped, then returns a different value. So
a generator is an argument of the model, and each run gets copies of the generators among its
arguments, in the state in which they were handed over.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.random import BitGenerator, Generator, RandomState, SeedSequence


def generators(seed: int | Sequence[int], n: int) -> list[Generator]:
    """``n`` independent random generators, to be passed to models as arguments or items.

    ``dg.map_sum(model, dg.zip(items, dg.random.generators(seed, len(items))), x)`` gives each item
    its own. A model draws the same numbers from its generator however often and wherever it runs:
    each run gets a copy, in the state that the generator has now, also when the model is traced
    again, in threads, on a cluster, in line, and in a sum inside a model. Your own generator does
    not advance. So two terms, or two models, that get the same generator draw the same numbers;
    two evaluations do, too, until you advance it (``generator.random()``) or make new ones.

    This holds for all generators of NumPy (``Generator``, ``BitGenerator``, ``RandomState``,
    ``SeedSequence``) among the arguments and items, at any depth of dicts, lists, tuples and
    registered dataclasses; not for those in closures, globals or attributes of other objects.

    Parameters
    ----------
    seed:
        an integer or a sequence of integers: the same seed gives the same streams.
    n:
        the number of generators.

    Returns
    -------
    list of numpy.random.Generator
        ``n`` generators.

    Raises
    ------
    TypeError
        if the seed is not an integer or a sequence of integers (a generator, for example).
    ValueError
        if the seed is negative, or n is not an integer that is zero or more.

    See Also
    --------
    daskgrad.zip, daskgrad.map_sum

    Notes
    -----
    Source: ``SeedSequence.spawn`` (M. E. O'Neill, "PCG", 2014, for the default generator).

    Examples
    --------
    >>> first, second = dg.random.generators(7, 2)
    >>> def noisy(x, rng):
    ...     return x * rng.normal()
    >>> value = dg.delayed(noisy)(dg.variable(2.0), first)
    >>> value.compute() == value.compute()
    True
    """
    require_seed(seed, "dg.random.generators")
    if isinstance(n, bool) or not isinstance(n, int | np.integer) or n < 0:
        raise ValueError(f"n of dg.random.generators must be an integer, zero or more; found {n!r}")
    return [np.random.default_rng(child) for child in SeedSequence(seed).spawn(int(n))]


def require_seed(seed: Any, function: str) -> None:
    """Raises unless the seed is one or more integers, none of them negative."""
    numbers = seed if isinstance(seed, list | tuple | range | np.ndarray) else [seed]
    if np.ndim(numbers) == 1 and len(numbers) and all([is_integer(n) and n >= 0 for n in numbers]):
        return
    raise (TypeError if not all(map(is_integer, numbers)) else ValueError)(
        f"the seed of {function} must be an integer or a sequence of integers, zero or more; found "
        f"{seed!r}"
        + ("; draw a seed from it with .integers(2**32)" if isinstance(seed, STATEFUL) else "")
    )


def is_integer(number: Any) -> bool:
    return isinstance(number, int | np.integer) and not isinstance(number, bool)


STATEFUL = (Generator, BitGenerator, RandomState, SeedSequence)
