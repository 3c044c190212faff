"""Screenshots: pictures of the pages and of a report, of a small fit on a cluster.

    python docs/screenshots.py FOLDER [--width 1000] [--scheme light]

It needs Playwright (``pip install playwright``) and the Chromium of the system. ``docs/pictures``
has those that the documents show.
"""

import argparse
import contextlib
import pathlib
import shutil
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
from distributed import Client, LocalCluster

import daskgrad as dg

PAGES = ("gradient", "gradient-graph", "gradient-memory", "gradient-models", "gradient-descent")
FLAGS = "--headless --no-sandbox --disable-gpu --disable-background-networking --no-first-run"
NO_TOOLBARS = """for (const document of Bokeh.documents)
    for (const model of document._all_models.values())
        if ("toolbar_location" in model.properties) model.toolbar_location = null"""
SETTLED = 4000  # milliseconds until a page has drawn everything


def layer(x: Any) -> Any:
    time.sleep(0.05)
    return np.tanh(x)


def scale(x: Any, factor: float) -> Any:
    time.sleep(0.08)
    return factor * x


def loss(y: Any) -> Any:
    time.sleep(0.03)
    return np.sum(y**2)


def term(item: Any, x: Any) -> Any:
    return np.sum(np.sin(item * x) ** 2)


def network(x: Any) -> Any:
    hidden, scaled, end = dg.delayed(layer), dg.delayed(scale), dg.delayed(loss)
    y = hidden(x)
    wide = [scaled(y, factor) for factor in (0.5, 2.0, 3.0)]
    return end(hidden(wide[1] + wide[2])) + end(wide[0]) + end(scaled(y, 1.5))


def descend(name: str, rate: float, shards: Any, steps: int) -> None:
    x = np.linspace(0.0, 1.0, 2000)
    gradient = dg.value_and_grad(lambda x: dg.map_sum(term, shards, x, name="likelihood"))
    with dg.record(name):
        for _ in range(steps):
            x = x - rate * gradient(x)[1]


def evaluate(shards: Any) -> Any:
    """Two fits; a pullback, which workers hold; some evaluations."""
    descend("slow", 1e-6, shards, 60)
    descend("quick", 5e-6, shards, 40)
    held = dg.vjp(network, np.linspace(0.0, 1.0, 1_000_000))
    for _ in range(4):
        dg.value_and_grad(network)(np.linspace(0.0, 1.0, 100_000))
    return held


@contextlib.contextmanager
def browser_context(width: int, scheme: str) -> Iterator[Any]:
    """A browser's context for pages, until the end."""
    from playwright.sync_api import sync_playwright  # here: it is for pictures alone

    path = shutil.which("chromium") or shutil.which("chromium-browser")
    with sync_playwright() as run:
        browser = run.chromium.launch(executable_path=path, args=FLAGS.split())
        size = {"width": width, "height": 700}
        yield browser.new_context(viewport=size, color_scheme=scheme)
        browser.close()


def take(addresses: dict[str, str], folder: pathlib.Path, width: int, scheme: str) -> None:
    """Writes a picture of each address, under its name."""
    with browser_context(width, scheme) as context:
        for name, address in addresses.items():
            page = context.new_page()
            page.goto(address)
            page.wait_for_function("window.Bokeh && Bokeh.documents.length > 0")
            page.evaluate(NO_TOOLBARS)
            page.wait_for_timeout(SETTLED)
            page.screenshot(path=folder / f"{name}.png", full_page=True)
            page.close()


def main() -> None:
    parser = argparse.ArgumentParser(description="Takes pictures of the pages.")
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--width", type=int, default=1000)
    parser.add_argument("--scheme", default="light", choices=["light", "dark"])
    arguments = parser.parse_args()
    folder = arguments.folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    local = {"n_workers": 2, "threads_per_worker": 2, "memory_limit": "1GiB", "host": "127.0.0.1"}
    items = [float(1 + n % 7) * np.ones((10, 2000)) for n in range(400)]
    with (
        LocalCluster(**local, dashboard_address="127.0.0.1:0") as cluster,
        Client(cluster) as client,
    ):
        link = dg.dashboards.mount(client)
        with dg.place(items) as shards:
            with dg.report(folder / "report.html"):
                held = evaluate(shards)
            addresses = {page: link.replace("gradient", page) for page in PAGES}
            addresses["report"] = (folder / "report.html").as_uri()
            take(addresses, folder, arguments.width, arguments.scheme)
            del held  # until here workers have what the picture of the memory shows


if __name__ == "__main__":
    main()
