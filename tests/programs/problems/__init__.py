"""Small programs of models from public test problems, each with a twin in JAX, as data."""

from problems import (
    dynamics,
    geometry,
    matrices,
    optimization,
    physics,
    recurrent,
    signals,
    statistics,
)

MODULES = (
    optimization,
    recurrent,
    statistics,
    geometry,
    dynamics,
    matrices,
    physics,
    signals,
)
PROBLEMS = tuple([problem for module in MODULES for problem in module.PROBLEMS])
