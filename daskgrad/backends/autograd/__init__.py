"""The autograd backend: a tape of our own over autograd's tracer and rules."""

from daskgrad.backends.autograd.tape import trace as trace
