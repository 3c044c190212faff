"""The report's page: the views of all pages, one below the other, in one HTML file."""

import html
import time

from bokeh.embed import file_html
from bokeh.layouts import column
from bokeh.resources import INLINE
from jinja2 import Template

from daskgrad.dashboards.pages import PAGES, style
from daskgrad.dashboards.recorder import Recorder

TEMPLATE = Template(
    """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
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


def page(recorder: Recorder, title: str) -> str:
    """The HTML of a report; views of which there is nothing are left out."""
    shown = []
    for each in PAGES:
        view = each.view(recorder, is_report=True)
        if view.has_something:
            shown += [style.text(f"<h2>{each.name}</h2>"), view.layout]
    if not shown:
        shown = [style.empty("Nothing was evaluated in this context.", "dg.value_and_grad(fun)(x)")]
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(recorder.begin))
    head = style.text(f"<h1>{html.escape(title)}</h1>recorded from {when} on")
    layout = column(head, *shown, sizing_mode="stretch_width")
    return file_html(layout, INLINE, title=title, template=TEMPLATE)
