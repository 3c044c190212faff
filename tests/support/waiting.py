"""Tests wait for conditions and open gates; nothing else in them sleeps.

Workers that the tests start import this module.
"""

import os
import pathlib
import time

from daskgrad.autodiff.values import clock as package_clock

SLOW = float(os.environ.get("DASKGRAD_SLOW", "1"))  # times all limits, for slow machines


def wait_until(condition, seconds=60):
    """Returns the condition's result once it is true."""
    deadline = time.monotonic() + seconds * SLOW
    while not (result := condition()):
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.005)
    return result


class Gate:
    """A gate at which models wait, in any thread or process, until the test opens it."""

    def __init__(self, path):
        """``path``: a file that does not exist yet, in a folder of the test's own."""
        self._path = pathlib.Path(path)

    def wait(self, name=""):
        """Called by a model: says that it is here, and waits until the gate is open."""
        with open(f"{self._path}.arrived", "a") as file:  # one short line: appended whole
            file.write(f"{name} {os.getpid()}\n")
        wait_until(self._path.exists)

    def arrived(self):
        """The names of the models that have come here so far, and their processes."""
        path = pathlib.Path(f"{self._path}.arrived")
        rows = path.read_text().splitlines() if path.exists() else []
        return [(name, int(pid)) for name, pid in (row.rsplit(" ", 1) for row in rows)]

    def wait_for(self, count=1):
        """Waits until so many models have come here; returns them."""
        wait_until(lambda: len(self.arrived()) >= count)
        return self.arrived()

    def open(self):
        self._path.touch()


class Clock:
    """What a test puts in the place of the package's clock, and moves on; starts at zero."""

    def __init__(self):
        self.now = 0.0

    def move(self, seconds):
        self.now += seconds

    def seconds(self):
        return self.now

    def replace(self, monkeypatch):
        """Has the package read this clock."""
        for name in ("seconds", "thread_seconds", "processor_seconds"):
            monkeypatch.setattr(package_clock, name, self.seconds)
        monkeypatch.setattr(package_clock, "preemptions", lambda: 0)
