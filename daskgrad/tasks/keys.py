"""Keys: names of tasks, by which Dask's dashboard groups and colours them by stage and model.

A key is ``(<stage>-<model name>-<token>, process, number)``, and may end with the task's number of
calls. Every evaluation has its own token: Dask returns the old result for a key that it knows.
"""

import functools
import itertools
import os
import string
import uuid
from typing import Any, Literal, NamedTuple, get_args

from dask.typing import Key

from daskgrad.autodiff.values.carriers import drop_oldest

Stage = Literal["forward", "value", "backward", "cotangent", "tangent"]

LETTERS = str.maketrans(string.digits, string.ascii_lowercase[:10])


@functools.lru_cache(maxsize=1024)
def dashboard_name(name: str) -> str:
    """A model's name in letters and hyphens, as Dask keeps it: log_lik → log-lik, m1 → m-b.

    Dask's ``key_split`` cuts a key at the first word that may be a hash: one with other than
    letters, or of eight letters, the first from a to f.
    """
    kinds = itertools.groupby(name, lambda letter: (letter.isalpha(), letter in string.digits))
    parts = ["".join(group) for _, group in kinds]
    words = [part.translate(LETTERS) for part in parts if part.isalnum()]
    words = [
        f"{word[:4]}-{word[4:]}" if len(word) == 8 and word[0] in "abcdef" else word
        for word in words
        if word.isalpha()
    ]
    return "-".join(words) or "model"


PROCESS = uuid.uuid4().hex[:20]
TOKEN = 32  # letters
tokens = itertools.count()

NAMES = 4096  # models whose names are remembered for messages
_named: dict[str, str] = {}  # the latest models' names, by their dashboard names


class Names:
    """Makes keys with one token, of hexadecimal digits as in Dask's own."""

    def __init__(self) -> None:
        self._token = f"{PROCESS}{next(tokens):012x}"
        self._numbers = itertools.count()

    def key(self, stage: Stage, name: str, calls: int | None = None) -> Key:
        in_key = dashboard_name(name)
        if _named.get(in_key) != name:
            _named[in_key] = name
            drop_oldest(_named, NAMES)
        key = (f"{stage}-{in_key}-{self._token}", os.getpid(), next(self._numbers))
        return key if calls is None else (*key, calls)


def task_label(key: Key) -> str:
    """A task's name in messages: the stage of a model, or the key of another collection."""
    head = key[0] if isinstance(key, tuple) else key
    stage, _, tail = str(head).partition("-")
    if stage not in get_args(Stage) or not isinstance(key, tuple):
        return f"task {key!r}"
    return f"{stage} of {known_name(tail.rpartition('-')[0])!r}"


class KeyParts(NamedTuple):
    """The parts of a key: the stage, the model's name as keys have it, and the evaluation."""

    stage: str
    model: str
    evaluation: str


def key_parts(key: Key) -> KeyParts | None:
    """The parts of a key that ``Names`` made; None for any other key."""
    return parts_of(key[0]) if isinstance(key, tuple) and len(key) > 2 else None


@functools.lru_cache(maxsize=4096)
def parts_of(head: Any) -> KeyParts | None:
    stage, _, tail = str(head).partition("-")
    model, _, token = tail.rpartition("-")
    is_ours = stage in get_args(Stage) and len(token) == TOKEN and model
    return KeyParts(stage, model, token) if is_ours else None


def calls_in(key: Any, stage: str) -> int:
    """How many calls of its model a task stands for, an item of a sum being one: as the key says,
    else one in a stage that runs models."""
    if isinstance(key, tuple) and len(key) > 3 and isinstance(key[3], int):
        return key[3]
    return int(stage in ("forward", "tangent", "backward"))


def known_name(model: str) -> str:
    """A model's own name, if this process has made keys with it; else the name in keys."""
    return _named.get(model, model)


def watched_key(key: Key) -> Key:
    """The key of a task within ``debug_nans``: Dask may know the result for its usual key."""
    return (*key, "watched") if isinstance(key, tuple) else key


def is_of_pullbacks(key: Key) -> bool:
    """Whether the key's task captures a call or pulls back."""
    return isinstance(key, tuple) and str(key[0]).startswith(("forward-", "backward-"))
