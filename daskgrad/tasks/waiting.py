"""Waiting: for what a cluster is asked, in the client's event loop, and never for ever."""

import asyncio
import concurrent.futures
import contextlib
import inspect
import threading
import time
import traceback
import types
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from typing import Any

from distributed import Client, rejoin, secede
from distributed.threadpoolexecutor import secede as leave_pool

from daskgrad.tasks.clients import address_of, require_connected
from daskgrad.tasks.limits import limit, limit_named

PERIOD = 0.5  # seconds between two looks at what is waited for


SUSPENDABLE = inspect.CO_COROUTINE | inspect.CO_GENERATOR | inspect.CO_ASYNC_GENERATOR


class LateError(TimeoutError):
    """A question was not answered within its limit."""


def in_loop(client: Client, ask: Callable[[], Awaitable[Any]]) -> concurrent.futures.Future:
    """Asks in the client's event loop, where the client's methods are coroutines."""

    async def asked() -> Any:
        return await ask()

    return asyncio.run_coroutine_threadsafe(asked(), client.loop.asyncio_loop)


async def all_or_first_error(coroutines: Sequence[Coroutine[Any, Any, Any]]) -> list[Any]:
    """What all coroutines return. The first error, or to cancel this, ends those that still run."""
    if len(coroutines) == 1:  # without a task of its own: a trip through the loop less
        return [await coroutines[0]]
    tasks = [asyncio.ensure_future(coroutine) for coroutine in coroutines]
    try:
        return await asyncio.gather(*tasks)
    finally:
        while tasks:  # and no local variable holds one: the error's traceback would, and so itself
            tasks.pop().cancel()


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
    future = in_loop(client, ask)
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


@contextlib.contextmanager
def seceded() -> Iterator[None]:
    """Leaves the worker's thread, if this is one, to others: to the tasks that are waited for."""
    has_left = leaves_pool()
    try:
        yield
    finally:
        if has_left:
            rejoin()


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
