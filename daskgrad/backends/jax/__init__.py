"""The JAX backend: models compiled once a worker for each kind of call, in double precision."""

from daskgrad.backends.jax.blocks import trace_block as trace_block
from daskgrad.backends.jax.compiled import prepare as prepare
from daskgrad.backends.jax.forward import linearize as linearize
from daskgrad.backends.jax.hints import hint as hint
from daskgrad.backends.jax.pickling import dumps as dumps
from daskgrad.backends.jax.pickling import loads as loads
from daskgrad.backends.jax.reverse import run as run
from daskgrad.backends.jax.reverse import trace as trace
from daskgrad.backends.jax.unboxing import stop_gradient as stop_gradient
from daskgrad.backends.jax.unboxing import value as value

# Its own arrays cannot be written into; a model that is not compiled sees NumPy's.
finds_writes = False
