"""Classes: a pickle that comes back leaves the classes of this process as they are.

cloudpickle sends a script's class by value, and where a process has it already, sets its attributes
to those that arrive. In the client's process the methods would become copies, with globals that are
copies, too, and programs that watch them would be lost. Dask's scheduler, which loads graphs, is
often there, and results come back to it.
"""

import functools
import weakref
from typing import Any

import cloudpickle.cloudpickle as private

_own: weakref.WeakSet = weakref.WeakSet()  # classes that this process was the first to send


def install() -> None:
    """Has cloudpickle leave such classes alone; once, however often it is called."""
    if hasattr(private._class_setstate, "__wrapped__"):
        return
    track, set_state = private._get_or_create_tracker_id, private._class_setstate

    @functools.wraps(track)
    def track_own(kind: type) -> str:
        if kind not in private._DYNAMIC_CLASS_TRACKER_BY_CLASS:
            _own.add(kind)
        return track(kind)

    @functools.wraps(set_state)
    def set_state_of_others(kind: type, state: Any) -> type:
        return kind if kind in _own else set_state(kind, state)

    private._get_or_create_tracker_id = track_own
    private._class_setstate = set_state_of_others
