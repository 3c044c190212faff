"""The backend of models that nobody vouched for: compiled as far as their code tells that they are
functions of their arguments (see ``purity``)."""

from collections.abc import Callable
from functools import partial

from daskgrad.compiled import backend
from daskgrad.compiled.backend import dumps as dumps
from daskgrad.compiled.backend import finds_writes as finds_writes
from daskgrad.compiled.backend import hint as hint
from daskgrad.compiled.backend import linearize as linearize
from daskgrad.compiled.backend import loads as loads
from daskgrad.compiled.backend import trace as trace
from daskgrad.compiled.backend import trace_block as trace_block

prepare: Callable = partial(backend.prepare, is_vouched=False)
run: Callable = partial(backend.run, is_vouched=False)
