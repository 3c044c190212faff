"""Spilling: tells the policy whether Dask's workers write a pullback to disk or send it.

Dask passes a context to the serializers of its messages, and none to those of its spill files. If
that changed, the policy would use the wrong one of its two rates.
"""

import contextlib
from typing import Any

from distributed.protocol.serialize import (
    dask_deserialize,
    dask_serialize,
    pickle_dumps,
    pickle_loads,
)

from daskgrad.models.captured import Captured
from daskgrad.models.travel.policy import spilling


def install() -> None:
    """Registers the two functions with Dask, for pullbacks."""
    dask_serialize.register(Captured, serialize)
    dask_deserialize.register(Captured, deserialize)


def serialize(captured: Captured, context: Any = None) -> tuple[Any, Any]:
    with spilling() if context is None else contextlib.nullcontext():
        return pickle_dumps(captured, context)


def deserialize(header: Any, frames: Any) -> Any:
    return pickle_loads(header, frames)
