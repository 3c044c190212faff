"""Adapters: gradients where their users are, in optimisers, samplers and other frameworks.

Each is loaded when it is first used, and needs the library that it is for, an extra of the package.
"""

import importlib
from typing import Any

ON_DEMAND = {  # the modules that define them
    "flat": "daskgrad.adapters.flat_vectors",
    "flat_residuals": "daskgrad.adapters.flat_vectors",
    "sample": "daskgrad.adapters.nuts",
    "as_pytensor": "daskgrad.adapters.pytensor_ops",
    "as_torch": "daskgrad.adapters.torch_functions",
    "as_jax": "daskgrad.adapters.jax_functions",
    "SumEstimator": "daskgrad.adapters.estimators",
}


def __getattr__(name: str) -> Any:
    if name not in ON_DEMAND:
        raise AttributeError(f"module 'daskgrad.adapters' has no attribute {name!r}")
    found = globals()[name] = getattr(importlib.import_module(ON_DEMAND[name]), name)
    return found


def __dir__() -> list[str]:
    return sorted(ON_DEMAND)
