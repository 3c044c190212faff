"""Packing: tapes as bytes, which are unpickled when the tape is first used."""

import io
import logging
from typing import Any

from daskgrad.models.travel.policy import sends
from daskgrad.values.sealed import Sealed

logger = logging.getLogger("daskgrad")


def pack(pullback: Any, policy: Sealed | None) -> Sealed | None:
    """The contents of a pullback as bytes; ``None`` if its models are to run again instead.

    Never raises: Dask's cluster would hang.
    """
    picklers = {getattr(tape, "pickler", None) for tape in pullback.tapes()}
    if len(picklers) != 1 or None in picklers:
        return None
    try:
        goes_along = sends(policy, pullback.measured())
        return seal(pullback.contents(), *picklers) if goes_along else None
    except Exception as error:
        logger.info("a tape stays behind, and its model is traced again: %s", describe_error(error))
        return None


def seal(contents: Any, pickler: Any) -> Sealed:
    file = io.BytesIO()
    buffers: list[Any] = []
    pickler(file, protocol=5, buffer_callback=buffers.append).dump(contents)
    return Sealed(file.getvalue(), buffers)


def unpack(packed: Sealed) -> Any:
    """The contents; ``None`` if they cannot be loaded here."""
    try:
        return packed.load()
    except Exception as error:
        logger.info("a tape that arrived cannot be loaded: %s", describe_error(error))
        return None


def describe_error(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
