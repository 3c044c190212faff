"""Spilling: what Dask's workers write to disk is told from what they send.

Dask hands a context to the serializers of its messages, and none to those of its spill files. Were
that to change, the policy would be asked about the other of its two rates.
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
    """Makes the two functions those that Dask calls for pullbacks."""
    dask_serialize.register(Captured, serialize)
    dask_deserialize.register(Captured, deserialize)


def serialize(captured: Captured, context: Any = None) -> tuple[Any, Any]:
    with spilling() if context is None else contextlib.nullcontext():
        return pickle_dumps(captured, context)


def deserialize(header: Any, frames: Any) -> Any:
    return pickle_loads(header, frames)
