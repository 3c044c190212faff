"""The backends that tests run over, each with its arrays' module, where it is installed."""

import importlib

import numpy as np
import pytest

OPTIONAL = ("jax", "torch")
ARRAYS = {"autograd": "autograd.numpy", "jax": "jax.numpy", "torch": "torch"}

BACKENDS = [
    pytest.param(name, marks=pytest.mark.optional) if name in OPTIONAL else name for name in ARRAYS
]


def require(name):
    """Skips the test where an optional backend is not installed."""
    if name in OPTIONAL:
        pytest.importorskip(name, reason=f'needs pip install "daskgrad[{name}]"')


def arrays_of(name):
    """The module with the functions on a backend's arrays: ``sin``, ``sum``, ``exp``."""
    require(name)
    return importlib.import_module(ARRAYS[name])


def as_numpy(value):
    """An array of any library as NumPy's."""
    return value.detach().numpy() if hasattr(value, "detach") else np.asarray(value)
