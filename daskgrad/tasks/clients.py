"""Clients: finds the client that Dask would compute with, and checks that it is connected."""

import contextlib
import pickle
from collections.abc import Iterable, Iterator
from typing import Any

import cloudpickle
import dask
import dask.base
import numpy as np
from dask.callbacks import Callback
from dask.config import config
from distributed import Client, Worker, get_worker

from daskgrad.autodiff.models.model import Model
from daskgrad.autodiff.models.travel import seal
from daskgrad.autodiff.tape.pickling import ModelPickler
from daskgrad.autodiff.values.memory import Sealed, Sent
from daskgrad.autodiff.values.trees import LEAF_TYPES
from daskgrad.tasks import observers

CONNECTED = ("running", "connecting")


def active_client() -> Client | None:
    """The client that Dask would compute with now."""
    if is_alone():
        return None
    try:
        scheduler = dask.base.get_scheduler()
    except RuntimeError as error:
        if "asynchronous" in str(error):
            error.add_note(
                "daskgrad: derivatives block until they are computed: make a synchronous Client; "
                "where an event loop runs, call them in another thread (asyncio.to_thread)"
            )
        raise
    owner = getattr(scheduler, "__self__", None)
    return owner if isinstance(owner, Client) else None


def is_alone() -> bool:
    """Whether this process has no client, worker or chosen scheduler; twice as fast as Dask."""
    if config.get("scheduler"):
        return False
    return not (has_client() or in_worker())


def is_in_line() -> bool:
    """Whether nobody takes part in an evaluation: no cluster, scheduler, callback or observer, and
    no annotation or setting of the caller's. It takes half a microsecond where that is so.
    """
    try:
        seconds = config["daskgrad"]["inline"]["seconds"]
    except (KeyError, TypeError):
        return False
    if Callback.active or observers.observers or dask.get_annotations():
        return False
    return bool(seconds) and is_alone()


def has_client() -> bool:
    if not Client._instances:  # ten times as fast where no client exists
        return False
    try:
        Client.current()
    except ValueError:
        return False
    return True


def require_connected(client: Client, what: str) -> None:
    if client.status not in CONNECTED:
        raise ConnectionError(
            f"{what}: the client is {client.status}: somebody closed it, or its scheduler at "
            f"{address_of(client)} was lost"
        )


def address_of(client: Client) -> str:
    """The scheduler's address; a closed client has forgotten it."""
    return getattr(client.scheduler, "address", "an unknown address")


def in_worker() -> bool:
    """Whether this thread runs a task of a cluster's worker."""
    if not Worker._instances:  # ten times as fast where no worker exists
        return False
    try:
        get_worker()
    except ValueError:
        return False
    return True


# -------------------------------------------------------------------------------------------------
# Sending: what tasks take, as it goes to other processes, and what cannot be sent, named.
#
# Dask's scheduler loads a graph; Dask's pickles lose the layout of arrays, and the rules of
# functions of a script. So objects of the user's are sealed, and pickled as models are. Dask's own
# error, where something cannot be pickled, names neither task nor model.

PLAIN = {*LEAF_TYPES, bool, str, complex, slice, range, type(Ellipsis)} - {np.ndarray}
ADVICE = "open files, locks and connections where they are used, or pass what makes them"


@contextlib.contextmanager
def named_if_unsendable(parts: Iterable[tuple[str, Any]]) -> Iterator[None]:
    """TypeError that names the first part, of (name, value), that cannot be pickled.

    For what goes to other processes; only a failure looks at the parts. If all of them can be
    pickled, as where a model raised the error, it is raised as it is.
    """
    try:
        yield
    except (TypeError, pickle.PicklingError):
        for name, value in parts:
            if cause := reason_against_pickling(value):
                what = f"{name} cannot be sent to another process"
                raise TypeError(f"{what}: {cause}; {ADVICE}") from cause
        raise


def reason_against_pickling(value: Any) -> Exception | None:
    try:
        cloudpickle.dumps(value)
    except Exception as error:
        return error
    return None


def sealed_unless_plain(value: Any) -> Any:
    return value if is_plain(value) else Sent.of(value, seal_as_models)


def seal_as_models(value: Any) -> Sealed:
    return seal(value, ModelPickler)


def is_plain(value: Any) -> bool:
    """Whether Dask's own pickles will do: arrays, numbers, lists of these, daskgrad's objects."""
    kind = type(value)
    if kind in PLAIN or kind is Model:
        return True
    if kind is np.ndarray:
        return not value.dtype.hasobject
    is_own = kind.__module__.startswith("daskgrad.")
    if kind in (list, tuple) or (is_own and isinstance(value, tuple)):
        return PLAIN.issuperset(map(type, value)) or all(map(is_plain, value))
    if kind is dict:
        return all(map(is_plain, value)) and all(map(is_plain, value.values()))
    return is_own or isinstance(value, np.generic)
