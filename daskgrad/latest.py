"""Latest: dicts that keep what was put into them last, and that several threads use."""

from typing import Any


def drop_oldest(kept: dict[Any, Any], count: int) -> None:
    """Drops all but the latest ``count`` entries."""
    if len(kept) > count:
        for old in list(kept)[:-count]:  # of a copy: other threads add to it
            kept.pop(old, None)
