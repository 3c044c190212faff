"""The client that Dask would compute with, its workers, and how long anything is waited for.

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

import asyncio
import concurrent.futures
import contextlib
import inspect
import math
import threading
import time
import traceback
import types
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from typing import Any

import dask
import dask.base
from dask.utils import parse_timedelta
from distributed import Client, get_worker, rejoin, secede
from distributed.threadpoolexecutor import secede as leave_pool

LIMITS = {"workers": 30.0, "answers": 60.0, "placing": 600.0, "evaluation": None}
PERIOD = 0.5  # seconds between two looks at what is waited for
CONNECTED = ("running", "connecting")
SUSPENDABLE = inspect.CO_COROUTINE | inspect.CO_GENERATOR | inspect.CO_ASYNC_GENERATOR


class LateError(TimeoutError):
    """A question was not answered within its limit."""


def active_client() -> Client | None:
    """The client that Dask would compute with now."""
    if is_alone():
        return None
    try:
        scheduler = dask.base.get_scheduler()
    except RuntimeError as error:
        if "asynchronous" in str(error):
            error.add_note(
                "daskgrad: derivatives are waited for; make a synchronous Client, and call them "
                "from a thread of their own where an event loop runs (asyncio.to_thread)"
            )
        raise
    owner = getattr(scheduler, "__self__", None)
    return owner if isinstance(owner, Client) else None


def is_alone() -> bool:
    """Whether there is neither client, worker nor choice of the user's, in half of Dask's time."""
    if dask.config.get("scheduler", None):
        return False
    return not (has_client() or in_worker())


def has_client() -> bool:
    if not Client._instances:  # nearly always, where there is none: ten times as fast to ask
        return False
    try:
        Client.current()
    except ValueError:
        return False
    return True


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


# --------------------------------------------------------------------------------------- waiting


def begun(client: Client, ask: Callable[[], Any]) -> concurrent.futures.Future:
    """Asks in the client's event loop; its methods are coroutines there."""

    async def asked() -> Any:
        return await ask()

    return in_loop(client, asked())


def in_loop(client: Client, coroutine: Any) -> concurrent.futures.Future:
    return asyncio.run_coroutine_threadsafe(coroutine, client.loop.asyncio_loop)


class Together(concurrent.futures.Future):
    """What several coroutines return in the client's event loop, as a list, or the first error.

    There is one at least. An error, or ``cancel``, cancels those that still run. A coroutine that
    gathers the others would cost four more trips through the event loop.
    """

    def __init__(self, client: Client, coroutines: Sequence[Coroutine[Any, Any, Any]]):
        super().__init__()
        self._loop = client.loop.asyncio_loop
        self._coroutines = coroutines
        self._tasks: list[asyncio.Task] = []
        self._running = len(coroutines)
        self._loop.call_soon_threadsafe(self._begin)

    def cancel(self) -> bool:
        is_cancelled = super().cancel()
        if is_cancelled:
            with contextlib.suppress(RuntimeError):  # the loop is closed, and nothing runs
                self._loop.call_soon_threadsafe(self._end)
        return is_cancelled

    def _begin(self) -> None:
        self._tasks = [self._loop.create_task(coroutine) for coroutine in self._coroutines]
        self._coroutines = ()
        for task in self._tasks:
            task.add_done_callback(self._ended)

    def _end(self) -> None:
        for task in self._tasks:
            task.cancel()

    def _ended(self, task: asyncio.Task) -> None:
        """In the event loop, for each task once; another thread may cancel meanwhile."""
        self._running -= 1
        error = None if task.cancelled() else task.exception()
        if self.done():
            return
        with contextlib.suppress(concurrent.futures.InvalidStateError):
            if task.cancelled():
                self.cancel()
            elif error is not None:
                self.set_exception(error)
                self._end()
            elif not self._running:
                self.set_result([each.result() for each in self._tasks])


def is_done(
    future: concurrent.futures.Future, seconds: float, look: Callable[[], Any] | None = None
) -> bool:
    """Whether a future is done within the time; ``look`` is called twice a second meanwhile."""
    deadline = time.monotonic() + seconds
    while not ends(future, min(PERIOD, deadline - time.monotonic())):
        if time.monotonic() >= deadline:
            return future.done()
        if look is not None:
            look()
    return True


def ends(future: concurrent.futures.Future, seconds: float) -> bool:
    """Whether a future ends within a time, well or not."""
    try:
        future.exception(timeout=max(0.0, seconds))
    except concurrent.futures.CancelledError:
        return True
    except TimeoutError:
        return future.done()
    return True


def result_of(future: concurrent.futures.Future) -> Any:
    """What an ended future of the event loop returned or raised; callers drop it then."""
    error = None if future.cancelled() else future.exception()
    if error is None:
        return future.result()
    try:
        raise without_locals(error)
    finally:
        del future, error


def without_locals(error: BaseException) -> BaseException:
    """An error that came through Dask; the frames that passed it on have no local variables then.

    They have the error among them. Such a cycle would keep all that the frames of the caller refer
    to, results on the cluster among it, until Python's collector runs.
    """
    for frame, _ in traceback.walk_tb(error.__traceback__):
        drop_locals(frame)
    return error


def drop_locals(frame: types.FrameType | None) -> None:
    """Of a frame that has ended, and of the functions that called it, up to a coroutine."""
    while frame is not None:
        try:
            frame.clear()
        except RuntimeError:  # it runs
            return
        frame = frame.f_back
        if frame is not None and frame.f_code.co_flags & SUSPENDABLE:
            return


def answer(
    client: Client,
    ask: Callable[[], Any],
    what: str,
    of: str = "answers",
    look: Callable[[], Any] | None = None,
) -> Any:
    """What scheduler or workers say to a question, in limited time."""
    require_connected(client, what)
    future = begun(client, ask)
    try:
        if is_done(future, limit(of), look):
            return result_of(future)
    finally:
        future.cancel()
        del future
    raise LateError(f"{what}: there was no answer for {limit_named(of)}")


def told_by_scheduler(client: Client, ask: Callable[[], Any], what: str) -> Any:
    """What the scheduler alone answers: it is lost where it cannot be reached."""
    where = address_of(client)
    asked = f"the scheduler at {where} was asked {what}"
    require_connected(client, asked)
    try:
        return answer(client, ask, asked)
    except LateError:
        raise
    except OSError as error:
        raise ConnectionError(
            f"the scheduler at {where} cannot be reached ({error!r}): it was asked {what}"
        ) from error


def require_connected(client: Client, what: str) -> None:
    if client.status not in CONNECTED:
        raise ConnectionError(
            f"{what}: the client is {client.status}, since somebody closed it or its scheduler at "
            f"{address_of(client)} was lost"
        )


def address_of(client: Client) -> str:
    """Of the scheduler; a closed client has forgotten it."""
    return getattr(client.scheduler, "address", "an unknown address")


@contextlib.contextmanager
def seceded() -> Iterator[None]:
    """Leaves the worker's thread, if this is one, to others: to the tasks that are waited for."""
    has_left = leaves_pool()
    try:
        yield
    finally:
        if has_left:
            rejoin()


def in_worker() -> bool:
    """Whether this thread runs a task of a cluster's worker."""
    try:
        get_worker()
    except ValueError:
        return False
    return True


def leaves_pool() -> bool:
    """Takes this thread out of a worker's pool; it is in none, or has left before, else.

    It runs a task, or placed items are evaluated in it, of which Dask knows nothing. The main
    thread is in no pool; to ask for it would cost two exceptions a call.
    """
    if threading.current_thread() is threading.main_thread():
        return False
    for leave in (secede, leave_pool):
        try:
            leave()
        except (ValueError, AttributeError, KeyError):
            continue
        return True
    return False


# --------------------------------------------------------------------------------------- workers


def workers_of(client: Client) -> dict[str, int]:
    """The workers of a cluster that take work, and their threads; waits a while for the first."""
    deadline = time.monotonic() + limit("workers")
    while not (workers := running(client)):
        if time.monotonic() > deadline:
            there = ", ".join(present(client))
            found = f"all there are ({there}) are paused or closing" if there else "there is none"
            raise TimeoutError(
                f"no worker of {address_of(client)} has taken work for {limit_named('workers')}: "
                f"{found}; see the logs of the cluster's workers, or scale it up"
            )
        time.sleep(0.05)
    return workers


def running(client: Client) -> dict[str, int]:
    """The workers that take work, and their threads."""
    return threads(client, lambda: client.scheduler.ncores_running())


def present(client: Client) -> dict[str, int]:
    """All workers, and their threads; also those that are paused or closing."""
    return threads(client, lambda: client.scheduler.ncores())


def threads(client: Client, ask: Callable[[], Any]) -> dict[str, int]:
    found = told_by_scheduler(client, ask, "for its workers")
    return {address: count for address, count in sorted(found.items()) if count}
