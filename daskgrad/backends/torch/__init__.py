"""The PyTorch backend: models get CPU tensors, and may move them to any device."""

import pickle

from daskgrad.backends.pickling.functions import Pickles
from daskgrad.backends.torch.forward import linearize as linearize
from daskgrad.backends.torch.hints import hint as hint
from daskgrad.backends.torch.reverse import run as run
from daskgrad.backends.torch.reverse import trace as trace
from daskgrad.backends.torch.unboxing import stop_gradient as stop_gradient
from daskgrad.backends.torch.unboxing import value as value

dumps, loads = Pickles().dumps, pickle.loads  # PyTorch's own functions are sent by name

finds_writes = True  # tensors count the writes into the memory that they share with arrays
