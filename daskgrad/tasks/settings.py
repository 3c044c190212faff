"""Settings: what ``dask.config`` has under ``daskgrad``; ``daskgrad.yaml`` explains each."""

import math
import pathlib
from collections.abc import Mapping
from typing import Any

import dask
import yaml
from dask.utils import parse_timedelta

DEFAULTS = yaml.safe_load((pathlib.Path(__file__).parents[1] / "daskgrad.yaml").read_text())


def install() -> None:
    """Shows the defaults to whoever looks into Dask's configuration."""
    dask.config.update_defaults(DEFAULTS)


def setting(name: str) -> Any:
    """What the user has set, or the default; KeyError if ``daskgrad.yaml`` does not name it."""
    key = f"daskgrad.{name}"
    try:
        return dask.config.get(key)
    except KeyError:  # the user has set the mapping that it is in
        return dask.config.get(key, config=DEFAULTS)


def limit(of: str) -> float:
    """How many seconds something may take."""
    require_limits(setting("wait"))
    given = setting(f"wait.{of}")
    if given is None:
        return math.inf
    try:
        seconds = parse_timedelta(given)
    except (AttributeError, KeyError, TypeError, ValueError):
        seconds = math.nan
    if not seconds > 0:
        raise ValueError(
            f"dask.config has daskgrad.wait.{of} = {given!r}; a positive number of seconds, a "
            f"duration like '5 minutes', or None is needed"
        )
    return seconds


def require_limits(given: Any) -> None:
    known = DEFAULTS["daskgrad"]["wait"]
    if not isinstance(given, Mapping) or not known.keys() >= given.keys():
        names = ", ".join([f"daskgrad.wait.{name}" for name in known])
        raise ValueError(f"dask.config has daskgrad.wait = {given!r}; the limits are {names}")


def limit_named(of: str) -> str:
    """A limit for messages, with what it is called."""
    return f"{limit(of):g} s (dask.config: daskgrad.wait.{of})"
