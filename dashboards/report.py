"""Report: what was evaluated within a context, as one HTML file, and as a trace for Perfetto."""

import contextlib
import json
import os
import pathlib
from collections.abc import Iterator
from typing import Any

from distributed import Client

from daskgrad.dashboards.local import LocalObserver
from daskgrad.dashboards.recorder import Recorder
from daskgrad.dashboards.scheduler_plugin import recording
from daskgrad.dashboards.trace import trace_events
from daskgrad.tasks import observers
from daskgrad.tasks.clients import active_client
from daskgrad.tasks.observers import observed_by
from daskgrad.values.descriptions import describe
from daskgrad.values.extras import imported

Path = str | os.PathLike[str]


@contextlib.contextmanager
def report(path: Path, trace: Path | None = None) -> Iterator[Recorder]:
    """A context at whose end the file ``path`` shows what was evaluated within it.

    It is one HTML file with everything in it: time line, graph, costs of models, memory of workers,
    and the descent of each run (``dg.record``). It holds for every scheduler of Dask and for small
    evaluations in the calling thread; on a cluster, for the client that is active at the start.
    ``trace`` is a JSON file in Chrome's trace event format, which https://ui.perfetto.dev opens.

    Tasks are drawn one by one up to the latest 20,000. Yields the ``Recorder``, whose attributes
    hold the same numbers after the context.

    Raises
    ------
    TypeError
        if a path is neither a string nor a path.
    FileNotFoundError
        if the folder of a file does not exist.
    ModuleNotFoundError
        if Bokeh is not installed (``pip install "daskgrad[dashboards]"``).

    Examples
    --------
    >>> import os, tempfile
    >>> file = os.path.join(tempfile.mkdtemp(), "report.html")
    >>> with dg.report(file):
    ...     gradient = dg.grad(lambda x: dg.delayed(np.sum)(x**2))(np.ones(3))
    >>> os.path.exists(file)
    True
    """
    paths = [require_path(each) for each in (path, trace) if each is not None]
    imported("bokeh", "dashboards", "dg.report draws with Bokeh")  # before anything is evaluated
    from daskgrad.dashboards.pages.report import page

    recorder = Recorder()
    client = active_client()
    with observed_by(LocalObserver(recorder)):
        with contextlib.nullcontext() if client is None else recorded(client, recorder):
            try:
                yield recorder
            finally:
                for wait in () if client is None else observers.late_events:
                    wait(client)
        paths[0].write_text(page(recorder, paths[0].stem), encoding="utf-8")
        if trace is not None:
            paths[1].write_text(json.dumps(trace_events(recorder)), encoding="utf-8")


def require_path(path: Any) -> pathlib.Path:
    """The path of a file that can be written."""
    if not isinstance(path, str | os.PathLike):
        raise TypeError(f"dg.report takes the path of a file; found {describe(path)}")
    found = pathlib.Path(path)
    if not found.absolute().parent.is_dir():
        raise FileNotFoundError(f"dg.report cannot write {found}: its folder does not exist")
    return found


@contextlib.contextmanager
def recorded(client: Client, recorder: Recorder) -> Iterator[None]:
    """Records what the scheduler sees, in a plugin of this report's own, and fetches it."""
    with recording(client) as name:
        yield
        recorder.absorb(client.run_on_scheduler(records, name=name))


def records(name: str, dask_scheduler: Any) -> Recorder:
    plugin = dask_scheduler.plugins[name]
    plugin.sample()
    return plugin.recorder
