"""The pages in a browser: what they show is what ran, and nothing goes wrong in it."""

import logging
import re
import runpy
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy
import pytest
from browsers import Page, browser
from clusters import cluster, kill
from small_models import term, total, wave
from waiting import wait_until

import daskgrad as dg
from daskgrad.tasks import observers

pytest.importorskip("bokeh")
pytestmark = pytest.mark.timeout(300)

X = numpy.linspace(0.1, 1.0, 5)
EVIL = "<script>window.hacked = true</script>"
ROUTES = ("gradient", "gradient-graph", "gradient-memory", "gradient-models", "gradient-descent")
SETTLED = "column.length >= 12 && column.every(each => ['done', 'released'].includes(each))"
STOCK = ("status", "workers", "tasks", "system", "profile", "graph", "groups")


def graph(x):
    y = dg.delayed(wave, name=EVIL)(x)
    return dg.delayed(total)(y) + dg.delayed(total)(dg.delayed(wave, name=EVIL)(y))


@pytest.fixture(scope="module")
def opened():
    with browser() as found:
        yield found


@pytest.fixture
def mounted(caplog):
    """A cluster with the pages, whose scheduler logs no error."""
    with cluster(processes=False, protocol="tcp://") as client:
        dg.dashboards.mount(client)
        yield client
        logged = [record for record in caplog.records if record.levelno >= logging.ERROR]
        assert [record.getMessage() for record in logged] == []  # before workers are closed


def address(client, page):
    return client.dashboard_link.replace("status", page)


def test_the_numbers_on_the_pages_are_those_of_what_ran(opened, mounted):
    pages = {route: Page(opened, address(mounted, route), width=1600) for route in ROUTES}
    with dg.record("fit"):
        for _ in range(3):
            dg.value_and_grad(graph)(X)
    gradient = pages["gradient"]
    gradient.wait_for("total", "column.length >= 6")
    wait_until(lambda: gradient.column("done") == gradient.column("total"))
    rows = zip(*map(gradient.column, ("stage", "model", "done")), strict=True)
    done = {(stage, model): count for stage, model, count in rows}
    assert done["forward", EVIL] == done["backward", EVIL] == 2
    assert done["forward", "total"] == done["backward", "total"] == 2
    pages["gradient-graph"].wait_for("state", SETTLED)
    stage = pages["gradient-graph"].column("stage")
    assert stage.count("forward") == stage.count("backward") == 5
    assert pages["gradient-descent"].wait_for("number", "column.length >= 3") == [0, 1, 2]
    with dg.place([1.0, 2.0, 3.0, 4.0], grainsize=1) as shards:
        for _ in range(10):
            dg.grad(lambda x: dg.map_sum(term, shards, x, name="likely"))(X)
        gradient.wait_for("what", "column.filter(x => x.includes('direct')).length > 0")
        items = pages["gradient-models"].wait_for("items", "column.length > 0")
        assert sum(map(int, items)) == 4
        pages["gradient-memory"].wait_for("kind", "column.includes('placed items')")
    for page in pages.values():
        assert page.page.evaluate("() => window.hacked === undefined")
        page.close()


@pytest.mark.parametrize("width", [1000, 1600, 1920])
def test_the_navigation_leads_from_every_page_to_the_gradients(opened, mounted, width):
    for route in STOCK:
        page = Page(opened, address(mounted, route), width=width)
        bar = page.page.locator("#myTopnav").bounding_box()
        assert bar["height"] < 60, "it is one line, and covers nothing"
        page.page.locator("#myTopnav a[href='gradient']").click()
        page.wait("() => location.pathname.endsWith('/gradient')")
        page.wait("window.Bokeh && Bokeh.documents.length > 0")
        for tab in ROUTES:
            page.page.locator(f".tabs a[href='{tab}']").wait_for()
        page._context.close()


def test_a_page_follows_the_width_of_its_window(opened, mounted):
    dg.value_and_grad(graph)(X)
    page = Page(opened, address(mounted, "gradient"), width=1600)
    page.wait_for("total", "column.length >= 6")
    for width in (390, 1000, 1920):
        page.page.set_viewport_size({"width": width, "height": 900})
        page.wait("width => document.documentElement.scrollWidth <= width", width)
    page.close()


def test_ten_browsers_leave_nothing_behind(opened, mounted):
    pages = [Page(opened, address(mounted, "gradient")) for _ in range(10)]
    for _ in range(3):
        dg.value_and_grad(graph)(X)
    for page in pages:
        page.wait_for("total", "column.length >= 6")
        page.close()

    def sessions(dask_scheduler):
        apps = [
            app
            for app in dask_scheduler.http_application.applications
            if hasattr(app, "get_sessions")
        ]
        found = [app.get_sessions(path) for app in apps for path in app.app_paths]
        return sum([len([s for s in each if s.connection_count]) for each in found])

    wait_until(lambda: mounted.run_on_scheduler(sessions) == 0)


class Evaluations(observers.Observer):
    """Counts the calls for a value and its gradient."""

    sees_tasks = False
    count = 0

    def evaluated(self, evaluation):
        self.count += 1


@pytest.mark.long
def test_the_pages_while_schools_are_fitted(opened, mounted, monkeypatch, capsys):
    """Each gradient is a call of both workers; every page shows numbers that go up meanwhile."""
    pytest.importorskip("statsmodels")
    import schools

    pages = {route: Page(opened, address(mounted, route), width=1600) for route in ROUTES}
    scheduler = mounted.scheduler.address
    monkeypatch.setattr(sys, "argv", ["schools.py", "--schools", "300", "--scheduler", scheduler])
    ran = Evaluations()
    with observers.observed_by(ran), ThreadPoolExecutor(1) as pool:
        fit = pool.submit(runpy.run_path, schools.__file__, run_name="__main__")
        seen = set()

        def is_moving():
            seen.update(re.findall(r"([\d,]+) direct calls", pages["gradient"].text()))
            return len(seen) > 1 or fit.done()

        wait_until(is_moving)
        assert len(seen) > 1, "it goes up while the page is open, one of five that take turns"
        fit.result()
    with mounted.as_current():
        dg.value_and_grad(graph)(X)
    total = f"{2 * ran.count:,} direct calls"
    wait_until(lambda: total in pages["gradient"].text())
    for model in ("gaussian_school", "ordinal_school"):  # pages in the background are drawn later
        wait_until(lambda model=model: model in pages["gradient-models"].text())
    pages["gradient-graph"].wait_for("state", SETTLED)
    kinds = pages["gradient-memory"].column("kind")
    assert set(kinds) <= {"pullbacks", "values", "placed items", "cotangents", "tangents"}
    for page in pages.values():
        page.page.set_viewport_size({"width": 1000, "height": 900})
        page.wait("width => document.documentElement.scrollWidth <= width", 1000)
        page.close()


# ------------------------------------------------------------------------------ what goes wrong


def many(x):
    return dg.sum([dg.delayed(total)(dg.delayed(wave)(x * float(n))) for n in range(100)])


def test_pages_that_are_closed_while_much_runs_leave_no_error(opened, mounted):
    is_seen = threading.Event()

    def run():
        with mounted.as_current():
            while not is_seen.is_set():
                dg.value_and_grad(many)(X)

    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(run)
        try:
            for _ in range(3):
                pages = [Page(opened, address(mounted, route)) for route in ROUTES[:2]]
                for page in pages:
                    page.wait_for("stage", "column.length > 0")
                    page.close()
        finally:
            is_seen.set()
        running.result()


def test_workers_that_die_and_a_restart_leave_open_pages_alive(opened, frail):
    dg.dashboards.mount(frail)
    recorder = frail.cluster.scheduler.plugins["daskgrad-recorder"].recorder
    before = recorder.evaluation_count
    pages = {route: Page(opened, address(frail, route)) for route in ROUTES}
    with frail.as_current():
        dg.value_and_grad(graph)(X)
        kill(frail, min(frail.ncores()))
        dg.value_and_grad(graph)(X)
        wait_until(lambda: len(frail.ncores()) == 2)
        frail.restart()
        dg.value_and_grad(graph)(X)
    wait_until(lambda: recorder.evaluation_count >= before + 3)
    for page in pages.values():
        shown = f"{recorder.evaluation_count:,} evaluations"
        if page is pages["gradient"]:
            wait_until(lambda page=page, shown=shown: shown in page.text())
        page.close()
