"""Packing: tapes as bytes, which are unpickled when the tape is first used."""

import io
import logging
from collections.abc import Callable, Sequence
from typing import Any

from daskgrad.models.travel.policy import Measured, sends
from daskgrad.values.sealed import Sealed

logger = logging.getLogger("daskgrad")


def pack(
    tapes: Sequence[Any],
    contents: Callable[[], Any],
    measured: Callable[[], Measured],
    policy: Sealed | None,
) -> Sealed | None:
    """Contents with their tapes as bytes; ``None`` if the models shall run again instead.

    Never raises: Dask's cluster would hang.
    """
    picklers = {getattr(tape, "pickler", None) for tape in tapes}
    if len(picklers) != 1 or None in picklers:
        return None
    try:
        return seal(contents(), *picklers) if sends(policy, measured()) else None
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
