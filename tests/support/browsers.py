"""A browser for tests of pages, and what such a page holds."""

import contextlib
import shutil

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = "--headless --no-sandbox --disable-gpu --disable-background-networking --no-first-run"

COLUMN = """name => {
    for (const doc of Bokeh.documents)
        for (const model of doc._all_models.values())
            if (model.type == "ColumnDataSource" && model.data[name] !== undefined)
                return Array.from(model.data[name]);
    return [];
}"""


@contextlib.contextmanager
def browser():
    """A headless Chromium of the system; skips the test where there is none."""
    playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright")
    path = next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        pytest.skip("needs Chromium: apt-get install chromium")
    with playwright.sync_playwright() as run:
        opened = run.chromium.launch(executable_path=path, args=FLAGS.split())
        try:
            yield opened
        finally:
            opened.close()


class Page:
    """One page of a dashboard, opened; collects what goes wrong in it."""

    def __init__(self, browser, address, width=1000):
        self._context = browser.new_context(viewport={"width": width, "height": 900})
        self.page = self._context.new_page()
        self.errors = []
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("console", self._note)
        self.page.goto(address)
        self.wait("window.Bokeh && Bokeh.documents.length > 0")

    def _note(self, message):
        if message.type == "error":
            self.errors.append(message.text)

    def wait(self, condition, argument=None):
        self.page.wait_for_function(condition, arg=argument, timeout=60_000)

    def column(self, name):
        """The column of a name of the first data source that has one."""
        return self.page.evaluate(COLUMN, name)

    def wait_for(self, name, condition):
        """Waits until a condition on a column, in JavaScript, holds, and returns it."""
        self.wait(f"name => (column => {condition})(({COLUMN})(name))", name)
        return self.column(name)

    def text(self):
        """What stands on the page, in the shadows of Bokeh's elements, too."""
        return self.page.evaluate(
            """() => {
                const all = node => (node.shadowRoot ? all(node.shadowRoot) : "") +
                    (node.nodeType == 3 ? node.data : "") +
                    (["STYLE", "SCRIPT"].includes(node.nodeName) ? "" :
                     Array.from(node.childNodes).map(all).join(" "));
                return all(document.body);
            }"""
        )

    def close(self):
        self._context.close()
        assert self.errors == []
