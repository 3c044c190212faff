"""The PyTorch backend: models get CPU tensors, and may move them wherever they like."""

import pickle

from daskgrad.backends.torch.cuts import stop_gradient as stop_gradient
from daskgrad.backends.torch.cuts import value as value
from daskgrad.backends.torch.hints import hint as hint
from daskgrad.backends.torch.tape import linearize as linearize
from daskgrad.backends.torch.tape import run as run
from daskgrad.backends.torch.tape import trace as trace
from daskgrad.backends.unchanged import Pickles

dumps, loads = Pickles().dumps, pickle.loads  # PyTorch's own functions are sent by name

finds_writes = True  # tensors count the writes into the memory that they share with arrays
