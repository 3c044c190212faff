"""Waiting: sends requests from the client's event loop, and waits for a limited time."""

import asyncio
import concurrent.futures
import contextlib
import inspect
import threading
import traceback
import types
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any

from distributed import Client, rejoin, secede, threadpoolexecutor

from daskgrad.autodiff.values import clock
from daskgrad.tasks.clients import address_of, require_connected
from daskgrad.tasks.settings import limit, limit_named

SENDING = 0.01  # seconds in which the event loop sends requests, if it has nothing else to do
PERIOD = 0.5  # seconds between two looks while waiting
SUSPENDABLE = inspect.CO_COROUTINE | inspect.CO_GENERATOR | inspect.CO_ASYNC_GENERATOR


class LateError(TimeoutError):
    """Nobody answered a question within its limit."""


def in_loop(client: Client, ask: Callable[[], Awaitable[Any]]) -> concurrent.futures.Future:
    """Asks in the client's event loop, where the client's methods are coroutines."""

    async def ask_now() -> Any:
        return await ask()

    return asyncio.run_coroutine_threadsafe(ask_now(), client.loop.asyncio_loop)


class Together(concurrent.futures.Future):
    """The results of questions asked in the client's event loop, in a list, or the first error.

    An error, or ``cancel``, cancels the other questions. ``asyncio.gather`` in a coroutine would
    keep an error alive with its frames, and take three more trips through the loop.
    """

    def __init__(self, client: Client, questions: Sequence[Callable[[], Awaitable[Any]]]):
        super().__init__()
        self._loop = client.loop.asyncio_loop
        self._results: list[Any] = [None] * len(questions)
        self._running = len(questions)
        self._tasks: list[asyncio.Task] = []
        self._loop.call_soon_threadsafe(self._begin, questions)

    def flush(self) -> None:
        """Waits a moment until the questions are sent: a thread that runs Python meanwhile delays
        the event loop by milliseconds."""
        are_sent = threading.Event()
        self._loop.call_soon_threadsafe(self._loop.call_soon, are_sent.set)  # after the tasks began
        are_sent.wait(SENDING)

    def give_up(self, number: int) -> None:
        """Cancels one question; it answers the cancellation itself, or ends them all."""
        self._loop.call_soon_threadsafe(lambda: self._tasks[number].cancel())

    def cancel(self) -> bool:
        is_cancelled = super().cancel()
        with contextlib.suppress(RuntimeError):  # the loop is closed, and nothing runs
            self._loop.call_soon_threadsafe(self._cancel_tasks)
        return is_cancelled

    def _begin(self, questions: Sequence[Callable[[], Awaitable[Any]]]) -> None:
        self._tasks = [self._loop.create_task(self._ask(n, ask)) for n, ask in enumerate(questions)]

    def _cancel_tasks(self) -> None:
        for task in self._tasks:
            task.cancel()

    async def _ask(self, number: int, ask: Callable[[], Awaitable[Any]]) -> None:
        with contextlib.suppress(concurrent.futures.InvalidStateError):  # it has ended before
            try:
                self._results[number] = await ask()
            except asyncio.CancelledError:
                self.cancel()
            except Exception as error:
                self._cancel_tasks()
                self.set_exception(error)
                del self  # the error's traceback holds this frame
            else:
                self._running -= 1
                if not self._running:
                    self.set_result(self._results)


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
