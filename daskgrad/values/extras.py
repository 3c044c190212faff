"""Extras: libraries that only some parts of this package use."""

import importlib
from typing import Any


def imported(library: str, extra: str, purpose: str) -> Any:
    """The library's module; ModuleNotFoundError with what to install where there is none."""
    try:
        return importlib.import_module(library)
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f'{purpose}, which is not installed: run pip install "daskgrad[{extra}]"', name=library
        ) from error
