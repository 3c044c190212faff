"""Ranges of axes, which the server sets.

Those that Bokeh's browsers find out they send back, each of them at each change, and the server
logs an error where such a message meets a page that is being closed.
"""

import math
from collections.abc import Iterable

from bokeh.models import Range1d


def fixed(start: float, end: float) -> Range1d:
    """A range that the tool *reset* comes back to."""
    return Range1d(start, end, reset_start=start, reset_end=end)


def show(shown: Range1d, start: float, end: float) -> None:
    """Sets a range, unless somebody has moved it; the tool *reset* lets it follow again."""
    is_moved = (shown.start, shown.end) != (shown.reset_start, shown.reset_end)
    shown.update(reset_start=start, reset_end=end)
    if not is_moved:
        shown.update(start=start, end=end)


def around(numbers: Iterable[float], margin: float = 0.03) -> tuple[float, float]:
    """From the least finite number to the largest, and a margin; of no numbers around zero."""
    found = [number for number in numbers if math.isfinite(number)] or [0.0]
    low, high = min(found), max(found)
    wide = (high - low) or max(abs(high), 1.0)
    return low - margin * wide, high + margin * wide
