"""Kept models: a large model goes to a cluster once, and stays there until it changes.

A model's pickle travels in each of its tasks. A pickle of more than 64 kB is instead the result of
its own task, which the client holds, under the pickle's digest, for the next evaluations. A worker
loads the model anew for each evaluation, so that nothing in its objects outlives the evaluation.
"""

import threading
import types
import uuid
from collections.abc import Container, Iterable
from contextvars import Context
from typing import Any

from dask.task_spec import Task, TaskRef
from dask.typing import Key
from distributed import Client, Future

from daskgrad.autodiff.models.model import Model, SentFunction
from daskgrad.autodiff.values.carriers import kept_or_made
from daskgrad.tasks.clients import connected
from daskgrad.tasks.keys import Names, task_label
from daskgrad.tasks.sending import named_if_unsendable

LARGE = 2**16  # bytes of a pickle
MOST = 2**28  # bytes that a client holds on its cluster; more only for the latest evaluation
EVALUATIONS = 2  # for which a worker has a large model loaded at a time

Held = dict[Any, tuple[Future, int]]  # futures and bytes, by all that a model consists of


class KeptModel:
    """A large model on the cluster."""

    def __init__(self, model: Model):
        self.model = model
        self._of_evaluations: dict[str, Model] = {}
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple:
        return KeptModel, (self.model,)

    def __sizeof__(self) -> int:
        return object.__sizeof__(self) + function_of(self.model).nbytes

    def of_evaluation(self, evaluation: str) -> Model:
        """The model, loaded once for the tasks of an evaluation in this process."""

        def unloaded() -> Model:
            return self.model._replace(fun=function_of(self.model).unloaded())

        with self._lock:
            return kept_or_made(self._of_evaluations, evaluation, unloaded, EVALUATIONS)


def function_of(model: Model) -> SentFunction:
    assert isinstance(model.fun, SentFunction)
    return model.fun


def sent_models(
    client: Client, models: Iterable[tuple[Key, Model]]
) -> tuple[dict[int, Any], list[Future]]:
    """Substitutes for models in the tasks of an evaluation, by the models' ids, and the futures
    that they refer to. ``models`` come with the keys of tasks that use them, for errors."""
    held: Held = vars(client).setdefault("_daskgrad_models", {})
    evaluation = uuid.uuid4().hex
    equal: dict[Any, Any] = {}  # substitutes by model: a method is a new object each time
    sent: dict[int, Any] = {}
    used: Held = {}
    for key, model in models:
        if id(model) in sent:
            continue
        same = (*parts_of(model.fun), *model[1:])
        if same not in equal:
            with named_if_unsendable([(f"the {task_label(key)}", model)]):
                equal[same] = packed = model.sent()
            fun = function_of(packed)
            if fun.nbytes > LARGE:
                version = (fun.daskgrad_digest, *packed[1:])
                future, _ = held.pop(version, (None, 0))
                if future is None or future.status not in ("pending", "finished"):
                    future = keep(client, packed)
                held[version] = used[version] = future, fun.nbytes  # last
                of_evaluation = KeptModel.of_evaluation, TaskRef(future.key), evaluation
                equal[same] = Task(None, *of_evaluation)
        sent[id(model)] = equal[same]
    drop_oldest(held, used)
    return sent, [future for future, _ in used.values()]


def parts_of(fun: Any) -> tuple[int, ...]:
    """Ids that tell a function from others as long as they exist."""
    is_method = type(fun) is types.MethodType
    return (id(fun.__self__), id(fun.__func__)) if is_method else (id(fun),)


def keep(client: Client, model: Model) -> Future:
    """Sends a model, without the caller's annotations, which are for an evaluation's tasks."""
    key = Names().key("value", model.name)
    with connected(client, f"model {model.name!r} cannot be sent"):
        return Context().run(client.submit, give, KeptModel(model), key=key)


def drop_oldest(held: Held, used: Container[Any]) -> None:
    total = sum([nbytes for _, nbytes in held.values()])
    for version in list(held):
        if total <= MOST or version in used:
            return
        _, nbytes = held.pop(version, (None, 0))
        total -= nbytes


def give(value: Any) -> Any:
    return value
