"""Optimisers: rules that change parameters in place, from gradients of arrays and of rows.

Each optimiser is one rule for arrays. For ``Rows`` the entries of the parameters and of the
optimiser's state at the rows' places are gathered, go through the rule, and are scattered back: so
each row runs its own copy of the optimiser, over the steps that it occurs in.

Other libraries for pytrees of NumPy arrays (as of 2026) are parts of frameworks with their own
arrays, or change nothing in place: a step would copy the parameters, which rows are to save.
"""

from daskgrad.optim.methods import SGD, Adagrad, Adam, AdamW, Momentum, Nesterov, RMSprop
from daskgrad.optim.schedules import clip_by_norm, cosine, exponential, norm, piecewise, warm_up

__all__ = [
    "SGD",
    "Adagrad",
    "Adam",
    "AdamW",
    "Momentum",
    "Nesterov",
    "RMSprop",
    "clip_by_norm",
    "cosine",
    "exponential",
    "norm",
    "piecewise",
    "warm_up",
]
