"""Clients: finds the client that Dask would compute with, and checks that it is connected."""

import contextlib
import threading
from collections.abc import Iterator

import dask
import dask.base
from dask.callbacks import Callback
from dask.config import config
from distributed import Client, Worker, get_worker
from distributed.client import ClosedClientError

from daskgrad.tasks.settings import setting

CONNECTED = ("running", "connecting")
OF_CLUSTER = (None, "", "dask.distributed")  # schedulers that a worker's configuration may name


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
    if not isinstance(owner, Client):
        return None
    require_unforked(owner)
    return owner


def require_unforked(client: Client) -> None:
    """Raises in a child process that was forked: the thread of the client's event loop stayed in
    the parent, and nobody would ever answer."""
    thread = getattr(client.loop.asyncio_loop, "_thread_id", None)  # None: it does not run
    if thread is not None and thread not in [known.ident for known in threading.enumerate()]:
        raise RuntimeError(
            f"this process was forked from one that has a distributed.Client, of "
            f"{address_of(client)}; its threads stayed there, and it cannot be used here: start "
            f"processes with multiprocessing.get_context('spawn') or 'forkserver', or make a "
            f"Client in the child, or compute without one: dask.config.set(scheduler='sync')"
        )


def is_alone() -> bool:
    """Whether this process has no client, worker or chosen scheduler; twice as fast as Dask."""
    return not (config.get("scheduler") or has_client() or current_worker())


def is_in_line() -> bool:
    """Whether nobody takes part in an evaluation: no cluster or callback, no scheduler but Dask's
    local ones, and no annotation of the caller's; a cluster's worker is a process like others.
    Takes half a microsecond."""
    try:
        seconds = config["daskgrad"]["inline"]["seconds"]
    except (KeyError, TypeError):
        return False
    if Callback.active or dask.get_annotations():
        return False
    scheduler = config.get("scheduler")
    if scheduler in dask.base.named_schedulers:
        return bool(seconds)
    is_free = is_alone() or (scheduler in OF_CLUSTER and current_worker() is not None)
    return bool(seconds) and is_free


def may_spare_cluster() -> bool:
    """Whether a cluster evaluates, and this process may evaluate what is small itself."""
    if Callback.active or is_annotated() or not setting("inline.seconds"):
        return False
    return current_worker() is None and active_client() is not None


def is_annotated() -> bool:
    """Whether the caller annotates tasks."""
    return bool(dask.get_annotations())


def has_client() -> bool:
    if not Client._instances:  # ten times as fast where no client exists
        return False
    try:
        Client.current()
    except ValueError:
        return False
    return True


@contextlib.contextmanager
def connected(client: Client, purpose: str) -> Iterator[None]:
    """A context that requires a connected client, also if it is closed meanwhile."""
    require_connected(client, purpose)
    try:
        yield
    except ClosedClientError:
        require_connected(client, purpose)
        raise


def require_connected(client: Client, purpose: str) -> None:
    if client.status not in CONNECTED:
        raise ConnectionError(
            f"{purpose}: the client is {client.status}: somebody closed it, or its scheduler at "
            f"{address_of(client)} was lost"
        )


def address_of(client: Client) -> str:
    """The scheduler's address; a closed client has forgotten it."""
    return getattr(client.scheduler, "address", "an unknown address")


def current_worker() -> Worker | None:
    """The cluster's worker, a task of which this thread runs."""
    if not Worker._instances:  # ten times as fast where no worker exists
        return None
    try:
        return get_worker()
    except ValueError:
        return None
