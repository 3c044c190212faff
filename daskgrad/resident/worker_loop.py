"""Worker loop: functions in threads, and several coroutines, awaited in a worker's event loop."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Executor
from typing import Any


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


def in_thread(pool: Executor, fun: Callable, *args: Any) -> asyncio.Future:
    """The result of a function in a thread of a pool. It runs also where nobody waits any more.

    The loop's ``run_in_executor`` chains two futures: 3 % of a gradient whose models take no time.
    """
    loop = asyncio.get_running_loop()
    result = loop.create_future()
    pool.submit(run, [result, loop, fun, args])
    return result


def run(call: list[Any]) -> None:
    """Takes the call out of the list: the pool keeps its arguments as long as a traceback does."""
    result, loop, fun, args = call
    call.clear()
    try:
        value = fun(*args)
    except BaseException as error:
        loop.call_soon_threadsafe(settle, result, result.set_exception, error)
        del result, fun, args  # the error's traceback would hold them, and so itself
    else:
        loop.call_soon_threadsafe(settle, result, result.set_result, value)


def settle(result: asyncio.Future, set_result: Callable[[Any], None], to: Any) -> None:
    if not result.cancelled():
        set_result(to)
