"""What calls of models give, compared bit by bit, and what became of the models."""

from types import SimpleNamespace

import numpy as np
from numpy.testing import assert_array_equal

import daskgrad as dg
from daskgrad.autodiff.programs import backend
from daskgrad.autodiff.values.trees import flatten, map_leaves


def entries_of(fun, *kind):
    """The programs of a model that is vouched for, or of its tangents, by signature."""
    asked = SimpleNamespace(daskgrad_pushed=(fun, *kind)) if kind else fun
    return list(backend.prepare(asked).programs._entries.values())


def outcome(call):
    """What a call gives: numbers, or the type of its error."""
    with np.errstate(all="ignore"):
        try:
            return call()
        except dg.NondeterministicModelError:
            raise
        except Exception as error:
            return type(error)


def derivatives_of(model):
    def of(x):
        value, pullback = dg.vjp(model, x)
        return value, pullback(map_leaves(ones_like, value))

    return of


def ones_like(leaf):
    return np.ones_like(leaf) if isinstance(leaf, np.ndarray | float) else leaf


def assert_same(found, expected):
    if isinstance(expected, type):
        assert found is expected
        return
    for one, other in zip(flatten(found)[0], flatten(expected)[0], strict=True):
        assert_array_equal(one, other)
        if isinstance(other, np.ndarray | float):
            assert_array_equal(np.signbit(np.real(one)), np.signbit(np.real(other)))
