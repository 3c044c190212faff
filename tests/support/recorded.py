"""Programs of functions of leaves, as models get them."""

from daskgrad.autodiff.programs.program import written
from daskgrad.autodiff.programs.recording import record
from daskgrad.autodiff.programs.rewrites import rewritten


def program_of(fun, leaves, active, asked=()):
    """The program of a function, differentiated by the leaves at the places ``active``, of whose
    gradients those of the numbers ``asked`` are rows."""
    calls, examples = record(fun, leaves, active, asked)
    return written(rewritten(calls), "model", examples)
