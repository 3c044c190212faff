"""Waiting: sends requests from the client's event loop, and waits for a limited time."""

import asyncio
import concurrent.futures
import contextlib
import inspect
import threading
import traceback
import types
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from typing import Any

from distributed import Client, rejoin, secede, threadpoolexecutor

from daskgrad.autodiff.values import clock
from daskgrad.tasks.clients import address_of, require_connected
from daskgrad.tasks.settings import limit, limit_named

PERIOD = 0.5  # seconds between two looks while waiting
SUSPENDABLE = inspect.CO_COROUTINE | inspect.CO_GENERATOR | inspect.CO_ASYNC_GENERATOR


class LateError(TimeoutError):
    """Nobody answered a question within its limit."""


def in_loop(client: Client, ask: Callable[[], Awaitable[Any]]) -> concurrent.futures.Future:
    """Asks in the client's event loop, where the client's methods are coroutines."""

    async def ask_now() -> Any:
        return await ask()

    return asyncio.run_coroutine_threadsafe(ask_now(), client.loop.asyncio_loop)


async def all_or_first_error(coroutines: Sequence[Coroutine[Any, Any, Any]]) -> list[Any]:
    """The results of all coroutines. The first error, or cancelling this, cancels the others."""
    if len(coroutines) == 1:  # without a task: one trip through the loop less
        return [await coroutines[0]]
    tasks = [asyncio.ensure_future(coroutine) for coroutine in coroutines]
    try:
        return await asyncio.gather(*tasks)
    finally:
        while tasks:  # until none is left: an error holds this list, and a task holds the error
            tasks.pop().cancel()


def is_done(
    future: concurrent.futures.Future, seconds: float, look: Callable[[], Any] | None = None
) -> bool:
    """Whether a future is done within the time; calls ``look`` twice a second meanwhile."""
    deadline = clock.seconds() + seconds
    while not future.done():
        left = deadline - clock.seconds()
        if left <= 0:
            return False
        concurrent.futures.wait([future], min(PERIOD, left))
        if look is not None and not future.done():
            look()
    return True


def has_result(future: concurrent.futures.Future, seconds: float) -> bool:
    """Whether a future has a result within the time, and no error."""
    return is_done(future, seconds) and not future.cancelled() and future.exception() is None


def result_of(future: concurrent.futures.Future) -> Any:
    """The result of an ended future, or its error raised; callers then drop the future."""
    error = None if future.cancelled() else future.exception()
    if error is None:
        return future.result()
    try:
        raise without_locals(error)
    finally:
        del future, error


def without_locals(error: BaseException) -> BaseException:
    """Clears the local variables of the frames that passed an error on.

    The error is one of these variables. The cycle would keep alive all objects of the callers'
    frames, results on the cluster included, until Python's garbage collector runs.
    """
    for frame, _ in traceback.walk_tb(error.__traceback__):
        drop_locals(frame)
    return error


def drop_locals(frame: types.FrameType | None) -> None:
    """Clears a frame that has ended, and its callers' frames, up to a coroutine."""
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
    purpose: str,
    of: str = "answers",
    look: Callable[[], Any] | None = None,
) -> Any:
    """The answer of the scheduler or workers to a question, in limited time."""
    require_connected(client, purpose)
    future = in_loop(client, ask)
    try:
        if is_done(future, limit(of), look):
            return result_of(future)
    finally:
        future.cancel()
        del future
    raise LateError(f"{purpose}: no answer came for {limit_named(of)}")


def ask_scheduler(client: Client, ask: Callable[[], Any], subject: str) -> Any:
    """The scheduler's answer; ConnectionError if it cannot be reached."""
    where = address_of(client)
    purpose = f"the scheduler at {where} was asked {subject}"
    require_connected(client, purpose)
    try:
        return answer(client, ask, purpose)
    except LateError:
        raise
    except OSError as error:
        raise ConnectionError(
            f"the scheduler at {where} cannot be reached ({error!r}): it was asked {subject}"
        ) from error


@contextlib.contextmanager
def seceded() -> Iterator[None]:
    """A context that frees this thread, if it is a worker's, for the tasks that it waits for."""
    has_left = leave_pool()
    try:
        yield
    finally:
        if has_left:
            rejoin()


def leave_pool() -> bool:
    """Takes this thread out of a worker's pool; False if it is in none, or has left before.

    The thread runs a task, or evaluates placed items, which Dask does not see.
    """
    if threading.current_thread() is threading.main_thread():  # spares two exceptions
        return False
    for leave in (secede, threadpoolexecutor.secede):
        try:
            leave()
        except (ValueError, AttributeError, KeyError):
            continue
        return True
    return False
