"""Sending models to other processes: PyTorch's own functions are sent by name."""

import pickle
from collections.abc import Callable

from daskgrad.backends.pickling.functions import Pickles

pickles = Pickles()
loads = pickle.loads


def dumps(fun: Callable) -> bytes:
    """A function as bytes that ``loads`` makes a function of, in any process."""
    return pickles.dumps(fun)
