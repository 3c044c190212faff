"""Programs of functions of leaves, as models get them, and those that calls have made."""

from types import SimpleNamespace

from daskgrad.autodiff.programs.backend import prepare
from daskgrad.autodiff.programs.program import written
from daskgrad.autodiff.programs.recording import record
from daskgrad.autodiff.programs.rewrites import rewritten
from daskgrad.autodiff.programs.rolling import rolled


def program_of(fun, leaves, active, asked=()):
    """The program of a function, differentiated by the leaves at the places ``active``, of whose
    gradients those of the numbers ``asked`` are rows."""
    calls, examples = record(fun, leaves, active, asked)
    return written(rewritten(rolled(calls)), "model", examples)


def entries_of(fun, *kind):
    """The programs of a model that is vouched for, or of its tangents, by signature."""
    asked = SimpleNamespace(daskgrad_pushed=(fun, *kind)) if kind else fun
    return list(prepare(asked).programs._entries.values())
