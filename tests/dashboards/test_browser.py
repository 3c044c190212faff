"""The pages in a browser: what they show is what ran, and nothing goes wrong in it."""

import logging
import runpy
import sys

import autograd.numpy as np
import numpy
import pytest
from browsers import Page, browser
from clusters import cluster, wait_until

import daskgrad as dg

pytest.importorskip("bokeh")
pytestmark = pytest.mark.timeout(300)

X = numpy.linspace(0.1, 1.0, 5)
EVIL = "<script>window.hacked = true</script>"
ROUTES = ("gradient", "gradient-graph", "gradient-memory", "gradient-models", "gradient-descent")
STOCK = ("status", "workers", "tasks", "system", "profile", "graph", "groups")


def wave(x):
    return np.sin(x)


def total(y):
    return np.sum(y * y)


def term(item, x):
    return np.sum(np.sin(item * x))


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
    logged = [each for each in caplog.records if each.levelno >= logging.ERROR]
    assert [each.getMessage() for each in logged] == []


def address(client, page):
    return client.dashboard_link.replace("status", page)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_of_nothing_say_what_to_do(opened, mounted, scheme):
    for route in ROUTES:
        page = Page(opened, address(mounted, route), scheme=scheme)
        page.wait("() => document.querySelector('.bk-Column, [class*=bk-Column]') !== null")
        shown = page.text()
        assert "dg." in shown
        page.close()


def test_the_numbers_on_the_pages_are_those_of_what_ran(opened, mounted):
    pages = {route: Page(opened, address(mounted, route), width=1600) for route in ROUTES}
    with dg.record("fit"):
        for _ in range(3):
            dg.value_and_grad(graph)(X)
    gradient = pages["gradient"]
    gradient.wait_for("total", "column.length >= 6")
    wait_until(lambda: gradient.column("done") == gradient.column("total"))
    done = dict(zip(stages(gradient), gradient.column("done"), strict=True))
    assert done["forward", EVIL] == done["backward", EVIL] == 2
    assert done["forward", "total"] == done["backward", "total"] == 2
    states = pages["gradient-graph"].wait_for("state", "column.length >= 12")
    assert set(states) <= {"done", "released"}
    stage = pages["gradient-graph"].column("stage")
    assert stage.count("forward") == stage.count("backward") == 5
    assert pages["gradient-descent"].wait_for("number", "column.length > 0") == [0, 1, 2]
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


def stages(page):
    return zip(page.column("stage"), page.column("model"), strict=True)


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
    for width in (1000, 1920):
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


@pytest.mark.long
def test_the_pages_while_schools_are_fitted(opened, mounted, monkeypatch, capsys):
    pytest.importorskip("statsmodels")
    pages = [Page(opened, address(mounted, route), width=1600) for route in ROUTES]
    scheduler = mounted.scheduler.address
    monkeypatch.setattr(sys, "argv", ["schools.py", "--schools", "300", "--scheduler", scheduler])
    import schools

    runpy.run_path(schools.__file__, run_name="__main__")
    calls = pages[0].wait_for("what", "column.filter(x => x.includes('direct')).length > 0")
    assert calls
    for page in pages:
        page.close()
