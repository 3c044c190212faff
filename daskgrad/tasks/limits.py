"""Limits: how long anything is waited for.

Whatever daskgrad waits for on a cluster has a limit in ``dask.config``, in seconds or as Dask reads
durations ("5 minutes"); None is for ever. What is not there in time is a ``TimeoutError`` that says
what it was.

=========================  =======  ================================================================
``daskgrad.wait.``         default
=========================  =======  ================================================================
``workers``                30 s     that nothing which an evaluation needs can run anywhere: there
                                    is no worker, all are paused, or none is an allowed one
``answers``                60 s     that scheduler or workers may leave a question unanswered
``placing``                10 min   that putting blocks of items on one worker may take
``evaluation``             None     that an evaluation may take as a whole, models included
=========================  =======  ================================================================

A worker that stands still is given up by Dask itself (``distributed.scheduler.worker-ttl``), and
what it had to do is then done elsewhere; a dead one may delay a result by as long as Dask tries to
connect to it (``distributed.comm.timeouts.connect``). Locks are held no longer than one of these
waits, and in workers no longer than a model runs. ``.compute()`` of a node or a lazy derivative is
Dask's own wait.
"""

import math
from collections.abc import Mapping
from typing import Any

import dask
import dask.base
from dask.utils import parse_timedelta

LIMITS = {"workers": 30.0, "answers": 60.0, "placing": 600.0, "evaluation": None}


def limit(of: str) -> float:
    """How many seconds something may take."""
    given = given_limits().get(of, LIMITS[of])
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


def given_limits() -> Mapping[str, Any]:
    """The limits that the user has set."""
    given = dask.config.get("daskgrad.wait", None)
    given = {} if given is None else given
    if not isinstance(given, Mapping) or not LIMITS.keys() >= given.keys():
        names = ", ".join([f"daskgrad.wait.{name}" for name in LIMITS])
        raise ValueError(f"dask.config has daskgrad.wait = {given!r}; the limits are {names}")
    return given


def limit_named(of: str) -> str:
    """A limit for messages, with what it is called."""
    return f"{limit(of):g} s (dask.config: daskgrad.wait.{of})"
