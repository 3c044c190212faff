"""Tables of ``peers.py``, for the terminal and for ``docs/comparison.md``."""

import statistics
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from report import Claim, at_most, table

SHOWN = "daskgrad autograd casadi dask distributed httpstan jax numba numpy openmdao pyadjoint-ad "
SHOWN += "pytensor pytensor-federated torch"
HEADER = ("processor time, ms", "first row's over it", "ready, s", "first call, ms", "MB", "lines")
WANTED = (  # daskgrad's time over a peer's, at most
    ("W1", "daskgrad: reduce_sum", "autograd: one tape", 1.1),
    ("W1", "daskgrad: reduce_sum", "stan: reduce_sum", 2.0),
    ("W2", "daskgrad: map_sum", "stan: reduce_sum", 3.0),
    ("W2", "daskgrad: map_sum", "autograd: flat rows", 1.0),
    ("W2", "daskgrad: map_sum", "jax: jit(vmap), padded", 1.0),
    ("W2", "daskgrad: map_sum", "torch: eager, flat rows", 1.0),
    ("W3", "daskgrad: map_sum", "stan: reduce_sum", 1.0),
    ("W3", "daskgrad: map_sum", "casadi: SX step, mapaccum, map", 1.0),
    ("W3", "daskgrad: map_sum", "jax: jit(vmap), lax.scan", 3.0),
    ("W4", "daskgrad: graph", "autograd: one tape", 1.2),
    ("W4", "daskgrad: graph, two workers", "autograd: one tape", 1.6),
    ("W5", "daskgrad: gradient by hand", "dask: client.run, gradient by hand", 1.1),
    ("W5", "daskgrad: gradient by hand", "torch: RPC, gradient by hand in NumPy", 1.2),
)


def ratio(row: dict[str, Any], other: dict[str, Any]) -> float:
    return statistics.median(a / b for a, b in zip(row["used"], other["used"], strict=True))


def table_of(work: str, found: dict[str, Any]) -> str:
    lines = []
    first = next(row for row in found["rows"].values() if "failed" not in row)
    for label, row in found["rows"].items():
        if "failed" in row:
            lines.append([label, row["failed"].replace("|", " "), *[""] * 5])
            continue
        times = f"{1e3 * statistics.median(row['used']):.3g}", f"{ratio(first, row):.2f}"
        start = f"{row['ready']:.1f}", f"{1e3 * row['first']:.3g}"
        lines.append([label, *times, *start, f"{row['peak']:.0f}", str(row["lines"])])
    load = " to ".join(f"{each:.1f}" for each in found["load"])
    stated = f"{found['rounds']} rounds; {found['machine']['cpu']}, load {load}."
    return f"{table((work, *HEADER), lines, markdown=True)}\n\n{stated}"


def claims_of(found: dict[str, Any]) -> list[Claim]:
    """The wanted ratios that were measured."""
    claims = []
    for work, ours, peer, limit in WANTED:
        rows = found[work]["rows"] if work in found else {}
        if "used" in rows.get(ours, {}) and "used" in rows.get(peer, {}):
            text = f"{work}, {ours}, over {peer}"
            claims.append(at_most(text, ratio(rows[ours], rows[peer]), limit))
    return claims


def wanted_table(found: dict[str, Any]) -> str:
    rows = []
    for claim in claims_of(found):
        text, limit = claim.text.split(": at most ")
        rows.append((text, limit, f"{claim.found:.2f}"))
    return table(("processor time of", "wanted, at most", "found"), rows, markdown=True)


def versions(installed: Iterable[Path]) -> str:
    """The packages of environments, from pip's lists of them."""
    lines = sorted({line for each in installed for line in each.read_text().split()})
    named = [line.split("==") for line in lines if "==" in line]
    return ", ".join([" ".join(pair) for pair in named if pair[0].lower() in SHOWN.split()]) + "."


def written(page: str, tables: dict[str, str]) -> str:
    """The page with each table between its two comments."""
    for name, text in tables.items():
        begin, end = f"<!-- {name} -->\n", f"\n<!-- end of {name} -->"
        before, after = page.split(begin)[0], page.split(end)[1]
        page = f"{before}{begin}\n{text}\n{end}{after}"
    return page
