"""Random graphs of models as one program: each call has the bits of the first one."""

import warnings

import dask
import numpy as np
import programs
from fuzz_graphs import graph
from probes import objective_of, whole_programs

import daskgrad as dg
from daskgrad.autodiff.programs.signatures import are_same
from daskgrad.autodiff.values.trees import flatten, map_leaves
from daskgrad.derivatives.hessian import RecordedProduct
from daskgrad.derivatives.jvp import RecordedTangent
from daskgrad.derivatives.objectives import Objective

CALLS = 6  # with programs from the third or fourth on


def depended_on(program):
    """The numbers of the arguments that have a gradient."""
    gradients = dg.grad(program, (0, 1, 2))(*program.arguments)
    return tuple([number for number, each in enumerate(gradients) if np.any(programs.flat(each))])


def points(arguments):
    """The arguments, and others like them, of which the program was not made."""
    return [map_leaves(lambda x, f=f: f * x, arguments) for f in (1.0, -1.25)]


def differences(seed, counts):
    texts = []
    with warnings.catch_warnings(), dask.config.set({"daskgrad.inline.seconds": 1e9}):
        warnings.simplefilter("ignore")
        program = graph(seed)
        numbers = depended_on(program)
        if not numbers:
            return []
        gradient = dg.value_and_grad(lambda *args: program(*args), numbers)
        by_graph = dg.value_and_grad(lambda *args: (program(*args), None), numbers, has_aux=True)
        objective_of(gradient).is_vouched = True  # nobody reads its code
        for arguments in points(program.arguments):
            try:
                (value, _), expected = by_graph(*arguments)
            except TypeError:  # of a sum over nodes and data
                return []
            for number in range(CALLS):
                found = gradient(*arguments)
                if not are_same(flatten(found)[0], flatten((value, expected))[0]):
                    texts.append(f"other bits at call {number}: {program}")
                for array in flatten(found[1])[0]:
                    if isinstance(array, np.ndarray):
                        array[...] = np.nan  # it is the caller's
        ways, (_, refusal) = whole_programs(gradient)
        counts["compiled" if ways else f"not compiled: {refusal}"] += 1
        texts += differences_along(program, numbers, counts)
    return texts


def differences_along(program, numbers, counts):
    """Those of Hessian-vector products and tangents."""
    texts = []

    def fun(*some):
        chosen = dict(zip(numbers, some, strict=True))
        every = enumerate(program.arguments)
        return program(*[chosen.get(number, argument) for number, argument in every])

    primals, tangents = (
        tuple([arguments[number] for number in numbers]) for arguments in points(program.arguments)
    )
    for kind, derivative in ((RecordedProduct, dg.hvp), (RecordedTangent, dg.jvp)):
        objective = Objective(kind, fun, "program", range(len(numbers)))
        objective.is_vouched = True
        for args in ((primals, tangents), (tangents, primals)):

            def ordinary(derivative=derivative, args=args):
                with dask.config.set({"daskgrad.compile": False}):
                    return derivative(fun, *args)

            try:
                expected = ordinary()
            except TypeError:  # of a sum over nodes and data
                return texts
            for number in range(CALLS):
                result = objective.call((*args[0], *args[1]), ordinary)
                if not are_same(flatten(result)[0], flatten(expected)[0]):
                    texts.append(f"{kind.derivative}: other bits at call {number}: {program}")
        entries = objective.programs()._entries.values()
        ways = [way for entry in entries for way in entry.ways]
        refusals = [entry.refusal for entry in entries]
        counts[f"{kind.derivative} {'compiled' if ways else f'not compiled: {refusals}'}"] += 1
    return texts
