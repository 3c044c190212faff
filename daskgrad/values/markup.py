"""Markup: HTML tables for notebooks, pages and reports, escaped; times and sizes in words."""

import html
from collections.abc import Iterable
from typing import Any


def escaped(what: Any) -> str:
    return html.escape(str(what))


def table(title: str, head: Iterable[str], rows: Iterable[Iterable[Any]]) -> str:
    """An HTML table of escaped entries; all columns but the first are numbers."""
    lines = [[*map(escaped, row)] for row in rows]
    if not lines:
        return ""
    above = f"<h3>{escaped(title)}</h3>" if title else ""

    def cells(tag: str, entries: Iterable[str]) -> str:
        kinds = [
            f"<{tag}{'' if not n else ' class=number'}>{e}</{tag}>" for n, e in enumerate(entries)
        ]
        return f"<tr>{''.join(kinds)}</tr>"

    body = "".join([cells("td", line) for line in lines])
    return f"{above}<table>{cells('th', map(escaped, head))}{body}</table>"


def seconds(number: float) -> str:
    """A time in the unit that fits."""
    for size, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if number >= size:
            return f"{number / size:,.3g} {unit}"
    return f"{number * 1e9:,.3g} ns" if number > 0 else "0 s"


def nbytes(number: float) -> str:
    for size, unit in ((2**30, "GiB"), (2**20, "MiB"), (2**10, "kiB")):
        if number >= size:
            return f"{number / size:,.3g} {unit}"
    return f"{number:,.0f} B"
