"""Random programs, differentiated, compiled: the bits of the tape.

These are tangents, products with second derivatives, and gradients within a model.
"""

import itertools

import autograd
import fuzz_programs
import numpy as np

from daskgrad.autodiff.tape.forward import linearize

# of the program, not ours; a gradient within a model meets assertions of autograd's own rules, and
# that of `where`, which asks a Python float for its shape
SENSELESS = (*fuzz_programs.SENSELESS, AssertionError, AttributeError)


def tangents_of(fun):
    """Values and tangents, as a model on duals returns them."""

    def pushed(a, b, along_a, along_b, c, d):
        outputs, push = linearize(lambda a, b: fun(a, b, c, d), [a, b])
        return [*outputs, *push([along_a, along_b])]

    return pushed


def gradient_within(fun):
    """A model that uses the gradient of a function, which autograd takes."""

    def model(a, b, along_a, along_b, c, d):
        def number(a, b):
            return sum([np.sum(np.sin(each)) for each in fun(a, b, c, d)])

        by_a, by_b = autograd.grad(number, (0, 1))(a, b)
        return [np.sum(by_a * along_a) + np.sum(by_b * along_b), by_b * a[0]]

    return model


KINDS = {"tangents": tangents_of, "gradient": gradient_within}
TRACED = {"all": (0, 1, 2, 3), "none": (), "one": (1,)}


def points(seed):
    random = np.random.default_rng(seed + 7)
    for a, b, c, d in fuzz_programs.points(seed):
        yield a, b, random.normal(size=a.shape), random.normal(size=b.shape), c, d


def differences_of(seed, kind, traced):
    """How many results of a program differ from the tape's; None if it cannot be recorded."""
    fun = KINDS[kind](fuzz_programs.program(seed))
    result = fuzz_programs.compared(fun, points(seed + 1), TRACED[traced], SENSELESS)
    return result and result[1]


def differences(seed, counts):
    texts = []
    for kind, traced in itertools.product(KINDS, TRACED):
        found = differences_of(seed, kind, traced)
        counts[f"{kind} not recorded" if found is None else f"{kind} compared"] += 1
        texts += [f"{found} results differ, {kind}, traced: {traced}"] * bool(found)
    return texts
