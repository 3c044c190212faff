"""Supervision: waits for results of a cluster only as long as it can compute them.

``supervised`` replaces ``Client.get``. While it waits it asks, twice a second at first, whether any
task that is still needed can progress. Whatever ends the wait, an interrupt included, releases the
futures, so that the cluster drops the tasks that nobody else wants.
"""

import logging
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from distributed import CancelledError, Client, KilledWorker, futures_of

from daskgrad.autodiff.values import clock
from daskgrad.autodiff.values.descriptions import nbytes
from daskgrad.tasks import clients
from daskgrad.tasks.clients import address_of
from daskgrad.tasks.keys import task_label
from daskgrad.tasks.settings import limit, limit_named
from daskgrad.tasks.waiting import (
    PERIOD,
    ask_scheduler,
    has_result,
    in_loop,
    is_done,
    result_of,
    seceded,
)

# -------------------------------------------------------------------------------------------------
# Progress: tells whether tasks can progress; runs in the process of Dask's scheduler.
#
# A task can progress if a running worker has it, if it is queued while some worker runs, or if it
# waits for a task that can. Otherwise nobody can run it: no worker exists, all are paused or
# closing, or the task's restrictions exclude them all.

logger = logging.getLogger("daskgrad")

SHOWN = 3  # tasks that a message names


def standing(keys: Sequence[Any], dask_scheduler: Any) -> dict[str, Any]:
    """Whether any task that the keys still need can progress; if none can, tasks and workers.

    Unknown keys have not arrived, or the scheduler has forgotten them: then its log has a story of
    them. The search stops at the first task that can progress, so that it takes no time where all
    is well.
    """
    wanted = [dask_scheduler.tasks.get(key) for key in keys]
    if None in wanted:
        were_known = bool(dask_scheduler.story(*keys))
        return {"can_progress": True, "are_known": False, "were_known": were_known}
    if any(task.state == "erred" for task in wanted):
        return {"can_progress": True}  # the client will be told of the error
    todo = [task for task in wanted if task.state != "memory"]
    seen: set[Any] = set()
    while todo:
        task = todo.pop()
        if task in seen:
            continue
        seen.add(task)
        if can_progress(task, dask_scheduler):
            return {"can_progress": True}
        todo.extend(task.waiting_on or ())
    ready = sorted([task for task in seen if not task.waiting_on], key=lambda task: str(task.key))
    return {
        "can_progress": not seen,  # without unfinished tasks, the results are on their way
        "count": len(seen),
        "tasks": [(task.key, restrictions(task)) for task in ready[:SHOWN]],
        "workers": {ws.address: ws.status.name for ws in dask_scheduler.workers.values()},
    }


def can_progress(task: Any, scheduler: Any) -> bool:
    if task.state == "processing":
        worker = task.processing_on
        return worker.status.name == "running" or is_busy(worker)
    return task.state == "queued" and bool(scheduler.running)


def is_busy(worker: Any) -> bool:
    """Whether a worker that takes no new tasks still runs its last ones.

    Dask counts separately the tasks that left their thread to wait for tasks that they started.
    """
    executing = worker.metrics.get("task_counts", {}).get("executing", 0)
    return bool(worker.long_running) or executing > 0


def restrictions(task: Any) -> dict[str, Any]:
    wanted = {
        "workers": sorted(task.worker_restrictions or ()),
        "hosts": sorted(task.host_restrictions or ()),
        "resources": dict(task.resource_restrictions or {}),
    }
    return {kind: value for kind, value in wanted.items() if value}


# ------------------------------------------------------------------------------------- supervision

SELDOM = 5.0  # seconds at most between two looks
RESTART = "scheduler-restart"  # two of Dask's reasons for cancelling futures
DISCONNECTED = "scheduler-connection-lost"


class LostError(RuntimeError):
    """The cluster lost results that an evaluation computed or used, through no fault of a model.

    ``is_restart``: it lost all of them, since somebody restarted the cluster. ``kept`` are the
    results that are there all the same, if these are wanted.
    """

    def __init__(self, message: str, is_restart: bool = False):
        super().__init__(message)
        self.is_restart = is_restart
        self.kept: Mapping[Any, Any] = {}


def supervised(
    client: Client,
    measure: Callable[[Client], None],
    graph: Any,
    keys: Sequence[Any],
    are_apart: bool = False,
    **kwargs: Any,
) -> Any:
    """The results of the keys, as ``Client.get`` gives them to ``dask.compute``.

    ``measure`` is called when they are there, before the scheduler forgets the tasks. If some are
    lost and they ``are_apart``, needing nothing of each other, the others are waited for.
    """
    with clients.connected(client, "a graph cannot be computed"):
        packed = client.get(graph, keys, sync=False, **kwargs)
    futures = futures_of(packed)
    supervisor = Supervisor(client, futures)
    try:
        with seceded():
            try:
                results = gathered(client, packed, supervisor)
            except LostError as error:
                if are_apart and not error.is_restart:
                    error.kept = gathered_apart(client, futures)
                raise
            measure(client)
            return results
    finally:
        for future in futures:
            future.release()


def gathered(client: Client, packed: Any, supervisor: "Supervisor", errors: str = "raise") -> Any:
    wanted = supervisor.wanted
    gather = client.gather(packed, errors, asynchronous=True)
    gathering = in_loop(client, lambda: gather)
    try:
        if not is_done(gathering, limit("evaluation"), supervisor.look):
            raise TimeoutError(f"{wanted} took longer than {limit_named('evaluation')}")
        return result_of(gathering)
    except CancelledError as error:
        raise reason_of(error, client, supervisor.where, wanted) from error
    except KilledWorker as error:
        error.add_note(
            f"daskgrad: the task is the {task_label(error.task)}; it may have ended the "
            f"workers' processes, or needed more memory than they have{memory_for(client, error)}"
        )
        raise
    finally:
        del gathering


def memory_for(client: Client, error: KilledWorker) -> str:
    """The bytes of the inputs of a task that killed its workers, and their limit, for a message."""
    taken = told_soon(client, input_bytes, error.task)
    limit_of_worker = error.last_worker.memory_limit
    if taken is None or not limit_of_worker:
        return ""
    return f": its inputs take {nbytes(taken)}, and a worker may use {nbytes(limit_of_worker)}"


def input_bytes(key: Any, dask_scheduler: Any) -> int:
    inputs = dask_scheduler.tasks[key].dependencies if key in dask_scheduler.tasks else ()
    return sum([max(source.nbytes, 0) for source in inputs])


def gathered_apart(client: Client, futures: Sequence[Any]) -> dict[Any, Any]:
    """The results, by key, that can still be computed."""
    left = {future.key: future for future in futures if future.status != "cancelled"}
    supervisor = Supervisor(client, [*left.values()])
    results = gathered(client, left, supervisor, errors="skip")
    for future in left.values():
        if future.status == "error":  # of a model
            gathered(client, future, supervisor)
    return {key: result for key, result in results.items() if left[key].status == "finished"}


def reason_of(error: CancelledError, client: Client, where: str, wanted: str) -> Exception:
    """The error that says why futures were cancelled."""
    reason = getattr(error, "reason", None)
    if reason == DISCONNECTED or client.status == "connecting":
        return ConnectionError(
            f"the scheduler at {where}, or the connection to it, was lost while {wanted} was "
            f"computed; see its log, and call again once it is back"
        )
    if client.status != "running":
        return ConnectionError(
            f"the client of {where} was closed, or lost its scheduler, while {wanted} was computed"
        )
    if reason == RESTART:
        return LostError(f"the cluster was restarted while {wanted} was computed", True)
    return LostError(
        f"{wanted} could not be computed at {where}: the cluster lost data that it uses, or "
        f"somebody cancelled it ({reason})"
    )


class Supervisor:
    """Watches whether a cluster can still compute some futures."""

    def __init__(self, client: Client, futures: Sequence[Any]):
        self._client = client
        self.where = address_of(client)
        self._futures = futures
        self._asked: Any = None
        self._next = self._looked = clock.seconds()
        self._unheard_since: float | None = None  # the time of the first unanswered question
        self._pause = PERIOD
        self._stuck_since: float | None = None
        self._unknown_since: float | None = None  # since when the scheduler does not know the keys
        self._were_known = False

    @property
    def wanted(self) -> str:
        """The tasks that the call waits for, for messages."""
        names = list(dict.fromkeys([task_label(future.key) for future in self._futures[:3]]))
        more = f" and {len(self._futures) - 3} more" if len(self._futures) > 3 else ""
        return "the " + ", the ".join(names) + more

    def look(self) -> None:
        """Asks the scheduler without waiting; raises if nothing could progress for too long."""
        now = clock.seconds()
        if now - self._looked > limit("answers") / 4 and self._unheard_since is not None:
            self._unheard_since = now  # this process was stopped: an answer may be on its way
        self._looked = now
        if self._asked is not None and self._asked.done():
            self._take(now)
        if self._asked is None and now >= self._next:
            self._ask(now)
        if self._unheard_since is not None and now - self._unheard_since > limit("answers"):
            raise ConnectionError(
                f"the scheduler at {self.where} has not answered for "
                f"{limit_named('answers')} while {self.wanted} was waited for"
            )

    def _ask(self, now: float) -> None:
        if self._unheard_since is None:
            self._unheard_since = now
        if self._client.status == "running":
            run = self._client.run_on_scheduler
            keys = [future.key for future in self._futures if future.status == "pending"]
            self._asked = in_loop(self._client, lambda: run(standing, keys))
        self._next = now + self._pause
        self._pause = min(1.5 * self._pause, SELDOM, limit("answers") / 4, limit("workers") / 4)

    def _take(self, now: float) -> None:
        question, self._asked = self._asked, None
        if question.cancelled() or isinstance(question.exception(), OSError):
            return  # no answer: ask again
        state = question.result()
        self._unheard_since = None
        self._were_known |= state.get("were_known", True)
        self._require_known(state.get("are_known", True), now)
        if state["can_progress"]:
            self._stuck_since = None
        elif self._stuck_since is None:
            self._stuck_since = now
        elif now - self._stuck_since >= limit("workers"):
            raise TimeoutError(self._complaint(state))

    def _require_known(self, are_known: bool, now: float) -> None:
        """Raises if the scheduler has forgotten the keys, or if they do not arrive there."""
        since = self._unknown_since = None if are_known else self._unknown_since or now
        missing = 0.0 if since is None else now - since
        if self._were_known and missing >= limit("answers"):
            raise LostError(
                f"the scheduler at {self.where} has forgotten {self.wanted}, as after a "
                f"restart of the cluster that failed half way; see its log",
                True,
            )
        if missing >= limit("placing"):
            raise TimeoutError(
                f"{self.wanted}: the graph has not arrived at the scheduler at {self.where} for "
                f"{limit_named('placing')}; place large arguments, or see the scheduler's log"
            )

    def _complaint(self, state: dict[str, Any]) -> str:
        first = ", ".join([f"the {task_label(key)}" for key, _ in state["tasks"]])
        return (
            f"no task could run for {limit_named('workers')} while {self.wanted} was waited for; "
            f"{state['count']} tasks wait, first of all {first}. {self._obstacle(state)}"
        )

    def _obstacle(self, state: dict[str, Any]) -> str:
        workers, where = state["workers"], self.where
        if not workers:
            return f"{where} has no worker: see the workers' logs, or scale the cluster up"
        if "running" not in workers.values():
            states = ", ".join([f"{address} is {status}" for address, status in workers.items()])
            return (
                f"No worker at {where} takes work: {states}. Workers pause when their memory is "
                f"full: see their logs, or add workers"
            )
        wishes = "; ".join(
            [f"the {task_label(key)} asks for {wish}" for key, wish in state["tasks"] if wish]
        )
        present = ", ".join([f"{address} ({status})" for address, status in workers.items()])
        return (
            f"None of the workers at {where} may run them: {wishes}. Found {present}: change the "
            f"annotation (dask.annotate), or start a suitable worker"
        )


# -------------------------------------------------------------------------------------------------
# Seconds: how long the tasks of a graph have run on the workers' threads, as Dask has measured it.

SOON = 0.5  # seconds


def seconds_of(client: Client, keys: Iterable[Any]) -> float:
    """The seconds that the tasks of an evaluation have run, whose results are there; infinity if
    the scheduler has forgotten one of them, or does not tell soon: the results need not wait."""
    seconds = told_soon(client, seconds_in, list({key[0] for key in keys}))
    return math.inf if seconds is None else seconds


def told_soon(client: Client, look_up: Callable, *args: Any) -> Any:
    """A look-up on the scheduler; None if it does not tell soon."""
    future = in_loop(client, lambda: client.run_on_scheduler(look_up, *args))
    if has_result(future, SOON):
        return future.result()
    future.cancel()
    logger.info("the scheduler at %s did not tell %s", address_of(client), look_up.__name__)
    return None


def seconds_in(groups: Sequence[str], dask_scheduler: Any) -> float:
    if not dask_scheduler.task_groups.keys() >= {*groups}:
        return math.inf
    return sum([dask_scheduler.task_groups[group].all_durations["compute"] for group in groups])


# -------------------------------------------------------------------------------------------------
# Workers: lists a cluster's workers, and their threads.


def workers_of(client: Client) -> dict[str, int]:
    """The workers of a cluster that take work, and their threads; waits a while for the first."""
    if workers := running_workers(client):
        return workers
    waiting = client.submit(int, pure=False)  # for a task an adaptive cluster starts a worker
    deadline = clock.seconds() + limit("workers")
    try:
        while not (workers := running_workers(client)):
            if clock.seconds() > deadline:
                present = ", ".join(present_workers(client))
                obstacle = f"all of them ({present}) are paused or closing"
                raise TimeoutError(
                    f"no worker of {address_of(client)} has taken work for "
                    f"{limit_named('workers')}: {obstacle if present else 'it has none'}; see the "
                    f"logs of the cluster's workers, or scale it up"
                )
            time.sleep(0.05)
        return workers
    finally:
        waiting.release()


def running_workers(client: Client) -> dict[str, int]:
    return threads_of(client, lambda: client.scheduler.ncores_running())


def present_workers(client: Client) -> dict[str, int]:
    """All workers, paused and closing ones included, and their threads."""
    return threads_of(client, lambda: client.scheduler.ncores())


def threads_of(client: Client, ask: Callable[[], Any]) -> dict[str, int]:
    counts = ask_scheduler(client, ask, "for its workers")
    return {address: count for address, count in sorted(counts.items()) if count}
