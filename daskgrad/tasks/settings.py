"""Settings: reads ``daskgrad`` in ``dask.config``; ``daskgrad.yaml`` explains each setting."""

import math
import pathlib
from collections.abc import Mapping
from typing import Any

import dask
import yaml
from dask.config import config
from dask.utils import parse_bytes, parse_timedelta

DEFAULTS = yaml.safe_load((pathlib.Path(__file__).parents[1] / "daskgrad.yaml").read_text())


def install() -> None:
    """Puts the defaults into Dask's configuration, where users can see them."""
    dask.config.update_defaults(DEFAULTS)


def setting(name: str) -> Any:
    """The user's setting, or the default; KeyError if ``daskgrad.yaml`` does not name it."""
    key = f"daskgrad.{name}"
    try:
        return dask.config.get(key)
    except (KeyError, TypeError):  # the user has replaced the mapping that holds it
        return dask.config.get(key, config=DEFAULTS)


def may_compile() -> bool:
    """Whether models are compiled for which nobody said so; takes a fifth of a microsecond."""
    try:
        return bool(config["daskgrad"]["compile"])
    except (KeyError, TypeError):  # the user has replaced the mapping that holds it
        return bool(setting("compile"))


def limit(of: str) -> float:
    """A limit in seconds; infinity for None."""
    require_limits(setting("wait"))
    value = setting(f"wait.{of}")
    if value is None:
        return math.inf
    try:
        seconds = parse_timedelta(value)
    except (AttributeError, LookupError, TypeError, ValueError):
        seconds = math.nan
    if not seconds > 0:
        raise ValueError(
            f"daskgrad.wait.{of} in dask.config must be a positive number of seconds, a duration "
            f"like '5 minutes', or None; found {value!r}"
        )
    return seconds


def require_limits(limits: Any) -> None:
    known = DEFAULTS["daskgrad"]["wait"]
    limits = {} if limits is None else limits
    if not isinstance(limits, Mapping) or not known.keys() >= limits.keys():
        names = ", ".join([f"daskgrad.wait.{name}" for name in known])
        raise ValueError(
            f"daskgrad.wait in dask.config must hold the limits {names} and no others; found "
            f"{limits!r}"
        )


def limit_named(of: str) -> str:
    """A limit and its name in the configuration, for messages."""
    return f"{limit(of):g} s (dask.config: daskgrad.wait.{of})"


def bytes_in(text: Any) -> int:
    """The number of bytes in a number or a text like "200 MB"; ValueError for others."""
    return parse_bytes(text)
