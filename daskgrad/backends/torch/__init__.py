"""The PyTorch backend: models get CPU tensors, and may move them wherever they like."""

from daskgrad.backends.torch.forward import linearize as linearize
from daskgrad.backends.torch.hints import hint as hint
from daskgrad.backends.torch.pickling import dumps as dumps
from daskgrad.backends.torch.pickling import loads as loads
from daskgrad.backends.torch.reverse import run as run
from daskgrad.backends.torch.reverse import trace as trace
from daskgrad.backends.torch.unboxing import stop_gradient as stop_gradient
from daskgrad.backends.torch.unboxing import value as value

finds_writes = True  # tensors count the writes into the memory that they share with arrays
