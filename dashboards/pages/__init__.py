"""Pages: the recorder's pictures on the dashboard of Dask's scheduler and in reports; needs Bokeh.

A module for each page has the table of its plots; ``plots`` draws them. This one puts the pages on
the dashboard as ``distributed`` puts its own there, which it does not document.
"""

import functools
import html
import pathlib
import sys
import time
import weakref
from importlib import metadata
from typing import Any

import distributed.http.utils
import jinja2
from bokeh.embed import file_html
from bokeh.layouts import column
from bokeh.resources import INLINE
from bokeh.server.tornado import BokehTornado
from distributed import Scheduler
from distributed.dashboard.core import BokehApplication
from distributed.dashboard.scheduler import template_variables
from tornado.ioloop import IOLoop
from tornado.web import RequestHandler

from daskgrad.autodiff.values import clock
from daskgrad.dashboards.pages import descent, gradient, graph, memory, models
from daskgrad.dashboards.pages.plots import Page, View, empty, text
from daskgrad.dashboards.recorder import Recorder

PAGES = (gradient.PAGE, graph.PAGE, memory.PAGE, models.PAGE, descent.PAGE)

UPDATE_EVERY = 500  # milliseconds, or less often: see ``Turns``
SHARE = 0.02  # of the scheduler's time, for the updates of all open pages together


NARROWER = "@media screen and (max-width: 1180px) { .navbar li a { padding: 11px 9px; } }\n"
HTTP = pathlib.Path(distributed.http.utils.__file__).parent
FOLDERS = [pathlib.Path(__file__).parent, HTTP / "templates"]
templates = jinja2.Environment(loader=jinja2.FileSystemLoader(FOLDERS), autoescape=False)


def attach(scheduler: Scheduler, recorder: Recorder) -> None:
    """Adds the pages to a scheduler's dashboard, and an entry to every page's navigation.

    RuntimeError if the scheduler has no dashboard.
    """
    http: Any = scheduler.http_application
    stock = next((app for app in http.applications if isinstance(app, BokehTornado)), None)
    if stock is None:
        raise RuntimeError(
            "the scheduler has no dashboard, so it cannot show gradients: start it with a "
            "dashboard_address, and with Bokeh installed"
        )
    variables = template_variables(scheduler)  # which all pages of this scheduler share
    variables["pages"].append(PAGES[0].route)
    variables["plots"] += [
        {"url": page.route, "name": f"Gradient: {page.name}"} for page in PAGES[1:]
    ]
    fill = functools.partial(document, recorder, Turns())
    documents = {f"/{page.route}": functools.partial(fill, page) for page in PAGES}
    application = BokehApplication(
        documents, scheduler, prefix=stock.prefix, template_variables=variables
    )
    make_room(http, stock.prefix)
    http.add_application(application)
    application.initialize(IOLoop.current())
    application.start()


def make_room(http: Any, prefix: str) -> None:
    """Serves the dashboard's style sheet with narrower entries for the navigation bar.

    At 1,000 pixels one more entry would make the bar wrap, and cover the page below it.
    """
    sheet = HTTP.joinpath("static/css/base.css").read_text() + NARROWER
    path = f"{prefix.rstrip('/')}/statics/css/base.css"
    http.add_handlers(".*$", [(path, Sheet, {"sheet": sheet})])


class Sheet(RequestHandler):
    """Serves one style sheet."""

    def initialize(self, sheet: str) -> None:
        self._sheet = sheet

    def get(self) -> None:
        self.set_header("Content-Type", "text/css")
        self.finish(self._sheet)


class Turns:
    """Decides when each open page of a scheduler is updated.

    The more pages are open, and the longer an update takes, the less often it is: the scheduler has
    its time for tasks.
    """

    def __init__(self) -> None:
        self._due: weakref.WeakKeyDictionary[View, float] = weakref.WeakKeyDictionary()

    def add(self, view: View) -> None:
        self._due[view] = 0.0

    def update(self, view: View) -> None:
        """Updates a page, unless it is too early."""
        if clock.seconds() < self._due[view]:
            return
        start = clock.thread_seconds()
        view.update()
        took = clock.thread_seconds() - start
        self._due[view] = clock.seconds() + took * len(self._due) / SHARE


def document(
    recorder: Recorder, turns: Turns, page: Page, scheduler: Any, extra: dict[str, Any], doc: Any
) -> None:
    """Fills a browser's document, and updates it as long as it is open."""
    view = View(page, recorder)
    turns.add(view)
    doc.title = f"{page.name}: daskgrad"
    doc.template = templates.get_template("page.html")
    doc.template_variables.update(extra, tabs=PAGES, tab=page)
    doc.add_root(view.layout)
    doc.add_periodic_callback(functools.partial(turns.update, view), UPDATE_EVERY)


# -------------------------------------------------------------------------------------------------
# Report: all pages, one below the other, in one HTML file.

REPORT = jinja2.Template(
    """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{{ title }}</title>
<style>
  :root { color-scheme: light dark; }
  html { background: light-dark(#FFFFFF, #15191E); }
  body { margin: 0 auto; padding: 8px 20px; max-width: 1600px; }
</style>
{{ bokeh_css }}
{{ bokeh_js }}
</head>
<body>
{{ plot_div }}
{{ plot_script }}
</body>
</html>"""
)


def report_page(recorder: Recorder, title: str) -> str:
    """The HTML of a report; pages without records are left out."""
    shown = []
    for page in PAGES:
        if page.is_something(recorder):
            view = View(page, recorder, is_report=True)
            shown += [text(f"<h2>{page.name}</h2>"), view.layout]
    if not shown:
        shown = [empty("Nothing was evaluated in this context.", "dg.value_and_grad(fun)(x)")]
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(recorder.begin))
    calls = sum([run.count for run in recorder.runs.values()])
    packages = ("daskgrad", "dask", "distributed", "numpy")
    parts = [
        pathlib.Path(sys.argv[0]).name or "Python",
        f"recorded from {when} on",
        "1 call of a gradient" if calls == 1 else f"{calls:,} calls of gradients",
        *[f"{name} {metadata.version(name)}" for name in packages],
    ]
    end = f"<p><b>{html.escape(recorder.end)}</b></p>" if recorder.end else ""
    head = text(f"<h1>{html.escape(title)}</h1>{html.escape(' · '.join(parts))}{end}")
    layout = column(head, *shown, sizing_mode="stretch_width")
    return file_html(layout, INLINE, title=title, template=REPORT)
