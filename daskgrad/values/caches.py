"""Caches: dicts of limited size that drop their oldest entries, shared by threads."""

from collections.abc import Callable
from typing import Any, TypeVar

Key = TypeVar("Key")
Entry = TypeVar("Entry")


def kept_or_made(kept: dict[Key, Entry], key: Key, make: Callable[[], Entry], count: int) -> Entry:
    """The entry of a key, made if it is missing; the cache keeps at most ``count`` entries."""
    found = kept.get(key)
    if found is None:
        found = kept[key] = make()
        drop_oldest(kept, count)
    return found


def drop_oldest(kept: dict[Any, Any], count: int) -> None:
    """Drops all but the latest ``count`` entries."""
    if len(kept) > count:
        for old in list(kept)[:-count]:  # of a copy: other threads add to it
            kept.pop(old, None)
