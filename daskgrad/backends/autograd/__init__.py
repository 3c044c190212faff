"""The autograd backend: a tape of our own over autograd's tracer and rules."""

from daskgrad.backends.autograd.linearize import linearize as linearize
from daskgrad.backends.autograd.pickling import dumps as dumps
from daskgrad.backends.autograd.pickling import loads as loads
from daskgrad.backends.autograd.tape import trace as trace
from daskgrad.backends.autograd.unboxing import stop_gradient as stop_gradient
from daskgrad.backends.autograd.unboxing import value as value
